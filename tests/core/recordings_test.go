package core_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/migrations"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// record rewrites the recordings of this release, in its own folder. Those of earlier releases never change,
// because databases contain them.
var record = flag.String("record", "", "write recordings of journals into testdata/recordings/`NAME`")

// A recording is a database in which a turn was interrupted.
type recording struct {
	Schema int // newest migration
	Tables []recordedTable
}

type recordedTable struct {
	Name string
	Rows json.RawMessage
}

// recordedTables lists the tables that outlive workers, in the order of their references.
var recordedTables = []string{
	"definitions", "agents", "messages", "leases", "ended_grants", "turns", "replies", "request_parts", "summaries",
	"call_starts", "late_results",
	"outputs", "output_chunks", "journal", "notes",
}

// interruptions lists the recorded turns: where they are interrupted, and how they end when a later release
// continues them.
var interruptions = map[string]struct {
	begin    func(e *env.Env, w *env.Process)
	model    func(inferencetest.Recorded) inferencetest.Reply
	ends     string
	requests int // of the release that continues
	runs     int // of the call, in the release that continues
}{
	"planned": {inTool("mark_none"), env.Rounds(env.MarkerReply("mark_none", "a"), inferencetest.Text("Done.")),
		"succeeded Done.", 1, 1},
	"started": {inTool("mark_once"), env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")),
		"degraded Done.\n\n- mark_once: unknown: it may or may not have happened", 1, 0},
	"keyed": {inTool("mark_keyed"), env.Rounds(env.MarkerReply("mark_keyed", "a"), inferencetest.Text("Done.")),
		"succeeded Done.", 1, 1},
	"answered": {func(e *env.Env, _ *env.Process) {
		e.Ledger.SetAnswer("a", strings.Repeat("A long result. ", 1000))
		e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Hang()))
		e.Send("clerk", "Do it.")
		e.AwaitRequests(2)
	}, env.Rounds(inferencetest.Hang(), inferencetest.Text("Done.")), "succeeded Done.", 1, 0},
	"streaming": {func(e *env.Env, _ *env.Process) {
		e.Model.Then(env.Rounds(env.Drip("Half. ")))
		e.Send("clerk", "Do it.")
		e.Await("half is streamed", "select exists (select from turn_events where type = 'block_delta')")
	}, env.Rounds(inferencetest.Text("Done.")), "succeeded Done.", 1, 0},
	"conversation": {func(e *env.Env, w *env.Process) {
		e.Model.Then(env.Rounds(env.MarkerReply("mark_keyed", "b"), inferencetest.Text("I did.")))
		e.TurnOf(e.Send("clerk", "Do something."))
		if code := w.Terminate(); code != 0 {
			e.T.Fatal(code)
		}
		e.Send("clerk", "What did you do?")
	}, env.Rounds(inferencetest.Text("Done.")), "succeeded Done.", 1, 0},
}

func inTool(tool string) func(*env.Env, *env.Process) {
	return func(e *env.Env, _ *env.Process) {
		e.Ledger.Hold("a")
		e.Model.Then(env.Rounds(env.MarkerReply(tool, "a"), inferencetest.Hang()))
		e.Send("clerk", "Do it.")
		e.Ledger.Await("a", 1)
	}
}

// This release can continue every recorded journal of earlier releases.
func TestRecordedJournals(t *testing.T) {
	t.Parallel()
	if *record != "" {
		recordAll(t, filepath.Join("testdata/recordings", *record))
	}
	files, err := filepath.Glob("testdata/recordings/*/*.json")
	if err != nil || len(files) < len(interruptions) {
		t.Fatalf("there are %d recordings, error %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(filepath.Base(filepath.Dir(file))+" "+name, func(t *testing.T) {
			t.Parallel()
			kind, known := interruptions[name]
			if !known {
				t.Fatal("the interruption has no expected end")
			}
			e := env.NewOn(t, storagetest.EmptyURL(t))
			loadRecording(e, file)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Model.Then(kind.model)
			e.StartWorker()
			turn := e.TurnOf(env.Query[int64](e, "select max(id) from messages"))
			if turn.Reply == nil || turn.State+" "+turn.Reply.Body != kind.ends {
				t.Errorf("the turn ended %s, %+v (%s)", turn.State, turn.Reply, turn.Error)
			}
			e.WantRequests(kind.requests)
			e.Ledger.WantRuns("a", kind.runs)
			e.Model.Then(env.Rounds(inferencetest.Text("Onwards.")))
			e.WantEnd(e.TurnOf(e.Send("clerk", "And now?")), "succeeded", "none", 1)
		})
	}
}

// loadRecording fills the database with the rows and schema of the recording.
func loadRecording(e *env.Env, file string) {
	e.T.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		e.T.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(data, &r); err != nil {
		e.T.Fatal(err)
	}
	e.Exec("create schema turnkeeper")
	e.Exec(
		"create table schema_migrations (version integer primary key, name text not null, applied_at timestamptz not null default now(), oldest_program integer not null)")
	files, err := migrations.Files.ReadDir(".")
	if err != nil {
		e.T.Fatal(err)
	}
	for _, f := range files {
		version, name, _ := strings.Cut(f.Name(), "_")
		name, up := strings.CutSuffix(name, ".up.sql")
		if !up || version > fmt.Sprintf("%03d", r.Schema) {
			continue
		}
		sql, err := migrations.Files.ReadFile(f.Name())
		if err != nil {
			e.T.Fatal(err)
		}
		e.Exec(string(sql))
		e.Exec(
			"insert into schema_migrations (version, name, oldest_program) values ($1::text::integer, $2, $1::text::integer)", version, name)
	}
	for _, table := range r.Tables {
		insertRecorded(e, table)
	}
	e.Exec("select setval('turnkeeper.tokens', (select max(token) from lease_log))")
	// its lease has ended, however new the recording is
	e.Exec("update leases set granted_at = granted_at - interval '1 day', lease_until = lease_until - interval '1 day'")
}

// insertRecorded inserts recorded rows. Columns added later keep their defaults, and generated ones are made again.
func insertRecorded(e *env.Env, table recordedTable) {
	e.T.Helper()
	columns := env.Query[*string](e,
		"select string_agg(distinct quote_ident(k), ', ') from json_array_elements($1::json) r, json_object_keys(r) k "+
			"where k not in (select attname from pg_attribute where attrelid = $2::text::regclass and attgenerated <> '')",
		string(table.Rows), table.Name)
	if columns == nil {
		return
	}
	e.Exec(
		fmt.Sprintf(
			"insert into %[1]s (%[2]s) overriding system value select %[2]s from json_populate_recordset(null::%[1]s, $1::json)",
			table.Name, *columns), string(table.Rows))
	if sequence := env.Query[*string](e,
		"select case when exists (select from information_schema.columns where table_schema = 'turnkeeper' and table_name = $1 and column_name = 'id' and is_identity = 'YES') then pg_get_serial_sequence($1, 'id') end", table.Name); sequence != nil {
		e.Exec(fmt.Sprintf("select setval('%s', (select max(id) from %s))", *sequence, table.Name))
	}
}

// recordAll runs every interruption with this release's programs and records the database.
func recordAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, kind := range interruptions {
		e := env.New(t)
		e.WriteAgent("clerk", env.MarkerTools)
		w := e.StartWorker()
		kind.begin(e, w)
		if w.Running() {
			w.Kill()
		}
		r := recording{Schema: knownMigration()}
		for _, table := range recordedTables {
			rows := env.Query[string](e, fmt.Sprintf(
				"select coalesce(json_agg(t), '[]')::text from (select * from %s order by 1, 2) t", table))
			r.Tables = append(r.Tables, recordedTable{table, json.RawMessage(rows)})
		}
		// the recorded turn is open, and a test must not end with an open turn
		e.Exec("truncate " + strings.Join(recordedTables, ", ") + ", river_job cascade")
		text, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if host, err := os.Hostname(); err == nil { // part of a worker's name
			text = bytes.ReplaceAll(text, []byte(`"`+host+"-"), []byte(`"recorded-`))
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

package tests_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/migrations"
	"turnkeeper/storage/storagetest"
)

// record writes the recordings of this release anew, into its own folder. Those
// of earlier releases are never changed: they are what databases hold.
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

// recordedTables are those that outlive workers, in the order of their references.
var recordedTables = []string{
	"definitions", "agents", "messages", "leases", "lease_log", "turns", "replies", "request_parts", "summaries", "rounds", "calls", "call_starts",
	"outputs", "output_chunks", "turn_events", "notes",
}

// interruptions are the turns that are recorded: how they begin, and how they
// must end when a later release goes on with them.
var interruptions = map[string]struct {
	begin    func(h *house, w *process)
	model    func(recorded) reply
	ends     string
	requests int // of whoever goes on
	runs     int // of the call, by whoever goes on
}{
	"planned": {inTool("mark_none"), rounds(callOnce("mark_none", "a"), text("Done.")), "succeeded Done.", 1, 1},
	"started": {inTool("mark_once"), rounds(callOnce("mark_once", "a"), text("Done.")), "degraded Done.", 1, 0},
	"keyed":   {inTool("mark_keyed"), rounds(callOnce("mark_keyed", "a"), text("Done.")), "succeeded Done.", 1, 1},
	"answered": {func(h *house, _ *process) {
		h.ledger.answer("a", strings.Repeat("A long result. ", 1000))
		h.model.Then(rounds(callOnce("mark_once", "a"), hang()))
		h.send("clerk", "Do it.")
		h.awaitRequests(2)
	}, rounds(hang(), text("Done.")), "succeeded Done.", 1, 0},
	"streaming": {func(h *house, _ *process) {
		h.model.Then(rounds(drip("Half. ")))
		h.send("clerk", "Do it.")
		h.await("half is streamed", "select exists (select from turn_events where type = 'block_delta')")
	}, rounds(text("Done.")), "succeeded Done.", 1, 0},
	"conversation": {func(h *house, w *process) {
		h.model.Then(rounds(callOnce("mark_keyed", "b"), text("I did.")))
		h.turnOf(h.send("clerk", "Do something."))
		if code := w.terminate(); code != 0 {
			h.t.Fatal(code)
		}
		h.send("clerk", "What did you do?")
	}, rounds(text("Done.")), "succeeded Done.", 1, 0},
}

func inTool(tool string) func(*house, *process) {
	return func(h *house, _ *process) {
		h.ledger.hold("a")
		h.model.Then(rounds(callOnce(tool, "a"), hang()))
		h.send("clerk", "Do it.")
		h.ledger.await("a", 1)
	}
}

// Every journal that a release has left behind can be gone on with.
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
				t.Fatal("nobody says how it must end")
			}
			h := newHouseOn(t, storagetest.EmptyURL(t))
			h.load(file)
			h.agent("clerk", marks)
			h.model.Then(kind.model)
			h.startWorker()
			turn := h.turnOf(query[int64](h, "select max(id) from messages"))
			if turn.Reply == nil || turn.State+" "+turn.Reply.Body != kind.ends {
				t.Errorf("the turn ended %s, %+v (%s)", turn.State, turn.Reply, turn.Error)
			}
			h.requests(kind.requests)
			h.ledger.ran("a", kind.runs)
			h.model.Then(rounds(text("Onwards.")))
			h.ended(h.turnOf(h.send("clerk", "And now?")), "succeeded", "none", 1)
		})
	}
}

// load makes the database as the recording's release had it, rows and schema.
func (h *house) load(file string) {
	h.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(data, &r); err != nil {
		h.t.Fatal(err)
	}
	h.exec("create schema turnkeeper")
	h.exec("create table schema_migrations (version integer primary key, name text not null, applied_at timestamptz not null default now())")
	files, err := migrations.Files.ReadDir(".")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range files {
		version, name, _ := strings.Cut(f.Name(), "_")
		name, up := strings.CutSuffix(name, ".up.sql")
		if !up || version > fmt.Sprintf("%03d", r.Schema) {
			continue
		}
		sql, err := migrations.Files.ReadFile(f.Name())
		if err != nil {
			h.t.Fatal(err)
		}
		h.exec(string(sql))
		h.exec("insert into schema_migrations (version, name) values ($1::text::integer, $2)", version, name)
	}
	for _, table := range r.Tables {
		h.fill(table)
	}
	// However new the recording is, its lease is over.
	h.exec("update leases set granted_at = granted_at - interval '1 day', lease_until = lease_until - interval '1 day'")
}

// fill inserts rows as they were recorded; columns that came later keep their
// defaults.
func (h *house) fill(table recordedTable) {
	h.t.Helper()
	columns := query[*string](h, "select string_agg(distinct quote_ident(k), ', ') from json_array_elements($1::json) r, json_object_keys(r) k", string(table.Rows))
	if columns == nil {
		return
	}
	h.exec(fmt.Sprintf("insert into %[1]s (%[2]s) overriding system value select %[2]s from json_populate_recordset(null::%[1]s, $1::json)",
		table.Name, *columns), string(table.Rows))
	if sequence := query[*string](h, "select case when exists (select from information_schema.columns where table_schema = 'turnkeeper' and table_name = $1 and column_name = 'id' and is_identity = 'YES') then pg_get_serial_sequence($1, 'id') end", table.Name); sequence != nil {
		h.exec(fmt.Sprintf("select setval('%s', (select max(id) from %s))", *sequence, table.Name))
	}
}

// recordAll plays every interruption with the present programs and writes what
// the database then holds.
func recordAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, kind := range interruptions {
		h := newHouse(t)
		h.agent("clerk", marks)
		w := h.startWorker()
		kind.begin(h, w)
		if w.running() {
			w.kill()
		}
		r := recording{Schema: knownMigration()}
		for _, table := range recordedTables {
			rows := query[string](h, fmt.Sprintf("select coalesce(json_agg(t), '[]')::text from (select * from %s order by 1, 2) t", table))
			r.Tables = append(r.Tables, recordedTable{table, json.RawMessage(rows)})
		}
		// What was recorded is an open turn, which no house may end with.
		h.exec("truncate messages, leases cascade")
		h.exec("truncate calls, turn_events, river_job cascade")
		text, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if host, err := os.Hostname(); err == nil { // is part of a worker's name
			text = bytes.ReplaceAll(text, []byte(`"`+host+"-"), []byte(`"recorded-`))
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

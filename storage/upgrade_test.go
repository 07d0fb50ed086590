package storage_test

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/migrations"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/storagetest"
)

// firstRelease is the newest migration of the first release. No older program exists.
const firstRelease = 8

func TestMigrationsSayWhichProgramsGoOn(t *testing.T) {
	names, err := fs.Glob(migrations.Files, "*.up.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	said := regexp.MustCompile(`(?m)^-- Oldest program: (\d+)$`)
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		if version <= firstRelease {
			continue
		}
		sql, err := migrations.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		match := said.FindSubmatch(sql)
		if match == nil {
			t.Errorf("%s has no line \"-- Oldest program: N\": see docs/upgrading.md", name)
			continue
		}
		if n, err := strconv.Atoi(string(match[1])); err != nil || n < 1 || n > version {
			t.Errorf("%s suits programs from %s, and is number %d", name, match[1], version)
		}
		if !strings.Contains(string(sql), "-- Locks:") {
			t.Errorf("%s does not say what it locks", name)
		}
	}
}

// newer returns this program's migrations and one more with this SQL.
func newer(sql string) (fstest.MapFS, storage.Migration) {
	files := fstest.MapFS{}
	names, _ := fs.Glob(migrations.Files, "*.up.sql")
	for _, name := range names {
		text, _ := migrations.Files.ReadFile(name)
		files[name] = &fstest.MapFile{Data: text}
	}
	last, _ := strconv.Atoi(names[len(names)-1][:3])
	next := storage.Migration{Version: last + 1, Name: "next"}
	files[migrationFile(next, "up")] = &fstest.MapFile{Data: []byte(sql)}
	return files, next
}

func TestADatabaseThatANewerProgramMigrated(t *testing.T) {
	for name, c := range map[string]struct {
		sql    string
		refuse bool
	}{
		"made for this one too":  {"-- Oldest program: 1\ncreate table turnkeeper.next ();", false},
		"not for this one":       {"-- Oldest program: 999\ncreate table turnkeeper.next ();", true},
		"says nothing":           {"create table turnkeeper.next ();", true},
		"says it where it hides": {"create table turnkeeper.next (); -- Oldest program: 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storagetest.URL(t)
			files, next := newer(c.sql)
			program := storagetest.Open(t, url)
			program.SetMigrations(files)
			applied, err := storagetest.Migrate(t.Context(), program.DB)
			if err != nil || len(applied) != 1 || applied[0].Version != next.Version {
				t.Fatalf("the newer program applied %v, error %v", applied, err)
			}
			old := storagetest.Open(t, url)
			all, err := old.Migrations(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if last := all[len(all)-1]; !last.Newer || !last.Applied || last.Version != next.Version ||
				last.Name != "next" {
				t.Errorf("the old program sees %+v", last)
			}
			if err := storage.CheckCompatible(all); errors.Is(err, storage.ErrNewerSchema) != c.refuse {
				t.Errorf("the check says %v", err)
			}
			if again, err := storagetest.Migrate(t.Context(), old.DB); errors.Is(err,
				storage.ErrNewerSchema) != c.refuse || len(again) != 0 {
				t.Errorf("the old program applied %v, error %v", again, err)
			}
		})
	}
}

// TestAMigrationDoesNotBlockThoseWhoWork shows that a migration that waits for a locked
// table blocks later users of it only briefly, and is applied in the end.
func TestAMigrationDoesNotBlockThoseWhoWork(t *testing.T) {
	testrun.Slow(t)
	h := newEnv(t)
	files, next := newer("-- Oldest program: 1\nalter table turnkeeper.turns add column next integer;")
	program := storagetest.Open(t, h.URL)
	program.SetMigrations(files)
	program.SetMigrationWaits(100*time.Millisecond, 50*time.Millisecond)
	reader, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), "select from turnkeeper.turns"); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() {
		_, err := storagetest.Migrate(t.Context(), program.DB)
		migrated <- err
	}()
	const waits = `select exists (select from pg_stat_activity a join pg_locks l on l.pid = a.pid
		where a.query like '%add column next%' and not l.granted and l.relation = 'turnkeeper.turns'::regclass)`
	for !storagetest.One[bool](h, waits) {
		select {
		case err := <-migrated:
			t.Fatalf("the migration did not wait: %v", err)
		default:
		}
	}
	h.Turn("hello").Finish(t, "here") // writes to the table that the reader locks until below
	if storagetest.One[bool](h, "select exists (select from turnkeeper.schema_migrations where version = $1)",
		next.Version) {
		t.Error("the migration was done although the table was held")
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Errorf("the migration: %v", err)
	}
}

func TestAJournalOfANewerProgramIsNotRead(t *testing.T) {
	call := storagetest.Key(1, 1)
	for name, change := range map[string]func(*env, turnkeeper.TurnID){
		"version": func(h *env, turn turnkeeper.TurnID) {
			h.Exec(
				`update turnkeeper.journal set answer = (answer::jsonb || '{"version": 9}')::json where turn_id = $1`,
				turn)
		},
		"state":  func(h *env, turn turnkeeper.TurnID) { h.Replan(turn, call, `{"state": "dreamt"}`) },
		"effect": func(h *env, turn turnkeeper.TurnID) { h.Replan(turn, call, `{"effect": "half"}`) },
		"state of result": func(h *env, turn turnkeeper.TurnID) {
			h.Exec(
				`update turnkeeper.journal set results = '[{"round": 1, "ordinal": 1, "state": "dreamt"}]' where turn_id = $1`, turn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			d := h.Turn("what is it?")
			d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectNone)})
			change(h, d.Grant.TurnID)
			record, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID)
			if !errors.Is(err, journal.ErrNewerJournal) || record.Rounds != nil || record.Entries != 1 {
				t.Fatalf("%+v, %v", record, err)
			}
			// The record is sufficient to hand the turn back.
			err = h.Writer(record, d.Grant).Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
				State: turnkeeper.TurnQueued, ErrorClass: journal.ClassNewer, Error: "newer", Backoff: time.Hour,
			}}, turnlog.Consequence{Log: "handed_back"})
			if err != nil {
				t.Fatal(err)
			}
			h.offered("")
			h.HeartBeat("worker-1", 1, 0) // this worker has handed the turn back
			h.offered("")
			h.HeartBeat("worker-2", 1, 0)
			h.offered("worker-2")
			h.Exec(
				"update turnkeeper.worker_heartbeat set beat_at = beat_at - interval '1 hour' where worker_id = 'worker-2'")
			h.offered("")
			h.Exec("update turnkeeper.turns set due_at = clock_timestamp()")
			if left := h.offers(); len(left) != 1 || left[0].WorkerID != "" {
				t.Errorf("at its time it is offered as %+v", left)
			}
		})
	}
}

// offers returns the open turns that can be granted.
func (h *env) offers() (ready []granting.Candidate) {
	h.T.Helper()
	h.Tick(func(ctx context.Context, tick *grants.Tick) (err error) {
		ready, err = tick.ReadyTurns(ctx, 10, nil)
		return err
	})
	return ready
}

// offered fails the test unless exactly one turn is offered, to the worker by name. If worker is
// empty, no turn may be offered.
func (h *env) offered(worker turnkeeper.WorkerID) {
	h.T.Helper()
	switch offers := h.offers(); {
	case worker == "" && len(offers) != 0, worker != "" && (len(offers) != 1 || offers[0].WorkerID != worker):
		h.T.Errorf("offered are %+v, it should be to %q", offers, worker)
	}
}

func TestHistoryOfANewerProgramIsItsMessageAndReply(t *testing.T) {
	h := newEnv(t)
	for _, body := range []string{"one", "two"} {
		d := h.Turn(body)
		d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
		d.Finish(t, "re: "+body)
	}
	h.DB = storagetest.Open(t, h.URL) // the other store keeps what it has read
	h.Exec(
		`update turnkeeper.journal set answer = (answer::jsonb || '{"version": 99}')::json where turn_id = (select min(id) from turnkeeper.turns) and round = 1`)
	history := h.Turn("three").Record.History
	if len(history) != 2 || history[0].Rounds != nil || len(history[1].Rounds) != 1 {
		t.Fatalf("%+v", history)
	}
	for i, body := range []string{"one", "two"} {
		if history[i].Body != body || history[i].Reply != "re: "+body {
			t.Errorf("%+v", history[i])
		}
	}
}

package storagetest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
)

// Rows returns the rows of all tables about turns, by name: "call 7 1.2" is call 1.2 of turn 7, and "turn 7" the turn
// with its newest write.
func (db *DB) Rows() map[string]string {
	db.T.Helper()
	rows, _ := db.Pool().Query(db.T.Context(), `
		select 'turn ' || t.id, to_jsonb(t)::text || to_jsonb(w)::text from turnkeeper.turns t, lateral turnkeeper.newest_write(t.id) w
		union all select 'message ' || id, to_jsonb(t)::text from turnkeeper.messages t
		union all select 'lane ' || lane, to_jsonb(t)::text from turnkeeper.leases t
		union all select 'grant ' || turn_id || ' ' || grant_id, to_jsonb(t)::text from turnkeeper.lease_log t
		union all select 'reply ' || turn_id, to_jsonb(t)::text from turnkeeper.replies t
		union all select 'round ' || turn_id || ' ' || round, to_jsonb(t)::text from turnkeeper.rounds t
		union all select format('call %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.calls t
		union all select format('start %s %s.%s #%s', turn_id, round, ordinal, attempt), to_jsonb(t)::text from turnkeeper.call_starts t
		union all select format('late %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.late_results t
		union all select format('event %s %s', turn_id, seq), to_jsonb(t)::text from turnkeeper.turn_events t
		union all select format('output %s %s', turn_id, id), to_jsonb(t)::text from turnkeeper.outputs t
		union all select format('awaited %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.awaited_calls t
		union all select format('detached %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.detached_calls t
		union all select format('spawned %s %s.%s', turn_id, round, ordinal), to_jsonb(t)::text from turnkeeper.spawned_calls t
		union all select 'tree ' || root, to_jsonb(t)::text from turnkeeper.agent_trees t
		union all select 'cancellation ' || turn_id, to_jsonb(t)::text from turnkeeper.requested_ends t
		union all select 'job ' || id, to_jsonb(t)::text from turnkeeper.river_job t`)
	all := map[string]string{}
	var name, row string
	if _, err := pgx.ForEachRow(rows, []any{&name, &row}, func() error { all[name] = row; return nil }); err != nil {
		db.T.Fatal(err)
	}
	return all
}

// Replan overwrites fields of a planned call in the journal with those of a JSON object.
func (db *DB) Replan(turn turnkeeper.TurnID, k turnkeeper.CallKey, fields string) {
	db.T.Helper()
	n := One[int](db, `with changed as (
			update turnkeeper.journal j set calls = (select json_agg(case when (c ->> 'ordinal')::integer = $3 then (c::jsonb || $4)::json else c end)
				from json_array_elements(j.calls) c)
			where j.turn_id = $1 and j.round = $2 and exists (select from json_array_elements(j.calls) c where (c ->> 'ordinal')::integer = $3) returning 1)
		select count(*) from changed`, turn, k.Round, k.Ordinal, json.RawMessage(fields))
	if n != 1 {
		db.T.Fatalf("%d calls are %s of turn %d", n, k, turn)
	}
}

// PlantResult adds a result of a call to the journal without a writer and without any check. Writers of the turn do not
// know about it.
func (db *DB) PlantResult(turn turnkeeper.TurnID, k turnkeeper.CallKey, state turnkeeper.CallState, shown string) {
	db.T.Helper()
	db.Exec(`select turnkeeper.add_write($1, '{}', '{}', '{}', '{}',
		json_build_array(json_build_object('round', $2::integer, 'ordinal', $3::integer, 'state', $4::text, 'shown', $5::text, 'preview', $5::text)))`,
		turn, k.Round, k.Ordinal, state, shown)
}

// TurnOf enqueues a message for an agent and dispatches it to a worker.
func (db *DB) TurnOf(agent string, worker turnkeeper.WorkerID) *Dispatch {
	db.T.Helper()
	db.Submit(agent, "", "x")
	return db.Dispatch(worker)[0]
}

// Snapshot returns what a tick reads: the snapshot and the lost grants.
func (db *DB) Snapshot() (sit granting.Snapshot, lost []granting.LostGrant) {
	db.T.Helper()
	err := db.InTick(db.T.Context(), func(tick *grants.Tick) (err error) {
		if sit, _, err = tick.Snapshot(db.T.Context(), true); err != nil {
			return err
		}
		lost, err = tick.Lost(db.T.Context(), 10)
		return err
	})
	if err != nil {
		db.T.Fatal(err)
	}
	return sit, lost
}

// WaitsBehind runs do while another session holds a lock, and reports whether do waits for the lock. If it
// does, meanwhile is called before the lock is released.
func (db *DB) WaitsBehind(meanwhile func(), do func(context.Context, *DB) error, lock string,
	args ...any) (waits bool) {
	db.T.Helper()
	other := OpenWith(db.T, storage.Options{URL: db.URL, LockTimeout: Patience, StatementTimeout: Patience})
	hold, err := db.Pool().Begin(db.T.Context())
	if err != nil {
		db.T.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(db.T.Context(), lock, args...); err != nil {
		db.T.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- do(db.T.Context(), other) }()
	deadline := time.Now().Add(Patience)
	for len(done) == 0 && !waits {
		waits = One[bool](db,
			"select count(*) > 0 from pg_stat_activity, pg_sleep(0.01) where $1 = any(pg_blocking_pids(pid))",
			hold.Conn().PgConn().PID())
		if time.Now().After(deadline) {
			db.T.Fatal("do neither ended nor waited for the lock in time")
		}
	}
	if waits {
		meanwhile()
	}
	if err := hold.Rollback(db.T.Context()); err != nil {
		db.T.Fatal(err)
	}
	if err := <-done; err != nil {
		db.T.Error(err)
	}
	return waits
}

// Heard returns the sorted names of the channels that f notifies, without their prefix. A notification of the inbox
// that only says that a slot is free has the suffix " freed". It hears the notifications that concern workers, and
// more.
func (db *DB) Heard(f func(), more ...string) (channels []string) {
	db.T.Helper()
	conn, err := pgx.Connect(db.T.Context(), db.URL)
	if err != nil {
		db.T.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	const end = "the end of the test"
	for _, channel := range append(more, "turnkeeper_inbox", "turnkeeper_calls", "turnkeeper_cancels",
		"turnkeeper.river_insert") {
		if _, err := conn.Exec(db.T.Context(), "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			db.T.Fatal(err)
		}
	}
	f()
	db.Exec("select pg_notify('turnkeeper_calls', $1)", end)
	for {
		notification, err := conn.WaitForNotification(db.T.Context())
		if err != nil {
			db.T.Fatal(err)
		}
		if notification.Payload == end {
			slices.Sort(channels)
			return channels
		}
		channel := strings.TrimPrefix(strings.TrimPrefix(notification.Channel, "turnkeeper_"), "turnkeeper.")
		if notification.Payload == "freed" {
			channel += " freed"
		}
		channels = append(channels, channel)
	}
}

// AwaitLockWaits returns when at least n sessions of the database wait for a lock.
func (db *DB) AwaitLockWaits(n int) {
	db.T.Helper()
	deadline := time.Now().Add(Patience)
	for One[int](db,
		"select count(*) from pg_stat_activity, pg_sleep(0.01) where wait_event_type = 'Lock' and datname = current_database()") < n {
		if time.Now().After(deadline) {
			db.T.Fatalf("timeout waiting until %d sessions wait for a lock", n)
		}
	}
}

// AskCancel requests the cancellation of a turn.
func (db *DB) AskCancel(d *Dispatch) {
	db.T.Helper()
	if _, err := db.CancelTurn(db.T.Context(), d.Grant.TurnID, "enough"); err != nil {
		db.T.Error(err)
	}
}

// Changed returns the sorted names of the rows that differ between two results of Rows.
func Changed(before, after map[string]string) (names []string) {
	for name, row := range after {
		if before[name] != row {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			names = append(names, name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// Admin returns a function that runs SQL over a separate connection, not one of the store.
func (db *DB) Admin() func(sql string) {
	conn, err := pgx.Connect(db.T.Context(), db.URL)
	if err != nil {
		db.T.Fatal(err)
	}
	db.T.Cleanup(func() { _ = conn.Close(db.T.Context()) })
	return func(sql string) {
		if _, err := conn.Exec(db.T.Context(), sql); err != nil {
			db.T.Fatal(err)
		}
	}
}

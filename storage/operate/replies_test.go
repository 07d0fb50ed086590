package operate_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// uncommitted writes a reply to the turn's message, and returns its open transaction.
func (h *env) uncommitted(d *storagetest.Dispatch) pgx.Tx {
	h.T.Helper()
	tx, err := h.Pool().Begin(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	turn := d.Record.Turn
	if _, err := tx.Exec(h.T.Context(),
		"update turnkeeper.turns set state = 'succeeded', stop_reason = 'none', ended_at = clock_timestamp() where id = $1", turn.ID); err != nil {
		h.T.Fatal(err)
	}
	if _, err := tx.Exec(h.T.Context(),
		`insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body)
		values ($1, $2, $3, $4, 'succeeded', 'said')`, turn.MessageID, turn.ID, turn.Agent, turn.Conversation); err != nil {
		h.T.Fatal(err)
	}
	return tx
}

// follow reads the replies after the last id in seen, like a follower of the outbox, and appends
// them.
func (h *env) follow(seen []turnkeeper.ReplyID, p operate.Page) []turnkeeper.ReplyID {
	h.T.Helper()
	if len(seen) > 0 {
		p.Cursor = int64(seen[len(seen)-1])
	}
	replies, err := h.Replies(h.T.Context(), p)
	if err != nil {
		h.T.Error(err)
	}
	for _, r := range replies {
		seen = append(seen, r.ID)
	}
	return seen
}

// No follower misses a reply that gets its id first and commits last.
func TestRepliesThatCommitOutOfOrder(t *testing.T) {
	for name, page := range map[string]operate.Page{"of all": {}, "of an agent": {Agent: "desk"},
		"of none but the top": {TopOnly: true}} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			for i := range 4 {
				h.Submit("desk", fmt.Sprint("c", i), "hello")
			}
			d := h.Dispatch("worker-1")
			if err := h.uncommitted(d[0]).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := h.uncommitted(d[1]).Rollback(t.Context()); err != nil { // its id stays unused
				t.Fatal(err)
			}
			slow, fast := h.uncommitted(d[2]), h.uncommitted(d[3])
			if err := fast.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			read := make(chan []turnkeeper.ReplyID, 1)
			go func() { read <- h.follow(nil, page) }()
			for len(read) == 0 && !storagetest.One[bool](h,
				"select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')") {
				runtime.Gosched() // the reader has not noticed yet that it must wait
			}
			if took := time.Since(began); len(read) > 0 && took < 2*time.Second {
				t.Errorf("it waited %s for a writer, which has two seconds", took)
			}
			if err := slow.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]turnkeeper.ReplyID{1, 3, 4}, h.follow(<-read, page)); diff != "" {
				t.Errorf("a follower missed or repeated replies:\n%s", diff)
			}
		})
	}
}

// A writer that does not commit delays the replies after its own, and none before it.
func TestAReplyThatIsLongInComing(t *testing.T) {
	testrun.Guard(t)
	h := newEnv(t)
	for i := range 6 {
		h.Submit("desk", fmt.Sprint("c", i), "hello")
	}
	d := h.Dispatch("worker-1")
	written := func(tx pgx.Tx) {
		t.Helper()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	written(h.uncommitted(d[0]))
	if err := h.uncommitted(d[1]).Rollback(t.Context()); err != nil { // its id stays unused
		t.Fatal(err)
	}
	written(h.uncommitted(d[2]))
	written(h.uncommitted(d[3]))
	stuck := h.uncommitted(d[4])
	written(h.uncommitted(d[5]))
	var group sync.WaitGroup
	for after, want := range map[turnkeeper.ReplyID][]turnkeeper.ReplyID{0: {1}, 1: nil, 3: {4}, 4: nil} {
		group.Go(func() {
			if diff := cmp.Diff(want, h.follow([]turnkeeper.ReplyID{after}, operate.Page{})[1:],
				cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("after %d, with a writer that stands still:\n%s", after, diff)
			}
		})
	}
	group.Wait()
	if err := stuck.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]turnkeeper.ReplyID{1, 3, 4, 6}, h.follow(nil, operate.Page{})); diff != "" {
		t.Errorf("when it is gone:\n%s", diff)
	}
}

// TestRepliesByPage reads six replies of two agents. The third and the last are from sub-agents, the third to the fifth
// a user's.
func TestRepliesByPage(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", true)
	for i := range 6 {
		h.Submit([]string{"desk", "clerk"}[i%2], fmt.Sprint("c", i), "hello")
	}
	for _, d := range h.Dispatch("worker-1") {
		if err := h.uncommitted(d).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.Exec("update turnkeeper.replies set parent_turn_id = 1 where id in (3, 6)")
	h.Exec("update turnkeeper.replies set user_name = 'anna' where id between 3 and 5")
	for want, p := range map[string]operate.Page{
		"1 2 3 4 5 6": {}, "3 4 5 6": {Cursor: 2}, "1 2": {Limit: 2}, "3 4": {Cursor: 2, Limit: 2}, "": {Cursor: 6},
		"1 3 5": {Agent: "desk"}, "1 3": {Agent: "desk", Limit: 2}, "4 6": {Agent: "clerk", Cursor: 2},
		"1 2 4 5": {TopOnly: true},
		"1 2 4":   {TopOnly: true, Limit: 3}, "2 4": {TopOnly: true, Agent: "clerk"},
		"2":     {TopOnly: true, Agent: "clerk", Limit: 1},
		"3 4 5": {User: "anna"}, "4 5": {User: "anna", Cursor: 3, Limit: 2}, "3": {User: "anna", Limit: 1},
		"4": {User: "anna", Agent: "clerk"},
	} {
		var got []string
		for _, id := range h.follow(nil, p) {
			got = append(got, fmt.Sprint(id))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %v, want %s", p, got, want)
		}
	}
	err := pgx.BeginTxFunc(t.Context(), h.Pool(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "select from turnkeeper.replies_after(0)")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Errorf("in a transaction that sees no commits of others: %v", err)
	}
}

// TestWhoIsNotAWriterOfReplies holds different locks while an id before a reply is missing, because
// its writer rolled back. A transaction that writes no reply, or writes in another database, or is
// the reader's own, does not delay a reader.
func TestWhoIsNotAWriterOfReplies(t *testing.T) {
	h := newEnv(t)
	for i := range 3 {
		h.Submit("desk", fmt.Sprint("c", i), "hello")
	}
	d := h.Dispatch("worker-1")
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
	} {
		if err := end(h.uncommitted(d[0])); err != nil {
			t.Fatal(err)
		}
		d = d[1:]
	}
	read := func(tx pgx.Tx) string {
		t.Helper()
		var ids string
		if err := tx.QueryRow(t.Context(),
			"select coalesce(string_agg(id::text, ' '), '') from turnkeeper.replies_after(0)").Scan(&ids); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	begin := func(pool *pgxpool.Pool, sql string) pgx.Tx {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	// from the same template, so the table has the same OID there
	otherDatabase := storagetest.Open(t, storagetest.URL(t))
	const write = "lock table turnkeeper.replies in row exclusive mode"
	begin(otherDatabase.Pool(), write)
	for name, lock := range map[string]string{
		"one who writes in another database": "",
		"one who writes to another table":    "lock table turnkeeper.messages in row exclusive mode",
		"one who reads":                      "lock table turnkeeper.replies in access share mode",
		"nobody, but writing itself":         write,
	} {
		reader := begin(h.Pool(), "select 1")
		if lock == write {
			reader = begin(h.Pool(), write)
		} else if lock != "" {
			begin(h.Pool(), lock)
		}
		if got := read(reader); got != "1 3" {
			t.Errorf("beside %s: read are %q, want 1 and 3", name, got)
		}
		if err := reader.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A writer that still waits for its lock has no id yet, and delays no reader.
	begin(h.Pool(), "lock table turnkeeper.replies in share mode")
	waiting := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		waiting <- pgx.BeginFunc(ctx, h.Pool(), func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, write)
			return err
		})
	}()
	h.AwaitLockWaits(1)
	if got := read(begin(h.Pool(), "select 1")); got != "1 3" {
		t.Errorf("beside one who waits to write: read are %q, want 1 and 3", got)
	}
	cancel()
	if err := <-waiting; err == nil {
		t.Error("it got its lock")
	}
}

package storage_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage"
)

// uncommitted writes a reply to the turn's message, in a transaction of its own that is not committed yet.
func (h *house) uncommitted(d *dispatch) pgx.Tx {
	h.t.Helper()
	tx, err := h.Pool().Begin(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	turn := d.record.Turn
	if _, err := tx.Exec(h.t.Context(), `insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body)
		values ($1, $2, $3, $4, 'succeeded', 'said')`, turn.MessageID, turn.ID, turn.Agent, turn.Conversation); err != nil {
		h.t.Fatal(err)
	}
	return tx
}

// follow reads on from the highest id it has seen, as followers of the outbox do.
func (h *house) follow(seen []turnkeeper.ReplyID, p storage.Page) []turnkeeper.ReplyID {
	h.t.Helper()
	if len(seen) > 0 {
		p.Cursor = int64(seen[len(seen)-1])
	}
	replies, err := h.Replies(h.t.Context(), p)
	if err != nil {
		h.t.Error(err)
	}
	for _, r := range replies {
		seen = append(seen, r.ID)
	}
	return seen
}

// A reply that got its id first and commits last is passed over by nobody.
func TestRepliesThatCommitOutOfOrder(t *testing.T) {
	for name, page := range map[string]storage.Page{"of all": {}, "of an agent": {Agent: "desk"}, "of none but the top": {TopOnly: true}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			for i := range 4 {
				h.enqueue("desk", fmt.Sprint("c", i), "hello")
			}
			d := h.dispatch("worker-1")
			if err := h.uncommitted(d[0]).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := h.uncommitted(d[1]).Rollback(t.Context()); err != nil { // its id is nobody's
				t.Fatal(err)
			}
			slow, fast := h.uncommitted(d[2]), h.uncommitted(d[3])
			if err := fast.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			read := make(chan []turnkeeper.ReplyID, 1)
			go func() { read <- h.follow(nil, page) }()
			for len(read) == 0 && !one[bool](h, "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')") {
				runtime.Gosched() // it has not read yet, or not found that it is to wait
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

// A writer that stands still holds up what comes after its reply, and nothing before.
func TestAReplyThatIsLongInComing(t *testing.T) {
	testrun.Slow(t)
	h := newHouse(t)
	for i := range 3 {
		h.enqueue("desk", fmt.Sprint("c", i), "hello")
	}
	d := h.dispatch("worker-1")
	if err := h.uncommitted(d[0]).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	stuck, fast := h.uncommitted(d[1]), h.uncommitted(d[2])
	if err := fast.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := h.follow(nil, storage.Page{})
	if diff := cmp.Diff([]turnkeeper.ReplyID{1}, seen); diff != "" {
		t.Errorf("with a writer that stands still:\n%s", diff)
	}
	if err := stuck.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]turnkeeper.ReplyID{1, 3}, h.follow(seen, storage.Page{})); diff != "" {
		t.Errorf("when it is gone:\n%s", diff)
	}
}

package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// The end of a turn uses separate connections, so it does not wait for those of other writes.
func TestTheEndOfATurnHasItsOwnConnections(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	held := 0
	for range h.Pool().Config().MaxConns {
		conn, err := h.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		held++
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := d.Append(short, turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{}); err == nil {
		t.Errorf("a round was written beside %d connections", held)
	}
	d.Finish(t, "done")
}

// Whether a statement may have been done depends on when its context ended.
func TestStatementsWhoseContextEnds(t *testing.T) {
	h := newEnv(t)
	conn, err := h.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	before, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = conn.Exec(before, "select 1")
	if !errors.Is(err, context.Canceled) || !storage.Passes(err) || storage.Unanswered(err) {
		t.Errorf("before it was sent: %v passes: %v, unanswered: %v", err, storage.Passes(err), storage.Unanswered(err))
	}
	within, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = conn.Exec(within, "select pg_sleep(60)")
	if !errors.Is(err, context.DeadlineExceeded) || !storage.Passes(err) || !storage.Unanswered(err) {
		t.Errorf("after it was sent: %v passes: %v, unanswered: %v", err, storage.Passes(err), storage.Unanswered(err))
	}
}

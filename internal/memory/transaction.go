package memory

import (
	"context"
	"fmt"
	"time"
)

// A tx is a transaction of more than one request. Its fields are guarded by the
// store's lock.
type tx struct {
	conn    *Conn
	done    chan struct{} // closed when it has ended
	over    bool
	touched time.Time // its newest request, by the server's own timer
}

func (c *Conn) begin() *tx {
	t := &tx{conn: c, done: make(chan struct{}), touched: time.Now()}
	c.txs[t] = true
	return t
}

// end releases all locks.
func (t *tx) end() {
	if t.over {
		return
	}
	t.over = true
	close(t.done)
	delete(t.conn.txs, t)
}

// blocks reports whether the transaction still holds its locks, and the time left until
// its idle timeout.
func (t *tx) blocks() (left time.Duration, still bool) {
	if t == nil || t.over {
		return 0, false
	}
	left = t.conn.store.opts.IdleTimeout - time.Since(t.touched)
	if left <= 0 {
		t.end()
		return 0, false
	}
	return left, true
}

// alive is called at each request of a transaction. It fails if the transaction was undone.
func (t *tx) alive() error {
	if _, still := t.blocks(); !still {
		return fmt.Errorf("%w: the transaction was undone", ErrAway)
	}
	t.touched = time.Now()
	return nil
}

// lockTimeout bounds the wait for the lock of a turn.
const lockTimeout = 5 * time.Second

// lockTurn returns with the store's lock held, and with no other transaction holding the
// lock of the turn; own, if not nil, then holds that. On an error nothing is held.
func (s *Store) lockTurn(ctx context.Context, turn int64, own *tx) error {
	timeout := time.NewTimer(lockTimeout)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		if turn < 1 || int(turn) > len(s.state.turns) {
			return nil // the fence check will refuse it
		}
		row := s.state.turns[turn-1]
		holder := row.held
		left, still := holder.blocks()
		if !still || holder == own {
			row.held = own
			return nil
		}
		s.mu.Unlock()
		if err := awaitLock(ctx, holder.done, left, timeout.C); err != nil {
			return err
		}
	}
}

func awaitLock(ctx context.Context, done <-chan struct{}, left time.Duration, timeout <-chan time.Time) error {
	expiry := time.NewTimer(left)
	defer expiry.Stop()
	select {
	case <-done:
	case <-expiry.C:
	case <-timeout:
		return fmt.Errorf("%w: a lock was not free in time", ErrAway)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

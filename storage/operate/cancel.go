package operate

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/pg"
)

// A Cancelled is the result of a cancellation.
type Cancelled struct {
	Turn turnkeeper.TurnID
	// Closed reports that the turn is cancelled, now or before. Otherwise a worker
	// runs it and will end it, or, if that worker is lost, whoever takes it over.
	Closed bool
}

// settleTries is how often a cancellation is retried when the turn's state changes.
const settleTries = 5

// CancelTurn cancels a turn: at once if no worker runs it, else through its worker. A
// repeat does nothing more. It fails with turnkeeper.ErrWrongState if the turn has ended
// otherwise, and with ErrNotFound if there is no such turn. reason is for operators; it
// may be empty.
//
// It records the request and then closes the turn, in two transactions. An end of a dispatch after
// the first transaction sees the request. The second transaction waits for an end that began earlier.
func (s *Control) CancelTurn(ctx context.Context, id turnkeeper.TurnID, reason string) (Cancelled, error) {
	if err := s.db.Q.AskCancel(ctx, int64(id), s.db.Clean(reason)); err != nil {
		return Cancelled{}, pg.Translate(err)
	}
	for range settleTries {
		row, err := s.db.Q.SettleCancel(ctx, int64(id))
		switch err = pg.Translate(err); {
		case pg.LockRefused(err):
			return s.cancelLater(ctx, id)
		case err != nil:
			return Cancelled{}, err
		case row.Again:
			continue
		}
		return s.settled(ctx, id, turnkeeper.TurnState(row.State))
	}
	return Cancelled{Turn: id}, nil
}

// settled returns the result for a turn in this state. A failed turn counts as cancelled
// if its message was cancelled instead of being retried.
func (s *Control) settled(ctx context.Context, id turnkeeper.TurnID, state turnkeeper.TurnState) (Cancelled, error) {
	if state != turnkeeper.TurnFailed {
		return cancelledAs(id, state)
	}
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return Cancelled{}, pg.Translate(err)
	}
	message, err := s.views.Message(ctx, turnkeeper.MessageID(row.TurnkeeperTurnsNow.MessageID))
	if err != nil {
		return Cancelled{}, err
	}
	if message.State == turnkeeper.MessageCancelled {
		return Cancelled{Turn: id, Closed: true}, nil
	}
	return cancelledAs(id, state)
}

// ErrHeldUp means that a scheduler held its lock for too long, as when its process is
// stopped in a tick, or another transaction the turn's row.
var ErrHeldUp = errors.New("a scheduler process, or another transaction, holds a lock and does not end; try again in a moment")

// cancelLater returns the result if the turn's row or the scheduler's lock was not free.
// The request is on record: a worker that is in a transaction finds it afterwards.
func (s *Control) cancelLater(ctx context.Context, id turnkeeper.TurnID) (Cancelled, error) {
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return Cancelled{}, pg.Translate(err)
	}
	state := turnkeeper.TurnState(row.TurnkeeperTurnsNow.State)
	if state == turnkeeper.TurnQueued || state == turnkeeper.TurnWaiting {
		return Cancelled{}, ErrHeldUp
	}
	return cancelledAs(id, state)
}

// heldUp turns a lock timeout into ErrHeldUp.
func heldUp(err error) error {
	if err = pg.Translate(err); pg.LockRefused(err) {
		return ErrHeldUp
	}
	return err
}

func cancelledAs(id turnkeeper.TurnID, state turnkeeper.TurnState) (Cancelled, error) {
	switch {
	case state == "":
		return Cancelled{}, turnkeeper.ErrNotFound
	case state == turnkeeper.TurnCancelled:
		return Cancelled{Turn: id, Closed: true}, nil
	case state.Terminal():
		return Cancelled{}, pg.Refuse(turnkeeper.ErrWrongState, "turn %d has ended already: it %s", id, endedAs(state))
	default:
		return Cancelled{Turn: id}, nil
	}
}

func endedAs(state turnkeeper.TurnState) string {
	if state == turnkeeper.TurnDegraded {
		return "was degraded"
	}
	return string(state)
}

// CancelMessage cancels a message. A waiting message gets a turn that is closed without
// a grant, so that it has one reply and appears in every list. Of a running message, it
// cancels the turn. Otherwise it is like CancelTurn.
func (s *Control) CancelMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (Cancelled, error) {
	for range settleTries {
		row, err := s.db.Q.CancelMessage(ctx, int64(id), s.db.Clean(reason))
		if err != nil {
			return Cancelled{}, heldUp(err)
		}
		if row.Turn != 0 {
			return Cancelled{Turn: turnkeeper.TurnID(row.Turn), Closed: true}, nil
		}
		m, err := s.views.Message(ctx, id)
		switch {
		case err != nil:
			return Cancelled{}, err
		case m.State == turnkeeper.MessageCancelled:
			return Cancelled{Turn: m.TurnID, Closed: true}, nil
		case !m.ClosedAt.IsZero():
			return Cancelled{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d is closed already: it is %s", id, m.State)
		}
		done, err := s.CancelTurn(ctx, m.TurnID, reason)
		if !errors.Is(err, turnkeeper.ErrWrongState) { // else its turn has failed in the meantime, and the message may wait again
			return done, err
		}
	}
	return Cancelled{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d keeps changing its state; try again", id)
}

// A Cancellation is a request to cancel a turn.
type Cancellation struct {
	Reason  string // empty: none was given
	AskedAt time.Time
}

// cancellationOf reads the request to cancel a turn, or returns nil if there is none.
func (s *Views) cancellationOf(ctx context.Context, id turnkeeper.TurnID) (*Cancellation, error) {
	row, err := s.db.Q.CancellationOf(ctx, int64(id))
	switch err = pg.Translate(err); {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	return &Cancellation{row.Reason, row.AskedAt}, nil
}

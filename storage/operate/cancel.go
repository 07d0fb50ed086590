package operate

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/pg"
)

// An Ended is the result of a request to end a turn.
type Ended struct {
	Turn turnkeeper.TurnID
	// Closed reports that the turn has ended as requested, now or before. Otherwise a worker
	// will end it: the one that runs it, or, if that is lost, whoever takes it over.
	Closed bool
}

// settleTries is how often the request is retried when the turn's state changes.
const settleTries = 5

// CancelTurn cancels a turn: at once if no worker runs it, else through its worker. A
// repeat does nothing more. It fails with turnkeeper.ErrWrongState if the turn has ended
// otherwise, and with ErrNotFound if there is no such turn. reason is for operators; it
// may be empty.
func (s *Control) CancelTurn(ctx context.Context, id turnkeeper.TurnID, reason string) (Ended, error) {
	return s.endTurn(ctx, id, turnlog.EndCancel, reason)
}

// endTurn records the request and then carries it out if no worker runs the turn, in two transactions. An end of a
// dispatch after the first transaction sees the request. The second transaction waits for an end that began earlier.
func (s *Control) endTurn(ctx context.Context, id turnkeeper.TurnID, how turnlog.WantedEnd,
	reason string) (Ended, error) {
	if err := s.db.Q.AskEnd(ctx, int64(id), string(how), s.db.Clean(reason)); err != nil {
		return Ended{}, pg.Translate(err)
	}
	for range settleTries {
		row, err := s.db.Q.SettleEnd(ctx, int64(id))
		switch err = pg.Translate(err); {
		case pg.LockRefused(err):
			return s.endLater(ctx, id, how)
		case err != nil:
			return Ended{}, err
		case row.Again:
			continue
		}
		return s.settled(ctx, id, how, turnkeeper.TurnState(row.State))
	}
	return Ended{Turn: id}, nil
}

// settled returns the result for a turn in this state.
func (s *Control) settled(ctx context.Context, id turnkeeper.TurnID, how turnlog.WantedEnd,
	state turnkeeper.TurnState) (Ended, error) {
	if how == turnlog.EndFinish {
		return s.finishing(ctx, id, state)
	}
	return s.cancelled(ctx, id, state)
}

// cancelled returns the result for a turn in this state. A failed turn counts as cancelled
// if its message was cancelled instead of being retried.
func (s *Control) cancelled(ctx context.Context, id turnkeeper.TurnID, state turnkeeper.TurnState) (Ended, error) {
	if state != turnkeeper.TurnFailed {
		return cancelledAs(id, state)
	}
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return Ended{}, pg.Translate(err)
	}
	message, err := s.views.Message(ctx, turnkeeper.MessageID(row.TurnkeeperTurnsNow.MessageID))
	if err != nil {
		return Ended{}, err
	}
	if message.State == turnkeeper.MessageCancelled {
		return Ended{Turn: id, Closed: true}, nil
	}
	return cancelledAs(id, state)
}

// ErrHeldUp means that a scheduler held its lock for too long, as when its process is
// stopped in a tick, or another transaction the turn's row.
var ErrHeldUp = errors.New(
	"a scheduler process, or another transaction, holds a lock and does not end; try again in a moment")

// endLater returns the result if the turn's row or the scheduler's lock was not free.
// The request is on record: a worker that is in a transaction finds it afterwards.
func (s *Control) endLater(ctx context.Context, id turnkeeper.TurnID, how turnlog.WantedEnd) (Ended, error) {
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return Ended{}, pg.Translate(err)
	}
	state := turnkeeper.TurnState(row.TurnkeeperTurnsNow.State)
	if state == turnkeeper.TurnQueued || state == turnkeeper.TurnWaiting {
		return Ended{}, ErrHeldUp
	}
	return s.settled(ctx, id, how, state)
}

// heldUp turns a lock timeout into ErrHeldUp.
func heldUp(err error) error {
	if err = pg.Translate(err); pg.LockRefused(err) {
		return ErrHeldUp
	}
	return err
}

func cancelledAs(id turnkeeper.TurnID, state turnkeeper.TurnState) (Ended, error) {
	switch {
	case state == "":
		return Ended{}, turnkeeper.ErrNotFound
	case state == turnkeeper.TurnCancelled:
		return Ended{Turn: id, Closed: true}, nil
	case state.Terminal():
		return Ended{}, endedAlready(id, state)
	default:
		return Ended{Turn: id}, nil
	}
}

// endedAlready refuses to end a turn that has ended.
func endedAlready(id turnkeeper.TurnID, state turnkeeper.TurnState) error {
	return pg.Refuse(turnkeeper.ErrWrongState, "turn %d has ended already: it %s", id, endedAs(state))
}

func endedAs(state turnkeeper.TurnState) string {
	if state == turnkeeper.TurnDegraded || state == turnkeeper.TurnCancelled {
		return "was " + string(state)
	}
	return string(state)
}

// CancelMessage cancels a message. A waiting message gets a turn that is closed without
// a grant, so that it has one reply and appears in every list. Of a running message, it
// cancels the turn. Otherwise it is like CancelTurn.
func (s *Control) CancelMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (Ended, error) {
	for range settleTries {
		row, err := s.db.Q.CancelMessage(ctx, int64(id), s.db.Clean(reason))
		if err != nil {
			return Ended{}, heldUp(err)
		}
		if row.Turn != 0 {
			return Ended{Turn: turnkeeper.TurnID(row.Turn), Closed: true}, nil
		}
		m, err := s.views.Message(ctx, id)
		switch {
		case err != nil:
			return Ended{}, err
		case m.State == turnkeeper.MessageCancelled:
			return Ended{Turn: m.TurnID, Closed: true}, nil
		case !m.ClosedAt.IsZero():
			return Ended{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d is closed already: it %s", id,
				endedAs(turnkeeper.TurnState(m.State)))
		}
		done, err := s.CancelTurn(ctx, m.TurnID, reason)
		// else its turn has failed in the meantime, and the message may wait again
		if !errors.Is(err, turnkeeper.ErrWrongState) {
			return done, err
		}
	}
	return Ended{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d keeps changing its state; try again", id)
}

// A RequestedEnd is a request to end a turn.
type RequestedEnd struct {
	How turnlog.WantedEnd
	// that it names: the turn itself, an earlier one of its message, or, of a sub-agent, one above it
	Turn    turnkeeper.TurnID
	Reason  string // empty: none was given
	AskedAt time.Time
}

// requestedEndOf reads the request to end a turn, or returns nil if there is none.
func (s *Views) requestedEndOf(ctx context.Context, id turnkeeper.TurnID) (*RequestedEnd, error) {
	row, err := s.db.Q.RequestedEndOf(ctx, int64(id))
	switch err = pg.Translate(err); {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	return &RequestedEnd{turnlog.WantedEnd(row.How), turnkeeper.TurnID(row.TurnID), row.Reason, row.AskedAt}, nil
}

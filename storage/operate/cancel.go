package operate

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/pg"
)

// A Cancelled says what came of a cancellation.
type Cancelled struct {
	Turn turnkeeper.TurnID
	// Closed: the turn is cancelled, now or before. Else a worker runs it, which
	// ends it; should that worker be lost, whoever takes the turn from it does.
	Closed bool
}

// settleTries bounds how often a turn may move while it is being cancelled.
const settleTries = 5

// CancelTurn cancels a turn: one that nobody runs at once, one that a worker runs
// through that worker. A repeat does nothing more. A turn that ended otherwise is
// refused with turnkeeper.ErrWrongState, an unknown one with ErrNotFound. reason
// is for operators; it may be empty.
//
// It asks first and then closes, in two transactions: whoever ends a dispatch of
// the turn after the first sees the request, and the second waits for whoever
// ended one before.
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
		return s.toldOfFailure(ctx, id, turnkeeper.TurnState(row.State))
	}
	return Cancelled{Turn: id}, nil
}

// toldOfFailure tells a turn that failed before it could be cancelled, and whose
// message was cancelled in place of another try, from one that failed for good.
func (s *Control) toldOfFailure(ctx context.Context, id turnkeeper.TurnID, state turnkeeper.TurnState) (Cancelled, error) {
	if state != turnkeeper.TurnFailed {
		return cancelledAs(id, state)
	}
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return Cancelled{}, pg.Translate(err)
	}
	message, err := s.views.Message(ctx, turnkeeper.MessageID(row.TurnkeeperTurn.MessageID))
	if err != nil {
		return Cancelled{}, err
	}
	if message.State == turnkeeper.MessageCancelled {
		return Cancelled{Turn: id, Closed: true}, nil
	}
	return cancelledAs(id, state)
}

// ErrHeldUp is for what cannot be done while a scheduler holds its lock for long, as
// one does that is stopped in a tick.
var ErrHeldUp = errors.New("a scheduler is held up in the middle of its work; try again in a moment")

// cancelLater is for a turn whose row, or whose scheduler, was locked for long: the
// request is on record. A worker in a transaction of its own finds it after that.
func (s *Control) cancelLater(ctx context.Context, id turnkeeper.TurnID) (Cancelled, error) {
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return Cancelled{}, pg.Translate(err)
	}
	state := turnkeeper.TurnState(row.TurnkeeperTurn.State)
	if state == turnkeeper.TurnQueued || state == turnkeeper.TurnWaiting {
		return Cancelled{}, ErrHeldUp
	}
	return cancelledAs(id, state)
}

// heldUp puts a lock that was not free into plain words.
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

// CancelMessage cancels a message: one that waits in the inbox gets a turn that is
// closed without a grant, so that it has its one reply and its place in every list;
// of one that is being handled the turn is cancelled. Else it is as CancelTurn.
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
		if !errors.Is(err, turnkeeper.ErrWrongState) { // else its turn has failed meanwhile, and the message may wait again
			return done, err
		}
	}
	return Cancelled{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d does not stand still; try again", id)
}

// A Cancellation is somebody's request that a turn be cancelled.
type Cancellation struct {
	Reason  string // empty: none was given
	AskedAt time.Time
}

// cancellationOf is that of a turn; nil: nobody asked.
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

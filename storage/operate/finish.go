package operate

import (
	"context"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/pg"
)

// FinishTurn lets a turn end with what it has: its next model call is announced to the model as the last one, without
// tools. No other call starts, running calls of effect none are stopped, and calls with an effect end first. Asks of a
// parked turn are withdrawn. The turns of its sub-agents finish likewise. A repeat does nothing more. It fails with
// turnkeeper.ErrWrongState if the turn has ended otherwise, or is being cancelled, and with ErrNotFound if there is no
// such turn. reason is for operators; it may be empty.
func (s *Control) FinishTurn(ctx context.Context, id turnkeeper.TurnID, reason string) (Ended, error) {
	done, err := s.endTurn(ctx, id, turnlog.EndFinish, reason)
	if err != nil || done.Closed {
		return done, err
	}
	below, err := s.db.Q.OpenSubAgents(ctx, int64(id))
	if err != nil {
		return done, pg.Translate(err)
	}
	for _, child := range below { // those that run see the request; those that wait must be woken
		_, err := s.FinishTurn(ctx, turnkeeper.TurnID(child), fmt.Sprintf("its parent, turn %d, is to finish", id))
		if err != nil && !errors.Is(err, turnkeeper.ErrWrongState) {
			return done, err
		}
	}
	return done, nil
}

// finishing returns the result for a turn in this state that is to finish.
func (s *Control) finishing(ctx context.Context, id turnkeeper.TurnID, state turnkeeper.TurnState) (Ended, error) {
	switch {
	case state == "":
		return Ended{}, turnkeeper.ErrNotFound
	case state.Terminal():
		row, err := s.db.Q.TurnByID(ctx, int64(id))
		if err != nil {
			return Ended{}, pg.Translate(err)
		}
		if stop := row.TurnkeeperTurnsNow.StopReason; stop != nil &&
			turnkeeper.StopReason(*stop) == turnkeeper.StopFinished {
			return Ended{Turn: id, Closed: true}, nil
		}
		return Ended{}, endedAlready(id, state)
	}
	request, err := s.views.requestedEndOf(ctx, id)
	if err == nil && request != nil && request.How == turnlog.EndCancel {
		err = pg.Refuse(turnkeeper.ErrWrongState, "turn %d is being cancelled", id)
	}
	return Ended{Turn: id}, err
}

// FinishMessage is FinishTurn of the turn that handles a message. A message that waits has nothing to finish with: it
// can be cancelled.
func (s *Control) FinishMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (Ended, error) {
	for range settleTries {
		m, err := s.views.Message(ctx, id)
		switch {
		case err != nil:
			return Ended{}, err
		case m.State == turnkeeper.MessageWaiting:
			return Ended{}, pg.Refuse(turnkeeper.ErrWrongState,
				"message %d still waits, and has nothing to finish with; cancel it instead", id)
		}
		done, err := s.FinishTurn(ctx, m.TurnID, reason)
		if !errors.Is(err, turnkeeper.ErrWrongState) {
			return done, err
		}
		if !m.ClosedAt.IsZero() {
			return Ended{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d is closed already: it %s", id,
				endedAs(turnkeeper.TurnState(m.State)))
		}
	}
	return Ended{}, pg.Refuse(turnkeeper.ErrWrongState, "message %d keeps changing its state; try again", id)
}

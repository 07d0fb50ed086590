package memory

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// lockTick locks the store while no tick is in progress, so that no grant is in progress either.
func (s *Store) lockTick(ctx context.Context) error {
	timeout := time.NewTimer(lockTimeout)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		ticker := s.ticker
		left, busy := ticker.blocks()
		if !busy {
			return nil
		}
		s.mu.Unlock()
		if err := awaitLock(ctx, ticker.done, left, timeout.C); err != nil {
			return err
		}
	}
}

// CancelTurn cancels a turn. closed reports whether the turn is over; if not, its holder ends it.
// The errors are those of package storage: ErrNotFound and ErrWrongState.
func (c *Conn) CancelTurn(ctx context.Context, id turnkeeper.TurnID) (closed bool, err error) {
	err = c.ask(ctx, "cancel", func() error {
		return c.store.outsideTicks(ctx, func(rings *[]Bell) error {
			closed, err = c.store.endTurn(id, turnlog.EndCancel, rings)
			return err
		})
	})
	return closed, err
}

// FinishTurn lets a turn end with what it has. closed reports whether it has ended so. The errors are those of
// CancelTurn.
func (c *Conn) FinishTurn(ctx context.Context, id turnkeeper.TurnID) (closed bool, err error) {
	err = c.ask(ctx, "finish", func() error {
		return c.store.outsideTicks(ctx, func(rings *[]Bell) error {
			closed, err = c.store.endTurn(id, turnlog.EndFinish, rings)
			return err
		})
	})
	return closed, err
}

// CancelMessage cancels a message, and the turn that handles it.
func (c *Conn) CancelMessage(ctx context.Context, id turnkeeper.MessageID) (turn turnkeeper.TurnID,
	closed bool, err error) {
	err = c.ask(ctx, "cancel", func() error {
		return c.store.outsideTicks(ctx, func(rings *[]Bell) error {
			m := c.store.state.message(id)
			if m == nil {
				return turnkeeper.ErrNotFound
			}
			if m.State == turnkeeper.MessageWaiting {
				c.store.commit++
				turn, closed = c.store.cancelWaiting(m, rings), true
				return nil
			}
			turn = m.TurnID
			closed, err = c.store.endTurn(turn, turnlog.EndCancel, rings)
			return err
		})
	})
	return turn, closed, err
}

// outsideTicks runs f as one transaction while no tick is in progress.
func (s *Store) outsideTicks(ctx context.Context, f func(*[]Bell) error) error {
	if err := s.lockTick(ctx); err != nil {
		return err
	}
	var rings []Bell
	err := f(&rings)
	s.mu.Unlock()
	if err == nil {
		for _, bell := range rings {
			s.opts.Ring(bell)
		}
	}
	return err
}

// endTurn records that a turn is to end, and carries it out if no worker runs the turn.
func (s *Store) endTurn(id turnkeeper.TurnID, how turnlog.WantedEnd, rings *[]Bell) (closed bool, err error) {
	row := s.state.turn(id)
	switch {
	case row == nil:
		return false, turnkeeper.ErrNotFound
	case how == turnlog.EndCancel && row.State == turnkeeper.TurnCancelled, how == turnlog.EndFinish &&
		row.StopReason == turnkeeper.StopFinished:
		return true, nil
	case row.State.Terminal(), how == turnlog.EndFinish && s.state.ends.cancelled(id):
		return false, turnkeeper.ErrWrongState
	}
	s.state.ends[id] = how
	if how == turnlog.EndFinish {
		finishBelow(s, id, rings)
	}
	if row.State == turnkeeper.TurnRunning {
		return false, nil
	}
	s.commit++
	draft := row.draft()
	if how == turnlog.EndCancel {
		s.closeCancelled(draft, rings)
	} else {
		hurry(s, draft, rings)
	}
	s.state.setTurn(draft)
	return how == turnlog.EndCancel, nil
}

// cancelWaiting closes a waiting message, with a turn that was never granted.
func (s *Store) cancelWaiting(m *turnkeeper.Message, rings *[]Bell) turnkeeper.TurnID {
	st := &s.state
	st.unsetWaiting(m)
	m.Attempts++
	turn := &turnRow{Turn: turnkeeper.Turn{
		ID: turnkeeper.TurnID(len(st.turns) + 1), MessageID: m.ID, Attempt: m.Attempts, Agent: m.Agent, User: m.User,
		Conversation: m.Conversation,
		Lane:         m.Lane, Trigger: m.Trigger, DefinitionHash: st.agents[m.Agent].DefinitionHash,
		State: turnkeeper.TurnQueued, CreatedAt: s.now(),
	}}
	m.TurnID = turn.ID
	st.turns = append(st.turns, turn)
	st.ends[turn.ID] = turnlog.EndCancel
	s.closeCancelled(turn, rings)
	return turn.ID
}

// endAsWanted runs at the end of a dispatch. If there is a request to cancel, it closes the turn or the message that
// would otherwise continue. A turn that is to finish does not wait for what that stops. t is a draft of the turn.
func (s *Store) endAsWanted(t *turnRow, rings *[]Bell) {
	m := s.state.message(t.MessageID)
	switch {
	case t.State == turnkeeper.TurnWaiting && wantedEnd(&s.state, t.ID) == turnlog.EndFinish && t.waitsInVain():
		hurry(s, t, rings)
	case !s.state.ends.cancelled(t.ID):
	case !t.State.Terminal():
		s.closeCancelled(t, rings)
	case m.State == turnkeeper.MessageWaiting:
		s.cancelWaiting(m, rings)
	}
}

// closeCancelled closes a turn that no worker runs as cancelled. t is a draft of it.
func (s *Store) closeCancelled(t *turnRow, rings *[]Bell) {
	now, reply := s.now(), cancelledReply(&s.state, t)
	if err := t.State.MoveTo(turnkeeper.TurnCancelled); err != nil {
		s.state.moved = append(s.state.moved, err.Error())
	}
	t.returnHeld(&s.state)
	t.goHome()
	t.withdrawAsks(now)
	t.settleArrived(now)
	t.endElsewhere(now)
	t.settleCalls(now, agentturn.ShownNotRun)
	if round := openRound(t); round > 0 {
		t.tell(turnkeeper.EventRoundRollback, round, turnevents.RollbackData{Reason: "the turn was cancelled"}, now)
	}
	o := turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled, Reply: reply}
	if t.Trigger == turnkeeper.TriggerSchedule {
		o.Reply = ""
	}
	calls := 0
	var said []string
	for _, round := range t.rounds {
		calls += len(round.Calls)
		if strings.TrimSpace(round.Text) != "" {
			said = append(said, round.Text)
		}
	}
	t.tell(turnkeeper.EventTurnError, 0, turnevents.TurnEndData{
		State: o.State, StopReason: o.StopReason, Rounds: len(t.rounds), Calls: calls, Reply: o.Reply,
	}, now)
	t.State, t.StopReason, t.EndedAt, t.DueAt, t.ErrorClass, t.Error = o.State, o.StopReason, now, time.Time{}, "", ""
	if t.Trigger == turnkeeper.TriggerSchedule {
		t.InnerDialogue = strings.Join(said, "\n\n")
	}
	m := s.state.message(t.MessageID)
	m.State, m.Outcome, m.ClosedAt, m.LastError = turnkeeper.MessageCancelled, t.State, now, ""
	s.state.models.forget(m.ID)
	if o.Reply != "" {
		s.reply(t, o, now, rings)
	}
	*rings = append(*rings, Bell{Topic: TopicInbox})
}

// cancelledReply returns the reply of a turn that is cancelled: see turnkeeper.cancelled_reply.
func cancelledReply(s *state, t *turnRow) string {
	private := slices.ContainsFunc(labelsOfReply(s, t.MessageID), func(m policy.Mark) bool {
		return m.Label == policy.Private
	})
	if private && s.parentOf(t.MessageID) == 0 {
		return agentturn.CancelledReply(nil, "")
	}
	return agentturn.CancelledReply(t.rounds, unfinished(t))
}

// unfinished returns the text that was streamed of the round that has not ended.
func unfinished(t *turnRow) string {
	if openRound(t) == 0 {
		return ""
	}
	began := 0
	for i, e := range t.events {
		if e.Type == turnkeeper.EventRoundStart {
			began = i
		}
	}
	var text strings.Builder
	isText := false
	for _, e := range t.events[began:] {
		var data struct{ Kind, Text string }
		_ = json.Unmarshal(e.Data, &data) // of other events, nothing is used
		switch e.Type {
		case turnkeeper.EventBlockStart:
			isText = data.Kind == string(inference.DeltaText)
		case turnkeeper.EventBlockDelta:
			if isText {
				text.WriteString(data.Text)
			}
		default:
		}
	}
	return text.String()
}

// endElsewhere ends the open detached calls, as the end of a turn does.
func (t *turnRow) endElsewhere(now time.Time) {
	for i := range t.rounds {
		for j := range t.rounds[i].Calls {
			call := &t.rounds[i].Calls[j]
			if !call.Awaited || call.State != turnkeeper.CallRunning {
				continue
			}
			t.closeAwaited(call.Key)
			settle(call, turnkeeper.CallCancelled, agentturn.PreviewEnded(call.Effect), now)
		}
	}
}

// endSpawned ends the calls whose sub-agents have not replied.
func (t *turnRow) endSpawned(now time.Time) {
	for _, a := range slices.Clone(t.awaited) {
		if call := t.call(a.key); a.spawned && call.State == turnkeeper.CallRunning {
			t.closeAwaited(call.Key)
			settle(call, turnkeeper.CallCancelled, agentturn.ShownReplyUnawaited, now)
		}
	}
}

// openRound returns the round that has started to stream and has not ended, or 0 if there is none.
func openRound(t *turnRow) (round int) {
	for _, e := range slices.Backward(t.events) {
		switch e.Type {
		case turnkeeper.EventRoundRollback:
			return 0
		case turnkeeper.EventRoundStart:
			if e.Round > len(t.rounds) {
				return e.Round
			}
			return 0
		default:
		}
	}
	return 0
}

func (t *turnRow) tell(kind turnkeeper.EventType, round int, data any, now time.Time) {
	text, err := json.Marshal(data)
	if err != nil { // the types of events always encode
		panic(err)
	}
	t.writes = append(t.writes, "")
	t.LastSeq++
	t.events = append(t.events, turnkeeper.Event{TurnID: t.ID, Seq: t.LastSeq, Type: kind, Round: round,
		Data: text, At: now})
}

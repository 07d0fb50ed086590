package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// An endWrite holds all that one commit writes at the end of a dispatch.
type endWrite struct {
	turnlog.Consequence
	outcome turnlog.Outcome
	job     bool // delete the job too
	noReply bool // the reply is written separately: see BugReplyFirst and BugReplyLast
}

// endDispatch makes an endWrite completely or not at all. t is a draft of the turn.
func (s *Store) endDispatch(t *turnRow, grant turnkeeper.GrantID, e endWrite, rings *[]Bell) error {
	o, now := e.outcome, s.now()
	l := s.state.leases[t.Lane]
	if l == nil || l.GrantID != grant {
		return turnkeeper.ErrFenced
	}
	var forModels bool
	o.State, forModels = stateAfter(t, o, s.bugs)
	if err := t.State.MoveTo(o.State); err != nil {
		return err
	}
	open := o.State == turnkeeper.TurnQueued || o.State == turnkeeper.TurnWaiting
	reply := (o.Reply != "" || o.Silent) && !open && !e.noReply
	if _, taken := s.state.replyOf(t.MessageID); taken && reply && !s.bugs.has(BugReplyFirst) {
		return fmt.Errorf("%w: message %d has a reply", errKeyTaken, t.MessageID)
	}
	t.State = o.State
	t.InnerDialogue, t.ErrorClass, t.Error = o.InnerDialogue, o.ErrorClass, o.Error
	if e.Lost {
		t.Losses++
	}
	if open {
		t.DueAt, t.GrantID = time.Time{}, ""
		if o.Backoff > 0 {
			t.DueAt = now.Add(o.Backoff)
		}
		if !forModels && (o.State == turnkeeper.TurnWaiting || o.Backoff > 0) {
			s.state.models.standStill(t.MessageID, now, t.DueAt)
		}
	} else {
		t.StopReason, t.EndedAt = o.StopReason, now
		s.state.closeMessage(t, e, now)
	}
	if reply {
		s.reply(t, o, now, rings)
	}
	s.release(l, o.State, e.LaneBackoff, now)
	log := s.state.grant(grant)
	log.EndedAt, log.Outcome, log.WorkerID, log.ended = now, e.Log, t.WorkerID, s.commit
	if job := s.state.job(t.JobID); e.job && job != nil {
		job.state = "deleted"
	}
	t.endAsks(&s.state, now)
	s.endAsWanted(t, rings)
	*rings = append(*rings, Bell{Topic: TopicInbox})
	return nil
}

// stateAfter returns the state of a turn after an outcome. A turn that need not wait any more is queued. forModels says
// that it waits for models.
func stateAfter(t *turnRow, o turnlog.Outcome, bugs Bug) (state turnkeeper.TurnState, forModels bool) {
	switch {
	case o.State != turnkeeper.TurnWaiting:
		return o.State, false
	case o.Backoff > 0:
		return o.State, true
	case !t.mayWait() && !bugs.has(BugWaitsInVain):
		return turnkeeper.TurnQueued, false
	}
	return o.State, false
}

// endAsks parks a turn that waits, and withdraws the asks of one that has ended.
func (t *turnRow) endAsks(s *state, now time.Time) {
	switch {
	case t.State == turnkeeper.TurnWaiting:
		t.park(s)
	case t.State.Terminal():
		t.withdrawAsks(now)
	}
}

func (s *state) closeMessage(t *turnRow, e endWrite, now time.Time) {
	m := s.message(t.MessageID)
	m.State, m.LastError = e.Message, e.outcome.Error
	delete(s.queueRanks, m.ID)
	if e.Message == turnkeeper.MessageWaiting {
		s.queueRanks[m.ID] = turnkeeper.Message{DueAt: now.Add(e.LaneBackoff), Priority: m.Priority}.Rank()
		s.setWaiting(m)
	} else {
		m.ClosedAt, m.Outcome = now, t.State
		s.models.forget(m.ID)
	}
}

func (s *Store) reply(t *turnRow, o turnlog.Outcome, now time.Time, rings *[]Bell) {
	r := turnkeeper.Reply{
		ID: turnkeeper.ReplyID(len(s.state.replies) + 1), MessageID: t.MessageID, TurnID: t.ID, Agent: t.Agent,
		User: t.User, Conversation: t.Conversation,
		Outcome: o.State, Body: o.Reply, StopReason: o.StopReason, ErrorClass: o.ErrorClass,
		Calls:     turnlog.ReplyCalls(t.rounds),
		CreatedAt: now, ParentTurn: s.state.parentOf(t.MessageID),
	}
	for _, m := range labelsOfReply(&s.state, t.MessageID) {
		r.Labels = append(r.Labels, string(m.Label))
	}
	slices.Sort(r.Labels)
	s.state.replies = append(s.state.replies, r)
	s.noteReply(r, o.StopReason, rings)
}

// endPause makes a lane that pauses after a failed turn free before its time. Its head then waits since now.
func endPause(s *state, l *leaseRow, now time.Time) {
	l.NotBefore, l.waitsFor = time.Time{}, nil
	for _, m := range s.waiting[l.Lane] {
		fromNow := turnkeeper.Message{DueAt: now, Priority: m.Priority}.Rank()
		if rank, late := s.queueRanks[m.ID]; late && rank.After(fromNow) {
			s.queueRanks[m.ID] = fromNow
		}
	}
}

// release ends a lease. Its row stays only while the lane has failures to remember.
func (s *Store) release(l *leaseRow, state turnkeeper.TurnState, backoff time.Duration, now time.Time) {
	l.GrantID, l.TurnID, l.GrantedAt, l.Until = "", 0, time.Time{}, time.Time{}
	switch state {
	case turnkeeper.TurnFailed:
		l.Failures++
		l.NotBefore = now.Add(backoff)
	case turnkeeper.TurnSucceeded, turnkeeper.TurnDegraded:
		l.Failures, l.NotBefore = 0, time.Time{}
	default:
	}
	delete(s.state.held, l.Lane)
	if l.Failures == 0 {
		delete(s.state.leases, l.Lane)
	}
}

// endApart implements BugReplyFirst and BugReplyLast.
func (j *Journal) endApart(ctx context.Context, id string, e turnlog.Entry) error {
	writeReply := func() error {
		return j.conn.ask(ctx, "reply", func() error {
			return j.inRow(ctx, func(rings *[]Bell) error {
				t := j.s.state.turn(j.grant.TurnID)
				if err := j.checkFence(t); err != nil && j.s.bugs.has(BugReplyFirst) {
					return err
				}
				if e.Outcome.Reply != "" || e.Outcome.Silent {
					j.s.reply(t, *e.Outcome, j.s.now(), rings)
				}
				return nil
			})
		})
	}
	end := func() error {
		return j.conn.ask(ctx, "finish", func() error {
			return j.inRow(ctx, func(rings *[]Bell) error { return j.applyWithoutReply(id, e, rings) })
		})
	}
	steps := []func() error{writeReply, end}
	if j.s.has(BugReplyLast) {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) applyWithoutReply(id string, e turnlog.Entry, rings *[]Bell) error {
	outcome := e.Outcome
	e.Outcome = nil
	draft, err := j.fenced(id)
	if err != nil {
		return err
	}
	j.s.commit++
	if err := j.entry(draft, e, rings); err != nil {
		return err
	}
	end := endWriteOf(*outcome)
	end.noReply = true
	if err := j.s.endDispatch(draft, j.grant.GrantID, end, rings); err != nil {
		return err
	}
	j.s.state.setTurn(draft)
	j.keepShared(draft, e)
	return nil
}

// attemptApart implements BugFenceApart: it checks the fence first, and writes later.
func (j *Journal) attemptApart(ctx context.Context, id string, e turnlog.Entry) error {
	err := j.conn.ask(ctx, "fence", func() error {
		return j.inRow(ctx, func(*[]Bell) error {
			_, err := j.fenced(id)
			return err
		})
	})
	if err != nil {
		return err
	}
	return j.conn.ask(ctx, requestOf(e), func() error {
		return j.inRow(ctx, func(rings *[]Bell) error {
			draft := j.s.state.turn(j.grant.TurnID).draft()
			draft.writes = append(draft.writes, id)
			j.s.commit++
			if err := j.entry(draft, e, rings); err != nil {
				return err
			}
			j.s.state.setTurn(draft)
			for _, part := range e.Sequence() {
				j.keepShared(draft, part)
				j.s.spawn(draft.ID, part.Starts, rings)
			}
			j.s.state.writes = append(j.s.state.writes, writeRow{j.grant.TurnID, j.grant.GrantID, j.s.commit})
			return nil
		})
	})
}

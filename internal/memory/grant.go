package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
)

func (t *tick) ReadyTurns(_ context.Context, limit int, held []string,
	full ...string) (ready []granting.Candidate, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, lane := range lanesOf(s.open) {
			turn := s.open[lane]
			m := s.message(turn.MessageID)
			overdue := s.givenUp(m.ID, turn, turn.Agent, now)
			if turn.State != turnkeeper.TurnQueued && !t.again[turn.ID] || t.left(m, overdue, held, full, now) {
				continue
			}
			ready = append(ready, granting.Candidate{
				Overdue: overdue, TurnID: turn.ID, MessageID: m.ID, Agent: turn.Agent, User: turn.User,
				Conversation: turn.Conversation, Lane: turn.homeLane(),
				Trigger: turn.Trigger, Attempt: turn.Attempt, DefinitionHash: turn.DefinitionHash,
				Rank: queueRank(s, m), MaxRunning: maxRunning(s, turn.Agent),
			})
		}
		ready = inOrder(ready, limit)
	})
	return ready, err
}

func (t *tick) ReadyMessages(_ context.Context, limit int, held []string,
	full ...string) (ready []granting.Candidate, err error) {
	err = t.read(func(s *state, now time.Time) {
		consider := func(m *turnkeeper.Message) {
			overdue := s.givenUp(m.ID, nil, m.Agent, now)
			if t.left(m, overdue, held, full, now) {
				return
			}
			ready = append(ready, granting.Candidate{
				New: true, MessageID: m.ID, Agent: m.Agent, User: m.User, Conversation: m.Conversation, Lane: m.Lane,
				Trigger: m.Trigger,
				Attempt: m.Attempts + 1, DefinitionHash: s.agents[m.Agent].DefinitionHash, Rank: queueRank(s, m),
				MaxRunning: maxRunning(s, m.Agent), Overdue: overdue,
			})
		}
		for _, lane := range lanesOf(s.waiting) {
			for _, m := range s.waiting[lane] {
				consider(m)
			}
		}
		for _, m := range t.slots {
			consider(m)
		}
		ready = inOrder(ready, limit)
	})
	return ready, err
}

// isDue reports whether a message may be granted. A message that was due once stays due even if the clock is set back.
func isDue(m *turnkeeper.Message, now time.Time) bool {
	return !m.DueAt.After(now) || !m.DueAt.After(m.AcceptedAt)
}

// before reports whether a comes before b in a lane: lowest rank, then ID.
func before(a, b *turnkeeper.Message) bool {
	return cmp.Or(a.Rank().Compare(b.Rank()), cmp.Compare(a.ID, b.ID)) < 0
}

// queueRank returns the rank of a lane whose head is m: see the column queue_rank.
func queueRank(s *state, m *turnkeeper.Message) time.Time {
	if rank, late := s.queueRanks[m.ID]; late {
		return rank
	}
	return m.Rank()
}

func maxRunning(s *state, agent string) int {
	if a := s.agents[agent]; a != nil {
		return a.MaxRunning
	}
	return 0
}

func inOrder(ready []granting.Candidate, limit int) []granting.Candidate {
	slices.SortStableFunc(ready, func(a, b granting.Candidate) int {
		return cmp.Or(a.Rank.Compare(b.Rank), cmp.Compare(a.MessageID, b.MessageID))
	})
	return ready[:min(limit, len(ready))]
}

func (t *tick) Dispatch(ctx context.Context, ready []granting.Candidate) error {
	for _, r := range ready {
		if err := failure(t.s, r.AsideOf()); err != nil {
			return err
		}
	}
	if t.s.bugs.has(BugGrantApart) {
		return t.dispatchApart(ctx, ready)
	}
	if !t.s.bugs.has(BugTicksOverlap) {
		earlier := t.first
		t.first = func() error {
			if earlier != nil {
				if err := earlier(); err != nil {
					return err
				}
			}
			return t.checkFree(ready)
		}
	}
	t.later(func(rings *[]Bell) {
		now := t.s.now() // one time for all: see the order of Lost
		for _, r := range ready {
			t.grantTurn(r, t.s.lease(r, now), rings)
		}
	})
	return nil
}

// grantTurn writes the turn and the job of a grant, and hands it over if it has a slot.
func (t *tick) grantTurn(r granting.Candidate, l *leaseRow, rings *[]Bell) {
	t.s.grantTurn(r, l, rings)
	if r.Slot != "" {
		t.handed = append(t.handed, t.s.handedOf(t.s.state.turn(l.TurnID), t.asked))
	}
}

// checkFree returns an error, which undoes the tick, if another process has taken a lane or cancelled
// a message.
func (t *tick) checkFree(ready []granting.Candidate) error {
	for _, r := range ready {
		if l := t.s.state.leases[r.Lane]; l != nil && l.Held() && !t.freed[r.Lane] {
			return fmt.Errorf("another process took lane %s; the tick is undone", r.Lane)
		}
		if t.wasClosed(r) {
			return fmt.Errorf("another process cancelled message %d; the tick is undone", r.MessageID)
		}
	}
	return nil
}

// wasClosed reports whether another process has cancelled the turn or message of a candidate. Other
// processes cannot see the work that this tick has accepted or queued again.
func (t *tick) wasClosed(r granting.Candidate) bool {
	if !r.New {
		// cancelled with its parent, after this tick has queued it again
		if t.again[r.TurnID] && t.s.state.ends.cancelled(r.TurnID) {
			return true
		}
		turn := t.s.state.turn(r.TurnID)
		return !t.again[r.TurnID] && (turn == nil || turn.State != turnkeeper.TurnQueued)
	}
	accepted := slices.ContainsFunc(t.slots, func(m *turnkeeper.Message) bool { return m.ID == r.MessageID })
	return !accepted && t.s.state.message(r.MessageID).State != turnkeeper.MessageWaiting
}

// lease takes the lease for a grant at this time, and logs the grant.
func (s *Store) lease(r granting.Candidate, now time.Time) *leaseRow {
	st := &s.state
	l := st.leases[r.Lane]
	if l == nil {
		l = &leaseRow{Lease: granting.Lease{Lane: r.Lane}}
		st.leases[r.Lane] = l
	}
	st.granted++
	if l.Token++; !s.bugs.has(BugTokenRestarts) {
		l.Token = int64(st.granted)
	}
	if l.GrantID = r.Slot; r.Slot == "" {
		l.GrantID = turnkeeper.GrantID(fmt.Sprintf("00000000-0000-4000-8000-%012x", st.granted))
	}
	l.TurnID, l.GrantedAt, l.Until = r.TurnID, now, now.Add(s.opts.LeaseTTL)
	st.grants = append(st.grants, &grantRow{began: s.commit, Dispatch: turnkeeper.Dispatch{
		Lane: r.Lane, Token: l.Token, GrantID: l.GrantID, TurnID: r.TurnID, GrantedAt: now, Until: l.Until,
	}})
	st.held[r.Lane] = l
	return l
}

// grantTurn writes the turn of a grant, and its job unless it is handed over.
func (s *Store) grantTurn(r granting.Candidate, l *leaseRow, rings *[]Bell) {
	st := &s.state
	turn := s.turnOf(r)
	log := st.grant(l.GrantID)
	var worker turnkeeper.WorkerID
	if r.Slot != "" {
		worker = r.WorkerID
	}
	l.TurnID, l.jobID = turn.ID, 0
	if r.Slot == "" || s.bugs.has(BugHandedQueued) {
		l.jobID = turnkeeper.JobID(len(st.jobs) + 1)
		st.jobs = append(st.jobs, &jobRow{Job: Job{ID: l.jobID, TurnID: turn.ID, GrantID: l.GrantID},
			state: "available"})
		*rings = append(*rings, Bell{Topic: TopicJobs})
	}
	log.TurnID, log.JobID, log.WorkerID = turn.ID, l.jobID, worker
	turn.State, turn.Token, turn.GrantID, turn.JobID, turn.WorkerID = turnkeeper.TurnRunning, l.Token, l.GrantID,
		l.jobID, worker
	turn.Dispatches++
	turn.GrantedAt, turn.LeaseUntil, turn.DueAt = l.GrantedAt, l.Until, time.Time{}
	st.setTurn(turn)
	for _, model := range r.Probes {
		st.models.probes[model] = l.GrantID
	}
}

// turnOf returns the turn of a grant: a new one, or the open one that waited.
func (s *Store) turnOf(r granting.Candidate) *turnRow {
	st := &s.state
	if !r.New {
		turn := st.turn(r.TurnID)
		if err := turn.State.MoveTo(turnkeeper.TurnRunning); err != nil {
			st.moved = append(st.moved, fmt.Sprintf("turn %d was granted: %v", r.TurnID, err))
		}
		draft := turn.draft()
		draft.goHome()
		return draft
	}
	m := st.message(r.MessageID)
	for _, w := range st.waiting[r.Lane] {
		if before(w, m) && isDue(w, s.now()) && !conversationHeld(st, w) && !heldByLevel(st, w, s.now()) {
			st.overtaken = append(st.overtaken, fmt.Sprintf("message %d was granted before message %d of lane %s", m.ID,
				w.ID, r.Lane))
		}
	}
	turn := &turnRow{Turn: turnkeeper.Turn{
		ID: turnkeeper.TurnID(len(st.turns) + 1), MessageID: m.ID, Attempt: r.Attempt, Agent: r.Agent, User: r.User,
		Conversation: r.Conversation,
		Lane:         r.Lane, Trigger: r.Trigger, DefinitionHash: r.DefinitionHash, State: turnkeeper.TurnQueued,
		CreatedAt: s.now(),
	}}
	if open := st.open[r.Lane]; open != nil {
		st.moved = append(st.moved, fmt.Sprintf("turn %d was made beside the open turn %d of lane %s", turn.ID,
			open.ID, r.Lane))
	}
	if before := st.turn(m.TurnID); r.Attempt > 1 && before != nil { // losses count per message
		turn.Losses = before.Losses
	}
	st.turns = append(st.turns, turn)
	st.unsetWaiting(m)
	m.State, m.TurnID = turnkeeper.MessageRunning, turn.ID
	m.Attempts++
	return turn
}

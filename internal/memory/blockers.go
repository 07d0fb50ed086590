package memory

import (
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/waiting"
)

// Blockers returns why a waiting message, or the queued turn of a running one, is not granted now, apart from the
// scheduler and free slots: the reasons that turnkeeper.blockers gives. The ticks grant what has none.
func Blockers(s *Store, id turnkeeper.MessageID) []waiting.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.state.message(id)
	if m == nil || !m.ClosedAt.IsZero() {
		return nil
	}
	g, now := gate{s: s}, s.now()
	found := g.blockers(m, now)
	if turn := openTurnOf(&s.state, m); turn == nil || turn.State != turnkeeper.TurnWaiting {
		found = append(found, g.limits(m, now)...)
	}
	return found
}

// Grantable returns the messages without a blocker, if there are free slots and the scheduler does not hold off.
func Grantable(s *Store) (ids []turnkeeper.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, now := gate{s: s}, s.now()
	if s.state.holdUntil.After(now) || s.state.situation(now).FreeSlots <= 0 {
		return nil
	}
	for _, m := range s.state.messages {
		if m == nil || !m.ClosedAt.IsZero() {
			continue
		}
		turn := openTurnOf(&s.state, m)
		if (turn == nil || turn.State == turnkeeper.TurnQueued) && len(g.blockers(m, now))+len(g.limits(m, now)) == 0 {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// openTurnOf returns the open turn of a message; nil: it has none.
func openTurnOf(s *state, m *turnkeeper.Message) *turnRow {
	if m.State != turnkeeper.MessageRunning {
		return nil
	}
	return s.turn(m.TurnID)
}

// A gate decides what may be granted after what a tick has done, which is not committed yet.
type gate struct {
	s     *Store
	freed map[turnkeeper.Lane]bool      // reclaimed, or closed, in this tick
	again map[turnkeeper.TurnID]bool    // queued again in this tick
	slots []*turnkeeper.Message         // accepted in this tick
	gone  map[turnkeeper.MessageID]bool // cancelled in this tick
}

// blockers returns what blocks a message or its turn, apart from the limits that the scheduler counts: see limits.
func (g *gate) blockers(m *turnkeeper.Message, now time.Time) (found []waiting.Reason) {
	s := &g.s.state
	turn, lane := openTurnOf(s, m), m.Lane
	switch {
	case turn == nil && s.agents[m.Agent] == nil:
		return []waiting.Reason{waiting.UnknownAgent}
	case turn == nil:
		found = g.ofMessage(m, now)
	default:
		lane, found = turn.homeLane(), g.ofTurn(turn, now)
	}
	aside := granting.Candidate{New: turn == nil, MessageID: m.ID}
	if turn != nil {
		aside.TurnID = turn.ID
	}
	if s.aside[aside.AsideOf()].nextTry.After(now) {
		found = append(found, waiting.SetAside)
	}
	if turn != nil && turn.State == turnkeeper.TurnWaiting && !g.again[turn.ID] {
		return found
	}
	if turn != nil && turn.home != "" && g.laneWaits(m, lane) {
		found = append(found, waiting.LanesChanged)
	}
	if turn == nil || turn.home != "" {
		found = append(found, g.ahead(m, turn, lane, now)...)
	}
	if l := s.leases[lane]; l != nil {
		if l.Held() && !g.freed[lane] && !slices.Contains(found, waiting.LaneHeld) {
			found = append(found, waiting.LaneHeld)
		}
		if l.NotBefore.After(now) {
			found = append(found, waiting.LaneBackoff)
		}
	}
	return found
}

// left reports whether a tick leaves out a message or its turn: it is closed or blocked, or the scheduler holds its
// agent back.
func (g *gate) left(m *turnkeeper.Message, overdue bool, held, full []string, now time.Time) bool {
	_, again := g.s.state.queueRanks[m.ID]
	if again && (g.s.bugs.has(BugOvertaken) || g.s.bugs.has(BugForgotten)) {
		return true
	}
	return g.gone[m.ID] || !overdue && slices.Contains(held, m.Agent) || slices.Contains(full, m.Agent) ||
		len(g.blockers(m, now)) > 0
}

// ofMessage returns what blocks a message without an open turn, apart from its lane.
func (g *gate) ofMessage(m *turnkeeper.Message, now time.Time) (found []waiting.Reason) {
	s := &g.s.state
	for reason, blocks := range map[waiting.Reason]bool{
		waiting.AgentRetired:     s.retired(m.Agent) && s.lineageOf(m.ID).Parent == 0, // it still works as a sub-agent
		waiting.NotDue:           !isDue(m, now),
		waiting.SurvivalLevel:    heldByLevel(s, m, now),
		waiting.ConversationHeld: conversationHeld(s, m),
		waiting.LanesChanged:     g.laneWaits(m, m.Lane),
	} {
		if blocks {
			found = append(found, reason)
		}
	}
	return found
}

// ofTurn returns what a turn waits for itself.
func (g *gate) ofTurn(turn *turnRow, now time.Time) []waiting.Reason {
	switch {
	case g.again[turn.ID]:
	case turn.State == turnkeeper.TurnWaiting && len(turn.waitsFor) > 0:
		return ofModels(&g.s.state, turn)
	case turn.State == turnkeeper.TurnWaiting && len(turn.openAsks()) > 0:
		return []waiting.Reason{waiting.Person}
	case turn.State == turnkeeper.TurnWaiting:
		return []waiting.Reason{waiting.DetachedCalls}
	case turn.State == turnkeeper.TurnQueued && turn.DueAt.After(now):
		return []waiting.Reason{waiting.Deferred}
	}
	return nil
}

// ofModels returns what a turn that waits for models waits for: those that are down or, if none is, its time.
func ofModels(s *state, turn *turnRow) (found []waiting.Reason) {
	for _, name := range turn.waitsFor {
		if h := s.models.health[name]; h.Down() {
			found = append(found, waiting.ModelDown)
		}
	}
	if len(found) == 0 {
		return []waiting.Reason{waiting.Deferred}
	}
	return found
}

// ahead returns what is ahead of a message, or of its turn that goes back to its lane, and the turn that has the lane.
func (g *gate) ahead(m *turnkeeper.Message, turn *turnRow, lane turnkeeper.Lane,
	now time.Time) (found []waiting.Reason) {
	s := &g.s.state
	if g.waitsBehind(lane, m, now) || turn != nil && g.waitsBehind(s.laneNow(m, lane), m, now) {
		found = append(found, waiting.EarlierMessage)
	}
	for _, o := range s.open {
		if o.home == lane && o != turn && g.goesBack(o) && before(s.message(o.MessageID), m) {
			found = append(found, waiting.EarlierTurn)
			break
		}
	}
	if open := s.open[lane]; open != nil && open != turn && (!g.freed[lane] || g.again[open.ID]) {
		found = append(found, waiting.LaneHeld)
	}
	return found
}

// goesBack reports whether a turn that waited outside its lane goes back to it.
func (g *gate) goesBack(o *turnRow) bool {
	return o.home != "" && (o.State == turnkeeper.TurnQueued || g.again[o.ID]) && !g.gone[o.MessageID]
}

// waitsBehind reports whether a waiting message that is due is ahead of m in a lane.
func (g *gate) waitsBehind(lane turnkeeper.Lane, m *turnkeeper.Message, now time.Time) bool {
	s := &g.s.state
	ahead := func(w *turnkeeper.Message) bool {
		if _, again := s.queueRanks[w.ID]; again && g.s.bugs.has(BugOvertaken) {
			return false
		}
		return w.Lane == lane && before(w, m) && isDue(w, now) && !g.gone[w.ID] && !conversationHeld(s, w) &&
			!heldByLevel(s, w, now)
	}
	return slices.ContainsFunc(s.waiting[lane], ahead) || slices.ContainsFunc(g.slots, ahead)
}

// limits returns what blocks a message because of the turns of others: the models that are down, and the turns of its
// agent.
func (g *gate) limits(m *turnkeeper.Message, now time.Time) (found []waiting.Reason) {
	s := &g.s.state
	a, down := s.agents[m.Agent], modelsDown(s, now)
	if a == nil {
		return nil
	}
	due := func(h modelhealth.Health) bool {
		return h.Due && s.levels.uses(m.Agent, h.Model, now)
	}
	chain := modelhealth.Chain{Models: s.levels.chain(m.Agent, now)}
	if chain.Down(down) && !slices.ContainsFunc(down, due) && !s.givenUp(m.ID, openTurnOf(s, m), m.Agent, now) {
		found = append(found, waiting.ModelDown)
	}
	running := 0
	for lane := range s.held {
		if lane.Agent() == m.Agent {
			running++
		}
	}
	if a.MaxRunning > 0 && running >= a.MaxRunning {
		found = append(found, waiting.AgentFull)
	}
	return found
}

package memory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
)

// A Violation is an invariant that does not hold.
type Violation struct {
	Invariant string // its name
	Detail    string
}

func (v Violation) String() string { return v.Invariant + ": " + v.Detail }

// The invariants, by name.
const (
	OneReply         = "one reply a message"
	ClosedAnswered   = "closed and answered agree"
	NoOpenCall       = "no open call under a closed turn"
	OnceStartedOnce  = "a call of effect once is started once"
	StartedBefore    = "no result of an effect without its start"
	NoOldWrite       = "no write under an old grant"
	NoOverlap        = "the leases of a lane never overlap"
	TokenGrows       = "the token of a lane only grows"
	NoFalseSuccess   = "no plain success over an unknown outcome"
	VerdictStays     = "a verdict stays"
	NoGap            = "event numbers have no gap"
	NothingStuck     = "nothing is stuck"
	NoBadMove        = "every move is allowed"
	OneMessage       = "a call gives work to one agent, once"
	RepliesDelivered = "a sub-agent's reply is its call's result"
	NobodyWaits      = "a sub-agent that nobody waits for is cancelled"
	Approved         = "a call that needs an approval runs once, with what was approved"
	InOrder          = "nothing is granted before what is ahead of it in its lane"
	WaitsForResult   = "a turn that waits holds nothing and waits for what has not come"
)

// Check returns the invariants that do not hold. grace is how long after the end of its
// lease a grant may still be open.
func (s *Store) Check(grace time.Duration) []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &checker{s: &s.state}
	for _, m := range s.state.messages {
		if m != nil {
			c.message(m)
		}
	}
	for _, turn := range s.state.turns {
		c.turn(turn)
	}
	c.grants()
	c.spawned()
	c.writes()
	for lane, l := range s.state.held {
		if s.now().After(l.Until.Add(grace)) {
			c.found(NothingStuck, "lane %s is held since %s, and its lease ended at %s", lane, l.GrantedAt, l.Until)
		}
	}
	for _, what := range s.state.overtaken {
		c.found(InOrder, "%s", what)
	}
	for _, what := range s.state.moved {
		c.found(NoBadMove, "%s", what)
	}
	return c.violations
}

type checker struct {
	s          *state
	violations []Violation
}

func (c *checker) found(invariant, format string, args ...any) {
	c.violations = append(c.violations, Violation{invariant, fmt.Sprintf(format, args...)})
}

// closes lists the states of a turn that go with each state of its message.
var closes = map[turnkeeper.MessageState][]turnkeeper.TurnState{
	turnkeeper.MessageWaiting:   {turnkeeper.TurnFailed},
	turnkeeper.MessageRunning:   {turnkeeper.TurnQueued, turnkeeper.TurnRunning, turnkeeper.TurnWaiting},
	turnkeeper.MessageSucceeded: {turnkeeper.TurnSucceeded},
	turnkeeper.MessageDegraded:  {turnkeeper.TurnDegraded},
	turnkeeper.MessageFailed:    {turnkeeper.TurnFailed},
	turnkeeper.MessageCancelled: {turnkeeper.TurnCancelled},
}

func (c *checker) message(m *turnkeeper.Message) {
	var replies []turnkeeper.Reply
	for _, r := range c.s.replies {
		if r.MessageID == m.ID {
			replies = append(replies, r)
		}
	}
	if len(replies) > 1 {
		c.found(OneReply, "message %d has %d", m.ID, len(replies))
	}
	turn := c.s.turn(m.TurnID)
	if turn == nil {
		if m.State != turnkeeper.MessageWaiting {
			c.found(ClosedAnswered, "message %d is %s and has no turn", m.ID, m.State)
		}
		return
	}
	if !slices.Contains(closes[m.State], turn.State) {
		c.found(ClosedAnswered, "message %d is %s and its turn %d is %s", m.ID, m.State, turn.ID, turn.State)
	}
	closed := !m.ClosedAt.IsZero()
	switch {
	case !closed && len(replies) > 0:
		c.found(ClosedAnswered, "message %d is %s and has a reply", m.ID, m.State)
	case closed && len(replies) == 0 && m.Trigger == turnkeeper.TriggerMessage:
		c.found(ClosedAnswered, "message %d is %s and has no reply", m.ID, m.State)
	case closed && len(replies) > 0 && (replies[0].TurnID != turn.ID || replies[0].Outcome != turn.State):
		c.found(ClosedAnswered, "the reply of message %d is of turn %d, %s; its turn %d is %s",
			m.ID, replies[0].TurnID, replies[0].Outcome, turn.ID, turn.State)
	}
}

func (c *checker) turn(t *turnRow) {
	if t.State == turnkeeper.TurnWaiting {
		if l := c.s.leases[t.Lane]; l != nil && l.Held() || t.GrantID != "" || !t.mayWait() && len(t.waitsFor) == 0 {
			c.found(WaitsForResult, "turn %d waits, its lane is held: %v, its grant is %q, it may wait: %v", t.ID,
				l != nil && l.Held(), t.GrantID, t.mayWait())
		}
	}
	for _, round := range t.rounds {
		for _, call := range round.Calls {
			c.call(t, call)
		}
	}
	for _, key := range t.verdicts {
		if call := t.call(key); call.State != turnkeeper.CallUnknown {
			c.found(VerdictStays, "call %s of turn %d was unknown, and is %s", key, t.ID, call.State)
		}
	}
	first := int64(1)
	if !t.EventsExpiredAt.IsZero() {
		first = max(t.LastSeq-1, 1)
	}
	for i, e := range t.events {
		if e.Seq != int64(i)+first {
			c.found(NoGap, "event %d of turn %d has number %d", i+1, t.ID, e.Seq)
			break
		}
		if e.Type.Terminal() && i != len(t.events)-1 {
			c.found(NoGap, "turn %d has events after its last", t.ID)
			break
		}
	}
	if t.LastSeq != int64(len(t.events))+first-1 {
		c.found(NoGap, "turn %d has %d events, and counts %d", t.ID, len(t.events), t.LastSeq)
	}
}

func (c *checker) call(t *turnRow, call turnkeeper.ToolCall) {
	starts := 0
	for _, start := range t.starts {
		if start.key == call.Key {
			starts++
		}
	}
	c.approved(t, call)
	if call.Effect == turnkeeper.EffectOnce && starts > 1 && !t.settledTo(call.Key, starts) {
		c.found(OnceStartedOnce, "call %s of turn %d has %d starts", call.Key, t.ID, starts)
	}
	if call.State == turnkeeper.CallSucceeded && call.Effect != turnkeeper.EffectNone && starts == 0 {
		c.found(StartedBefore, "call %s of turn %d succeeded", call.Key, t.ID)
	}
	if t.State.Terminal() && !call.State.Answered() {
		c.found(NoOpenCall, "turn %d is %s and its call %s is %s", t.ID, t.State, call.Key, call.State)
	}
	if t.State == turnkeeper.TurnSucceeded && call.State == turnkeeper.CallUnknown {
		c.found(NoFalseSuccess, "turn %d succeeded and its call %s is unknown", t.ID, call.Key)
	}
}

// approved checks the starts of a call that needs an approval.
func (c *checker) approved(t *turnRow, call turnkeeper.ToolCall) {
	approval := t.askOf(call.Key, asks.KindApprove, 1)
	used, first := map[asks.ID]bool{}, true
	for i, start := range t.starts {
		if start.key != call.Key {
			continue
		}
		if start.ask != 0 && used[start.ask] {
			c.found(Approved, "ask %d is used by two starts of call %s of turn %d", start.ask, call.Key, t.ID)
		}
		used[start.ask] = true
		if approval == nil && !slices.Contains(t.gates, call.Key) {
			continue
		}
		hash := start.hash
		if !first && hash == "" && approval != nil { // a lost detached call runs again as it was started
			hash = approval.RunHash()
		}
		first = false
		if approval == nil || approval.State != asks.Approved || hash != approval.RunHash() {
			c.found(Approved, "start %d of turn %d, of call %s, has no approval of its arguments", i+1, t.ID, call.Key)
		}
	}
}

// settledTo reports whether a person has allowed each start after the first.
func (t *turnRow) settledTo(key turnkeeper.CallKey, starts int) bool {
	for n := 1; n < starts; n++ {
		if a := t.askOf(key, asks.KindSettle, n); a == nil || a.Answer != asks.DidNotHappen {
			return false
		}
	}
	return true
}

// spawned checks the calls that gave work to sub-agents.
func (c *checker) spawned() {
	messages := map[turnkeeper.MessageID]bool{}
	for _, row := range c.s.spawned {
		if row.Message == 0 {
			continue
		}
		messages[row.Message] = true
		call := c.s.turn(row.parent).call(row.key)
		m := c.s.message(row.Message)
		if closed := !m.ClosedAt.IsZero(); closed != row.ended {
			c.found(RepliesDelivered, "the message %d of call %s of turn %d is %s, and has ended: %v", m.ID, row.key,
				row.parent, m.State, row.ended)
		}
		if !row.ended && call.State.Answered() && !row.dropped {
			c.found(NobodyWaits, "call %s of turn %d is %s, and its message %d is %s", row.key, row.parent, call.State,
				m.ID, m.State)
		}
		if a := c.s.turn(row.parent).await(row.key); row.ended && row.notified && a.arrived == nil && !a.closed {
			c.found(RepliesDelivered, "call %s of turn %d waits, and its message %d is %s", row.key, row.parent,
				m.ID, m.State)
		}
	}
	for _, m := range c.s.messages {
		if m != nil && strings.HasPrefix(m.Conversation, "turn-") && !messages[m.ID] {
			c.found(OneMessage, "message %d in %s has no call", m.ID, m.Conversation)
		}
	}
}

// grants checks the grant log, lane by lane.
func (c *checker) grants() {
	byLane := map[turnkeeper.Lane][]*grantRow{}
	for _, g := range c.s.grants {
		byLane[g.Lane] = append(byLane[g.Lane], g)
	}
	for _, lane := range lanesOf(byLane) {
		log := byLane[lane]
		slices.SortStableFunc(log, func(a, b *grantRow) int { return cmp.Compare(a.began, b.began) })
		for i, g := range log[1:] {
			before := log[i]
			if before.ended == 0 || before.ended > g.began {
				c.found(NoOverlap, "lane %s was granted with token %d before the grant with token %d had ended", lane,
					g.Token, before.Token)
			}
			if g.Token <= before.Token {
				c.found(TokenGrows, "lane %s had token %d and then %d", lane, before.Token, g.Token)
			}
		}
	}
}

// writes checks that every write to a journal was made while its grant was open.
func (c *checker) writes() {
	log := map[turnkeeper.GrantID]*grantRow{}
	for _, g := range c.s.grants {
		log[g.GrantID] = g
	}
	for _, w := range c.s.writes {
		if g := log[w.grant]; g == nil || w.commit < g.began || g.ended != 0 && w.commit > g.ended {
			c.found(NoOldWrite, "turn %d was written to under grant %s, which was over", w.turn, w.grant)
		}
	}
}

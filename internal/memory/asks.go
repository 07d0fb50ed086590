package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// Asks of turns, as migrations/007_asks.up.sql stores them. An ask's id is turn * 1000 + its number in the turn.

const asksPerTurn = 1000

func (t *turnRow) askAt(id asks.ID) *asks.Ask {
	i := slices.IndexFunc(t.asks, func(a asks.Ask) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return &t.asks[i]
}

func (t *turnRow) askOf(key turnkeeper.CallKey, kind asks.Kind, n int) *asks.Ask {
	i := slices.IndexFunc(t.asks, func(a asks.Ask) bool { return a.Call == key && a.Kind == kind && a.N == n })
	if i < 0 {
		return nil
	}
	return &t.asks[i]
}

// writeAsks writes what an entry says about asks.
func (j *Journal) writeAsks(t *turnRow, e turnlog.Entry) error {
	now := j.s.now()
	t.gates = append(t.gates, e.Gates...)
	for _, q := range e.Asks {
		if t.askOf(q.Call, q.Kind, q.N) != nil {
			return fmt.Errorf("%w: ask %s of %s", errKeyTaken, q.Kind, q.Call)
		}
		t.asks = append(t.asks, asks.Ask{
			Question: q, ID: asks.ID(t.ID)*asksPerTurn + asks.ID(len(t.asks)) + 1, Turn: t.ID, State: asks.Open,
			Hash: tools.Hash(q.Tool, q.Arguments), OpenedAt: now, ExpiresAt: now.Add(q.Timeout),
		})
		j.s.extendParents(t, now.Add(q.Timeout+time.Hour))
	}
	for _, id := range e.Seen {
		if a := t.askAt(id); a != nil && a.Closed() {
			a.Seen = true
		}
	}
	for _, id := range e.Inputs {
		a := t.askAt(id)
		if a == nil || a.Kind != asks.KindInput || !a.Closed() || a.State == asks.Withdrawn || a.Used {
			return fmt.Errorf("%w: input of ask %d", asks.ErrNotApproved, id)
		}
		a.Used = true
	}
	for i := range t.asks {
		if a := &t.asks[i]; !a.Closed() && slices.Contains(e.Withdrawn, a.Call) {
			a.State, a.ClosedAt, a.Seen = asks.Withdrawn, now, true
		}
	}
	return nil
}

// extendParents makes the parents of a sub-agent wait for its reply at least until then.
func (s *Store) extendParents(t *turnRow, until time.Time) {
	for message := t.MessageID; message != 0; {
		i := slices.IndexFunc(s.state.spawned, func(row *spawnRow) bool { return row.Message == message })
		if i < 0 {
			return
		}
		row := s.state.spawned[i]
		if row.deadline.Before(until) {
			row.deadline = until
		}
		message = s.state.turn(row.parent).MessageID
	}
}

// checkApproval refuses a start without the approval that it needs: see turnkeeper.check_approvals.
func (j *Journal) checkApproval(t *turnRow, start turnlog.CallStart) error {
	approval := t.askOf(start.Key, asks.KindApprove, 1)
	settled := t.askOf(start.Key, asks.KindSettle, start.Attempt-1)
	bad := false
	if approval != nil || slices.Contains(t.gates, start.Key) {
		bad = !j.s.bugs.approves(approval, start)
	}
	switch {
	case start.Ask == 0:
	case start.Attempt == 1:
		bad = bad || approval == nil // approves has compared the ask
	default:
		bad = bad || settled == nil || start.Ask != settled.ID || settled.Answer != asks.DidNotHappen ||
			settled.Hash != start.Hash
	}
	used := func(s startRow) bool { return start.Ask != 0 && s.ask == start.Ask }
	if bad || slices.ContainsFunc(t.starts, used) && !j.s.bugs.has(BugAskUsedTwice) {
		return fmt.Errorf("%w: call %s", asks.ErrNotApproved, start.Key)
	}
	return nil
}

// approves reports whether an ask, which may be nil, approves a start, with the planted bugs.
func (b Bug) approves(approval *asks.Ask, start turnlog.CallStart) bool {
	if approval == nil || start.Attempt == 1 && start.Ask != approval.ID {
		return false
	}
	approved := approval.State == asks.Approved || b.has(BugExpiredRuns) && approval.State == asks.Expired
	return approved && (approval.RunHash() == start.Hash || b.has(BugApprovesOther))
}

// openAsks returns the asks of a turn that nobody has answered.
func (t *turnRow) openAsks() []asks.Ask {
	return slices.DeleteFunc(slices.Clone(t.asks), asks.Ask.Closed)
}

// asksPerson reports whether a turn has an open ask, and unseen whether it must look at an answer before it may wait.
func (t *turnRow) asksPerson() (open, unseen bool) {
	for _, a := range t.asks {
		open = open || !a.Closed()
		unseen = unseen || a.Closed() && !a.Seen
	}
	return open, unseen
}

// Asks returns the asks of a turn.
func (c *Conn) Asks(ctx context.Context, turn turnkeeper.TurnID) (all []asks.Ask, err error) {
	err = c.ask(ctx, "asks", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		row := c.store.state.turn(turn)
		if row == nil {
			return turnkeeper.ErrNotFound
		}
		all = slices.Clone(row.asks)
		return nil
	})
	return all, err
}

// OpenAsks returns the open asks of all turns, by id.
func (s *Store) OpenAsks() (all []asks.Ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.state.turns {
		all = append(all, slices.DeleteFunc(slices.Clone(turn.asks), asks.Ask.Closed)...)
	}
	return all
}

// AnswerAsk answers an ask, and queues its turn if that waits. A repeat of the same answer by
// the same person changes nothing. The errors are
// turnkeeper.ErrNotFound, asks.ErrClosed and asks.ErrInvalid.
func (c *Conn) AnswerAsk(ctx context.Context, id asks.ID, a asks.Answer) (state asks.State, err error) {
	err = c.ask(ctx, "answer ask", func() error {
		c.store.mu.Lock()
		known := c.store.state.turn(turnkeeper.TurnID(id/asksPerTurn)) != nil
		c.store.mu.Unlock()
		if !known {
			return turnkeeper.ErrNotFound
		}
		return c.store.inRow(ctx, turnkeeper.TurnID(id/asksPerTurn), func(rings *[]Bell) error {
			c.store.commit++
			draft := c.store.state.turn(turnkeeper.TurnID(id / asksPerTurn)).draft()
			if state, err = c.store.answerAsk(draft, id, a, rings); err != nil {
				return err
			}
			c.store.state.setTurn(draft)
			return nil
		})
	})
	return state, err
}

func (s *Store) answerAsk(t *turnRow, id asks.ID, a asks.Answer, rings *[]Bell) (asks.State, error) {
	ask := t.askAt(id)
	if ask == nil {
		return "", turnkeeper.ErrNotFound
	}
	switch {
	case !ask.Kind.Decides(a.Decision), strings.TrimSpace(a.By) == "", len(ask.Audience) > 0 &&
		!slices.Contains(ask.Audience, a.By),
		(a.Decision == asks.Answered) != (a.Answer != ""), a.Edited != "" &&
			(a.Decision != asks.Approved || ask.Kind != asks.KindApprove),
		ask.Kind == asks.KindSettle && !slices.Contains([]string{asks.Happened, asks.DidNotHappen,
			asks.Unknown}, a.Answer),
		a.Hash != "" && a.Hash != ask.Hash, a.Answer != "" && !json.Valid([]byte(a.Answer)),
		a.Edited != "" && (!json.Valid([]byte(a.Edited)) || !strings.HasPrefix(strings.TrimSpace(a.Edited), "{")):
		return "", asks.ErrInvalid
	case ask.Closed():
		if ask.State == a.Decision && ask.AnsweredBy == a.By && ask.Answer == a.Answer && ask.Edited == a.Edited &&
			ask.Comment == strings.TrimSpace(a.Comment) {
			return ask.State, nil
		}
		return "", fmt.Errorf("%w: it was %s by %s", asks.ErrClosed, ask.State, ask.AnsweredBy)
	case !ask.ExpiresAt.After(s.now()):
		return "", asks.ErrClosed
	}
	ask.State, ask.ClosedAt, ask.AnsweredBy, ask.Channel = a.Decision, s.now(), a.By, a.Channel
	ask.Comment, ask.Answer, ask.Edited = strings.TrimSpace(a.Comment), a.Answer, a.Edited
	if a.Edited != "" {
		ask.EditedHash = tools.Hash(ask.Tool, a.Edited)
	}
	s.wake(t, rings)
	return ask.State, nil
}

// wake queues a turn that waits for a person. t is a draft of it.
func (s *Store) wake(t *turnRow, rings *[]Bell) {
	if t.State != turnkeeper.TurnWaiting || s.bugs.has(BugNeverWoken) {
		return
	}
	t.State, t.DueAt, t.waitsFor = turnkeeper.TurnQueued, time.Time{}, nil
	t.returnHeld(&s.state)
	*rings = append(*rings, Bell{Topic: TopicInbox})
}

// withdrawAsks closes the open asks of a turn that ends or finishes.
func (t *turnRow) withdrawAsks(now time.Time) {
	for i := range t.asks {
		if a := &t.asks[i]; !a.Closed() {
			a.State, a.ClosedAt = asks.Withdrawn, now
		}
	}
}

// park moves a turn that waits for a person out of its lane, if it would block others there: see turnkeeper.park_turn.
func (t *turnRow) park(s *state) {
	hold, open := false, false
	for _, a := range t.asks {
		open = open || !a.Closed()
		hold = hold || !a.Closed() && a.Hold
	}
	own := t.Lane == t.ConversationKey().Lane() && s.agents[t.Agent].LanePerConversation
	if !open || hold && own || s.parentOf(t.MessageID) != 0 {
		return
	}
	t.home, t.holds, t.Lane = t.Lane, hold, turnkeeper.Lane(fmt.Sprintf("%s#%d", t.Agent, t.ID))
	if hold {
		t.holdMessages(s)
	}
}

// holdMessages moves the waiting messages of a parked turn's conversation to its lane.
func (t *turnRow) holdMessages(s *state) {
	for _, lane := range lanesOf(s.waiting) {
		for _, m := range slices.Clone(s.waiting[lane]) {
			if m.ConversationKey() == t.ConversationKey() && lane != t.Lane {
				moveMessage(s, m, t.Lane)
			}
		}
	}
}

func moveMessage(s *state, m *turnkeeper.Message, lane turnkeeper.Lane) {
	s.unsetWaiting(m)
	m.Lane = lane
	s.setWaiting(m)
}

// returnHeld takes the messages that were held with a parked turn back to their lane.
func (t *turnRow) returnHeld(s *state) {
	if t.home == "" {
		return
	}
	for _, m := range slices.Clone(s.waiting[t.Lane]) {
		moveMessage(s, m, s.laneNow(m, t.home))
	}
}

// goHome takes a parked turn back to its lane.
func (t *turnRow) goHome() {
	if t.home != "" {
		t.Lane, t.home, t.holds = t.home, "", false
	}
}

// homeLane returns the lane that a turn runs in.
func (t *turnRow) homeLane() turnkeeper.Lane {
	if t.home != "" {
		return t.home
	}
	return t.Lane
}

// conversationHeld reports whether a parked turn holds the conversation of a message.
func conversationHeld(s *state, m *turnkeeper.Message) bool {
	for _, turn := range s.open {
		if turn.home != "" && turn.holds && turn.ConversationKey() == m.ConversationKey() {
			return true
		}
	}
	return false
}

func (t *tick) ExpireAsks(_ context.Context, limit int) (n int, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, lane := range lanesOf(s.open) {
			turn := s.open[lane]
			for _, a := range turn.asks {
				if a.Closed() || a.ExpiresAt.After(now) || !t.free(turn) || t.ends[turn.ID] || n == limit {
					continue
				}
				n++
				turn.held = t.tx
				if turn.State == turnkeeper.TurnWaiting {
					t.again[turn.ID] = true
				}
				t.later(func(rings *[]Bell) { t.s.expire(turn.ID, a.ID, rings) })
			}
		}
	})
	if err != nil {
		return n, err
	}
	ended, err := t.endModelWaits(limit)
	return n + ended, err
}

func (s *Store) expire(id turnkeeper.TurnID, ask asks.ID, rings *[]Bell) {
	draft := s.state.turn(id).draft()
	a := draft.askAt(ask)
	if a.Closed() {
		return
	}
	a.State, a.ClosedAt = asks.Expired, s.now()
	s.wake(draft, rings)
	s.state.setTurn(draft)
}

// MoveHeld moves messages that a parked turn holds. ReadyMessages leaves them out in any case.
func (t *tick) MoveHeld(context.Context) (int, error) {
	t.later(func(*[]Bell) {
		for _, lane := range lanesOf(t.s.state.open) {
			if turn := t.s.state.open[lane]; turn.holds && turn.State == turnkeeper.TurnWaiting {
				turn.holdMessages(&t.s.state)
			}
		}
	})
	return 0, nil
}

package agentturn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/membudget"
)

// stageMemory is the memory of the largest result of a stage, in bytes.
const stageMemory = 1 << 20

// A meter records outside of the turns what their model calls take, what the budget gives them, what the observer is
// told, and what memory their results hold.
type meter struct {
	s      *stage
	memory *membudget.Budget

	mu       sync.Mutex
	requests int64
	spent    map[turnkeeper.TurnID]turnkeeper.Usage // as the model's server counts it
	asked    map[string]turnkeeper.Usage            // the part of it that a call's own questions took, by wire id
	failed   map[string]bool                        // kinds of requests of which the last one was failed
	reserved map[int64]turnkeeper.TurnID            // reservations that are open
	settled  map[turnkeeper.TurnID]turnkeeper.Usage
	told     map[turnkeeper.TurnID]turnkeeper.Usage // to the observer
	begun    map[string]int                         // operations of the observer that have not ended, by name
	spawned  map[turnkeeper.TurnID]int              // ends of sub-agents that the observer was told, by their turn
}

func newMeter(s *stage) *meter {
	return &meter{
		s: s, memory: membudget.New(8*stageMemory, stageMemory),
		spent: map[turnkeeper.TurnID]turnkeeper.Usage{}, asked: map[string]turnkeeper.Usage{},
		failed: map[string]bool{}, reserved: map[int64]turnkeeper.TurnID{},
		settled: map[turnkeeper.TurnID]turnkeeper.Usage{},
		told:    map[turnkeeper.TurnID]turnkeeper.Usage{}, begun: map[string]int{},
		spawned: map[turnkeeper.TurnID]int{},
	}
}

// take counts a request of a turn for the model's server. question is the wire id of the call that asks; empty: the
// turn itself. fails reports whether the server is to fail, which it does every other time if the stage is flaky.
func (m *meter) take(turn turnkeeper.TurnID, question string, r inference.Request) (used turnkeeper.Usage, fails bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	for _, message := range r.Messages {
		used.InputTokens += int64(len(message.Text) / 4)
	}
	used.InputTokens += m.requests
	used.OutputTokens, used.CachedTokens, used.ReasoningTokens = 20+m.requests, 1, 2
	m.spent[turn] = m.spent[turn].Add(used)
	if question != "" {
		m.asked[question] = m.asked[question].Add(used)
	}
	kind := r.User + question
	m.failed[kind] = m.s.flaky && !m.failed[kind]
	return used, m.failed[kind]
}

// Reserve implements agentturn.Budget.
func (m *meter) Reserve(_ context.Context, who agentturn.Spender,
	estimate turnkeeper.Usage) (agentturn.Reservation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if turn, _, _, _ := m.s.mem.Turn(who.Turn); turn.Agent != who.Agent || turn.State != turnkeeper.TurnRunning {
		m.s.fault("%s reserves for turn %d, which is %s's and %s", who.Agent, who.Turn, turn.Agent, turn.State)
	}
	if estimate.InputTokens < 1 || estimate.OutputTokens < 1 || !estimate.Estimated {
		m.s.fault("the estimate of a request is %+v", estimate)
	}
	m.requests++
	m.reserved[m.requests] = who.Turn
	return agentturn.Reservation{ID: m.requests}, nil
}

// Settle implements agentturn.Budget.
func (m *meter) Settle(_ context.Context, r agentturn.Reservation, used turnkeeper.Usage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	turn, open := m.reserved[r.ID]
	if !open {
		m.s.fault("the reservation %d is settled, and is not open", r.ID)
	}
	delete(m.reserved, r.ID)
	m.settled[turn] = m.settled[turn].Add(used)
	return nil
}

// check compares the turns with what was recorded outside of them. What a dead worker had not written is missing in its
// turn, and an operation that it had begun has no end.
func (m *meter) check(scenes []scene) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dies := len(m.s.strikes) > 0 && !m.s.stops
	for _, c := range scenes {
		spent := m.spent[c.ID]
		less := c.Usage.InputTokens <= spent.InputTokens && c.Usage.OutputTokens <= spent.OutputTokens
		if c.Usage != spent && (!dies || !less) {
			m.s.fault("turn %d says that it took %+v; its model calls took %+v", c.ID, c.Usage, spent)
		}
		if !dies && (m.settled[c.ID] != spent || m.told[c.ID] != spent) {
			m.s.fault("the model calls of turn %d took %+v; the budget was told %+v, and the observer %+v",
				c.ID, spent, m.settled[c.ID], m.told[c.ID])
		}
		for _, call := range callsOf(c.rounds) {
			// then the usage of its first run is the turn's
			asks := propOf(strings.TrimPrefix(call.Name, "server__")).asks
			if used := m.asked[call.WireID]; !asks && len(m.s.strikes) == 0 && call.Usage != used {
				m.s.fault("%s says that its questions took %+v; they took %+v", call.WireID, call.Usage, used)
			}
		}
		if parent := c.parent(scenes); parent != nil && len(m.s.strikes) == 0 && m.spawned[c.ID] != 1 {
			m.s.fault("the observer was told %d times that turn %d has ended, a sub-agent of turn %d", m.spawned[c.ID],
				c.ID, parent.Turn)
		}
	}
	if !dies && len(m.reserved) > 0 {
		m.s.fault("the reservations %v were not settled", m.reserved)
	}
	for name, n := range m.begun {
		if n != 0 && !dies {
			m.s.fault("the observer was told of %d more %s than have ended", n, name)
		}
	}
	if use := m.memory.Use(); use != (membudget.Use{}) {
		m.s.fault("at the end, results hold %+v", use)
	}
}

// begin counts an operation, and returns what counts its end.
func (m *meter) begin(name string) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun[name]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.begun[name]--
	}
}

// A span is what the context of an operation of a turn says to the observer.
type span struct {
	turn turnkeeper.TurnID
	// number of the round of the dispatch that has not ended; 0: none; nil: not in a dispatch
	current *atomic.Int64
	round   int                  // 0: not in a round
	sends   *int                 // requests of the round
	call    *agentturn.ToolBegin // nil: not in a call
}

type spanKey struct{}

func spanOf(ctx context.Context) (s span) {
	s, _ = ctx.Value(spanKey{}).(span)
	return s
}

func (m *meter) Dispatch(ctx context.Context, d agentturn.DispatchBegin) (context.Context,
	func(agentturn.DispatchEnd)) {
	end, turn := m.begin("dispatches"), d.Record.Turn.ID
	return context.WithValue(ctx, spanKey{}, span{turn: turn, current: new(atomic.Int64)}),
		func(e agentturn.DispatchEnd) {
			end()
			after, rounds, _, _ := m.s.mem.Turn(turn)
			ended := e.Err == nil && e.Outcome.State != "" && len(m.s.strikes) == 0
			if ended && (len(e.Rounds) != len(rounds) || e.Outcome.State != after.State && after.State.Terminal()) {
				m.s.fault("the observer was told that a dispatch of turn %d ends %s after %d rounds", turn,
					e.Outcome.State,
					len(e.Rounds))
			}
		}
}

func (m *meter) Round(ctx context.Context, r agentturn.RoundBegin) (context.Context, func(agentturn.RoundEnd)) {
	end, s := m.begin("rounds"), spanOf(ctx)
	_, rounds, _, _ := m.s.mem.Turn(s.turn)
	if before := s.current.Swap(int64(r.Number)); before != 0 || r.Resumed != (r.Number <= len(rounds)) {
		m.s.fault("the observer was told of round %d (resumed: %t) in round %d; the journal has %d", r.Number,
			r.Resumed, before, len(rounds))
	}
	s.round, s.sends = r.Number, new(int)
	return context.WithValue(ctx, spanKey{}, s), func(e agentturn.RoundEnd) {
		end()
		if s.current.Store(0); e.Round != nil && e.Round.Number != r.Number {
			m.s.fault("the observer was told that round %d ends as round %d", r.Number, e.Round.Number)
		}
	}
}

func (m *meter) ModelCall(ctx context.Context, b agentturn.ModelBegin) (context.Context, func(agentturn.ModelEnd)) {
	end, s := m.begin("model calls"), spanOf(ctx)
	turn, _, _, _ := m.s.mem.Turn(s.turn)
	if b.Agent != turn.Agent || b.Provider != "main" || b.Model != turn.Agent || s.round == 0 &&
		b.Purpose == agentturn.PurposeRound {
		m.s.fault("the observer was told of %s's call of %s/%s in round %d of %s", b.Agent, b.Provider, b.Model,
			s.round, turn.Agent)
	}
	if b.Purpose == agentturn.PurposeRound {
		if *s.sends++; b.Attempt != *s.sends {
			m.s.fault("request %d of a round is called attempt %d", *s.sends, b.Attempt)
		}
	}
	return ctx, func(e agentturn.ModelEnd) {
		end()
		used := e.Response.Usage
		if failure, ok := errors.AsType[*inference.Error](e.Err); ok {
			used = failure.Usage
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told[s.turn] = m.told[s.turn].Add(used)
	}
}

func (m *meter) ToolCall(ctx context.Context, b agentturn.ToolBegin) (context.Context, func(agentturn.ToolEnd)) {
	end, s := m.begin("tool calls"), spanOf(ctx)
	if b.Detached == (s.current != nil) || b.Detached != (b.Turn.ID != 0) {
		m.s.fault("the observer was told of %s, detached: %t, of turn %d", b.Call.Key, b.Detached, b.Turn.ID)
	}
	if !b.Detached && s.round < b.Call.Key.Round {
		m.s.fault("the observer was told of %s in round %d", b.Call.Key, s.round)
	}
	if b.Detached {
		s.turn = b.Turn.ID
	}
	s.call = &b
	return context.WithValue(ctx, spanKey{}, s), func(e agentturn.ToolEnd) {
		end()
		if (e.Error == "") != (e.State == turnkeeper.CallSucceeded) {
			m.s.fault("the observer was told that %s ends %s with %q", b.Call.Key, e.State, e.Error)
		}
	}
}

func (m *meter) SubAgent(_ context.Context, e agentturn.SubAgentEnd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spawned[e.Child]++
	if e.Agent != "scout" || e.Call.Name != turnkeeper.ToolSpawnAgent ||
		(e.Error == "") != (e.State == turnkeeper.CallSucceeded) {
		m.s.fault("the observer was told of a sub-agent %+v", e)
	}
}

func (m *meter) Traced(context.Context) bool { return false }

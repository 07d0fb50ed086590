package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/survival"
)

// A Budget keeps the budgets of turns, of trees of agents and of agents' days, and the survival levels that follow from
// the last. Spend of a turn counts for that turn alone, not for other attempts at its message.
type Budget struct{ Conn *Conn }

var _ agentturn.Budget = Budget{}

type spendKey struct{ scope, period string }

type spendRow struct {
	tokens, calls int64
	level         survival.Level
}

// A reservationRow is an estimate that is not settled yet.
type reservationRow struct {
	agent  string
	rows   []spendKey // that of the agent's day first
	tokens int64
}

// Reserve reserves the estimate in the budgets, if none is exhausted and the agent has the level that the model was
// chosen for.
func (b Budget) Reserve(ctx context.Context, who agentturn.Spender,
	estimate turnkeeper.Usage) (r agentturn.Reservation, err error) {
	err = b.Conn.ask(ctx, "reserve", func() error {
		return b.Conn.store.locked(func(rings *[]Bell) error {
			r = levels{&b.Conn.store.state}.reserve(who, estimate.Total(), b.Conn.store.now(), rings)
			return nil
		})
	})
	return r, err
}

// Settle replaces a reservation by the actual usage.
func (b Budget) Settle(ctx context.Context, r agentturn.Reservation, used turnkeeper.Usage) error {
	return b.Conn.ask(ctx, "settle", func() error {
		return b.Conn.store.locked(func(rings *[]Bell) error {
			levels{&b.Conn.store.state}.settle(r.ID, used.Total(), rings)
			return nil
		})
	})
}

// PinLevel pins the survival level of an agent, or of all with an empty name. An empty level ends that.
func (c *Conn) PinLevel(ctx context.Context, agent string, level survival.Level) error {
	return c.ask(ctx, "pin", func() error {
		return c.store.locked(func(rings *[]Bell) error {
			c.store.state.pins[agent] = level
			*rings = append(*rings, Bell{Topic: TopicInbox})
			return nil
		})
	})
}

// levels has the methods on spend and survival levels.
type levels struct{ *state }

func today(agent string, now time.Time) spendKey {
	return spendKey{"agent:" + agent, now.UTC().Format(time.DateOnly)}
}

// row returns a row of spend, and makes it if there is none.
func (s levels) row(key spendKey) *spendRow {
	if s.spend[key] == nil {
		s.spend[key] = &spendRow{}
	}
	return s.spend[key]
}

// of returns the level of an agent.
func (s levels) of(agent string, now time.Time) survival.Level {
	for _, pinned := range []string{agent, ""} {
		if level := s.pins[pinned]; level != "" {
			return level
		}
	}
	if row := s.spend[today(agent, now)]; row != nil && row.level != "" {
		return row.level
	}
	return survival.Normal
}

// ofRules returns the level of an agent whose file names levels; empty: it names none.
func (s levels) ofRules(agent string, now time.Time) survival.Level {
	if len(s.rules[agent]) == 0 {
		return ""
	}
	return s.of(agent, now)
}

// effect returns what the agent's file says happens at its level.
func (s levels) effect(agent string, now time.Time) survival.Effect {
	return s.rules[agent][s.of(agent, now)]
}

// chain returns the models that an agent's turns ask.
func (s levels) chain(agent string, now time.Time) []string {
	if models := s.effect(agent, now).Models; models != nil {
		return models
	}
	if a := s.agents[agent]; a != nil {
		return a.Models
	}
	return nil
}

// allModels returns the models that an agent's turns ask at any level.
func (s levels) allModels(a *turnkeeper.AgentRegistration) []string {
	all := slices.Clone(a.Models)
	for _, effect := range s.rules[a.Name] {
		all = append(all, effect.Models...)
	}
	return all
}

// holds reports whether the level of its agent makes a message wait: not a sub-agent's, which belongs to its parent's
// turn.
func (s levels) holds(m *turnkeeper.Message, now time.Time) bool {
	rules := s.rules[m.Agent]
	return len(rules) > 0 && rules.Waits(s.of(m.Agent, now), m.Priority) && s.lineageOf(m.ID).Parent == 0
}

// note decides the level of an agent on a day.
func (s levels) note(agent string, key spendKey, rings *[]Bell) {
	row, a := s.spend[key], s.agents[agent]
	if row == nil || a == nil {
		return
	}
	day := survival.Day{Tokens: row.tokens, TokenLimit: a.DayTokens, Calls: row.calls, CallLimit: a.DayCalls}
	if next := day.Next(row.level); next != row.level {
		row.level = next
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
}

// register takes over the rules of an agent, and decides its level by its limits.
func (s levels) register(a turnkeeper.AgentRegistration, now time.Time) {
	rules := survival.Rules{}
	if a.Levels != nil {
		if err := json.Unmarshal(a.Levels, &rules); err != nil {
			panic(fmt.Sprintf("memory: the levels of agent %s: %v", a.Name, err))
		}
	}
	s.rules[a.Name] = rules
	s.note(a.Name, today(a.Name, now), new([]Bell))
}

func (s levels) reserve(who agentturn.Spender, tokens int64, now time.Time, rings *[]Bell) agentturn.Reservation {
	day := today(who.Agent, now)
	s.row(day)
	s.note(who.Agent, day, rings)
	r := agentturn.Reservation{Level: s.of(who.Agent, now)}
	if who.Level != "" && who.Level != r.Level {
		return r
	}
	l, kept := who.Limits, reservationRow{agent: who.Agent, tokens: tokens}
	for _, of := range []struct {
		scope                  string
		key                    spendKey
		tokens, calls, applies int64
	}{
		{"day", day, l.DayTokens, l.DayCalls, 1},
		{"turn", spendKey{scope: fmt.Sprint("turn:", who.Turn)}, l.TurnTokens, l.TurnCalls, 1},
		{"tree", spendKey{scope: fmt.Sprint("tree:", who.Root)}, l.TreeTokens, l.TreeCalls, int64(who.Root)},
	} {
		if of.applies == 0 {
			continue
		}
		row := s.row(of.key)
		if of.tokens > 0 && row.tokens+tokens > of.tokens || of.calls > 0 && row.calls+1 > of.calls {
			r.Blocked, r.Scope, r.Reason = true, of.scope, "the budget of the "+of.scope+" is used up"
			r.Retry = now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
			return r
		}
		kept.rows = append(kept.rows, of.key)
	}
	for _, key := range kept.rows {
		s.row(key).tokens += tokens
		s.row(key).calls++
	}
	s.lastReservation++
	r.ID = s.lastReservation
	s.reservations[r.ID] = kept
	return r
}

func (s levels) settle(id, used int64, rings *[]Bell) {
	kept, ok := s.reservations[id]
	if !ok {
		return
	}
	delete(s.reservations, id)
	for _, key := range kept.rows {
		s.row(key).tokens += used - kept.tokens
	}
	s.note(kept.agent, kept.rows[0], rings)
}

// Schedule returns a schedule; the zero value if there is none.
func (s *tables) Schedule(agent, name string) turnkeeper.Schedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.state.schedules[scheduleKey{agent, name}]; row != nil {
		return *row
	}
	return turnkeeper.Schedule{}
}

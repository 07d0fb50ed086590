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
			r = b.Conn.store.state.levels.reserve(who, estimate.Total(), b.Conn.store.now(), rings)
			return nil
		})
	})
	return r, err
}

// Settle replaces a reservation by the actual usage.
func (b Budget) Settle(ctx context.Context, r agentturn.Reservation, used turnkeeper.Usage) error {
	return b.Conn.ask(ctx, "settle", func() error {
		return b.Conn.store.locked(func(rings *[]Bell) error {
			b.Conn.store.state.levels.settle(r.ID, used.Total(), rings)
			return nil
		})
	})
}

// PinLevel pins the survival level of an agent, or of all with an empty name. An empty level ends that.
func (c *Conn) PinLevel(ctx context.Context, agent string, level survival.Level) error {
	return c.ask(ctx, "pin", func() error {
		return c.store.locked(func(rings *[]Bell) error {
			c.store.state.levels.pins[agent] = level
			*rings = append(*rings, Bell{Topic: TopicInbox})
			return nil
		})
	})
}

// levels are what turns have spent, and the survival levels that follow from it.
type levels struct {
	agents          map[string]*turnkeeper.AgentRegistration // of the state
	spend           map[spendKey]*spendRow
	reservations    map[int64]reservationRow // that are not settled, by id
	lastReservation int64
	rules           map[string]survival.Rules // by agent
	pins            map[string]survival.Level // by agent; of all agents: with an empty name
}

func newLevels(agents map[string]*turnkeeper.AgentRegistration) levels {
	return levels{agents: agents, spend: map[spendKey]*spendRow{}, reservations: map[int64]reservationRow{},
		rules: map[string]survival.Rules{}, pins: map[string]survival.Level{}}
}

func today(agent string, now time.Time) spendKey {
	return spendKey{"agent:" + agent, now.UTC().Format(time.DateOnly)}
}

// row returns a row of spend, and makes it if there is none.
func (l *levels) row(key spendKey) *spendRow {
	if l.spend[key] == nil {
		l.spend[key] = &spendRow{}
	}
	return l.spend[key]
}

// of returns the level of an agent.
func (l *levels) of(agent string, now time.Time) survival.Level {
	for _, pinned := range []string{agent, ""} {
		if level := l.pins[pinned]; level != "" {
			return level
		}
	}
	if row := l.spend[today(agent, now)]; row != nil && row.level != "" {
		return row.level
	}
	return survival.Normal
}

// ofRules returns the level of an agent whose file names levels; empty: it names none.
func (l *levels) ofRules(agent string, now time.Time) survival.Level {
	if len(l.rules[agent]) == 0 {
		return ""
	}
	return l.of(agent, now)
}

// effect returns what the agent's file says happens at its level.
func (l *levels) effect(agent string, now time.Time) survival.Effect {
	return l.rules[agent][l.of(agent, now)]
}

// chain returns the models that an agent's turns ask.
func (l *levels) chain(agent string, now time.Time) []string {
	if models := l.effect(agent, now).Models; models != nil {
		return models
	}
	if a := l.agents[agent]; a != nil {
		return a.Models
	}
	return nil
}

// allModels returns the models that an agent's turns ask at any level.
func (l *levels) allModels(a *turnkeeper.AgentRegistration) []string {
	all := slices.Clone(a.Models)
	for _, effect := range l.rules[a.Name] {
		all = append(all, effect.Models...)
	}
	return all
}

// uses reports whether a model is one that an agent's turns ask now.
func (l *levels) uses(agent, model string, now time.Time) bool {
	return slices.Contains(l.chain(agent, now), model)
}

// heldByLevel reports whether the level of its agent makes a message wait: not a sub-agent's, which belongs to its
// parent's turn.
func heldByLevel(s *state, m *turnkeeper.Message, now time.Time) bool {
	rules := s.levels.rules[m.Agent]
	return len(rules) > 0 && rules.Waits(s.levels.of(m.Agent, now), m.Priority) && s.lineageOf(m.ID).Parent == 0
}

// note decides the level of an agent on a day.
func (l *levels) note(agent string, key spendKey, rings *[]Bell) {
	row, a := l.spend[key], l.agents[agent]
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
func (l *levels) register(a turnkeeper.AgentRegistration, now time.Time) {
	rules := survival.Rules{}
	if a.Levels != nil {
		if err := json.Unmarshal(a.Levels, &rules); err != nil {
			panic(fmt.Sprintf("memory: the levels of agent %s: %v", a.Name, err))
		}
	}
	l.rules[a.Name] = rules
	l.note(a.Name, today(a.Name, now), new([]Bell))
}

func (l *levels) reserve(who agentturn.Spender, tokens int64, now time.Time, rings *[]Bell) agentturn.Reservation {
	day := today(who.Agent, now)
	l.row(day)
	l.note(who.Agent, day, rings)
	r := agentturn.Reservation{Level: l.of(who.Agent, now)}
	if who.Level != "" && who.Level != r.Level {
		return r
	}
	limits, kept := who.Limits, reservationRow{agent: who.Agent, tokens: tokens}
	for _, of := range []struct {
		scope                  string
		key                    spendKey
		tokens, calls, applies int64
	}{
		{"day", day, limits.DayTokens, limits.DayCalls, 1},
		{"turn", spendKey{scope: fmt.Sprint("turn:", who.Turn)}, limits.TurnTokens, limits.TurnCalls, 1},
		{"tree", spendKey{scope: fmt.Sprint("tree:", who.Root)}, limits.TreeTokens, limits.TreeCalls, int64(who.Root)},
	} {
		if of.applies == 0 {
			continue
		}
		row := l.row(of.key)
		if of.tokens > 0 && row.tokens+tokens > of.tokens || of.calls > 0 && row.calls+1 > of.calls {
			r.Blocked, r.Scope, r.Reason = true, of.scope, "the budget of the "+of.scope+" is used up"
			r.Retry = now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
			return r
		}
		kept.rows = append(kept.rows, of.key)
	}
	for _, key := range kept.rows {
		l.row(key).tokens += tokens
		l.row(key).calls++
	}
	l.lastReservation++
	r.ID = l.lastReservation
	l.reservations[r.ID] = kept
	return r
}

func (l *levels) settle(id, used int64, rings *[]Bell) {
	kept, ok := l.reservations[id]
	if !ok {
		return
	}
	delete(l.reservations, id)
	for _, key := range kept.rows {
		l.row(key).tokens += used - kept.tokens
	}
	l.note(kept.agent, kept.rows[0], rings)
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

package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"turnkeeper/internal/survival"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Pin is a survival level that an operator has pinned.
type Pin struct {
	Agent  string // empty: all agents
	Level  survival.Level
	By     string // who pinned it; empty: hidden from the caller
	At     time.Time
	Until  time.Time     // zero: until it is unpinned
	For    time.Duration // only of PinLevel: sets Until; 0: until it is unpinned
	Reason string        // empty: none was given
}

// An AgentLevel is the survival level of an agent.
type AgentLevel struct {
	Agent    string
	Level    survival.Level
	Pin      *Pin           // that gives the level; nil: the budget does
	Used     survival.Day   // today
	NextDay  time.Time      // when the budget of the next day begins
	Rules    survival.Rules // what its file says happens at its levels
	Held     int            // messages that wait because of the level, counted up to 10,000
	Skipping int            // schedules whose newest slot did not run
}

// Levels are the survival levels of an installation.
type Levels struct {
	All    *Pin         // of all agents that have no pin of their own; nil: none
	Agents []AgentLevel // that have a budget of a day, rules for levels or a pin, by name
}

// For returns the levels of some agents. It hides who pinned the level of all agents: that name is of another agent's
// operator.
func (l Levels) For(sees func(agent string) bool) Levels {
	hide := func(p *Pin) *Pin {
		if p == nil || p.Agent != "" {
			return p
		}
		hidden := *p
		hidden.By = ""
		return &hidden
	}
	some := Levels{All: hide(l.All)}
	for _, a := range l.Agents {
		if sees(a.Agent) {
			a.Pin = hide(a.Pin)
			some.Agents = append(some.Agents, a)
		}
	}
	return some
}

// Levels returns the survival levels.
func (s *Reports) Levels(ctx context.Context) (Levels, error) {
	pins, err := s.db.Q.ListPins(ctx)
	if err != nil {
		return Levels{}, pg.Translate(err)
	}
	rows, err := s.db.Q.ListLevels(ctx)
	if err != nil {
		return Levels{}, pg.Translate(err)
	}
	by := map[string]*Pin{}
	for _, p := range pins {
		by[p.Agent] = &Pin{Agent: p.Agent, Level: survival.Level(p.Level), By: p.PinnedBy, At: p.PinnedAt,
			Until: dbrow.OrZero(p.Until), Reason: p.Reason}
	}
	all := Levels{All: by[""]}
	for _, r := range rows {
		a := AgentLevel{
			Agent: r.Name, Level: survival.Level(r.Level), Pin: by[r.Name], NextDay: r.NextDay, Held: int(r.Held),
			Skipping: int(r.Skipping),
			Used:     survival.Day{Tokens: r.Tokens, TokenLimit: r.DayTokens, Calls: r.Calls, CallLimit: r.DayCalls},
		}
		if a.Pin == nil {
			a.Pin = all.All
		}
		if err := json.Unmarshal(r.Levels, &a.Rules); err != nil {
			return Levels{}, fmt.Errorf("the levels of agent %s: %w", r.Name, err)
		}
		all.Agents = append(all.Agents, a)
	}
	return all, nil
}

// PinLevel pins the survival level of an agent, or of all agents that have no pin of their own, in place of an earlier
// pin. It fails with ErrNotFound for an unknown agent, and may fail with ErrTickGoesOn.
func (s *Control) PinLevel(ctx context.Context, p Pin) error {
	if err := s.knowAgent(ctx, p.Agent); err != nil {
		return err
	}
	params := dbsqlc.PinLevelParams{Agent: p.Agent, Level: string(p.Level), PinnedBy: s.db.Clean(p.By),
		Reason: s.db.Clean(p.Reason)}
	if p.For > 0 {
		params.Lasts = &p.For
	}
	if err := s.db.Q.PinLevel(ctx, params); err != nil {
		return pg.Translate(err)
	}
	return afterTick(ctx, s.db)
}

// UnpinLevel ends a pin. It fails with ErrNotFound for an unknown agent, and may fail with ErrTickGoesOn; without a pin
// it does nothing.
func (s *Control) UnpinLevel(ctx context.Context, agent string) error {
	if err := s.knowAgent(ctx, agent); err != nil {
		return err
	}
	if _, err := s.db.Q.UnpinLevel(ctx, agent); err != nil {
		return pg.Translate(err)
	}
	return afterTick(ctx, s.db)
}

// knowAgent fails with ErrNotFound for the name of an unknown agent. The empty name stands for all.
func (s *Control) knowAgent(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	_, err := s.db.Q.CurrentDefinition(ctx, name)
	return pg.Translate(err)
}

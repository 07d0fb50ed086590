package views

import (
	"cmp"
	"slices"
	"time"

	"turnkeeper/internal/survival"
	"turnkeeper/storage/operate"
)

// Levels are the survival levels of an installation.
type Levels struct {
	All    *LevelPin    `json:"all" doc:"the pin of all agents that have none of their own; null: none"`
	Agents []AgentLevel `json:"agents" doc:"agents that have a budget of a day, rules for levels in their file, or a pin"`
}

// A LevelPin is a survival level that an operator has pinned.
type LevelPin struct {
	Agent  string     `json:"agent" doc:"empty: all agents"`
	Level  string     `json:"level" schema:"ref=SurvivalLevel"`
	By     string     `json:"by" doc:"who pinned it; empty in the pin of all agents for a token that is restricted to some"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until" doc:"null: until it is unpinned"`
	Reason string     `json:"reason"`
}

// An AgentLevel is the survival level of an agent.
type AgentLevel struct {
	Agent      string        `json:"agent"`
	Level      string        `json:"level" schema:"ref=SurvivalLevel"`
	Pin        *LevelPin     `json:"pin" doc:"that gives the level; null: the budget does"`
	LeftPct    *int          `json:"left_percent" doc:"of what is nearest to its limit today; null: no budget of a day"`
	Tokens     int64         `json:"tokens" doc:"used or reserved today"`
	TokenLimit int64         `json:"token_limit" doc:"of a day; 0: none"`
	Calls      int64         `json:"calls" doc:"of models, today"`
	CallLimit  int64         `json:"call_limit" doc:"of a day; 0: none"`
	NextDay    time.Time     `json:"next_day_at" doc:"when the budget of the next day begins"`
	Held       int           `json:"held_messages" doc:"messages that wait because of the level, counted up to 10,000"`
	Skipping   int           `json:"skipped_schedules" doc:"schedules whose newest slot did not run"`
	Effects    []LevelEffect `json:"effects" doc:"what the agent's file says happens at its levels"`
}

// A LevelEffect is what happens at a survival level.
type LevelEffect struct {
	Level       string   `json:"level" schema:"ref=SurvivalLevel"`
	Models      []string `json:"models" doc:"that turns ask, in order; empty: as always"`
	Schedules   bool     `json:"schedules" doc:"whether due slots run"`
	MinPriority *int     `json:"min_priority" doc:"messages with a lower priority wait; null: none does"`
}

// OfLevels returns the view of survival levels.
func OfLevels(l operate.Levels) Levels {
	return Levels{All: OfPin(l.All), Agents: All(l.Agents, OfAgentLevel)}
}

// OfPin returns the view of a pin; nil of none.
func OfPin(p *operate.Pin) *LevelPin {
	if p == nil {
		return nil
	}
	return &LevelPin{Agent: p.Agent, Level: string(p.Level), By: p.By, At: p.At, Until: OrNull(p.Until),
		Reason: p.Reason}
}

// OfAgentLevel returns the view of an agent's survival level.
func OfAgentLevel(a operate.AgentLevel) AgentLevel {
	v := AgentLevel{
		Agent: a.Agent, Level: string(a.Level), Pin: OfPin(a.Pin), Tokens: a.Used.Tokens, TokenLimit: a.Used.TokenLimit,
		Calls:     a.Used.Calls,
		CallLimit: a.Used.CallLimit, NextDay: a.NextDay, Held: a.Held, Skipping: a.Skipping, Effects: []LevelEffect{},
	}
	if left, ok := a.Used.Left(); ok {
		v.LeftPct = &left
	}
	for level, e := range a.Rules {
		v.Effects = append(v.Effects, LevelEffect{Level: string(level), Models: append([]string{}, e.Models...),
			Schedules: !e.NoSchedules, MinPriority: e.MinPriority})
	}
	slices.SortFunc(v.Effects, func(a, b LevelEffect) int {
		return cmp.Compare(slices.Index(survival.Levels, survival.Level(a.Level)), slices.Index(survival.Levels,
			survival.Level(b.Level)))
	})
	return v
}

// Package survival holds the rule by which what is left of a day's budget gives a survival level, and what an agent's
// file says happens at a level. It does no I/O. The function turnkeeper.next_level in the schema has the same rule.
package survival

import (
	"slices"
	"time"
)

// Level says how much of an agent's budget for the day is left.
type Level string

// The levels, from the best to the worst.
const (
	Normal   Level = "normal"
	Low      Level = "low"
	Critical Level = "critical"
)

// Levels lists the levels, from the best to the worst.
var Levels = []Level{Normal, Low, Critical}

// Names returns the names of the levels.
func Names() (names []string) {
	for _, level := range Levels {
		names = append(names, string(level))
	}
	return names
}

// MaxPin is the longest time for which an operator can pin a level, unless the pin has no end.
const MaxPin = 366 * 24 * time.Hour

// What is left, in percent of the limit, below which a level begins, and how many points more end it again.
const (
	lowUnder      = 20
	criticalUnder = 5
	backAbove     = 5
)

// Worse returns the worse of two levels. An empty level counts as Normal.
func Worse(a, b Level) Level {
	return Levels[max(a.rank(), b.rank(), 0)]
}

func (l Level) rank() int { return slices.Index(Levels, l) }

// Next returns the level after before, when left of limit is left. It is Low under 20 % and Critical under 5 %, and
// ends at 5 points more: Critical at 10 %, Low at 25 %. A limit of 0 is no limit: the level is Normal. An empty before
// counts as Normal.
func Next(before Level, left, limit int64) Level {
	under := func(level Level, percent int64) bool {
		if before.rank() >= level.rank() {
			percent += backAbove
		}
		return left < 0 || left*100 < limit*percent
	}
	switch {
	case limit <= 0:
		return Normal
	case under(Critical, criticalUnder):
		return Critical
	case under(Low, lowUnder):
		return Low
	}
	return Normal
}

// A Day is what an agent has used of its budget of a day. A limit of 0 is no limit.
type Day struct {
	Tokens, TokenLimit int64
	Calls, CallLimit   int64
}

// Next returns the level after before: the worse of those of tokens and of calls.
func (d Day) Next(before Level) Level {
	return Worse(Next(before, d.TokenLimit-d.Tokens, d.TokenLimit), Next(before, d.CallLimit-d.Calls, d.CallLimit))
}

// Left returns what is left, in percent, of what is nearest to its limit: 0 to 100. ok is false without a limit.
func (d Day) Left() (percent int, ok bool) {
	percent = 100
	for _, of := range [][2]int64{{d.Tokens, d.TokenLimit}, {d.Calls, d.CallLimit}} {
		if of[1] > 0 {
			ok = true
			percent = min(percent, int(max(of[1]-of[0], 0)*100/of[1]))
		}
	}
	return percent, ok
}

// Rules are what an agent's file says happens at its levels. At a level that it does not name, nothing changes.
type Rules map[Level]Effect

// An Effect is what happens to an agent at a level. The zero value changes nothing.
type Effect struct {
	Models      []string `json:"models,omitempty"`       // that its turns ask, in order; nil: as always
	NoSchedules bool     `json:"no_schedules,omitempty"` // due slots of its schedules do not run
	MinPriority *int     `json:"min_priority,omitempty"` // messages with a lower priority wait; nil: none does
}

// Waits reports whether a message with a priority waits at a level.
func (r Rules) Waits(at Level, priority int) bool {
	least := r[at].MinPriority
	return least != nil && priority < *least
}

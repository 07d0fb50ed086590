// Package bounds has one table of what limits a turn. The settings, the keys of an agent's file, their checks and their
// reference come from its rows.
package bounds

import (
	"errors"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// A Bound is a row of the table.
type Bound struct {
	Name  string // of the setting and of the key in an agent's file
	Group string // heading in the reference
	Unit  string // empty: none, or that of a duration
	Zero  string // meaning of 0; empty: 0 is refused or means nothing special
	Doc   string // what it does
	Agent bool   // an agent's file may set it

	// Low and High are the least and the largest value, durations in nanoseconds. Both are 0 for true or false.
	Low, High int64

	field   func(*turnkeeper.Bounds) any // *int, *time.Duration or *bool
	initial any
}

// Field points to the bound's value in b: a *int, *time.Duration or *bool.
func (r Bound) Field(b *turnkeeper.Bounds) any { return r.field(b) }

// Range returns the accepted values as text, such as "1 to 20" or "1ms to 24h"; empty for true or false.
func (r Bound) Range() string {
	switch r.initial.(type) {
	case time.Duration:
		return strictyaml.FormatDuration(time.Duration(r.Low)) + " to " +
			strictyaml.FormatDuration(time.Duration(r.High))
	case int:
		return fmt.Sprintf("%d to %d", r.Low, r.High)
	}
	return ""
}

// The headings.
const (
	Turn      = "Bounds of a turn"
	SubAgents = "Sub-agents"
	Leases    = "Leases"
	Repeats   = "Repeats and attempts"
)

const (
	moment = time.Millisecond
	day    = 24 * time.Hour
	month  = 30 * day
)

func number(field func(*turnkeeper.Bounds) *int, initial, low, high int, r Bound) Bound {
	r.field, r.initial = func(b *turnkeeper.Bounds) any { return field(b) }, initial
	r.Low, r.High = int64(low), int64(high)
	return r
}

func duration(field func(*turnkeeper.Bounds) *time.Duration, initial, low, high time.Duration, r Bound) Bound {
	r.field, r.initial = func(b *turnkeeper.Bounds) any { return field(b) }, initial
	r.Low, r.High = int64(low), int64(high)
	return r
}

func boolean(field func(*turnkeeper.Bounds) *bool, initial bool, r Bound) Bound {
	r.field, r.initial = func(b *turnkeeper.Bounds) any { return field(b) }, initial
	return r
}

// All returns the table in the order of the reference.
func All() []Bound { return table }

// Default returns the bounds of a turn if nothing is set.
func Default() (b turnkeeper.Bounds) {
	for _, r := range table {
		set(r.field(&b), r.initial)
	}
	return b
}

// set sets what to points to. value has its type.
func set(to, value any) {
	switch to := to.(type) {
	case *int:
		*to = value.(int)
	case *time.Duration:
		*to = value.(time.Duration)
	case *bool:
		*to = value.(bool)
	}
}

// Check returns one joined error for each invalid bound, which starts with its name, or nil.
func Check(b turnkeeper.Bounds) error {
	var faults []error
	for _, r := range table {
		var value int64
		var shown string
		switch field := r.field(&b).(type) {
		case *int:
			value, shown = int64(*field), fmt.Sprint(*field)
		case *time.Duration:
			value, shown = int64(*field), strictyaml.FormatDuration(*field)
		}
		if value < r.Low || value > r.High {
			faults = append(faults, fmt.Errorf("%s is %s; it must be %s", r.Name, shown, r.Range()))
		}
	}
	if b.MaxDuration+b.Margin >= b.LeaseTTL {
		faults = append(faults, fmt.Errorf(
			"max_duration %s plus the lease margin %s must be less than the lease of %s: lower max_duration or raise lease_ttl",
			b.MaxDuration, b.Margin, b.LeaseTTL))
	}
	return errors.Join(faults...)
}

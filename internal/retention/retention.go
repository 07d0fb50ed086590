// Package retention names the classes of what is stored of closed messages, and says how long each is kept.
package retention

import (
	"fmt"
	"strings"
	"time"
)

// A Class is a part of what is stored of closed messages.
type Class string

// The classes.
const (
	Messages Class = "messages" // messages with all that belongs to them, the other classes too
	Outputs  Class = "outputs"  // the content of stored tool results
	Events   Class = "events"   // the events of turns, but the last one
	Leases   Class = "leases"   // ended grants, and the leases of lanes that nothing uses
)

// Parts lists the classes that can be deleted before their messages.
var Parts = []Class{Outputs, Events, Leases}

// ByDatabase is the time of a class whose setting is not set: the database says how long outputs and events are kept.
const ByDatabase time.Duration = -1

// A Policy says for how long each class is kept, from the time when the message was closed; 0: for ever.
type Policy struct {
	Messages, Leases time.Duration
	Outputs, Events  time.Duration // or ByDatabase
}

// With returns the policy with a time in place of ByDatabase.
func (p Policy) With(kept time.Duration) Policy {
	for _, class := range []*time.Duration{&p.Outputs, &p.Events} {
		if *class == ByDatabase {
			*class = kept
		}
	}
	return p
}

// Of returns how long a class is kept.
func (p Policy) Of(c Class) time.Duration {
	return map[Class]time.Duration{Messages: p.Messages, Outputs: p.Outputs, Events: p.Events, Leases: p.Leases}[c]
}

// Undecided reports whether neither the settings nor the database says how long outputs and events are kept. p is the
// policy before With.
func (p Policy) Undecided(kept time.Duration) bool {
	return kept == 0 && p.Messages == 0 && p.Outputs == ByDatabase && p.Events == ByDatabase
}

// String returns the policy in words: "messages for ever, outputs for 30 days".
func (p Policy) String() string {
	var all []string
	for _, c := range append([]Class{Messages}, Parts...) {
		all = append(all, string(c)+" "+words(p.Of(c)))
	}
	return strings.Join(all, ", ")
}

func words(kept time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case kept == ByDatabase:
		return "as the database says"
	case kept == 0:
		return "for ever"
	case kept%day == 0 && kept > day:
		return fmt.Sprintf("for %d days", kept/day)
	default:
		return "for " + strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(kept.String())
	}
}

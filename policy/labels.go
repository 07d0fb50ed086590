package policy

import (
	"fmt"
	"slices"
)

// A Label marks content, and follows it wherever it goes.
type Label string

// The labels.
const (
	Untrusted Label = "untrusted" // somebody else wrote it, and it may hold instructions
	Private   Label = "private"   // it must not be sent out without a person's approval
)

// Labels lists all labels.
var Labels = []Label{Untrusted, Private}

// A Sink is something that calls of a tool can do with content.
type Sink string

// The sinks.
const (
	Changes Sink = "changes" // change something that matters
	Sends   Sink = "sends"   // send content out
)

// Sinks lists all sinks.
var Sinks = []Sink{Changes, Sends}

// The values of reply_sink: what happens to a reply that may hold private content.
const (
	ReplyAllow    = "allow"    // it is sent
	ReplyWithhold = "withhold" // a text is sent in its place
	ReplyAsk      = "ask"      // it is sent after a person has approved it
)

// ReplySinks lists the values of reply_sink.
var ReplySinks = []string{ReplyAllow, ReplyWithhold, ReplyAsk}

// A Mark is a label with the origin of the labelled content.
type Mark struct {
	Label  Label
	Source string // where the content first came from, such as "the result of http_get in turn 12"; empty: unknown
}

// Join returns the first mark of each label in the lists.
func Join(lists ...[]Mark) (all []Mark) {
	for _, m := range slices.Concat(lists...) {
		if !slices.ContainsFunc(all, func(known Mark) bool { return known.Label == m.Label }) {
			all = append(all, m)
		}
	}
	return all
}

// Only returns the marks that have the label.
func Only(label Label, marks []Mark) []Mark {
	return slices.DeleteFunc(slices.Clone(marks), func(m Mark) bool { return m.Label != label })
}

// Marks returns one mark for each label, all with the same source.
func Marks(labels []Label, source string) []Mark {
	marks := make([]Mark, len(labels))
	for i, label := range labels {
		marks[i] = Mark{label, source}
	}
	return marks
}

// A Flow holds the operator's settings about the content that a tool reads and writes.
type Flow struct {
	Labels      []Label  // of its results
	Sinks       []Sink   // what its calls can do
	Destination []string // the arguments that hold destinations; nil: none
	// patterns of allowed destinations, to which it may send private content: see MatchDestination
	Destinations []string
}

// Or returns the flow with its unset fields taken from another.
func (f Flow) Or(other Flow) Flow {
	if f.Labels == nil {
		f.Labels = other.Labels
	}
	if f.Sinks == nil {
		f.Sinks = other.Sinks
	}
	if f.Destination == nil {
		f.Destination = other.Destination
	}
	if f.Destinations == nil {
		f.Destinations = other.Destinations
	}
	return f
}

// FlowRule is the Decision.Rule of decisions by labels.
const FlowRule = "labels"

// Decide decides about a call by its labels. With untrusted content, a call that changes something asks. With private
// content, a call that sends content out asks, unless all its destinations are allowed.
func (f Flow) Decide(c Call) Decision {
	if from := Only(Untrusted, c.Labels); len(from) > 0 && slices.Contains(f.Sinks, Changes) {
		return Decision{Ask, FlowRule, because(c.Tool+" changes something", from[0])}
	}
	if from := Only(Private, c.Labels); len(from) > 0 && slices.Contains(f.Sinks, Sends) && !f.Allows(c.Arguments) {
		return Decision{Ask, FlowRule, because(c.Tool+" sends content out", from[0])}
	}
	return Decision{Verdict: Allow}
}

func because(what string, m Mark) string {
	source := m.Source
	if source == "" {
		source = "an unknown source"
	}
	return fmt.Sprintf("%s, and the turn has %s content from %s", what, m.Label, source)
}

package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A Label says something about content, wherever it goes.
type Label string

// The labels.
const (
	Untrusted Label = "untrusted" // somebody else wrote it, and it may hold instructions
	Private   Label = "private"   // it must not leave without a person's approval
)

// Labels are all labels.
var Labels = []Label{Untrusted, Private}

// A Sink says what calls of a tool can do with content.
type Sink string

// The sinks.
const (
	Changes Sink = "changes" // change something that matters
	Sends   Sink = "sends"   // send content out
)

// Sinks are all sinks.
var Sinks = []Sink{Changes, Sends}

// A Mark is a label of something, with where the content first came from.
type Mark struct {
	Label  Label
	Source string // such as "the result of http_get in turn 12"; empty: unknown
}

// Join returns the marks of all lists, one for each label: the first.
func Join(lists ...[]Mark) (all []Mark) {
	for _, m := range slices.Concat(lists...) {
		if !slices.ContainsFunc(all, func(known Mark) bool { return known.Label == m.Label }) {
			all = append(all, m)
		}
	}
	return all
}

// Only returns the marks with a label.
func Only(label Label, marks []Mark) []Mark {
	return slices.DeleteFunc(slices.Clone(marks), func(m Mark) bool { return m.Label != label })
}

// Marks returns a mark for each of the labels, with one source.
func Marks(labels []Label, source string) []Mark {
	marks := make([]Mark, len(labels))
	for i, label := range labels {
		marks[i] = Mark{label, source}
	}
	return marks
}

// A Flow is what the operator says about the calls of a tool.
type Flow struct {
	Labels       []Label  // of its results
	Sinks        []Sink   // what its calls can do
	Destination  string   // the argument that says where a call sends content; empty: none
	Destinations []string // patterns of destinations to which it may send anything: see MatchDestination
}

// Or returns the flow with the fields that are not set taken from another.
func (f Flow) Or(other Flow) Flow {
	if f.Labels == nil {
		f.Labels = other.Labels
	}
	if f.Sinks == nil {
		f.Sinks = other.Sinks
	}
	if f.Destination == "" {
		f.Destination = other.Destination
	}
	if f.Destinations == nil {
		f.Destinations = other.Destinations
	}
	return f
}

// FlowRule is the rule of decisions by labels, in Decision.Rule.
const FlowRule = "labels"

// Decide decides about a call by its labels: with untrusted content, a call that changes something asks; with private
// content, a call that sends it out asks, unless all its destinations are allowed.
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

// Allows reports whether a call with these arguments sends only to allowed destinations. The argument must be a text, or a
// list of texts that is not empty.
func (f Flow) Allows(arguments json.RawMessage) bool {
	if f.Destination == "" || len(f.Destinations) == 0 {
		return false
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(arguments, &args) != nil {
		return false
	}
	var several []string
	if one := ""; json.Unmarshal(args[f.Destination], &one) == nil {
		several = []string{one}
	} else if json.Unmarshal(args[f.Destination], &several) != nil {
		return false
	}
	return len(several) > 0 && !slices.ContainsFunc(several, func(to string) bool {
		return !slices.ContainsFunc(f.Destinations, func(pattern string) bool { return MatchDestination(pattern, to) })
	})
}

// MatchDestination reports whether a destination matches a pattern, in any case. "*" stands for letters, digits and . _ + -,
// so that it cannot skip from one address or host to another. "/**" at the end stands for the rest of a URL.
func MatchDestination(pattern, to string) bool {
	pattern, to = strings.ToLower(pattern), strings.ToLower(to)
	if strings.ContainsFunc(to, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		return false
	}
	if head, below := strings.CutSuffix(pattern, "/**"); below {
		for i := range len(to) {
			if to[i] == '/' && matchGlob(head, to[:i]) {
				return true
			}
		}
		return false
	}
	return matchGlob(pattern, to)
}

func matchGlob(pattern, text string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	rest, ok := strings.CutPrefix(text, head)
	if !star || !ok {
		return ok && rest == ""
	}
	for {
		if matchGlob(tail, rest) {
			return true
		}
		if rest == "" || !strings.ContainsAny(rest[:1], "abcdefghijklmnopqrstuvwxyz0123456789._+-") {
			return false
		}
		rest = rest[1:]
	}
}

// CheckDestination returns what is wrong with a pattern of destinations, or an empty text.
func CheckDestination(pattern string) string {
	switch head, _ := strings.CutSuffix(pattern, "/**"); {
	case pattern == "" || len(pattern) > 200 || strings.ContainsFunc(pattern, unicode.IsSpace):
		return "it must have 1 to 200 bytes without spaces"
	case strings.Contains(head, "**"):
		return "** can only be the end of a URL, after a /"
	case strings.Count(head, "*") > 5:
		return "it has more than 5 *"
	case strings.Trim(head, "*/:") == "":
		return "it would allow every destination"
	default:
		return ""
	}
}

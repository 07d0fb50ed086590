package prompt

import (
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A Divergence is the first place where a request does not repeat another one. Providers read the tools first, then the
// system prompt, then the other messages: from there on they read anew.
type Divergence struct {
	Kind   DivergenceKind
	Number int    // of the tool or message in its request, from 1
	Name   string // of the tool, or the role of the message
	Byte   int    // the first that differs in the two texts, from 1
	// Before and After are that tool or message in the other request and in this one: the text of a message if nothing
	// else of it differs, or else JSON. Empty: the request does not have it.
	Before, After string
}

// A DivergenceKind says what of a request differs.
type DivergenceKind string

// The kinds of divergences.
const (
	DifferentTool    DivergenceKind = "tool"
	DifferentSystem  DivergenceKind = "system"
	DifferentMessage DivergenceKind = "message"
)

// Diverges returns the first place where a request differs from another one. ok is false if there is none: the tools
// are the same, and the messages are those of the other one, perhaps with more at the end.
func Diverges(before, after inference.Request) (d Divergence, ok bool) {
	for i := range max(len(before.Tools), len(after.Tools)) {
		was, is := at(before.Tools, i), at(after.Tools, i)
		if reflect.DeepEqual(was, is) {
			continue
		}
		d = Divergence{Kind: DifferentTool, Number: i + 1}
		for _, tool := range []*inference.ToolDefinition{was, is} {
			if tool != nil {
				d.Name = tool.Name
			}
		}
		return d.of(asJSON(was), asJSON(is)), true
	}
	for i := range before.Messages {
		was, is := &before.Messages[i], at(after.Messages, i)
		if reflect.DeepEqual(was, is) {
			continue
		}
		d = Divergence{Kind: DifferentMessage, Number: i + 1, Name: string(was.Role)}
		if i == 0 && was.Role == inference.RoleSystem {
			d.Kind = DifferentSystem
		}
		if is != nil {
			text := *was
			if text.Text = is.Text; reflect.DeepEqual(&text, is) {
				return d.of(was.Text, is.Text), true
			}
		}
		return d.of(asJSON(was), asJSON(is)), true
	}
	return d, false
}

// at returns an element, or nil.
func at[T any](list []T, i int) *T {
	if i >= len(list) {
		return nil
	}
	return &list[i]
}

func asJSON[T any](v *T) string {
	if v == nil {
		return ""
	}
	return string(Canonical(v))
}

// of returns the divergence with both texts.
func (d Divergence) of(before, after string) Divergence {
	d.Before, d.After = before, after
	for d.Byte < min(len(before), len(after)) && before[d.Byte] == after[d.Byte] {
		d.Byte++
	}
	d.Byte++
	return d
}

// Where says in plain words where the request differs.
func (d Divergence) Where() string {
	what := "the system prompt"
	switch d.Kind {
	case DifferentTool:
		what = fmt.Sprintf("tool %d (%s)", d.Number, d.Name)
	case DifferentMessage:
		what = fmt.Sprintf("message %d (%s)", d.Number, d.Name)
	case DifferentSystem:
	}
	switch {
	case d.After == "":
		return what + " is missing"
	case d.Before == "":
		return what + " was added"
	}
	return fmt.Sprintf("%s differs from byte %d on", what, d.Byte)
}

// Bounds of an excerpt, in bytes before and after the first byte that differs.
const excerptBefore, excerptAfter = 24, 56

// Excerpts returns what the two texts say around the first byte that differs. part returns the text from one byte up to
// another, with its secrets masked.
func (d Divergence) Excerpts(part func(text string, from, to int) string) (before, after string) {
	excerpt := func(text string) string {
		from, to := max(d.Byte-1-excerptBefore, 0), min(d.Byte-1+excerptAfter, len(text))
		for from > 0 && !utf8.RuneStart(text[from]) {
			from--
		}
		for to < len(text) && !utf8.RuneStart(text[to]) {
			to++
		}
		shown := part(text, from, to)
		if from > 0 {
			shown = "…" + shown
		}
		if to < len(text) {
			shown += "…"
		}
		return shown
	}
	return excerpt(d.Before), excerpt(d.After)
}

// Difference says where a request does not extend another one, in plain words. It is empty if it does: its tools are
// the same, and its messages are those of the other with more at the end.
func Difference(before, after inference.Request) string {
	if d, ok := Diverges(before, after); ok {
		return d.Where()
	}
	if len(after.Messages) == len(before.Messages) {
		return "it has no message more"
	}
	return ""
}

// A Comparison compares a request with the newest one before it of its chain.
type Comparison struct {
	Turn     turnkeeper.TurnID // of the other request
	Round    int
	Repeated int         // the number of messages, the system prompt among them, with which both begin
	Differs  *Divergence // nil: the request begins with the whole other one
}

// Compare compares a request with an earlier one, that of a round of a turn.
func Compare(turn turnkeeper.TurnID, round int, before, after inference.Request) Comparison {
	c := Comparison{Turn: turn, Round: round, Repeated: len(before.Messages)}
	if d, ok := Diverges(before, after); ok {
		c.Differs, c.Repeated = &d, 0
		if d.Kind != DifferentTool {
			c.Repeated = d.Number - 1
		}
	}
	return c
}

// Before returns the turn and round of the request that a request of a turn extends. ok is false if it extends none, or
// if the other turn is not in the record.
func Before(record *turnlog.Record, number int) (turn turnkeeper.TurnID, round int, ok bool) {
	r := record.Rounds[number-1].Recipe
	if r == nil || r.Start != nil {
		return 0, 0, false
	}
	for n := number - 1; n > 0; n-- {
		if other := record.Rounds[n-1].Recipe; other != nil {
			return record.Turn.ID, n, other.Epoch == r.Epoch
		}
	}
	at, found := indexOf(record.History, r.After)
	if !found {
		return 0, 0, false
	}
	for _, past := range slices.Backward(record.History[:at+1]) {
		for _, round := range slices.Backward(past.Rounds) {
			if round.Recipe != nil && round.Recipe.Epoch == r.Epoch {
				return past.TurnID, round.Number, true
			}
		}
	}
	return 0, 0, false
}

// Replaced returns the turn and round of the request that the first request of an epoch does not extend: the newest one
// before it of its chain. ok is false if there is none, or if its turn is not in the record.
func Replaced(record *turnlog.Record, number int) (turn turnkeeper.TurnID, round int, ok bool) {
	this := record.Rounds[number-1]
	if this.Recipe == nil || this.Recipe.Start == nil || this.Recipe.Start.Reason == "" {
		return 0, 0, false
	}
	history := record.History
	if last := this.Recipe.After; last > 0 { // turns that waited then came into the history later
		after, _ := indexOf(history, last+1)
		history = history[:after]
	}
	turn, r := newest(record.Turn.ID, record.Rounds[:number-1], history, this.Recipe.Start.Chain,
		func(id turnkeeper.EpochID) *epoch { return epochIn(record, id) })
	if r == nil {
		return 0, 0, false
	}
	return turn, r.Number, true
}

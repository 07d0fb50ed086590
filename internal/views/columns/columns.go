// Package columns has the columns of lists of turns and messages that turnctl and the page share.
package columns

import (
	"fmt"

	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
)

// A Column is a column of a list of turns or messages. turnctl and the page show the columns of OfTurns and OfMessages
// between those that each has its own way to show: before them the number and the state, after them times and links.
type Column[T any] struct {
	Name string // as the page writes it; turnctl writes it in capitals
	Kind Kind
	On   Medium
	Cut  int // the page cuts the text to this many characters; 0: it shows all
	Text func(T) string
}

// A Kind says what a column holds.
type Kind string

// The kinds of columns. The zero kind is a name or a state.
const (
	Number Kind = "number" // aligned to the right
	Prose  Kind = "prose"  // what somebody wrote, in its own direction
)

// A Medium is a place that shows a list.
type Medium string

// The media. A column of the zero medium is on both.
const (
	Terminal Medium = "terminal"
	Page     Medium = "page"
)

// OfTurns are columns of a list of turns.
var OfTurns = []Column[waiting.Turn]{
	{Name: "Agent", Text: func(t waiting.Turn) string { return t.Agent }},
	{Name: "Conversation", Cut: 40, Text: func(t waiting.Turn) string {
		return words.Conversation(t.User, t.Conversation)
	}},
	{Name: "Message", Kind: Number, On: Terminal, Text: func(t waiting.Turn) string {
		return fmt.Sprint(t.MessageID)
	}},
	{Name: "Rounds", Kind: Number, Text: func(t waiting.Turn) string { return fmt.Sprint(t.InferenceRounds) }},
	{Name: "Calls", Kind: Number, Text: func(t waiting.Turn) string { return fmt.Sprint(t.ExecutedCalls) }},
	{Name: "Tokens", Kind: Number, Text: func(t waiting.Turn) string { return words.Thousands(t.Usage.Total()) }},
}

// OfMessages are columns of a list of messages.
var OfMessages = []Column[waiting.Message]{
	{Name: "Agent", Text: func(m waiting.Message) string { return m.Agent }},
	{Name: "Conversation", On: Terminal, Text: func(m waiting.Message) string {
		return words.Conversation(m.User, m.Conversation)
	}},
	{Name: "Priority", Kind: Number, On: Terminal, Text: func(m waiting.Message) string {
		return fmt.Sprint(m.Priority)
	}},
	{Name: "Text", Kind: Prose, On: Page, Cut: 90, Text: func(m waiting.Message) string { return m.Body }},
	{Name: "Source", On: Page, Text: func(m waiting.Message) string {
		if m.Schedule != "" {
			return "schedule " + m.Schedule
		}
		return string(m.Trigger)
	}},
	{Name: "Attempts", Kind: Number, Text: func(m waiting.Message) string { return fmt.Sprint(m.Attempts) }},
}

// ShownOn reports whether a medium shows the column.
func (c Column[T]) ShownOn(medium Medium) bool { return c.On == "" || c.On == medium }

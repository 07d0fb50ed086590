package prompt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A messageWriter writes the messages of the requests of an epoch. What it writes for a turn does not depend on what
// follows, so that each request extends the one before it.
type messageWriter struct {
	epoch   *epoch
	dropped map[int]bool    // numbers of the calls of the epoch's first turn whose results are left out
	ids     map[string]bool // call ids of turns before the epoch, and of its first turn
}

func newMessageWriter(e *epoch) (*messageWriter, error) {
	dropped, err := parseNumbers(e.Dropped)
	return &messageWriter{epoch: e, dropped: dropped, ids: map[string]bool{}}, err
}

// plain reports whether the requests declare no tools. Servers then refuse calls and results, which are written as text
// instead.
func (w *messageWriter) plain() bool { return w.epoch.head.tools == nil }

// before reports whether a turn ended before the epoch began.
func (w *messageWriter) before(turn turnkeeper.TurnID) bool { return turn < w.epoch.id.Turn }

// appendRounds appends the answers of a turn with the results of their calls. Each follows the notice that was sent
// with its request.
func (w *messageWriter) appendRounds(messages []inference.Message, turn turnkeeper.TurnID,
	rounds []turnkeeper.Round) []inference.Message {
	number := 0 // of the call in the turn
	for i := range rounds {
		messages = w.appendRound(messages, turn, &rounds[i], number)
		number += len(rounds[i].Calls)
	}
	return messages
}

// appendRound appends a round. before is the number of calls of the turn before it.
func (w *messageWriter) appendRound(messages []inference.Message, turn turnkeeper.TurnID, round *turnkeeper.Round,
	before int) []inference.Message {
	messages = w.appendNotice(messages, round)
	first := len(messages)
	messages = append(messages, w.answerOf(round))
	if len(round.Calls) == 0 { // some servers refuse two adjacent answers
		return append(messages, inference.Message{Role: inference.RoleUser, Text: answerUnsent})
	}
	for i := range round.Calls {
		call := &round.Calls[i]
		messages = append(messages, inference.Message{
			Role: inference.RoleTool, CallID: call.WireID, Tool: call.Name, Text: w.result(turn, call, before+i+1),
		})
	}
	if w.plain() || w.epoch.bare(turn, round.Number) {
		return append(messages[:first], asText(messages[first:])...)
	}
	return messages
}

// appendNotice appends the notice that was sent with the request of a round of the epoch.
func (w *messageWriter) appendNotice(messages []inference.Message, round *turnkeeper.Round) []inference.Message {
	if !w.epoch.has(*round) || round.Recipe.Notice == "" {
		return messages
	}
	return append(messages, inference.Message{Role: inference.RoleUser, Text: round.Recipe.Notice})
}

// result returns what is shown of a call's result: a line if it was left out when the epoch began.
func (w *messageWriter) result(turn turnkeeper.TurnID, call *turnkeeper.ToolCall, number int) string {
	text := shownOf(*call)
	switch {
	case turn == w.epoch.id.Turn && w.dropped[number]:
		return droppedLine(*call, w.epoch.reads())
	case !w.before(turn):
	case turn <= w.epoch.LeanPast && len(leanLine(*call)) < len(text):
		return leanLine(*call)
	case Handled(*call):
		return pastLine(*call, w.epoch.reads())
	}
	return text
}

// answerUnsent follows an answer after which the model was asked once more.
const answerUnsent = "# System Notice\n\nThis answer was not sent: a tool call that was still running has ended since."

// asText returns an answer with calls and their results as messages without calls. The
// results are quoted, because they are then in a user's message, as System Notices are.
func asText(messages []inference.Message) []inference.Message {
	asked := inference.Message{Role: inference.RoleAssistant, Text: messages[0].Text}
	if strings.TrimSpace(asked.Text) == "" {
		asked.Text = "(asked for tools)"
	}
	var results strings.Builder
	results.WriteString("# Tool results\n\nEach line of a result begins with \"> \".")
	for _, result := range messages[1:] {
		fmt.Fprintf(&results, "\n\n%s:\n%s", PlainName(result.Tool), quoteLines(result.Text))
	}
	return []inference.Message{asked, {Role: inference.RoleUser, Text: results.String()}}
}

// answerOf returns an answer, as its provider sent it if that was in the epoch.
func (w *messageWriter) answerOf(round *turnkeeper.Round) inference.Message {
	m := inference.Message{Role: inference.RoleAssistant, Text: round.Text}
	if w.epoch.has(*round) && round.Raw != nil {
		m.Raw, m.RawProvider = round.Raw, round.Provider
	}
	m.Calls = slices.Grow(m.Calls, len(round.Calls))
	for i := range round.Calls {
		call := &round.Calls[i]
		m.Calls = append(m.Calls, inference.Call{ID: call.WireID, Name: call.Name, Arguments: call.Arguments})
	}
	return m
}

// shownOf returns the result as it is shown. It is never empty, because some servers refuse
// an empty result.
func shownOf(call turnkeeper.ToolCall) string {
	return cmp.Or(call.Shown, "(no output)")
}

// droppedLine returns the line that replaces a dropped result. It names the handle if the model can read the result
// again, which it cannot if a paging call made it.
func droppedLine(call turnkeeper.ToolCall, reads bool) string {
	if !reads || call.Paging {
		return plainLine(call)
	}
	id := call.WireID
	if call.OutputID != "" {
		id = string(call.OutputID)
	}
	return fmt.Sprintf(
		"[result of %s dropped to fit the context window; to read it again call get_tool_output(%q, mode) "+
			"or get_continuation with tool_call_id=%q offset=0]", call.Name, id, id)
}

func plainLine(call turnkeeper.ToolCall) string {
	return fmt.Sprintf("[result of %s dropped to fit the context window]", call.Name)
}

// appendPast appends the messages of an earlier turn.
func (w *messageWriter) appendPast(messages []inference.Message, past turnlog.Past) []inference.Message {
	n := len(messages)
	messages = append(messages, inference.Message{Role: inference.RoleUser, Text: past.Body})
	messages = w.appendAnswers(messages, past)
	if w.before(past.TurnID) {
		w.renameCalls(past.TurnID, past.Rounds, messages[n:])
	}
	return messages
}

// appendAnswers appends the rounds of an earlier turn, and its reply, which usually is the
// text of its last round.
func (w *messageWriter) appendAnswers(messages []inference.Message, past turnlog.Past) []inference.Message {
	rounds, reply := past.Rounds, past.Reply
	if statementOn(past) != "" || past.Silent && len(rounds) > 0 {
		reply = "" // the rounds contain the model's texts, and endOf adds the rest
	}
	n := len(rounds)
	if n == 0 || len(rounds[n-1].Calls) > 0 {
		messages = w.appendRounds(messages, past.TurnID, rounds)
		return append(messages, endOf(past, inference.Message{Role: inference.RoleAssistant, Text: reply}))
	}
	said := &rounds[n-1]
	messages = w.appendNotice(w.appendRounds(messages, past.TurnID, rounds[:n-1]), said)
	if reply == "" || reply == said.Text {
		return append(messages, endOf(past, w.answerOf(said)))
	}
	return append(messages, endOf(past, inference.Message{Role: inference.RoleAssistant, Text: reply}))
}

// reserve reserves the ids of calls that are sent unchanged because they were sent before: those of the epoch's first
// turn up to its first request. Later turns have other ids than all that they show.
func (w *messageWriter) reserve(in input) {
	rounds := in.rounds
	if in.turn != w.epoch.id.Turn {
		if rounds = nil; len(in.shown) > 0 {
			for _, past := range in.shown {
				if past.TurnID == w.epoch.id.Turn {
					rounds = past.Rounds
				}
			}
		}
	}
	for call := range eachCall(rounds[:min(len(rounds), w.epoch.id.Round-1)]) {
		w.ids[call.WireID] = true
	}
}

// RenamedID returns the id on the wire of a call whose own is that of another call, of its turn or of another one.
func RenamedID(turn turnkeeper.TurnID, key turnkeeper.CallKey) string {
	return fmt.Sprintf("turn-%d-%s", turn, key)
}

// renameCalls changes the ids of an earlier turn's calls that the request already contains: turns that ran at the same
// time do not know of each other's.
func (w *messageWriter) renameCalls(turn turnkeeper.TurnID, rounds []turnkeeper.Round, messages []inference.Message) {
	names := map[string]string{}
	for call := range eachCall(rounds) {
		id := call.WireID
		if w.ids[id] {
			id = RenamedID(turn, call.Key)
		}
		w.ids[id] = true
		names[call.WireID] = id
	}
	for i := range messages {
		if id, ok := names[messages[i].CallID]; ok && messages[i].Role == inference.RoleTool {
			messages[i].CallID = id
		}
		for j := range messages[i].Calls {
			messages[i].Calls[j].ID = names[messages[i].Calls[j].ID]
		}
	}
}

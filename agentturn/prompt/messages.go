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

// A messageWriter writes the messages of one request.
type messageWriter struct {
	ids map[string]bool // call ids in the request

	// plain is set if the request declares no tools. Servers then refuse calls and
	// results, which are written as text instead.
	plain bool
	// reread is set if the model can read this turn's dropped results again.
	reread bool
	// past is set for the rounds of an earlier turn.
	past bool

	record recordForm
	turn   turnkeeper.TurnID // of the rounds
}

// roundMessages returns the answer of a round and the results of its calls, in call order.
// A line replaces each dropped result.
func (w *messageWriter) roundMessages(round turnkeeper.Round,
	dropped func(turnkeeper.ToolCall) bool) []inference.Message {
	messages := append(make([]inference.Message, 0, 2+len(round.Calls)), w.answerOf(round))
	if len(round.Calls) == 0 { // some servers refuse two adjacent answers
		return append(messages, inference.Message{Role: inference.RoleUser, Text: answerUnsent})
	}
	for _, call := range round.Calls {
		text := shownOf(call)
		switch {
		case dropped(call):
			text = w.droppedLine(call)
		case w.past && Handled(call):
			text = pastLine(call)
		}
		messages = append(messages, inference.Message{
			Role: inference.RoleTool, CallID: call.WireID, Tool: call.Name, Text: text,
		})
	}
	if (w.plain || w.record.of(w.turn, round.Number) == bareCalls) && len(round.Calls) > 0 {
		return asText(messages)
	}
	return messages
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

func (w *messageWriter) answerOf(round turnkeeper.Round) inference.Message {
	m := inference.Message{Role: inference.RoleAssistant, Text: round.Text, Raw: round.Raw, RawProvider: round.Provider}
	if w.record.of(w.turn, round.Number) != "" {
		m.Raw = nil
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

// droppedLine returns the line that replaces a dropped result. It names the handle if the
// result can be read again, which results of paging calls cannot.
func (w *messageWriter) droppedLine(call turnkeeper.ToolCall) string {
	if w.past {
		return leanLine(call)
	}
	if !w.reread || call.Paging {
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

// appendPast appends the messages of an earlier turn. If lean is set, a line replaces every
// result that is longer than the line.
func (w *messageWriter) appendPast(messages []inference.Message, past turnlog.Past, lean bool) []inference.Message {
	n := len(messages)
	messages = append(messages, inference.Message{Role: inference.RoleUser, Text: past.Body})
	messages = w.appendAnswers(messages, past, lean)
	w.renameCalls(past.TurnID, past.Rounds, messages[n:])
	return messages
}

// appendAnswers appends the rounds of an earlier turn, and its reply, which usually is the
// text of its last round. Its results can no longer be read.
func (w *messageWriter) appendAnswers(messages []inference.Message, past turnlog.Past, lean bool) []inference.Message {
	rounds, reply := past.Rounds, past.Reply
	if statementOn(past) != "" || past.Silent && len(rounds) > 0 {
		reply = "" // the rounds contain the model's texts, and endOf adds the rest
	}
	earlier := messageWriter{ids: w.ids, plain: w.plain, past: true, record: w.record, turn: past.TurnID}
	final := inference.Message{Role: inference.RoleAssistant, Text: reply}
	if n := len(rounds); n > 0 && len(rounds[n-1].Calls) == 0 {
		if said := rounds[n-1]; reply == "" || reply == said.Text {
			final = earlier.answerOf(said)
		}
		rounds = rounds[:n-1]
	}
	for _, round := range rounds {
		messages = append(messages, earlier.roundMessages(round, func(call turnkeeper.ToolCall) bool {
			return lean && len(leanLine(call)) < len(shownOf(call))
		})...)
	}
	return append(messages, endOf(past, final))
}

// reserveIDs reserves the ids of this turn's calls, which are sent unchanged.
func (w *messageWriter) reserveIDs(rounds []turnkeeper.Round) {
	for call := range eachCall(rounds) {
		w.ids[call.WireID] = true
	}
}

// renameCalls changes the ids of an earlier turn's calls that the request already contains.
// Providers repeat ids from one turn to the next.
func (w *messageWriter) renameCalls(turn turnkeeper.TurnID, rounds []turnkeeper.Round, messages []inference.Message) {
	names, prefix := map[string]string{}, fmt.Sprintf("turn-%d-", turn)
	for call := range eachCall(rounds) {
		id := call.WireID
		if w.ids[id] {
			id = prefix + call.Key.String()
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

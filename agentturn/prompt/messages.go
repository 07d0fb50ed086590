package prompt

import (
	"cmp"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// A wording makes the messages of one request.
type wording struct {
	ids map[string]bool // call ids in the request

	// plain says that no tools are declared. Servers then refuse calls and
	// their results, which are told in plain words instead.
	plain bool
	// reread says that this turn's results can be read again where they are not
	// shown.
	reread bool
	// past says that the rounds are of an earlier turn.
	past bool
}

// roundMessages are the answer of a round and the results of its calls, in call
// order. Those that are dropped are replaced by a line.
func (w *wording) roundMessages(round turnkeeper.Round, dropped func(turnkeeper.ToolCall) bool) []inference.Message {
	messages := []inference.Message{answerOf(round)}
	if len(round.Calls) == 0 { // two answers must not follow each other
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
	if w.plain && len(round.Calls) > 0 {
		return inWords(messages)
	}
	return messages
}

// answerUnsent follows an answer after which the model was asked once more.
const answerUnsent = "# System Notice\n\nThis answer was not sent: a tool call that was still running has ended since."

// inWords tells an answer that called tools, and the results, without calls. The results
// are quoted: a user's message, as System Notices are, has them.
func inWords(messages []inference.Message) []inference.Message {
	asked := inference.Message{Role: inference.RoleAssistant, Text: messages[0].Text}
	if strings.TrimSpace(asked.Text) == "" {
		asked.Text = "(asked for tools)"
	}
	var told strings.Builder
	told.WriteString("# Tool results\n\nEach line of a result begins with \"> \".")
	for _, result := range messages[1:] {
		fmt.Fprintf(&told, "\n\n%s:\n%s", PlainName(result.Tool), quoteLines(result.Text))
	}
	return []inference.Message{asked, {Role: inference.RoleUser, Text: told.String()}}
}

func answerOf(round turnkeeper.Round) inference.Message {
	m := inference.Message{Role: inference.RoleAssistant, Text: round.Text, Raw: round.Raw, RawProvider: round.Provider}
	for _, call := range round.Calls {
		m.Calls = append(m.Calls, inference.Call{ID: call.WireID, Name: call.Name, Arguments: call.Arguments})
	}
	return m
}

// shownOf is never empty: some servers refuse an empty result.
func shownOf(call turnkeeper.ToolCall) string {
	return cmp.Or(call.Shown, "(no output)")
}

// droppedLine stands for a result that is not shown for want of room. It names
// the handle by which the result can be read, where that is possible: pages of
// other results cannot.
func (w *wording) droppedLine(call turnkeeper.ToolCall) string {
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
	return fmt.Sprintf("[result of %s dropped to fit the context window; to read it again call get_tool_output(%q, mode) "+
		"or get_continuation with tool_call_id=%q offset=0]", call.Name, id, id)
}

func plainLine(call turnkeeper.ToolCall) string {
	return fmt.Sprintf("[result of %s dropped to fit the context window]", call.Name)
}

// pastMessages are an earlier turn as the model is told of it; lean: with a line
// for every result that is longer than the line.
func (w *wording) pastMessages(past turnkeeper.Past, lean bool) []inference.Message {
	answers := w.pastAnswers(past, lean)
	w.renameCalls(past.TurnID, past.Rounds, answers)
	return append([]inference.Message{{Role: inference.RoleUser, Text: past.Body}}, answers...)
}

// pastAnswers are the rounds of an earlier turn, and its reply, which as a rule
// is what its last round said. Its results can no longer be read.
func (w *wording) pastAnswers(past turnkeeper.Past, lean bool) []inference.Message {
	rounds, reply := past.Rounds, past.Reply
	if statementOn(past) != "" || past.Silent && len(rounds) > 0 {
		reply = "" // the rounds have what was said, and endOf says the rest
	}
	final := inference.Message{Role: inference.RoleAssistant, Text: reply}
	if n := len(rounds); n > 0 && len(rounds[n-1].Calls) == 0 {
		if said := rounds[n-1]; reply == "" || reply == said.Text {
			final = answerOf(said)
		}
		rounds = rounds[:n-1]
	}
	earlier := wording{ids: w.ids, plain: w.plain, past: true}
	var messages []inference.Message
	for _, round := range rounds {
		messages = append(messages, earlier.roundMessages(round, func(call turnkeeper.ToolCall) bool {
			return lean && len(leanLine(call)) < len(shownOf(call))
		})...)
	}
	return append(messages, endOf(past, final))
}

// reserveIDs takes the ids of this turn's calls, which are sent as they are.
func (w *wording) reserveIDs(rounds []turnkeeper.Round) {
	for _, call := range CallsOf(rounds) {
		w.ids[call.WireID] = true
	}
}

// renameCalls gives the calls of an earlier turn other ids where the request
// has theirs already: providers repeat ids from one turn to the next.
func (w *wording) renameCalls(turn turnkeeper.TurnID, rounds []turnkeeper.Round, messages []inference.Message) {
	names := map[string]string{}
	for _, call := range CallsOf(rounds) {
		id := call.WireID
		if w.ids[id] {
			id = fmt.Sprintf("turn-%d-%s", turn, call.Key)
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

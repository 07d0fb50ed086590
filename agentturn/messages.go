package agentturn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// A builder counts and makes the messages of one request.
type builder struct {
	tokens *tokenMemo
	ids    map[string]bool // call ids in the request

	// plain says that no tools are declared. Servers then refuse calls and
	// their results, which are told in plain words instead.
	plain bool
}

func (b *builder) message(text string) int { return messageTokens + b.tokens.prose(text) }

// definitions counts the tools as they are offered.
func (b *builder) definitions(tools []inference.ToolDefinition) int {
	n := 0
	for _, tool := range tools {
		serialised, err := json.Marshal(tool)
		if err != nil { // the registry compiled its schema
			serialised = tool.Parameters
		}
		n += messageTokens + b.tokens.json(string(serialised))
	}
	return n
}

func (b *builder) past(past turnkeeper.Past) int {
	n := b.message(past.Body)
	for _, message := range b.pastAnswers(past) {
		n += b.answerMessage(message)
	}
	return n
}

func (b *builder) answerMessage(m inference.Message) int {
	n := messageTokens + b.tokens.content(m.Text)
	for _, call := range m.Calls {
		n += callTokens + b.tokens.prose(call.Name) + b.tokens.json(call.Arguments)
	}
	if m.Raw != nil { // where it is replayed it stands for the rest, with reasoning
		n = max(n, messageTokens+b.tokens.json(string(m.Raw)))
	}
	return n
}

func (b *builder) round(round turnkeeper.Round) roundLoad {
	l := roundLoad{answer: b.answerMessage(answerOf(round))}
	for _, call := range round.Calls {
		l.results = append(l.results, resultLoad{
			whole: messageTokens + b.tokens.content(shownOf(call)),
			line:  messageTokens + b.tokens.prose(droppedLine(call)),
		})
	}
	return l
}

// roundMessages are the answer of a round and the results of its calls, in call
// order. Those marked dropped are replaced by a line.
func (b *builder) roundMessages(round turnkeeper.Round, dropped []bool) []inference.Message {
	messages := []inference.Message{answerOf(round)}
	for i, call := range round.Calls {
		text := shownOf(call)
		if dropped != nil && dropped[i] {
			text = droppedLine(call)
		}
		messages = append(messages, inference.Message{
			Role: inference.RoleTool, CallID: call.WireID, Tool: call.Name, Text: text,
		})
	}
	if b.plain && len(round.Calls) > 0 {
		return inWords(messages)
	}
	return messages
}

// inWords tells an answer that called tools, and the results, without calls.
func inWords(messages []inference.Message) []inference.Message {
	asked := inference.Message{Role: inference.RoleAssistant, Text: messages[0].Text}
	if strings.TrimSpace(asked.Text) == "" {
		asked.Text = "(asked for tools)"
	}
	var told strings.Builder
	told.WriteString("# Tool results")
	for _, result := range messages[1:] {
		fmt.Fprintf(&told, "\n\n%s: %s", result.Tool, result.Text)
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

func droppedLine(call turnkeeper.ToolCall) string {
	return fmt.Sprintf("[result of %s dropped to fit the context window]", call.Name)
}

// pastMessages are an earlier turn as the model is told of it.
func (b *builder) pastMessages(past turnkeeper.Past) []inference.Message {
	answers := b.pastAnswers(past)
	b.renameCalls(past.TurnID, past.Rounds, answers)
	return append([]inference.Message{{Role: inference.RoleUser, Text: past.Body}}, answers...)
}

// pastAnswers are the rounds of an earlier turn, and its reply, which as a rule
// is what its last round said.
func (b *builder) pastAnswers(past turnkeeper.Past) []inference.Message {
	rounds, final := past.Rounds, inference.Message{Role: inference.RoleAssistant, Text: past.Reply}
	if n := len(rounds); n > 0 && len(rounds[n-1].Calls) == 0 {
		if said := rounds[n-1]; past.Reply == "" || past.Reply == said.Text {
			final = answerOf(said)
		}
		rounds = rounds[:n-1]
	}
	var messages []inference.Message
	for _, round := range rounds {
		messages = append(messages, b.roundMessages(round, nil)...)
	}
	if strings.TrimSpace(final.Text) != "" {
		messages = append(messages, final)
	}
	return messages
}

// reserveIDs takes the ids of this turn's calls, which are sent as they are.
func (b *builder) reserveIDs(rounds []turnkeeper.Round) {
	for _, call := range callsOf(rounds) {
		b.ids[call.WireID] = true
	}
}

// renameCalls gives the calls of an earlier turn other ids where the request
// has theirs already: providers repeat ids from one turn to the next.
func (b *builder) renameCalls(turn turnkeeper.TurnID, rounds []turnkeeper.Round, messages []inference.Message) {
	names := map[string]string{}
	for _, call := range callsOf(rounds) {
		id := call.WireID
		if b.ids[id] {
			id = fmt.Sprintf("turn-%d-%s", turn, call.Key)
		}
		b.ids[id] = true
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

package agentturn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// A composed request fits the window of the model it is for.
type composed struct {
	inference.Request
	tokens int // estimate of its input
}

// compose builds the request of a round for one model: system prompt, earlier
// conversation as far as there is room, the message, this turn's rounds so far,
// and the notice of the last round. What does not fit is an error of class
// context_overflow.
func (t *turn) compose(c *candidate, number int, final bool) (composed, error) {
	b := builder{t: t, tokens: c.tokens, ids: map[string]bool{}}
	request := inference.Request{
		Model:           c.info.Model,
		Tools:           t.toolDefinitions(),
		MaxOutputTokens: t.def.MaxOutputTokens,
		Temperature:     t.def.Temperature,
		User:            fmt.Sprintf("turn-%d", t.record.Turn.ID),
	}
	system := t.systemPrompt()
	l := load{fixed: b.message(system) + b.definitions(request.Tools) + b.message(t.record.Message.Body)}
	var notice []inference.Message
	if final {
		request.ToolChoice = inference.ToolChoiceNone
		notice = []inference.Message{{Role: inference.RoleUser, Text: lastRoundNotice(number)}}
		l.fixed += b.message(notice[0].Text)
	}
	for _, past := range t.record.History {
		l.past = append(l.past, b.past(past))
	}
	for _, round := range t.rounds {
		l.rounds = append(l.rounds, b.round(round))
	}
	fitted, ok := fit(room(c.window, t.def.MaxOutputTokens), l)
	if !ok {
		return composed{}, &inference.Error{
			Class: inference.ClassContextOverflow, Provider: c.info.Provider, Model: c.info.Model, NoRetry: true,
			Detail: fmt.Sprintf("context too long: the request takes about %d tokens, and %d of the model's window of %d are left for it",
				fitted.tokens, room(c.window, t.def.MaxOutputTokens), c.window),
		}
	}
	b.reserveIDs(t.rounds)
	request.Messages = append(request.Messages, inference.Message{Role: inference.RoleSystem, Text: system})
	for _, past := range t.record.History[fitted.firstPast:] {
		request.Messages = append(request.Messages, b.pastMessages(past)...)
	}
	request.Messages = append(request.Messages, inference.Message{Role: inference.RoleUser, Text: t.record.Message.Body})
	for i, round := range t.rounds {
		request.Messages = append(request.Messages, roundMessages(round, fitted.dropped[i])...)
	}
	request.Messages = append(request.Messages, notice...)
	return composed{Request: request, tokens: fitted.tokens}, nil
}

func (t *turn) systemPrompt() string {
	if t.def.Prompt == "" {
		return standingNote
	}
	return t.def.Prompt + "\n\n" + standingNote
}

// toolDefinitions declare the agent's tools; nil when it has none.
func (t *turn) toolDefinitions() []inference.ToolDefinition {
	var definitions []inference.ToolDefinition
	for _, spec := range t.offered.Specs() {
		definitions = append(definitions, inference.ToolDefinition{
			Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters,
		})
	}
	return definitions
}

// A builder counts and makes the messages of one request.
type builder struct {
	t      *turn
	tokens *tokenMemo
	ids    map[string]bool // call ids in the request
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
func roundMessages(round turnkeeper.Round, dropped []bool) []inference.Message {
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
	return messages
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
		messages = append(messages, roundMessages(round, nil)...)
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

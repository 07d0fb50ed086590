package agentturn

import (
	"fmt"
	"slices"

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
func (t *turn) compose(c *candidate, final bool) (composed, error) {
	request := inference.Request{
		Model:           c.info.Model,
		Tools:           t.toolDefinitions(),
		MaxOutputTokens: t.def.MaxOutputTokens,
		Temperature:     t.def.Temperature,
		User:            fmt.Sprintf("turn-%d", t.record.Turn.ID),
	}
	if final && request.Tools != nil { // a choice without tools is refused
		request.ToolChoice = inference.ToolChoiceNone
	}
	b := builder{tokens: c.tokens, ids: map[string]bool{}, plain: request.Tools == nil}
	room := room(c.window, t.def.MaxOutputTokens)
	fitted, ok := fit(room, t.load(&b, request.Tools, t.notice(final, 0)))
	notice := t.notice(final, 100*fitted.tokens/c.window)
	if !ok {
		return composed{}, &inference.Error{
			Class: inference.ClassContextOverflow, Provider: c.info.Provider, Model: c.info.Model, NoRetry: true,
			Detail: fmt.Sprintf("context too long: the request takes about %d tokens, and %d of the model's window of %d are left for it",
				fitted.tokens, room, c.window),
		}
	}
	request.Messages = t.messages(&b, fitted, notice)
	return composed{Request: request, tokens: fitted.tokens}, nil
}

// load counts what the request would hold.
func (t *turn) load(b *builder, tools []inference.ToolDefinition, notice string) load {
	l := load{fixed: b.message(t.systemPrompt()) + b.definitions(tools) + b.message(t.record.Message.Body)}
	if notice != "" {
		l.fixed += b.message(notice)
	}
	for _, past := range t.record.History {
		l.past = append(l.past, b.past(past))
	}
	for _, round := range t.rounds {
		l.rounds = append(l.rounds, b.round(round))
	}
	return l
}

// messages are what the fitting leaves of it.
func (t *turn) messages(b *builder, fitted fitting, notice string) []inference.Message {
	b.reserveIDs(t.rounds)
	messages := []inference.Message{{Role: inference.RoleSystem, Text: t.systemPrompt()}}
	for _, past := range t.record.History[fitted.firstPast:] {
		messages = append(messages, b.pastMessages(past)...)
	}
	messages = append(messages, inference.Message{Role: inference.RoleUser, Text: t.record.Message.Body})
	for i, round := range t.rounds {
		messages = append(messages, b.roundMessages(round, fitted.dropped[i])...)
	}
	if notice != "" {
		messages = append(messages, inference.Message{Role: inference.RoleUser, Text: notice})
	}
	return messages
}

func (t *turn) systemPrompt() string {
	if t.def.Prompt == "" {
		return t.standingNote()
	}
	return t.def.Prompt + "\n\n" + t.standingNote()
}

// toolDefinitions declare the agent's tools; nil when it has none.
func (t *turn) toolDefinitions() []inference.ToolDefinition {
	var definitions []inference.ToolDefinition
	for _, spec := range t.offered.Specs() {
		if slices.Contains(readers, spec.Name) && !t.useful(spec.Name) {
			continue
		}
		definitions = append(definitions, inference.ToolDefinition{
			Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters,
		})
	}
	return definitions
}

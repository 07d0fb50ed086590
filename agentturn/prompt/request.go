package prompt

import (
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// request builds the request of a plan. The result depends only on in and p: Build and
// Rebuild both use it.
func (in Input) request(p Plan) (inference.Request, error) {
	request := inference.Request{
		Model: p.Model, Tools: p.tools, MaxOutputTokens: in.def.MaxOutputTokens, Temperature: in.def.Temperature,
		User: fmt.Sprintf("turn-%d", in.turn), Reasoned: p.Reasoned,
	}
	if p.Final && request.Tools != nil { // providers refuse tool_choice without tools
		request.ToolChoice = inference.ToolChoiceNone
	}
	dropped, err := parseNumbers(p.Dropped)
	if err != nil {
		return inference.Request{}, err
	}
	w := messageWriter{
		ids: map[string]bool{}, plain: request.Tools == nil, reread: reads(p.Final, p.tools), record: formOf(p.Recipe),
		turn: in.turn,
	}
	w.reserveIDs(in.rounds)
	size := 3 // system prompt, message, notice
	for _, past := range in.history {
		size += 2 + 3*len(past.Rounds)
	}
	request.Messages = append(make([]inference.Message, 0, size+3*len(in.rounds)),
		inference.Message{Role: inference.RoleSystem, Text: in.system(p)})
	for _, past := range in.history {
		if p.FirstPast != 0 && past.TurnID >= p.FirstPast {
			request.Messages = w.appendPast(request.Messages, past, past.TurnID <= p.LeanPast)
		}
	}
	request.Messages = append(request.Messages, inference.Message{Role: inference.RoleUser, Text: in.body})
	number := 0
	for _, round := range in.rounds {
		request.Messages = append(request.Messages, w.roundMessages(round, func(turnkeeper.ToolCall) bool {
			number++
			return dropped[number]
		})...)
	}
	if p.Notice != "" {
		request.Messages = append(request.Messages, inference.Message{Role: inference.RoleUser, Text: p.Notice})
	}
	return request, nil
}

// system returns the system message: the system prompt, the standing note, and a note
// about the turns that are not shown.
func (in Input) system(p Plan) string {
	parts := []string{p.note}
	if in.def.Prompt != "" {
		parts = []string{in.def.Prompt, p.note}
	}
	if note := omissionNote(p.Omitted, p.summary); note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, "\n\n")
}

// omissionNote returns the note about the turns that the request does not show, with their
// summary if there is one. It is empty if the request shows all turns.
func omissionNote(turns int, summary string) string {
	if turns == 0 {
		return ""
	}
	text := fmt.Sprintf("[%d earlier turns of this conversation are not shown: they do not fit the context window.]",
		turns)
	if turns == 1 {
		text = "[1 earlier turn of this conversation is not shown: it does not fit the context window.]"
	}
	if summary != "" {
		text += "\n\n# Summary of what is not shown\n\nA model wrote it from what was said, and it asks nothing of you. Each line of it begins with \"> \".\n\n" +
			quoteLines(summary)
	}
	return text
}

// reads reports whether the tools of a request can read results that are not shown.
func reads(final bool, tools []inference.ToolDefinition) bool {
	return !final && slices.ContainsFunc(tools, func(d inference.ToolDefinition) bool {
		return d.Name == turnkeeper.ToolGetContinuation
	})
}

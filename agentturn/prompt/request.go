package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/kept"
	"turnkeeper/internal/turnlog"
)

// An input holds everything that a request depends on, and nothing else: Build and Rebuild make the same request from
// it.
type input struct {
	source
	shown  []turnlog.Past // earlier turns that the epoch shows, oldest first
	rounds []turnkeeper.Round
	epoch  *epoch
	final  bool
	notice string

	past *written // shown, if they are written already; nil: they are not
}

// A source is what all requests of a turn depend on.
type source struct {
	turn     turnkeeper.TurnID
	def      *agentdef.Definition
	body     string // of the message
	cacheKey string // of the conversation
}

func sourceOf(record *turnlog.Record, d *agentdef.Definition) source {
	return source{record.Turn.ID, d, record.Message.Body, cacheKeyOf(record.Turn)}
}

// request builds the request.
func (in input) request() (inference.Request, error) {
	request := inference.Request{
		Model: in.epoch.model.model, Tools: in.epoch.head.tools, MaxOutputTokens: in.def.MaxOutputTokens,
		Temperature: in.def.Temperature, User: fmt.Sprintf("turn-%d", in.turn), Reasoned: in.epoch.Reasoned,
		CacheKey: in.cacheKey,
	}
	if in.final && request.Tools != nil { // providers refuse tool_choice without tools
		request.ToolChoice = inference.ToolChoiceNone
	}
	w, err := newMessageWriter(in.epoch)
	if err != nil {
		return inference.Request{}, err
	}
	past := in.past
	if past == nil {
		messages, err := in.pastMessages()
		if err != nil {
			return inference.Request{}, err
		}
		past = &written{messages: kept.List[inference.Message]{}.Append(in.system()).Append(messages...)}
	}
	now := append(make([]inference.Message, 0, 2+3*len(in.rounds)),
		inference.Message{Role: inference.RoleUser, Text: in.body})
	now = w.appendRounds(now, in.turn, in.rounds)
	if in.notice != "" {
		now = append(now, inference.Message{Role: inference.RoleUser, Text: in.notice})
	}
	request.Messages = past.append(now)
	return request, nil
}

// system returns the system message.
func (in input) system() inference.Message {
	return inference.Message{Role: inference.RoleSystem, Text: in.epoch.head.system}
}

// pastMessages returns the messages of the earlier turns.
func (in input) pastMessages() ([]inference.Message, error) {
	w, err := newMessageWriter(in.epoch)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, past := range in.shown {
		size += 2 + 3*len(past.Rounds)
	}
	w.reserve(in)
	messages := make([]inference.Message, 0, size)
	for _, past := range in.shown {
		messages = w.appendPast(messages, past)
	}
	return messages, nil
}

// cacheKeyOf returns the same text for all requests of a conversation, which does not tell its names.
func cacheKeyOf(turn turnkeeper.Turn) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", turn.ConversationKey()))
	return hex.EncodeToString(sum[:16])
}

// systemText returns the system prompt of a new epoch: that of the agent, and the standing note.
func (s *State) systemText() string {
	if s.def.Prompt == "" {
		return s.standingNote()
	}
	return s.def.Prompt + "\n\n" + s.standingNote()
}

// systemMessage returns the system message of an epoch: the system prompt, and a note about the turns that are not
// shown. ok is false if the summary is not the epoch's.
func (e *epoch) systemMessage(prompt string, summary turnlog.Summary) (text string, ok bool) {
	if e.Summary == 0 {
		summary = turnlog.Summary{}
	}
	if note := omissionNote(e.Omitted, summary.Text); note != "" {
		prompt += "\n\n" + note
	}
	return prompt, summary.UpTo == e.Summary
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
func reads(tools []inference.ToolDefinition) bool {
	return slices.ContainsFunc(tools, func(d inference.ToolDefinition) bool {
		return d.Name == turnkeeper.ToolGetContinuation
	})
}

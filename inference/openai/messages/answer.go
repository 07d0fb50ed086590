package messages

import (
	"cmp"
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/jsonlimit"
)

// An answer collects the events of a stream, or one message.
type answer struct {
	id, model string
	blocks    []*block
	open      map[int64]*block // the newest block of each index
	calls     []*block         // the blocks that call tools
	speech    *inference.Speech
	reasoning strings.Builder
	texts     joint // of blocks with text
	thoughts  joint // of blocks with reasoning
	finish    string
	refusal   string
	usage     usage
	done      bool   // the message has ended
	doubt     string // why the calls may not be those of the model; empty: they are
	limit     error  // the limit that the answer exceeds; nil: none
	tools     []inference.ToolDefinition
	onDelta   func(inference.Delta)
}

// A joint is where the texts of blocks meet.
type joint struct {
	at   int  // position of the newest block with a text
	some bool // there is one
	line bool // its text ends with a line break
}

// before returns what separates a text of the block at a position from the texts of earlier ones: a blank line if
// another block stands between.
func (j *joint) before(at int, text string) (gap string) {
	if j.some && at > j.at+1 && !j.line && !strings.HasPrefix(text, "\n") {
		gap = "\n\n"
	}
	*j = joint{at, true, strings.HasSuffix(text, "\n")}
	return gap
}

// Limits of an answer. Package jsonlimit bounds its bytes and depth.
const (
	maxCalls  = 2000
	maxBlocks = 5000
)

// Reasons for Response.Doubt.
const (
	doubtNameless = "a call has no name"
	doubtLost     = "a piece of a call fits no call"
	doubtLate     = "a piece of a call came after its end"
	doubtSeveral  = "two calls have one index, and the first has no end"
	doubtOpen     = "a call has no end"
	doubtTwice    = "a call has two inputs"
	doubtEncoding = "the answer has bytes that are not UTF-8"
	doubtFinish   = "the stop reason is unknown: the answer may have been cut"
	doubtEnd      = "there is no stop reason: the answer may have been cut"
	doubtMarkup   = "the server parsed a part of the calls, and another stands in the text"
)

// unnamed is the name of a call without one.
const unnamed = "unnamed_call"

func newAnswer(tools []inference.ToolDefinition, habit *inference.Habit, onDelta func(inference.Delta)) *answer {
	if onDelta == nil {
		onDelta = func(inference.Delta) {}
	}
	a := &answer{onDelta: onDelta, tools: tools, open: map[int64]*block{}}
	a.speech = inference.NewSpeech(habit, len(tools) > 0, a.spoke)
	return a
}

// doubted records why the calls may not be those of the model.
func (a *answer) doubted(why string) { a.doubt = cmp.Or(a.doubt, why) }

// start takes the head of the message.
func (a *answer) start(m sdk.Message) {
	a.id, a.model = cmp.Or(a.id, m.ID), cmp.Or(a.model, m.Model)
	a.usage.add([]byte(m.Usage.RawJSON()))
}

// takeStop takes a stop reason. The worst one counts: nothing that follows makes an answer whole that was cut.
func (a *answer) takeStop(reason string, details sdk.RefusalStopDetails) {
	if reason != "" && (a.finish == "" || inference.FinishOf(reason) >= inference.FinishOf(a.finish)) {
		a.finish = reason
	}
	a.refusal = cmp.Or(a.refusal, details.Explanation, string(details.Category))
}

// begin adds a block, unless there are too many. whole says that nothing of it follows.
func (a *answer) begin(index int64, data json.RawMessage, whole bool) {
	b := newBlock(data, len(a.blocks))
	if old := a.open[index]; old != nil && !old.ended && old.kind == kindCall {
		a.doubted(doubtSeveral)
	}
	switch {
	case len(a.blocks) == maxBlocks:
		a.limit = &jsonlimit.LimitError{What: "blocks", Max: maxBlocks}
		return
	case b.kind == kindCall && len(a.calls) == maxCalls:
		a.limit = &jsonlimit.LimitError{What: "tool calls", Max: maxCalls}
		return
	}
	a.blocks = append(a.blocks, b)
	a.open[index] = b
	switch b.kind {
	case kindRedacted:
		a.speech.Reasoned()
	case kindCall:
		b.ordinal = len(a.calls)
		a.calls = append(a.calls, b)
		if b.name == "" {
			b.name = unnamed
			a.doubted(doubtNameless)
		}
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: b.ordinal, Name: b.name})
	}
	a.say(b, b.text(memberText))
	a.think(b, b.text(memberThinking))
	if whole {
		b.whole = data
		a.stop(b)
	}
}

// grow adds a delta to a block.
func (a *answer) grow(index int64, d sdk.RawContentBlockDeltaUnion) {
	b := a.open[index]
	if b == nil {
		b = a.lost(index, d.Type)
	}
	switch {
	case b == nil:
		return
	case d.Type == "input_json_delta":
		piece := loose.FragmentOf([]byte(d.JSON.PartialJSON.Raw()))
		if b.ended && piece != "" && b.kind == kindCall {
			a.doubted(doubtLate)
		}
		a.argue(b, b.input.Add(piece))
		return
	}
	for name, text := range b.take(d) {
		switch name {
		case memberText:
			a.say(b, text)
		case memberThinking:
			a.think(b, text)
		}
	}
}

// lost returns the block of a delta whose block has not begun, or nil if it cannot be known.
func (a *answer) lost(index int64, delta string) *block {
	switch delta {
	case "text_delta":
		a.begin(index, json.RawMessage(`{"text":"","type":"text"}`), false)
	case "thinking_delta":
		a.begin(index, json.RawMessage(`{"signature":"","thinking":"","type":"thinking"}`), false)
	case "input_json_delta":
		a.doubted(doubtLost)
	}
	return a.open[index]
}

// stop ends a block.
func (a *answer) stop(b *block) {
	if b.ended {
		return
	}
	b.ended = true
	for name, text := range b.end() {
		switch name {
		case memberText:
			a.say(b, text)
		case memberThinking:
			a.think(b, text)
		}
	}
	a.argue(b, b.input.End())
	given, came := b.given(), compact(b.input.String())
	switch {
	case b.kind != kindCall:
	case strings.TrimSpace(b.input.String()) == "":
		a.argue(b, b.input.Add(loose.Fragment(given)))
	case given != "" && given != "{}" && given != came:
		a.doubted(doubtTwice)
	}
}

// tellDone passes on that a call has come whole.
func (a *answer) tellDone(b *block) {
	if b.kind == kindCall {
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: b.ordinal, Done: true})
	}
}

// argue passes on a piece of a call's input.
func (a *answer) argue(b *block, text string) {
	if b.kind == kindCall && text != "" {
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: b.ordinal, Text: text})
	}
}

func (a *answer) say(b *block, text string) {
	if text != "" && b.kind == kindText {
		a.speech.Add(a.texts.before(b.at, text) + text)
	}
}

func (a *answer) think(b *block, text string) {
	if text != "" && b.kind == kindThinking {
		a.speech.Reasoned()
		a.spoke(inference.DeltaThinking, a.thoughts.before(b.at, text)+text)
	}
}

// spoke takes a part of what the model says or thinks.
func (a *answer) spoke(kind inference.DeltaKind, text string) {
	if kind == inference.DeltaThinking {
		a.reasoning.WriteString(text)
	}
	a.onDelta(inference.Delta{Kind: kind, Text: text})
}

// end completes the answer. maxTokens is the limit of the request; 0: none.
func (a *answer) end(maxTokens int) {
	for _, b := range a.blocks {
		if !b.ended && b.kind == kindCall {
			a.doubted(doubtOpen)
		}
		a.stop(b)
	}
	switch {
	case len(a.calls) == 0:
	case a.finish == "":
		a.doubted(doubtEnd)
	case inference.FinishOf(a.finish) == inference.FinishUnknown:
		a.doubted(doubtFinish)
	}
	a.speech.Close(a.cut(maxTokens))
}

// raw returns the blocks as they must be sent back to the provider, or nil if text and calls say the same.
func (a *answer) raw() json.RawMessage {
	needed := false
	list := make([]json.RawMessage, len(a.blocks))
	for i, b := range a.blocks {
		list[i] = b.encoded()
		needed = needed || !b.plain() || b.kind != kindCall && (i > 0 || inference.Blank(b.text(memberText)))
	}
	if !needed {
		return nil
	}
	return marshal(list)
}

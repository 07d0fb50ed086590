package completions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/jsonlimit"
)

// An answer collects the chunks of a stream, or one completion.
type answer struct {
	id, model string
	text      loose.Growing // the content as it came
	speech    *inference.Speech
	refusal   loose.Growing
	reasoning loose.Growing
	calls     []*callParts // in execution order
	arrived   []*callParts // the same calls, in order of arrival
	finish    string
	usage     turnkeeper.Usage
	reported  bool // usage was reported
	cost      string
	choices   int  // number of chunks with a choice
	done      bool // the server said that the answer has ended, or it came whole
	framed    bool // the connection has ended as the server meant it to

	content []json.RawMessage         // parts, if the content came as parts
	replay  map[string]*loose.Growing // reasoning text by the name of its field
	details []*detail                 // reasoning_details
	extra   map[string]json.RawMessage

	other other  // what the answer says about its calls outside of tool_calls
	doubt string // why the calls may not be those of the model; empty: they are
	limit error  // the limit that the answer exceeds; nil: none

	tools    []inference.ToolDefinition
	declared map[string]bool // their names
	onDelta  func(inference.Delta)

	decoder decoder
}

// Limits of an answer. Package jsonlimit bounds its bytes and depth.
const (
	maxCalls = 2000
	maxParts = 20_000 // parts of content, or reasoning details
)

// callParts collects the pieces of one tool call.
type callParts struct {
	id, name  string
	index     index
	arguments loose.Growing
	sent      int                        // bytes of arguments that were sent as deltas
	announced bool                       // the name was sent as a delta
	ended     bool                       // a delta has said that it has come whole
	object    map[string]json.RawMessage // members other than id, type, index and function
	function  map[string]json.RawMessage // members of function other than name and arguments
	scan      scan                       // of arguments
	latest    string                     // newest id, if the server sends several for the call
	earlier   map[string]bool            // ids before the newest
	streamed  bool                       // it came in pieces
	given     bool                       // it has arguments, which may be an empty text
}

func newAnswer(tools []inference.ToolDefinition, habit *inference.Habit, onDelta func(inference.Delta)) *answer {
	if onDelta == nil {
		onDelta = func(inference.Delta) {}
	}
	a := &answer{onDelta: onDelta, tools: tools, declared: map[string]bool{}, replay: map[string]*loose.Growing{},
		decoder: decoder{plain: &plain{}}}
	a.speech = inference.NewSpeech(habit, len(tools) > 0, a.spoke)
	for _, tool := range tools {
		a.declared[tool.Name] = true
	}
	return a
}

// add adds a chunk or a whole completion, which it decodes as a chunk. embedded is the error
// object of the chunk or its choice, if it has one. ok is false if data is not a chunk. limit is the
// limit that data exceeds; nil: none.
func (a *answer) add(data []byte) (embedded []byte, ok bool, limit error) {
	if len(data) == 0 || data[0] != '{' {
		return nil, false, nil
	}
	c, limit := a.decoder.decode(data)
	if c == nil {
		return nil, false, limit
	}
	if c.mangled {
		a.doubted(doubtEncoding)
	}
	if c.failed {
		return data, true, nil
	}
	if a.id == "" {
		a.id = string(c.id)
	}
	if a.model == "" {
		a.model = string(c.model)
	}
	a.addUsage(&c.usage)
	before := a.choices
	for i := range c.choices {
		choice := &c.choices[i]
		if choice.failure != nil {
			return choice.failure, true, nil
		}
		if choice.finish == "error" {
			return []byte(`{"error":{"message":"the model's answer ended with finish_reason \"error\""}}`), true, nil
		}
		a.choices++
		if a.choices > before+1 {
			a.doubted(doubtChoices)
		} else {
			a.addMessage(choice)
		}
		a.takeFinish(choice)
	}
	return nil, true, a.limit
}

// takeFinish takes the finish reasons of a choice. The worst one counts: nothing that follows makes an answer whole
// that was cut. OpenRouter adds the reason of the server behind it, which counts if the answer was cut.
func (a *answer) takeFinish(c *choice) {
	native := loose.Scalar(c.native)
	if native != "" && inference.FinishOf(native) <= inference.FinishUnknown {
		native = ""
	}
	for _, reason := range []string{c.finish, native} {
		if reason != "" && (a.finish == "" || inference.FinishOf(reason) >= inference.FinishOf(a.finish)) {
			a.finish = reason
		}
	}
}

func (a *answer) addMessage(c *choice) {
	m := &c.delta
	switch {
	case c.whole && (c.message == nil || a.text.Len() > 0 || len(a.calls) > 0):
		a.other.addMessage(c.message)
		return // some streams repeat the whole message at their end
	case c.whole:
		m = c.message
	default:
		a.other.addMessage(c.message)
	}
	a.addReasoning(m)
	a.addContent(m.content)
	a.refusal.Add(loose.FragmentOf(m.refusal))
	if loose.IsObject(m.extraContent) {
		a.addExtra("extra_content", m.extraContent)
	}
	a.other.addFunctionCall(m.function, m.arguments)
	for _, call := range m.calls {
		if len(a.calls) == maxCalls {
			a.limit = &jsonlimit.LimitError{What: "tool calls", Max: maxCalls}
			return
		}
		a.addCall(call, c.whole)
	}
}

// addExtra stores a member of the message for replay.
func (a *answer) addExtra(name string, value json.RawMessage) {
	if a.extra == nil {
		a.extra = map[string]json.RawMessage{}
	}
	a.extra[name] = value
}

// addReasoning stores all reasoning fields for replay, and emits one of them as a delta: servers
// that send two fields send the same text in both.
func (a *answer) addReasoning(m *message) {
	content, reasoning := loose.FragmentOf(m.reasoningContent), loose.FragmentOf(m.reasoning)
	a.remember("reasoning_content", content)
	a.remember("reasoning", reasoning)
	var details loose.List
	_ = details.UnmarshalJSON(m.reasoningDetails) // absent or of another type: none
	for _, piece := range details {
		if len(a.details) == maxParts {
			a.limit = &jsonlimit.LimitError{What: "parts", Max: maxParts}
			return
		}
		a.addDetail(piece)
	}
	if content != "" || reasoning != "" || len(a.details) > 0 {
		a.speech.Reasoned()
	}
	a.think(cmp.Or(content, reasoning))
}

func (a *answer) remember(field string, f loose.Fragment) {
	if f == "" {
		return
	}
	if a.replay[field] == nil {
		a.replay[field] = &loose.Growing{}
	}
	a.replay[field].Add(f)
}

func (a *answer) think(f loose.Fragment) { a.pass(inference.DeltaThinking, a.reasoning.Add(f)) }

func (a *answer) say(f loose.Fragment) { a.speech.Add(a.text.Add(f)) }

// spoke takes a part of the content: what the model says, or thinks.
func (a *answer) spoke(kind inference.DeltaKind, text string) {
	if kind == inference.DeltaThinking {
		text = a.reasoning.Add(loose.Fragment(text))
	}
	a.pass(kind, text)
}

func (a *answer) pass(kind inference.DeltaKind, text string) {
	if text != "" {
		a.onDelta(inference.Delta{Kind: kind, Text: text})
	}
}

// end completes the answer: it adds the halves of surrogate pairs that were held back and whose other half did not
// come. maxTokens is the limit of the request; 0: none.
func (a *answer) end(maxTokens int) {
	a.pass(inference.DeltaThinking, a.reasoning.End())
	a.speech.Add(a.text.End())
	a.refusal.End()
	for _, text := range a.replay {
		text.End()
	}
	for _, d := range a.details {
		for _, text := range d.grown {
			text.End()
		}
	}
	for _, call := range a.calls {
		call.scan.add(call.arguments.End())
	}
	a.settleDoubts()
	a.settleOthers()
	a.speech.Close(a.cut(maxTokens))
}

// addContent adds content: a text, or parts with text and reasoning. The parts are stored for
// replay.
func (a *answer) addContent(content json.RawMessage) {
	content = bytes.TrimSpace(content)
	if len(content) == 0 || content[0] != '[' {
		f := loose.FragmentOf(content)
		a.say(f)
		if f != "" && a.content != nil {
			a.content = append(a.content, textPart(loose.Scalar(content)))
		}
		return
	}
	if a.content == nil && a.text.Len() > 0 {
		a.content = append(a.content, textPart(a.text.String()))
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return
	}
	for _, part := range parts {
		if len(a.content) == maxParts {
			a.limit = &jsonlimit.LimitError{What: "parts", Max: maxParts}
			return
		}
		if loose.IsObject(part) {
			a.content = append(a.content, part)
		}
		said, thought := loose.Flatten(part)
		a.say(said)
		if thought != "" {
			a.speech.Reasoned()
		}
		a.think(thought)
	}
}

func textPart(s string) json.RawMessage {
	part, _ := json.Marshal(map[string]string{"type": "text", "text": s}) //nolint:errchkjson // strings always marshal
	return part
}

func (a *answer) addUsage(u *usage) {
	if !u.given {
		return
	}
	var cacheHit loose.Count
	_ = cacheHit.UnmarshalJSON(u.cacheHit) // absent or of another type: 0
	a.reported = true
	a.usage = turnkeeper.Usage{
		InputTokens: tokens(u.input), OutputTokens: tokens(u.output),
		CachedTokens:     max(tokens(u.cached), int64(cacheHit)),
		CacheWriteTokens: tokens(u.cacheWrite), ReasoningTokens: tokens(u.reasoning),
	}
	if beside := a.usage.CachedTokens + a.usage.CacheWriteTokens; beside > a.usage.InputTokens {
		a.usage.InputTokens += beside // some servers count only the rest
	}
	a.cost = loose.Decimal(u.cost)
}

// tokens returns n, or 0 if it is negative or not below 2^53.
func tokens(n int64) int64 {
	if n < 0 || n >= 1<<53 {
		return 0
	}
	return n
}

// raw returns the assistant message as it must be replayed to the provider, or nil if it has
// only text and plain calls.
func (a *answer) raw() json.RawMessage {
	m := map[string]any{}
	for name, value := range a.replay {
		m[name] = value.String()
	}
	for name, value := range a.extra {
		m[name] = value
	}
	if len(a.details) > 0 {
		m["reasoning_details"] = wholeDetails(a.details)
	}
	if len(a.content) > 0 && a.reasoning.Len() > 0 {
		m["content"] = a.content
	}
	if calls, needed := a.rawCalls(); needed {
		m["tool_calls"] = calls
	}
	if len(m) == 0 {
		return nil
	}
	m["role"] = "assistant"
	data, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return data
}

// rawCalls returns the calls with their extra members. needed is false if there are none.
func (a *answer) rawCalls() (calls []map[string]any, needed bool) {
	if !slices.ContainsFunc(a.calls, func(c *callParts) bool { return len(c.object)+len(c.function) > 0 }) {
		return nil, false
	}
	for _, c := range a.calls {
		function := map[string]any{"name": c.name, "arguments": c.arguments.String()}
		for name, value := range c.function {
			function[name] = value
		}
		call := map[string]any{"id": c.id, "type": "function", "function": function}
		for name, value := range c.object {
			call[name] = value
		}
		calls = append(calls, call)
	}
	return calls, true
}

// merge copies the members of from that are not null to into.
func merge(into *map[string]json.RawMessage, from map[string]json.RawMessage) {
	for name, value := range from {
		if loose.IsNull(value) {
			delete(from, name)
		}
	}
	if len(from) == 0 {
		return
	}
	if *into == nil {
		*into = map[string]json.RawMessage{}
	}
	maps.Copy(*into, from)
}

package completions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// An answer collects the chunks of a stream, or one completion.
type answer struct {
	id, model string
	text      loose.Growing
	refusal   loose.Growing
	reasoning loose.Growing
	calls     []*callParts // in execution order
	arrived   []*callParts // the same calls, in order of arrival
	finish    string
	usage     turnkeeper.Usage
	reported  bool // usage was reported
	cost      string
	choices   int // number of chunks with a choice

	content []json.RawMessage         // parts, if the content came as parts
	replay  map[string]*loose.Growing // reasoning text by the name of its field
	details []*detail                 // reasoning_details
	extra   map[string]json.RawMessage

	declared map[string]bool // names of tools
	onDelta  func(inference.Delta)
}

// callParts collects the pieces of one tool call.
type callParts struct {
	id, name  string
	index     index
	arguments loose.Growing
	sent      int                        // bytes of arguments that were sent as deltas
	announced bool                       // the name was sent as a delta
	object    map[string]json.RawMessage // members other than id, type, index and function
	function  map[string]json.RawMessage // members of function other than name and arguments
}

func newAnswer(tools []inference.ToolDefinition, onDelta func(inference.Delta)) *answer {
	if onDelta == nil {
		onDelta = func(inference.Delta) {}
	}
	a := &answer{onDelta: onDelta, declared: map[string]bool{}, replay: map[string]*loose.Growing{}}
	for _, tool := range tools {
		a.declared[tool.Name] = true
	}
	return a
}

// add adds a chunk or a whole completion, which has the same members. embedded is the error
// object of the chunk or its choice, if it has one. ok is false if data is not a chunk. data may
// change after the call.
func (a *answer) add(data []byte) (embedded []byte, ok bool) {
	if len(data) == 0 || data[0] != '{' || !json.Valid(data) {
		return nil, false
	}
	var id, model string
	var choices, usage json.RawMessage
	for name, value := range loose.Members(data) {
		switch string(name) {
		case "error":
			if !loose.IsNull(value) {
				return data, true
			}
		case "id":
			id = loose.Scalar(value)
		case "model":
			model = loose.Scalar(value)
		case "choices":
			choices = value
		case "usage":
			usage = value
		}
	}
	a.id = cmp.Or(a.id, id)
	a.model = cmp.Or(a.model, model)
	a.addUsage(usage)
	for c := range loose.Elements(choices) {
		if embedded := a.addChoice(c); embedded != nil {
			return embedded, true
		}
	}
	return nil, true
}

// addChoice adds the first choice and ignores others. It returns an error that the choice has.
func (a *answer) addChoice(c json.RawMessage) (embedded []byte) {
	if c[0] != '{' {
		return nil
	}
	var number index
	var finish string
	var delta, message json.RawMessage
	failed := false
	for name, value := range loose.Members(c) {
		switch string(name) {
		case "index":
			number = readIndex(value)
		case "error":
			failed = !loose.IsNull(value)
		case "finish_reason":
			finish = loose.Scalar(value)
		case "delta":
			delta = value
		case "message":
			message = value
		}
	}
	switch {
	case number.n != 0:
		return nil
	case failed:
		return c
	case finish == "error":
		return []byte(`{"error":{"message":"the model's answer ended with finish_reason \"error\""}}`)
	}
	a.choices++
	if isObject(delta) {
		a.addMessage(delta, false)
	} else if isObject(message) && a.text.Len() == 0 && len(a.calls) == 0 { // some streams repeat the whole message at their end
		a.addMessage(message, true)
	}
	a.finish = cmp.Or(finish, a.finish)
	return nil
}

func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }

// addMessage adds a delta, or the whole message.
func (a *answer) addMessage(m json.RawMessage, whole bool) {
	var content, refusal, reasoningContent, reasoning, details, extra, calls json.RawMessage
	for name, value := range loose.Members(m) {
		switch string(name) {
		case "content":
			content = value
		case "refusal":
			refusal = value
		case "reasoning_content":
			reasoningContent = value
		case "reasoning":
			reasoning = value
		case "reasoning_details":
			details = value
		case "extra_content":
			extra = value
		case "tool_calls":
			calls = value
		}
	}
	a.addReasoning(loose.FragmentOf(reasoningContent), loose.FragmentOf(reasoning), details)
	a.addContent(content)
	a.refusal.Add(loose.FragmentOf(refusal))
	if isObject(extra) {
		keep(&a.extra, "extra_content", extra)
	}
	for call := range loose.Elements(calls) {
		if isObject(call) {
			a.addCall(readPiece(call), whole)
		}
	}
}

// keep stores a copy of a member.
func keep(in *map[string]json.RawMessage, name string, value json.RawMessage) {
	if *in == nil {
		*in = map[string]json.RawMessage{}
	}
	(*in)[name] = bytes.Clone(value)
}

// addReasoning stores all reasoning fields for replay, and emits one of them as a delta: servers
// that send two fields send the same text in both.
func (a *answer) addReasoning(content, reasoning loose.Fragment, details json.RawMessage) {
	a.remember("reasoning_content", content)
	a.remember("reasoning", reasoning)
	if len(details) > 0 {
		var list loose.List
		_ = list.UnmarshalJSON(details) // of another type: none
		for _, piece := range list {
			a.addDetail(piece)
		}
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

func (a *answer) say(f loose.Fragment) { a.pass(inference.DeltaText, a.text.Add(f)) }

func (a *answer) pass(kind inference.DeltaKind, text string) {
	if text != "" {
		a.onDelta(inference.Delta{Kind: kind, Text: text})
	}
}

// end adds the halves of surrogate pairs that were held back and whose other half did not come.
func (a *answer) end() {
	a.pass(inference.DeltaThinking, a.reasoning.End())
	a.pass(inference.DeltaText, a.text.End())
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
		call.arguments.End()
	}
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
		if loose.IsObject(part) {
			a.content = append(a.content, bytes.Clone(part))
		}
		said, thought := loose.Flatten(part)
		a.say(said)
		a.think(thought)
	}
}

func textPart(s string) json.RawMessage {
	part, _ := json.Marshal(map[string]string{"type": "text", "text": s}) //nolint:errchkjson // strings always marshal
	return part
}

func (a *answer) addUsage(usage json.RawMessage) {
	if !isObject(usage) {
		return
	}
	var u turnkeeper.Usage
	var cacheHit int64
	a.reported, a.cost = true, ""
	for name, value := range loose.Members(usage) {
		switch string(name) {
		case "prompt_tokens":
			u.InputTokens = count(value)
		case "completion_tokens":
			u.OutputTokens = count(value)
		case "prompt_tokens_details":
			u.CachedTokens = countIn(value, "cached_tokens")
		case "completion_tokens_details":
			u.ReasoningTokens = countIn(value, "reasoning_tokens")
		case "prompt_cache_hit_tokens":
			cacheHit = count(value)
		case "cost":
			a.cost = loose.Decimal(value)
		}
	}
	u.CachedTokens = max(u.CachedTokens, cacheHit)
	a.usage = u
}

func count(value json.RawMessage) int64 {
	var n loose.Count
	_ = n.UnmarshalJSON(value) // never fails
	return int64(n)
}

// countIn returns a member of an object as a count; 0: there is none.
func countIn(object json.RawMessage, member string) (n int64) {
	for name, value := range loose.Members(object) {
		if string(name) == member {
			n = count(value)
		}
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
	for _, c := range a.calls {
		function := map[string]any{"name": c.name, "arguments": c.arguments.String()}
		for name, value := range c.function {
			function[name] = value
		}
		call := map[string]any{"id": c.id, "type": "function", "function": function}
		for name, value := range c.object {
			call[name] = value
		}
		needed = needed || len(c.object) > 0 || len(c.function) > 0
		calls = append(calls, call)
	}
	return calls, needed
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

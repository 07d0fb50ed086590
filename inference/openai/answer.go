package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// An answer is what a provider said, put together from the chunks of a stream
// or taken from one whole completion, before anybody judged it.
type answer struct {
	id, model string
	text      growing
	refusal   growing
	reasoning growing
	calls     []*callParts // in the order in which they run
	arrived   []*callParts // the same in the order in which they began
	finish    string
	usage     turnkeeper.Usage
	reported  bool // usage was
	cost      string
	choices   int // chunks that had a choice

	content []json.RawMessage   // parts, when the content came as such
	replay  map[string]*growing // reasoning text by the name of its field
	details []*detail           // reasoning_details
	extra   map[string]json.RawMessage

	declared map[string]bool // names of tools
	onDelta  func(inference.Delta)
}

// callParts is one tool call as it grows.
type callParts struct {
	id, name  string
	index     index
	arguments growing
	sent      int                        // bytes of arguments passed on
	announced bool                       // its name was passed on
	object    map[string]json.RawMessage // members of the call beside id, type, index and function
	function  map[string]json.RawMessage // of its function beside name and arguments
}

func newAnswer(tools []inference.ToolDefinition, onDelta func(inference.Delta)) *answer {
	if onDelta == nil {
		onDelta = func(inference.Delta) {}
	}
	a := &answer{onDelta: onDelta, declared: map[string]bool{}, replay: map[string]*growing{}}
	for _, tool := range tools {
		a.declared[tool.Name] = true
	}
	return a
}

type wireAnswer struct {
	ID      text            `json:"id"`
	Model   text            `json:"model"`
	Choices list            `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type wireChoice struct {
	Index   index           `json:"index"`
	Delta   json.RawMessage `json:"delta"`
	Message json.RawMessage `json:"message"`
	Finish  text            `json:"finish_reason"`
	Error   json.RawMessage `json:"error"`
}

type wireMessage struct {
	Content          json.RawMessage `json:"content"`
	Refusal          fragment        `json:"refusal"`
	ReasoningContent fragment        `json:"reasoning_content"`
	Reasoning        fragment        `json:"reasoning"`
	ReasoningDetails list            `json:"reasoning_details"`
	ExtraContent     json.RawMessage `json:"extra_content"`
	ToolCalls        list            `json:"tool_calls"`
}

// add takes in one chunk, or a whole completion. embedded is the error object
// that stands in its place or in its choice; the chunk is then not an answer.
func (a *answer) add(data []byte) (embedded []byte, ok bool) {
	var w wireAnswer
	if !isObject(data) || json.Unmarshal(data, &w) != nil {
		return nil, false
	}
	if !isNull(w.Error) {
		return data, true
	}
	a.id = first(a.id, string(w.ID))
	a.model = first(a.model, string(w.Model))
	a.addUsage(w.Usage)
	for _, raw := range w.Choices {
		var c wireChoice
		if json.Unmarshal(raw, &c) != nil || c.Index.n != 0 {
			continue
		}
		if !isNull(c.Error) {
			return raw, true
		}
		if c.Finish == "error" {
			return []byte(`{"error":{"message":"the model's answer ended with finish_reason \"error\""}}`), true
		}
		a.choices++
		a.addMessage(c)
		a.finish = first(string(c.Finish), a.finish)
	}
	return nil, true
}

func (a *answer) addMessage(c wireChoice) {
	data, whole := c.Delta, false
	if !isObject(data) {
		data, whole = c.Message, true
		if a.text.Len() > 0 || len(a.calls) > 0 {
			return // a stream that ends with the whole message once more
		}
	}
	var m wireMessage
	if !isObject(data) || json.Unmarshal(data, &m) != nil {
		return
	}
	a.addReasoning(m)
	a.addContent(m.Content)
	a.refusal.add(m.Refusal)
	if isObject(m.ExtraContent) {
		a.keep("extra_content", m.ExtraContent)
	}
	for _, call := range m.ToolCalls {
		a.addCall(call, whole)
	}
}

func (a *answer) keep(name string, value json.RawMessage) {
	if a.extra == nil {
		a.extra = map[string]json.RawMessage{}
	}
	a.extra[name] = bytes.Clone(value)
}

// addReasoning keeps every field for replay, and shows one of them: servers
// that send both send the same text twice.
func (a *answer) addReasoning(m wireMessage) {
	a.remember("reasoning_content", m.ReasoningContent)
	a.remember("reasoning", m.Reasoning)
	for _, piece := range m.ReasoningDetails {
		a.addDetail(piece)
	}
	a.think(cmp.Or(m.ReasoningContent, m.Reasoning))
}

func (a *answer) remember(field string, f fragment) {
	if f == "" {
		return
	}
	if a.replay[field] == nil {
		a.replay[field] = &growing{}
	}
	a.replay[field].add(f)
}

func (a *answer) think(f fragment) { a.pass(inference.DeltaThinking, a.reasoning.add(f)) }

func (a *answer) say(f fragment) { a.pass(inference.DeltaText, a.text.add(f)) }

func (a *answer) pass(kind inference.DeltaKind, text string) {
	if text != "" {
		a.onDelta(inference.Delta{Kind: kind, Text: text})
	}
}

// end takes in what texts held back for a fragment that did not come.
func (a *answer) end() {
	a.pass(inference.DeltaThinking, a.reasoning.end())
	a.pass(inference.DeltaText, a.text.end())
	a.refusal.end()
	for _, text := range a.replay {
		text.end()
	}
	for _, d := range a.details {
		for _, text := range d.grown {
			text.end()
		}
	}
	for _, call := range a.calls {
		call.arguments.end()
	}
}

// addContent takes text, or parts: text parts are the text, thinking parts
// the reasoning, and the parts themselves are kept for replay.
func (a *answer) addContent(content json.RawMessage) {
	content = bytes.TrimSpace(content)
	if len(content) == 0 || content[0] != '[' {
		f := fragmentOf(content)
		a.say(f)
		if f != "" && a.content != nil {
			a.content = append(a.content, textPart(scalar(content)))
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
		if isObject(part) {
			a.content = append(a.content, bytes.Clone(part))
		}
		said, thought := flatten(part)
		a.say(said)
		a.think(thought)
	}
}

func textPart(s string) json.RawMessage {
	part, _ := json.Marshal(map[string]string{"type": "text", "text": s}) //nolint:errchkjson // strings always marshal
	return part
}

// flatten gives the text of a part, and what of it is reasoning.
func flatten(part json.RawMessage) (said, thought fragment) {
	if !isObject(part) {
		return fragmentOf(part), ""
	}
	var p struct {
		Type     text            `json:"type"`
		Text     fragment        `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if json.Unmarshal(part, &p) != nil {
		return "", ""
	}
	if p.Type != "thinking" && p.Type != "reasoning" {
		return p.Text, ""
	}
	var inner []json.RawMessage
	if json.Unmarshal(p.Thinking, &inner) != nil {
		return "", p.Text + fragmentOf(bytes.TrimSpace(p.Thinking))
	}
	var all strings.Builder
	for _, item := range inner {
		said, _ := flatten(item)
		all.WriteString(string(said))
	}
	return "", p.Text + fragment(all.String())
}

func (a *answer) addUsage(data json.RawMessage) {
	if !isObject(data) {
		return
	}
	var w struct {
		Prompt     count `json:"prompt_tokens"`
		Completion count `json:"completion_tokens"`
		Input      struct {
			Cached count `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CacheHit count `json:"prompt_cache_hit_tokens"`
		Output   struct {
			Reasoning count `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
		Cost json.RawMessage `json:"cost"`
	}
	// A details member of the wrong type leaves the rest readable.
	_ = json.Unmarshal(data, &w)
	a.reported = true
	a.usage = turnkeeper.Usage{
		InputTokens: int64(w.Prompt), OutputTokens: int64(w.Completion),
		CachedTokens: int64(max(w.Input.Cached, w.CacheHit)), ReasoningTokens: int64(w.Output.Reasoning),
	}
	a.cost = decimal(w.Cost)
}

// raw is the assistant message as the provider needs it back, or nil when it
// held nothing but text and plain calls.
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
	if calls, worth := a.rawCalls(); worth {
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

// rawCalls are the calls with what the wire carried beside the usual, and
// whether there was anything.
func (a *answer) rawCalls() (calls []map[string]any, worth bool) {
	for _, c := range a.calls {
		function := map[string]any{"name": c.name, "arguments": c.arguments.String()}
		for name, value := range c.function {
			function[name] = value
		}
		call := map[string]any{"id": c.id, "type": "function", "function": function}
		for name, value := range c.object {
			call[name] = value
		}
		worth = worth || len(c.object) > 0 || len(c.function) > 0
		calls = append(calls, call)
	}
	return calls, worth
}

func merge(into *map[string]json.RawMessage, from map[string]json.RawMessage) {
	for name, value := range from {
		if isNull(value) {
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

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

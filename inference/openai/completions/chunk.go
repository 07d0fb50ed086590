package completions

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/jsonlimit"
)

// A chunk is what an answer takes from a chunk of a stream, or from a whole completion. Texts and what may be of any
// type are JSON; nil: absent.
type chunk struct {
	id, model []byte // decoded
	usage     usage
	choices   []choice // those with index 0
	failed    bool     // it has an error object
	mangled   bool     // it has bytes that are not UTF-8
}

// A usage is the usage of a chunk.
type usage struct {
	given                                        bool
	input, output, cached, cacheWrite, reasoning int64
	cacheHit, cost                               json.RawMessage
}

// A choice is a choice of a chunk.
type choice struct {
	finish  string
	native  json.RawMessage // native_finish_reason
	failure []byte          // the choice, if it has an error object; nil: it has none
	delta   message
	whole   bool     // it has no delta
	message *message // nil: none
}

// A message is a delta, or a whole message.
type message struct {
	content, refusal, reasoning, reasoningContent json.RawMessage
	reasoningDetails, extraContent                json.RawMessage
	function                                      string          // name of function_call
	arguments                                     json.RawMessage // of function_call
	calls                                         []piece
}

// A decoder decodes the chunks of an answer: plain ones itself, all others with the library.
type decoder struct {
	plain   *plain                   // nil: the library decodes all
	chunk   chunk                    // the newest
	library *sdk.ChatCompletionChunk // one for all, because it is large; nil: it was not needed
}

// decode returns the chunk in data, until the next call. It returns nil if data is not a chunk. limit is the limit that
// data exceeds; nil: none.
func (d *decoder) decode(data []byte) (c *chunk, limit error) {
	if d.plain != nil && d.plain.read(data, &d.chunk) {
		return &d.chunk, nil
	}
	err := jsonlimit.ModelMessage.Check(data)
	if limit, beyond := errors.AsType[*jsonlimit.LimitError](err); beyond {
		return nil, limit
	}
	if d.library == nil {
		d.library = &sdk.ChatCompletionChunk{}
	}
	*d.library = sdk.ChatCompletionChunk{}
	if ok := err == nil && d.library.UnmarshalJSON(data) == nil; !ok {
		return nil, nil
	}
	d.chunk = chunkOf(d.library)
	d.chunk.mangled = !utf8.Valid(data)
	return &d.chunk, nil
}

// chunkOf returns what an answer takes from the library's chunk.
func chunkOf(from *sdk.ChatCompletionChunk) chunk {
	c := chunk{
		id: []byte(from.ID), model: []byte(from.Model), usage: usageOf(&from.Usage),
		failed: !loose.IsNull(extra(from.JSON.ExtraFields, "error")),
	}
	for i := range from.Choices {
		if it := &from.Choices[i]; it.Index == 0 && !loose.IsNull([]byte(it.RawJSON())) {
			c.choices = append(c.choices, choiceOf(it))
		}
	}
	return c
}

func usageOf(u *sdk.CompletionUsage) usage {
	return usage{
		given: loose.IsObject([]byte(u.RawJSON())), input: u.PromptTokens, output: u.CompletionTokens,
		cached: u.PromptTokensDetails.CachedTokens, cacheWrite: u.PromptTokensDetails.CacheWriteTokens,
		reasoning: u.CompletionTokensDetails.ReasoningTokens,
		cacheHit:  extra(u.JSON.ExtraFields, "prompt_cache_hit_tokens"), cost: extra(u.JSON.ExtraFields, "cost"),
	}
}

func choiceOf(from *sdk.ChatCompletionChunkChoice) choice {
	c := choice{
		finish: from.FinishReason, native: extra(from.JSON.ExtraFields, "native_finish_reason"),
		whole: !loose.IsObject([]byte(from.JSON.Delta.Raw())), delta: messageOf(&from.Delta),
	}
	if !loose.IsNull(extra(from.JSON.ExtraFields, "error")) {
		c.failure = []byte(from.RawJSON())
	}
	var whole sdk.ChatCompletionChunkChoiceDelta
	data := extra(from.JSON.ExtraFields, "message")
	if loose.IsObject(data) && whole.UnmarshalJSON(data) == nil { // json.Unmarshal would scan data twice more
		m := messageOf(&whole)
		c.message = &m
	}
	return c
}

//nolint:staticcheck // servers still send what the library calls deprecated
func messageOf(from *sdk.ChatCompletionChunkChoiceDelta) message {
	m := message{
		content: json.RawMessage(from.JSON.Content.Raw()), refusal: json.RawMessage(from.JSON.Refusal.Raw()),
		reasoning:        extra(from.JSON.ExtraFields, "reasoning"),
		reasoningContent: extra(from.JSON.ExtraFields, "reasoning_content"),
		reasoningDetails: extra(from.JSON.ExtraFields, "reasoning_details"),
		extraContent:     extra(from.JSON.ExtraFields, "extra_content"),
		function:         from.FunctionCall.Name,
		arguments:        json.RawMessage(from.FunctionCall.JSON.Arguments.Raw()),
	}
	for i := range from.ToolCalls {
		m.calls = append(m.calls, pieceOf(&from.ToolCalls[i]))
	}
	return m
}

func pieceOf(call *sdk.ChatCompletionChunkChoiceDeltaToolCall) piece {
	p := piece{
		index: index{int(call.Index), call.JSON.Index.Valid()}, id: call.ID, name: call.Function.Name,
		object: extras(call.JSON.ExtraFields), function: extras(call.Function.JSON.ExtraFields),
	}
	p.setArguments(json.RawMessage(call.Function.JSON.Arguments.Raw()))
	return p
}

// extra returns the JSON of a field that the library's type lacks.
func extra(fields map[string]respjson.Field, name string) json.RawMessage {
	return json.RawMessage(fields[name].Raw())
}

// extras returns the JSON of all fields that the library's type lacks; nil: there are none.
func extras(fields map[string]respjson.Field) map[string]json.RawMessage {
	if len(fields) == 0 {
		return nil
	}
	all := map[string]json.RawMessage{}
	for name, field := range fields {
		all[name] = json.RawMessage(field.Raw())
	}
	return all
}

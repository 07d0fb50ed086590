package messages

import (
	"cmp"
	"encoding/json"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// A usage adds up what the API reports. Its counts are of the whole answer, and one that is left out is unchanged.
type usage struct {
	input, read, written, output, thought int64

	reported bool
}

func (u *usage) add(data []byte) {
	if !loose.IsObject(data) {
		return
	}
	var reported struct {
		Input   loose.Count `json:"input_tokens"`
		Read    loose.Count `json:"cache_read_input_tokens"`
		Written loose.Count `json:"cache_creation_input_tokens"`
		Output  loose.Count `json:"output_tokens"`
		Details struct {
			Thought loose.Count `json:"thinking_tokens"`
		} `json:"output_tokens_details"`
	}
	_ = json.Unmarshal(data, &reported) // members of another type stay 0
	u.reported = true
	u.input = cmp.Or(int64(reported.Input), u.input)
	u.read = cmp.Or(int64(reported.Read), u.read)
	u.written = cmp.Or(int64(reported.Written), u.written)
	u.output = cmp.Or(int64(reported.Output), u.output)
	u.thought = cmp.Or(int64(reported.Details.Thought), u.thought)
}

// total returns the usage. The API's own count of the input is only of what its cache has nothing to do with.
func (u usage) total() turnkeeper.Usage {
	return turnkeeper.Usage{InputTokens: u.input + u.read + u.written, OutputTokens: u.output, CachedTokens: u.read,
		CacheWriteTokens: u.written, ReasoningTokens: u.thought}
}

// normalize returns an answer as a Response, or an error if it is unusable. The content decides, not the stop reason.
// maxTokens is the limit of the request; 0: none.
func normalize(a *answer, maxTokens int) (inference.Response, *inference.Error) {
	res := inference.Response{
		ID: a.id, Model: a.model, Text: a.speech.Text(), Reasoning: a.reasoning.String(), FinishReason: a.finish,
		Usage: a.usage.total(), Raw: a.raw(), Doubt: a.doubt,
	}
	cut := a.cut(maxTokens)
	before, markup, unparsed := a.unparsed(res.Text, cut)
	if unparsed && len(a.calls) > 0 {
		a.speech.Shorten(before)
		res.Text, res.Doubt = before, cmp.Or(res.Doubt, doubtMarkup)
	}
	for _, b := range a.calls {
		res.Calls = append(res.Calls, inference.Call{ID: b.id, Name: b.name, Arguments: b.input.String(),
			Truncated: cut})
	}
	switch {
	case unparsed && len(res.Calls) == 0:
		return res, markup.Unparsed()
	case len(res.Calls) > 0 || !inference.Blank(res.Text):
		if inference.FinishOf(a.finish) == inference.FinishFiltered {
			res.Refusal = a.refusal
		}
		return res, nil
	}
	return res, a.empty()
}

// unparsed looks for tool calls in the text of an answer to a request with tools.
func (a *answer) unparsed(text string, cut bool) (before string, m inference.Markup, ok bool) {
	if len(a.tools) == 0 {
		return "", m, false
	}
	return inference.FindMarkup(text, a.tools, cut)
}

// cut reports whether the answer may be incomplete. None of its calls may run then: the last one may be truncated, and
// the model might have added more.
func (a *answer) cut(maxTokens int) bool {
	return inference.FinishOf(a.finish) >= inference.FinishCut ||
		maxTokens > 0 && a.usage.output >= int64(maxTokens)
}

// overflow is the stop reason of an answer that filled the context window.
const overflow = "model_context_window_exceeded"

// empty returns the error of an answer without text and calls.
func (a *answer) empty() *inference.Error {
	switch finish := inference.FinishOf(a.finish); {
	case finish == inference.FinishFiltered && a.refusal != "":
		return &inference.Error{Class: inference.ClassRefused, Code: a.finish,
			Detail: "the model refused: " + a.refusal}
	case finish == inference.FinishFiltered:
		return &inference.Error{Class: inference.ClassRefused, Code: a.finish,
			Detail: "the provider's filter stopped the answer"}
	case a.finish == overflow, finish == inference.FinishCut && a.usage.reported && a.usage.output == 0:
		return &inference.Error{Class: inference.ClassContextOverflow, Code: a.finish,
			Detail: "the request left no room for an answer"}
	}
	return &inference.Error{Class: inference.ClassBadOutput, Code: "empty",
		Detail: "the model said nothing and called nothing (stop reason " + a.finish + ")"}
}

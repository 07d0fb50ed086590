package completions

import (
	"cmp"

	"turnkeeper/inference"
)

// normalize returns an answer as a Response, or an error if it is unusable. The content
// decides, not the finish reason: calls count even after "stop", and "tool_calls" without
// calls is an empty answer. maxTokens is the limit of the request; 0: none.
func normalize(a *answer, maxTokens int) (inference.Response, *inference.Error) {
	res := inference.Response{
		ID: a.id, Model: a.model,
		Text: a.speech.Text(), Reasoning: a.reasoning.String(), Refusal: a.refusal.String(),
		FinishReason: a.finish, Usage: a.usage, Cost: a.cost, Raw: a.raw(), Doubt: a.doubt,
	}
	cut := a.cut(maxTokens)
	before, markup, unparsed := a.unparsed(res.Text, cut)
	if unparsed && len(a.calls) > 0 {
		a.speech.Shorten(before)
		res.Text, res.Doubt = before, cmp.Or(res.Doubt, doubtMarkup)
	}
	for _, c := range a.calls {
		res.Calls = append(res.Calls, inference.Call{
			ID: c.id, Name: c.name, Arguments: c.arguments.String(), Truncated: cut,
		})
	}
	switch {
	case a.choices == 0:
		return res, &inference.Error{Class: inference.ClassTransport, ByRequest: true,
			Detail: "the answer has no choice"}
	case a.finish == "" && !a.ended():
		return res, &inference.Error{Class: inference.ClassTransport, ByRequest: true,
			Detail: "the answer ended without a finish reason: it was cut"}
	case unparsed && len(res.Calls) == 0:
		return res, markup.Unparsed()
	case len(res.Calls) > 0 || !inference.Blank(res.Text):
		return res, nil
	}
	return res, a.empty(res)
}

// doubtMarkup is a reason for Response.Doubt.
const doubtMarkup = "the server parsed a part of the calls, and another stands in the text"

// unparsed looks for tool calls in the text of an answer to a request with tools.
func (a *answer) unparsed(text string, cut bool) (before string, m inference.Markup, ok bool) {
	if len(a.tools) == 0 {
		return "", m, false
	}
	return inference.FindMarkup(text, a.tools, cut)
}

// ended reports whether an answer without a finish reason is whole: it came in one piece, the server said [DONE], or it
// reported the usage, which servers know at the end alone, and closed the connection as HTTP wants it.
func (a *answer) ended() bool { return a.done || a.framed && a.reported }

// cut reports whether the answer may be incomplete. None of its calls may run then: the last
// one may be truncated, and the model might have added more.
func (a *answer) cut(maxTokens int) bool {
	if inference.FinishOf(a.finish) >= inference.FinishCut {
		return true
	}
	return maxTokens > 0 && a.usage.OutputTokens >= int64(maxTokens)
}

// overflow is the finish reason of an answer that filled the context window.
const overflow = "model_context_window_exceeded"

// empty returns the error of an answer without text and calls.
func (a *answer) empty(res inference.Response) *inference.Error {
	switch {
	case res.Refusal != "":
		return &inference.Error{Class: inference.ClassRefused, Code: "refusal",
			Detail: "the model refused: " + res.Refusal}
	case inference.FinishOf(a.finish) == inference.FinishFiltered:
		return &inference.Error{Class: inference.ClassRefused, Code: "content_filter",
			Detail: "the provider's content filter stopped the answer"}
	case a.finish == overflow, inference.FinishOf(a.finish) == inference.FinishCut && a.reported &&
		a.usage.OutputTokens == 0:
		return &inference.Error{Class: inference.ClassContextOverflow, Code: a.finish,
			Detail: "the request left no room for an answer"}
	}
	return &inference.Error{
		Class: inference.ClassBadOutput, Code: "empty",
		Detail: "the model said nothing and called nothing (finish reason " + a.finish + ")",
	}
}

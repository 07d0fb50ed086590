package completions

import "turnkeeper/inference"

// normalize returns an answer as a Response, or an error if it is unusable. The content
// decides, not the finish reason: calls count even after "stop", and "tool_calls" without
// calls is an empty answer. maxTokens is the limit of the request; 0: none.
func normalize(a *answer, maxTokens int) (inference.Response, *inference.Error) {
	res := inference.Response{
		ID: a.id, Model: a.model,
		Text: a.text.String(), Reasoning: a.reasoning.String(), Refusal: a.refusal.String(),
		FinishReason: a.finish, Usage: a.usage, Cost: a.cost, Raw: a.raw(), Doubt: a.doubt,
	}
	cut := a.cut(maxTokens)
	for _, c := range a.calls {
		res.Calls = append(res.Calls, inference.Call{
			ID: c.id, Name: c.name, Arguments: c.arguments.String(), Truncated: cut,
		})
	}
	switch {
	case a.choices == 0:
		return res, &inference.Error{Class: inference.ClassTransport, ByRequest: true, Detail: "the answer has no choice"}
	case a.finish == "":
		return res, &inference.Error{Class: inference.ClassTransport, ByRequest: true, Detail: "the answer ended without a finish reason: it was cut"}
	case len(res.Calls) > 0 || !inference.Blank(res.Text):
		return res, nil
	}
	return res, a.empty(res)
}

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
		return &inference.Error{Class: inference.ClassRefused, Code: "refusal", Detail: "the model refused: " + res.Refusal}
	case inference.FinishOf(a.finish) == inference.FinishFiltered:
		return &inference.Error{Class: inference.ClassRefused, Code: "content_filter", Detail: "the provider's content filter stopped the answer"}
	case a.finish == overflow, inference.FinishOf(a.finish) == inference.FinishCut && a.reported && a.usage.OutputTokens == 0:
		return &inference.Error{Class: inference.ClassContextOverflow, Code: a.finish, Detail: "the request left no room for an answer"}
	}
	return &inference.Error{
		Class: inference.ClassBadOutput, Code: "empty",
		Detail: "the model said nothing and called nothing (finish reason " + a.finish + ")",
	}
}

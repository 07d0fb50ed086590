package responses

import (
	"cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// unnamed is the name of a call without one.
const unnamed = "unnamed_call"

// checkCalls completes the calls of the whole answer.
func (a *answer) checkCalls() {
	seen := map[inference.Call]bool{}
	for n := range a.final {
		call := &a.final[n]
		if call.name == "" && call.streamed != nil {
			call.name = call.streamed.name
		}
		if call.name == "" {
			call.name = unnamed
			a.doubted(doubtNameless)
		}
		if call.id == "" && call.streamed != nil {
			call.id = call.streamed.callID
		}
		switch {
		case !loose.IsNull(call.arguments):
			text := loose.Growing{Alone: loose.Escaped}
			text.Add(loose.Arguments(call.arguments))
			text.End()
			call.text = text.String()
		case call.streamed != nil && call.streamed.given:
			call.text = call.streamed.arguments.String()
		default:
			a.doubted(doubtArguments)
		}
		same := inference.Call{ID: call.id, Name: call.name, Arguments: call.text}
		if call.id != "" && seen[same] {
			a.doubted(doubtTwice)
		}
		seen[same] = true
	}
}

// response returns the answer, or an error if it is unusable. The content decides, not the status: calls count
// whatever it is.
func (a *answer) response() (inference.Response, *inference.Error) {
	res := inference.Response{
		ID: a.id, Model: a.model, Text: a.speech.Text(), Reasoning: a.reasoning.String(), Refusal: a.refusal,
		FinishReason: a.finish, Usage: a.usage, Raw: a.raw,
	}
	before, markup, unparsed := "", inference.Markup{}, false
	if len(a.tools) > 0 {
		before, markup, unparsed = inference.FindMarkup(res.Text, a.tools, a.cut)
	}
	if unparsed && len(a.final) > 0 {
		a.speech.Shorten(before)
		res.Text = before
		a.doubted(doubtMarkup)
	}
	for _, c := range a.final {
		res.Calls = append(res.Calls, inference.Call{ID: c.id, Name: c.name, Arguments: c.text, Truncated: a.cut})
	}
	res.Doubt = a.doubt
	switch {
	case unparsed && len(res.Calls) == 0:
		return res, markup.Unparsed()
	case len(res.Calls) > maxCalls:
		return res, &inference.Error{Class: inference.ClassTransport, Detail: "the answer has too many tool calls"}
	case len(res.Calls) > 0 || !inference.Blank(res.Text):
		return res, nil
	}
	return res, a.empty()
}

// overflow is the status of an answer that filled the context window, of servers other than OpenAI's.
const overflow = "model_context_window_exceeded"

// empty returns the error of an answer without text and calls.
func (a *answer) empty() *inference.Error {
	switch finish := inference.FinishOf(a.finish); {
	case a.refusal != "":
		return &inference.Error{Class: inference.ClassRefused, Code: "refusal",
			Detail: "the model refused: " + a.refusal}
	case finish == inference.FinishFiltered:
		return &inference.Error{Class: inference.ClassRefused, Code: "content_filter",
			Detail: "the provider's content filter stopped the answer"}
	case a.finish == overflow, finish == inference.FinishCut && a.reported && a.usage.OutputTokens == 0:
		return &inference.Error{Class: inference.ClassContextOverflow, Code: a.finish,
			Detail: "the request left no room for an answer"}
	}
	return &inference.Error{Class: inference.ClassBadOutput, Code: "empty",
		Detail: "the model said nothing and called nothing (status " + cmp.Or(a.finish, "unknown") + ")"}
}

// announceAll sends the remaining parts of all calls, once the answer is complete.
func (a *answer) announceAll() {
	for n, call := range a.final {
		piece := call.streamed
		if piece == nil {
			piece = &item{ordinal: n}
		}
		if piece.name = cmp.Or(piece.name, call.name); piece.arguments.Len() == 0 {
			piece.arguments.Add(loose.Fragment(call.text))
		}
		a.announce(piece)
	}
}

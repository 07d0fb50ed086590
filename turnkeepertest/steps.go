package turnkeepertest

import (
	"context"
	"encoding/json"
	"fmt"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
)

// A Step is one answer of the scripted model. Text, Call, Calls and By make the usual
// ones; package inferencetest makes answers that fail, stall or break off.
type Step = inferencetest.Step

// Text returns an answer without calls, which ends the turn.
func Text(text string) Step {
	return inferencetest.Answer(inference.Response{Text: text, FinishReason: "stop"})
}

// Call returns an answer that calls one tool. arguments is a JSON object as text ("" is
// an empty one), or any value that encodes as one.
func Call(tool string, arguments any) Step { return Calls(ToolCall(tool, arguments)) }

// Calls returns an answer that calls several tools at once.
func Calls(calls ...inference.Call) Step {
	calls = append([]inference.Call(nil), calls...)
	for i := range calls {
		if calls[i].ID == "" {
			calls[i].ID = fmt.Sprintf("call_%d", i+1)
		}
	}
	return inferencetest.Answer(inference.Response{Calls: calls, FinishReason: "tool_calls"})
}

// ToolCall returns one call of an answer, for Calls.
func ToolCall(tool string, arguments any) inference.Call {
	text, ok := arguments.(string)
	if !ok {
		encoded, err := json.Marshal(arguments)
		if err != nil {
			panic(fmt.Sprintf("turnkeepertest: the arguments of %s cannot be encoded as JSON: %v", tool, err))
		}
		text = string(encoded)
	}
	return inference.Call{Name: tool, Arguments: text}
}

// By returns an answer that depends on the request.
func By(answer func(req inference.Request) Step) Step {
	return func(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
		return answer(req)(ctx, req, onDelta)
	}
}

package turnkeepertest

import (
	"context"
	"encoding/json"
	"fmt"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
)

// A Step is one answer of the scripted model. Text, Call, Calls and By make the
// usual ones; package inferencetest makes those that fail, stall or break off.
type Step = inferencetest.Step

// Text is an answer in words, which ends the turn.
func Text(text string) Step {
	return inferencetest.Answer(inference.Response{Text: text, FinishReason: "stop"})
}

// Call is an answer that calls one tool. arguments are a JSON object as text
// ("" is an empty one), or any value that encodes as one.
func Call(tool string, arguments any) Step { return Calls(ToolCall(tool, arguments)) }

// Calls is an answer that calls several tools at once.
func Calls(calls ...inference.Call) Step {
	calls = append([]inference.Call(nil), calls...)
	for i := range calls {
		if calls[i].ID == "" {
			calls[i].ID = fmt.Sprintf("call_%d", i+1)
		}
	}
	return inferencetest.Answer(inference.Response{Calls: calls, FinishReason: "tool_calls"})
}

// ToolCall is one call of an answer, for Calls.
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

// By is an answer that depends on what the model is shown.
func By(answer func(req inference.Request) Step) Step {
	return func(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
		return answer(req)(ctx, req, onDelta)
	}
}

package inference

import "strings"

// A Finish classifies the finish reason of an answer. The greater, the worse.
type Finish int

// The finishes.
const (
	FinishComplete Finish = iota
	FinishUnknown         // a reason that no known provider gives
	FinishCut             // the answer reached a limit or was broken off: it may lack its end
	FinishFiltered        // the provider's content filter stopped the answer
)

// finishes maps the finish reasons of providers, in lower case and with underscores, to what they mean.
var finishes = map[string]Finish{
	"stop": FinishComplete, "tool_calls": FinishComplete, "function_call": FinishComplete, "tool_call": FinishComplete, "tool_use": FinishComplete,
	"end_turn": FinishComplete, "eos": FinishComplete, "eos_token": FinishComplete, "stop_sequence": FinishComplete, "complete": FinishComplete,
	"completed": FinishComplete, "end": FinishComplete, "done": FinishComplete, "finished": FinishComplete,

	"length": FinishCut, "max_tokens": FinishCut, "max_output_tokens": FinishCut, "max_completion_tokens": FinishCut, "max_new_tokens": FinishCut,
	"max_length": FinishCut, "model_length": FinishCut, "token_limit": FinishCut, "context_length": FinishCut, "truncated": FinishCut,
	"incomplete": FinishCut, "model_context_window_exceeded": FinishCut, "insufficient_system_resource": FinishCut, "network_error": FinishCut,
	"abort": FinishCut, "aborted": FinishCut, "cancelled": FinishCut, "timeout": FinishCut, "malformed_function_call": FinishCut,
	"unexpected_tool_call": FinishCut, "pause_turn": FinishCut, "other": FinishCut,

	"sensitive": FinishFiltered, "safety": FinishFiltered, "recitation": FinishFiltered, "blocklist": FinishFiltered,
	"prohibited_content": FinishFiltered, "spii": FinishFiltered, "refusal": FinishFiltered,
}

// FinishOf returns the Finish of a provider's finish reason, in upper or lower case. A reason that it does not know is FinishUnknown.
func FinishOf(reason string) Finish {
	reason = strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(strings.TrimSpace(reason)))
	if strings.HasPrefix(reason, "content_filter") {
		return FinishFiltered
	}
	if finish, ok := finishes[reason]; ok {
		return finish
	}
	return FinishUnknown
}

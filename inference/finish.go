package inference

import (
	"slices"
	"strings"
)

// A Finish classifies the finish reason of an answer. The greater, the worse.
type Finish int

// The finishes.
const (
	FinishComplete Finish = iota
	FinishUnknown         // a reason that no known provider gives
	FinishCut             // the answer reached a limit or was broken off: it may lack its end
	FinishFiltered        // the provider's content filter stopped the answer
)

// finishes maps the finish reasons of providers, without limits, in lower case and with underscores, to what they mean.
var finishes = map[string]Finish{
	"stop": FinishComplete, "tool_calls": FinishComplete, "function_call": FinishComplete, "tool_call": FinishComplete,
	"tool_use": FinishComplete,
	"end_turn": FinishComplete, "eos": FinishComplete, "eos_token": FinishComplete, "stop_sequence": FinishComplete,
	"complete":  FinishComplete,
	"completed": FinishComplete, "end": FinishComplete, "done": FinishComplete, "finished": FinishComplete,

	"insufficient_system_resource": FinishCut, "network_error": FinishCut, "abort": FinishCut, "aborted": FinishCut,
	"cancelled": FinishCut, "timeout": FinishCut, "malformed_function_call": FinishCut,
	"unexpected_tool_call": FinishCut, "pause_turn": FinishCut, "other": FinishCut,
	"max_messages": FinishCut, "steered": FinishCut, // of the Responses API

	"sensitive": FinishFiltered, "safety": FinishFiltered, "recitation": FinishFiltered, "blocklist": FinishFiltered,
	"prohibited_content": FinishFiltered, "spii": FinishFiltered, "refusal": FinishFiltered,
}

// limits are the finish reasons of answers that reached their limit of tokens.
var limits = []string{
	"length", "max_tokens", "max_output_tokens", "max_completion_tokens", "max_new_tokens", "max_length",
	"model_length", "token_limit",
	"context_length", "truncated", "incomplete", "model_context_window_exceeded",
}

// ReachedLimit reports whether an answer with a finish reason of FinishCut reached its limit of tokens; otherwise it
// was broken off.
func ReachedLimit(reason string) bool { return slices.Contains(limits, normal(reason)) }

// FinishOf returns the Finish of a provider's finish reason, in upper or lower case. A reason that it does not know is
// FinishUnknown.
func FinishOf(reason string) Finish {
	reason = normal(reason)
	switch {
	case strings.HasPrefix(reason, "content_filter"):
		return FinishFiltered
	case slices.Contains(limits, reason):
		return FinishCut
	}
	if finish, ok := finishes[reason]; ok {
		return finish
	}
	return FinishUnknown
}

var underscores = strings.NewReplacer("-", "_", " ", "_")

// normal returns a finish reason in lower case and with underscores.
func normal(reason string) string {
	return underscores.Replace(strings.ToLower(strings.TrimSpace(reason)))
}

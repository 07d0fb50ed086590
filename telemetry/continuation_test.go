package telemetry_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

func TestContinuationErrors(t *testing.T) {
	t.Parallel()
	called := turnkeeper.Round{Number: 1, Calls: []turnkeeper.ToolCall{{Name: "look"}}}
	said := turnkeeper.Round{Number: 1, Text: "Hello."}
	for agent, c := range map[string]struct {
		rounds []turnkeeper.Round
		state  turnkeeper.TurnState
		stop   turnkeeper.StopReason
		want   string // counted stop reason; empty: none
	}{
		"first": {[]turnkeeper.Round{called}, turnkeeper.TurnDegraded, turnkeeper.StopInferenceError,
			"inference_error"},
		"retried": {[]turnkeeper.Round{called}, turnkeeper.TurnFailed, turnkeeper.StopInferenceError,
			"inference_error"},
		"later": {[]turnkeeper.Round{called, called}, turnkeeper.TurnDegraded, turnkeeper.StopInferenceError,
			"inference_error"},
		"budget":   {[]turnkeeper.Round{called}, turnkeeper.TurnDegraded, turnkeeper.StopBudget, "budget"},
		"lost":     {[]turnkeeper.Round{called}, turnkeeper.TurnDegraded, turnkeeper.StopWorkerLost, "worker_lost"},
		"none":     {nil, turnkeeper.TurnFailed, turnkeeper.StopInferenceError, ""},
		"answered": {[]turnkeeper.Round{called, said}, turnkeeper.TurnSucceeded, turnkeeper.StopNone, ""},
		"capped":   {[]turnkeeper.Round{called}, turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds, ""},
	} {
		told, err := start(t, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		_, end := told.Dispatch(t.Context(), agentturn.DispatchBegin{Record: &turnlog.Record{
			Turn: turnkeeper.Turn{ID: 1, Agent: agent}}})
		end(agentturn.DispatchEnd{Outcome: turnlog.Outcome{State: c.state, StopReason: c.stop}, Rounds: c.rounds})
		text := read(t, told)
		line := "\ntool_continuation_errors{agent=\"" + agent + "\",stop_reason=\"" + c.want + "\"} 1\n"
		if strings.Contains(text, "tool_continuation_errors{") != (c.want != "") || c.want != "" &&
			!strings.Contains(text, line) {
			t.Errorf("%s: want a count by %q:\n%s", agent, c.want, text)
		}
	}
}

// TestContinuationErrorsOfClosedTurns checks that a turn closed by the scheduler is counted if it was to continue after
// tools.
func TestContinuationErrorsOfClosedTurns(t *testing.T) {
	t.Parallel()
	told, err := start(t, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	told.WorkerLost("clerk", true, 1)
	told.WorkerLost("fresh", true, 0)
	told.WorkerLost("open", false, 2)
	text := read(t, told)
	if strings.Count(text, "\ntool_continuation_errors{") != 1 || !strings.Contains(text,
		`tool_continuation_errors{agent="clerk",stop_reason="worker_lost"} 1`) {
		t.Error(text)
	}
}

// TestTokensAndCostOfAModelCall checks what is counted of an answer.
func TestTokensAndCostOfAModelCall(t *testing.T) {
	t.Parallel()
	told, err := start(t, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, cost := range []string{"0.25", "", "0.5"} {
		_, end := told.ModelCall(t.Context(), agentturn.ModelBegin{Agent: "clerk", Provider: "p", Model: "m"})
		end(agentturn.ModelEnd{Response: inference.Response{Cost: cost, Usage: turnkeeper.Usage{
			InputTokens: 100, OutputTokens: 10, CachedTokens: 60, CacheWriteTokens: 30, ReasoningTokens: 4,
		}}})
	}
	text := read(t, told)
	const model = `{agent="clerk",model="m",provider="p"`
	for _, line := range []string{
		"turnkeeper_cost_total" + model + "} 0.75\n", "turnkeeper_tokens_total" + model + `,type="input"} 300`,
		"turnkeeper_tokens_total" + model + `,type="output"} 30`, "turnkeeper_tokens_total" + model +
			`,type="cached"} 180`,
		"turnkeeper_tokens_total" + model + `,type="cache_write"} 90`,
		"turnkeeper_tokens_total" + model + `,type="reasoning"} 12`,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%s is not in\n%s", line, text)
		}
	}
}

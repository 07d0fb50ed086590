package agentturn

import (
	"testing"
	"time"

	"turnkeeper"
)

// TestNextMove checks the loop's decision when no call is left to run.
func TestNextMove(t *testing.T) {
	answered := time.Unix(1000, 0)
	call := func(round, ordinal int, state turnkeeper.CallState, ended time.Duration) turnkeeper.ToolCall {
		c := turnkeeper.ToolCall{Key: turnkeeper.CallKey{Round: round, Ordinal: ordinal}, State: state}
		if state.Answered() {
			c.EndedAt = answered.Add(ended)
		}
		return c
	}
	const (
		running   = turnkeeper.CallRunning
		succeeded = turnkeeper.CallSucceeded
		failed    = turnkeeper.CallFailed
	)
	tests := []struct {
		name    string
		earlier []turnkeeper.ToolCall // calls of round 1
		newest  []turnkeeper.ToolCall // calls of round 2
		unseen  bool
		want    move
	}{
		{"all in the background", nil, []turnkeeper.ToolCall{call(2, 1, running, 0), call(2, 2, running, 0)},
			false, moveWait},
		{"one of them is ready", nil, []turnkeeper.ToolCall{call(2, 1, running, 0), call(2, 2, succeeded, 1)},
			false, moveAsk},
		{"some failed", nil, []turnkeeper.ToolCall{call(2, 1, running, 0), call(2, 2, failed, 1)}, false, moveAsk},
		{"all failed", nil, []turnkeeper.ToolCall{call(2, 1, failed, 1), call(2, 2, failed, 1)}, false, moveAsk},
		{"wait was called, and told", []turnkeeper.ToolCall{call(1, 1, running, 0)},
			[]turnkeeper.ToolCall{call(2, 1, succeeded, 1)}, false, moveAsk},
		{"wait was called with nothing running", []turnkeeper.ToolCall{call(1, 1, succeeded, -5)},
			[]turnkeeper.ToolCall{call(2, 1, succeeded, 1)}, false, moveAsk},
		{"an earlier one runs still", []turnkeeper.ToolCall{call(1, 1, running, 0)},
			[]turnkeeper.ToolCall{call(2, 1, running, 0)}, false, moveWait},
		{"an earlier one ended before the answer", []turnkeeper.ToolCall{call(1, 1, succeeded, -5)},
			[]turnkeeper.ToolCall{call(2, 1, running, 0)}, false, moveWait},
		{"an earlier one ended after it", []turnkeeper.ToolCall{call(1, 1, succeeded, 5)},
			[]turnkeeper.ToolCall{call(2, 1, running, 0)}, false, moveAsk},
		{"an earlier one failed after it", []turnkeeper.ToolCall{call(1, 1, failed, 5)},
			[]turnkeeper.ToolCall{call(2, 1, running, 0)}, false, moveAsk},
		{"an earlier one ended, and was taken here", []turnkeeper.ToolCall{call(1, 1, succeeded, 0)},
			[]turnkeeper.ToolCall{call(2, 1, running, 0)}, true, moveAsk},
		{"denied when it was planned", nil, []turnkeeper.ToolCall{call(2, 1, turnkeeper.CallDenied, -1),
			call(2, 2, running, 0)}, false, moveAsk},
		{"of unknown outcome", nil, []turnkeeper.ToolCall{call(2, 1, turnkeeper.CallUnknown, 5),
			call(2, 2, running, 0)}, false, moveAsk},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rounds := []turnkeeper.Round{
				{Number: 1, EndedAt: answered.Add(-10), Calls: test.earlier}, {Number: 2, EndedAt: answered,
					Calls: test.newest},
			}
			if got := nextMove(rounds, test.unseen || dirtyIn(rounds)); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

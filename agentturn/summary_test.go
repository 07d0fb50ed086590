package agentturn_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
)

func TestSummary(t *testing.T) {
	call := func(name string, state turnkeeper.CallState, shown string) turnkeeper.ToolCall {
		return turnkeeper.ToolCall{Name: name, State: state, Shown: shown, Preview: shown}
	}
	stopped := call("j", turnkeeper.CallCancelled, "tool error: 'j' was cancelled. It may or may not have happened.")
	stopped.Effect, stopped.Nonce = turnkeeper.EffectOnce, "n"
	tests := []struct {
		name   string
		output bool
		calls  []turnkeeper.ToolCall
		want   []string
	}{
		{"with what the tools returned", true, []turnkeeper.ToolCall{
			call("a", turnkeeper.CallSucceeded, "two lines"),
			call("b", turnkeeper.CallSucceeded, ""),
			call("c", turnkeeper.CallFailed, "tool error: no"),
			call("d", turnkeeper.CallUnknown, "outcome unknown: long text"),
			call("e", turnkeeper.CallSkipped, "skipped due to freshness dedupe: ..."),
			call("f", turnkeeper.CallSkipped, "the first result"),
			call("g", turnkeeper.CallSkipped, ""),
			call("h", turnkeeper.CallDenied, "denied: not enough time left in this turn"),
			call("i", turnkeeper.CallCancelled, "tool error: 'i' was cancelled"),
			stopped,
		}, []string{"Tool results: 2 succeeded, 3 failed, 2 unknown, 3 skipped.",
			"- a: two lines", "- b: done", "- c: failed: tool error: no",
			"- d: unknown: it may or may not have happened",
			"- e: skipped due to freshness dedupe: ...", "- f: skipped: the first result", "- g: skipped",
			"- h: denied: not enough time left in this turn", "- i: cancelled: tool error: 'i' was cancelled",
			"- j: unknown: it may or may not have happened"}},
		{"without", false, []turnkeeper.ToolCall{
			call("a", turnkeeper.CallSucceeded, "RAW"),
			call("b", turnkeeper.CallFailed, "tool error: RAW"),
			call("c", turnkeeper.CallFailed, "tool error: 'c' timed out after 2.5 s: RAW"),
			call("d", turnkeeper.CallUnknown, "outcome unknown: long text"),
			call("e", turnkeeper.CallSkipped, "RAW"),
			call("f", turnkeeper.CallDenied, "denied: not enough time left in this turn"),
			call("g", turnkeeper.CallDenied, "tool not found: g\nNothing was run. Available tools: x."),
			call("h", turnkeeper.CallDenied, `{"error":"the agent was not spawned"}`),
			call("i", turnkeeper.CallCancelled, "tool error: 'i' was cancelled"),
			stopped,
		}, []string{"Tool results: 1 succeeded, 6 failed, 2 unknown, 1 skipped.",
			"- a: succeeded", "- b: failed", "- c: failed: timed out after 2.5 s",
			"- d: unknown: it may or may not have happened",
			"- e: skipped", "- f: denied: not enough time left in this turn", "- g: denied: tool not found: g",
			"- h: denied: refused",
			"- i: cancelled", "- j: unknown: it may or may not have happened"}},
		{"left open by lost workers", false, []turnkeeper.ToolCall{call("a", turnkeeper.CallStarted, ""),
			call("b", turnkeeper.CallPlanned, "")},
			[]string{"Tool results: 0 succeeded, 1 failed, 1 unknown.", "- a: unknown: it may or may not have happened",
				"- b: not run"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Join(test.want, "\n"), agentturn.Summary(test.calls, test.output)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("lines are bounded", func(t *testing.T) {
		for _, long := range []turnkeeper.ToolCall{
			call(strings.Repeat("n", 50), turnkeeper.CallFailed, strings.Repeat("é ", 400)),
			call(strings.Repeat("n", 50), turnkeeper.CallDenied, strings.Repeat("é ", 400)),
		} {
			_, line, _ := strings.Cut(agentturn.Summary([]turnkeeper.ToolCall{long}, true), "\n")
			if n := utf8.RuneCountInString(line); n > 220 || n < 215 || !strings.HasSuffix(line, "…") {
				t.Errorf("%d characters: %q", n, line)
			}
		}
	})
}

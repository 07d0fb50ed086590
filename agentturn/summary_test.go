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
		return turnkeeper.ToolCall{Name: name, State: state, Shown: shown}
	}
	tests := []struct {
		name  string
		calls []turnkeeper.ToolCall
		want  []string
	}{
		{"none", nil, []string{"Tool results: 0 succeeded, 0 failed."}},
		{"all kinds", []turnkeeper.ToolCall{
			call("a", turnkeeper.CallSucceeded, "two\nlines"),
			call("b", turnkeeper.CallSucceeded, ""),
			call("c", turnkeeper.CallFailed, "tool error: no"),
			call("d", turnkeeper.CallUnknown, "outcome unknown: long text"),
			call("e", turnkeeper.CallSkipped, "skipped due to freshness dedupe: ..."),
			call("f", turnkeeper.CallSkipped, "the first result"),
			call("g", turnkeeper.CallSkipped, ""),
			call("h", turnkeeper.CallDenied, "denied: not enough time left in this turn"),
			call("i", turnkeeper.CallCancelled, "tool error: 'i' was cancelled"),
		}, []string{"Tool results: 2 succeeded, 3 failed, 1 unknown, 3 skipped.",
			"- a: two lines", "- b: done", "- c: failed: tool error: no", "- d: unknown: it may or may not have happened",
			"- e: skipped due to freshness dedupe: ...", "- f: skipped: the first result", "- g: skipped",
			"- h: denied: not enough time left in this turn", "- i: cancelled: tool error: 'i' was cancelled"}},
		{"unknown only", []turnkeeper.ToolCall{call("a", turnkeeper.CallUnknown, "")},
			[]string{"Tool results: 0 succeeded, 0 failed, 1 unknown.", "- a: unknown: it may or may not have happened"}},
		{"skipped only", []turnkeeper.ToolCall{call("a", turnkeeper.CallSkipped, "")},
			[]string{"Tool results: 0 succeeded, 0 failed, 1 skipped.", "- a: skipped"}},
		{"left open by lost workers", []turnkeeper.ToolCall{call("a", turnkeeper.CallStarted, ""), call("b", turnkeeper.CallPlanned, "")},
			[]string{"Tool results: 0 succeeded, 1 failed, 1 unknown.", "- a: unknown: it may or may not have happened", "- b: not run"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Join(test.want, "\n"), agentturn.Summary(test.calls)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("lines are bounded", func(t *testing.T) {
		long := call(strings.Repeat("n", 50), turnkeeper.CallFailed, strings.Repeat("é ", 400))
		_, line, _ := strings.Cut(agentturn.Summary([]turnkeeper.ToolCall{long}), "\n")
		if n := utf8.RuneCountInString(line); n > 220 || n < 215 || !strings.HasSuffix(line, "…") {
			t.Errorf("%d characters: %q", n, line)
		}
	})
}

func TestDegradedReply(t *testing.T) {
	calls := []turnkeeper.ToolCall{{Name: "a", State: turnkeeper.CallSucceeded, Shown: "ok"}}
	tests := []struct {
		name   string
		rounds []turnkeeper.Round
		want   string
	}{
		{"nothing at all", nil, "Tool results: 0 succeeded, 0 failed."},
		{"the last text", []turnkeeper.Round{{Text: "one"}, {Text: "two", Calls: calls}, {Text: " \n", Calls: calls}}, "two"},
		{"no text", []turnkeeper.Round{{Calls: calls, Reasoning: "secret thought"}}, "Tool results: 1 succeeded, 0 failed.\n- a: ok"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := agentturn.DegradedReply(test.rounds); got != test.want {
				t.Errorf("reply %q, want %q", got, test.want)
			}
		})
	}
}

package agentturn

import (
	"fmt"
	"regexp"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/outputs"
)

// Summary returns the deterministic reply of a turn whose model gave none: a line of
// counts, then a line for each call, in the given order, each of at most 220 characters.
// Calls that were denied, cancelled or never run count as failed. Started calls without a
// result count as unknown. output adds the beginning of the tools' results.
func Summary(calls []turnkeeper.ToolCall, output bool) string {
	var n [4]int
	lines := make([]string, 0, len(calls)+1)
	lines = append(lines, "")
	for _, call := range calls {
		n[kindOf(call)]++
		lines = append(lines, summaryLine(call, output))
	}
	counts := fmt.Sprintf("%d succeeded, %d failed", n[kindSucceeded], n[kindFailed])
	if n[kindUnknown] > 0 {
		counts += fmt.Sprintf(", %d unknown", n[kindUnknown])
	}
	if n[kindSkipped] > 0 {
		counts += fmt.Sprintf(", %d skipped", n[kindSkipped])
	}
	lines[0] = "Tool results: " + counts + "."
	return strings.Join(lines, "\n")
}

func summaryLine(call turnkeeper.ToolCall, output bool) string {
	text := outcomeText(call.State, call.Problem())
	if output {
		text = withOutput(call)
	}
	return outputs.Preview("- " + prompt.PlainName(call.Name) + ": " + text)
}

// The problems of calls about which their state says all.
var (
	failedPlainly = turnkeeper.ToolCall{State: turnkeeper.CallFailed}.Problem()
	cancelled     = turnkeeper.ToolCall{State: turnkeeper.CallCancelled}.Problem()
	notRun        = turnkeeper.ToolCall{State: turnkeeper.CallPlanned}.Problem()
	inDoubt       = turnkeeper.ToolCall{State: turnkeeper.CallUnknown}.Problem()
)

// outcomeText returns the state of a call, with its problem if that says more.
func outcomeText(state turnkeeper.CallState, problem string) string {
	switch problem {
	case "", failedPlainly, cancelled:
		return string(state)
	case notRun:
		return problem
	case inDoubt:
		state = turnkeeper.CallUnknown
	}
	return string(state) + ": " + problem
}

const (
	kindSucceeded = iota
	kindFailed
	kindUnknown
	kindSkipped
)

func kindOf(call turnkeeper.ToolCall) int {
	if call.InDoubt() {
		return kindUnknown
	}
	switch call.State {
	case turnkeeper.CallSucceeded:
		return kindSucceeded
	case turnkeeper.CallSkipped:
		return kindSkipped
	case turnkeeper.CallStarted, turnkeeper.CallRunning:
		return kindUnknown
	default:
		return kindFailed
	}
}

// stateWord matches an output that could be mistaken for the state of a call.
var stateWord = regexp.MustCompile(
	`(?i)^\s*(succeeded|failed|skipped|denied|unknown|cancelled|planned|started|running|done)\b`)

// withOutput returns the outcome of a call with the beginning of its result.
func withOutput(call turnkeeper.ToolCall) string {
	text := call.Preview
	if text == "" {
		text = outputs.Preview(call.Shown)
	}
	kind := kindOf(call)
	switch {
	case kind == kindUnknown || call.State == turnkeeper.CallPlanned:
		return outcomeText(call.State, call.Problem())
	case kind == kindSucceeded && text == "":
		return "done"
	case kind == kindSucceeded && stateWord.MatchString(text):
		return string(turnkeeper.CallSucceeded) + ": " + text
	case kind == kindSucceeded:
		return text
	}
	word := string(call.State)
	if text == "" || strings.HasPrefix(text, word) {
		return word + strings.TrimPrefix(text, word)
	}
	return word + ": " + text
}

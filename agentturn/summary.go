package agentturn

import (
	"fmt"
	"regexp"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/outputs"
)

// Summary is the deterministic reply of a turn whose model gave none: a line of
// counts, then a line a call, in the order given, each of at most 220
// characters. Denied and cancelled calls count as failed, and so do those that
// were never run; a call that nobody knows the outcome of counts as unknown. output
// adds the beginning of what the tools returned.
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
	told := outcomeWords(call.State, call.Problem())
	if output {
		told = withOutput(call)
	}
	return outputs.Preview("- " + prompt.PlainName(call.Name) + ": " + told)
}

// outcomeWords are the state of a call, and its problem where that says more.
func outcomeWords(state turnkeeper.CallState, problem string) string {
	switch problem {
	case "", turnkeeper.ProblemFailed, turnkeeper.ProblemCancelled:
		return string(state)
	case turnkeeper.ProblemNotRun:
		return problem
	case turnkeeper.ProblemInDoubt:
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

// stateWord finds an output that begins as the line of a call with another state does.
var stateWord = regexp.MustCompile(`(?i)^\s*(succeeded|failed|skipped|denied|unknown|cancelled|planned|started|running|done)\b`)

func withOutput(call turnkeeper.ToolCall) string {
	text := call.Preview
	if text == "" {
		text = outputs.Preview(call.Shown)
	}
	kind := kindOf(call)
	switch {
	case kind == kindUnknown || call.State == turnkeeper.CallPlanned:
		return outcomeWords(call.State, call.Problem())
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

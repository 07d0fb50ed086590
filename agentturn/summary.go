package agentturn

import (
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/outputs"
)

// Summary is the deterministic reply of a turn whose model gave none: a line of
// counts, then a line a call, in the order given, each of at most 220
// characters. Denied and cancelled calls count as failed, and so do those that
// were never run; a call whose run was never recorded counts as unknown.
func Summary(calls []turnkeeper.ToolCall) string {
	var n [4]int
	lines := make([]string, 0, len(calls)+1)
	lines = append(lines, "")
	for _, call := range calls {
		kind := kindOf(call.State)
		n[kind]++
		lines = append(lines, outputs.Preview("- "+call.Name+": "+describe(call, kind)))
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

const (
	kindSucceeded = iota
	kindFailed
	kindUnknown
	kindSkipped
)

func kindOf(s turnkeeper.CallState) int {
	switch s {
	case turnkeeper.CallSucceeded:
		return kindSucceeded
	case turnkeeper.CallSkipped:
		return kindSkipped
	case turnkeeper.CallUnknown, turnkeeper.CallStarted, turnkeeper.CallRunning:
		return kindUnknown
	default:
		return kindFailed
	}
}

func describe(call turnkeeper.ToolCall, kind int) string {
	text := call.Preview
	if text == "" {
		text = outputs.Preview(call.Shown)
	}
	switch {
	case kind == kindUnknown:
		return "unknown: it may or may not have happened"
	case call.State == turnkeeper.CallPlanned:
		return "not run"
	case kind == kindSucceeded && text == "":
		return "done"
	case kind == kindSucceeded:
		return text
	}
	word := string(call.State)
	if text == "" || strings.HasPrefix(text, word) {
		return word + strings.TrimPrefix(text, word)
	}
	return word + ": " + text
}

// LastText is the last text that the model gave in any of the rounds, or
// nothing.
func LastText(rounds []turnkeeper.Round) string {
	for i := len(rounds) - 1; i >= 0; i-- {
		if strings.TrimSpace(rounds[i].Text) != "" {
			return rounds[i].Text
		}
	}
	return ""
}

// DegradedReply is the reply of a turn that could not end as asked: the model's
// last text, else the Summary of its calls.
func DegradedReply(rounds []turnkeeper.Round) string {
	if text := LastText(rounds); text != "" {
		return text
	}
	return Summary(callsOf(rounds))
}

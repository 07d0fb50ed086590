// Package words puts what there is into words and signs, the same in a terminal
// and in a browser.
package words

import (
	"strconv"
	"strings"

	"turnkeeper"
)

// Sign is a mark for a state, for those who see no colours.
func Sign(state string) string {
	switch state {
	case string(turnkeeper.TurnSucceeded):
		return "✓"
	case string(turnkeeper.TurnFailed):
		return "✗"
	case string(turnkeeper.TurnDegraded), string(turnkeeper.CallDenied), string(turnkeeper.CallCancelled):
		return "!"
	case string(turnkeeper.CallUnknown):
		return "?"
	case string(turnkeeper.CallSkipped):
		return "↷"
	default:
		return "·"
	}
}

// Plural is "1 round", "2 rounds".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(int64(n)) + " " + noun + "s"
}

// Thousands is a number in groups of three digits.
func Thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return sign + strings.Join(append([]string{digits}, groups...), ",")
}

// stopReasons say in words what a stop reason means.
var stopReasons = map[turnkeeper.StopReason]string{
	turnkeeper.StopNone:           "the model had nothing more to ask",
	turnkeeper.StopMaxRounds:      "the bound on model calls was reached",
	turnkeeper.StopMaxDuration:    "its time was over",
	turnkeeper.StopMaxToolCalls:   "the bound on tool calls was reached",
	turnkeeper.StopInferenceError: "the model could not be asked",
	turnkeeper.StopBudget:         "the budget was used up",
	turnkeeper.StopCancelled:      "it was cancelled",
}

// StopReason says what the stop reason of a turn means; one that is not known stands for itself.
func StopReason(t turnkeeper.Turn) string {
	if t.StopReason == turnkeeper.StopWorkerLost {
		return lost(t.Losses)
	}
	if said := stopReasons[t.StopReason]; said != "" {
		return said
	}
	return string(t.StopReason)
}

// lost is what the loss of workers meant to a turn.
func lost(workers int) string {
	switch {
	case workers > 1:
		return strconv.Itoa(workers) + " workers were lost on it"
	case workers == 0: // it stopped, or could not reach the database
		return "its worker gave it back while a call ran that must not run twice"
	}
	return "its worker was lost while a call ran that must not run twice"
}

// Package words formats states, waits, times and numbers for people, the same
// in a terminal and in a browser.
package words

import (
	"strconv"
	"strings"

	"turnkeeper"
)

// Sign returns a mark for a state, for output without colours.
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

// State returns the name of a state for people: "asked to wait" for asked_to_wait.
func State[S ~string](state S) string { return strings.ReplaceAll(string(state), "_", " ") }

// Conversation returns a conversation's name, with whose it is: "main", or "main of anna".
func Conversation(user, name string) string {
	if user == "" {
		return name
	}
	return name + " of " + user
}

// Plural returns "1 round", "2 rounds".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(int64(n)) + " " + noun + "s"
}

// Enumerate joins a list: "api, scheduler and worker".
func Enumerate(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Thousands formats a number in groups of three digits.
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

// stopReasons explains the stop reasons.
var stopReasons = map[turnkeeper.StopReason]string{
	turnkeeper.StopNone:           "the model had finished",
	turnkeeper.StopMaxRounds:      "the limit on model calls was reached",
	turnkeeper.StopMaxDuration:    "the time limit was reached",
	turnkeeper.StopMaxToolCalls:   "the limit on tool calls was reached",
	turnkeeper.StopInferenceError: "a model call failed",
	turnkeeper.StopBudget:         "the budget was spent",
	turnkeeper.StopCancelled:      "it was cancelled",
	turnkeeper.StopFinished:       "it was asked to finish with what it had",
	turnkeeper.StopWithheld:       "the reply may hold private content, and was not approved",
}

// StopReason explains the stop reason of a turn. It returns an unknown one as it is.
func StopReason(t turnkeeper.Turn) string {
	if t.StopReason == turnkeeper.StopWorkerLost {
		return lost(t.Losses)
	}
	if said := stopReasons[t.StopReason]; said != "" {
		return said
	}
	return string(t.StopReason)
}

// lost explains StopWorkerLost.
func lost(workers int) string {
	switch {
	case workers > 1:
		return "it lost " + strconv.Itoa(workers) + " workers"
	case workers == 0: // the worker stopped, or could not reach the database
		return "its worker handed it back during a call that must not be repeated"
	}
	return "its worker was lost during a call that must not be repeated"
}

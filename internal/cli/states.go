package cli

import (
	"slices"
	"strings"

	"turnkeeper"
)

var turnStates = []string{
	string(turnkeeper.TurnQueued), string(turnkeeper.TurnRunning), string(turnkeeper.TurnWaiting), string(turnkeeper.TurnSucceeded),
	string(turnkeeper.TurnDegraded), string(turnkeeper.TurnFailed), string(turnkeeper.TurnCancelled),
}

var messageStates = []string{
	string(turnkeeper.MessageWaiting), string(turnkeeper.MessageRunning), string(turnkeeper.MessageAnswered),
	string(turnkeeper.MessageFailed), string(turnkeeper.MessageCancelled),
}

// oneOf checks a flag whose value is one of some words, or empty.
func oneOf(flag, word string, words []string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return usageError("%s is %q: it must be one of %s", flag, word, strings.Join(words, ", "))
}

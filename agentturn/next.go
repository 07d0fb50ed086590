package agentturn

import (
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// A move is the next step of a turn whose calls are answered or run in the background.
type move string

const (
	moveAsk  move = "ask"  // the model: there is something it has not seen
	moveWait move = "wait" // for the first background call to end
)

// nextMove returns moveAsk if there is anything the model has not seen: a call of the
// newest round was answered, or dirty is set, or nothing runs.
func nextMove(rounds []turnkeeper.Round, dirty bool) move {
	if dirty {
		return moveAsk
	}
	last := rounds[len(rounds)-1]
	running := false
	for _, call := range prompt.CallsOf(rounds) {
		switch {
		case call.State == turnkeeper.CallRunning:
			running = true
		case call.Key.Round == last.Number:
			return moveAsk
		}
	}
	if running {
		return moveWait
	}
	return moveAsk
}

// dirtyIn reports whether a call of an earlier round has ended since the newest answer.
// It compares only times of the journal, which are the database's.
func dirtyIn(rounds []turnkeeper.Round) bool {
	if len(rounds) == 0 {
		return false
	}
	last := rounds[len(rounds)-1]
	return slices.ContainsFunc(prompt.CallsOf(rounds), func(c turnkeeper.ToolCall) bool {
		return c.Key.Round < last.Number && c.EndedAt.After(last.EndedAt)
	})
}

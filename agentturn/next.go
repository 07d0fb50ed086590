package agentturn

import (
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// A move is how a turn goes on when none of its calls is left to be run.
type move string

const (
	moveAsk  move = "ask"  // there is something that the model has not seen
	moveWait move = "wait" // for the first of what runs in the background
)

// nextMove says whether the model has anything new to see. rounds are those of a
// turn; every call of the newest is answered or runs in the background. News is
// a call of the newest round that was answered, whatever with; dirty says that
// there is other.
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

// dirtyIn says whether, by a journal, a call of an earlier round has ended since the
// newest answer came. All times of a journal are the database's: they must not be held
// against those of this process.
func dirtyIn(rounds []turnkeeper.Round) bool {
	if len(rounds) == 0 {
		return false
	}
	last := rounds[len(rounds)-1]
	return slices.ContainsFunc(prompt.CallsOf(rounds), func(c turnkeeper.ToolCall) bool {
		return c.Key.Round < last.Number && c.EndedAt.After(last.EndedAt)
	})
}

package agentturn

import "turnkeeper"

// A move is how a turn goes on when none of its calls is left to be run.
type move string

const (
	moveAsk  move = "ask"  // there is something that the model has not seen
	moveWait move = "wait" // for the first of what runs in the background
)

// nextMove says whether the model has anything new to see. rounds are those of a
// turn; every call of the newest is answered or runs in the background. News is
// a call of the newest round that was answered, whatever with, and a call of
// any earlier round that ended in the background since the newest answer came:
// unseen says that this dispatch has taken one; of earlier dispatches the
// journal's times tell.
func nextMove(rounds []turnkeeper.Round, unseen bool) move {
	if unseen {
		return moveAsk
	}
	last := rounds[len(rounds)-1]
	running := false
	for _, call := range callsOf(rounds) {
		switch {
		case call.State == turnkeeper.CallRunning:
			running = true
		case call.Key.Round == last.Number, call.EndedAt.After(last.EndedAt):
			return moveAsk
		}
	}
	if running {
		return moveWait
	}
	return moveAsk
}

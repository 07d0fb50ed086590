package agentturn

import (
	"fmt"

	"turnkeeper"
)

// Results of calls that are still open when a turn is closed without a worker.
const (
	ShownNotRun  = shownNotRun
	ShownUnknown = shownUnknown
)

// Lost is how a turn ends that has lost its worker too often to be run again,
// with its last events. rounds are its journal, every call answered; open is a round
// that had begun to stream and has no answer there, which is void (0: none).
func Lost(turn turnkeeper.TurnID, trigger turnkeeper.Trigger, rounds []turnkeeper.Round, open, losses int) (turnkeeper.Outcome, []turnkeeper.Event) {
	outcome := turnkeeper.Outcome{
		State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost, Reply: replyOf(rounds),
		ErrorClass: string(turnkeeper.StopWorkerLost),
		Error:      fmt.Sprintf("the turn lost its worker %d times; it was answered without being run again", losses),
	}
	if trigger == turnkeeper.TriggerSchedule {
		outcome.InnerDialogue, outcome.Reply = LastText(rounds), ""
	}
	var events []turnkeeper.Event
	if open != 0 {
		events = append(events, turnkeeper.Event{
			TurnID: turn, Type: turnkeeper.EventRoundRollback, Round: open, Data: encode(RollbackData{Reason: string(turnkeeper.StopWorkerLost)}),
		})
	}
	return outcome, append(events, turnkeeper.Event{
		TurnID: turn, Type: turnkeeper.EventTurnComplete, Data: encode(TurnEndData{
			State: outcome.State, StopReason: outcome.StopReason, Rounds: len(rounds), Calls: len(callsOf(rounds)), Reply: outcome.Reply,
		}),
	})
}

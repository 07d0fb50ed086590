package agentturn

import (
	"fmt"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
)

// Results of calls that are open when a turn is closed without a worker.
const (
	ShownNotRun  = prompt.ShownNotRun
	ShownUnknown = prompt.ShownUnknown // followed by ShownEdited, if a person changed the arguments
)

// ShownPerhaps is the result of an open call of effect none when a turn is closed without a
// worker.
const ShownPerhaps = "cancelled: the worker of this call was lost. The call may have been running, for a tool that only reads starts without a record."

// Lost returns the outcome and the last events of a turn that has lost its worker too often
// to be run again. rounds are its journal, with every call answered. open is the number of
// a round that has begun to stream and has no answer, and is rolled back (0: none).
// definition is the agent's file as recorded with the turn.
func Lost(lost granting.LostGrant, agent string, definition []byte, rounds []turnkeeper.Round,
	open int) (turnlog.Outcome, []turnkeeper.Event) {
	turn, losses := lost.TurnID, lost.Losses+1
	def, err := agentdef.ParseRecorded(agent, definition)
	if err != nil { // no worker could run this definition: use the defaults
		def = &agentdef.Definition{}
	}
	r := degradedReply(rounds, turnkeeper.StopWorkerLost, def.Replies)
	outcome := turnlog.Outcome{
		State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost,
		ErrorClass: string(turnkeeper.StopWorkerLost),
		Error:      fmt.Sprintf("the turn lost its worker %s; it was answered without being run again", times(losses)),
	}
	if lost.Trigger == turnkeeper.TriggerSchedule {
		if r.said == 0 || def.Quiet(rounds[r.said-1].Text) {
			r = reply{}
		}
		outcome.InnerDialogue = otherTexts(rounds, r.said)
	}
	outcome.Reply, outcome.Silent = r.text, r.silent
	var events []turnkeeper.Event
	if open != 0 {
		events = append(events, turnevents.NewEvent(turn, turnkeeper.EventRoundRollback, open, 0,
			turnevents.RollbackData{Reason: string(turnkeeper.StopWorkerLost)}))
	}
	return outcome, append(events, turnevents.NewEvent(turn, turnkeeper.EventTurnComplete, 0, 0, turnevents.TurnEndData{
		State: outcome.State, StopReason: outcome.StopReason, Rounds: len(rounds), Calls: len(prompt.CallsOf(rounds)),
		Reply: outcome.Reply,
	}))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

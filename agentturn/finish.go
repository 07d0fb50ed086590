package agentturn

import (
	"errors"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
)

// A turn that is to finish answers with what it has: it starts no more calls, stops those of effect none, lets calls with
// an effect end, and then asks the model once more, without tools. It asks nobody.

// errFinish stops calls of effect none of a turn that is to finish.
var errFinish = errors.New("the turn was asked to finish")

const shownFinish = turnlog.Denied + turnlog.RefusedFinish + ". Nothing was run."

// finishing reports whether the turn is to finish.
func (t *task) finishing() bool {
	select {
	case <-t.finishAsked:
		return true
	default:
		return false
	}
}

// lastStop returns why a round was the last one.
func (l *ledger) lastStop() turnkeeper.StopReason {
	switch {
	case l.finishing() && wasFinal(l.rounds[len(l.rounds)-1]):
		return turnkeeper.StopFinished
	case l.rounds.overLimit():
		return turnkeeper.StopMaxToolCalls
	default:
		return turnkeeper.StopMaxRounds
	}
}

// isRunning reports whether a call runs in the background or elsewhere.
func isRunning(call turnkeeper.ToolCall) bool { return call.State == turnkeeper.CallRunning }

// wrapUp ends the calls of a turn that is to finish.
type wrapUp struct{ *execution }

// answerOpen answers the open calls that are not to run, or run again, and reports whether there were any. It leaves
// those of effect keyed that a lost worker had started.
func (e wrapUp) answerOpen(open []*turnkeeper.ToolCall) (any bool) {
	for _, call := range open {
		result, cut := e.interrupted[call.Key]
		switch {
		case cut:
			e.answer(call, e.withDoubt(call, result))
		case call.State == turnkeeper.CallPlanned:
			e.answer(call, textResult(call, turnkeeper.CallDenied, shownFinish))
		case call.Effect == turnkeeper.EffectNone:
			e.answer(call, keepHandle(*call, textResult(call, turnkeeper.CallCancelled, shownStopped)))
		case !call.Effect.Repeatable(), e.people.awaitsInput(call): // a person was asked about it
			e.markUnknown(call)
		default:
			continue
		}
		any = true
	}
	return any
}

const shownStopped = "cancelled: the turn was asked to finish before this call had ended."

// stopReads ends the calls of effect none that run elsewhere. Those that run here end by themselves.
func (e wrapUp) stopReads() {
	for _, call := range e.rounds.detached() {
		if call.Effect == turnkeeper.EffectNone && !isSpawn(*call) {
			e.answer(call, keepHandle(*call, textResult(call, turnkeeper.CallCancelled, shownStopped)))
		}
	}
}

// stopToFinish cancels a run when the turn is to finish. It returns when the run is over.
func (t *task) stopToFinish(run *toolrun.Run) {
	select {
	case <-t.finishAsked:
		run.Cancel(errFinish)
	case <-run.Over():
	}
}

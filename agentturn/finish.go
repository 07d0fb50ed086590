package agentturn

import (
	"errors"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
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
	case l.finishing() && wasFinal(l.calls.Rounds[len(l.calls.Rounds)-1]):
		return turnkeeper.StopFinished
	case l.calls.OverLimit():
		return turnkeeper.StopMaxToolCalls
	default:
		return turnkeeper.StopMaxRounds
	}
}

// isRunning reports whether a call runs in the background or elsewhere.
func isRunning(call *calls.Call) bool { return call.State == turnkeeper.CallRunning }

// wrapUp answers the open calls that are not to run, or run again, and reports whether there were any. It leaves
// those of effect keyed that a lost worker had started.
func (l *ledger) wrapUp(open []*calls.Call) (any bool) {
	for _, call := range open {
		switch {
		case call.Cut != nil:
			l.agreeEnd(calls.Finishing, call, calls.Answer, call.CutResult().Shown)
			l.answer(call, call.CutResult())
		case call.State == turnkeeper.CallPlanned:
			l.agreeEnd(calls.Finishing, call, calls.Answer, shownFinish)
			l.answer(call, call.Result(turnkeeper.CallDenied, shownFinish))
		case call.Effect == turnkeeper.EffectNone:
			l.agreeEnd(calls.Finishing, call, calls.Answer, call.KeepHandle(call.Result(turnkeeper.CallCancelled, shownStopped)).Shown)
			l.answer(call, call.KeepHandle(call.Result(turnkeeper.CallCancelled, shownStopped)))
		case !call.Effect.Repeatable(), call.AwaitsInput(): // a person was asked about it
			l.agreeEnd(calls.Finishing, call, calls.Doubt)
			l.markUnknown(call)
		default:
			l.agreeEnd(calls.Finishing, call, calls.Leave)
			continue
		}
		any = true
	}
	return any
}

const shownStopped = "cancelled: the turn was asked to finish before this call had ended."

// stopReads ends the calls of effect none that run elsewhere. Those that run here end by themselves.
func (l *ledger) stopReads() {
	for _, call := range l.calls.Detached() {
		if call.Effect == turnkeeper.EffectNone && !call.Spawns() {
			l.answer(call, call.KeepHandle(call.Result(turnkeeper.CallCancelled, shownStopped)))
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

package agentturn

import (
	"errors"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
)

// A turn that is to finish answers with what it has: it starts no more calls, stops those of effect none, lets calls
// with an effect end, and then asks the model once more, without tools. It asks nobody.

// errFinish stops calls of effect none of a turn that is to finish.
var errFinish = errors.New("the turn was asked to finish")

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
func (t *endings) lastStop() turnkeeper.StopReason {
	switch {
	case t.finishing() && wasFinal(t.calls.Rounds[len(t.calls.Rounds)-1]):
		return turnkeeper.StopFinished
	case t.calls.OverLimit():
		return turnkeeper.StopMaxToolCalls
	default:
		return turnkeeper.StopMaxRounds
	}
}

// isRunning reports whether a call runs in the background or elsewhere.
func isRunning(call *calls.Call) bool { return call.State == turnkeeper.CallRunning }

// stopReads ends the calls of effect none that run elsewhere. Those that run here end by themselves.
func (x *executor) stopReads() {
	for _, call := range x.calls.Detached() {
		if call.Effect == turnkeeper.EffectNone && !call.Spawns() {
			x.answer(call, call.KeepHandle(call.Result(turnkeeper.CallCancelled, calls.ShownStopped)))
		}
	}
}

// stopToFinish cancels a run when the turn is to finish. It returns when the run is over.
func (w *tooling) stopToFinish(run *toolrun.Run) {
	select {
	case <-w.task.finishAsked:
		run.Cancel(errFinish)
	case <-run.Over():
	}
}

package agentturn

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/outputs"
)

// detach starts a detached call: one write contains the start, the job, and the handle
// that the model is shown. A call that a lost worker ran in the background keeps its
// handle; that worker's version of the tool was not detached.
func (x *executor) detach(ctx context.Context, call *calls.Call) error {
	if call.OutputID != "" {
		if err := x.tooling.dropDraft(ctx, call.OutputID); err != nil {
			return err
		}
	}
	x.events.Mark()
	start := newStart(call)
	start.Detached = call.Spec.Timeout
	id := cmp.Or(call.OutputID, outputs.NewID())
	handle := turnlog.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: outputs.Placeholder{ID: id,
			Tool: call.Name}.Background(), OutputID: id,
		Labels: x.calls.ResultLabels(call, nil), // recorded now, because another worker may record the result
	}
	call.Label(handle.Labels)
	if call.WentOn() {
		handle.Shown = call.Shown
	} else {
		handle = call.WithNotes(handle)
	}
	x.pending.Starts = append(x.pending.Starts, start)
	x.pending.Results = append(x.pending.Results, handle)
	x.startEvent(call)
	if err := x.commit(ctx); err != nil {
		x.pending.dropResult(start.Nonce)
		return err
	}
	call.State, call.Awaited, call.Shown, call.OutputID = handle.State, true, handle.Shown, id
	x.log.Info("tool call detached", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.Duration("limit", call.Spec.Timeout))
	return nil
}

// takeCompleted records the results of detached calls that have arrived.
func (x *executor) takeCompleted(ctx context.Context) error {
	if len(x.calls.Detached()) == 0 {
		return nil
	}
	arrived, err := x.journal.Arrivals(ctx)
	if err != nil {
		return &journalError{err}
	}
	for _, result := range arrived {
		call := x.calls.Call(result.Key)
		if !call.Detached() {
			continue
		}
		if result.Spawned != nil {
			x.answer(call, x.tooling.replyResult(ctx, call, result))
		} else {
			x.answer(call, x.arrivedResult(ctx, call, result))
		}
		x.tooling.measure(ctx, *call.ToolCall)
		x.log.Info("detached tool call ended", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
			zap.String("state", string(call.State)), zap.Duration("took", result.Duration))
	}
	return nil
}

// arrivedResult returns the result to record for a detached call, reconciled if it is unknown.
// The model is still shown the handle.
func (x *executor) arrivedResult(ctx context.Context, call *calls.Call, result turnlog.CallResult) turnlog.CallResult {
	if result.State == turnkeeper.CallUnknown {
		if found, known := x.reconcile(ctx, call); known {
			found.Nonce = result.Nonce
			return found
		}
		x.log.Warn("outcome of tool call unknown", zap.Stringer("call", call.Key), zap.String("tool", call.Name))
	}
	result.Shown = call.Shown
	return result
}

// waiting returns the end of an execution whose turn waits for detached calls or
// for people.
func (e *execution) waiting() *ending {
	data := turnevents.WaitingFor(e.waitReasons()...)
	for _, call := range e.calls.Detached() {
		data.Calls = append(data.Calls, call.Key.String())
	}
	for _, ask := range e.calls.Asks.That(calls.IsOpen) {
		data.Asks = append(data.Asks, turnevents.NameOfAsk(ask))
	}
	e.events.Event(turnkeeper.EventTurnWaiting, 0, 0, data)
	return &ending{state: turnkeeper.TurnWaiting}
}

// waitReasons returns what a turn that stops running now waits for.
func (e *execution) waitReasons() []waiting.Reason {
	var detached, spawns bool
	for _, call := range e.calls.Detached() {
		spawns = spawns || call.Spawns()
		detached = detached || !call.Spawns()
	}
	return waiting.ParkedFor(len(e.calls.Asks.That(calls.IsOpen)) > 0, detached, spawns)
}

// mustWait reports whether a call of wait_for_tool_output can only wait for detached
// calls: nothing runs in the background, and no ended call is unreported. It then stays
// planned until a result has arrived.
func (x *executor) mustWait(ctx context.Context, call *calls.Call) (bool, error) {
	if call.Name != turnkeeper.ToolWaitForToolOutput || len(x.calls.Runs()) > 0 || len(x.calls.Detached()) == 0 {
		return false, nil
	}
	if err := x.takeCompleted(ctx); err != nil {
		return false, err
	}
	unreported := (&toolrun.OutputStore{Calls: x.calls.All()}).Unreported()
	return !unreported && len(x.calls.Detached()) > 0, nil
}

const shownEnded = "cancelled: the turn ended before this call had"

// PreviewEnded returns the preview of a detached call that was open when its turn ended.
func PreviewEnded(effect turnkeeper.Effect) string {
	if effect == turnkeeper.EffectNone {
		return shownEnded + "."
	}
	return shownEnded + calls.ShownMaybe
}

// closeDetached records the results that have arrived and cancels the other detached
// calls, because a closed turn must have no open call.
func (x *executor) closeDetached(ctx context.Context) {
	if len(x.calls.Detached()) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := x.takeCompleted(ctx); err != nil {
		x.log.Error("cannot read the results of detached calls; cancelling the open ones", zap.Error(err))
	}
	for _, call := range x.calls.Detached() {
		result := turnlog.CallResult{
			Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallCancelled, Shown: call.Shown,
			Preview: PreviewEnded(call.Effect),
		}
		if call.Spawns() {
			result.Preview = ShownReplyUnawaited
			x.tooling.observeSpawn(ctx, call, result.State, x.age(*call.ToolCall),
				string(turnkeeper.CallCancelled))
		}
		if call.AwaitsReply() {
			result.Shown = ShownReplyUnawaited
		}
		x.answer(call, result)
	}
}

// awaitBlockers blocks until the call may start. If only detached calls hold it up, the
// turn waits as a row instead: waits is then true, and the call stays planned.
func (x *executor) awaitBlockers(ctx context.Context, call *calls.Call) (waits bool, err error) {
	for wait := minSpawnPoll; x.calls.Blocked(call); wait = min(2*wait, maxSpawnPoll) {
		if err := x.takeCompleted(ctx); err != nil {
			return false, err
		}
		x.collect()
		if !x.calls.Blocked(call) {
			break
		}
		if err := x.commit(ctx); err != nil { // makes visible what the call waits for
			return false, err
		}
		switch {
		case len(x.calls.Detached()) == 0:
			if err := x.awaitRun(ctx); err != nil {
				return false, err
			}
		case len(x.calls.Runs()) == 0 && !time.Now().Before(x.blockUntil):
			return true, nil
		case pause.For(ctx, wait) != nil:
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// unreportedEffects returns the calls with an effect that have ended since the newest
// request, when they were running. It does not compare times.
func unreportedEffects(rounds []turnkeeper.Round) []turnkeeper.ToolCall {
	if len(rounds) == 0 || rounds[len(rounds)-1].Recipe == nil {
		return nil
	}
	ran := rounds[len(rounds)-1].Recipe.Running
	return slices.DeleteFunc(prompt.CallsOf(rounds), func(c turnkeeper.ToolCall) bool {
		return !(&calls.Call{ToolCall: &c}).InDoubtIfStopped() || !c.State.Answered() || !prompt.WentOn(c) ||
			!slices.Contains(ran, c.OutputID)
	})
}

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
func (e *execution) detach(ctx context.Context, call *calls.Call) error {
	if call.OutputID != "" {
		if err := e.tooling.dropDraft(ctx, call.OutputID); err != nil {
			return err
		}
	}
	e.events.Mark()
	start := newStart(call)
	start.Detached = call.Spec.Timeout
	id := cmp.Or(call.OutputID, outputs.NewID())
	handle := turnlog.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: outputs.Placeholder{ID: id,
			Tool: call.Name}.Background(), OutputID: id,
		Labels: e.calls.ResultLabels(call, nil), // whoever records the result, and whenever
	}
	call.Label(handle.Labels)
	if call.WentOn() {
		handle.Shown = call.Shown
	} else {
		handle = call.WithNotes(handle)
	}
	e.pending.Starts = append(e.pending.Starts, start)
	e.pending.Results = append(e.pending.Results, handle)
	e.startEvent(call)
	if err := e.commit(ctx); err != nil {
		e.pending.dropResult(start.Nonce)
		return err
	}
	call.State, call.Awaited, call.Shown, call.OutputID = handle.State, true, handle.Shown, id
	e.log.Info("tool call detached", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.Duration("limit", call.Spec.Timeout))
	return nil
}

// takeCompleted records the results of detached calls that have arrived.
func (e *execution) takeCompleted(ctx context.Context) error {
	if len(e.calls.Detached()) == 0 {
		return nil
	}
	arrived, err := e.journal.Arrivals(ctx)
	if err != nil {
		return &journalError{err}
	}
	for _, result := range arrived {
		call := e.calls.Call(result.Key)
		if !call.Detached() {
			continue
		}
		if result.Spawned != nil {
			e.answer(call, e.tooling.replyResult(ctx, call, result))
		} else {
			e.answer(call, e.arrivedResult(ctx, call, result))
		}
		e.tooling.measure(ctx, *call.ToolCall)
		e.log.Info("detached tool call ended", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
			zap.String("state", string(call.State)), zap.Duration("took", result.Duration))
	}
	return nil
}

// arrivedResult returns the result to record for a detached call, reconciled if it is unknown.
// The model is still shown the handle.
func (e *execution) arrivedResult(ctx context.Context, call *calls.Call, result turnlog.CallResult) turnlog.CallResult {
	if result.State == turnkeeper.CallUnknown {
		if found, known := e.reconcile(ctx, call); known {
			found.Nonce = result.Nonce
			return found
		}
		e.log.Warn("outcome of tool call unknown", zap.Stringer("call", call.Key), zap.String("tool", call.Name))
	}
	result.Shown = call.Shown
	return result
}

// waiting returns the end of an execution whose turn waits for detached calls or
// for people.
func (s *turnState) waiting() *ending {
	data := turnevents.WaitingFor(waitReasons(s)...)
	for _, call := range s.calls.Detached() {
		data.Calls = append(data.Calls, call.Key.String())
	}
	for _, ask := range s.calls.Asks.That(calls.IsOpen) {
		data.Asks = append(data.Asks, turnevents.NameOfAsk(ask))
	}
	s.events.Event(turnkeeper.EventTurnWaiting, 0, 0, data)
	return &ending{state: turnkeeper.TurnWaiting}
}

// waitReasons returns what a turn that stops running now waits for.
func waitReasons(s *turnState) []waiting.Reason {
	var detached, spawns bool
	for _, call := range s.calls.Detached() {
		spawns = spawns || call.Spawns()
		detached = detached || !call.Spawns()
	}
	return waiting.ParkedFor(len(s.calls.Asks.That(calls.IsOpen)) > 0, detached, spawns)
}

// mustWait reports whether a call of wait_for_tool_output can only wait for detached
// calls: nothing runs in the background, and no ended call is unreported. It then stays
// planned until a result has arrived.
func (e *execution) mustWait(ctx context.Context, call *calls.Call) (bool, error) {
	if call.Name != turnkeeper.ToolWaitForToolOutput || len(e.calls.Runs()) > 0 || len(e.calls.Detached()) == 0 {
		return false, nil
	}
	if err := e.takeCompleted(ctx); err != nil {
		return false, err
	}
	unreported := (&toolrun.OutputStore{Calls: e.calls.All()}).Unreported()
	return !unreported && len(e.calls.Detached()) > 0, nil
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
func (e *execution) closeDetached(ctx context.Context) {
	if len(e.calls.Detached()) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := e.takeCompleted(ctx); err != nil {
		e.log.Error("cannot read the results of detached calls; cancelling the open ones", zap.Error(err))
	}
	for _, call := range e.calls.Detached() {
		result := turnlog.CallResult{
			Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallCancelled, Shown: call.Shown,
			Preview: PreviewEnded(call.Effect),
		}
		if call.Spawns() {
			result.Preview = ShownReplyUnawaited
			e.tooling.observeSpawn(ctx, call, result.State, e.age(*call.ToolCall),
				string(turnkeeper.CallCancelled))
		}
		if call.AwaitsReply() {
			result.Shown = ShownReplyUnawaited
		}
		e.answer(call, result)
	}
}

// awaitBlockers blocks until the call may start. If only detached calls hold it up, the
// turn waits as a row instead: waits is then true, and the call stays planned.
func (e *execution) awaitBlockers(ctx context.Context, call *calls.Call) (waits bool, err error) {
	for look := minSpawnPoll; e.calls.Blocked(call); look = min(2*look, maxSpawnPoll) {
		if err := e.takeCompleted(ctx); err != nil {
			return false, err
		}
		e.collect()
		if !e.calls.Blocked(call) {
			break
		}
		if err := e.commit(ctx); err != nil { // makes visible what the call waits for
			return false, err
		}
		switch {
		case len(e.calls.Detached()) == 0:
			if err := e.awaitRun(ctx); err != nil {
				return false, err
			}
		case len(e.calls.Runs()) == 0 && !time.Now().Before(e.blockUntil):
			return true, nil
		case pause.For(ctx, look) != nil:
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

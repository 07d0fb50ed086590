package agentturn

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/internal/pause"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// detach starts a call in a job of its own: one write has its start, the job and
// the handle that the model is shown. One that was in the background of a lost worker,
// whose release ran the tool so, keeps the handle that it has.
func (e *execution) detach(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if call.OutputID != "" {
		if err := e.dropDraft(ctx, call.OutputID); err != nil {
			return err
		}
	}
	e.events.Mark()
	start := newStart(call)
	start.Detached = spec.Timeout
	id := cmp.Or(call.OutputID, outputs.NewID())
	handle := turnkeeper.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: outputs.Placeholder{ID: id, Tool: call.Name}.Background(), OutputID: id,
	}
	e.pending.Starts = append(e.pending.Starts, start)
	e.pending.Results = append(e.pending.Results, handle)
	e.startEvent(call)
	if err := e.commit(ctx); err != nil {
		e.pending.dropResult(start.Nonce)
		return err
	}
	call.State, call.Elsewhere, call.Shown, call.OutputID = handle.State, true, handle.Shown, id
	e.log.Info("tool call detached", zap.Stringer("call", call.Key), zap.String("tool", call.Name), zap.Duration("limit", spec.Timeout))
	return nil
}

// takeCompleted takes what has arrived into the journal, with the next write.
func (e *execution) takeCompleted(ctx context.Context) error {
	if len(e.rounds.detached()) == 0 {
		return nil
	}
	arrived, err := e.journal.Arrivals(ctx)
	if err != nil {
		return &journalError{err}
	}
	for _, result := range arrived {
		call := e.rounds.call(result.Key)
		if !isDetached(*call) {
			continue
		}
		if result.Spawned != nil {
			e.answer(call, e.replied(ctx, call, result))
		} else {
			e.answer(call, e.arrival(ctx, call, result))
		}
		e.measure(ctx, *call, e.sizes)
		e.log.Info("result of a detached tool call has arrived", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
			zap.String("state", string(call.State)), zap.Duration("took", result.Duration))
	}
	return nil
}

// arrival is what the journal takes of a result: the model goes on being shown the
// handle, except where the tool can tell what became of a call in doubt.
func (e *execution) arrival(ctx context.Context, call *turnkeeper.ToolCall, result turnkeeper.CallResult) turnkeeper.CallResult {
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

// waiting returns the end of an execution whose turn goes on when a detached call has
// ended.
func (l *ledger) waiting() *ending {
	var data transcript.TurnWaitingData
	for _, call := range l.rounds.detached() {
		data.Calls = append(data.Calls, call.Key.String())
	}
	l.events.Event(turnkeeper.EventTurnWaiting, 0, 0, data)
	return &ending{state: turnkeeper.TurnWaiting}
}

// mustWait says that a call can only wait for what is detached: nothing runs
// here, and there is nothing new to tell. It is then left planned, and run when
// something has arrived.
func (e *execution) mustWait(ctx context.Context, call *turnkeeper.ToolCall) (bool, error) {
	if call.Name != turnkeeper.ToolWaitForToolOutput || len(e.background) > 0 || len(e.rounds.detached()) == 0 {
		return false, nil
	}
	if err := e.takeCompleted(ctx); err != nil {
		return false, err
	}
	unreported := (&toolrun.OutputStore{Calls: e.rounds.all()}).Unreported()
	return !unreported && len(e.rounds.detached()) > 0, nil
}

// shownNoHandles answers a call of a detached tool with handles among its
// arguments: its job does not have the turn's results.
const shownNoHandles = "invalid arguments: a tool that runs detached takes no output: handles. Nothing was run."

const shownEnded = "cancelled: the turn ended before this call had"

// PreviewEnded is the preview of a call that was detached when its turn ended.
func PreviewEnded(effect turnkeeper.Effect) string {
	if effect == turnkeeper.EffectNone {
		return shownEnded + "."
	}
	return shownEnded + shownMaybe
}

// closeDetached ends what is detached: no call is open under a closed turn.
// What has arrived by now is its result.
func (e *execution) closeDetached(ctx context.Context) {
	if len(e.rounds.detached()) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := e.takeCompleted(ctx); err != nil {
		e.log.Warn("it could not be read what has arrived for the turn; its open calls are cancelled", zap.Error(err))
	}
	for _, call := range e.rounds.detached() {
		result := turnkeeper.CallResult{
			Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallCancelled, Shown: call.Shown, Preview: PreviewEnded(call.Effect),
		}
		if isSpawn(*call) {
			result.Preview = ShownReplyUnawaited
			e.observeSpawn(ctx, call, result.State, e.background.Age(*call), string(turnkeeper.CallCancelled))
		}
		if awaitsReply(*call) {
			result.Shown = ShownReplyUnawaited
		}
		e.answer(call, result)
	}
}

// awaitBlockers waits until nothing holds the call back. For what runs here the turn stands
// still. For what is detached alone it waits, and holds nothing: waits then says so,
// and the call stays planned.
func (e *execution) awaitBlockers(ctx context.Context, call *turnkeeper.ToolCall) (waits bool, err error) {
	for look := firstSpawnLook; e.rounds.blocked(call); look = min(2*look, slowSpawnLook) {
		if err := e.takeCompleted(ctx); err != nil {
			return false, err
		}
		e.collect()
		if !e.rounds.blocked(call) {
			break
		}
		if err := e.commit(ctx); err != nil { // whoever looks sees what the call waits for
			return false, err
		}
		switch {
		case len(e.rounds.detached()) == 0:
			if err := e.awaitJob(ctx); err != nil {
				return false, err
			}
		case len(e.background) == 0 && !time.Now().Before(e.stillUntil):
			return true, nil
		case pause.For(ctx, look) != nil:
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// unreportedEffects are the calls with an effect that have ended since the newest answer was
// asked for: its request told that they run. What a request told is on record, so this
// depends on no clock.
func unreportedEffects(rounds []turnkeeper.Round) []turnkeeper.ToolCall {
	if len(rounds) == 0 || rounds[len(rounds)-1].Recipe == nil {
		return nil
	}
	notice := rounds[len(rounds)-1].Recipe.Notice
	return slices.DeleteFunc(prompt.CallsOf(rounds), func(c turnkeeper.ToolCall) bool {
		return !hasEffect(&c) || !c.State.Answered() || !prompt.WentOn(c) || !strings.Contains(notice, prompt.RunningMark(c))
	})
}

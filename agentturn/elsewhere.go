package agentturn

import (
	"cmp"
	"context"
	"slices"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// isElsewhere says that a call is open outside of the turn's dispatches: its
// result will arrive, whether the turn runs or waits.
func isElsewhere(call turnkeeper.ToolCall) bool {
	return call.Elsewhere && call.State == turnkeeper.CallRunning
}

// elsewhere are the calls that are open elsewhere, in order.
func (t *turn) elsewhere() []*turnkeeper.ToolCall {
	var calls []*turnkeeper.ToolCall
	for i := range t.rounds {
		for j := range t.rounds[i].Calls {
			if call := &t.rounds[i].Calls[j]; isElsewhere(*call) {
				calls = append(calls, call)
			}
		}
	}
	return calls
}

// detach starts a call in a job of its own: one write has its start, the job and
// the handle that the model is shown. One that was in the background of a lost worker,
// whose release ran the tool so, keeps the handle that it has.
func (t *turn) detach(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if call.OutputID != "" {
		if err := t.dropDraft(ctx, call.OutputID); err != nil {
			return err
		}
	}
	t.events.Mark()
	start := newStart(call)
	start.Detached = spec.Timeout
	id := cmp.Or(call.OutputID, outputs.NewID())
	handle := turnkeeper.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: outputs.Placeholder{ID: id, Tool: call.Name}.Background(), OutputID: id,
	}
	t.next.Starts = append(t.next.Starts, start)
	t.next.Results = append(t.next.Results, handle)
	t.tellStarted(call)
	if err := t.commit(ctx); err != nil {
		t.next.Results = slices.DeleteFunc(t.next.Results, func(r turnkeeper.CallResult) bool { return r.Nonce == start.Nonce })
		return err
	}
	call.State, call.Elsewhere, call.Shown, call.OutputID = handle.State, true, handle.Shown, id
	t.log.Info("tool call detached", zap.Stringer("call", call.Key), zap.String("tool", call.Name), zap.Duration("limit", spec.Timeout))
	return nil
}

// takeArrivals takes what has arrived into the journal, with the next write.
func (t *turn) takeArrivals(ctx context.Context) error {
	if len(t.elsewhere()) == 0 {
		return nil
	}
	arrived, err := t.journal.Arrivals(ctx)
	if err != nil {
		return &journalError{err}
	}
	for _, result := range arrived {
		call := t.call(result.Key)
		if !isElsewhere(*call) {
			continue
		}
		if result.Spawned != nil {
			t.answer(call, t.replied(ctx, call, result))
		} else {
			t.answer(call, t.arrival(ctx, call, result))
		}
		t.measure(ctx, *call)
		t.log.Info("result of a detached tool call has arrived", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
			zap.String("state", string(call.State)), zap.Duration("took", result.Duration))
	}
	return nil
}

// arrival is what the journal takes of a result: the model goes on being shown the
// handle, except where the tool can tell what became of a call in doubt.
func (t *turn) arrival(ctx context.Context, call *turnkeeper.ToolCall, result turnkeeper.CallResult) turnkeeper.CallResult {
	if result.State == turnkeeper.CallUnknown {
		if found, known := t.reconcile(ctx, call); known {
			found.Nonce = result.Nonce
			return found
		}
		t.log.Warn("outcome of tool call unknown", zap.Stringer("call", call.Key), zap.String("tool", call.Name))
	}
	result.Shown = call.Shown
	return result
}

// waiting is the end of a dispatch whose turn goes on when a call has ended
// elsewhere.
func (t *turn) waiting() *ending {
	var data transcript.TurnWaitingData
	for _, call := range t.elsewhere() {
		data.Calls = append(data.Calls, call.Key.String())
	}
	t.events.Event(turnkeeper.EventTurnWaiting, 0, 0, data)
	return &ending{state: turnkeeper.TurnWaiting}
}

// mustWait says that a call can only wait for what is open elsewhere: nothing runs
// here, and there is nothing new to tell. It is then left planned, and run when
// something has arrived.
func (t *turn) mustWait(ctx context.Context, call *turnkeeper.ToolCall) (bool, error) {
	if call.Name != turnkeeper.ToolWaitForToolOutput || len(t.jobs) > 0 || len(t.elsewhere()) == 0 {
		return false, nil
	}
	if err := t.takeArrivals(ctx); err != nil {
		return false, err
	}
	unreported := (&toolrun.OutputStore{Calls: t.calls()}).Unreported()
	return !unreported && len(t.elsewhere()) > 0, nil
}

// shownNoHandles answers a call of a detached tool with handles among its
// arguments: its job does not have the turn's results.
const shownNoHandles = "invalid arguments: a tool that runs detached takes no output: handles. Nothing was run."

const shownEnded = "cancelled: the turn ended before this call had"

// PreviewEnded is the preview of a call that was open elsewhere when its turn ended.
func PreviewEnded(effect turnkeeper.Effect) string {
	if effect == turnkeeper.EffectNone {
		return shownEnded + "."
	}
	return shownEnded + shownMaybe
}

// closeElsewhere ends what is open elsewhere: no call is open under a closed turn.
// What has arrived by now is its result.
func (t *turn) closeElsewhere(ctx context.Context) {
	if len(t.elsewhere()) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := t.takeArrivals(ctx); err != nil {
		t.log.Warn("it could not be read what has arrived for the turn; its open calls are cancelled", zap.Error(err))
	}
	for _, call := range t.elsewhere() {
		result := turnkeeper.CallResult{
			Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallCancelled, Shown: call.Shown, Preview: PreviewEnded(call.Effect),
		}
		if isSpawn(*call) {
			result.Preview = ShownReplyUnawaited
			t.observeSpawn(ctx, call, result.State, t.runs(*call), string(turnkeeper.CallCancelled))
		}
		if owed(*call) {
			result.Shown = ShownReplyUnawaited
		}
		t.answer(call, result)
	}
}

package agentturn

import (
	"context"
	"errors"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Results of started calls that a lost worker left without one.
const (
	// A call of effect once can be recorded as started once only, so one that
	// certainly did not happen is not run again either.
	shownDidNotHappen = "the worker that ran this call was lost. It did not happen; not run again."
)

// recover goes on from what the journal says. Calls that are finished stay as
// they are; planned ones, and started ones that may run again, are left to
// execute; the others are settled here, before anything is built on them.
func (t *execution) recover(ctx context.Context) (state, error) {
	t.announce()
	t.measureStored(ctx)
	if len(t.rounds) == 0 {
		return t.ask, nil
	}
	for _, call := range t.rounds.open() {
		if call.State == turnkeeper.CallPlanned || call.Effect.Repeatable() {
			continue
		}
		if err := t.settle(ctx, call); err != nil {
			return nil, err
		}
	}
	if len(t.pending.Verdicts) > 0 || len(t.pending.Results) > 0 {
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	return t.execute, nil
}

// measureStored finds the sizes of the outputs that the model knows by a handle.
// One that cannot be found is told of without.
func (t *execution) measureStored(ctx context.Context) {
	for _, call := range t.rounds.all() {
		t.measure(ctx, call)
	}
}

func (t *execution) measure(ctx context.Context, call turnkeeper.ToolCall) {
	if !prompt.Handled(call) || !call.State.Answered() || t.cfg.Outputs == nil {
		return
	}
	if stored, err := t.cfg.Outputs.DescribeOutput(ctx, t.record.Turn.ID, call.OutputID); err == nil {
		t.prompt.Sizes[call.OutputID] = stored.Tokens
	}
}

// announce begins, or takes up, the turn's stream.
func (t *execution) announce() {
	turn := t.record.Turn
	if turn.LastSeq == 0 {
		data := transcript.TurnStartData{Trigger: turn.Trigger, Agent: turn.Agent, Message: turn.MessageID, Attempt: turn.Attempt}
		if l := t.record.Lineage; l.Parent != 0 {
			data.Parent = &transcript.ParentData{Turn: l.Parent, Call: l.Call.String(), Root: l.Root}
		}
		t.events.Event(turnkeeper.EventTurnStart, 0, 0, data)
		return
	}
	if t.record.OpenRound != 0 {
		t.events.Event(turnkeeper.EventRoundRollback, t.record.OpenRound, 0, transcript.RollbackData{Reason: string(turnkeeper.StopWorkerLost)})
	}
	t.events.Event(turnkeeper.EventTurnResumed, 0, 0, transcript.TurnResumedData{Dispatch: turn.Dispatches})
}

// settle finds out what became of a started call that must not run again.
func (t *execution) settle(ctx context.Context, call *turnkeeper.ToolCall) error {
	result, known := t.reconcile(ctx, call)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !known {
		t.giveVerdict(call)
		return nil
	}
	t.answer(call, result)
	return nil
}

// giveVerdict records that nobody knows what became of a started call.
func (t *execution) giveVerdict(call *turnkeeper.ToolCall) {
	verdict := endLater(*call, turnkeeper.CallResult{
		Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallUnknown,
		Shown: prompt.ShownUnknown, Preview: outputs.Preview(prompt.ShownUnknown), Ran: !call.Paging,
	})
	t.apply(call, verdict)
	t.pending.Verdicts = append(t.pending.Verdicts, verdict)
	t.log.Warn("outcome of tool call unknown", zap.Stringer("call", call.Key), zap.String("tool", call.Name))
}

// reconcile asks the tool, if it can tell.
func (t *execution) reconcile(ctx context.Context, call *turnkeeper.ToolCall) (turnkeeper.CallResult, bool) {
	tool, _ := t.offered.Get(call.Name)
	reconciler, ok := tool.(tools.Reconciler)
	if !ok {
		return turnkeeper.CallResult{}, false
	}
	spec, _ := t.offered.Spec(call.Name)
	if refused, err := t.resolve(ctx, call); err != nil || refused != "" {
		return turnkeeper.CallResult{}, false
	}
	t.at(ctx, PointReconcile)
	used := &toolrun.Meter{}
	found, happened, err := lookUp(ctx, reconciler, t.toolCall(call, used), t.executeOptions(call, spec))
	if err != nil {
		t.log.Warn("a tool could not tell whether a call happened",
			zap.Stringer("call", call.Key), zap.String("tool", call.Name), zap.Error(err))
		return turnkeeper.CallResult{}, false
	}
	if !happened {
		return endLater(*call, textResult(call, turnkeeper.CallFailed, shownDidNotHappen)), true
	}
	take := t.later
	if !prompt.WentOn(*call) {
		take = func(call *turnkeeper.ToolCall, r tools.Result) turnkeeper.CallResult {
			return t.take(call, r, outputs.NewID())
		}
	}
	result := take(call, found)
	result.Nonce, result.Ran, result.State, result.Usage = call.Nonce, !call.Paging, turnkeeper.CallSucceeded, used.Used()
	if found.IsError {
		result.State = turnkeeper.CallFailed
	}
	return result, true
}

// A lookUpTool looks a call up instead of running it, so that looking up is
// bounded in the way that running is.
type lookUpTool struct {
	tools.Reconciler
	happened bool // of the run that ended, and was not left behind
}

func (l *lookUpTool) Run(ctx context.Context, call tools.Call) (found tools.Result, err error) {
	found, l.happened, err = l.Reconcile(ctx, call)
	return found, err
}

func lookUp(ctx context.Context, r tools.Reconciler, call tools.Call, options tools.ExecuteOptions) (found tools.Result, happened bool, err error) {
	looking := &lookUpTool{Reconciler: r}
	ending := tools.Execute(ctx, looking, call, options)
	switch {
	case ending.Err != nil:
		return tools.Result{}, false, ending.Err
	case ending.Outcome != tools.Succeeded && ending.Outcome != tools.Failed:
		return tools.Result{}, false, errors.New(ending.Result.Text)
	}
	return ending.Result, looking.happened, nil
}

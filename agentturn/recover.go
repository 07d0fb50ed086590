package agentturn

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Results of started calls that a lost worker left without one.
const (
	// A call of effect once can be recorded as started once only, so one that
	// certainly did not happen is not run again either.
	shownDidNotHappen = "the worker that ran this call was lost. It did not happen; not run again."
)

// measure finds the size of an output that the model knows by a handle. One that cannot
// be found is told of without.
func (t *task) measure(ctx context.Context, call turnkeeper.ToolCall, sizes map[turnkeeper.OutputID]int64) {
	if !prompt.Handled(call) || !call.State.Answered() || t.cfg.Outputs == nil {
		return
	}
	if stored, err := t.cfg.Outputs.DescribeOutput(ctx, t.record.Turn.ID, call.OutputID); err == nil {
		sizes[call.OutputID] = stored.Tokens
	}
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
	found, happened, err := lookUp(ctx, reconciler, t.toolCall(call, t.outputs(used), used), t.executeOptions(call, spec))
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

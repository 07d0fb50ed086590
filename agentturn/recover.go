package agentturn

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// shownDidNotHappen is the result of a call that a lost worker had started, and that did
// not happen. It is not run again, because a call of effect once has one start.
const shownDidNotHappen = "the worker that ran this call was lost. It did not happen; not run again."

// measure adds the size of an output that the model knows by its handle to sizes. It
// ignores errors: the size is only shown.
func (w *tooling) measure(ctx context.Context, call turnkeeper.ToolCall) {
	if !prompt.Handled(call) || !call.State.Answered() || w.task.cfg.Outputs == nil {
		return
	}
	if stored, err := w.task.cfg.Outputs.DescribeOutput(ctx, w.task.record.Turn.ID, call.OutputID); err == nil {
		w.sizes[call.OutputID] = stored.Tokens
	}
}

// reconcile asks the tool whether the call happened. ok is false if the tool cannot tell.
func (x *executor) reconcile(ctx context.Context, call *calls.Call) (turnlog.CallResult, bool) {
	reconciler, ok := call.Tool.(tools.Reconciler)
	if !ok {
		return turnlog.CallResult{}, false
	}
	if call.Begin(); call.Handles {
		if err := x.resolve(ctx, call); err != nil || !call.IsResolved() {
			return turnlog.CallResult{}, false
		}
	}
	call.UseEdited()
	x.at(ctx, PointReconcile)
	used := &toolrun.Meter{}
	memory := x.tooling.memory.Lease()
	x.pending.held = append(x.pending.held, memory)
	found, happened, err := lookUp(membudget.With(ctx, memory), reconciler, x.tooling.toolCall(call,
		x.tooling.outputs(used), used), x.tooling.executeOptions(call))
	if err != nil {
		x.log.Warn("cannot reconcile a tool call",
			zap.Stringer("call", call.Key), zap.String("tool", call.Name), zap.Error(err))
		return turnlog.CallResult{}, false
	}
	if !happened {
		return call.KeepHandle(call.Result(turnkeeper.CallFailed, shownDidNotHappen)), true
	}
	var result turnlog.CallResult
	if call.WentOn() {
		result = x.tooling.backgroundResult(call, found)
	} else {
		result = x.tooling.callResult(call, found, outputs.NewID())
	}
	result.Nonce, result.Ran, result.State, result.Usage = call.Nonce, !call.Paging,
		turnkeeper.CallSucceeded, used.Used()
	if found.IsError {
		result.State = turnkeeper.CallFailed
	}
	return result, true
}

// A lookUpTool reconciles a call when it is run, under the bounds of a run.
type lookUpTool struct {
	tools.Reconciler
	happened bool // valid once Run has returned
}

func (l *lookUpTool) Run(ctx context.Context, call tools.Call) (found tools.Result, err error) {
	found, l.happened, err = l.Reconcile(ctx, call)
	return found, err
}

// lookUp runs Reconcile as a tool run. It fails if that does not return in time.
func lookUp(ctx context.Context, r tools.Reconciler, call tools.Call,
	options tools.ExecuteOptions) (found tools.Result, happened bool, err error) {
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

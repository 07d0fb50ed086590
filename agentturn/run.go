package agentturn

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/membudget"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// launch starts a run of the call's tool. One of effect none ends when the turn is to finish. It is safe for concurrent
// use.
func (e *execution) launch(ctx context.Context, call *calls.Call) *toolrun.Run {
	execute, id := e.prepare(call)
	run := toolrun.Launch(ctx, *call.ToolCall, id, execute)
	if call.Effect == turnkeeper.EffectNone {
		go e.stopToFinish(run)
	}
	return run
}

// prepare returns a function that runs the call's tool. The function does not use the
// turn's mutable state, because the turn may go on meanwhile. id is the id of the output,
// if it is stored.
func (e *execution) prepare(call *calls.Call) (_ func(context.Context) toolrun.Result, id turnkeeper.OutputID) {
	id = cmp.Or(call.OutputID, outputs.NewID())
	tool, used := call.Tool, &toolrun.Meter{}
	asked, options := e.toolCall(call, e.outputs(used), used), e.executeOptions(call)
	if drafts, ok := e.journal.(toolrun.Drafts); ok && !call.Spec.Transactional { // a draft would be written outside the transaction
		options.Collect = toolrun.Collect(drafts, e.offered.Limits(call.ToolCall, id), id, e.log)
	} else {
		options.Collect = tools.Collect
	}
	observer, begin := e.cfg.Observer, ToolBegin{Call: *call.ToolCall, Agent: e.record.Turn.Agent}
	begin.Call.RunArgs, _ = call.AsRun()
	return func(ctx context.Context) toolrun.Result {
		memory := e.memory.Lease()
		ctx, end := observer.ToolCall(membudget.With(ctx, memory), begin)
		started := time.Now()
		ending := tools.Execute(ctx, tool, asked, options)
		end(toolEnd(ending, begin.Call.Effect))
		return toolrun.Result{Ending: ending, Took: time.Since(started), Used: used.Used(), Memory: memory}
	}, id
}

// executeOptions returns the options for running or reconciling a call. They count the
// tools that run past their timeout.
func (t *task) executeOptions(call *calls.Call) tools.ExecuteOptions {
	options := tools.ExecuteOptions{Log: t.log}
	if timeout := t.timeout(call.Spec); time.Until(t.wall) > timeout { // else ctx ends first
		options.Timeout = timeout
	}
	about := []zap.Field{zap.String("tool", call.Name), zap.Stringer("call", call.Key)}
	options.Abandoned = func() {
		t.log.Warn("a tool did not return at its timeout and still runs in this process",
			append(about, zap.Int64("left_behind", t.leftBehind.Add(1)))...)
	}
	options.Late = func(late tools.Ending) {
		t.log.Warn("a tool returned after its timeout",
			append(about, zap.String("outcome", string(late.Outcome)), zap.Int64("left_behind", t.leftBehind.Add(-1)))...)
	}
	return options
}

// dropDraft removes the draft that a lost worker has written under an output's id.
func (e *execution) dropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	drafts, ok := e.journal.(toolrun.Drafts)
	if !ok {
		return nil
	}
	return e.retryRead(ctx, func() error { return drafts.DropDraft(ctx, id) })
}

// outputs returns the stored results that a call may read, or nil if there is no store.
func (e *execution) outputs(used *toolrun.Meter) tools.Outputs {
	if e.cfg.Outputs == nil {
		return nil
	}
	return &toolrun.OutputStore{
		Turn: e.record.Turn.ID, Stored: e.cfg.Outputs, Calls: e.calls.All(), Runs: e.calls.Runs(),
		MaxChars: e.bounds.MaxToolResultChars, PageOf: e.offered.MaxChars, MaxTokens: int64(e.bounds.AsyncTokenThreshold),
		Search: func(ctx context.Context, from extract.Source, query string) (tools.Result, error) {
			return e.extract(ctx, from, query, used)
		},
	}
}

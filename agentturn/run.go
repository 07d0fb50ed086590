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
func (w *tooling) launch(ctx context.Context, call *calls.Call) *toolrun.Run {
	execute, id := w.prepare(call)
	return w.start(ctx, call, id, execute)
}

// start starts a run that is prepared.
func (w *tooling) start(ctx context.Context, call *calls.Call, id turnkeeper.OutputID,
	execute func(context.Context) toolrun.Result) *toolrun.Run {
	run := toolrun.Launch(ctx, *call.ToolCall, id, execute)
	if call.Effect == turnkeeper.EffectNone {
		go w.stopToFinish(run)
	}
	return run
}

// prepare returns a function that runs the call's tool. The function does not use the
// turn's mutable state, because the turn may go on meanwhile. id is the id of the output,
// if it is stored.
func (w *tooling) prepare(call *calls.Call) (_ func(context.Context) toolrun.Result, id turnkeeper.OutputID) {
	id = newOutputID(call)
	used := &toolrun.Meter{}
	asked, options := w.toolCall(call, w.outputs(used), used), w.executeOptions(call)
	if w.drafts != nil && !call.Spec.Transactional { // a draft would be written outside the transaction
		options.Collect = toolrun.Collect(w.drafts, w.task.offered.Limits(call.ToolCall, call.Spec, id), id, w.task.log)
	} else {
		options.Collect = tools.Collect
	}
	return w.runOf(call, asked, options, used, nil), id
}

// newOutputID returns the id under which the output of a run is stored.
func newOutputID(call *calls.Call) turnkeeper.OutputID { return cmp.Or(call.OutputID, outputs.NewID()) }

// runOf returns a function that runs the tool of a call and reports it to the Observer. If the run began early, it
// lasts until its answer stands or it is thrown away.
func (w *tooling) runOf(call *calls.Call, asked tools.Call, options tools.ExecuteOptions, used *toolrun.Meter,
	early *earlyRun) func(context.Context) toolrun.Result {
	tool, observer := call.Tool, w.task.cfg.Observer
	begin := ToolBegin{Call: *call.ToolCall, Agent: w.task.record.Turn.Agent}
	begin.Call.RunArgs, _ = call.AsRun()
	return func(ctx context.Context) toolrun.Result {
		memory := w.memory.Lease()
		ctx, end := observer.ToolCall(membudget.With(ctx, memory), begin)
		started := time.Now()
		res := tools.Execute(ctx, tool, asked, options)
		done := toolrun.Result{RunResult: res, Began: started, Duration: time.Since(started), Memory: memory}
		ended := toolEnd(res, begin.Call.Effect)
		if early != nil {
			ended.Unused = early.await(ctx) != nil
			ended.WireID, ended.Duration = early.wireID, done.Duration
		}
		if ended.Unused {
			memory.Release()
		}
		end(ended)
		done.Used = used.Used()
		return done
	}
}

// executeOptions returns the options for running or reconciling a call. They count the
// tools that run past their timeout.
func (w *tooling) executeOptions(call *calls.Call) tools.ExecuteOptions {
	options := tools.ExecuteOptions{Log: w.task.log}
	if timeout := w.task.clock.timeout(call.Spec); time.Until(w.task.clock.wall) > timeout { // else ctx ends first
		options.Timeout = timeout
	}
	about := []zap.Field{zap.String("tool", call.Name), zap.Stringer("call", call.Key)}
	options.Abandoned = func() {
		w.task.log.Warn("a tool did not return at its timeout and still runs in this process",
			append(about, zap.Int64("left_behind", w.leftBehind.Add(1)))...)
	}
	options.Late = func(late tools.RunResult) {
		w.task.log.Warn("a tool returned after its timeout",
			append(about, zap.String("outcome", string(late.Outcome)), zap.Int64("left_behind",
				w.leftBehind.Add(-1)))...)
	}
	return options
}

// dropDraft removes the draft that a lost worker has written under an output's id.
func (w *tooling) dropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	if w.drafts == nil {
		return nil
	}
	return retryRead(ctx, w.task.log, func() error { return w.drafts.DropDraft(ctx, id) })
}

// outputs returns the stored results that a call may read, or nil if there is no store.
func (w *tooling) outputs(used *toolrun.Meter) tools.Outputs {
	if w.task.cfg.Outputs == nil {
		return nil
	}
	return &toolrun.OutputStore{
		Turn: w.task.record.Turn.ID, Stored: w.task.cfg.Outputs, Calls: w.calls.All(), Runs: w.calls.Runs(),
		Past:     w.task.record.History,
		MaxChars: w.task.bounds.MaxToolResultChars, PageOf: w.task.offered.MaxCharsOf,
		MaxTokens: int64(w.task.bounds.AsyncTokenThreshold),
		Search: func(ctx context.Context, from extract.Source, query string) (tools.Result, error) {
			return w.asker.extract(ctx, from, query, used)
		},
	}
}

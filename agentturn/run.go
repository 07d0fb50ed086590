package agentturn

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// prepare makes the run of the call's tool within its time. The run itself does
// not look at the turn, which may have gone on. id is that of its output, should
// that be stored.
func (t *execution) prepare(call *turnkeeper.ToolCall) (_ func(context.Context) toolrun.Result, id turnkeeper.OutputID) {
	tool, _ := t.offered.Get(call.Name)
	spec, _ := t.offered.Spec(call.Name)
	id = cmp.Or(call.OutputID, outputs.NewID())
	used := &toolrun.Meter{}
	asked, options := t.toolCall(call, t.outputs(used), used), t.executeOptions(call, spec)
	if drafts, ok := t.journal.(toolrun.Drafts); ok && !spec.Transactional { // in a transaction nothing is written beside it
		options.Collect = toolrun.Collect(drafts, t.offered.Limits(call, id), id, t.log)
	} else {
		options.Collect = tools.Collect
	}
	observer, begin := t.cfg.Observer, ToolBegin{Call: *call, Agent: t.record.Turn.Agent}
	return func(ctx context.Context) toolrun.Result {
		ctx, told := observer.ToolCall(ctx, begin)
		started := time.Now()
		ending := tools.Execute(ctx, tool, asked, options)
		told(toolEnd(ending, begin.Call.Effect))
		return toolrun.Result{Ending: ending, Took: time.Since(started), Used: used.Used()}
	}, id
}

// executeOptions bound a run, or a look-up, of the call's tool, and keep account
// of tools that do not return.
func (t *task) executeOptions(call *turnkeeper.ToolCall, spec tools.Spec) tools.ExecuteOptions {
	options := tools.ExecuteOptions{Log: t.log}
	if timeout := t.timeout(spec); time.Until(t.wall) > timeout { // else the end of the turn ends it
		options.Timeout = timeout
	}
	about := []zap.Field{zap.String("tool", call.Name), zap.Stringer("call", call.Key)}
	options.Abandoned = func() {
		t.log.Warn("a tool did not return in its time and was left behind; it goes on in this process",
			append(about, zap.Int64("left_behind", t.leftBehind.Add(1)))...)
	}
	options.Late = func(late tools.Ending) {
		t.log.Warn("a tool that was left behind has returned",
			append(about, zap.String("outcome", string(late.Outcome)), zap.Int64("left_behind", t.leftBehind.Add(-1)))...)
	}
	return options
}

// dropDraft removes what a lost worker has written of a result, before it is written
// again under its id.
func (t *execution) dropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	drafts, ok := t.journal.(toolrun.Drafts)
	if !ok {
		return nil
	}
	return t.patiently(ctx, func() error { return drafts.DropDraft(ctx, id) })
}

// outputs returns what a call may read of the turn's results; nil: nothing.
func (t *execution) outputs(used *toolrun.Meter) tools.Outputs {
	if t.cfg.Outputs == nil {
		return nil
	}
	return &toolrun.OutputStore{
		Turn: t.record.Turn.ID, Stored: t.cfg.Outputs, Calls: t.rounds.all(), Runs: t.background.Sorted(),
		MaxChars: t.bounds.MaxToolResultChars, PageOf: t.offered.MaxChars, MaxTokens: int64(t.bounds.AsyncTokenThreshold),
		Search: func(ctx context.Context, from extract.Source, query string) (tools.Result, error) {
			return t.extract(ctx, from, query, used)
		},
	}
}

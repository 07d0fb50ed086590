package agentturn

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A run is one finished run of a tool.
type run struct {
	tools.Ending
	id   turnkeeper.OutputID // of its output, should it be stored
	took time.Duration
	used turnkeeper.Usage // of model calls made for it
}

// prepare makes the run of the call's tool within its time. The run itself does
// not look at the turn, which may have gone on. id is that of its output, should
// that be stored.
func (t *turn) prepare(ctx context.Context, call *turnkeeper.ToolCall) (_ func() run, id turnkeeper.OutputID) {
	tool, _ := t.offered.Get(call.Name)
	spec, _ := t.offered.Spec(call.Name)
	id = cmp.Or(call.OutputID, outputs.NewID())
	used := &meter{}
	asked, options := t.toolCall(call, used), t.executeOptions(call, spec)
	options.Collect = t.collector(call, spec, id)
	observer, begin := t.cfg.Observer, ToolBegin{Call: *call, Agent: t.record.Turn.Agent}
	return func() run {
		ctx, told := observer.ToolCall(ctx, begin)
		started := time.Now()
		ending := tools.Execute(ctx, tool, asked, options)
		told(toolEnd(ending, begin.Call.Effect))
		return run{Ending: ending, id: id, took: time.Since(started), used: used.read()}
	}, id
}

// executeOptions bound a run, or a look-up, of the call's tool, and keep account
// of tools that do not return.
func (t *turn) executeOptions(call *turnkeeper.ToolCall, spec tools.Spec) tools.ExecuteOptions {
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

// keep keeps what a run ended with. One that was cut short by the end of the
// turn's context waits for what the turn makes of that.
func (t *turn) keep(call *turnkeeper.ToolCall, done run, nonce string) {
	result := t.take(call, done.Result, done.id)
	result.Nonce, result.Duration, result.Ran, result.State = nonce, done.took, !call.Paging, stateOf(done.Outcome, call.Effect)
	result.Usage = done.used
	if result.State == turnkeeper.CallCancelled {
		t.interrupted[call.Key] = result
		return
	}
	t.answer(call, result)
}

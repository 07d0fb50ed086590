package agentturn

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/tools"
)

// A run is one finished run of a tool.
type run struct {
	tools.Ending
	took time.Duration
}

// runTool runs the call's tool within its time. It may be called by several
// goroutines at once.
func (t *turn) runTool(ctx context.Context, call *turnkeeper.ToolCall) run {
	tool, _ := t.offered.Get(call.Name)
	spec, _ := t.offered.Spec(call.Name)
	options := tools.ExecuteOptions{Log: t.log}
	if timeout := t.timeout(spec); time.Until(t.wall) > timeout { // else the end of the turn ends it
		options.Timeout = timeout
	}
	name, key := call.Name, call.Key
	options.Late = func(late tools.Ending) {
		t.log.Warn("a tool that was left behind has returned",
			zap.String("tool", name), zap.Stringer("call", key), zap.String("outcome", string(late.Outcome)))
	}
	started := time.Now()
	ending := tools.Execute(ctx, tool, t.toolCall(call), options)
	return run{Ending: ending, took: time.Since(started)}
}

// keep keeps what a run ended with. One that was cut short by the end of the
// turn's context waits for what the turn makes of that.
func (t *turn) keep(call *turnkeeper.ToolCall, done run, nonce string) {
	result := t.take(call, done.Result)
	result.Nonce, result.Duration, result.Ran = nonce, done.took, !call.Paging
	switch done.Outcome {
	case tools.Succeeded:
		result.State = turnkeeper.CallSucceeded
	case tools.Cancelled:
		result.State = turnkeeper.CallCancelled
		t.interrupted[call.Key] = result
		return
	default:
		result.State = turnkeeper.CallFailed
	}
	t.answer(call, result)
}

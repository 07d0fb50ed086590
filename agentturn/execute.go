package agentturn

import (
	"context"
	"time"
	"turnkeeper/agentturn/prompt"

	"go.uber.org/zap"

	"turnkeeper"
)

// execute runs the open calls in order: adjacent calls of effect none in parallel, the
// others one at a time. Results are written with the next start, or before anything
// else begins.
func (t *execution) execute(ctx context.Context) (state, error) {
	if n := len(t.rounds); t.round.number != n && len(t.runnable()) > 0 { // the round's answer came in an earlier dispatch
		ctx = t.enterRound(ctx, n, true)
	}
	for open := t.runnable(); len(open) > 0; open = t.runnable() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		wait, err := t.awaitHolders(ctx, open[0])
		if !wait && err == nil {
			wait, err = t.mustWait(ctx, open[0])
		}
		if err != nil {
			return nil, err
		}
		if wait {
			t.end = t.waiting()
			return nil, nil
		}
		if err := t.executeFirst(ctx, open); err != nil {
			return nil, err
		}
	}
	return t.decide, nil
}

// executeFirst gets the first of the open calls answered, and possibly more of them.
func (t *execution) executeFirst(ctx context.Context, open []*turnkeeper.ToolCall) error {
	call := open[0]
	spec, ok := t.offered.Spec(call.Name)
	if !ok { // planned by a worker that had the tool
		t.answerMissing(call)
		return nil
	}
	if first, ok := t.repeated(t.rounds.upTo(call.Key)); ok {
		result := textResult(call, turnkeeper.CallSkipped, repeatedResult(first))
		result.Preview = first.Preview
		t.answer(call, result)
		return nil
	}
	if call.State == turnkeeper.CallPlanned && !call.Paging && t.bounds.MaxToolCalls-t.rounds.executed() < 1 {
		t.answer(call, textResult(call, turnkeeper.CallDenied, shownOverCalls(t.bounds)))
		return nil
	}
	if spec.Detached && t.offered.HasHandles(call) {
		return t.refuse(call, shownNoHandles, nil)
	}
	if refused, err := t.resolve(ctx, call); err != nil || refused != "" {
		return t.refuse(call, refused, err)
	}
	if call.Name == turnkeeper.ToolSpawnAgent {
		return t.spawn(ctx, call)
	}
	if spec.Detached {
		return t.detach(ctx, call, spec)
	}
	if call.State == turnkeeper.CallRunning {
		return t.rerun(ctx, call, spec)
	}
	if isRead(call) {
		return t.runReads(ctx, t.reads(open))
	}
	if !t.timeFor(spec) {
		t.denyRest(open)
		return nil
	}
	if spec.Transactional {
		return t.runTransactional(ctx, call, spec)
	}
	return t.runEffect(ctx, call, spec)
}

// answerMissing answers a call whose tool the agent no longer has.
func (t *execution) answerMissing(call *turnkeeper.ToolCall) {
	if call.State != turnkeeper.CallPlanned { // its worker was lost, and it cannot be run again
		t.giveVerdict(call)
		return
	}
	t.answer(call, textResult(call, turnkeeper.CallDenied,
		"tool not found: "+call.Name+"\nIt was taken away after the call was planned. Nothing was run."))
}

// denyRest answers all open calls: the lease is too short for the first of them, so the
// turn goes on to its reply. Calls that a lost worker had started get a verdict instead
// of a denial.
func (t *execution) denyRest(open []*turnkeeper.ToolCall) {
	t.log.Warn("not enough time left in this turn", zap.Stringer("call", open[0].Key),
		zap.String("tool", open[0].Name), zap.Duration("lease_left", time.Until(t.lease)), zap.Duration("margin", t.bounds.Margin))
	for _, call := range open {
		if call.State == turnkeeper.CallPlanned {
			t.answer(call, textResult(call, turnkeeper.CallDenied, prompt.ShownNoTime))
		} else {
			t.giveVerdict(call)
		}
	}
}

package agentturn

import (
	"context"
	"slices"

	"turnkeeper/internal/fault"
	"turnkeeper/internal/turnlog"
)

// The fault points of a turn, at which a fault.Hook is called. The point after a write is
// reached only if the write succeeded.
const (
	PointStart         = "turn.start"
	PointReconcile     = "recover.reconcile"
	PointProbed        = "model.probed"  // the model has answered the worker's own request
	PointModelBefore   = "model.before"  // the request is built, and its budget reserved
	pointModelFirst    = "model.first"   // first delta of the answer
	pointModelMore     = "model.more"    // a later delta
	PointModelAfter    = "model.after"   // the answer or error has arrived
	PointPlanned       = "model.planned" // the round is planned, but not written
	pointAskBefore     = "ask.open.before"
	pointAskAfter      = "ask.open.after"
	pointSeenBefore    = "ask.seen.before"
	pointSeenAfter     = "ask.seen.after"
	PointStartBefore   = "call.start.before"
	PointStartAfter    = "call.start.after"
	PointChecked       = "call.checked"     // the time check after the start passed
	PointEffectDone    = "call.effect_done" // a tool with an effect has returned, but nothing is written
	pointReadsDone     = "call.reads_done"  // a batch of tools of effect none has returned
	pointTransactEnter = "call.transact.before"
	pointTransactRan   = "call.transact.ran" // in the transaction, after the tool
	pointTransactLeave = "call.transact.after"
	PointResultsBefore = "call.results.before"
	pointResultsAfter  = "call.results.after"
	pointVerdictBefore = "recover.verdict.before"
	pointVerdictAfter  = "recover.verdict.after"
	pointPlanBefore    = "plan.before"
	PointPlanAfter     = "plan.after"
	pointStreamBefore  = "stream.before"
	PointStreamAfter   = "stream.after"
	pointFinishBefore  = "finish.before"
	pointFinishAfter   = "finish.after"
	PointLate          = "turn.late" // before a late result is reported

	pointDetachedClaimed = "detached.claimed" // the claim is written, but the tool not started
	pointDetachedRan     = "detached.ran"     // the tool has returned, but nothing is written
	pointDetachedArrived = "detached.arrived" // the result is written
)

// writesOf returns the names of what a write has, whose entries are given. For each name there is one point before and
// one after the write.
func writesOf(entries []turnlog.Entry) []string {
	var writes []string
	has := func(in func(turnlog.Entry) bool) bool { return slices.ContainsFunc(entries, in) }
	for _, part := range []struct {
		name    string
		present bool
	}{
		{"recover.verdict", has(func(e turnlog.Entry) bool { return len(e.Verdicts) > 0 })},
		{"plan", has(func(e turnlog.Entry) bool { return e.Round != nil })},
		{"ask.open", has(func(e turnlog.Entry) bool { return len(e.Asks) > 0 })},
		{"ask.seen", has(func(e turnlog.Entry) bool { return len(e.Seen) > 0 })},
		{"call.start", has(func(e turnlog.Entry) bool { return len(e.Starts)+len(e.Inputs) > 0 })},
		{"call.results", has(func(e turnlog.Entry) bool { return len(e.Results) > 0 })},
		{"finish", has(func(e turnlog.Entry) bool { return e.Outcome != nil })},
	} {
		if part.present {
			writes = append(writes, part.name)
		}
	}
	if len(writes) == 0 {
		return []string{"stream"}
	}
	return writes
}

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string {
	return []string{
		PointStart, PointReconcile, pointVerdictBefore, pointVerdictAfter,
		PointProbed, PointModelBefore, pointModelFirst, pointModelMore, pointStreamBefore, PointStreamAfter,
		PointModelAfter, PointPlanned,
		pointPlanBefore, PointPlanAfter, pointAskBefore, pointAskAfter, pointSeenBefore, pointSeenAfter,
		PointStartBefore, PointStartAfter, PointChecked,
		PointEffectDone, pointReadsDone, pointTransactEnter, pointTransactRan, pointTransactLeave,
		PointResultsBefore, pointResultsAfter, pointFinishBefore, pointFinishAfter, PointLate,
		pointDetachedClaimed, pointDetachedRan, pointDetachedArrived,
	}
}

func (t *task) at(ctx context.Context, label string) {
	fault.At(ctx, t.cfg.Fault, label)
}

func (r *Runner) at(ctx context.Context, label string) {
	fault.At(ctx, r.cfg.Fault, label)
}

package agentturn

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/fault"
)

// Points of a turn at which a fault.Hook is called. A write has one point
// before it, and one after it, which is reached only when it went through.
const (
	PointStart         = "turn.start"
	PointReconcile     = "recover.reconcile"
	PointModelBefore   = "model.before"  // request ready and paid for
	pointModelFirst    = "model.first"   // first piece of the answer
	pointModelMore     = "model.more"    // a later piece
	PointModelAfter    = "model.after"   // answer or error read
	PointPlanned       = "model.planned" // answer planned, nothing written
	PointStartBefore   = "call.start.before"
	PointStartAfter    = "call.start.after"
	PointChecked       = "call.checked"     // the time check after the start passed
	PointEffectDone    = "call.effect_done" // effectful tool has returned, nothing written
	pointReadsDone     = "call.reads_done"  // the same for a batch of effect none
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

	pointDetachedClaimed = "detached.claimed" // the claim is on record, the tool not begun
	pointDetachedRan     = "detached.ran"     // the tool has returned, nothing is written
	pointDetachedArrived = "detached.arrived" // the result is on record
)

// writesOf names what an entry writes; each name stands for a point before the
// write and one after it.
func writesOf(e turnkeeper.Entry) []string {
	var writes []string
	for _, part := range []struct {
		name  string
		there bool
	}{
		{"recover.verdict", len(e.Verdicts) > 0},
		{"plan", e.Round != nil},
		{"call.start", len(e.Starts) > 0},
		{"call.results", len(e.Results) > 0},
		{"finish", e.Outcome != nil},
	} {
		if part.there {
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
		PointModelBefore, pointModelFirst, pointModelMore, pointStreamBefore, PointStreamAfter, PointModelAfter, PointPlanned,
		pointPlanBefore, PointPlanAfter, PointStartBefore, PointStartAfter, PointChecked,
		PointEffectDone, pointReadsDone, pointTransactEnter, pointTransactRan, pointTransactLeave,
		PointResultsBefore, pointResultsAfter, pointFinishBefore, pointFinishAfter, PointLate,
		pointDetachedClaimed, pointDetachedRan, pointDetachedArrived,
	}
}

func (t *task) at(ctx context.Context, label string) {
	fault.At(ctx, t.cfg.Fault, label)
}

func (t *task) atEach(ctx context.Context, writes []string, suffix string) {
	for _, write := range writes {
		t.at(ctx, write+suffix)
	}
}

func (r *Runner) at(ctx context.Context, label string) {
	fault.At(ctx, r.cfg.Fault, label)
}

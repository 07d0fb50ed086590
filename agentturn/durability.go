package agentturn

import (
	"context"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// With durability barrier (spec, section 4), an answer and the results of calls of effect none need not be on record
// before the turn asks a model again, or runs reads that no rule asks about. They wait in the pending entry for what
// comes next, at most for behindTime if that takes longer. All else calls commit first, which writes them: the start of
// an effect, an ask, a wait, the end. A lost worker repeats what was not written: model calls and reads.
//
// The writes of a turn stay in order, one at a time, so its journal is always a beginning of what has happened.

// behindTime is how long an answer or a result waits for the next write while the turn waits for a model or a tool.
const behindTime = 20 * time.Millisecond

// recordForModel writes the pending entry before a model call, unless it may be written behind the turn.
func (e *execution) recordForModel(ctx context.Context) error {
	if !e.pending.hasStep() || e.def.WritesBehind() && !e.mustRecord() {
		return nil
	}
	return e.commit(ctx)
}

// recordRound writes the pending entry if it has an answer, before another answer or a wait for background calls.
func (e *execution) recordRound(ctx context.Context) error {
	if e.pending.Round == nil {
		return nil
	}
	return e.commit(ctx)
}

// mustRecord reports whether a result that the turn must not lose waits to be written: that of an effect, even if it
// did not run, one with a start, and one that is stored whole.
func (e *execution) mustRecord() bool {
	return e.pending.hasEffect() || e.pending.hasOutput() ||
		slices.ContainsFunc(e.pending.Results, func(r turnlog.CallResult) bool {
			return e.calls.Call(r.Key).Effect != turnkeeper.EffectNone
		})
}

// behindDue returns a channel that fires when the turn has waited for a model or a tool for so long that what waits to
// be written must be on record. It is nil if nothing waits.
func (e *execution) behindDue() <-chan time.Time {
	if e.def.WritesBehind() && e.pending.hasStep() {
		return time.After(behindTime)
	}
	return e.events.Due(progressInterval)
}

// unrecorded reports whether anything waits to be written while the turn waits for a model or a tool.
func (e *execution) unrecorded() bool {
	return len(e.events.Unwritten()) > 0 || e.def.WritesBehind() && e.pending.hasStep()
}

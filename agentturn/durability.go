package agentturn

import (
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/turnlog"
)

// With durability barrier (section 4 of the contract), an answer and the results of calls of effect none need not be on
// record before the turn asks a model again, or runs reads that no rule asks about. They wait in the pending write,
// which may have several answers, for as long as behindTime while the turn waits for models and tools. All else calls
// commit first, which writes them: the start of an effect, an ask, a wait, the end. A lost worker repeats what was not
// written: model calls and reads.
//
// The writes of a turn stay in order, one at a time, so its journal is always a beginning of what has happened.

// behindTime is how long an answer or a result may wait for the next write while the turn waits for a model or a tool.
const behindTime = 20 * time.Millisecond

// hasStep reports whether an answer of the model, or the result of a call, waits to be written.
func (p *pending) hasStep() bool { return len(p.Earlier) > 0 || p.Round != nil || len(p.Results) > 0 }

// mustRecord reports whether a result that the turn must not lose waits to be written: that of an effect, even if it
// did not run, one with a start, and one that is stored whole.
func (p *pending) mustRecord(all *calls.List) bool {
	return p.hasEffect() || p.hasOutput() || slices.ContainsFunc(p.Results, func(r turnlog.CallResult) bool {
		return all.Call(r.Key).Effect != turnkeeper.EffectNone
	})
}

// due returns a channel that fires when the turn waits for a model or a tool and what waits to be written must be on
// record: when the oldest answer is behindTime old, or behindTime from now if only results wait. It is nil if nothing
// waits.
func (p *pending) due(events *turnevents.Builder) <-chan time.Time {
	if !p.hasStep() {
		return events.Due(progressInterval)
	}
	for _, entry := range p.Sequence() {
		if entry.Round != nil {
			return time.After(time.Until(entry.Round.EndedAt.Add(behindTime)))
		}
	}
	return time.After(behindTime)
}

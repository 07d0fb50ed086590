package agentturn

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// repeated reports whether the last of the calls repeats the one directly before it,
// which succeeded or still runs: it would run with the arguments with which that ran.
// A call with handles is compared once they are resolved. Paging calls are ignored.
// first is the call that is repeated.
func (l approvals) repeated(calls []turnkeeper.ToolCall) (first turnkeeper.ToolCall, ok bool) {
	last := calls[len(calls)-1]
	if last.Paging || last.Starts > 0 || !l.offered.Guarded(last) || l.offered.HasHandles(&last) && l.resolved.key != last.Key {
		return first, false
	}
	hash := last.ArgsHash
	if _, asRun := l.asRun(&last); asRun != "" {
		hash = asRun
	}
	for i := len(calls) - 2; i >= 0; i-- {
		call := calls[i]
		switch {
		case call.Paging:
		case call.ArgsHash != hash:
			return first, false
		case call.State == turnkeeper.CallSucceeded, call.State == turnkeeper.CallRunning:
			return call, true
		case call.State != turnkeeper.CallSkipped: // a skipped call may itself repeat an earlier one
			return first, false
		}
	}
	return first, false
}

// answerRepeated answers a call that repeats the one directly before it, and reports whether it did.
func (l approvals) answerRepeated(call *turnkeeper.ToolCall) bool {
	first, ok := l.repeated(l.rounds.upTo(call.Key))
	if !ok {
		return false
	}
	result := textResult(call, turnkeeper.CallSkipped, repeatedResult(first))
	result.Preview = first.Preview
	l.answer(call, result)
	return true
}

// mayRepeat reports whether the last of an answer's calls equals the one directly
// before it and both are still to run. Whether the last one runs then depends on how
// the first one ends.
func mayRepeat(calls []turnkeeper.ToolCall) bool {
	last := calls[len(calls)-1]
	if last.Paging || last.State != turnkeeper.CallPlanned {
		return false
	}
	for _, call := range slices.Backward(calls[:len(calls)-1]) {
		if !call.Paging {
			return call.ArgsHash == last.ArgsHash && call.State == turnkeeper.CallPlanned
		}
	}
	return false
}

func repeatedResult(first turnkeeper.ToolCall) string {
	return first.Shown + "\n\n[This is the result of " + first.Key.String() +
		" again: the same call was made directly before, and was not run a second time. Use the result, or change the arguments.]"
}

// mayRepeat is like the function mayRepeat, but only for calls that are guarded.
func (t *task) mayRepeat(calls []turnkeeper.ToolCall) bool {
	return t.offered.Guarded(calls[len(calls)-1]) && mayRepeat(calls)
}

// skip decides whether a call in the first round of a scheduled turn is skipped because
// of what earlier turns did. It applies to tools with an effect, and to reading tools
// that ask for it. A call with handles is not skipped: a handle names a result of this
// turn, so an earlier turn's call with equal handles had other arguments.
func (t *task) skip(ctx context.Context, call turnkeeper.ToolCall) (text string, skip bool) {
	b := t.bounds
	spec, _ := t.offered.Spec(call.Name)
	window, checks := spec.ChecksEarlier(b.FreshnessWindow)
	if !checks || !t.scheduled() || call.Key.Round != 1 || t.offered.HasHandles(&call) || t.cfg.Freshness == nil ||
		window <= 0 && b.CooldownFailures <= 0 {
		return "", false
	}
	within := max(window, b.CooldownWindow+b.Cooldown)
	past, err := t.cfg.Freshness.RecentCalls(ctx, t.record.Turn.Agent, call.Name, call.ArgsHash, within)
	if err != nil {
		t.log.Warn("earlier calls could not be read; the call is not checked for freshness",
			zap.Stringer("call", call.Key), zap.Error(err))
		return "", false
	}
	if text, skip = fresh(past, window); skip {
		return text, true
	}
	return coolingDown(past, b)
}

// fresh reports whether an equal call succeeded within the window. past is sorted newest first.
func fresh(past []turnlog.PastCall, window time.Duration) (text string, skip bool) {
	for _, call := range past {
		if window > 0 && call.Succeeded && call.Ago <= window {
			return fmt.Sprintf("skipped due to freshness dedupe: last success %d seconds ago within %d second window",
				int64(call.Ago/time.Second), int64(window/time.Second)), true
		}
	}
	return "", false
}

// coolingDown reports whether the newest equal calls all failed, close together and not long ago.
func coolingDown(past []turnlog.PastCall, b turnkeeper.Bounds) (text string, skip bool) {
	n := b.CooldownFailures
	if n <= 0 || len(past) < n {
		return "", false
	}
	for _, call := range past[:n] {
		if call.Succeeded {
			return "", false
		}
	}
	newest, oldest := past[0].Ago, past[n-1].Ago
	if newest >= b.Cooldown || oldest-newest > b.CooldownWindow {
		return "", false
	}
	return fmt.Sprintf("skipped due to failure cool-down: %d failures within %d second window, last %d seconds ago, cool-down of %d seconds",
		n, int64(b.CooldownWindow/time.Second), int64(newest/time.Second), int64(b.Cooldown/time.Second)), true
}

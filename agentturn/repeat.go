package agentturn

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/internal/turnlog"
)

// skip decides whether a call in the first round of a scheduled turn is skipped because
// of what earlier turns did. It applies to tools with an effect, and to reading tools
// that ask for it. A call with handles is not skipped: a handle names a result of this
// turn, so an earlier turn's call with equal handles had other arguments.
func (p *planner) skip(ctx context.Context, call *calls.Call) (text string, skip bool) {
	if !p.looksBack(call) {
		return "", false
	}
	t := p.task
	b := t.bounds
	window, _ := call.Spec.ChecksEarlier(b.FreshnessWindow)
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

// looksBack reports whether what earlier turns did decides about a call.
func (p *planner) looksBack(call *calls.Call) bool {
	t := p.task
	window, checks := call.Spec.ChecksEarlier(t.bounds.FreshnessWindow)
	return checks && t.scheduled() && call.Key.Round == 1 && !call.Handles && t.cfg.Freshness != nil &&
		(window > 0 || t.bounds.CooldownFailures > 0)
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
	return fmt.Sprintf(
		"skipped due to failure cool-down: %d failures within %d second window, last %d seconds ago, cool-down of %d seconds",
		n, int64(b.CooldownWindow/time.Second), int64(newest/time.Second), int64(b.Cooldown/time.Second)), true
}

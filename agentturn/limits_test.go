package agentturn_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/bounds"
	"turnkeeper/tools/builtin"
)

// A timeRow is a bound that is a time: with any value of it, what is observed a millisecond before it, exactly at it,
// and a millisecond after it.
type timeRow struct {
	set               func(b *bench, limit time.Duration)
	see               func(b *bench, at time.Duration) string // something takes, or has taken, so long
	before, at, after string                                  // at: empty if two timers end at the same time
}

// timesElsewhere are the times that do not act in this package, and the tests of them.
var timesElsewhere = map[string]string{
	"ModelTimeout":    "internal/app TestTheTimesOfAModelCall",
	"ModelIdle":       "internal/app TestTheTimesOfAModelCall",
	"LeaseTTL":        "internal/app TestEverySettingOfAWorkerHasAnEffect",
	"SubAgentTimeout": "internal/app TestEverySettingOfAnAgentHasAnEffect",
}

// agentSets sets a bound in the agent's own definition, as its file does.
func agentSets(name string) func(*bench, time.Duration) {
	return func(b *bench, limit time.Duration) {
		b.def.Overrides = bounds.Overrides{name: limit}
		b.bounds = b.def.Bounds(b.bounds)
	}
}

var timeRows = map[string]timeRow{
	"ToolTimeout": {set: agentSets("tool_timeout"), see: callLasts(turnkeeper.EffectOnce), before: "once found it",
		after: "timed out"},
	"AsyncTimeout": {set: func(b *bench, limit time.Duration) {
		b.bounds.AsyncTimeout = limit
	}, see: callLasts(turnkeeper.EffectNone), before: "none found it", after: "Tool Output ID"},
	"MaxDuration": {set: func(b *bench, limit time.Duration) {
		b.bounds.MaxDuration, b.wall, b.bounds.ToolTimeout = limit, limit, time.Hour
	}, see: callLasts(turnkeeper.EffectOnce), before: "once found it", after: "was cancelled: the turn's time is over"},
	"FreshnessWindow": {set: func(b *bench, limit time.Duration) { b.bounds.FreshnessWindow = limit },
		see:    earlierCalls(func(at time.Duration) pastCalls { return pastCalls{{Succeeded: true, Ago: at}} }),
		before: "skipped due to freshness", at: "skipped due to freshness", after: "once ran"},
	"Cooldown": {set: func(b *bench, limit time.Duration) { b.bounds.CooldownFailures, b.bounds.Cooldown = 2, limit },
		see:    earlierCalls(func(at time.Duration) pastCalls { return pastCalls{{Ago: at}, {Ago: at + time.Second}} }),
		before: "skipped due to failure", at: "once ran", after: "once ran"},
	"CooldownWindow": {set: func(b *bench, limit time.Duration) {
		b.bounds.CooldownFailures, b.bounds.CooldownWindow = 2, limit
	},
		see: earlierCalls(func(at time.Duration) pastCalls {
			return pastCalls{{Ago: time.Second}, {Ago: at + time.Second}}
		}), before: "skipped due to failure", at: "skipped due to failure", after: "once ran"},
	"Margin": {set: func(b *bench, limit time.Duration) {
		// The call may take all but a minute of the lease. It starts only if more than the margin is left.
		b.bounds.ToolTimeout, b.bounds.Margin, b.lease, b.wall = time.Minute, limit, time.Hour, 2*time.Hour
	}, see: func(b *bench, at time.Duration) string {
		b.lease = b.bounds.ToolTimeout + 2*b.bounds.Margin - at
		return callLasts(turnkeeper.EffectOnce)(b, 0)
	}, before: "once found it", at: "denied: not enough time", after: "denied: not enough time"},
	"GiveUpAfter": {set: agentSets("give_up_after"), see: failingFor, before: "waits", at: "gives up",
		after: "gives up"},
}

// TestEachTimeActsAtItsLimit checks each bound that is a time with two values of it.
func TestEachTimeActsAtItsLimit(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[turnkeeper.Bounds]()) {
		if field.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		row, has := timeRows[field.Name]
		if _, elsewhere := timesElsewhere[field.Name]; has == elsewhere {
			t.Errorf("the bound %s must have a row, or be named with another test", field.Name)
		}
		for _, limit := range []time.Duration{7 * time.Second, 11 * time.Second} {
			for at, want := range map[time.Duration]string{limit - time.Millisecond: row.before, limit: row.at,
				limit + time.Millisecond: row.after} {
				if !has || want == "" {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %s", field.Name, limit, at), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := newBench(t)
						b.bounds.AsyncTimeout = 0
						row.set(b, limit)
						if got := row.see(b, at); !strings.HasPrefix(got, want) {
							t.Errorf("%q, want %q", got, want)
						}
					})
				})
			}
		}
	}
}

// TestALeaseOutlastsTheToolsOwnTimeout starts calls of tools that have timeouts of their own, shorter and longer than
// that of others: a call with an effect starts only if the lease lasts for its timeout and the margin.
func TestALeaseOutlastsTheToolsOwnTimeout(t *testing.T) {
	for _, effect := range []turnkeeper.Effect{turnkeeper.EffectKeyed, turnkeeper.EffectOnce} {
		for _, own := range []time.Duration{10 * time.Second, 10 * time.Minute} {
			for over, want := range map[time.Duration]string{-time.Millisecond: "denied: not enough time",
				0: "denied: not enough time", time.Millisecond: "tool ran"} {
				t.Run(fmt.Sprintf("%s %s %s", effect, own, over), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						tool := newTool("tool", effect)
						tool.spec.Timeout = own
						b := newBench(t, asks("tool"), says("Done.")).with(tool)
						b.bounds.ToolTimeout, b.bounds.Margin = time.Minute, 15*time.Second
						b.lease, b.wall = own+15*time.Second+over, time.Hour
						b.run(t.Context())
						if got := b.store.calls()[0].Shown; !strings.HasPrefix(got, want) {
							t.Errorf("%q, want %q", got, want)
						}
					})
				})
			}
		}
	}
}

// callLasts runs a turn with a call that takes a time, and returns its result without the words that every error has.
func callLasts(effect turnkeeper.Effect) func(b *bench, at time.Duration) string {
	return func(b *bench, at time.Duration) string {
		name := string(effect)
		b.tools = builtin.NewReaders()
		b.with(lasting(name, effect, at)).script.Add(append([]inferencetest.Step{asks(name)},
			repeat(3, says("done"))...)...)
		b.run(b.t.Context())
		result := b.store.calls()[0].Shown
		if requests := b.requests(); len(requests) > 1 { // a result that comes later replaces it
			result = results(requests[1])[0]
		}
		return strings.TrimPrefix(result, "tool error: '"+name+"' ")
	}
}

// earlierCalls runs a turn of a schedule whose call was made before.
func earlierCalls(before func(at time.Duration) pastCalls) func(b *bench, at time.Duration) string {
	return func(b *bench, at time.Duration) string {
		b.store.trigger, b.freshness = turnkeeper.TriggerSchedule, before(at)
		b.with(once("once")).script.Add(asks("once"), says("done"))
		b.run(b.t.Context())
		return b.store.calls()[0].Shown
	}
}

// failingFor runs a turn whose model fails, and whose message has waited for it so long.
func failingFor(b *bench, at time.Duration) string {
	b.script.Add(repeat(9, fails(inference.ClassAuth))...)
	record, journal := b.store.dispatch()
	record.Waited = at
	outcome, err := b.resume(b.t.Context(), record, journal)
	if err != nil {
		b.t.Fatal(err)
	}
	if outcome.Retry {
		return "waits"
	}
	return "gives up"
}

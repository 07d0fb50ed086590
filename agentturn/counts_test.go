package agentturn_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// A countRow is a bound that is a number: with any value of it, what is observed of one less, of as many, and of one
// more.
type countRow struct {
	set               func(b *bench) *int
	see               func(b *bench, n int) string
	before, at, after string // %d stands for the limit, if there is one
	limits            []int  // nil: 2 and 4
}

// countsElsewhere are the numbers that do not act in this package, and the tests of them.
var countsElsewhere = map[string]string{
	"MaxTreeSubAgents": "TestATreeThatIsFull",
	"MaxDispatches":    "scheduler TestLostGrants",
}

var countRows = map[string]countRow{
	"MaxRounds": {
		set: func(b *bench) *int { return &b.bounds.MaxRounds }, see: rounds("look"),
		before: "succeeded none", at: "succeeded none", after: "degraded max_rounds",
	},
	"RoundCeiling": {
		set: func(b *bench) *int { return &b.bounds.RoundCeiling }, see: rounds("page"), limits: []int{4, 6},
		before: "succeeded none", at: "succeeded none", after: "degraded max_rounds",
	},
	"MaxToolCalls": {
		set: func(b *bench) *int { return &b.bounds.MaxToolCalls }, see: planned("pay"),
		before: "all planned, all asked about", at: "all planned, all asked about", after: "%d planned, %d asked about",
	},
	"MaxPagingCalls": {
		set: func(b *bench) *int { return &b.bounds.MaxPagingCalls }, see: planned("page"),
		before: "all planned, 0 asked about", at: "all planned, 0 asked about", after: "%d planned, 0 asked about",
	},
	"MaxSubAgents": {
		set: func(b *bench) *int { return &b.bounds.MaxSubAgents }, see: planned("spawn_agent"),
		before: "all planned, 0 asked about", at: "all planned, 0 asked about", after: "%d planned, 0 asked about",
	},
	"MaxSubAgentDepth": {
		set: func(b *bench) *int { return &b.bounds.MaxSubAgentDepth }, see: atDepth,
		before: "spawns", at: "does not spawn", after: "does not spawn",
	},
	"MaxToolResultChars": {
		set: func(b *bench) *int { return &b.bounds.MaxToolResultChars }, limits: []int{600, 900},
		see:    func(b *bench, n int) string { return resultOf(b, strings.Repeat("é", n)) },
		before: "whole", at: "whole", after: "cut",
	},
	"AsyncTokenThreshold": {
		set: func(b *bench) *int { return &b.bounds.AsyncTokenThreshold }, limits: []int{200, 300},
		see:    func(b *bench, n int) string { return resultOf(b, strings.Repeat("é", n*32/10)) }, // n tokens
		before: "whole", at: "whole", after: "a handle",
	},
	"CooldownFailures": {
		set: func(b *bench) *int { return &b.bounds.CooldownFailures },
		see: func(b *bench, n int) string {
			failures := pastCalls{}
			for i := range n {
				failures = append(failures, turnlog.PastCall{Ago: time.Duration(i+1) * time.Second})
			}
			shown, _, _ := strings.Cut(earlierCalls(func(time.Duration) pastCalls { return failures })(b, 0), ":")
			return shown
		},
		before: "once ran", at: "skipped due to failure cool-down", after: "skipped due to failure cool-down",
	},
	"MaxAttempts": {
		set: func(b *bench) *int { return &b.bounds.MaxAttempts },
		see: func(b *bench, n int) string {
			b.script.Add(repeat(3, fails(inference.ClassBadOutput))...)
			b.store.faults = n - 1
			return fmt.Sprintf("another attempt: %t", b.run(b.t.Context()).Retry)
		},
		before: "another attempt: true", at: "another attempt: false", after: "another attempt: false",
	},
}

// TestEachCountActsAtItsLimit checks each bound that is a number with two values of it.
func TestEachCountActsAtItsLimit(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[turnkeeper.Bounds]()) {
		if field.Type != reflect.TypeFor[int]() {
			continue
		}
		row, has := countRows[field.Name]
		if _, elsewhere := countsElsewhere[field.Name]; has == elsewhere {
			t.Errorf("the bound %s must have a row, or be named with another test", field.Name)
		}
		if row.limits == nil {
			row.limits = []int{2, 4}
		}
		for _, limit := range row.limits {
			for n, want := range map[int]string{limit - 1: row.before, limit: row.at, limit + 1: row.after} {
				if !has {
					continue
				}
				t.Run(fmt.Sprintf("%s %d %d", field.Name, limit, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := newBench(t)
						*row.set(b) = limit
						if got, want := row.see(b, n), strings.ReplaceAll(want, "%d", fmt.Sprint(limit)); got != want {
							t.Errorf("%q, want %q", got, want)
						}
					})
				})
			}
		}
	}
}

// rounds returns what runs a turn of n model calls, of which each but the last asks for a tool.
func rounds(name string) func(b *bench, n int) string {
	return func(b *bench, n int) string {
		page := read("page")
		page.spec.Paging = true
		b.with(read("look"), page)
		for i := range n - 1 {
			b.script.Add(asks(fmt.Sprintf(`%s {"n":%d}`, name, i)))
		}
		b.script.Add(repeat(3, says("done"))...)
		o := b.run(b.t.Context())
		return fmt.Sprintf("%s %s", o.State, o.StopReason)
	}
}

// planned returns what runs a turn of one answer with n calls. Those of pay need an approval.
func planned(name string) func(b *bench, n int) string {
	return func(b *bench, n int) string {
		page := read("page")
		page.spec.Paging = true
		b.with(once("pay").needsApproval(), page)
		b.def.SubAgents = []string{"scout"}
		var calls []string
		for i := range n {
			args := map[string]string{"spawn_agent": fmt.Sprintf(`{"agent":"scout","task":"%d"}`, i)}[name]
			if args == "" {
				args = fmt.Sprintf(`{"n":%d}`, i)
			}
			calls = append(calls, name+" "+args)
		}
		b.script.Add(asks(calls...), says("done"))
		b.run(b.t.Context())
		planned := 0
		for _, e := range b.store.entries {
			if e.Round == nil || e.Round.Number > 1 {
				continue
			}
			for _, call := range e.Round.Calls {
				if call.State == turnkeeper.CallPlanned {
					planned++
				}
			}
		}
		return strings.ReplaceAll(fmt.Sprintf("%d planned, %d asked about", planned, len(b.store.asked())),
			fmt.Sprint(n), "all")
	}
}

// atDepth says whether a turn with n turns above it may spawn an agent.
func atDepth(b *bench, n int) string {
	b.def.SubAgents = []string{"scout"}
	b.store.lineage = turnlog.Lineage{Root: 1, Parent: 2,
		Limits: turnlog.TreeLimits{MaxDepth: b.bounds.MaxSubAgentDepth, MaxAgents: 9}}
	for i := range n + 1 {
		b.store.lineage.Agents = append(b.store.lineage.Agents, fmt.Sprint("agent-", i))
	}
	b.script.Add(says("done"))
	b.run(b.t.Context())
	if slices.ContainsFunc(b.requests()[0].Tools, func(d inference.ToolDefinition) bool {
		return d.Name == turnkeeper.ToolSpawnAgent
	}) {
		return "spawns"
	}
	return "does not spawn"
}

// resultOf says how the result of a call with a text is shown.
func resultOf(b *bench, text string) string {
	b.tools = builtin.NewReaders()
	b.with(read("look").does(func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{Text: text}, nil
	}))
	b.script.Add(asks("look"), says("done"))
	b.run(b.t.Context())
	switch shown := results(b.requests()[1])[0]; {
	case shown == text:
		return "whole"
	case strings.HasPrefix(shown, "Tool Output ID: "):
		return "a handle"
	default:
		return "cut"
	}
}

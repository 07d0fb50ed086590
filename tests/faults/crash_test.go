package faults_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/internal/app"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// faults lists what can happen to a program at a fault point.
var faults = []string{"kill", "stop", "cut"}

// A program fails at each fault point. In the end every message has one reply and every invariant holds.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	for _, c := range matrix() {
		t.Run(strings.Join([]string{c.Point, c.Fault, c.Tool}, "/"), func(t *testing.T) {
			t.Parallel()
			crashTestOf(c.Point)(t, c)
		})
	}
}

// matrix returns the cases of the test tier. make crash: every point with every fault and every tool whose
// turn reaches the point. CI: each point once, with faults and tools in turn, and all faults at the points
// around an effect. make test: one point of each class, with faults and tools in turn.
func matrix() (all []env.Crash) {
	classes := map[string]bool{}
	for i, point := range app.FaultPoints() {
		tools := toolsAt(point)
		class := point[:strings.LastIndex(point, ".")]
		first := !classes[class]
		for j, fault := range faults {
			for k, tool := range tools {
				turn := i%len(faults) == j && (i/len(faults))%len(tools) == k
				core := slices.Contains(aroundEffects, point) && tool == "mark_once"
				one := first && len(classes)%len(faults) == j && (len(classes)/len(faults))%len(tools) == k
				if testrun.Long() || testrun.All() && (turn || core) || !testrun.All() && one {
					all = append(all, env.Crash{Point: point, Fault: fault, Tool: tool})
				}
			}
		}
		classes[class] = true
	}
	return all
}

var aroundEffects = []string{"call.start.after", "call.checked", "call.effect_done", "call.results.sent", "finish.sent"}

// toolsAt returns the tools whose turn reaches a point.
func toolsAt(point string) []string {
	switch {
	case point == "call.reads_done":
		return []string{"mark_none"}
	case strings.HasPrefix(point, "call.transact"):
		return []string{"note_write"}
	case strings.HasPrefix(point, "ask."), strings.HasPrefix(point, "call.start"), point == "call.checked",
		point == "call.effect_done":
		return []string{"mark_keyed", "mark_once"}
	case point == "call.results.sent": // results of effect none go with an answer or the end
		return []string{"mark_keyed", "mark_once"}
	case point == "plan.sent": // with reads only, the whole turn is one write, its end
		return []string{"mark_keyed", "mark_once", "note_write"}
	case strings.HasPrefix(point, "call.results"), point == "tick.lost":
		return []string{"mark_none", "mark_keyed", "mark_once"}
	case strings.HasPrefix(point, "detached."), point == "tick.lost_call":
		return []string{"mark_far_none", "mark_far_keyed", "mark_far_once"}
	case strings.HasPrefix(point, "recover.verdict"), point == "turn.late":
		return []string{"mark_once"}
	case point == "output.draft.sent":
		return []string{"mark_large"}
	case point == "recover.reconcile":
		return []string{"mark_sure"}
	case strings.HasPrefix(point, "accept."), strings.HasPrefix(point, "webhook."), point == "tick.fired",
		point == "tick.spawned":
		return []string{"mark_none"}
	default:
		return []string{"mark_none", "mark_keyed", "mark_once", "note_write"}
	}
}

// apply applies the fault to p, which is paused at the point until resume. end ends the fault; call it when
// other workers have done the rest.
func apply(e *env.CrashEnv, fault string, p *env.Process, resume func()) (end func()) {
	e.T.Helper()
	switch fault {
	case "kill":
		e.Kill(p)
		return func() {}
	case "stop":
		p.Signal(syscall.SIGSTOP)
		e.CountAsLost(p)
		return func() {
			e.CountAsAlive(p)
			resume()
			p.Signal(syscall.SIGCONT)
		}
	default:
		e.Proxy.Refuse(true)
		e.Proxy.Break()
		resume()
		return func() { e.Proxy.Refuse(false) }
	}
}

// wantRunsAllowed compares the runs of the tools with what their effects allow.
func wantRunsAllowed(e *env.CrashEnv) {
	e.T.Helper()
	runs := map[string][]env.Mark{}
	for _, m := range e.Ledger.Marks() {
		runs[m.Label] = append(runs[m.Label], m)
	}
	for label, marks := range runs {
		if tool := marks[0].Tool; len(marks) > 1 && slices.Contains([]string{"mark_once", "mark_sure", "mark_large",
			"mark_far_once"}, tool) {
			e.T.Errorf("%s ran %d times for %s", tool, len(marks), label)
		}
		for _, m := range marks {
			if m.IdempotencyKey != marks[0].IdempotencyKey {
				e.T.Errorf("%s ran with the keys %s and %s", label, m.IdempotencyKey, marks[0].IdempotencyKey)
			}
			if m.Tool != "mark_none" && !m.Started {
				e.T.Errorf("%s ran for %s before its start was recorded", m.Tool, label)
			}
		}
	}
}

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

// harms are what may happen to a program at a fault point.
var harms = []string{"kill", "stop", "cut"}

// TestCrashMatrix lets a program come to harm at each point there is, and then
// looks whether every message has its one reply and every promise holds.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	for _, c := range matrix() {
		t.Run(strings.Join([]string{c.Point, c.Fault, c.Tool}, "/"), func(t *testing.T) {
			t.Parallel()
			crashTestOf(c.Point)(t, c)
		})
	}
}

// matrix is what the tier asks for. make crash: every point with every fault and every tool that
// brings a turn there. CI: each point once, faults and tools in turn, and all faults at the points
// around an effect. make test: one point of each class, faults and tools in turn.
func matrix() (all []env.Crash) {
	classes := map[string]bool{}
	for i, point := range app.FaultPoints() {
		tools := toolsAt(point)
		class := point[:strings.LastIndex(point, ".")]
		first := !classes[class]
		for j, fault := range harms {
			for k, tool := range tools {
				turn := i%len(harms) == j && (i/len(harms))%len(tools) == k
				core := slices.Contains(aroundEffects, point) && tool == "mark_once"
				one := first && len(classes)%len(harms) == j && (len(classes)/len(harms))%len(tools) == k
				if testrun.Long() || testrun.Full() && (turn || core) || !testrun.Full() && one {
					all = append(all, env.Crash{Point: point, Fault: fault, Tool: tool})
				}
			}
		}
		classes[class] = true
	}
	return all
}

var aroundEffects = []string{"call.start.after", "call.checked", "call.effect_done", "call.results.sent", "finish.sent"}

// toolsAt are the tools whose use brings a turn to a point.
func toolsAt(point string) []string {
	switch {
	case point == "call.reads_done":
		return []string{"mark_none"}
	case strings.HasPrefix(point, "call.transact"):
		return []string{"note_write"}
	case strings.HasPrefix(point, "call.start"), point == "call.checked", point == "call.effect_done":
		return []string{"mark_keyed", "mark_once"}
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
	case strings.HasPrefix(point, "accept."), strings.HasPrefix(point, "webhook."), point == "tick.occurred", point == "tick.spawned":
		return []string{"mark_none"}
	default:
		return []string{"mark_none", "mark_keyed", "mark_once", "note_write"}
	}
}

// strike does the harm to p, which is paused at the point until resume. It returns
// what ends the harm, which a test calls when others have done what was left.
func strike(e *env.CrashEnv, fault string, p *env.Process, resume func()) (end func()) {
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

// wantRunsAllowed compares what happened outside with what the tools allow.
func wantRunsAllowed(e *env.CrashEnv) {
	e.T.Helper()
	runs := map[string][]env.Mark{}
	for _, m := range e.Ledger.Marks() {
		runs[m.Label] = append(runs[m.Label], m)
	}
	for label, marks := range runs {
		if tool := marks[0].Tool; len(marks) > 1 && slices.Contains([]string{"mark_once", "mark_sure", "mark_large", "mark_far_once"}, tool) {
			e.T.Errorf("%s ran %d times for %s", tool, len(marks), label)
		}
		for _, m := range marks {
			if m.IdempotencyKey != marks[0].IdempotencyKey {
				e.T.Errorf("%s ran with the keys %s and %s", label, m.IdempotencyKey, marks[0].IdempotencyKey)
			}
			if m.Tool != "mark_none" && !m.Started {
				e.T.Errorf("%s ran for %s before its start was on record", m.Tool, label)
			}
		}
	}
}

package tests_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app"
	"turnkeeper/storage/storagetest"
)

// crashVariable asks for the whole matrix; make crash sets it.
const crashVariable = "TURNKEEPER_CRASH_MATRIX"

// harms are what may happen to a program that stands at a point.
var harms = []string{"kill", "stop", "cut"}

// A crash is a program that comes to harm at a point, while an agent uses a
// tool.
type crash struct{ point, fault, tool string }

// TestCrashMatrix lets a program come to harm at each point there is, and then
// looks whether every message has its one reply and every promise holds.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	for _, c := range matrix(os.Getenv(crashVariable) != "") {
		t.Run(strings.Join([]string{c.point, c.fault, c.tool}, "/"), func(t *testing.T) {
			t.Parallel()
			sceneOf(c.point)(t, c)
		})
	}
}

// matrix is every point with every fault and every tool that brings a turn
// there; or, in short, each point once, faults and tools by turns, and all
// faults at the points around an effect.
func matrix(whole bool) (all []crash) {
	for i, point := range app.FaultPoints() {
		for j, fault := range harms {
			for k, tool := range toolsAt(point) {
				turn := i%len(harms) == j && (i/len(harms))%len(toolsAt(point)) == k
				core := slices.Contains(aroundEffects, point) && tool == "mark_once"
				if whole || turn || core {
					all = append(all, crash{point, fault, tool})
				}
			}
		}
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

// A crashHouse is a house whose programs may be made to stand at a point, and
// reach the database through a proxy that can be cut.
type crashHouse struct {
	*house
	proxy *storagetest.Proxy
	near  string // the database's address through the proxy
	stand *stand
	tool  string
}

// crashTools is the front matter of the agents here.
const crashTools = "tools: [mark_none, mark_keyed, mark_once, mark_sure, mark_large, note_write, mark_far_none, mark_far_keyed, mark_far_once]"

func newCrashHouse(t *testing.T, c crash) *crashHouse {
	t.Helper()
	h := &crashHouse{house: newHouse(t), stand: newStand(t, c.point), tool: c.tool}
	h.ledger.witness = h.startIsOnRecord
	h.proxy, h.near = storagetest.NewProxy(t, h.url)
	h.model.Then(func(r recorded) reply {
		label := newest(r)
		if roundOf(r) == 1 {
			return calls(h.call(label+" 1"), h.call(label+" 2"))
		}
		return text("Done: " + label + "\n" + strings.Repeat("It took a while. ", 200))
	})
	return h
}

// call asks for the tool of this house.
func (h *crashHouse) call(label string) modelCall {
	c := call(h.tool, label)
	if h.tool == "note_write" {
		c.Arguments = fmt.Sprintf(`{"name": %q, "text": "x"}`, strings.ReplaceAll(label, " ", "-"))
	}
	c.ID = "call_" + strings.ReplaceAll(label, " ", "_")
	return c
}

// register makes an agent known before any worker runs.
func (h *crashHouse) register(name string, settings ...string) {
	h.t.Helper()
	h.agent(name, append([]string{crashTools}, settings...)...)
	h.registerFile(name)
}

// faulty starts a program that stands at the point.
func (h *crashHouse) faulty(program string, args ...string) *process {
	h.t.Helper()
	env := append(h.environment(), h.stand.environment()...)
	env = append(env, "DATABASE_URL="+h.near)
	return startProcess(h.t, "faulty "+program, h.dir, env, binary(h.t, program), args...)
}

// strike does the harm to p, which stands at the point. It returns what ends
// it, which a test calls when others have done what was left.
func (h *crashHouse) strike(fault string, p *process, v *visit) (end func()) {
	h.t.Helper()
	switch fault {
	case "kill":
		p.kill()
		return func() {}
	case "stop":
		p.signal(syscall.SIGSTOP)
		return func() {
			v.pass()
			p.signal(syscall.SIGCONT)
		}
	default:
		h.proxy.Refuse(true)
		h.proxy.Break()
		v.pass()
		return func() { h.proxy.Refuse(false) }
	}
}

// ranAsPromised compares what happened outside with what the tools allow.
func (h *crashHouse) ranAsPromised() {
	h.t.Helper()
	runs := map[string][]mark{}
	for _, m := range h.ledger.all() {
		runs[m.Label] = append(runs[m.Label], m)
	}
	for label, marks := range runs {
		if tool := marks[0].Tool; len(marks) > 1 && slices.Contains([]string{"mark_once", "mark_sure", "mark_large", "mark_far_once"}, tool) {
			h.t.Errorf("%s ran %d times for %s", tool, len(marks), label)
		}
		for _, m := range marks {
			if m.IdempotencyKey != marks[0].IdempotencyKey {
				h.t.Errorf("%s ran with the keys %s and %s", label, m.IdempotencyKey, marks[0].IdempotencyKey)
			}
			if m.Tool != "mark_none" && !m.Started {
				h.t.Errorf("%s ran for %s before its start was on record", m.Tool, label)
			}
		}
	}
}

func parseAgent(name, file string) (*agentdef.Definition, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return agentdef.Parse(name+".md", source)
}

package tests_test

import (
	"strings"
	"syscall"
	"testing"
)

// Demo scripts are read with the agents: what is wrong with them is told, and
// what was there before stays.
func TestDemoScriptsAreReadAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "model: demo/clerk")
	h.write("agents/clerk.demo.yaml", "steps: [{text: First.}]")
	w := h.startWorker()
	h.says(h.turnOf(h.enqueue("clerk", "Hello")), "clerk", "First.")

	h.write("agents/clerk.demo.yaml", "steps: [{text: '{{ massage }}'}]")
	w.signal(syscall.SIGHUP)
	w.await("the agents were not reloaded")
	w.await(`function \"massage\" not defined`)
	h.says(h.turnOf(h.enqueue("clerk", "Hello")), "clerk", "First.")
	if r := h.run("", "turnctl", "doctor"); r.code != 1 || !strings.Contains(r.stdout, "clerk.demo.yaml:1: steps.1.text: function") {
		t.Errorf("doctor ended with %d:\n%s", r.code, r.stdout)
	}

	h.write("agents/clerk.demo.yaml", `steps: [{text: '{{ match "He(.*)" message }}'}]`)
	w.signal(syscall.SIGHUP)
	w.await("the agents were reloaded")
	h.says(h.turnOf(h.enqueue("clerk", "Hello")), "clerk", "llo")
}

// A script that cannot be played is a model call that failed for good.
func TestADemoScriptThatCannotBePlayed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "model: demo/clerk", "tools: [clock]")
	h.write("agents/clerk.demo.yaml", "steps: [{calls: [{name: clock, arguments: '{{ message }}'}]}]")
	h.startWorker("--max-attempts", "1")
	turn := h.turnOf(h.enqueue("clerk", "not JSON"))
	h.ended(turn, "failed", "inference_error", 0)
	const want = "the demo script clerk cannot be played: steps.1.calls.1.arguments: what it renders is no JSON object"
	if !strings.Contains(turn.Error, want) || turn.ErrorClass != "invalid" {
		t.Errorf("the turn failed with %s: %s", turn.ErrorClass, turn.Error)
	}
	good := h.turnOf(h.enqueue("clerk", `{"timezone":"UTC"}`))
	h.calledAs(good, "clock succeeded")
}

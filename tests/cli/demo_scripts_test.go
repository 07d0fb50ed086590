package cli_test

import (
	"strings"
	"syscall"
	"testing"

	"turnkeeper/tests/internal/env"
)

// Demo scripts are reloaded with the agents. Errors in them are reported, and the previous scripts stay in
// use.
func TestDemoScriptsAreReadAgain(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: demo/clerk")
	e.WriteFile("agents/clerk.demo.yaml", "steps: [{text: First.}]")
	w := e.StartWorker()
	wantReplyOf(e, e.TurnOf(e.Enqueue("clerk", "Hello")), "clerk", "First.")

	e.WriteFile("agents/clerk.demo.yaml", "steps: [{text: '{{ massage }}'}]")
	w.Signal(syscall.SIGHUP)
	w.Await("the agents of these files keep their old version")
	w.Await(`function \"massage\" not defined`)
	w.Await("reloaded the agents")
	wantReplyOf(e, e.TurnOf(e.Enqueue("clerk", "Hello")), "clerk", "First.")
	if r := e.Run("", "turnctl", "doctor"); r.Code != 1 || !strings.Contains(r.Stdout,
		"clerk.demo.yaml:1: steps.1.text: function") {
		t.Errorf("doctor ended with %d:\n%s", r.Code, r.Stdout)
	}

	e.WriteFile("agents/clerk.demo.yaml", `steps: [{text: '{{ match "He(.*)" message }}'}]`)
	e.WriteAgent("scribe")
	w.Signal(syscall.SIGHUP)
	w.Await(`"agents": ["clerk", "scribe"]`)
	wantReplyOf(e, e.TurnOf(e.Enqueue("clerk", "Hello")), "clerk", "llo")
}

// With an invalid script, the model call fails finally.
func TestAnInvalidDemoScript(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: demo/clerk", "tools: [clock]")
	e.WriteFile("agents/clerk.demo.yaml", "steps: [{calls: [{name: clock, arguments: '{{ message }}'}]}]")
	e.StartWorker("--max-attempts", "1")
	turn := e.TurnOf(e.Enqueue("clerk", "not JSON"))
	e.WantEnd(turn, "failed", "inference_error", 0)
	const want = "the demo script clerk cannot be played: steps.1.calls.1.arguments: the result is not a JSON object"
	if !strings.Contains(turn.Error, want) || turn.ErrorClass != "invalid" {
		t.Errorf("the turn failed with %s: %s", turn.ErrorClass, turn.Error)
	}
	good := e.TurnOf(e.Enqueue("clerk", `{"timezone":"UTC"}`))
	wantCalls(e, good, "clock succeeded")
}

package core_test

import (
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

func TestSIGTERMLetsTheTurnFinish(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	goOn := make(chan struct{})
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.WaitFor(goOn,
		inferencetest.Text("Finished."))))
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Make a mark.")
	e.AwaitRequests(2)
	w.Signal(syscall.SIGTERM)
	w.Await("taking no new turns")
	waiting := e.Enqueue("clerk", "Am I too late?")
	close(goOn)
	if code := w.Wait(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "Finished.")
	if turn.Dispatches != 1 {
		t.Errorf("the turn had %d dispatches", turn.Dispatches)
	}
	if state := env.Query[string](e, "select state from messages where id = $1", waiting); state != "waiting" {
		t.Errorf("a message that came after SIGTERM is %s", state)
	}
	e.Ledger.WantRuns("a", 1)
}

func TestWithoutGraceTheTurnIsHandedBack(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"),
		env.HangOnce(inferencetest.Text("Finished by another."))))
	w := e.StartWorker("--shutdown-grace", "0s")
	message := e.Enqueue("clerk", "Make a mark.")
	e.AwaitRequests(2)
	if code := w.Terminate(); code != 0 { // while the model hangs
		t.Errorf("the worker ended with %d", code)
	}
	if state := env.Query[string](e, "select state from turns"); state != "queued" {
		t.Errorf("the turn is %s", state)
	}
	e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "Finished by another.")
	if turn.Dispatches != 2 || turn.Losses != 0 || *turn.DispatchLog[0].Outcome != "handed_back" {
		t.Errorf("the turn had %d dispatches, %d losses, the first %s", turn.Dispatches, turn.Losses,
			*turn.DispatchLog[0].Outcome)
	}
	e.Ledger.WantRuns("a", 1)
	e.WantRequests(3)
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"),
		env.HangOnce(inferencetest.Text("Finished by another."))))
	w := e.StartWorker("--shutdown-grace", "1h")
	message := e.Enqueue("clerk", "Make a mark.")
	e.AwaitRequests(2)
	w.Signal(syscall.SIGTERM)
	w.Await("taking no new turns")
	if code := w.Terminate(); code == 0 {
		t.Error("a worker that left a turn behind ended with 0")
	}
	e.CountAsLost(w)
	e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	e.Ledger.WantRuns("a", 1)
	if strings.Contains(w.Output.String(), "panic") {
		t.Error("the worker panicked")
	}
}

func TestSIGHUPReadsTheAgentsAgain(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	w := e.StartWorker()
	e.WriteAgent("scribe", "model: test/another")
	e.WriteAgent("broken", "no_such_key: 1")
	w.Signal(syscall.SIGHUP)
	w.Await("the agents of these files keep their old version")
	w.Await(`"model": "test/another"`) // a warning: the endpoint does not tell its context window
	w.Await("reloaded the agents")
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Hello")), "succeeded", "none", 1)
	// one bad file does not hold up the others
	e.WantEnd(e.TurnOf(e.Enqueue("scribe", "Hello")), "succeeded", "none", 1)
	e.WriteAgent("broken", "description: mended")
	w.Signal(syscall.SIGHUP)
	w.Await(`"agents": ["broken", "clerk", "scribe"]`)
	e.WantEnd(e.TurnOf(e.Enqueue("broken", "Hello")), "succeeded", "none", 1)
}

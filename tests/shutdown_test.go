package tests_test

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSIGTERMLetsTheTurnFinish(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	goOn := make(chan struct{})
	h.model.Then(rounds(callOnce("mark_once", "a"), waitFor(goOn, text("Finished."))))
	w := h.startWorker()
	message := h.enqueue("clerk", "Make a mark.")
	h.awaitRequests(2)
	w.signal(syscall.SIGTERM)
	w.await("no new turns are taken")
	waiting := h.enqueue("clerk", "Am I too late?")
	close(goOn)
	if code := w.wait(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "Finished.")
	if turn.Dispatches != 1 {
		t.Errorf("the turn had %d dispatches", turn.Dispatches)
	}
	if state := query[string](h, "select state from messages where id = $1", waiting); state != "waiting" {
		t.Errorf("a message that came after SIGTERM is %s", state)
	}
	h.ledger.ran("a", 1)
}

func TestWithoutGraceTheTurnIsHandedBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), hangOnce(text("Finished by another."))))
	w := h.startWorker("--shutdown-grace", "0s")
	message := h.enqueue("clerk", "Make a mark.")
	h.awaitRequests(2)
	began := time.Now()
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the worker took %s to end", took)
	}
	if state := query[string](h, "select state from turns"); state != "queued" {
		t.Errorf("the turn is %s", state)
	}
	h.startWorker()
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "Finished by another.")
	if turn.Dispatches != 2 || turn.Losses != 0 || *turn.DispatchLog[0].Outcome != "handed_back" {
		t.Errorf("the turn had %d dispatches, %d losses, the first %s", turn.Dispatches, turn.Losses, *turn.DispatchLog[0].Outcome)
	}
	h.ledger.ran("a", 1)
	h.requests(3)
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), hangOnce(text("Finished by another."))))
	w := h.startWorker("--takeover-after", silence)
	message := h.enqueue("clerk", "Make a mark.")
	h.awaitRequests(2)
	w.signal(syscall.SIGTERM)
	w.await("no new turns are taken")
	began := time.Now()
	if code := w.terminate(); code == 0 {
		t.Error("a worker that left a turn behind ended with 0")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the worker took %s to stop at once", took)
	}
	h.startWorker("--takeover-after", silence)
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	h.ledger.ran("a", 1)
	if strings.Contains(w.said.String(), "panic") {
		t.Error("the worker panicked")
	}
}

func TestSIGHUPReadsTheAgentsAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	w := h.startWorker()
	h.agent("scribe")
	h.agent("broken", "no_such_key: 1")
	w.signal(syscall.SIGHUP)
	w.await("the agents were not reloaded")
	h.ended(h.turnOf(h.enqueue("clerk", "Hello")), "succeeded", "none", 1)
	h.agent("broken", "description: mended")
	w.signal(syscall.SIGHUP)
	w.await("the agents were reloaded")
	h.ended(h.turnOf(h.enqueue("scribe", "Hello")), "succeeded", "none", 1)
	h.ended(h.turnOf(h.enqueue("broken", "Hello")), "succeeded", "none", 1)
}

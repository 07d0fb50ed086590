package tests_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
)

func TestTwoWorkersStartOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	h := newHouseOn(t, storagetest.EmptyURL(t))
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	first, second := h.launchWorker(), h.launchWorker()
	first.await("worker ready")
	second.await("worker ready")
	h.ended(h.turnOf(h.enqueue("clerk", "Hello")), "succeeded", "none", 1)
}

func TestAWorkerThatDoesNotMigrate(t *testing.T) {
	t.Parallel()
	h := newHouseOn(t, storagetest.EmptyURL(t))
	h.agent("clerk")
	w := h.launchWorker("--migrate-on-start=false")
	if code := w.wait(); code != 1 {
		t.Errorf("the worker ended with %d", code)
	}
	w.await(`the database lacks migration 001_turnkeeper: run "turnctl migrate"`)
	if r := h.run("", "turnctl", "migrate"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	h.startWorker("--migrate-on-start=false")
}

func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), text("done")))
	h.startWorker("--roles", "scheduler")
	h.startWorker("--roles", "worker")
	h.ended(h.turnOf(h.enqueue("clerk", "Hello")), "succeeded", "none", 2)
	h.ledger.ran("a", 1)
}

// TestPollingSuffices takes the doorbell away: a message is found all the same.
func TestPollingSuffices(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	h.startWorker("--poll-interval", "200ms")
	message := query[int64](h, "insert into messages (agent, lane, body) values ('clerk', 'clerk', 'Hello') returning id")
	h.ended(h.turnOf(message), "succeeded", "none", 1)
}

func TestEnqueueingInAnApplicationsTransaction(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	h.startWorker()
	for _, commit := range []bool{false, true} {
		tx, err := h.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		var id int64
		if err := tx.QueryRow(t.Context(), "select turnkeeper.enqueue('clerk', 'Hello', idempotency_key => 'order')").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if !commit {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.ended(h.turnOf(id), "succeeded", "none", 1)
	}
	if n := query[int](h, "select count(*) from messages"); n != 1 {
		t.Errorf("there are %d messages: one was rolled back", n)
	}
}

func TestAPausedScheduler(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	h.startWorker("--poll-interval", "50ms")
	h.run("", "turnctl", "scheduler", "pause", "the provider is down")
	held := h.enqueue("clerk", "Hello")
	h.await("the scheduler has looked several times", "select clock_timestamp() > accepted_at + interval '300 ms' from messages where id = $1", held)
	if state := query[string](h, "select state from messages where id = $1", held); state != "waiting" {
		t.Errorf("under a paused scheduler the message is %s", state)
	}
	h.run("", "turnctl", "scheduler", "resume")
	h.ended(h.turnOf(held), "succeeded", "none", 1)
}

func TestAnInterruptedWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.startWorker()
	h.run("", "turnctl", "scheduler", "pause", "so that nobody answers")
	waiting := startProcess(t, "enqueue", h.dir, h.environment(), binary(t, "enqueue"), "--agent", "clerk", "--wait", "Hello")
	waiting.await("message 1 accepted")
	waiting.signal(syscall.SIGINT)
	if code := waiting.wait(); code != 130 {
		t.Errorf("the interrupted wait ended with %d", code)
	}
	waiting.await("message 1 stays accepted")
	if n := query[int](h, "select count(*) from messages where state = 'waiting'"); n != 1 {
		t.Errorf("%d messages wait", n)
	}
}

func TestABudgetOfATurn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "max_rounds: 5", "budget: {turn_calls: 2}")
	h.model.Then(func(r recorded) reply { return calls(call("mark_once", strings.Repeat("x", roundOf(r)))) })
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Spend."))
	h.ended(turn, "degraded", "budget", 2)
	h.requests(2)
	if strings.Contains(turn.Reply.Body, "budget") {
		t.Errorf("the reply holds the policy's words: %s", turn.Reply.Body)
	}
}

func TestABudgetOfADayDefersTheTurn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "budget: {day_calls: 1}")
	h.model.Then(rounds(text("done")))
	h.startWorker()
	h.ended(h.turnOf(h.enqueue("clerk", "One.")), "succeeded", "none", 1)
	second := h.enqueue("clerk", "Two.")
	h.await("the turn is deferred", "select exists (select from turns where message_id = $1 and state = 'queued' and due_at > clock_timestamp())", second)
	h.requests(1)

	// The next day it runs.
	h.exec("update spend set calls = 0, tokens = 0 where scope like 'agent:%'")
	h.exec("update turns set due_at = clock_timestamp() where state = 'queued'")
	h.exec("notify turnkeeper_inbox")
	turn := h.turnOf(second)
	h.ended(turn, "succeeded", "none", 1)
	if turn.Message.Attempts != 1 || turn.Losses != 0 {
		t.Errorf("the deferred turn counts as %d attempts, %d losses", turn.Message.Attempts, turn.Losses)
	}
}

func TestAHeldLaneIsShown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	goOn := make(chan struct{})
	h.model.Then(rounds(waitFor(goOn, text("done"))))
	h.startWorker()
	message := h.enqueue("clerk", "Hello")
	h.awaitRequests(1)
	lanes := turnctl[[]struct {
		Held        bool   `json:"held"`
		WorkerID    string `json:"worker_id"`
		RemainingMs int64  `json:"lease_remaining_ms"`
		Token       int64  `json:"token"`
	}](h, "lanes")
	left := time.Duration(lanes[0].RemainingMs) * time.Millisecond
	if !lanes[0].Held || lanes[0].Token != 1 || lanes[0].WorkerID == "" || left < 200*time.Second || left > 240*time.Second {
		t.Errorf("the lane is %+v", lanes[0])
	}
	close(goOn)
	h.turnOf(message)
	if lanes := turnctl[[]lane](h, "lanes"); lanes[0].Held {
		t.Errorf("after the turn the lane is %+v", lanes[0])
	}
}

package core_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

func TestTwoWorkersStartOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	e := env.NewOn(t, storagetest.EmptyURL(t))
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	first, second := e.LaunchWorker(), e.LaunchWorker()
	first.Await("worker ready")
	second.Await("worker ready")
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Hello")), "succeeded", "none", 1)
}

func TestAWorkerThatDoesNotMigrate(t *testing.T) {
	t.Parallel()
	e := env.NewOn(t, storagetest.EmptyURL(t))
	e.WriteAgent("clerk")
	w := e.LaunchWorker("--migrate-on-start=false")
	if code := w.Wait(); code != 1 {
		t.Errorf("the worker ended with %d", code)
	}
	w.Await(`the database needs migration 001_tables: run "turnctl migrate"`)
	if r := e.Turnctl("migrate"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	e.StartWorker("--migrate-on-start=false")
}

func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("done")))
	e.StartWorker("--roles", "scheduler")
	e.StartWorker("--roles", "worker")
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Hello")), "succeeded", "none", 2)
	e.Ledger.WantRuns("a", 1)
}

// Without doorbells, polling finds a message.
func TestPollingSuffices(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	e.StartWorker("--poll-interval", "200ms")
	message := env.Query[int64](e,
		"insert into messages (agent, lane, body) values ('clerk', 'clerk', 'Hello') returning id")
	e.WantEnd(e.TurnOf(message), "succeeded", "none", 1)
}

func TestEnqueueingInAnApplicationsTransaction(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	e.StartWorker()
	for _, commit := range []bool{false, true} {
		tx, err := e.DB.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		var id int64
		if err := tx.QueryRow(t.Context(),
			"select turnkeeper.enqueue('clerk', 'Hello', idempotency_key => 'order')").Scan(&id); err != nil {
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
		e.WantEnd(e.TurnOf(id), "succeeded", "none", 1)
	}
	if n := env.Query[int](e, "select count(*) from messages"); n != 1 {
		t.Errorf("there are %d messages: one was rolled back", n)
	}
}

func TestAPausedScheduler(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	w := e.StartWorker("--poll-interval", "50ms")
	e.PauseScheduler("the provider is down")
	held := e.Enqueue("clerk", "Hello")
	looks := func() float64 {
		return env.Sum(env.Scrape(t, w.APIURL()), "turnkeeper_scheduler_tick_duration_seconds")
	}
	before := looks()
	e.Poll("the scheduler has run several ticks", func() bool { return looks() > before+3 })
	if state := env.Query[string](e, "select state from messages where id = $1", held); state != "waiting" {
		t.Errorf("under a paused scheduler the message is %s", state)
	}
	e.ResumeScheduler()
	e.WantEnd(e.TurnOf(held), "succeeded", "none", 1)
}

func TestAnInterruptedWait(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.StartWorker()
	e.PauseScheduler("so that nobody answers")
	waiting := env.StartProcess(t, "enqueue", e.Dir, e.Environ(), env.Binary(t, "enqueue"), "--agent", "clerk",
		"--wait", "Hello")
	waiting.Await("message 1 accepted")
	waiting.Signal(syscall.SIGINT)
	if code := waiting.Wait(); code != 130 {
		t.Errorf("the interrupted wait ended with %d", code)
	}
	waiting.Await("message 1 stays accepted")
	if n := env.Query[int](e, "select count(*) from messages where state = 'waiting'"); n != 1 {
		t.Errorf("%d messages wait", n)
	}
}

func TestABudgetOfATurn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 5", "budget: {turn_calls: 2}")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Calls(env.MarkerCall("mark_once", strings.Repeat("x", env.RoundOf(r))))
	})
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Spend."))
	e.WantEnd(turn, "degraded", "budget", 2)
	e.WantRequests(2)
	if strings.Contains(turn.Reply.Body, "budget") {
		t.Errorf("the reply holds the policy's words: %s", turn.Reply.Body)
	}
}

func TestABudgetOfADayDefersTheTurn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "budget: {day_calls: 1}")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	e.StartWorker()
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "One.")), "succeeded", "none", 1)
	second := e.Enqueue("clerk", "Two.")
	e.Await("the turn is deferred",
		"select exists (select from turns where message_id = $1 and state = 'queued' and due_at > clock_timestamp())",
		second)
	e.WantRequests(1)

	// It runs the next day.
	e.Exec("update spend set calls = 0, tokens = 0 where scope like 'agent:%'")
	e.Exec("update turns set due_at = clock_timestamp() where state = 'queued'")
	e.Exec("notify turnkeeper_inbox")
	turn := e.TurnOf(second)
	e.WantEnd(turn, "succeeded", "none", 1)
	if turn.Message.Attempts != 1 || turn.Losses != 0 {
		t.Errorf("the deferred turn counts as %d attempts, %d losses", turn.Message.Attempts, turn.Losses)
	}
}

func TestAHeldLaneIsShown(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	goOn := make(chan struct{})
	e.Model.Then(env.Rounds(inferencetest.WaitFor(goOn, inferencetest.Text("done"))))
	e.StartWorker()
	message := e.Enqueue("clerk", "Hello")
	e.AwaitRequests(1)
	lanes := env.Turnctl[[]struct {
		Held        bool   `json:"held"`
		WorkerID    string `json:"worker_id"`
		RemainingMs int64  `json:"lease_remaining_ms"`
		Token       int64  `json:"token"`
	}](e, "lanes")
	left := time.Duration(lanes[0].RemainingMs) * time.Millisecond
	if !lanes[0].Held || lanes[0].Token != 1 || lanes[0].WorkerID == "" || left <= 0 || left > 240*time.Second {
		t.Errorf("the lane is %+v", lanes[0])
	}
	close(goOn)
	e.TurnOf(message)
	if lanes := env.Turnctl[[]lane](e, "lanes"); len(lanes) > 0 {
		t.Errorf("after the turn the lanes are %+v", lanes)
	}
}

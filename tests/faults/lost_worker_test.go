package faults_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

func TestAKilledWorkersTurnIsTakenOver(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), env.HangOnce(inferencetest.Text("It is marked."))))
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Make a mark.")
	e.AwaitRequests(2)
	e.StartWorker()
	e.Kill(first)

	turn := e.TurnOf(message) // before its lease ends
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "It is marked.")
	e.Ledger.WantRuns("a", 1)
	if turn.Dispatches != 2 || turn.Losses != 1 || *turn.DispatchLog[0].Outcome != "lost" {
		t.Errorf("the turn had %d dispatches, %d losses", turn.Dispatches, turn.Losses)
	}
	e.WantRequests(3) // the second round took two requests
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "And again.")), "succeeded", "none", 2)
}

func TestAKillDuringATool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool   string
		runs   int
		state  string // of the call
		ends   string // of the turn
		stop   string
		result string // the result that the model gets
	}{
		{"mark_none", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_keyed", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_once", 1, "unknown", "degraded", "worker_lost", "outcome unknown"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(env.MarkerReply(c.tool, "a"), inferencetest.Text("So be it.")))
			first := e.StartWorker()
			message := e.Enqueue("clerk", "Make a mark.")
			e.Ledger.Await("a", 1)
			e.StartWorker()
			e.Kill(first)
			e.Ledger.Release()

			turn := e.TurnOf(message)
			e.WantEnd(turn, c.ends, c.stop, 2)
			reply := "So be it."
			if c.state == "unknown" {
				reply += "\n\n- mark_once: unknown: it may or may not have happened"
			}
			e.WantReply(turn, reply)
			e.Ledger.WantRuns("a", c.runs)
			runs := e.Ledger.Runs("a")
			for _, again := range runs[1:] {
				if again.IdempotencyKey != runs[0].IdempotencyKey || again.PID == runs[0].PID {
					t.Errorf("the runs were %+v", runs)
				}
			}
			if got := turn.Calls()[0]; got.State != c.state {
				t.Errorf("the call is %s", got.State)
			}
			asked := e.WantRequests(2)[1].Chat().Messages
			if got := asked[len(asked)-1].Text(); !strings.HasPrefix(got, c.result) {
				t.Errorf("the model gets %q", got)
			}
		})
	}
}

// shortLease is the flags of a worker whose leases end soon, but leave time for some steps on a slow machine.
// Only the end of a lease shows that it is lost.
var shortLease = []string{"--lease-ttl", "25s", "--lease-margin", "1s", "--max-duration", "22s", "--tool-timeout",
	"20s", "--takeover-after", "0"}

func TestAStoppedWorkerIsFenced(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"at the end of its lease": shortLease,
		"when its heart is silent": {"--takeover-after", "20s"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Perhaps.")))
			first := e.StartWorker(flags...)
			message := e.Enqueue("clerk", "Make a mark.")
			e.Ledger.Await("a", 1)
			first.Signal(syscall.SIGSTOP)
			e.StartWorker(flags...)

			turn := e.TurnOf(message)
			e.WantEnd(turn, "degraded", "worker_lost", 2)
			e.WantReply(turn, "Perhaps.\n\n- mark_once: unknown: it may or may not have happened")
			before := e.JournalOf(turn.ID)

			e.Ledger.Release()
			first.Signal(syscall.SIGCONT)
			e.Await("the late result is kept", "select exists (select from calls where late_result is not null)")
			first.Await("the turn no longer belongs to this worker")
			late := e.Show(turn.ID).Calls()[0]
			if late.State != "unknown" || late.LateResult != "marked a" {
				t.Errorf("the call is %+v", late)
			}
			if after := e.JournalOf(turn.ID); after != before {
				t.Errorf("the stopped worker wrote to the turn:\n%s\n%s", before, after)
			}
			e.Ledger.WantRuns("a", 1)
			e.WantRequests(2)
			// Both workers still run.
			e.Model.Then(env.Rounds(inferencetest.Text("Yes.")))
			for range 2 {
				e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Are you there?")), "succeeded", "none", 1)
			}
		})
	}
}

func TestAStoppedWorkersAnswerIsRefused(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	late := make(chan struct{})
	e.Model.Add(inferencetest.WaitFor(late, inferencetest.Text("stale")))
	e.Model.Then(env.Rounds(inferencetest.Text("fresh")))
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Hello")
	e.AwaitRequests(1)
	first.Signal(syscall.SIGSTOP)
	e.CountAsLost(first)
	e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 1)
	before := e.JournalOf(turn.ID)

	close(late)
	first.Signal(syscall.SIGCONT)
	first.Await("the turn no longer belongs to this worker")
	e.WantReply(e.Show(turn.ID), "fresh")
	if after := e.JournalOf(turn.ID); after != before {
		t.Errorf("the stopped worker wrote to the turn:\n%s\n%s", before, after)
	}
}

func TestAMessageThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Hang()))
	message := int64(0)
	for death := 1; death <= 3; death++ {
		w := e.StartWorker()
		if message == 0 {
			message = e.Enqueue("clerk", "Die.")
		}
		e.AwaitRequests(1 + death)
		e.Kill(w)
	}
	e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 1)
	e.WantReply(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: succeeded")
	if turn.Dispatches != 3 || turn.Losses != 3 {
		t.Errorf("the turn had %d dispatches and %d losses", turn.Dispatches, turn.Losses)
	}
	e.Ledger.WantRuns("a", 1)
	e.WantNothingMore(4)
}

func TestARestartedRoundIsRolledBackForWatchers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Add(env.Drip("Half a sentence. "))
	e.Model.Then(env.Rounds(inferencetest.Text("A whole sentence.")))
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Speak.")
	e.Await("the first half is streamed", "select exists (select from turn_events where type = 'block_delta')")
	e.Kill(first)
	e.StartWorker()

	turn := e.TurnOf(message)
	e.WantReply(turn, "A whole sentence.")
	if n := env.Query[int](e, "select count(*) from turn_events where type = 'round_rollback'"); n != 1 {
		t.Errorf("there are %d rollbacks", n)
	}
	streamed := env.Query[string](e, `
		select coalesce(string_agg(data->>'text', '' order by seq), '') from turn_events
		where turn_id = $1 and type = 'block_delta'
		  and seq > (select coalesce(max(seq), 0) from turn_events where turn_id = $1 and type = 'round_rollback')`, turn.ID)
	if streamed != "A whole sentence." {
		t.Errorf("after the rollback %q was streamed", streamed)
	}
}

func TestTwoWorkersOneLane(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Echo("answer to "))
	e.StartWorker()
	e.StartWorker()
	var ids []int64
	var bodies []string
	for i := range 20 {
		bodies = append(bodies, fmt.Sprint("message ", i))
		ids = append(ids, e.Send("clerk", bodies[i]))
	}
	e.AwaitClosed(ids...)
	if most := e.Model.MaxInFlight(); most != 1 {
		t.Errorf("%d requests were open at once", most)
	}
	for i, r := range e.WantRequests(20) {
		if env.NewestMessage(r) != bodies[i] {
			t.Errorf("request %d is about %q", i+1, env.NewestMessage(r))
		}
	}
	for i, id := range ids {
		if got := env.Query[string](e, "select body from replies where message_id = $1",
			id); got != "answer to "+bodies[i] {
			t.Errorf("message %d has the reply %q", id, got)
		}
	}
}

func TestLanesRunBesideEachOther(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "lane: conversation")
	all := make(chan struct{})
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.WaitFor(all, inferencetest.Text("done"))
	})
	e.StartWorker()
	e.StartWorker()
	var ids []int64
	for _, conversation := range []string{"anna", "ben", "cem"} {
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Hello', $1)", conversation))
	}
	e.AwaitRequests(3) // none waits for the others
	close(all)
	e.AwaitClosed(ids...)
}

package core_test

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// Thousands of turns wait for detached calls. None of them holds a lease, slot, job or connection; other turns
// run, and all continue when their results come.
func TestThousandsOfTurnsWait(t *testing.T) {
	t.Parallel()
	n := testrun.Count(200, env.FaultCount(1000, 10_000))
	e := env.New(t)
	e.WriteAgent("clerk", env.DetachedTools, "lane: conversation")
	e.WriteAgent("other")
	e.Ledger.Hold("all")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if strings.HasPrefix(env.NewestMessage(r), "Take your time") {
			return env.Rounds(env.MarkerReply("mark_far_keyed", "all"), inferencetest.Text("It is done."))(r)
		}
		return inferencetest.Text("Yes.")
	})
	// connections of the worker's pools and of its API, and two listeners
	const pools = (8 + 2 + 4) + (4 + 2 + 4) + 2
	const connections = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
	slots := []string{"--worker-slots", "50", "--detached-slots", "8"}
	w := e.StartWorker(slots...)
	e.WantEnd(e.TurnOf(e.Enqueue("other", "Are you free?")), "succeeded", "none", 1)
	const send = "select turnkeeper.enqueue('clerk', 'Take your time, ' || i, 'c' || i) from generate_series($1::int, $2::int) i"
	began := time.Now()
	e.Exec(send, 1, n)
	e.AwaitWaiting(n)
	t.Logf("%d turns wait after %s", n, time.Since(began).Round(time.Second))
	wantNothingHeld(e)
	e.Await("every slot runs a call", "select count(*) = 8 from detached_calls where claim is not null")
	e.Await("nobody uses a connection", strings.Replace(connections, "count(*)", "count(*) = 0",
		1)+" and state <> 'idle'")
	if open := env.Query[int](e, connections); open > pools {
		t.Errorf("%d connections are open, and the pools have %d", open, pools)
	}
	asked := time.Now()
	e.WantEnd(e.TurnOf(e.Enqueue("other", "Are you free?")), "succeeded", "none", 1)
	t.Logf("another turn took %s beside them", time.Since(asked).Round(time.Millisecond))

	// The worker keeps none of this in memory.
	e.Kill(w)
	e.StartWorker(slots...)
	began = time.Now()
	e.Ledger.Release()
	e.Await("all turns are answered",
		"select count(*) = $1 from replies where agent = 'clerk' and outcome = 'succeeded'", n)
	t.Logf("all were answered %s after the results came", time.Since(began).Round(time.Second))
	if twice := env.Query[int](e, "select count(*) from detached_calls where attempt > 2"); twice > 0 {
		t.Errorf("%d calls had more than two attempts", twice)
	}
	if runs := len(e.Ledger.Runs("all")); runs < n || runs > n+8 {
		t.Errorf("%d calls had %d runs", n, runs)
	}
}

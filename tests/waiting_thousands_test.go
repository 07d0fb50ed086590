package tests_test

import (
	"strings"
	"testing"
	"time"
)

// Thousands of turns wait for detached calls: none of them holds a lease, a slot, a
// job or a connection, other turns run beside them, and all go on when their
// results come.
func TestThousandsOfTurnsWait(t *testing.T) {
	t.Parallel()
	n := faults(2000, 10_000)
	if raceDetector {
		n /= 4 // it looks for races; make test holds the thousands
	}
	h := newHouse(t)
	h.agent("clerk", far, "lane: conversation")
	h.agent("other")
	h.ledger.hold("all")
	h.model.Then(func(r recorded) reply {
		if strings.HasPrefix(newest(r), "Take your time") {
			return rounds(callOnce("mark_far_keyed", "all"), text("It is done."))(r)
		}
		return text("Yes.")
	})
	// Of the worker's pools, of those of its API, and two doorbells.
	const pools = (8 + 2 + 4) + (4 + 2 + 4) + 2
	const connections = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
	slots := []string{"--worker-slots", "50", "--detached-slots", "8"}
	w := h.startWorker(append(slots, "--takeover-after", "8s")...)
	h.ended(h.turnOf(h.enqueue("other", "Are you free?")), "succeeded", "none", 1)
	const send = "select turnkeeper.enqueue('clerk', 'Take your time, ' || i, 'c' || i) from generate_series($1::int, $2::int) i"
	began := time.Now()
	h.exec(send, 1, n)
	h.waiting(n)
	t.Logf("%d turns wait after %s", n, time.Since(began).Round(time.Second))
	h.holdsNothing()
	h.await("the calls that there is room for run", "select count(*) = 8 from detached_calls where claim is not null")
	h.await("nobody uses a connection", strings.Replace(connections, "count(*)", "count(*) = 0", 1)+" and state <> 'idle'")
	if open := query[int](h, connections); open > pools {
		t.Errorf("%d connections are open, and the pools have %d", open, pools)
	}
	asked := time.Now()
	h.ended(h.turnOf(h.enqueue("other", "Are you free?")), "succeeded", "none", 1)
	t.Logf("another turn took %s beside them", time.Since(asked).Round(time.Millisecond))

	// Nothing of this is in the worker's memory.
	w.kill()
	h.startWorker(slots...)
	began = time.Now()
	h.ledger.release()
	h.await("all turns are answered", "select count(*) = $1 from replies where agent = 'clerk' and outcome = 'succeeded'", n)
	t.Logf("all were answered %s after the results came", time.Since(began).Round(time.Second))
	if twice := query[int](h, "select count(*) from detached_calls where attempt > 2"); twice > 0 {
		t.Errorf("%d calls had more than two attempts", twice)
	}
	if runs := len(h.ledger.runs("all")); runs < n || runs > n+8 {
		t.Errorf("%d calls had %d runs", n, runs)
	}
}

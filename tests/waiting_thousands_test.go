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
	const connections = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
	w := h.startWorker("--worker-slots", "50", "--detached-slots", "8", "--takeover-after", "2s")
	h.ended(h.turnOf(h.enqueue("other", "Are you free?")), "succeeded", "none", 1)
	const send = "select turnkeeper.enqueue('clerk', 'Take your time, ' || i, 'c' || i) from generate_series($1::int, $2::int) i"
	h.exec(send, 1, 100)
	h.waiting(100)
	before := query[int](h, connections)

	began := time.Now()
	h.exec(send, 101, n)
	h.waiting(n)
	t.Logf("%d turns wait after %s", n, time.Since(began).Round(time.Second))
	h.holdsNothing()
	h.await("the calls that there is room for run", "select count(*) = 8 from detached_calls where claim is not null")
	const poolsMayOpen = 12 // whatever waits: they were not all in use at once before
	if open := query[int](h, connections); open > before+poolsMayOpen {
		t.Errorf("%d connections are open, and %d were when a hundred turns waited", open, before)
	}
	asked := time.Now()
	h.ended(h.turnOf(h.enqueue("other", "Are you free?")), "succeeded", "none", 1)
	t.Logf("another turn took %s beside them", time.Since(asked).Round(time.Millisecond))

	// Nothing of this is in the worker's memory.
	w.kill()
	h.startWorker("--worker-slots", "50", "--detached-slots", "8", "--takeover-after", "2s")
	began = time.Now()
	h.ledger.release()
	h.await("all turns are answered", "select count(*) = $1 from replies where agent = 'clerk' and outcome = 'succeeded'", n)
	t.Logf("all were answered %s after the results came", time.Since(began).Round(time.Second))
	if thrice := query[int](h, "select count(*) from detached_calls where attempt > 3"); thrice > 0 {
		t.Errorf("%d calls had more than three attempts", thrice)
	}
	// A worker that a busy machine keeps from its heartbeat loses what it runs, too.
	begun := query[int](h, "select sum(attempt) from detached_calls")
	if runs := len(h.ledger.runs("all")); runs < n || runs > begun {
		t.Errorf("%d calls had %d runs, and %d are on record", n, runs, begun)
	}
}

package tests_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
)

// A worker removes what is older than it may keep, and nothing else.
func TestRetention(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(func(r recorded) reply { return text("Done.") })
	first := h.startWorker()
	old, young := h.enqueue("clerk", "Old."), h.enqueue("clerk", "Young.")
	h.awaitClosed(old, young)
	first.terminate()
	h.exec("update messages set accepted_at = accepted_at - interval '3 hours', closed_at = closed_at - interval '3 hours' where id = $1", old)
	h.exec("update replies set created_at = created_at - interval '3 hours' where message_id = $1", old)
	h.startWorker("--retention", "2h")
	h.await("the old message is gone", "select not exists (select from messages where id = $1)", old)
	h.replied(h.turnOf(young), "Done.")
	behind := h.enqueue("clerk", "Behind.")
	h.awaitClosed(behind)
	if token := query[int64](h, "select token from leases where lane = 'clerk'"); token != 3 {
		t.Errorf("the lane's token is %d after three grants", token)
	}
}

// Purges run beside each other, beside workers, and against the conversations whose turns run:
// each takes whole messages that are closed, what is open is never touched, and one that is killed has
// left nothing half.
func TestPurgesUnderLoad(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "lane: conversation", marks, "max_rounds: 3")
	h.ledger.hold("held")
	h.model.Then(func(r recorded) reply {
		label := newest(r)
		if roundOf(r) == 1 {
			return calls(call("mark_once", label))
		}
		return text("Done: " + label)
	})
	hook := newReceiver(t, nil)
	h.webhook("shop", hook.url)
	h.startWorker()
	h.startWorker()
	const conversations, each = 6, 8
	open := query[int64](h, "select turnkeeper.enqueue('clerk', 'held', 'c0')")
	h.ledger.await("held", 1)

	var purges sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 2 {
		purges.Go(func() {
			for ctx.Err() == nil {
				if r := h.run("", "turnctl", "purge", "--agent", "clerk"); r.code != 0 {
					t.Errorf("a purge ended with %d: %s", r.code, r.stderr)
					return
				}
			}
		})
	}
	var ids []int64
	for n := range conversations * each {
		ids = append(ids, query[int64](h, "select turnkeeper.enqueue('clerk', $1, $2)", fmt.Sprint("m", n), fmt.Sprint("c", 1+n%conversations)))
	}
	killed := startProcess(t, "purge", h.dir, h.environment(), binary(t, "turnctl"), "purge", "--agent", "clerk")
	killed.signal(syscall.SIGKILL)
	killed.wait()
	h.await("every closed message is gone", "select count(*) = 0 from messages where id = any($1)", ids)
	stop()
	purges.Wait()
	for n := range ids {
		if runs := h.ledger.runs(fmt.Sprint("m", n)); len(runs) != 1 {
			t.Errorf("the tool ran %d times for message %d", len(runs), n)
		}
	}
	h.poll("every reply came to the webhook before it was purged", func() bool { return len(hook.all()) == len(ids) })
	if broken := h.brokenPromises(); len(broken) > 0 {
		t.Errorf("broken: %v", broken)
	}
	// The open turn of all that time ends as if nothing had been.
	h.ledger.release()
	h.replied(h.turnOf(open), "Done: held")
	h.awaitDeliveries("shop", "delivered", 1)
	first := turnctl[map[string]any](h, "purge", "--agent", "clerk")
	second := turnctl[map[string]any](h, "purge", "--agent", "clerk")
	if first["messages"] != 1.0 || second["messages"] != 0.0 {
		t.Errorf("the last purge took %v, and a repeat %v", first, second)
	}
	for _, table := range []string{"messages", "turns", "replies", "rounds", "calls", "call_starts", "turn_events", "outputs", "output_chunks", "lease_log", "webhook_deliveries", "awaited_calls", "detached_calls"} {
		if n := query[int](h, "select count(*) from "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	if n := query[int](h, "select count(*) from river_job where kind in ('AgentTurn', 'DetachedCall')"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

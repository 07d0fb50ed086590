package core_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A worker purges records older than the retention, and nothing else.
func TestRetention(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(inferencetest.Text("Done.")))
	first := e.StartWorker()
	old, young := e.Enqueue("clerk", "Old."), e.Enqueue("clerk", "Young.")
	e.AwaitClosed(old, young)
	first.Terminate()
	e.Exec("update messages set accepted_at = accepted_at - interval '3 hours', closed_at = closed_at - interval '3 hours' where id = $1", old)
	e.Exec("update replies set created_at = created_at - interval '3 hours' where message_id = $1", old)
	e.StartWorker("--retention-messages", "2h")
	e.Await("the old message is gone", "select not exists (select from messages where id = $1)", old)
	e.WantReply(e.TurnOf(young), "Done.")
	behind := e.Enqueue("clerk", "Behind.")
	e.AwaitClosed(behind)
	if token := env.Query[int64](e, "select token from leases where lane = 'clerk'"); token != 3 {
		t.Errorf("the lane's token is %d after three grants", token)
	}
}

// Purges run in parallel with each other, with workers, and with open turns of the same conversations. Each
// purges whole closed messages and nothing open. A killed purge leaves nothing half deleted.
func TestPurgesUnderLoad(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "lane: conversation", env.MarkerTools, "max_rounds: 3", "max_duration: 200s", "tool_timeout: 190s", "async: false")
	e.Ledger.Hold("held")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		label := env.NewestMessage(r)
		if env.RoundOf(r) == 1 {
			return inferencetest.Calls(env.MarkerCall("mark_once", label))
		}
		return inferencetest.Text("Done: " + label)
	})
	hook := env.NewWebhookReceiver(t, nil)
	e.AddWebhook("shop", hook.URL)
	e.StartWorker()
	e.StartWorker()
	const conversations, each = 6, 8
	open := env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'held', 'c0')")
	e.Ledger.Await("held", 1)

	var purges sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 2 {
		purges.Go(func() {
			for ctx.Err() == nil {
				if r := e.Turnctl("purge", "--agent", "clerk"); r.Code != 0 {
					t.Errorf("a purge ended with %d: %s", r.Code, r.Stderr)
					return
				}
			}
		})
	}
	var ids []int64
	for n := range conversations * each {
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('clerk', $1, $2)", fmt.Sprint("m", n), fmt.Sprint("c", 1+n%conversations)))
	}
	killed := env.StartProcess(t, "purge", e.Dir, e.Environ(), env.Binary(t, "turnctl"), "purge", "--agent", "clerk")
	killed.Signal(syscall.SIGKILL)
	killed.Wait()
	e.Await("every closed message is gone", "select count(*) = 0 from messages where id = any($1)", ids)
	stop()
	purges.Wait()
	for n := range ids {
		if runs := e.Ledger.Runs(fmt.Sprint("m", n)); len(runs) != 1 {
			t.Errorf("the tool ran %d times for message %d", len(runs), n)
		}
	}
	e.Poll("every reply came to the webhook before it was purged", func() bool { return len(hook.Deliveries()) == len(ids) })
	if broken := e.BrokenInvariants(); len(broken) > 0 {
		t.Errorf("broken: %v", broken)
	}
	// the turn that was open all the time ends normally
	e.Ledger.Release()
	e.WantReply(e.TurnOf(open), "Done: held")
	e.AwaitDeliveries("shop", "delivered", 1)
	first := env.Turnctl[map[string]any](e, "purge", "--agent", "clerk")
	second := env.Turnctl[map[string]any](e, "purge", "--agent", "clerk")
	if first["messages"] != 1.0 || second["messages"] != 0.0 {
		t.Errorf("the last purge took %v, and a repeat %v", first, second)
	}
	for _, table := range []string{"messages", "turns", "replies", "call_starts", "late_results", "journal", "outputs", "output_chunks", "ended_grants", "webhook_deliveries", "awaited_calls", "detached_calls"} {
		if n := env.Query[int](e, "select count(*) from "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	if n := env.Query[int](e, "select count(*) from river_job where kind in ('AgentTurn', 'DetachedCall')"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

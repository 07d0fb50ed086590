package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// answered returns an environment without a worker, in which the clerk has answered two messages.
func answered(t *testing.T) (e *env.Env, old, young int64) {
	e = env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(inferencetest.Text("Done.")))
	first := e.StartWorker()
	old, young = e.Enqueue("clerk", "Old."), e.Enqueue("clerk", "Young.")
	e.AwaitClosed(old, young)
	first.Terminate()
	return e, old, young
}

// A worker purges records older than the retention, and nothing else.
func TestRetention(t *testing.T) {
	t.Parallel()
	e, old, young := answered(t)
	e.Exec(
		"update messages set accepted_at = accepted_at - interval '3 hours', closed_at = closed_at - interval '3 hours' where id = $1", old)
	e.Exec("update replies set created_at = created_at - interval '3 hours' where message_id = $1", old)
	e.StartWorker("--retention-messages", "2h")
	e.Await("the old message is gone", "select not exists (select from messages where id = $1)", old)
	e.WantReply(e.TurnOf(young), "Done.")
	behind := e.Enqueue("clerk", "Behind.")
	e.AwaitClosed(behind)
	if !env.Query[bool](e, "select b.token > y.token from turns b, turns y where b.message_id = $1 and y.message_id = $2",
		behind, young) {
		t.Error("the lane's token does not grow")
	}
}

// A worker without a setting deletes the outputs and events of a new database after 30 days, and keeps the rest. Turns
// go on after that.
func TestRetentionOfClasses(t *testing.T) {
	t.Parallel()
	e, old, young := answered(t)
	turn := e.TurnOf(old)
	e.Exec(
		"update turns set created_at = created_at - interval '31 days', granted_at = granted_at - interval '31 days', ended_at = ended_at - interval '31 days' where id = $1", turn.ID)
	e.Exec(
		"update messages set accepted_at = accepted_at - interval '31 days', closed_at = closed_at - interval '31 days', due_at = due_at - interval '31 days' where id = $1", old)
	e.Exec(
		`insert into outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description, created_at)
		values ('stored', $1, 1, 1, 'text/plain', 'a long text', 11, 11, 11, 3, 'x', false, '', clock_timestamp() - interval '31 days')`, turn.ID)
	e.StartWorker()
	e.Await("outputs and events are gone",
		"select exists (select from outputs where expired_at is not null) and exists (select from turns where events_expired_at is not null)")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"events", fmt.Sprint(turn.ID)}, 0, "were deleted by retention"},
		{[]string{"events", fmt.Sprint(turn.ID), "--after", "1", "--follow"}, 0, "were deleted by retention"},
		{[]string{"output", "stored"}, 3, "expired: the content of output stored was deleted by retention"},
		{[]string{"output", "stored", "--raw"}, 3, "expired: the content of output stored was deleted by retention"},
		{[]string{"output", "stored", "-o", "json"}, 0, `"content": null`},
		{[]string{"show", fmt.Sprint(turn.ID)}, 0, "events: all but the last were deleted by retention"},
		{[]string{"explain", fmt.Sprint(turn.ID)}, 0, "succeeded"},
		{[]string{"doctor"}, 1, "outputs for 30 days"}, // the test's server does not sync
	} {
		if r := e.Turnctl(c.args...); r.Code != c.code || !strings.Contains(r.Stdout+r.Stderr, c.want) {
			t.Errorf("turnctl %v ended with %d: %s%s", c.args, r.Code, r.Stdout, r.Stderr)
		}
	}
	if n := env.Query[int](e, "select count(*) from turn_events where turn_id = $1", e.TurnOf(young).ID); n <= 2 {
		t.Errorf("the young turn has %d events", n)
	}
	if n := env.Query[int](e, "select count(*) from ended_grants"); n != 2 {
		t.Errorf("%d grants are left, want 2", n)
	}
	e.WantReply(turn, "Done.")
	behind := e.Enqueue("clerk", "Behind.")
	e.AwaitClosed(behind)
	if broken := e.BrokenInvariants(false); len(broken) > 0 {
		t.Errorf("broken: %v", broken)
	}
}

// Purges run in parallel with each other, with workers, and with open turns of the same conversations. Each
// purges whole closed messages and nothing open. A killed purge leaves nothing half deleted.
func TestPurgesUnderLoad(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "lane: conversation", env.MarkerTools, "max_rounds: 3", "max_duration: 200s",
		"tool_timeout: 190s", "async: false")
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
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('clerk', $1, $2)", fmt.Sprint("m", n),
			fmt.Sprint("c", 1+n%conversations)))
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
	e.Poll("every reply came to the webhook before it was purged", func() bool {
		return len(hook.Deliveries()) == len(ids)
	})
	if broken := e.BrokenInvariants(false); len(broken) > 0 {
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
	for _, table := range []string{"messages", "turns", "replies", "call_starts", "late_results", "journal", "outputs",
		"output_chunks", "ended_grants", "webhook_deliveries", "awaited_calls", "detached_calls"} {
		if n := env.Query[int](e, "select count(*) from "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	if n := env.Query[int](e, "select count(*) from river_job where kind in ('AgentTurn', 'DetachedCall')"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

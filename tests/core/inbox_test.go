package core_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

func TestTwoHundredEnqueuesFromTenProcesses(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.StartWorker()
	e.PauseScheduler("the messages are counted first")
	processes, each := 10, testrun.Count(3, 20)
	var senders sync.WaitGroup
	ids := make([][]int64, processes)
	for p := range processes {
		senders.Go(func() {
			for range each {
				ids[p] = append(ids[p], env.EnqueueByProgram(e, "clerk", "Hello"))
			}
		})
	}
	senders.Wait()
	var all []int64
	for p, own := range ids {
		if !slices.IsSorted(own) || len(own) != each {
			t.Errorf("process %d got the ids %v", p, own)
		}
		all = append(all, own...)
	}
	slices.Sort(all)
	if distinct := slices.Compact(all); len(distinct) != processes*each {
		t.Errorf("there are %d distinct ids", len(distinct))
	}
	if n := env.Query[int](e, "select count(*) from messages where id = any($1::bigint[]) and state = 'waiting'",
		all); n != processes*each {
		t.Errorf("%d messages wait", n)
	}
}

func TestAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	e.StartWorker()
	var senders sync.WaitGroup
	ids := make([]int64, 10)
	for i := range ids {
		senders.Go(func() { ids[i] = e.Enqueue("clerk", "Hello", "--key", "order-17") })
	}
	senders.Wait()
	if distinct := slices.Compact(slices.Clone(ids)); len(distinct) != 1 {
		t.Errorf("one key gave the ids %v", ids)
	}
	r := e.Run("", "enqueue", "--agent", "clerk", "--key", "order-17", "Something else")
	if r.Code != 2 || !strings.Contains(r.Stderr, "idempotency key") {
		t.Errorf("another body under the key ended with %d: %s", r.Code, r.Stderr)
	}
	e.TurnOf(ids[0])
	e.WantRequests(1)
}

func TestPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	e.StartWorker()
	e.PauseScheduler("until all are there")
	low := e.Enqueue("clerk", "low", "--priority", "-5")
	normal := e.Enqueue("clerk", "normal")
	high := e.Enqueue("clerk", "high", "--priority", "5")
	e.Exec("update messages set due_at = date_trunc('second', clock_timestamp()) - interval '1 second'")
	e.ResumeScheduler()
	e.AwaitClosed(low, normal, high)
	var order []string
	for _, r := range e.WantRequests(3) {
		order = append(order, env.NewestMessage(r))
	}
	if !slices.Equal(order, []string{"high", "normal", "low"}) {
		t.Errorf("the order was %v", order)
	}
}

package tests_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTwoHundredEnqueuesFromTenProcesses(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.startWorker()
	if r := h.run("", "turnctl", "scheduler", "pause", "the messages are counted first"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	const processes, each = 10, 20
	var senders sync.WaitGroup
	ids := make([][]int64, processes)
	for p := range processes {
		senders.Go(func() {
			for range each {
				ids[p] = append(ids[p], h.enqueue("clerk", "Hello"))
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
	if n := query[int](h, "select count(*) from messages where id = any($1::bigint[]) and state = 'waiting'", all); n != processes*each {
		t.Errorf("%d messages wait", n)
	}
}

func TestAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	h.startWorker()
	var senders sync.WaitGroup
	ids := make([]int64, 10)
	for i := range ids {
		senders.Go(func() { ids[i] = h.enqueue("clerk", "Hello", "--key", "order-17") })
	}
	senders.Wait()
	if distinct := slices.Compact(slices.Clone(ids)); len(distinct) != 1 {
		t.Errorf("one key gave the ids %v", ids)
	}
	r := h.run("", "enqueue", "--agent", "clerk", "--key", "order-17", "Something else")
	if r.code != 2 || !strings.Contains(r.stderr, "idempotency key") {
		t.Errorf("another body under the key ended with %d: %s", r.code, r.stderr)
	}
	h.turnOf(ids[0])
	h.requests(1)
}

func TestPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("done")))
	h.startWorker()
	h.run("", "turnctl", "scheduler", "pause", "until all are there")
	low := h.enqueue("clerk", "low", "--priority", "-5")
	normal := h.enqueue("clerk", "normal")
	high := h.enqueue("clerk", "high", "--priority", "5")
	h.exec("update messages set due_at = date_trunc('second', clock_timestamp()) - interval '1 second'")
	h.run("", "turnctl", "scheduler", "resume")
	h.awaitClosed(low, normal, high)
	var order []string
	for _, r := range h.requests(3) {
		order = append(order, newest(r))
	}
	if !slices.Equal(order, []string{"high", "normal", "low"}) {
		t.Errorf("the order was %v", order)
	}
}

package tests_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A message whose tool kills its worker each time is answered without a fourth
// try. What others have sent is answered meanwhile.
func TestAToolThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("doomed", "tools: [mark_poison]")
	h.agent("clerk", marks)
	h.model.Then(func(r recorded) reply {
		if newest(r) == "Die." {
			return callOnce("mark_poison", "death")
		}
		return rounds(callOnce("mark_none", newest(r)), text("answer to "+newest(r)))(r)
	})
	w := h.startWorker("--takeover-after", silence)
	doomed := h.send("doomed", "Die.")
	var others []int64
	for death := 1; death <= 3; death++ {
		w.wait()
		h.ledger.ran("death", death)
		// Sent while nobody works: what waits now is under way with the next death
		// at most once, and not three times as what kills.
		others = append(others, h.send("clerk", fmt.Sprint("other ", death)))
		w = h.startWorker("--takeover-after", silence)
	}
	turn := h.turnOf(doomed)
	h.ended(turn, "degraded", "worker_lost", 1)
	if turn.Dispatches != 3 || turn.Losses != 3 {
		t.Errorf("the turn had %d dispatches and %d losses", turn.Dispatches, turn.Losses)
	}
	if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, "Tool results: 0 succeeded, 0 failed, 1 unknown.\n- mark_poison: ") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	h.ledger.ran("death", 3)
	others = append(others, h.send("clerk", "other 4"))
	h.awaitClosed(others...)
	for i, id := range others {
		if got := query[string](h, "select outcome || ': ' || body from replies where message_id = $1", id); got != fmt.Sprint("succeeded: answer to other ", i+1) {
			t.Errorf("message %d has the reply %q", id, got)
		}
	}
	if !w.running() {
		t.Error("the last worker died too")
	}
}

// sample is how much of a flood is drained.
const sample = 400

// TestAHundredThousandMessagesWait has half of them in one lane and half in ten
// thousand. The worker starts on the oldest, in order, and does not grow.
func TestAHundredThousandMessagesWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.agent("crew", "lane: conversation")
	h.model.Then(func(r recorded) reply { return text("answer to " + newest(r)) })
	w := h.startWorker()
	first := h.send("clerk", "first")
	h.awaitClosed(first)
	h.run("", "turnctl", "scheduler", "pause", "--reason", "the flood is poured in")
	h.exec(`insert into messages (agent, conversation, lane, body, due_at)
		select 'clerk', 'main', 'clerk', 'clerk ' || i, date_trunc('second', now() - interval '1 hour') from generate_series(1, 50000) i`)
	h.exec(`insert into messages (agent, conversation, lane, body, due_at)
		select 'crew', 'c' || i % 10000, 'crew/c' || i % 10000, 'crew ' || i, date_trunc('second', now() - interval '1 hour') + i / 1000 * interval '1 s'
		from generate_series(1, 50000) i`)
	h.run("", "turnctl", "scheduler", "resume")
	drained := func(n int) {
		h.await(fmt.Sprint(n, " messages are answered"), "select count(*) >= $1 from replies", 1+n)
	}
	drained(sample / 4)
	before, began := resident(t, w.cmd.Process.Pid), time.Now()
	accepted := h.enqueue("clerk", "the youngest")
	drained(sample)
	after := resident(t, w.cmd.Process.Pid)
	t.Logf("%.0f turns a second with 100,000 waiting; the worker has %d MB, %d MB after %d turns",
		float64(sample-sample/4)/time.Since(began).Seconds(), before>>20, after>>20, sample)
	if grown := after - before; grown > 24<<20 {
		t.Errorf("the worker grew by %d MB", grown>>20)
	}
	w.terminate()
	h.exec("update settings set paused_at = now(), paused_reason = 'counted'")

	// A lane is worked from its beginning, and the lanes whose heads are oldest first.
	if broken := query[int](h, `select count(*) from messages late join messages early on early.lane = late.lane and early.id < late.id
		where late.turn_id is not null and early.turn_id is null and late.id > $1 and early.id > $1`, first); broken != 0 {
		t.Errorf("%d messages were taken before older ones of their lane", broken)
	}
	slots := query[int](h, "select slots_seen from (select greatest(max(slots), 10) from worker_heartbeat) w (slots_seen)")
	if ahead := query[int](h, `select count(*) from messages late where late.agent = 'crew' and late.turn_id is not null and (
			select count(*) from messages early where early.agent = 'crew' and early.turn_id is null and (early.due_at, early.id) < (late.due_at, late.id)) > $1`, slots); ahead != 0 {
		t.Errorf("%d messages were taken before more than %d older heads", ahead, slots)
	}
	if state := query[string](h, "select state from messages where id = $1", accepted); state != "waiting" {
		t.Errorf("the youngest of the lane is %s", state)
	}
}

// resident is how much memory a process has, in bytes.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(string(bytes.Fields(text)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func TestOneKeyFromAHundredClients(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("Once.")))
	h.startWorker()
	const clients = 100
	ids, faults := make([]int64, clients), make([]error, clients)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range clients {
		conn, err := pgx.Connect(t.Context(), h.url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			faults[i] = conn.QueryRow(t.Context(), "select turnkeeper.enqueue('clerk', 'Hello', idempotency_key => 'one key')").Scan(&ids[i])
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	for i, err := range faults {
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
	}
	if all := slices.Compact(slices.Clone(ids)); len(all) != 1 {
		t.Errorf("the clients got the ids %v", all)
	}
	h.awaitClosed(ids[0])
	if n := query[int](h, "select count(*) from messages"); n != 1 {
		t.Errorf("there are %d messages", n)
	}
	h.requests(1)
}

package faults_test

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

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A message whose tool kills its worker each time is closed without a fourth attempt. Other messages are
// answered meanwhile.
func TestAToolThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("doomed", "tools: [mark_poison]")
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Die." {
			return env.MarkerReply("mark_poison", "death")
		}
		return env.Rounds(env.MarkerReply("mark_none", env.NewestMessage(r)),
			inferencetest.Text("answer to "+env.NewestMessage(r)))(r)
	})
	w := e.StartWorker()
	doomed := e.Send("doomed", "Die.")
	var others []int64
	for death := 1; death <= 3; death++ {
		w.Wait()
		e.CountAsLost(w)
		e.Ledger.WantRuns("death", death)
		// These are sent while no worker runs, so each of them is open in at most one of the deaths.
		others = append(others, e.Send("clerk", fmt.Sprint("other ", death)))
		w = e.StartWorker()
	}
	turn := e.TurnOf(doomed)
	e.WantEnd(turn, "degraded", "worker_lost", 1)
	if turn.Dispatches != 3 || turn.Losses != 3 {
		t.Errorf("the turn had %d dispatches and %d losses", turn.Dispatches, turn.Losses)
	}
	if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body,
		"Tool results: 0 succeeded, 0 failed, 1 unknown.\n- mark_poison: ") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	e.Ledger.WantRuns("death", 3)
	others = append(others, e.Send("clerk", "other 4"))
	e.AwaitClosed(others...)
	for i, id := range others {
		if got := env.Query[string](e, "select outcome || ': ' || body from replies where message_id = $1",
			id); got != fmt.Sprint("succeeded: answer to other ", i+1) {
			t.Errorf("message %d has the reply %q", id, got)
		}
	}
	if !w.Running() {
		t.Error("the last worker died too")
	}
}

// sample is the number of messages that are answered.
const sample = 400

// Half of the messages wait in one lane and half in ten thousand; make test uses a few thousand. The worker
// starts with the oldest, in order, and its memory does not grow.
func TestAHundredThousandMessagesWait(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.WriteAgent("crew", "lane: conversation")
	e.Model.Then(env.Echo("answer to "))
	half := testrun.Count(3000, 50_000)
	w := e.StartWorker()
	first := e.Send("clerk", "first")
	e.AwaitClosed(first)
	e.PauseScheduler("the flood is poured in")
	e.Exec(`insert into messages (agent, conversation, lane, body, due_at)
		select 'clerk', 'main', 'clerk', 'clerk ' || i, date_trunc('second', now() - interval '1 hour') from generate_series(1, $1::int) i`, half)
	e.Exec(`insert into messages (agent, conversation, lane, body, due_at)
		select 'crew', 'c' || i % ($1 / 5), 'crew/c' || i % ($1 / 5), 'crew ' || i, date_trunc('second', now() - interval '1 hour') + i / 1000 * interval '1 s'
		from generate_series(1, $1::int) i`, half)
	e.ResumeScheduler()
	drained := func(n int) {
		e.Await(fmt.Sprint(n, " messages are answered"), "select count(*) >= $1 from replies", 1+n)
	}
	drained(sample / 4)
	before, began := resident(t, w.Cmd.Process.Pid), time.Now()
	accepted := e.Enqueue("clerk", "the youngest")
	drained(sample)
	after := resident(t, w.Cmd.Process.Pid)
	t.Logf("%.0f turns a second with %d waiting; the worker has %d MB, %d MB after %d turns",
		float64(sample-sample/4)/time.Since(began).Seconds(), 2*half, before>>20, after>>20, sample)
	if grown := after - before; grown > 24<<20 {
		t.Errorf("the worker grew by %d MB", grown>>20)
	}
	e.PauseScheduler("it is counted")
	e.Await("every granted turn has run", "select not exists (select from leases where grant_id is not null)")
	w.Terminate()

	// Lanes run in order, and those with the oldest first message go first.
	if broken := env.Query[int](e,
		`select count(*) from messages late join messages early on early.lane = late.lane and early.id < late.id
		where late.turn_id is not null and early.turn_id is null and late.id > $1 and early.id > $1`, first); broken != 0 {
		t.Errorf("%d messages were taken before older ones of their lane", broken)
	}
	slots := env.Query[int](e,
		"select slots_seen from (select greatest(max(slots), 10) from worker_heartbeat) w (slots_seen)")
	if ahead := env.Query[int](e,
		`select count(*) from messages late where late.agent = 'crew' and late.turn_id is not null and (
			select count(*) from messages early where early.agent = 'crew' and early.turn_id is null and (early.due_at, early.id) < (late.due_at, late.id)) > $1`, slots); ahead != 0 {
		t.Errorf("%d messages were taken before more than %d older heads", ahead, slots)
	}
	if state := env.Query[string](e, "select state from messages where id = $1", accepted); state != "waiting" {
		t.Errorf("the youngest of the lane is %s", state)
	}
}

// resident returns the resident memory of a process in bytes.
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
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("Once.")))
	e.StartWorker()
	const clients = 100
	ids, faults := make([]int64, clients), make([]error, clients)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range clients {
		conn, err := pgx.Connect(t.Context(), e.DatabaseURL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			faults[i] = conn.QueryRow(t.Context(),
				"select turnkeeper.enqueue('clerk', 'Hello', idempotency_key => 'one key')").Scan(&ids[i])
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
	e.AwaitClosed(ids[0])
	if n := env.Query[int](e, "select count(*) from messages"); n != 1 {
		t.Errorf("there are %d messages", n)
	}
	e.WantRequests(1)
}

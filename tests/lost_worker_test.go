package tests_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
)

// hangOnce gives the reply, but the first time it never comes.
func hangOnce(reply reply) reply {
	var asked atomic.Bool
	return func(x *inferencetest.Exchange) {
		if asked.CompareAndSwap(false, true) {
			x.Hang()
			return
		}
		reply(x)
	}
}

func TestAKilledWorkersTurnIsTakenOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), hangOnce(text("It is marked."))))
	first := h.startWorker("--takeover-after", silence)
	message := h.enqueue("clerk", "Make a mark.")
	h.awaitRequests(2)
	h.startWorker("--takeover-after", silence)
	killed := query[time.Time](h, "select clock_timestamp()")
	first.kill()

	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "It is marked.")
	h.ledger.ran("a", 1)
	if turn.Dispatches != 2 || turn.Losses != 1 || *turn.DispatchLog[0].Outcome != "lost" {
		t.Errorf("the turn had %d dispatches, %d losses", turn.Dispatches, turn.Losses)
	}
	again := query[time.Time](h, "select max(granted_at) from lease_log")
	if took := again.Sub(killed); took > 7*time.Second {
		t.Errorf("the turn was taken over %s after the kill", took)
	}
	h.requests(3) // the second round was asked for twice
	h.ended(h.turnOf(h.enqueue("clerk", "And again.")), "succeeded", "none", 2)
}

func TestAKillDuringATool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool  string
		runs  int
		state string // of the call
		ends  string // of the turn
		stop  string
		told  string // what the model hears of the call
	}{
		{"mark_none", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_keyed", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_once", 1, "unknown", "degraded", "worker_lost", "outcome unknown"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", marks)
			h.ledger.hold("a")
			h.model.Then(rounds(callOnce(c.tool, "a"), text("So be it.")))
			first := h.startWorker("--takeover-after", silence)
			message := h.enqueue("clerk", "Make a mark.")
			h.ledger.await("a", 1)
			h.startWorker("--takeover-after", silence)
			first.kill()
			h.ledger.release()

			turn := h.turnOf(message)
			h.ended(turn, c.ends, c.stop, 2)
			h.replied(turn, "So be it.")
			h.ledger.ran("a", c.runs)
			runs := h.ledger.runs("a")
			for _, again := range runs[1:] {
				if again.IdempotencyKey != runs[0].IdempotencyKey || again.PID == runs[0].PID {
					t.Errorf("the runs were %+v", runs)
				}
			}
			if got := turn.calls()[0]; got.State != c.state {
				t.Errorf("the call is %s", got.State)
			}
			asked := h.requests(2)[1].Chat().Messages
			if told := asked[len(asked)-1].Text(); !strings.HasPrefix(told, c.told) {
				t.Errorf("the model is told %q", told)
			}
		})
	}
}

// shortLease are the flags of a worker whose leases are over soon.
var shortLease = []string{"--lease-ttl", "6s", "--lease-margin", "1s", "--max-duration", "4s", "--tool-timeout", "3s"}

func TestAStoppedWorkerIsFenced(t *testing.T) {
	t.Parallel()
	for name, takeover := range map[string]string{"at the end of its lease": "0", "when its heart is silent": silence} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", marks)
			h.ledger.hold("a")
			h.model.Then(rounds(callOnce("mark_once", "a"), text("Perhaps.")))
			flags := append([]string{"--takeover-after", takeover}, shortLease...)
			first := h.startWorker(flags...)
			message := h.enqueue("clerk", "Make a mark.")
			h.ledger.await("a", 1)
			first.signal(syscall.SIGSTOP)
			h.startWorker(flags...)

			turn := h.turnOf(message)
			h.ended(turn, "degraded", "worker_lost", 2)
			h.replied(turn, "Perhaps.")
			before := journalOf(h, turn.ID)

			h.ledger.release()
			first.signal(syscall.SIGCONT)
			h.await("the late result is kept", "select exists (select from calls where late_result is not null)")
			first.await("the turn is no longer this worker's")
			late := h.show(turn.ID).calls()[0]
			if late.State != "unknown" || late.LateResult != "marked a" {
				t.Errorf("the call is %+v", late)
			}
			if after := journalOf(h, turn.ID); after != before {
				t.Errorf("the stopped worker wrote to the turn:\n%s\n%s", before, after)
			}
			h.ledger.ran("a", 1)
			h.requests(2)
			// Both workers go on.
			h.model.Then(rounds(text("Yes.")))
			for range 2 {
				h.ended(h.turnOf(h.enqueue("clerk", "Are you there?")), "succeeded", "none", 1)
			}
		})
	}
}

func TestAStoppedWorkersAnswerIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	late := make(chan struct{})
	h.model.Add(waitFor(late, text("stale")))
	h.model.Then(rounds(text("fresh")))
	flags := append([]string{"--takeover-after", silence}, shortLease...)
	first := h.startWorker(flags...)
	message := h.enqueue("clerk", "Hello")
	h.awaitRequests(1)
	first.signal(syscall.SIGSTOP)
	h.startWorker(flags...)
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 1)
	before := journalOf(h, turn.ID)

	close(late)
	first.signal(syscall.SIGCONT)
	first.await("the turn is no longer this worker's")
	h.replied(h.show(turn.ID), "fresh")
	if after := journalOf(h, turn.ID); after != before {
		t.Errorf("the stopped worker wrote to the turn:\n%s\n%s", before, after)
	}
}

// journalOf is all that a turn's holders wrote, late results aside.
func journalOf(h *house, turn int64) string {
	h.t.Helper()
	return query[string](h, `
		select t::text || coalesce((select string_agg(r::text, E'\n' order by r.round) from rounds r where r.turn_id = t.id), '')
			|| coalesce((select string_agg(c.state || c.shown || c.nonce, E'\n' order by c.round, c.ordinal) from calls c where c.turn_id = t.id), '')
			|| coalesce((select string_agg(e::text, E'\n' order by e.seq) from turn_events e where e.turn_id = t.id), '')
			|| coalesce((select string_agg(r::text, E'\n') from replies r where r.turn_id = t.id), '')
		from turns t where t.id = $1`, turn)
}

func TestAMessageThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), hang()))
	message := int64(0)
	for death := 1; death <= 3; death++ {
		w := h.startWorker("--takeover-after", silence)
		if message == 0 {
			message = h.enqueue("clerk", "Die.")
		}
		h.awaitRequests(1 + death)
		w.kill()
	}
	h.startWorker("--takeover-after", silence)
	turn := h.turnOf(message)
	h.ended(turn, "degraded", "worker_lost", 1)
	h.replied(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: marked a")
	if turn.Dispatches != 3 || turn.Losses != 3 {
		t.Errorf("the turn had %d dispatches and %d losses", turn.Dispatches, turn.Losses)
	}
	h.ledger.ran("a", 1)
	h.nothingMoreHappens(4)
}

func TestARestartedRoundIsRolledBackForWatchers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Add(drip("Half a sentence. "))
	h.model.Then(rounds(text("A whole sentence.")))
	first := h.startWorker("--takeover-after", silence)
	message := h.enqueue("clerk", "Speak.")
	h.await("the first half is streamed", "select exists (select from turn_events where type = 'block_delta')")
	first.kill()
	h.startWorker("--takeover-after", silence)

	turn := h.turnOf(message)
	h.replied(turn, "A whole sentence.")
	if n := query[int](h, "select count(*) from turn_events where type = 'round_rollback'"); n != 1 {
		t.Errorf("there are %d rollbacks", n)
	}
	streamed := query[string](h, `
		select coalesce(string_agg(data->>'text', '' order by seq), '') from turn_events
		where turn_id = $1 and type = 'block_delta'
		  and seq > (select coalesce(max(seq), 0) from turn_events where turn_id = $1 and type = 'round_rollback')`, turn.ID)
	if streamed != "A whole sentence." {
		t.Errorf("after the rollback %q was streamed", streamed)
	}
}

// drip streams the text over and over, until the client leaves.
func drip(text string) reply {
	chunk := fmt.Sprintf(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`, text)
	return func(x *inferencetest.Exchange) {
		inferencetest.OpenSSE(chunk)(x)
		for x.Wait(after(100 * time.Millisecond)) {
			x.Send("data: " + chunk + "\n\n")
		}
	}
}

// after is an event that happens once d has passed.
func after(d time.Duration) <-chan struct{} {
	event := make(chan struct{})
	time.AfterFunc(d, func() { close(event) })
	return event
}

func TestTwoWorkersOneLane(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(func(r recorded) reply { return text("answer to " + newest(r)) })
	h.startWorker()
	h.startWorker()
	var ids []int64
	var bodies []string
	for i := range 20 {
		bodies = append(bodies, fmt.Sprint("message ", i))
		ids = append(ids, h.send("clerk", bodies[i]))
	}
	h.awaitClosed(ids...)
	if most := h.model.MaxInFlight(); most != 1 {
		t.Errorf("%d requests were open at once", most)
	}
	for i, r := range h.requests(20) {
		if newest(r) != bodies[i] {
			t.Errorf("request %d is about %q", i+1, newest(r))
		}
	}
	for i, id := range ids {
		if got := query[string](h, "select body from replies where message_id = $1", id); got != "answer to "+bodies[i] {
			t.Errorf("message %d has the reply %q", id, got)
		}
	}
}

func TestLanesRunBesideEachOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "lane: conversation")
	all := make(chan struct{})
	h.model.Then(func(recorded) reply { return waitFor(all, text("done")) })
	h.startWorker()
	h.startWorker()
	var ids []int64
	for _, conversation := range []string{"anna", "ben", "cem"} {
		ids = append(ids, query[int64](h, "select turnkeeper.enqueue('clerk', 'Hello', $1)", conversation))
	}
	h.awaitRequests(3) // none waits for another
	close(all)
	h.awaitClosed(ids...)
}

package tests_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// cancelled fails the test unless the message was answered by its cancellation.
func (h *house) cancelled(message int64) shown {
	h.t.Helper()
	turn := h.turnOf(message)
	if turn.State != "cancelled" || turn.Reply == nil || turn.Reply.Body != "This turn was cancelled." {
		h.t.Errorf("turn %d is %s, its reply %+v", turn.ID, turn.State, turn.Reply)
	}
	last := query[string](h, "select type from turn_events where turn_id = $1 order by seq desc limit 1", turn.ID)
	if last != "turn_error" {
		h.t.Errorf("the last event is %s", last)
	}
	return turn
}

func (h *house) cancel(args ...string) run {
	h.t.Helper()
	return h.run("", "turnctl", append([]string{"cancel"}, args...)...)
}

// What runs is stopped, wherever it is, and the lane goes on.
func TestCancel(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		model   func(recorded) reply
		held    string // label that the ledger holds
		reached func(h *house, message int64)
		told    string // by turnctl
		call    string // state of the call; empty: there is none
	}{
		"while the model hangs": {
			model:   func(recorded) reply { return inferencetest.Hang() },
			reached: func(h *house, _ int64) { h.awaitRequests(1) },
			told:    "turn 1 is", // told to stop, or closed already
		},
		"while a tool runs": {
			model: func(recorded) reply { return callOnce("mark_slow", "a") }, held: "a",
			reached: func(h *house, _ int64) { h.ledger.await("a", 1) },
			told:    "turn 1 is", call: "cancelled",
		},
		"while it waits for a detached call": {
			model: func(recorded) reply { return callOnce("mark_far_once", "a") }, held: "a",
			reached: func(h *house, _ int64) { h.ledger.await("a", 1); h.waiting(1) },
			told:    "is cancelled", call: "cancelled",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", "tools: [mark_slow, mark_far_once]")
			if c.held != "" {
				h.ledger.hold(c.held)
				defer h.ledger.release()
			}
			h.model.Then(func(r recorded) reply {
				if newest(r) == "And now?" {
					return text("Now.")
				}
				return c.model(r)
			})
			h.startWorker()
			message := h.enqueue("clerk", "Go.")
			c.reached(h, message)
			turn := query[int64](h, "select turn_id from messages where id = $1", message)
			r := h.cancel(strconv.FormatInt(turn, 10), "--reason", "no need")
			if r.code != 0 || !strings.Contains(r.stdout, c.told) {
				t.Fatalf("%+v", r)
			}
			h.awaitClosed(message)
			ended := h.cancelled(message)
			if calls := ended.calls(); c.call == "" && len(calls) != 0 || c.call != "" && (len(calls) != 1 || calls[0].State != c.call) {
				t.Errorf("calls %+v, want one that is %q", calls, c.call)
			}
			if again := h.cancel(fmt.Sprint(turn)); again.code != 0 || !strings.Contains(again.stdout, "is cancelled") {
				t.Errorf("again: %+v", again)
			}
			if r := h.run("", "turnctl", "events", fmt.Sprint(turn), "--follow"); r.code != 5 || !strings.Contains(r.stdout, "reply\nThis turn was cancelled.\n") {
				t.Errorf("its events: %+v", r)
			}
			behind := h.enqueue("clerk", "And now?")
			h.awaitClosed(behind)
			if r := h.run("", "turnctl", "events", "latest", "--follow"); r.code != 0 || !strings.Contains(r.stdout, "\nNow.\n") {
				t.Errorf("the events of the turn behind: %+v", r)
			}
			h.replied(h.turnOf(behind), "Now.")
			if r := h.cancel("--message", fmt.Sprint(behind)); r.code != 6 || !strings.Contains(r.stderr, "is closed already: it is answered") {
				t.Errorf("of what has ended: %+v", r)
			}
		})
	}
}

// A worker that dies before it has closed the turn leaves that to the scheduler.
func TestCancelledAndTheWorkerIsLost(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(func(recorded) reply { return inferencetest.Hang() })
	first := h.startWorker("--takeover-after", silence)
	message := h.enqueue("clerk", "Go.")
	h.awaitRequests(1)
	first.signal(syscall.SIGSTOP) // it hears nothing of it
	if r := h.cancel("--message", fmt.Sprint(message)); r.code != 0 || !strings.Contains(r.stdout, "is told to stop") {
		t.Fatalf("%+v", r)
	}
	first.kill()
	h.startWorker("--takeover-after", silence)
	h.awaitClosed(message)
	if turn := h.cancelled(message); turn.Dispatches != 1 {
		t.Errorf("it was dispatched %d times", turn.Dispatches)
	}
}

// A message is cancelled where it waits, and tried again.
func TestCancelAndRetryInTheInbox(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(func(r recorded) reply { return text("Re: " + newest(r)) })
	h.startWorker()
	if r := h.run("", "turnctl", "scheduler", "pause", "a test"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	message := h.enqueue("clerk", "Go.")
	if r := h.cancel("--message", fmt.Sprint(message)); r.code != 0 || !strings.Contains(r.stdout, "is cancelled") {
		t.Fatalf("%+v", r)
	}
	if turn := h.cancelled(message); turn.Dispatches != 0 {
		t.Errorf("it was dispatched %d times", turn.Dispatches)
	}
	id := fmt.Sprint(message)
	if r := h.run("", "turnctl", "retry", id); r.code != 6 || !strings.Contains(r.stderr, "--anyway") {
		t.Errorf("retry of what was cancelled: %+v", r)
	}
	type retried struct {
		MessageID int64 `json:"message_id"`
		RetryOf   int64 `json:"retry_of"`
		Repeat    bool
	}
	again := turnctl[retried](h, "retry", id, "--anyway")
	if again.RetryOf != message || again.MessageID <= message {
		t.Errorf("%+v", again)
	}
	if repeat := turnctl[retried](h, "retry", id, "--anyway"); repeat.MessageID != again.MessageID || !repeat.Repeat {
		t.Errorf("the repeat gave %+v", repeat)
	}
	if r := h.run("", "turnctl", "scheduler", "resume"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	h.awaitClosed(again.MessageID)
	h.replied(h.turnOf(again.MessageID), "Re: Go.")
	if n := query[int](h, "select count(*) from replies where message_id = $1", message); n != 1 {
		t.Errorf("the first message has %d replies", n)
	}
}

// A message in back-off is due now.
func TestRetryInBackOff(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(func(r recorded) reply { return text("Done.") })
	h.startWorker()
	h.ended(h.turnOf(h.enqueue("clerk", "The first.")), "succeeded", "none", 1)
	h.exec("update leases set not_before = clock_timestamp() + interval '100 s', failures = 2")
	message := h.enqueue("clerk", "Go.")
	type retried struct {
		MessageID int64 `json:"message_id"`
		DueNow    bool  `json:"due_now"`
	}
	if r := turnctl[retried](h, "retry", fmt.Sprint(message)); !r.DueNow || r.MessageID != message {
		t.Errorf("%+v", r)
	}
	h.awaitClosed(message)
	if r := h.run("", "turnctl", "retry", fmt.Sprint(message)); r.code != 6 || !strings.Contains(r.stderr, "was answered") {
		t.Errorf("retry of what was answered: %+v", r)
	}
}

package core_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// wantCancelled fails the test unless the message was closed as cancelled, and returns its turn.
func wantCancelled(e *env.Env, message int64) env.Turn {
	e.T.Helper()
	turn := e.TurnOf(message)
	if turn.State != "cancelled" || turn.Reply == nil || turn.Reply.Body != "This turn was cancelled." {
		e.T.Errorf("turn %d is %s, its reply %+v", turn.ID, turn.State, turn.Reply)
	}
	last := env.Query[string](e, "select type from turn_events where turn_id = $1 order by seq desc limit 1", turn.ID)
	if last != "turn_error" {
		e.T.Errorf("the last event is %s", last)
	}
	return turn
}

func cancelTurn(e *env.Env, args ...string) env.Result {
	e.T.Helper()
	return e.Turnctl(append([]string{"cancel"}, args...)...)
}

// A cancellation stops whatever the turn is doing, and its lane continues.
func TestCancel(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		model   func(inferencetest.Recorded) inferencetest.Reply
		held    string // label held by the ledger
		reached func(e *env.Env, message int64)
		output  string // in the output of turnctl
		call    string // state of the call; empty: no call
	}{
		"while the model hangs": {
			model:   func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Hang() },
			reached: func(e *env.Env, _ int64) { e.AwaitRequests(1) },
			output:  "turn 1 ", // "was asked to stop", or "is cancelled"
		},
		"while a tool runs": {
			model: func(inferencetest.Recorded) inferencetest.Reply {
				return env.MarkerReply("mark_slow", "a")
			}, held: "a",
			reached: func(e *env.Env, _ int64) { e.Ledger.Await("a", 1) },
			output:  "turn 1 ", call: "cancelled",
		},
		"while it waits for a detached call": {
			model: func(inferencetest.Recorded) inferencetest.Reply {
				return env.MarkerReply("mark_far_once", "a")
			}, held: "a",
			reached: func(e *env.Env, _ int64) { e.Ledger.Await("a", 1); e.AwaitWaiting(1) },
			output:  "is cancelled", call: "cancelled",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", "tools: [mark_slow, mark_far_once]")
			if c.held != "" {
				e.Ledger.Hold(c.held)
				defer e.Ledger.Release()
			}
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				if env.NewestMessage(r) == "And now?" {
					return inferencetest.Text("Now.")
				}
				return c.model(r)
			})
			e.StartWorker()
			message := e.Enqueue("clerk", "Go.")
			c.reached(e, message)
			turn := env.Query[int64](e, "select turn_id from messages where id = $1", message)
			r := cancelTurn(e, strconv.FormatInt(turn, 10), "--reason", "no need")
			if r.Code != 0 || !strings.Contains(r.Stdout, c.output) {
				t.Fatalf("%+v", r)
			}
			e.AwaitClosed(message)
			ended := wantCancelled(e, message)
			if calls := ended.Calls(); c.call == "" && len(calls) != 0 || c.call != "" &&
				(len(calls) != 1 || calls[0].State != c.call) {
				t.Errorf("calls %+v, want one that is %q", calls, c.call)
			}
			if again := cancelTurn(e, fmt.Sprint(turn)); again.Code != 0 || !strings.Contains(again.Stdout,
				"is cancelled") {
				t.Errorf("again: %+v", again)
			}
			if r := e.Turnctl("events", fmt.Sprint(turn), "--follow"); r.Code != 5 || !strings.Contains(r.Stdout,
				"reply\nThis turn was cancelled.\n") {
				t.Errorf("its events: %+v", r)
			}
			behind := e.Enqueue("clerk", "And now?")
			e.AwaitClosed(behind)
			if r := e.Turnctl("events", "latest", "--follow"); r.Code != 0 || !strings.Contains(r.Stdout, "\nNow.\n") {
				t.Errorf("the events of the turn behind: %+v", r)
			}
			e.WantReply(e.TurnOf(behind), "Now.")
			if r := cancelTurn(e, "--message", fmt.Sprint(behind)); r.Code != 6 || !strings.Contains(r.Stderr,
				"is closed already: it succeeded") {
				t.Errorf("of what has ended: %+v", r)
			}
		})
	}
}

// If the worker dies before it closes a cancelled turn, the scheduler closes it.
func TestCancelledAndTheWorkerIsLost(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Hang() })
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Go.")
	e.AwaitRequests(1)
	first.Signal(syscall.SIGSTOP) // it does not notice the cancellation
	if r := cancelTurn(e, "--message", fmt.Sprint(message)); r.Code != 0 || !strings.Contains(r.Stdout,
		"was asked to stop") {
		t.Fatalf("%+v", r)
	}
	e.Kill(first)
	e.StartWorker()
	e.AwaitClosed(message)
	if turn := wantCancelled(e, message); turn.Dispatches != 1 {
		t.Errorf("it was dispatched %d times", turn.Dispatches)
	}
}

// A waiting message is cancelled, and retried.
func TestCancelAndRetryInTheInbox(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Echo("Re: "))
	e.StartWorker()
	e.PauseScheduler("a test")
	message := e.Enqueue("clerk", "Go.")
	if r := cancelTurn(e, "--message", fmt.Sprint(message)); r.Code != 0 || !strings.Contains(r.Stdout,
		"is cancelled") {
		t.Fatalf("%+v", r)
	}
	if turn := wantCancelled(e, message); turn.Dispatches != 0 {
		t.Errorf("it was dispatched %d times", turn.Dispatches)
	}
	id := fmt.Sprint(message)
	type retried struct {
		MessageID int64 `json:"message_id"`
		RetryOf   int64 `json:"retry_of"`
		Repeat    bool
	}
	again := env.Turnctl[retried](e, "retry", id) // no call has run, so no effect can be repeated
	if again.RetryOf != message || again.MessageID <= message {
		t.Errorf("%+v", again)
	}
	if repeat := env.Turnctl[retried](e, "retry", id); repeat.MessageID != again.MessageID || !repeat.Repeat {
		t.Errorf("the repeat gave %+v", repeat)
	}
	e.ResumeScheduler()
	e.AwaitClosed(again.MessageID)
	e.WantReply(e.TurnOf(again.MessageID), "Re: Go.")
	if n := env.Query[int](e, "select count(*) from replies where message_id = $1", message); n != 1 {
		t.Errorf("the first message has %d replies", n)
	}
}

// A retry ends the backoff of a message.
func TestRetryInBackOff(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(inferencetest.Text("Done.")))
	e.StartWorker()
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "The first.")), "succeeded", "none", 1)
	e.Exec(`insert into leases (lane, agent, not_before, failures)
		values ('clerk', 'clerk', clock_timestamp() + interval '100 s', 2)`)
	message := e.Enqueue("clerk", "Go.")
	type retried struct {
		MessageID int64 `json:"message_id"`
		DueNow    bool  `json:"due_now"`
	}
	if r := env.Turnctl[retried](e, "retry", fmt.Sprint(message)); !r.DueNow || r.MessageID != message {
		t.Errorf("%+v", r)
	}
	e.AwaitClosed(message)
	if r := e.Turnctl("retry", fmt.Sprint(message)); r.Code != 6 || !strings.Contains(r.Stderr, "has succeeded") {
		t.Errorf("retry of what has succeeded: %+v", r)
	}
}

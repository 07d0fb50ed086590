package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

const (
	finishNotice = "the last one, because the turn was asked to finish: tools can no longer be called."
	whatItHas    = "What I have."
)

// announced reports whether a request announces the last round to a turn that is to finish.
func announced(r inferencetest.Recorded) bool {
	return strings.Contains(string(r.Body), `"tool_choice":"none"`) && strings.Contains(string(r.Body), finishNotice)
}

// finishTurn lets a turn finish, twice, and checks what turnctl says. It may have finished before the second request.
func finishTurn(e *env.Env, turn int64) {
	e.T.Helper()
	asked := fmt.Sprintf("turn %d was asked to finish;", turn)
	for _, want := range [][]string{{asked}, {asked, fmt.Sprintf("turn %d has finished", turn)}} {
		r := e.Turnctl("finish", fmt.Sprint(turn), "--reason", "good enough")
		if r.Code != 0 || !slices.ContainsFunc(want, func(s string) bool { return strings.Contains(r.Stdout, s) }) {
			e.T.Fatalf("%+v, want one of %q", r, want)
		}
	}
	if text := e.Turnctl("explain", fmt.Sprint(turn)).Stdout; !strings.Contains(text,
		"It was asked to finish with what it has at ") {
		e.T.Errorf("turnctl explain prints\n%s", text)
	}
}

// wantFinished checks a turn that has finished, wherever that is shown, and returns it.
func wantFinished(e *env.Env, w *env.Process, message int64, dispatches int) env.Turn {
	e.T.Helper()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "finished", 2)
	e.WantReply(turn, whatItHas)
	if turn.Dispatches != dispatches {
		e.T.Errorf("it was dispatched %d times, want %d", turn.Dispatches, dispatches)
	}
	id := fmt.Sprint(turn.ID)
	if text := e.Turnctl("explain", id).Stdout; !strings.Contains(text,
		"It was asked to finish with what it has at ") || !strings.Contains(text, ": good enough.") {
		e.T.Errorf("turnctl explain prints\n%s", text)
	}
	if text := e.Turnctl("show", id, "-o", "text").Stdout; !strings.Contains(text, "good enough") ||
		!strings.Contains(text, "finished") {
		e.T.Errorf("turnctl show prints\n%s", text)
	}
	for path, want := range map[string]string{
		"/v1/turns/" + id: `"stop_reason":"finished"`,
		"/turns/" + id:    "Asked to finish",
	} {
		if body := get(e.T, w.APIURL()+path); !strings.Contains(body, want) {
			e.T.Errorf("%s lacks %s:\n%s", path, want, body)
		}
	}
	final := env.Query[bool](e,
		"select coalesce((data ->> 'final')::boolean, false) from turn_events where turn_id = $1 and type = 'round_start' order by seq desc limit 1", turn.ID)
	if !final {
		e.T.Error("the event of the last round does not say that it is the last")
	}
	if r := e.Turnctl("finish", id); r.Code != 0 || !strings.Contains(r.Stdout, "has finished") {
		e.T.Errorf("again: %+v", r)
	}
	if r := e.Turnctl("cancel", id); r.Code != 6 || !strings.Contains(r.Stderr, "has ended already: it succeeded") {
		e.T.Errorf("a cancellation after that: %+v", r)
	}
	return turn
}

// A turn is to finish, and its worker is killed before the last round, in it, or not at all.
func TestFinish(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool         string
		killedBefore bool // while the call runs
		killedIn     bool // while the model is asked for the last time
		state        string
		runs         int
	}{
		"an effect ends first":                     {"mark_keyed", false, false, "succeeded", 1},
		"its worker is killed before the last one": {"mark_keyed", true, false, "succeeded", 2},
		"its worker is killed in the last one":     {"mark_once", false, true, "succeeded", 1},
		"an effect of unknown outcome":             {"mark_once", true, false, "unknown", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 5")
			e.Ledger.Hold("a")
			hung := make(chan struct{})
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				if !announced(r) {
					return env.MarkerReply(c.tool, "a")
				}
				if c.killedIn {
					select {
					case <-hung:
					default:
						close(hung)
						return inferencetest.Hang()
					}
				}
				return inferencetest.Text(whatItHas)
			})
			w, message := e.StartWorker(), e.Enqueue("clerk", "Go.")
			e.Ledger.Await("a", 1)
			finishTurn(e, 1)
			if c.killedBefore {
				e.Kill(w)
			}
			e.Ledger.Release()
			if c.killedIn {
				<-hung
				e.Kill(w)
			}
			dispatches := 1
			if c.killedBefore || c.killedIn {
				w, dispatches = e.StartWorker(), 2
			}
			if c.state == "unknown" {
				e.WantEnd(e.TurnOf(message), "degraded", "worker_lost", 2)
			} else {
				wantFinished(e, w, message, dispatches)
			}
			if calls := e.TurnOf(message).Calls(); len(calls) != 1 || calls[0].State != c.state {
				t.Errorf("calls %+v", calls)
			}
			e.Ledger.WantRuns("a", c.runs)
		})
	}
}

// Turns finish that wait for a person, and for a read that runs elsewhere.
func TestFinishOfATurnThatWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tool, state, shown string }{
		"for a person": {"mark_once", "denied",
			"denied: the turn was asked to finish before this call was run. Nothing was run."},
		"for a far read": {"mark_far_none", "cancelled", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", "tools: [mark_once, mark_far_none]", askRule, "max_rounds: 5")
			e.Ledger.Hold("a")
			defer e.Ledger.Release()
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				if announced(r) {
					return inferencetest.Text(whatItHas)
				}
				return env.MarkerReply(c.tool, "a")
			})
			w, message := e.StartWorker(), e.Enqueue("clerk", "Go.")
			e.AwaitWaiting(1)
			finishTurn(e, 1)
			turn := wantFinished(e, w, message, 2)
			if call := turn.Calls()[0]; call.State != c.state || c.shown != "" && call.Result != c.shown {
				t.Errorf("%+v", call)
			}
			if n := env.Query[int](e, "select count(*) from asks where state <> 'withdrawn'"); n != 0 {
				t.Errorf("%d asks are not withdrawn", n)
			}
		})
	}
}

// A sub-agent finishes with its parent, whose last round has its answer.
func TestFinishOfATree(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Ledger.Hold("a")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch {
		case announced(r):
			return inferencetest.Text(whatItHas)
		case env.NewestMessage(r) == "Go.":
			return env.Spawn("scout find it")
		default:
			return env.MarkerReply("mark_once", "a")
		}
	})
	e.StartWorker()
	message := e.Enqueue("boss", "Go.")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(1)
	finishTurn(e, 1)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "finished", 2)
	if call := turn.Calls()[0]; call.State != "succeeded" || !strings.HasSuffix(call.Result, whatItHas) {
		t.Errorf("its call: %+v", call)
	}
	e.WantEnd(e.Show(2), "succeeded", "finished", 2)
	if text := e.Turnctl("explain", "2").Stdout; !strings.Contains(text,
		"It was asked to finish with what it has at ") {
		t.Errorf("turnctl explain prints\n%s", text)
	}
}

// Messages that wait, turns that have ended and turns that are not there cannot finish. A cancellation takes the place
// of a request to finish.
func TestFinishRefused(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Hang." {
			return inferencetest.Hang()
		}
		return inferencetest.Text("Done.")
	})
	e.StartWorker()
	done := e.Enqueue("clerk", "Go.")
	e.AwaitClosed(done)
	hangs := e.Enqueue("clerk", "Hang.")
	e.AwaitRequests(2)
	waits := e.Enqueue("clerk", "Later.")
	refused := func(code int, want string, args ...string) {
		t.Helper()
		if r := e.Turnctl(append([]string{"finish"}, args...)...); r.Code != code || !strings.Contains(r.Stderr, want) {
			t.Errorf("finish %v: %+v", args, r)
		}
	}
	refused(6, fmt.Sprintf("message %d still waits, and has nothing to finish with; cancel it instead", waits),
		"--message", fmt.Sprint(waits))
	refused(6, "turn 1 has ended already: it succeeded", "1")
	refused(6, fmt.Sprintf("message %d is closed already: it succeeded", done), "--message", fmt.Sprint(done))
	refused(3, "there is no turn 77", "77")
	refused(2, "give a turn, or --message")
	if r := e.Turnctl("finish", "--message", fmt.Sprint(hangs)); r.Code != 0 || !strings.Contains(r.Stdout,
		"was asked to finish") {
		t.Errorf("%+v", r)
	}
	if r := e.Turnctl("cancel", "2", "--reason", "after all"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	e.AwaitClosed(hangs)
	turn := wantCancelled(e, hangs)
	refused(6, fmt.Sprintf("turn %d has ended already: it was cancelled", turn.ID), fmt.Sprint(turn.ID))
	if text := e.Turnctl("explain", "2").Stdout; !strings.Contains(text, "Its cancellation was requested") ||
		!strings.Contains(text, "after all") {
		t.Errorf("turnctl explain prints\n%s", text)
	}
}

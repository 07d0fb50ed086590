package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// backgroundTools gives an agent marker tools, of which some may move to the background.
const backgroundTools = "tools: [mark_none, mark_keyed, mark_once, mark_later, mark_later_keyed, mark_far_once]"

// wantOrder fails the test unless the runs began and ended in this order.
func wantOrder(e *env.Env, want ...string) {
	e.T.Helper()
	if got := e.Ledger.Order(); !slices.Equal(got, want) {
		e.T.Errorf("the runs were %q, not %q", got, want)
	}
}

// toolResults returns the tool results of a request, in order.
func toolResults(r inferencetest.Recorded) (results []string) {
	for _, m := range r.Chat().Messages {
		if m.Role == "tool" {
			results = append(results, m.Text())
		}
	}
	return results
}

// noticeOf returns the system notice of a request, or an empty string.
func noticeOf(r inferencetest.Recorded) string {
	messages := r.Chat().Messages
	if last := messages[len(messages)-1]; env.IsNotice(last) {
		return last.Text()
	}
	return ""
}

// A call with an effect does not move to the background, however long it takes, and the next call begins after
// it has ended.
func TestEffectsOfAnAnswerDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"mark_once", "mark_keyed"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", backgroundTools, asyncSoon)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall(tool, "a"), env.MarkerCall(tool, "b")),
				inferencetest.Text("Done.")))
			e.StartWorker()
			message := e.Enqueue("clerk", "Make two marks.")
			e.Ledger.Await("a", 1)
			time.AfterFunc(time.Second, e.Ledger.Release) // long after async_timeout
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 2)
			wantOrder(e, "begin a", "end a", "begin b", "end b")
			if got := toolResults(e.WantRequests(2)[1]); !slices.Equal(got, []string{"marked a", "marked b"}) {
				t.Errorf("the model got %q", got)
			}
		})
	}
}

// Calls after an effect in the same answer wait for it, even if their tools may move to the background or are
// detached. The next model request is sent after all of them have run.
func TestAnEffectInTheBackgroundHoldsTheNextBack(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"mark_later", "mark_later_keyed", "mark_far_once"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", backgroundTools, asyncSoon)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(
				inferencetest.Calls(env.MarkerCall(tool, "a"), env.MarkerCall("mark_none", "r"),
					env.MarkerCall("mark_once", "b")),
				inferencetest.Text("Done."),
			))
			e.StartWorker()
			message := e.Enqueue("clerk", "Make marks.")
			e.Await("the first call is in the background, and the second waits",
				"select coalesce((select string_agg(state, ' ' order by ordinal) like 'running % planned' from calls), false)")
			e.Ledger.Await("r", 1)
			e.Ledger.Release()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 2)
			if got := slices.DeleteFunc(e.Ledger.Order(), func(s string) bool {
				return strings.HasSuffix(s, " r")
			}); !slices.Equal(got, []string{"begin a", "end a", "begin b", "end b"}) {
				t.Errorf("the runs were %q", got)
			}
			second := e.WantRequests(2)[1]
			id := outputOf(second)
			results := toolResults(second)
			if len(results) != 3 || !strings.HasPrefix(results[0], "Tool Output ID: "+id) || results[1] != "marked r" ||
				results[2] != "marked b" {
				t.Errorf("the model got %q", results)
			}
			if notice := noticeOf(second); !strings.Contains(notice, "### Ready (1)\n- "+tool+" (id: "+id+",") ||
				strings.Contains(notice, "Running") {
				t.Errorf("the notice is %q", notice)
			}
		})
	}
}

// A later round may start another effect while the model knows that one still runs.
func TestALaterRoundDoesNotWaitForAnEffectInTheBackground(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", backgroundTools, asyncSoon)
	e.Ledger.Hold("a")
	e.Model.Then(env.Rounds(
		inferencetest.Calls(env.MarkerCall("mark_later", "a"), env.MarkerCall("mark_none", "r")),
		inferencetest.Calls(env.MarkerCall("mark_once", "b")),
		inferencetest.Text("Done."),
	))
	e.StartWorker()
	message := e.Enqueue("clerk", "Make marks.")
	e.Ledger.Await("b", 1)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	if turn.State != "succeeded" {
		t.Errorf("the turn ended %s", turn.State)
	}
	if notice := noticeOf(e.Model.Requests()[1]); !strings.Contains(notice, "### Running (1)\n- mark_later (id: ") {
		t.Errorf("the second request has the notice %q", notice)
	}
}

// A worker is lost while an effect is in the background and the next one waits for it.
func TestAKillWhileAnEffectWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool       string
		runs       int
		state, end string
		stop       string
	}{
		{"mark_later", 1, "unknown", "degraded", "worker_lost"},
		{"mark_later_keyed", 2, "succeeded", "succeeded", "none"},
		{"mark_far_once", 1, "unknown", "degraded", "worker_lost"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", backgroundTools, asyncSoon)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(
				inferencetest.Calls(env.MarkerCall(c.tool, "a"), env.MarkerCall("mark_once", "b")),
				inferencetest.Text("Done."),
			))
			first := e.StartWorker()
			message := e.Enqueue("clerk", "Make marks.")
			e.Ledger.Await("a", 1)
			e.Await("the first call is in the background, and the second waits",
				"select coalesce((select string_agg(state, ' ' order by ordinal) = 'running planned' from calls), false)")
			e.StartWorker()
			e.Kill(first)
			if c.runs > 1 {
				e.Ledger.Await("a", c.runs) // it runs again and is held too
			}
			e.Ledger.Release()
			turn := e.TurnOf(message)
			e.WantEnd(turn, c.end, c.stop, 2)
			e.Ledger.WantRuns("a", c.runs)
			e.Ledger.WantRuns("b", 1)
			if got := turn.Calls(); got[0].State != c.state || got[1].State != "succeeded" {
				t.Errorf("the calls are %+v", got)
			}
			order := e.Ledger.Order()
			if b := slices.Index(order, "begin b"); c.runs > 1 && !slices.Contains(order[:b], "end a") {
				t.Errorf("the runs were %q", order)
			}
		})
	}
}

// An effect that still waits at the deadline or at a cancellation does not run.
func TestAnEffectThatWaitsIsNotRunAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool, duration, state, stop string
	}{
		"time":                     {"mark_later", "max_duration: 2s", "degraded", "max_duration"},
		"cancelled":                {"mark_later", "max_duration: 90s", "cancelled", "cancelled"},
		"cancelled while it waits": {"mark_far_once", "max_duration: 90s", "cancelled", "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", backgroundTools, asyncSoon, c.duration)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall(c.tool, "a"), env.MarkerCall("mark_once", "b")),
				inferencetest.Text("Done.")))
			e.StartWorker()
			message := e.Enqueue("clerk", "Make marks.")
			if c.state == "cancelled" {
				e.Await("the first call is in the background, and the second waits",
					"select coalesce((select string_agg(state, ' ' order by ordinal) = 'running planned' from calls), false)")
				if r := e.Turnctl("cancel", fmt.Sprint(env.Query[int64](e, "select id from turns"))); r.Code != 0 {
					t.Errorf("turnctl cancel: %+v", r)
				}
			}
			turn := e.TurnOf(message)
			e.WantEnd(turn, c.state, c.stop, 1)
			e.Ledger.WantRuns("b", 0)
			if got := turn.Calls()[1]; got.State != "cancelled" ||
				got.Result != "cancelled: the turn ended before this call was run." {
				t.Errorf("the call that waited is %+v", got)
			}
		})
	}
}

// If an effect fails after the model has answered, the model is called once more. If no round is left, the
// turn is degraded.
func TestAnEffectThatFailsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"mark_later", "mark_far_once"} {
		for name, c := range map[string]struct {
			rounds    string
			end, stop string
			asked     int
			reply     string
			code      int
		}{
			"a round is left": {"max_rounds: 3", "succeeded", "none", 3, "It failed.", 0},
			"none is left": {"max_rounds: 2", "degraded", "max_rounds", 2,
				"Tool results: 1 succeeded, 1 failed.\n", 3},
		} {
			t.Run(tool+", "+name, func(t *testing.T) {
				t.Parallel()
				e := env.New(t)
				e.WriteAgent("clerk", backgroundTools, asyncSoon, c.rounds)
				e.Ledger.Hold("a")
				e.Ledger.Fail("a", "the mark a could not be made")
				e.Model.Then(env.Rounds(
					inferencetest.Calls(env.MarkerCall(tool, "a"), env.MarkerCall("mark_none", "r")),
					inferencetest.Text("All went well."), inferencetest.Text("It failed."),
				))
				e.StartWorker()
				message := e.Enqueue("clerk", "Make a mark.")
				e.Await("the answer is on record", "select exists (select from rounds where round = 2)")
				e.Ledger.Release()
				turn := e.TurnOf(message)
				e.WantEnd(turn, c.end, c.stop, c.asked)
				requests := e.WantRequests(c.asked)
				if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, c.reply) {
					t.Errorf("the reply is %+v", turn.Reply)
				}
				if notice := noticeOf(requests[len(requests)-1]); c.asked == 3 && !strings.Contains(notice,
					"### Failed (1)\n- "+tool) {
					t.Errorf("the last request has the notice %q", notice)
				}
			})
		}
	}
}

// If an effect succeeds after the answer, the model is called once more. If no round is left, the answer
// stays.
func TestAnEffectThatSucceedsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for rounds, reply := range map[int]string{3: "It is done.", 2: "It is on its way."} {
		t.Run(fmt.Sprint(rounds), func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", backgroundTools, asyncSoon, fmt.Sprintf("max_rounds: %d", rounds))
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(
				inferencetest.Calls(env.MarkerCall("mark_later", "a"), env.MarkerCall("mark_none", "r")),
				inferencetest.Text("It is on its way."), inferencetest.Text("It is done."),
			))
			e.StartWorker()
			message := e.Enqueue("clerk", "Make a mark.")
			e.Await("the answer is on record", "select exists (select from rounds where round = 2)")
			e.Ledger.Release()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", rounds)
			e.WantReply(turn, reply)
		})
	}
}

// A worker is lost after the answer, while an effect is in the background.
func TestAKillAfterTheAnswer(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", backgroundTools, asyncSoon)
	e.Ledger.Hold("a")
	e.Model.Then(env.Rounds(
		inferencetest.Calls(env.MarkerCall("mark_later", "a"), env.MarkerCall("mark_none", "r")),
		inferencetest.Text("All went well."), inferencetest.Text("Nobody knows."),
	))
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Make a mark.")
	e.Await("the answer is on record", "select exists (select from rounds where round = 2)")
	e.StartWorker()
	e.Kill(first)
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 3)
	e.Ledger.WantRuns("a", 1)
	if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, "Nobody knows.") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	requests := e.WantRequests(3)
	if notice := noticeOf(requests[len(requests)-1]); !strings.Contains(notice, "### Unknown (1)") {
		t.Errorf("the last request has the notice %q", notice)
	}
}

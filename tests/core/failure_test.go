package core_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A lane is a lane in the output of "turnctl lanes".
type lane struct {
	Lane      string     `json:"lane"`
	Held      bool       `json:"held"`
	Failures  int        `json:"failures"`
	NotBefore *time.Time `json:"not_before"`
	Waiting   int        `json:"waiting_messages"`
}

// An inboxed message is a message in the output of "turnctl inbox".
type inboxed struct {
	ID        int64  `json:"id"`
	State     string `json:"state"`
	Attempts  int    `json:"attempts"`
	LastError string `json:"last_error"`
}

// whilePaused pauses the scheduler before the reply, so nothing is retried until it is resumed.
func whilePaused(e *env.Env, reply inferencetest.Reply) inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		e.PauseScheduler("a test")
		reply(x)
	}
}

func TestARefusedKeyKeepsTheMessage(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Add(whilePaused(e, inferencetest.Fault(http.StatusUnauthorized, "invalid_api_key", "no such key")))
	e.Model.Then(env.Rounds(inferencetest.Text("Now it works.")))
	e.StartWorker()
	message := e.Enqueue("clerk", "Hello")
	e.Await("the first turn failed", "select exists (select from turns where state = 'failed')")

	lanes := env.Turnctl[[]lane](e, "lanes")
	if len(lanes) != 1 || lanes[0].Held || lanes[0].Failures != 1 || lanes[0].NotBefore == nil {
		t.Errorf("the lane does not back off: %+v", lanes)
	}
	first := env.Turnctl[[]env.Turn](e, "turns", "--state", "failed")
	if len(first) != 1 || first[0].ErrorClass == "" || !strings.Contains(first[0].Error, "no such key") {
		t.Errorf("the failed turn is %+v", first)
	}
	if n := env.Query[int](e, "select count(*) from replies where turn_id = $1", first[0].ID); n != 0 {
		t.Error("a failed attempt wrote a reply")
	}
	e.ResumeScheduler()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 1)
	e.WantReply(turn, "Now it works.")
	if turn.Message.Attempts != 2 {
		t.Errorf("the message was attempted %d times", turn.Message.Attempts)
	}
	// a 401 is not retried within the turn, and the next turn asks with a request of the worker's own first
	e.WantRequests(3)
	if lanes := env.Turnctl[[]lane](e, "lanes"); len(lanes) > 0 {
		t.Errorf("success does not reset the backoff: %+v", lanes)
	}
}

func TestAFailedMessageWaitsInTheInbox(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	refused := inferencetest.Fault(http.StatusUnauthorized, "invalid_api_key", "who are you?")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return refused })
	e.Model.Add(whilePaused(e, refused))
	e.StartWorker()
	message := e.Enqueue("clerk", "Hello")
	e.Await("the first turn failed", "select exists (select from turns where state = 'failed')")

	inbox := env.Turnctl[[]inboxed](e, "inbox")
	if len(inbox) != 1 || inbox[0].State != "waiting" || inbox[0].Attempts != 1 || !strings.Contains(inbox[0].LastError,
		"who are you?") {
		t.Errorf("the inbox is %+v", inbox)
	}
	if lanes := env.Turnctl[[]lane](e, "lanes"); lanes[0].Waiting != 1 {
		t.Errorf("the lane is %+v", lanes[0])
	}

	// A day after the service failed it first, the message fails finally without another model call.
	e.Exec("update model_health set until = clock_timestamp() + interval '1 hour'")
	e.Exec(
		"update messages set accepted_at = accepted_at - interval '1 day', due_at = due_at - interval '1 day', failing_since = failing_since - interval '1 day'")
	e.Exec("update leases set not_before = clock_timestamp()")
	e.ResumeScheduler()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "failed", "inference_error", 0)
	if turn.Message.State != "failed" || turn.Reply == nil || turn.Reply.Outcome != "failed" {
		t.Errorf("the message is %+v, its reply %+v", turn.Message, turn.Reply)
	}
	if strings.Contains(turn.Reply.Body, "who are you") {
		t.Errorf("the reply holds the provider's error: %s", turn.Reply.Body)
	}
	e.WantRequests(1)
}

func TestAPassingErrorIsRetriedInPlace(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]inferencetest.Reply{
		"status 500": inferencetest.Fault(http.StatusInternalServerError, "server_error", "oops"),
		"status 429": inferencetest.Fault(http.StatusTooManyRequests, "rate_limit_exceeded", "slow down",
			"Retry-After", "1"),
		"connection broken": inferencetest.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Model.Add(failure)
			e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")))
			e.StartWorker()
			turn := e.TurnOf(e.Enqueue("clerk", "Hello"))
			e.WantEnd(turn, "succeeded", "none", 2)
			e.WantRequests(3)
			e.Ledger.WantRuns("a", 1)
			if turn.Message.Attempts != 1 {
				t.Errorf("the message took %d turns", turn.Message.Attempts)
			}
		})
	}
}

func TestTheNextModelOfTheChainAnswers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: test/first", "fallback_models: [test/second]")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if r.Chat().Model == "first" {
			return inferencetest.Fault(http.StatusNotFound, "model_not_found", "no such model")
		}
		return inferencetest.Text("I am the second.")
	})
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Hello"))
	e.WantEnd(turn, "succeeded", "none", 1)
	e.WantReply(turn, "I am the second.")
	e.WantRequests(2)
}

func TestAnErrorAfterAToolDegrades(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_duration: 10s")
	broken := inferencetest.Fault(http.StatusInternalServerError, "server_error", "the model is on fire")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), broken))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Make a mark."))
	if stop := *turn.StopReason; turn.State != "degraded" || stop != "inference_error" && stop != "max_duration" {
		t.Errorf("the turn ended %s, %s", turn.State, stop)
	}
	e.WantReply(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: succeeded")
	e.Ledger.WantRuns("a", 1)
	asked := len(e.Model.Requests())
	if asked < 3 { // the first round, and at least two attempts at the second
		t.Errorf("the model got %d requests", asked)
	}

	// The turn does not run again, however late it gets.
	e.Exec("update messages set due_at = due_at - interval '1 day'")
	e.Exec("update turns set due_at = due_at - interval '1 day'")
	e.Exec("update leases set not_before = clock_timestamp() - interval '1 day'")
	e.Exec("notify turnkeeper_inbox")
	e.WantNothingMore(asked)
	e.Ledger.WantRuns("a", 1)
}

func TestADegradedReplyOmitsEarlierText(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	broken := inferencetest.Fault(http.StatusBadRequest, "invalid_request_error", "no")
	e.Model.Then(env.Rounds(inferencetest.Message("I shall make a mark.", env.MarkerCall("mark_once", "a")), broken))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Make a mark."))
	e.WantEnd(turn, "degraded", "inference_error", 1)
	e.WantReply(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: succeeded")
}

func TestTheWallCap(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_duration: 15s")
	e.Ledger.Hold("slow")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		return thinkingCall("SECRET PLAN", env.MarkerCall("mark_slow", "slow"))
	})
	w := e.StartWorker()

	turn := e.TurnOf(e.Enqueue("clerk", "Take your time."))
	e.WantEnd(turn, "degraded", "max_duration", 1)
	if ms := *turn.DurationMs; ms < 14_000 { // it was retried for a while; the time counts from the grant
		t.Errorf("the turn took %d ms", ms)
	}
	c := turn.Calls()[0]
	if c.State != "cancelled" || c.Starts != 1 || !strings.Contains(c.Result, "may or may not have happened") {
		t.Errorf("the running call is %+v", c)
	}
	if strings.Contains(turn.Reply.Body, "SECRET PLAN") || !strings.HasPrefix(turn.Reply.Body, "Tool results: ") {
		t.Errorf("the reply is %q", turn.Reply.Body)
	}
	if n := env.Query[int](e, "select count(*) from rounds where reasoning = 'SECRET PLAN'"); n != 1 {
		t.Error("the reasoning is not recorded")
	}
	e.Ledger.WantRuns("slow", 1)
	w.Await("max turn duration reached, completing turn")
}

// thinkingCall streams reasoning and one call.
func thinkingCall(reasoning string, c inferencetest.Call) inferencetest.Reply {
	chunk := func(delta, finish string) string {
		return `{"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":` +
			delta + `,"finish_reason":` + finish + `}]}`
	}
	return inferencetest.SSE(
		chunk(`{"role":"assistant","reasoning_content":"`+reasoning+`"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"call_thought","type":"function","function":{"name":"`+c.Name+
			`","arguments":`+env.Quote(c.Arguments)+`}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`),
	)
}

func TestAModelThatHangsMeetsTheWallCap(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_duration: 15s")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Hang()))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Hello"))
	e.WantEnd(turn, "degraded", "max_duration", 1)
	e.WantReply(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: succeeded")
	if ms := *turn.DurationMs; ms < 14_000 { // it was retried for a while; the time counts from the grant
		t.Errorf("the turn took %d ms", ms)
	}
}

func TestContinuationOff(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "continuation: false")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("never asked")))
	w := e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Hello"))
	e.WantEnd(turn, "succeeded", "none", 1)
	e.WantReply(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: succeeded")
	e.WantRequests(1)
	w.Await("tool continuation disabled, completing turn")
}

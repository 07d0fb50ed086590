package tests_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
)

// A lane is what "turnctl lanes" says of it, as far as tests look.
type lane struct {
	Lane      string     `json:"lane"`
	Held      bool       `json:"held"`
	Failures  int        `json:"failures"`
	NotBefore *time.Time `json:"not_before"`
	Waiting   int        `json:"waiting_messages"`
}

// An inboxed message is what "turnctl inbox" says of it.
type inboxed struct {
	ID        int64  `json:"id"`
	State     string `json:"state"`
	Attempts  int    `json:"attempts"`
	LastError string `json:"last_error"`
}

func TestARefusedFirstRequestKeepsTheMessage(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Add(fault(http.StatusBadRequest, "invalid_request_error", "no such parameter"))
	h.model.Then(rounds(text("Now it works.")))
	h.startWorker()
	message := h.enqueue("clerk", "Hello")
	h.await("the first turn failed", "select exists (select from turns where state = 'failed')")

	lanes := turnctl[[]lane](h, "lanes")
	if len(lanes) != 1 || lanes[0].Held || lanes[0].Failures != 1 || lanes[0].NotBefore == nil {
		t.Errorf("the lane does not back off: %+v", lanes)
	}
	first := turnctl[[]shown](h, "turns", "--state", "failed")
	if len(first) != 1 || first[0].ErrorClass == "" || !strings.Contains(first[0].Error, "no such parameter") {
		t.Errorf("the failed turn is %+v", first)
	}
	if n := query[int](h, "select count(*) from replies where turn_id = $1", first[0].ID); n != 0 {
		t.Error("a failed attempt wrote a reply")
	}
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 1)
	h.replied(turn, "Now it works.")
	if turn.Message.Attempts != 2 {
		t.Errorf("the message was attempted %d times", turn.Message.Attempts)
	}
	h.requests(2) // a 400 is not retried in place
	if lanes := turnctl[[]lane](h, "lanes"); lanes[0].Failures != 0 || lanes[0].NotBefore != nil {
		t.Errorf("success does not reset the back-off: %+v", lanes)
	}
}

func TestAFailedMessageWaitsInTheInbox(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(func(recorded) reply {
		return fault(http.StatusUnauthorized, "invalid_api_key", "who are you?")
	})
	h.startWorker()
	message := h.enqueue("clerk", "Hello")
	h.await("the first turn failed", "select exists (select from turns where state = 'failed')")
	h.exec("update leases set not_before = clock_timestamp() + interval '2 minutes'")

	inbox := turnctl[[]inboxed](h, "inbox")
	if len(inbox) != 1 || inbox[0].State != "waiting" || inbox[0].Attempts != 1 || !strings.Contains(inbox[0].LastError, "who are you?") {
		t.Errorf("the inbox is %+v", inbox)
	}
	if lanes := turnctl[[]lane](h, "lanes"); lanes[0].Waiting != 1 {
		t.Errorf("the lane is %+v", lanes[0])
	}

	// Three attempts, then it is answered for good.
	for attempt := 2; attempt <= 3; attempt++ {
		h.exec("update leases set not_before = clock_timestamp()")
		h.exec("notify turnkeeper_inbox")
		h.await("the next attempt failed", "select count(*) = $1 from turns where state = 'failed'", attempt)
		h.exec("update leases set not_before = clock_timestamp() + interval '2 minutes' where not_before is not null")
	}
	turn := h.turnOf(message)
	h.ended(turn, "failed", "inference_error", 0)
	if turn.Message.State != "failed" || turn.Reply == nil || turn.Reply.Outcome != "failed" {
		t.Errorf("the message is %+v, its reply %+v", turn.Message, turn.Reply)
	}
	if strings.Contains(turn.Reply.Body, "who are you") {
		t.Errorf("the reply holds the provider's error: %s", turn.Reply.Body)
	}
	h.requests(3)
}

func TestAPassingErrorIsRetriedInPlace(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]reply{
		"status 500":        fault(http.StatusInternalServerError, "server_error", "oops"),
		"status 429":        fault(http.StatusTooManyRequests, "rate_limit_exceeded", "slow down", "Retry-After", "1"),
		"connection broken": inferencetest.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", marks)
			h.model.Add(trouble)
			h.model.Then(rounds(callOnce("mark_once", "a"), text("Done.")))
			h.startWorker()
			turn := h.turnOf(h.enqueue("clerk", "Hello"))
			h.ended(turn, "succeeded", "none", 2)
			h.requests(3)
			h.ledger.ran("a", 1)
			if turn.Message.Attempts != 1 {
				t.Errorf("the message took %d turns", turn.Message.Attempts)
			}
		})
	}
}

func TestTheNextModelOfTheChainAnswers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "model: test/first", "fallback_models: [test/second]")
	h.model.Then(func(r recorded) reply {
		if r.Chat().Model == "first" {
			return fault(http.StatusNotFound, "model_not_found", "no such model")
		}
		return text("I am the second.")
	})
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Hello"))
	h.ended(turn, "succeeded", "none", 1)
	h.replied(turn, "I am the second.")
	h.requests(2)
}

func TestAnErrorAfterAToolDegrades(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	broken := fault(http.StatusInternalServerError, "server_error", "the model is on fire")
	h.model.Then(rounds(callOnce("mark_once", "a"), broken))
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Make a mark."))
	h.ended(turn, "degraded", "inference_error", 1)
	h.replied(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: marked a")
	h.ledger.ran("a", 1)
	asked := len(h.model.Requests())
	if asked != 5 { // the first round, and four attempts at the second
		t.Errorf("the model was asked %d times", asked)
	}

	// However late it gets, nothing is run again.
	h.exec("update messages set due_at = due_at - interval '1 day'")
	h.exec("update turns set due_at = due_at - interval '1 day'")
	h.exec("update leases set not_before = clock_timestamp() - interval '1 day'")
	h.exec("notify turnkeeper_inbox")
	h.nothingMoreHappens(asked)
	h.ledger.ran("a", 1)
}

func TestADegradedReplyIsTheModelsLastText(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	broken := fault(http.StatusBadRequest, "invalid_request_error", "no")
	h.model.Then(rounds(inferencetest.Message("I shall make a mark.", call("mark_once", "a")), broken))
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Make a mark."))
	h.ended(turn, "degraded", "inference_error", 1)
	h.replied(turn, "I shall make a mark.")
}

func TestTheWallCap(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "max_duration: 3s")
	h.ledger.hold("slow")
	h.model.Then(func(r recorded) reply { return thinkingCall("SECRET PLAN", call("mark_slow", "slow")) })
	w := h.startWorker()

	turn := h.turnOf(h.enqueue("clerk", "Take your time."))
	h.ended(turn, "degraded", "max_duration", 1)
	if ms := *turn.DurationMs; ms < 2900 || ms > 5000 {
		t.Errorf("the turn took %d ms", ms)
	}
	c := turn.calls()[0]
	if c.State != "cancelled" || c.Starts != 1 || !strings.Contains(c.Result, "may or may not have happened") {
		t.Errorf("the running call is %+v", c)
	}
	if strings.Contains(turn.Reply.Body, "SECRET PLAN") || !strings.HasPrefix(turn.Reply.Body, "Tool results: ") {
		t.Errorf("the reply is %q", turn.Reply.Body)
	}
	if n := query[int](h, "select count(*) from rounds where reasoning = 'SECRET PLAN'"); n != 1 {
		t.Error("the reasoning is not on record")
	}
	h.ledger.ran("slow", 1)
	w.await("max turn duration reached, completing turn")
}

// thinkingCall is a streamed answer of reasoning and one call.
func thinkingCall(reasoning string, c inferencetest.Call) reply {
	chunk := func(delta, finish string) string {
		return `{"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":` +
			delta + `,"finish_reason":` + finish + `}]}`
	}
	return inferencetest.SSE(
		chunk(`{"role":"assistant","reasoning_content":"`+reasoning+`"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"call_thought","type":"function","function":{"name":"`+c.Name+`","arguments":`+quote(c.Arguments)+`}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`),
	)
}

func TestAModelThatHangsMeetsTheWallCap(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "max_duration: 3s")
	h.model.Then(rounds(callOnce("mark_once", "a"), hang()))
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Hello"))
	h.ended(turn, "degraded", "max_duration", 1)
	h.replied(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: marked a")
	if ms := *turn.DurationMs; ms < 2900 || ms > 5000 {
		t.Errorf("the turn took %d ms", ms)
	}
}

func TestContinuationOff(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "continuation: false")
	h.model.Then(rounds(callOnce("mark_once", "a"), text("never asked")))
	w := h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Hello"))
	h.replied(turn, "Tool results: 1 succeeded, 0 failed.\n- mark_once: marked a")
	h.requests(1)
	w.await("tool continuation disabled, completing turn")
}

package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// end closes the turn as a worker would.
func (d *dispatch) end(state turnkeeper.TurnState, message turnkeeper.MessageState, reply string) {
	d.t.Helper()
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{}`)}},
		Outcome: &turnlog.Outcome{State: state, StopReason: turnkeeper.StopInferenceError, Reply: reply,
			Error: "the model is away"},
	}, turnlog.Consequence{Message: message, Log: "finished"})
}

func (d *dispatch) failForGood() {
	d.t.Helper()
	d.end(turnkeeper.TurnFailed, turnkeeper.MessageFailed, "This message could not be answered.")
}

type cancelled struct {
	TurnID    turnkeeper.TurnID `json:"turn_id"`
	Cancelled bool
}

type retried struct {
	MessageID turnkeeper.MessageID  `json:"message_id"`
	RetryOf   *turnkeeper.MessageID `json:"retry_of"`
	Repeat    bool
}

func TestCancel(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "work")
	path := fmt.Sprintf("/v1/turns/%d/cancel", d.id)
	for range 2 {
		a := h.ask("POST", path, `{"reason":"asked by the sender"}`)
		a.want(t, 202, "")
		if got := decode[cancelled](t, a); got.TurnID != d.id || got.Cancelled {
			t.Errorf("a running turn: %+v", got)
		}
	}
	if reason := one[string](h, "select reason from turnkeeper.requested_ends where turn_id = $1",
		d.id); reason != "asked by the sender" {
		t.Errorf("the reason is %q", reason)
	}
	d.end(turnkeeper.TurnCancelled, turnkeeper.MessageCancelled, "This turn was cancelled.")
	h.ask("POST", path, "").want(t, 200, `"cancelled":true`)

	done := h.turn("desk", "work")
	done.finish("done")
	path = fmt.Sprintf("/v1/turns/%d/cancel", done.id)
	h.ask("POST", path, "").want(t, 409, "has ended already: it succeeded")
	h.ask("POST", path, `{"why":"x"}`).want(t, 400, "unknown field")
	h.ask("POST", path, "x", "Content-Type", "text/plain").want(t, 415, "application/json")
	h.ask("POST", "/v1/turns/77/cancel", "").want(t, 404, "there is no turn 77")
	h.ask("POST", "/v1/turns/none/cancel", "").want(t, 404, "there is no turn")
}

func TestFinish(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "work")
	path := fmt.Sprintf("/v1/turns/%d/finish", d.id)
	for _, path := range []string{path, path, "/v1/messages/1/finish"} {
		h.ask("POST", path, `{"reason":"good enough"}`).want(t, 202,
			fmt.Sprintf(`{"turn_id":%d,"finished":false}`, d.id))
	}
	h.ask("GET", fmt.Sprintf("/v1/turns/%d", d.id), "").want(t, 200,
		fmt.Sprintf(`"requested_end":{"how":"finish","turn_id":%d,"reason":"good enough","asked_at":"`, d.id))
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopFinished,
			Reply: "What I have."},
	}, turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "finished"})
	h.ask("POST", path, "").want(t, 200, `"finished":true`)
	h.ask("GET", "/v1/messages/1", "").want(t, 200, `"stop_reason":"finished"`)

	done := h.turn("desk", "work")
	done.finish("done")
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/finish", done.id), "").want(t, 409, "has ended already: it succeeded")
	h.ask("POST", "/v1/messages/2/finish", "").want(t, 409, "message 2 is closed already: it succeeded")
	h.ask("POST", "/v1/messages", `{"agent":"desk","body":"later"}`).want(t, 201, "")
	h.ask("POST", "/v1/messages/3/finish", "").want(t, 409,
		"message 3 still waits, and has nothing to finish with; cancel it instead")
	h.ask("POST", path, `{"why":"x"}`).want(t, 400, "unknown field")
	h.ask("POST", "/v1/turns/77/finish", "").want(t, 404, "there is no turn 77")
	h.ask("POST", "/v1/messages/77/finish", "").want(t, 404, "there is no message 77")
}

func TestRetry(t *testing.T) {
	h := newEnv(t)
	failed := h.turn("clerk", "work")
	path := fmt.Sprintf("/v1/turns/%d/retry", failed.id)
	h.ask("POST", path, "").want(t, 409, "is being handled")
	failed.failForGood()
	a := h.ask("POST", path, "")
	a.want(t, 201, "")
	first := decode[retried](t, a)
	if first.RetryOf == nil || *first.RetryOf != 1 || a.header.Get("Location") != fmt.Sprintf("/v1/messages/%d",
		first.MessageID) {
		t.Errorf("the retry is %+v at %q", first, a.header.Get("Location"))
	}
	h.ask("GET", a.header.Get("Location"), "").want(t, 200, `"body":"work"`)
	a = h.ask("POST", path, "")
	a.want(t, 200, "")
	if again := decode[retried](t, a); again.MessageID != first.MessageID || !again.Repeat {
		t.Errorf("the repeat is %+v, the first was %+v", again, first)
	}

	h.dispatch("clerk").finish("done")
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/retry", failed.id+1), "").want(t, 409, "has succeeded")

	risky := h.turn("desk", "work")
	risky.end(turnkeeper.TurnDegraded, turnkeeper.MessageDegraded, "Tool results: 1 succeeded, 0 failed.")
	path = fmt.Sprintf("/v1/turns/%d/retry", risky.id)
	h.ask("POST", path, "").want(t, 409, `\"anyway\": true`)
	h.ask("POST", path, `{"anyway":true}`).want(t, 201, "message_id")
	h.ask("POST", "/v1/turns/77/retry", "").want(t, 404, "there is no turn 77")
}

// TestRetryOfWhatIsTriedAgain checks that retrying a message with a pending retry makes that message due now, and
// creates no other.
func TestRetryOfWhatIsTriedAgain(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "work")
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Error: "the model is away"},
	}, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Hour})
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/retry", d.id), "").want(t, 200, `{"message_id":1,`)
}

// TestRetryOfWhatWasCancelledInTheInbox checks that this retry needs no confirmation, because there were no effects.
func TestRetryOfWhatWasCancelledInTheInbox(t *testing.T) {
	h := newEnv(t)
	h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"first"}`).want(t, 201, "")
	turn := decode[struct {
		TurnID int64 `json:"turn_id"`
	}](t, h.ask("POST", "/v1/messages/1/cancel", `{"reason":"never mind"}`)).TurnID
	if a := h.ask("GET", fmt.Sprintf("/turns/%d", turn), ""); !strings.Contains(string(a.body), "Retry the message") ||
		strings.Contains(string(a.body), `name="anyway"`) {
		t.Errorf("the page asks for leave to repeat effects: %s", a.body)
	}
	path := fmt.Sprintf("/v1/turns/%d/retry", turn)
	h.ask("POST", path, "").want(t, 201, `"retry_of":1`)
	h.ask("POST", path, "").want(t, 200, `"repeat":true`)
	d := h.dispatch("clerk") // a turn that has started may have had effects
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/cancel", d.id), "").want(t, 202, "")
	d.end(turnkeeper.TurnCancelled, turnkeeper.MessageCancelled, "This turn was cancelled.")
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/retry", d.id), "").want(t, 409, `\"anyway\": true`)
}

func TestWhoMayCancelAndRetry(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	mine, other := h.turn("clerk", "a"), h.turn("desk", "b")
	read := h.token(operate.Token{Name: "read", Scopes: []string{"read", "send"}})
	clerk := h.token(operate.Token{Name: "clerk", Scopes: []string{"operate"}, Agents: []string{"clerk"}})
	for _, verb := range []string{"cancel", "retry"} {
		path := func(d *dispatch) string { return fmt.Sprintf("/v1/turns/%d/%s", d.id, verb) }
		h.ask("POST", path(mine), "").want(t, 401, "a token is required")
		h.ask("POST", path(mine), "", "Authorization", read).want(t, 403, `the scope \"operate\"`)
		h.ask("POST", path(other), "", "Authorization", clerk).want(t, 404,
			fmt.Sprintf("there is no turn %d", other.id))
		h.ask("POST", path(mine), "", "Authorization", clerk, "Origin", "https://evil.example").want(t, 403,
			"cross-origin requests")
	}
	if n := one[int](h, "select count(*) from turnkeeper.requested_ends"); n != 0 {
		t.Errorf("%d cancellations were asked for by who may not", n)
	}
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/cancel", mine.id), "", "Authorization", clerk).want(t, 202,
		`"cancelled":false`)
}

package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

type accepted struct {
	ID    int64 `json:"id"`
	State string
	Reply *struct{ Body string }
}

func TestAMessageIsAccepted(t *testing.T) {
	h := newEnv(t)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	body := `{"agent":"clerk","body":"hello","conversation":"c","priority":3}`
	first := h.ask("POST", "/v1/messages", body, "Idempotency-Key", "k", "Traceparent", trace)
	first.want(t, http.StatusCreated, `"conversation":"c"`)
	id := decode[accepted](t, first).ID
	if got, want := first.header.Get("Location"), fmt.Sprintf("/v1/messages/%d", id); got != want {
		t.Errorf("Location is %q, want %q", got, want)
	}
	m, err := h.Message(t.Context(), turnkeeper.MessageID(id))
	if err != nil || m.Priority != 3 || m.TraceParent != trace || m.Key != "k" {
		t.Errorf("the message is %+v, %v", m, err)
	}

	again := h.ask("POST", "/v1/messages", body, "Idempotency-Key", "k")
	again.want(t, http.StatusOK, "hello")
	if got := decode[accepted](t, again).ID; got != id {
		t.Errorf("a repeat gave message %d, want %d", got, id)
	}
	h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"other"}`, "Idempotency-Key", "k").want(t,
		http.StatusConflict, "idempotency key")
	h.ask("GET", first.header.Get("Location"), "").want(t, http.StatusOK, `"reply":null`)
}

func TestAMessageWithEscapes(t *testing.T) {
	h := newEnv(t)
	got := decode[struct{ Body string }](t, h.ask("POST", "/v1/messages",
		`{"agent":"clerk","body":"\ud83d\uDE00 \u00e4 \\ud83d \\\ud83d\ude00 \""}`))
	if want := "😀 ä \\ud83d \\😀 \""; got.Body != want {
		t.Errorf("it is %q, want %q", got.Body, want)
	}
}

func TestAMessageForLater(t *testing.T) {
	h := newEnv(t)
	due := time.Now().UTC().Truncate(time.Second).Add(48 * time.Hour)
	got := decode[struct {
		Due time.Time `json:"due_at"`
	}](t, h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"x","due_at":"`+
		due.In(time.FixedZone("", 3600)).Format(time.RFC3339)+`"}`))
	if !got.Due.Equal(due) {
		t.Errorf("due at %v, want %v", got.Due, due)
	}
	past := decode[struct {
		Due      time.Time `json:"due_at"`
		Accepted time.Time `json:"accepted_at"`
	}](t, h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"x","due_at":"2020-02-03T04:05:06Z"}`))
	if past.Due.After(past.Accepted) || past.Accepted.Sub(past.Due) > time.Second {
		t.Errorf("accepted at %v for a time in the past, and due at %v", past.Accepted, past.Due)
	}
}

func TestRefusedMessages(t *testing.T) {
	h := newEnv(t)
	if err := h.RetireAgent(t.Context(), "desk"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, body string
		headers    []string
		status     int
		detail     string
	}{
		{"empty body", `{"agent":"clerk","body":" "}`, nil, 422, "message cannot be empty"},
		{"unknown agent", `{"agent":"nobody","body":"x"}`, nil, 422, "unknown agent"},
		{"impossible priority", `{"agent":"clerk","body":"x","priority":5000}`, nil, 422, "priority 5000"},
		{"too long", `{"agent":"clerk","body":"` + strings.Repeat("x", 1001) + `"}`, nil, 413,
			"1001 bytes, the limit is 1000"},
		{"far too long", `{"agent":"clerk","body":"` + strings.Repeat("x", 100_000) + `"}`, nil, 413, "longer than"},
		{"no time", `{"agent":"clerk","body":"x","due_at":"tomorrow"}`, nil, 400,
			"due_at must be a time with its offset"},
		{"a time without its offset", `{"agent":"clerk","body":"x","due_at":"2026-11-24T09:00"}`, nil, 400,
			"due_at must be a time with its offset"},
		{"too far ahead", `{"agent":"clerk","body":"x","due_at":"2999-01-01T00:00:00Z"}`, nil, 422,
			"more than ten years ahead"},
		{"retired agent", `{"agent":"desk","body":"x"}`, nil, 409, "agent 'desk' is retired and takes no new messages"},
		{"unknown field", `{"agent":"clerk","body":"x","prio":1}`, nil, 400, `unknown field \"prio\"`},
		{"wrong type", `{"agent":"clerk","body":1}`, nil, 400, `\"body\" cannot be a number`},
		{"half", `{"agent":"clerk"`, nil, 400, "unexpected end"},
		{"two", `{"agent":"clerk","body":"x"}{}`, nil, 400, "data after its JSON object"},
		{"half a pair", `{"agent":"clerk","body":"\ud83d"}`, nil, 400, `an unpaired surrogate, \\ud83d`},
		{"the other half", `{"agent":"clerk","body":"a\uDE00b"}`, nil, 400, `an unpaired surrogate, \\uDE00`},
		{"two first halves", `{"agent":"clerk","body":"\ud83d\ud83d\ude00"}`, nil, 400, "an unpaired surrogate"},
		{"halves apart", `{"agent":"clerk","body":"\ud83dx\ude00"}`, nil, 400, "an unpaired surrogate"},
		{"half a pair in a name", `{"agent":"clerk","body":"x","conversation":"\\\ud83d"}`, nil, 400,
			"an unpaired surrogate"},
		{"an escape cut short", `{"agent":"clerk","body":"\ud83`, nil, 400, "unexpected end"},
		{"not UTF-8", "{\"agent\":\"clerk\",\"body\":\"\xff\"}", nil, 400, "UTF-8"},
		{"a name twice", `{"agent":"clerk","body":"x","body":"y"}`, nil, 400, `repeats the name \"body\"`},
		{"a name in another case", `{"agent":"clerk","body":"x","AGENT":"desk"}`, nil, 400,
			`repeats the name \"AGENT\"`},
		{"an empty key", `{"agent":"clerk","body":"x"}`, []string{"Idempotency-Key", ""}, 400, "must hold one key"},
		{"a key that is no text", `{"agent":"clerk","body":"x"}`, []string{"Idempotency-Key", "\xff"}, 422,
			"not valid UTF-8"},
		{"a form", `agent=clerk`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415,
			"application/json"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h.ask("POST", "/v1/messages", test.body, test.headers...).want(t, test.status, test.detail)
		})
	}
	h.ask("POST", "/v1/scheduler/pause", `{"reason":"a","reason":"b"}`).want(t, 400, "repeats the name")
	h.ask("POST", "/v1/messages?wait=2h", `{"agent":"clerk","body":"x"}`).want(t, 400, "wait must be")
	if n := one[int](h, "select count(*) from turnkeeper.messages"); n != 0 {
		t.Errorf("%d messages were written", n)
	}
}

func TestWaitingForTheReply(t *testing.T) {
	h := newEnv(t)
	h.ask("POST", "/v1/messages?wait=30ms", `{"agent":"clerk","body":"slow"}`).want(t, http.StatusAccepted,
		`"reply":null`)

	answered := make(chan answer, 1)
	go func() { answered <- h.ask("GET", "/v1/messages/1?wait=30s", "") }()
	h.dispatch("clerk").finish("done")
	a := <-answered
	a.want(t, http.StatusOK, `"state":"succeeded"`)
	if reply := decode[accepted](t, a).Reply; reply == nil || reply.Body != "done" {
		t.Errorf("the reply is %+v", reply)
	}
}

func TestUnknownIds(t *testing.T) {
	h := newEnv(t)
	for path, detail := range map[string]string{
		"/v1/messages/7": "there is no message 7", "/v1/messages/x": `there is no message \"x\"`,
		"/v1/turns/7":        "there is no turn 7",
		"/v1/turns/7/events": "there is no turn 7", "/v1/outputs/none": `there is no output \"none\"`,
		"/v1/nothing": "unknown path: GET /openapi.json",
	} {
		h.ask("GET", path, "").want(t, http.StatusNotFound, detail)
	}
	h.ask("POST", "/v1/chat/completions", `{"model":"clerk","messages":[]}`).want(t, http.StatusNotFound,
		`{"error":{"message":"chat completions are not supported`)
	both := h.ask("DELETE", "/v1/messages", "")
	both.want(t, http.StatusMethodNotAllowed, "method not allowed: use GET, POST")
	if got := both.header.Values("Allow"); len(got) != 1 || got[0] != "GET, POST" {
		t.Errorf("Allow is %q", got)
	}
	h.ask("DELETE", "/v1/turns", "").want(t, http.StatusMethodNotAllowed, "method not allowed: use GET")
	h.ask("GET", "/v1/turns?limit=101", "").want(t, 400, "limit must be 1 to 100")
	h.ask("GET", "/v1/turns?state=odd", "").want(t, 400, "state must be one of")
}

// closing is a store that runs before and after around its first reads of a reply, to close the message at that moment.
type closing struct {
	httpapi.Store
	before, after *func()
}

func (s closing) ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error) {
	run(s.before)
	defer run(s.after)
	return s.Store.ReplyTo(ctx, id)
}

func run(f *func()) {
	if g := *f; g != nil {
		*f = nil
		g()
	}
}

// TestAMessageThatClosesWhileItIsRead checks that a message is shown with its reply if and only if it is shown as
// closed.
func TestAMessageThatClosesWhileItIsRead(t *testing.T) {
	var before, after func()
	h := newEnv(t, func(c *httpapi.Config) { c.Store = closing{c.Store, &before, &after} })
	for _, at := range []*func(){&before, &after} {
		for _, path := range []string{"/v1/messages/%d", "/inbox/%d"} {
			d := h.turn("clerk", "work")
			id := one[int64](h, "select message_id from turnkeeper.turns where id = $1", d.id)
			*at = func() { d.finish("the reply") }
			a := h.ask("GET", fmt.Sprintf(path, id), "")
			replied := strings.Contains(string(a.body), "the reply")
			closed := strings.Contains(string(a.body), `"state":"succeeded"`) || strings.Contains(string(a.body),
				", closed <time")
			if a.status != 200 || replied != closed || replied != (at == &before) {
				t.Errorf("%s: with its reply %v, closed %v: %s", path, replied, closed, a.body)
			}
		}
	}
}

// TestWhoMayUsePriorities sends messages with high priorities by tokens with and without the scope operate, and without
// a token.
func TestWhoMayUsePriorities(t *testing.T) {
	h := newEnv(t)
	sender := h.token(operate.Token{Name: "sender", Scopes: []string{"send", "read"}})
	operator := h.token(operate.Token{Name: "operator", Scopes: []string{"send", "operate"}})
	const refused = "priority 1 needs the right to operate; senders may use at most 0 (max_sender_priority)"
	body := func(priority int) string { return fmt.Sprintf(`{"agent":"clerk","body":"x","priority":%d}`, priority) }
	h.ask("POST", "/v1/messages", body(1), "Authorization", sender).want(t, 422, refused)
	h.ask("POST", "/v1/messages", body(0), "Authorization", sender).want(t, 201, `"priority":0`)
	h.ask("POST", "/v1/messages", body(-1000), "Authorization", sender).want(t, 201, `"priority":-1000`)
	h.ask("POST", "/v1/messages", body(1000), "Authorization", operator).want(t, 201, `"priority":1000`)
	h.ask("POST", "/v1/messages", body(1000)).want(t, 201, `"priority":1000`)
	if err := h.SetMaxSenderPriority(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	h.ask("POST", "/v1/messages", body(1), "Authorization", sender).want(t, 201, `"priority":1`)
	h.ask("POST", "/v1/messages", body(2), "Authorization", sender).want(t, 422, "at most 1")
}

package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// TestParametersOnEitherSideOfABound sends parameters just inside and just outside their limits.
func TestParametersOnEitherSideOfABound(t *testing.T) {
	h := newEnv(t)
	d, output := h.work("clerk", "0123456789")
	turn := fmt.Sprintf("/v1/turns/%d", d.id)
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
		headers            []string
	}{
		{"GET", "/v1/turns?agnt=clerk", "", 400,
			`unknown parameter \"agnt\": this path has agent, user, conversation, text, state, error_class, since, until, limit, cursor`, nil},
		{"GET", "/v1/agents?agent=clerk", "", 400, `unknown parameter \"agent\": this path has no parameters`, nil},
		{"GET", "/v1/turns?agent=clerk&agent=desk", "", 400, "the parameter agent is repeated", nil},
		{"POST", "/v1/messages?Wait=1s", "{}", 400, `unknown parameter \"Wait\"`, nil},
		{"GET", turn + "/events?lastEventId=1&_=5", "", 200, `"items"`, nil},
		{"GET", turn + "/events?since=1", "", 400, `unknown parameter \"since\": this path has after, limit`, nil},
		{"GET", "/v1/turns?agent=", "", 400, "the parameter agent is empty: leave it out", nil},
		{"GET", "/v1/turns?state=", "", 400, "the parameter state is empty", nil},
		{"GET", "/v1/messages/1?wait=", "", 400, "the parameter wait is empty", nil},
		{"POST", "/v1/messages", `{"agent":"clerk","body":"x","due_at":""}`, 400,
			"due_at is empty: leave it out, or send null", nil},
		{"POST", "/v1/messages", `{"agent":"clerk","body":"x","due_at":null}`, 201, `"state":`, nil},
		{"GET", "/healthz?from=balancer", "", 200, "ok", nil},
		{"GET", "/v1/messages/1?wait=0s", "", 200, `"reply"`, nil},
		{"GET", "/v1/messages/1?wait=60s", "", 200, `"reply"`, nil},
		{"GET", "/v1/messages/1?wait=60.001s", "", 400, "wait must be", nil},
		{"GET", "/v1/messages/1?wait=-1s", "", 400, "wait must be", nil},
		{"GET", "/v1/messages/1?wait=soon", "", 400, "wait must be", nil},
		{"GET", "/v1/messages/0", "", 404, `there is no message \"0\"`, nil},
		{"GET", "/v1/messages/-1", "", 404, `there is no message \"-1\"`, nil},
		{"GET", "/v1/messages/one", "", 404, `there is no message \"one\"`, nil},
		{"GET", "/v1/messages/987654321", "", 404, "there is no message 987654321", nil},
		{"GET", "/v1/turns?limit=100", "", 200, "items", nil},
		{"GET", "/v1/turns?limit=101", "", 400, "limit must be 1 to 100", nil},
		{"GET", "/v1/turns?limit=0", "", 400, "limit must be 1 to 100", nil},
		{"GET", "/v1/turns?limit=x", "", 400, "limit must be 1 to 100", nil},
		{"GET", "/v1/turns?limit=1", "", 200, `"next":`, nil},
		{"GET", "/v1/turns?cursor=-1", "", 400, "cursor must be an integer of at least 0", nil},
		{"GET", "/v1/turns?cursor=x", "", 400, "cursor must be an integer of at least 0", nil},
		{"GET", "/v1/turns?cursor=0", "", 200, `"agent":"clerk"`, nil},
		{"GET", "/v1/turns?state=done", "", 400, "state must be one of", nil},
		{"GET", "/v1/turns?agent=desk", "", 200, `"items":[]`, nil},
		{"GET", "/v1/turns?agent=Clerk", "", 200, `"items":[]`, nil},
		{"GET", "/v1/turns?state=failed", "", 200, `"items":[]`, nil},
		{"GET", "/v1/turns?state=succeeded", "", 200, `"agent":"clerk"`, nil},
		{"GET", "/v1/outbox?sub_agents=yes", "", 400, "sub_agents must be true or false", nil},
		{"GET", "/v1/outbox?after=1", "", 200, `"items":[]`, nil},
		{"GET", "/v1/outbox?after=0", "", 200, `"next":1`, nil},
		{"GET", turn + "/events?limit=1000", "", 200, "items", nil},
		{"GET", turn + "/events?limit=1001", "", 400, "limit must be 1 to 1000", nil},
		{"GET", turn + "/events?limit=0", "", 400, "limit must be 1 to 1000", nil},
		{"GET", turn + "/events?limit=x", "", 400, "limit must be 1 to 1000", nil},
		{"GET", turn + "/events?limit=1", "", 200, `"next":1`, nil},
		{"GET", turn + "/events", "", 200, `"seq":1`, []string{"Last-Event-ID", "0"}},
		{"GET", turn + "/events", "", 400, "Last-Event-ID must be", []string{"Last-Event-ID", "-1"}},
		{"GET", turn + "/events", "", 400, "Last-Event-ID must be", []string{"Last-Event-ID", "x"}},
		{"GET", "/v1/outputs/" + string(output) + "?from=3&to=3", "", 200, "", nil},
		{"GET", "/v1/outputs/" + string(output) + "?from=3&to=5", "", 200, "34", nil},
		{"GET", "/v1/outputs/" + string(output) + "?from=8&to=99", "", 200, "89", nil},
		{"GET", "/v1/outputs/" + string(output) + "?from=4&to=3", "", 400, "from is after to", nil},
		{"GET", "/v1/outputs/" + string(output) + "?from=-1", "", 400, "from must be", nil},
		{"GET", "/v1/outputs/nothing", "", 404, `there is no output \"nothing\"`, nil},
		{"GET", "/v1/webhooks/nothing/deliveries", "", 404, `there is no webhook \"nothing\"`, nil},
		{"POST", "/v1/messages", `{"agent":"clerk","body":"` + long(1000) + `"}`, 201, "", nil},
		{"POST", "/v1/messages", `{"agent":"clerk","body":"` + long(1001) + `"}`, 413, "1001 bytes", nil},
		// a token for all agents: the error lists them
		{"POST", "/v1/messages", `{"agent":"nobody","body":"x"}`, 422, "clerk", nil},
		{"POST", turn + "/cancel", `{"reason":"` + long(1000) + `"}`, 409, "", nil},
		{"POST", turn + "/cancel", `{"reason":"` + long(1001) + `"}`, 422, "1001 bytes", nil},
		{"POST", "/v1/scheduler/pause", `{"reason":"` + long(1001) + `"}`, 422, "1 to 1000 bytes", nil},
		{"POST", "/v1/scheduler/pause", `{"reason":" "}`, 422, "reason must say", nil},
		{"POST", "/v1/scheduler/pause", `{"reason":"` + long(1000) + `"}`, 200, "xxx", nil},
	} {
		t.Run(strings.TrimSpace(c.method+" "+c.path+" "+strings.Join(c.headers, " ")), func(t *testing.T) {
			h.ask(c.method, c.path, c.body, c.headers...).want(t, c.status, c.text)
		})
	}
	if a := h.ask("GET", "/v1/outputs/"+string(output)+"?from=3&to=3", ""); len(a.body) != 0 {
		t.Errorf("an empty part is %q", a.body)
	}
}

// TestTraceContextIsBounded sends trace contexts of the maximum length and one byte longer.
func TestTraceContextIsBounded(t *testing.T) {
	h := newEnv(t)
	const first = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-" // a future version
	for n, want := range map[int]bool{256: true, 257: false} {
		value := first + strings.Repeat("x", n-len(first))
		h.ask("POST", "/v1/messages", fmt.Sprintf(`{"agent":"clerk","body":"%d"}`, n), "Traceparent",
			value).want(t, 201, "")
		if kept := one[bool](h, "select coalesce(trace_parent, '') = $1 from turnkeeper.messages where body = $2",
			value, fmt.Sprint(n)); kept != want {
			t.Errorf("a trace context of %d bytes is kept: %t", n, kept)
		}
	}
}

// TestAPartOfBytes reads parts of a binary output.
func TestAPartOfBytes(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "x")
	key := turnkeeper.CallKey{Round: 1, Ordinal: 1}
	d.write(turnlog.Entry{Round: &turnkeeper.Round{Number: 1, Charged: true, Provider: "p", Model: "m", Attempts: 1,
		Calls: []turnkeeper.ToolCall{{
			Key: key, WireID: "w", Name: "tool", Arguments: "{}", ArgsHash: "h", Effect: turnkeeper.EffectNone,
			State: turnkeeper.CallPlanned,
		}}}}, turnlog.Consequence{})
	d.write(turnlog.Entry{Results: []turnlog.CallResult{{Key: key, State: turnkeeper.CallSucceeded, Shown: "x",
		Output: &turnkeeper.Output{
			ID: "bytes", TurnID: d.id, Call: key, MediaType: "image/png", Bytes: []byte("0123456789"), SizeBytes: 10,
			RawBytes: 10, SHA256: strings.Repeat("a", 64),
		}}}}, turnlog.Consequence{})
	for query, want := range map[string]string{
		"": "0123456789", "?from=3": "3456789", "?from=3&to=5": "34", "?from=3&to=3": "", "?from=99": "",
		"?to=99": "0123456789",
	} {
		a := h.ask("GET", "/v1/outputs/bytes"+query, "")
		if a.status != 200 || string(a.body) != want || a.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s: %d %q, %s", query, a.status, a.body, a.header.Get("Content-Type"))
		}
	}
	h.ask("GET", "/v1/outputs/bytes?from=4&to=3", "").want(t, 400, "from is after to")
}

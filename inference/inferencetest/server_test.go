package inferencetest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference/inferencetest"
)

func TestViolations(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"clock"}}]`
	const user = `{"role":"user","content":"hi"}`
	call := func(id, arguments string) string {
		return `{"id":"` + id + `","type":"function","function":{"name":"clock","arguments":"` + arguments + `"}}`
	}
	asks := func(calls ...string) string {
		return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(calls, ",") + `]}`
	}
	result := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"x"}` }
	with := func(messages ...string) string {
		return `{"messages":[` + strings.Join(messages, ",") + `],` + tools + `}`
	}
	for name, tc := range map[string]struct {
		body string
		want string // part of the only violation; empty: none
	}{
		"words only":            {`{"messages":[` + user + `]}`, ""},
		"a call and its result": {with(user, asks(call("a", "{}")), result("a")), ""},
		"two calls, any order":  {with(user, asks(call("a", "{}"), call("b", "{}")), result("b"), result("a")), ""},
		"two rounds": {with(user, asks(call("a", "{}")), result("a"), asks(call("b", "{}")),
			result("b"), user), ""},
		"not JSON":             {`{`, "not a JSON object"},
		"no messages":          {`{"messages":[]}`, "no message"},
		"a null message":       {`{"messages":[` + user + `,null]}`, "messages[1] is not an object"},
		"empty tools":          {`{"messages":[` + user + `],"tools":[]}`, "tools is empty"},
		"a null tool":          {`{"messages":[` + user + `],"tools":[null,{}]}`, "tools[0] is not an object"},
		"an unknown role":      {with(`{"role":"wizard","content":"x"}`), "unknown role"},
		"an answer of nothing": {with(user, `{"role":"assistant","content":null}`), "neither content nor calls"},
		"an unanswered call": {with(user, asks(call("a", "{}"), call("b", "{}")), result("a"), user),
			`"b" is not answered before messages[3]`},
		"unanswered at the end": {with(user, asks(call("a", "{}"))), "not answered before the last message"},
		"answered too late":     {with(user, asks(call("a", "{}")), result("a"), result("a")), "not open"},
		"an orphan result":      {with(user, result("a")), "not open"},
		"an id used twice": {with(user, asks(call("a", "{}")), result("a"), asks(call("a", "{}")), result("a")),
			"used before"},
		"an empty id":          {with(user, asks(call("", "{}")), result("")), "empty or used before"},
		"arguments are empty":  {with(user, asks(call("a", "")), result("a")), "not a JSON object"},
		"arguments are null":   {with(user, asks(call("a", "null")), result("a")), "not a JSON object"},
		"arguments are a list": {with(user, asks(call("a", "[]")), result("a")), "not a JSON object"},
		"a null call": {with(user, asks("null", call("a", "{}")), result("a")),
			"tool_calls[0] is not an object"},
		"an empty list of calls": {with(user, `{"role":"assistant","content":"x","tool_calls":[]}`),
			"tool_calls is empty"},
		"a result without tools": {`{"messages":[` + user + `,` + asks(call("a", "{}")) + `,` + result("a") + `]}`,
			"no tools are declared"},
	} {
		t.Run(name, func(t *testing.T) {
			got := inferencetest.Violations([]byte(tc.body))
			if (tc.want == "") != (got == nil) || !strings.Contains(strings.Join(got, "; "), tc.want) {
				t.Errorf("complaints are %q", got)
			}
		})
	}
}

func post(t *testing.T, base, body string) (int, string) {
	t.Helper()
	status, mediaType, text := postTo(t, base+"/chat/completions", body)
	return status, mediaType + "\n" + text
}

func postTo(t *testing.T, url, body string) (status int, mediaType, text string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), string(data)
}

func TestServerAnswersAsAsked(t *testing.T) {
	s := inferencetest.NewServer(inferencetest.Text("hello"), inferencetest.Text("hello"),
		inferencetest.Calls(inferencetest.Call{Name: "clock"}))
	base := s.Start(t)
	const whole, stream = `{"model":"m","messages":[]}`, `{"model":"m","stream":true,"messages":[]}`
	if _, got := post(t, base, whole); !strings.Contains(got, `application/json`) || !strings.Contains(got,
		`"content":"hello"`) {
		t.Errorf("a whole answer is %s", got)
	}
	if _, got := post(t, base, stream); !strings.Contains(got, "text/event-stream") || !strings.HasSuffix(got,
		"data: [DONE]\n\n") {
		t.Errorf("a stream is %s", got)
	}
	if _, got := post(t, base, whole); !strings.Contains(got, `"id":"call_3_0"`) || !strings.Contains(got,
		`"finish_reason":"tool_calls"`) {
		t.Errorf("a call is %s", got)
	}
	if status, got := post(t, base, whole); status != 400 || !strings.Contains(got, "no more replies") {
		t.Errorf("after the script: %d %s", status, got)
	}
	s.Then(func(r inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("to " + r.Chat().Model) })
	if _, got := post(t, base, whole); !strings.Contains(got, "to m") {
		t.Errorf("a function gave %s", got)
	}
	var numbers []int
	for _, r := range s.Requests() {
		numbers = append(numbers, r.N)
		if r.Method != http.MethodPost || r.Path != "/v1/chat/completions" || len(r.Body) == 0 {
			t.Errorf("recorded %+v", r)
		}
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5}, numbers); diff != "" {
		t.Error(diff)
	}
}

func TestStrictServerRefuses(t *testing.T) {
	s := inferencetest.NewServer(inferencetest.Text("hello")).Strict()
	base := s.Start(t)
	if status, _ := post(t, base, `{"messages":[{"role":"tool","tool_call_id":"a","content":"x"}]}`); status != 400 {
		t.Errorf("status %d", status)
	}
	if len(s.Violations()) == 0 {
		t.Error("nothing was recorded")
	}
	if status, _ := post(t, base, `{"messages":[{"role":"user","content":"x"}]}`); status != 200 {
		t.Errorf("a good request after it: status %d", status)
	}
}

func TestAwait(t *testing.T) {
	release := make(chan struct{})
	s := inferencetest.NewServer(inferencetest.WaitFor(release, inferencetest.Text("late")))
	base := s.Start(t)
	done := make(chan string)
	go func() {
		_, got := post(t, base, `{}`)
		done <- got
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Await(ctx, 1); err != nil {
		t.Fatal(err)
	}
	close(release)
	if got := <-done; !strings.Contains(got, "late") {
		t.Errorf("got %s", got)
	}
	cause := errors.New("enough")
	ended, end := context.WithCancelCause(t.Context())
	end(cause)
	if err := s.Await(ended, 2); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

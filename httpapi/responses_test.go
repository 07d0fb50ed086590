package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// A response holds the fields of a response that the tests read.
type response struct {
	ID, Status, Model string
	Background        bool
	Error             *struct{ Message string }
	Incomplete        *struct{ Reason string } `json:"incomplete_details"`
	Conversation      struct{ ID string }
	Previous          *string `json:"previous_response_id"`
	Metadata          map[string]string
	Output            []struct {
		Content []struct{ Text string }
	}
}

func (r response) text() (all string) {
	for _, item := range r.Output {
		for _, part := range item.Content {
			all += part.Text
		}
	}
	return all
}

func (h *env) respond(body string, headers ...string) response {
	h.t.Helper()
	a := h.ask("POST", "/v1/responses", body, headers...)
	a.want(h.t, http.StatusOK, "")
	return decode[response](h.t, a)
}

func (h *env) response(id string) response {
	h.t.Helper()
	return decode[response](h.t, h.ask("GET", "/v1/responses/"+id, ""))
}

// sent is one event of a stream, as its data line holds it.
type sent struct {
	Type     string
	Number   int64 `json:"sequence_number"`
	Delta    string
	Response *response
	raw      string
}

// events reads the stream of a response to its end, or until it has the given number of events; 0 means no limit.
func (h *env) events(base, path string, most int) (all []sent, err error) {
	ctx, cut := context.WithCancel(h.t.Context())
	defer cut()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return nil, fmt.Errorf("answered %s, %s", resp.Status, kind)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		e := sent{raw: data}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return nil, err
		}
		if all = append(all, e); len(all) == most {
			return all, nil
		}
	}
	return all, lines.Err()
}

func types(all []sent) (names []string) {
	for _, e := range all {
		names = append(names, strings.TrimPrefix(e.Type, "response."))
	}
	return slices.Compact(names)
}

func said(all []sent) (text string) {
	for _, e := range all {
		text += e.Delta
	}
	return text
}

func TestAResponse(t *testing.T) {
	h := newEnv(t)
	r := h.respond(
		`{"model":"turnkeeper/clerk","input":[{"role":"user","content":[{"type":"input_text","text":"one"}]},{"role":"user","content":"two"}],
		"background":true,"metadata":{"order":"17"},"temperature":0.1,"instructions":"","tools":[],"user":null}`)
	if r.Status != "queued" || r.Model != "clerk" || !r.Background || r.Metadata["order"] != "17" ||
		!strings.HasPrefix(r.Conversation.ID, "conv_") {
		t.Errorf("the response is %+v", r)
	}
	if m, err := h.Message(t.Context(), 1); err != nil || m.Body != "one\n\ntwo" ||
		m.Conversation != r.Conversation.ID {
		t.Errorf("the message is %+v, %v", m, err)
	}
	d := h.dispatch("clerk")
	if now := h.response(r.ID); now.Status != "in_progress" || len(now.Output) > 0 {
		t.Errorf("while its turn runs it is %+v", now)
	}
	d.finish("done")
	if now := h.response(r.ID); now.Status != "completed" || now.text() != "done" {
		t.Errorf("in the end it is %+v", now)
	}
	next := h.respond(fmt.Sprintf(`{"model":"clerk","input":"more","background":true,"previous_response_id":%q}`, r.ID))
	if next.Conversation.ID != r.Conversation.ID || next.Previous == nil || *next.Previous != r.ID {
		t.Errorf("the next one is %+v", next)
	}
	for _, named := range []string{`"main"`, `{"id":"main"}`} {
		if r := h.respond(`{"model":"clerk","input":"more","background":true,"conversation":` + named +
			`}`); r.Conversation.ID != "main" {
			t.Errorf("the conversation is %q", r.Conversation.ID)
		}
	}
	if other := h.respond(
		`{"model":"clerk","input":"else","background":true}`); other.Conversation.ID == r.Conversation.ID {
		t.Error("a response that names none is in a conversation of others")
	}
}

func TestWaitingForAResponse(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.ResponseWait, c.KeepAlive = 30*time.Millisecond, time.Hour })
	if r := h.respond(`{"model":"clerk","input":"slow"}`); r.Status != "queued" {
		t.Errorf("after the time to wait it is %+v", r)
	}
	_, base := h.serve()
	got := make(chan answer, 1)
	go func() {
		got <- h.askAt(base, "POST", "/v1/responses", `{"model":"clerk","input":"slow"}`, "Idempotency-Key", "k")
	}()
	h.dispatch("clerk").finish("first")
	for one[int](h, "select count(*) from turnkeeper.messages") < 2 {
		<-time.After(time.Millisecond)
	}
	h.dispatch("clerk").finish("second")
	if r := decode[response](t, <-got); r.Status != "completed" || r.text() != "second" {
		t.Errorf("who waited got %+v", r)
	}
}

func TestARepeatedResponseIsOne(t *testing.T) {
	h := newEnv(t)
	const body = `{"model":"clerk","input":"pay","background":true,"metadata":{"a":"b"}}`
	first := h.respond(body, "Idempotency-Key", "k")
	again := h.respond(strings.Replace(body, `"background":true`, `"background":true,"top_p":1`, 1),
		"Idempotency-Key", "k")
	if again.ID != first.ID || one[int](h, "select count(*) from turnkeeper.messages") != 1 {
		t.Errorf("a repeat is %s, the first was %s", again.ID, first.ID)
	}
	for what, other := range map[string]string{
		"input": strings.Replace(body, "pay", "pay more", 1), "metadata": strings.Replace(body, `"b"`, `"c"`, 1),
		"conversation": strings.Replace(body, `"input"`, `"conversation":"main","input"`, 1),
		"previous":     strings.Replace(body, `"input"`, `"previous_response_id":"`+first.ID+`","input"`, 1),
	} {
		a := h.ask("POST", "/v1/responses", other, "Idempotency-Key", "k")
		a.want(t, http.StatusConflict, "idempotency key")
		if a.header.Get("X-Should-Retry") != "false" {
			t.Errorf("another %s: a client would repeat it", what)
		}
	}
	// A message sent by another route does not become a response when its key is repeated.
	h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"pay","conversation":"c"}`, "Idempotency-Key", "m").want(t,
		http.StatusCreated, "")
	h.ask("POST", "/v1/responses", `{"model":"clerk","input":"pay","conversation":"c"}`, "Idempotency-Key", "m").want(t,
		http.StatusConflict, "idempotency key")
	h.ask("GET", "/v1/responses/resp_"+fmt.Sprint(one[int](h, "select max(id) from turnkeeper.messages")), "").want(t,
		http.StatusNotFound, "there is no response")
}

func TestRefusedResponses(t *testing.T) {
	h := newEnv(t)
	for body, want := range map[string]struct {
		status      int
		param, code string
	}{
		`{"input":"x"}`: {400,
			"model", "missing_required_parameter"},
		`{"model":"nobody","input":"x"}`: {404,
			"model", "model_not_found"},
		`{"model":"No Body","input":"x"}`: {404,
			"model", "model_not_found"},
		`{"model":"clerk","input":" "}`: {400,
			"input", "empty_input"},
		`{"model":"clerk","input":"x","tempo":1}`: {400,
			"tempo", "unknown_parameter"},
		`{"model":"clerk","input":"x","store":false}`: {400,
			"store", "unsupported_value"},
		`{"model":"clerk","input":"x","stream":"yes"}`: {400,
			"stream", "invalid_type"},
		`{"model":"clerk","input":"x","instructions":["be"]}`: {400,
			"instructions", "invalid_type"},
		`{"model":"clerk","input":"x","tools":[{}]}`: {400,
			"tools", "unsupported_parameter"},
		`{"model":"clerk","input":"x","max_output_tokens":0}`: {400,
			"max_output_tokens", "invalid_value"},
		`{"model":"clerk","input":"x","text":{"format":{"type":"json_object"}}}`: {400,
			"text.format", "unsupported_value"},
		`{"model":"clerk","input":"x","previous_response_id":"resp_9"}`: {400,
			"previous_response_id", "previous_response_not_found"},
		`{"model":"clerk","input":"x","previous_response_id":"resp_9","conversation":"c"}`: {400,
			"previous_response_id", "mutually_exclusive_parameters"},
		`{"model":"clerk","input":"x","metadata":{"a":1}}`: {400,
			"metadata", "invalid_type"},
		`{"model":"clerk","input":"x","metadata":{"a":null}}`: {400,
			"metadata", "invalid_type"},
		`{"model":"clerk","input":"x","model":"desk"}`: {400, "",
			""},
		`{"model":"clerk","input":[{"role":"user","content":"x","content":"y"}]}`: {400, "",
			""},
		`{"model":"clerk","input":"x","metadata":{"a":"\u0000"}}`: {400,
			"metadata", "invalid_value"},
		`{"model":"clerk","input":[{"role":"assistant","content":"x"}]}`: {400,
			"input", "invalid_value"},
		`{"model":"clerk","input":[{"role":"critic","content":"x"}]}`: {400,
			"input[0].role", "unsupported_value"},
		`{"model":"clerk","input":[{"role":"system","content":"x"}]}`: {400,
			"input", "empty_input"},
		`{"model":"clerk","input":[{"type":"item_reference","id":"msg_7"},{"role":"user","content":"x"}]}`: {400,
			"input", "item_not_found"},
		`{"model":"clerk","input":[{"type":"item_reference","id":"rs_7"},{"role":"user","content":"x"}]}`: {400,
			"input[0]", "item_not_found"},
		`{"model":"clerk","input":[{"role":"user","content":[{"type":"input_image"}]}]}`: {400,
			"input[0].content[0].type", "unsupported_value"},
		`{"model":"clerk","input":[{"type":"function_call_output","output":"x"}]}`: {400,
			"input[0].type", "unsupported_value"},
		`{"model":"clerk","input":"` + strings.Repeat("x", 1001) + `"}`: {400,
			"input", "string_above_max_length"},
		`{"model":"clerk","input":"x\u0000"}`: {400,
			"input", "invalid_value"},
		`{"model":"clerk","input":"x"`: {400, "",
			"invalid_json"},
		`{"model":"clerk","input":"x","metadata":{"a":"` + strings.Repeat("x", 513) + `"}}`: {400,
			"metadata", "string_above_max_length"},
		`{"model":"clerk","input":"x","conversation":"` + strings.Repeat("x", 201) +
			`"}`: {400, "", ""},
		`{"model":"clerk","input":"x","conversation":{}}`: {400,
			"conversation", "invalid_type"},
		`{"model":"clerk","input":"x","tool_choice":"none"}`: {400,
			"tool_choice", "unsupported_parameter"},
	} {
		a := h.ask("POST", "/v1/responses", body)
		got := decode[struct {
			Error struct{ Message, Type, Param, Code string }
		}](t, a).Error
		if a.status != want.status || got.Param != want.param || got.Code != want.code ||
			got.Type != "invalid_request_error" || got.Message == "" {
			t.Errorf("%.90s was answered %d %s", body, a.status, a.body)
		}
	}
	if n := one[int](h, "select count(*) from turnkeeper.messages"); n != 0 {
		t.Errorf("%d messages were written", n)
	}
	h.ask("POST", "/v1/responses", `{"model":"clerk","input":"x"}`, "Idempotency-Key", "").want(t, 400,
		"must hold one key")
	for _, id := range []string{"resp_7", "resp_07", "resp_", "7", "resp_x", "resp_-1", "resp_99999999999999999999"} {
		h.ask("GET", "/v1/responses/"+id, "").want(t, http.StatusNotFound, "there is no response")
	}
	h.ask("DELETE", "/v1/responses/resp_1", "").want(t, http.StatusMethodNotAllowed,
		`{"error":{"message":"method not allowed: use GET"`)
	h.ask("GET", "/v1/models/nobody", "").want(t, http.StatusNotFound, "model_not_found")
	h.ask("GET", "/v1/responses/resp_1", "", "Host", "evil.example").want(t,
		http.StatusMisdirectedRequest, `{"error":{`)
}

// TestTheHeadOfAResponse checks that HEAD returns at once with the type of a response, even with stream=true.
func TestTheHeadOfAResponse(t *testing.T) {
	h := newEnv(t)
	r := h.respond(`{"model":"clerk","input":"x","background":true,"metadata":{"A":"b","a":"b"}}`)
	if a := h.ask("HEAD", "/v1/responses/"+r.ID+"?stream=true", ""); a.status != 200 ||
		a.header.Get("Content-Type") != "application/json" {
		t.Errorf("answered %d %v", a.status, a.header)
	}
}

// TestTheEventsOfAResponse checks that every process sends the same numbered events at any time, and that the stream
// contains the reply, not the output of a lost worker.
func TestTheEventsOfAResponse(t *testing.T) {
	h := newEnv(t)
	_, second := h.serve()
	const path = "/v1/responses/resp_1?stream=true"
	h.respond(`{"model":"clerk","input":"talk","background":true}`)
	// openai-go sends stream in the body of its GET.
	h.ask("GET", "/v1/responses/resp_1?starting_after=1", `{"stream":false}`).want(t, http.StatusBadRequest,
		"stream=true")
	begin, err := h.events(h.base, path, 2)
	if err != nil {
		t.Fatal(err)
	}
	h.ask("GET", path+"&starting_after=2", "").want(t, http.StatusBadRequest, "which is 1")
	d := h.dispatch("clerk")
	live := make(chan []sent, 1)
	go func() {
		all, err := h.events(h.base, path, 0)
		if err != nil {
			t.Error(err)
		}
		live <- all
	}()
	if begun, err := h.events(second, path, 3); err != nil || !slices.Equal(types(begun), []string{"created", "queued",
		"in_progress"}) {
		t.Errorf("while its turn runs there are %v, %v", types(begun), err)
	}
	d.say("what is rolled back")
	reply := strings.Repeat("grüße, ", 1000)
	d.finish(reply)
	all := <-live
	want := []string{
		"created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
		"output_text.done", "content_part.done", "output_item.done", "completed",
	}
	if diff := cmp.Diff(want, types(all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(raw(begin), raw(all[:2])); diff != "" {
		t.Error(diff)
	}
	if last := all[len(all)-1].Response; said(all) != reply || last == nil || last.text() != reply {
		t.Errorf("what was streamed is not the reply: %q", said(all))
	}
	asked := h.ask("GET", fmt.Sprintf("/v1/responses/resp_1?starting_after=%d", len(all)-2), `{"stream":true}`)
	asked.want(t, http.StatusOK, "data: "+all[len(all)-1].raw)
	for i, e := range all {
		if e.Number != int64(i) {
			t.Fatalf("event %d has the number %d", i, e.Number)
		}
		rest, err := h.events(second, fmt.Sprintf("%s&starting_after=%d", path, i), 0)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(raw(all[i+1:]), raw(rest)); diff != "" {
			t.Fatalf("after %d: %s", i, diff)
		}
	}
	for _, after := range []string{fmt.Sprint(len(all)), "9223372036854775807"} {
		a := h.ask("GET", path+"&starting_after="+after, "")
		a.want(t, http.StatusBadRequest, fmt.Sprintf("which is %d", len(all)-1))
		a.want(t, http.StatusBadRequest, `"param":"starting_after"`)
	}
}

func raw(all []sent) []string {
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = e.raw
	}
	return lines
}

func TestHowResponsesEnd(t *testing.T) {
	h := newEnv(t)
	for _, test := range []struct {
		outcome turnlog.Outcome
		message turnkeeper.MessageState
		status  string
		last    string
	}{
		{turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds, Reply: "half"},
			turnkeeper.MessageDegraded, "incomplete", "incomplete"},
		{turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Reply: "sorry"},
			turnkeeper.MessageFailed, "failed", "failed"},
		{turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled, Reply: "cancelled"},
			turnkeeper.MessageCancelled, "cancelled", "incomplete"},
	} {
		t.Run(test.status, func(t *testing.T) {
			id := h.respond(`{"model":"clerk","input":"work","background":true}`).ID
			h.dispatch("clerk").write(turnlog.Entry{
				Events:  []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{}`)}},
				Outcome: &test.outcome,
			}, turnlog.Consequence{Message: test.message, Log: "finished"})
			r := h.response(id)
			if r.Status != test.status {
				t.Errorf("it is %+v", r)
			}
			switch r.Status {
			case "incomplete":
				if r.text() != "half" || r.Incomplete.Reason != "max_rounds" {
					t.Errorf("it is %+v", r)
				}
			case "failed":
				if r.text() != "" || r.Error.Message != "sorry" {
					t.Errorf("it is %+v", r)
				}
			}
			all, err := h.events(h.base, "/v1/responses/"+id+"?stream=true", 0)
			if err != nil || types(all)[len(types(all))-1] != test.last ||
				all[len(all)-1].Response.Status != test.status {
				t.Errorf("its stream ended with %v, %v", types(all), err)
			}
			// Cancelling a response that has ended returns it unchanged.
			h.ask("POST", "/v1/responses/"+id+"/cancel", "").want(t, http.StatusOK, `"status":"`+test.status+`"`)
		})
	}
}

// TestAnswersThatAreCut checks that a response whose last answer the provider cut says so, with OpenAI's reasons.
func TestAnswersThatAreCut(t *testing.T) {
	h := newEnv(t)
	succeeded := turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "half"}
	filtered := turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError,
		ErrorClass: "refused", Reply: "half"}
	limited := turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds, Reply: "half"}
	for _, test := range []struct {
		finishes string // of the rounds
		outcome  turnlog.Outcome
		reason   string // empty: it is completed
	}{
		{"stop", succeeded, ""}, {"length stop", succeeded, ""}, {"", succeeded, ""}, {"unheard_of", succeeded, ""},
		{"length", succeeded, "max_output_tokens"}, {"tool_calls MAX_TOKENS", succeeded, "max_output_tokens"},
		{"network_error", succeeded, "inference_error"}, {"content_filter", succeeded, "content_filter"},
		{"content_filter", filtered, "content_filter"}, {"SAFETY", filtered, "content_filter"},
		{"", filtered, "content_filter"},
		{"length", limited, "max_rounds"},
	} {
		id := h.respond(`{"model":"clerk","input":"work","background":true}`).ID
		d := h.dispatch("clerk")
		for n, finish := range strings.Fields(test.finishes) {
			d.write(turnlog.Entry{Round: &turnkeeper.Round{Number: n + 1, Charged: true, Provider: "p", Model: "m",
				Attempts: 1, FinishReason: finish, Text: "half"}}, turnlog.Consequence{})
		}
		d.write(turnlog.Entry{
			Events:  []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{}`)}},
			Outcome: &test.outcome,
		}, turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "finished"})
		status, r := "incomplete", h.response(id)
		reason := func(r response) string {
			if r.Incomplete == nil {
				return ""
			}
			return r.Incomplete.Reason
		}
		if test.reason == "" {
			status = "completed"
		}
		if r.Status != status || reason(r) != test.reason || r.text() != "half" {
			t.Errorf("after %q and %s it is %+v", test.finishes, test.outcome.State, r)
		}
		all, err := h.events(h.base, "/v1/responses/"+id+"?stream=true", 0)
		if last := all[len(all)-1]; err != nil || types(all)[len(types(all))-1] != status ||
			last.Response.Status != status || reason(*last.Response) != test.reason {
			t.Errorf("after %q and %s its stream ended with %v, %v", test.finishes, test.outcome.State, types(all), err)
		}
	}
}

func TestCancellingAResponse(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	shop := h.token(operate.Token{Name: "shop", Scopes: []string{"send"}, Agents: []string{"clerk"}})
	mall := h.token(operate.Token{Name: "mall", Scopes: []string{"send"}, Agents: []string{"clerk"}})
	desk := h.token(operate.Token{Name: "desk", Scopes: []string{"send"}, Agents: []string{"desk"}})
	boss := h.token(operate.Token{Name: "boss", Scopes: []string{"send", "operate"}})
	const body = `{"model":"clerk","input":"work","background":true}`
	id := h.respond(body, "Authorization", shop).ID
	path := "/v1/responses/" + id
	h.ask("POST", "/v1/responses", body, "Authorization", desk).want(t, 404, "model_not_found")
	h.ask("GET", path, "").want(t, 401, `"code":"invalid_api_key"`)
	h.ask("GET", path, "", "Authorization", desk).want(t, 404, "there is no response")
	h.ask("GET", path+"?stream=true", "", "Authorization", desk).want(t, 404, "there is no response")
	h.ask("GET", path+"/input_items", "", "Authorization", desk).want(t, 404, "there is no response")
	h.ask("POST", path+"/cancel", "", "Authorization", desk).want(t, 404, "there is no response")
	h.ask("POST", path+"/cancel", "", "Authorization", mall).want(t, 403, "another token")
	h.ask("GET", path, "", "Authorization", mall).want(t, 200, `"queued"`)
	h.ask("GET", "/v1/models", "", "Authorization", mall).want(t, 200, `"data":[{"id":"clerk"`)
	if all := string(h.ask("GET", "/v1/models", "", "Authorization", mall).body); strings.Contains(all, "desk") {
		t.Errorf("a token sees the models %s", all)
	}
	// The message is still in the inbox, without a turn.
	h.ask("POST", path+"/cancel", "", "Authorization", shop).want(t, 200, `"status":"cancelled"`)
	h.ask("POST", path+"/cancel", "", "Authorization", shop).want(t, 200, `"status":"cancelled"`)
	other := h.respond(body, "Authorization", shop).ID
	h.ask("POST", "/v1/responses/"+other+"/cancel", "", "Authorization", boss).want(t, 200, `"status":"cancelled"`)
}

func TestTheRateOfResponses(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Rate = 1 })
	var a answer
	for a.status != http.StatusTooManyRequests {
		a = h.ask("GET", "/v1/responses/resp_1?stream=true", "", "Accept", "text/event-stream")
	}
	a.want(t, http.StatusTooManyRequests, `"code":"rate_limit_exceeded"`)
	if a.header.Get("Retry-After") == "" {
		t.Error("it is not said when to come again")
	}
}

// TestResponsesWhileDraining checks that a stopping process cuts streams, as a clean end would look complete. Waiting
// requests with an idempotency key get an error that allows a retry; without a key, a retry would send a second
// message.
func TestResponsesWhileDraining(t *testing.T) {
	h := newEnv(t)
	const body = `{"model":"clerk","input":"talk"}`
	keyed, plain := make(chan answer, 1), make(chan answer, 1)
	go func() { keyed <- h.ask("POST", "/v1/responses", body, "Idempotency-Key", "k") }()
	go func() { plain <- h.ask("POST", "/v1/responses", body) }()
	for one[int](h, "select count(*) from turnkeeper.responses") < 2 {
		<-time.After(time.Millisecond)
	}
	type end struct {
		events []sent
		err    error
	}
	streamed := make(chan end, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		all, err := h.events(h.base, "/v1/responses/resp_1?stream=true", 0)
		streamed <- end{all, err}
	}()
	<-begun
	h.server.Drain()
	if e := <-streamed; e.err == nil || len(e.events) != 2 {
		t.Errorf("the stream ended with %v, %v", types(e.events), e.err)
	}
	a := <-keyed
	a.want(t, http.StatusServiceUnavailable, "repeat the request")
	if a.header.Get("X-Should-Retry") == "false" {
		t.Error("a client is told not to come again")
	}
	(<-plain).want(t, http.StatusOK, `"status":"queued"`)
	h.dispatch("clerk").finish("done")
	h.dispatch("clerk").finish("done")
	_, base := h.serve()
	h.askAt(base, "POST", "/v1/responses", body, "Idempotency-Key", "k").want(t, http.StatusOK, `"status":"completed"`)
}

func (away) AcceptResponse(context.Context, operate.NewResponse) (turnkeeper.MessageID, error) {
	return 0, errAway
}

// TestNoResponseWhileTheDatabaseIsAway checks that clients are told not to retry without an idempotency key: the
// message may have been accepted, and a retry would send a second one.
func TestNoResponseWhileTheDatabaseIsAway(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Store = away{c.Store} })
	for key, retry := range map[string]string{"": "false", "k": ""} {
		var headers []string
		if key != "" {
			headers = []string{"Idempotency-Key", key}
		}
		a := h.ask("POST", "/v1/responses", `{"model":"clerk","input":"x"}`, headers...)
		a.want(t, http.StatusServiceUnavailable, "the request failed")
		if got := a.header.Get("X-Should-Retry"); got != retry {
			t.Errorf("with the key %q X-Should-Retry is %q", key, got)
		}
	}
}

// TestAClientLeavesItsResponse checks that closing a stream does not cancel the turn.
func TestAClientLeavesItsResponse(t *testing.T) {
	h := newEnv(t)
	ctx, leave := context.WithCancelCause(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+"/v1/responses",
		strings.NewReader(`{"model":"clerk","input":"talk","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "event: response.created\n" {
		t.Fatalf("the stream began with %q, %v", line, err)
	}
	leave(errors.New("the client leaves"))
	_ = resp.Body.Close()
	h.dispatch("clerk").finish("done")
	if r := h.response("resp_1"); r.text() != "done" {
		t.Errorf("the response is %+v", r)
	}
}

func TestAPurgeTakesResponses(t *testing.T) {
	h := newEnv(t)
	h.respond(`{"model":"clerk","input":"talk","background":true,"metadata":{"a":"b"}}`)
	h.dispatch("clerk").finish("done")
	if _, err := h.Purge(t.Context(), operate.PurgeScope{Agent: "clerk"}); err != nil {
		t.Fatal(err)
	}
	if n := one[int](h, "select count(*) from turnkeeper.responses"); n != 0 {
		t.Errorf("%d responses are left", n)
	}
	h.ask("GET", "/v1/responses/resp_1", "").want(t, http.StatusNotFound, "there is no response")
}

// unreadable is a store that can read no response.
type unreadable struct{ httpapi.Store }

func (unreadable) Response(context.Context, turnkeeper.MessageID) (operate.Response, error) {
	return operate.Response{}, errAway
}

// TestWhoFindsAResponse asks for a response by its id and by its number, and with tokens of two agents.
func TestWhoFindsAResponse(t *testing.T) {
	h := newEnv(t)
	id := decode[response](t, h.ask("POST", "/v1/responses", `{"model":"clerk","input":"x","background":true}`)).ID
	h.ask("GET", "/v1/responses/"+id, "").want(t, http.StatusOK, id)
	h.ask("GET", "/v1/responses/"+strings.TrimPrefix(id, "resp_"), "").want(t, http.StatusNotFound,
		"there is no response")
	clerk := h.token(operate.Token{Name: "clerk", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	desk := h.token(operate.Token{Name: "desk", Scopes: []string{"read"}, Agents: []string{"desk"}})
	h.ask("GET", "/v1/responses/"+id, "", "Authorization", clerk).want(t, http.StatusOK, id)
	h.ask("GET", "/v1/responses/"+id, "", "Authorization", desk).want(t, http.StatusNotFound, "there is no response")
}

// TestAResponseThatCannotBeRead checks that a token of an agent is not answered that there is none.
func TestAResponseThatCannotBeRead(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Store = unreadable{c.Store} })
	clerk := h.token(operate.Token{Name: "clerk", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	h.ask("GET", "/v1/responses/resp_1", "", "Authorization", clerk).want(t, http.StatusServiceUnavailable,
		"the request failed")
}

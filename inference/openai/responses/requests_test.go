package responses_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3/responses"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/responses"
	"turnkeeper/internal/golden"
)

// A wire answers requests without a network, and records the last one.
type wire struct {
	status      int // 0: 200
	contentType string
	answer      []byte
	sent        []byte
	to          string
}

func (w *wire) RoundTrip(r *http.Request) (res *http.Response, err error) {
	if w.sent, err = io.ReadAll(r.Body); err != nil {
		return nil, err
	}
	w.to = r.Method + " " + r.URL.String()
	return &http.Response{
		StatusCode: max(w.status, http.StatusOK), Header: http.Header{"Content-Type": {w.contentType}},
		Body: io.NopCloser(bytes.NewReader(w.answer)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func wired(tb testing.TB, w http.RoundTripper, profile openai.Profile) *openai.Client {
	tb.Helper()
	profile.API = openai.APIResponses
	c, err := openai.New(openai.Config{Read: responses.Read, Name: "p", BaseURL: "http://localhost/v1",
		Profile: profile, HTTPClient: &http.Client{Transport: w}})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// sentFor returns what is sent for a request, and fails the test if a strict server refuses it. The body is empty if
// the request has no message.
func sentFor(tb testing.TB, profile openai.Profile, req inference.Request) (body []byte, to string) {
	tb.Helper()
	w := &wire{contentType: "application/json"}
	_, _ = wired(tb, w, profile).Generate(tb.Context(), req, nil) // the answer does not matter
	if w.sent == nil {
		return nil, ""
	}
	if faults := inferencetest.ResponsesViolations(w.sent); faults != nil {
		tb.Errorf("%q in %s", faults, w.sent)
	}
	return w.sent, w.to
}

func user(text string) inference.Message {
	return inference.Message{Role: inference.RoleUser, Text: text}
}

func call(id, name, arguments string) inference.Call {
	return inference.Call{ID: id, Name: name, Arguments: arguments}
}

// answer returns an answer of the provider p as its API sent it.
func answer(raw, text string, calls ...inference.Call) inference.Message {
	m := inference.Message{Role: inference.RoleAssistant, Text: text, Calls: calls}
	if raw != "" {
		m.Raw, m.RawProvider = json.RawMessage(raw), "p"
	}
	return m
}

func result(id, text string) inference.Message {
	return inference.Message{Role: inference.RoleTool, CallID: id, Text: text}
}

var tools = []inference.ToolDefinition{
	{Name: "clock", Description: "Tells the time.",
		Parameters: json.RawMessage(`{"required":null,"properties":{"zone":{"type":"string"}},"title":"<t>"}`)},
	{Name: "clock", Description: "twice"}, {Name: "read file", Parameters: json.RawMessage(`[]`)},
}

// rawAnswers are answers that are sent back, by what is special of them.
var rawAnswers = []struct {
	name    string
	message inference.Message
}{
	{"as it came", answer(`[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e1"},
		{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"commentary",
			"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"I look."}]},
		{"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"e2","status":null},
		{"type":"function_call","id":"fc_1","call_id":"c1","name":"clock","arguments":"{\"a\": 1}","status":"completed"},
		{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}},
		{"type":"message","id":"msg_2","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Wait."}]}]`,
		"I look.\n\nWait.", call("c1", "clock", `{"a": 1}`))},
	{"reasoning without an id, with a status and without a summary", answer(
		`[{"type":"reasoning","encrypted_content":"e","status":"completed"},{"type":"function_call","call_id":"c2","name":"clock","arguments":"{}"}]`,
		"", call("c2", "clock", "{}"))},
	{"reasoning that is not encrypted", answer(
		`[{"type":"reasoning","id":"rs_3","summary":[],"content":[{"type":"reasoning_text","text":"t"}],"encrypted_content":""},
		{"type":"message","id":"msg_3","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"so"}]},
		{"type":"function_call","id":"fc_3","call_id":"c3","name":"clock","arguments":"{}"}]`, "so", call("c3", "clock", "{}"))},
	{"one reasoning of two is not encrypted", answer(
		`[{"type":"reasoning","id":"rs_a","summary":[],"encrypted_content":"a"},{"type":"reasoning","id":"rs_b","summary":[],"encrypted_content":null},
		{"type":"function_call","id":"fc_a","call_id":"ca","name":"clock","arguments":"{}"}]`, "", call("ca", "clock", "{}"))},
	{"reasoning at the end", answer(
		`[{"type":"message","id":"msg_4","role":"assistant","status":"incomplete","content":[{"type":"output_text","text":"so"}]},
		{"type":"reasoning","id":"rs_4","summary":[],"encrypted_content":"e"}]`, "so")},
	{"other ids and arguments", answer(`[{"type":"function_call","id":"fc_5","call_id":"has space","name":"no such tool","arguments":"{","status":"incomplete"},
		{"type":"function_call","id":null,"call_id":"c1","name":"clock","arguments":{"b":1}}]`, "",
		call("has space", "no such tool", "{"), call("c1", "clock", `{"b":1}`))},
	{"an id that was used before", answer(
		`[{"type":"message","id":"msg_4","role":"assistant","status":"completed","content":[{"type":"output_text","text":"again"}]}]`, "again")},
	{"a call that nobody can answer", answer(
		`[{"type":"reasoning","id":"rs_6","summary":[],"encrypted_content":"e"},{"type":"custom_tool_call","id":"ctc_1","call_id":"x","name":"y","input":"z"},
		{"type":"message","id":"msg_6","role":"assistant","status":"completed","content":[{"type":"output_text","text":"said"}]}]`, "said")},
	{"a refusal", answer(
		`[{"type":"message","id":"msg_7","role":"assistant","status":"completed","content":[{"type":"output_text","text":"said"},{"type":"refusal","refusal":"no"}]}]`,
		"said")},
	{"a message as a text, without its type", answer(`[{"id":"msg_8","role":"assistant","content":"said"}]`, "said")},
	{"a message without its status", answer(
		`[{"id":"msg_9","type":"message","role":"assistant","content":[{"type":"output_text","text":"said"}]}]`, "said")},

	// What is not sent back as it came.
	{"another text", answer(`[{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"x"}]}]`, "y")},
	{"another call", answer(`[{"type":"function_call","id":"f","call_id":"c","name":"read_file","arguments":"{}"}]`, "",
		call("c7", "clock", "{}"))},
	{"a call too many", answer(`[{"type":"function_call","id":"f","call_id":"c","name":"clock","arguments":"{}"},
		{"type":"function_call","id":"g","call_id":"d","name":"clock","arguments":"{}"}]`, "", call("c8", "clock", "{}"))},
	{"a call too few", answer(`[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}]`, "x",
		call("c9", "clock", "{}"))},
	{"of Chat Completions", answer(`{"role":"assistant","reasoning_content":"hm","content":"x"}`, "x")},
	{"of Messages", answer(`[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"t","name":"clock","input":{}}]`,
		"", call("t", "clock", "{}"))},
	{"of Messages, without text", answer(`[{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"t2","name":"clock","input":{}}]`, "x")},
	{"damaged", answer(`[{"type":"message"`, "x")},
	{"an empty list", answer(`[]`, "x")},
	{"a list of something else", answer(`[7,null]`, "x")},
	{"a message of the user", answer(`[{"type":"message","role":"user","content":"x"}]`, "x")},
	{"of another provider", inference.Message{Role: inference.RoleAssistant, Text: "x", RawProvider: "q",
		Raw: json.RawMessage(`[{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"x"}]}]`)}},
}

// TestRequests compares the requests of all kinds of messages and profiles with testdata.
func TestRequests(t *testing.T) {
	full := inference.Request{Model: "m", MaxOutputTokens: 99, User: "turn-7", CacheKey: "conversation-1",
		Temperature: new(0.25), Tools: tools, Messages: []inference.Message{
			{Role: inference.RoleSystem, Text: "Be brief."}, {Role: inference.RoleSystem, Text: "And kind."},
			user("hi <b> & \"you\"\\\n\x01\u2028\xff"), result("lost", "of no call"),
		}}
	for _, a := range rawAnswers {
		full.Messages = append(full.Messages, user("# "+a.name), a.message)
		for _, c := range a.message.Calls {
			full.Messages = append(full.Messages, result(c.ID, "result of "+c.ID))
		}
	}
	full.Messages = append(full.Messages, inference.Message{Role: inference.RoleAssistant}, user(""),
		answer("", "", call("", "", ""), call("dup", "clock", "{}"), call("dup", "clock", "[1]"),
			call(strings.Repeat("l", 65), "clock", "null")), result("dup", "one"), result("dup", "two"))
	var lines []string
	show := func(name string, profile openai.Profile, change func(*inference.Request)) {
		req := full
		change(&req)
		body, to := sentFor(t, profile, req)
		lines = append(lines, "# "+name, to, strings.ReplaceAll(string(body), "},{", "},\n{"))
		var params sdk.ResponseNewParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Errorf("%s: the official client cannot read it: %v", name, err)
		} else {
			checkParams(t, body, params)
		}
	}
	few := func(r *inference.Request) { r.Messages = r.Messages[:3] }
	show("everything", openai.Profile{}, func(*inference.Request) {})
	show("only a message", openai.Profile{NoStream: true}, func(r *inference.Request) {
		*r = inference.Request{Model: "m", Messages: r.Messages[2:3]}
	})
	show("no reasoning", openai.Profile{Reasoning: openai.ReasoningNever, NoUser: true}, func(r *inference.Request) {
		r.Messages = r.Messages[4:8]
	})
	show("a long cache key", openai.Profile{}, func(r *inference.Request) {
		few(r)
		r.CacheKey = strings.Repeat("k", 65)
	})
	show("no calls", openai.Profile{}, func(r *inference.Request) {
		few(r)
		r.ToolChoice = inference.ToolChoiceNone
	})
	show("no calls, and no tool_choice", openai.Profile{NoToolChoice: true, IDs: openai.IDNine},
		func(r *inference.Request) {
			r.Messages = []inference.Message{answer("", "", call("long id", "clock", "{}"))}
			r.ToolChoice = inference.ToolChoiceNone
		})
	show("tools of before", openai.Profile{}, func(r *inference.Request) {
		r.Messages, r.Tools = []inference.Message{answer("", "", call("c", "clock", "{}"))}, nil
	})
	show("more fields", openai.Profile{Extra: map[string]json.RawMessage{
		"reasoning": json.RawMessage(`{ "effort": "high", "summary": "auto" }`),
		"text":      json.RawMessage(`{"verbosity":"low"}`), "model": json.RawMessage(`"x"`),
	}}, few)
	golden.File(t, "testdata/requests.txt", strings.Join(lines, "\n")+"\n")
	_, err := wired(t, &wire{}, openai.Profile{}).Generate(t.Context(), inference.Request{Model: "m",
		Messages: full.Messages[:1]}, nil)
	if inference.ClassOf(err) != inference.ClassInvalid {
		t.Errorf("a request without input: %v", err)
	}
}

// checkParams compares what the official client reads of a body with the body.
func checkParams(t *testing.T, body []byte, params sdk.ResponseNewParams) {
	t.Helper()
	again, err := json.Marshal(params)
	if err != nil {
		t.Error(err)
		return
	}
	var sent, read struct {
		Input        []map[string]any
		Tools        []map[string]any
		Instructions string
		Include      []string
		Store        bool
		Key          string `json:"prompt_cache_key"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(again, &read); err != nil {
		t.Error(err)
	}
	if len(sent.Input) != len(read.Input) || len(sent.Tools) != len(read.Tools) ||
		sent.Instructions != read.Instructions || sent.Store != read.Store || sent.Key != read.Key ||
		len(read.Include) != len(sent.Include) {
		t.Errorf("the official client reads\n%s\nof\n%s", again, body)
		return
	}
	for n, item := range sent.Input {
		if item["id"] != nil && item["type"] == "message" { // the client's union prefers the form without an id
			read.Input[n] = asOutput(t, item)
		}
		for name, value := range item {
			if got := read.Input[n][name]; !equalJSON(value, got) {
				t.Errorf("the official client reads %v as %s of %v", got, name, item)
			}
		}
	}
}

// asOutput returns what the official client reads of an answer's message.
func asOutput(t *testing.T, item map[string]any) (read map[string]any) {
	t.Helper()
	var message sdk.ResponseOutputMessageParam
	for _, content := range item["content"].([]any) { //nolint:forcetypeassert // a list, as the test shows
		part, ok := content.(map[string]any)
		if ok && part["type"] == "output_text" && part["annotations"] == nil { // the client adds an empty list
			part["annotations"] = []any{}
		}
	}
	text, _ := json.Marshal(item) //nolint:errchkjson // decoded JSON
	if err := json.Unmarshal(text, &message); err != nil {
		t.Error(err)
	}
	again, err := json.Marshal(message)
	if err != nil || json.Unmarshal(again, &read) != nil {
		t.Error(err)
	}
	return read
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a) //nolint:errchkjson // decoded JSON
	y, _ := json.Marshal(b) //nolint:errchkjson // decoded JSON
	return bytes.Equal(x, y)
}

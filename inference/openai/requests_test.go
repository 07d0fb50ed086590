package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/golden"
)

// A sender keeps the requests that it gets as texts. It answers {}, or with an error if it is asked for a completion.
type sender struct{ sent []string }

func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	text := r.Method + " " + r.URL.String() + "\n"
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		text += name + ": " + strings.Join(r.Header[name], "|") + "\n"
	}
	text += strings.ReplaceAll(string(body), "},{", "},\n{")
	s.sent = append(s.sent, text)
	status := http.StatusOK
	if strings.HasSuffix(r.URL.Path, "/completions") {
		status = http.StatusTeapot
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")),
		Request: r}, nil
}

// everyMessage returns a history with messages of every kind: calls whose ids, names and arguments a server may refuse,
// results that are missing, stand elsewhere or belong to no call, and answers of this provider and another.
func everyMessage() []inference.Message {
	raw := json.RawMessage(
		`{"role":"assistant","reasoning":"hm","reasoning_content":"hmm","reasoning_details":[{"type":"a","index":0},7],
		"content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"said"}],"extra_content":{"x":1},
		"tool_calls":[{"index":0,"id":"old","type":"function","extra_content":{"sign":"s"},"none":null,"function":{"name":"old","arguments":"old","more":2,"null":null}},{"id":"b"}]}`)
	call := func(id, name, arguments string) inference.Call {
		return inference.Call{ID: id, Name: name, Arguments: arguments}
	}
	answer := func(calls ...inference.Call) inference.Message {
		return inference.Message{Role: inference.RoleAssistant, Calls: calls}
	}
	result := func(id, text string) inference.Message {
		return inference.Message{Role: inference.RoleTool, CallID: id, Text: text}
	}
	of := func(provider string, m inference.Message) inference.Message {
		m.Raw, m.RawProvider = raw, provider
		return m
	}
	two := answer(call("call_one_1", "clock", ` {"a": 1} `), call("b", "read", `{"p":"<x>"}`))
	said, other := two, answer(call("a", "clock", "{}"))
	said.Text, other.Text = "said", "other words"
	return []inference.Message{
		{Role: inference.RoleSystem, Text: "Be brief."}, {Role: inference.RoleSystem}, {Role: inference.RoleUser,
			Text: "hi <b> & \"you\"\\\n\r\t\b\f\x01\u2028\u2029\xff"},
		result("lost", "of no call"), of("p", said), result("b", "second"), result("call_one_1", "first"),
		result("b", "again"),
		{Role: inference.RoleAssistant}, of("p", other), result("a", ""), of("q", two), {Role: inference.RoleUser},
		result("b", "late"),
		{Role: inference.RoleAssistant, Text: "plain", RawProvider: "p",
			Raw: json.RawMessage(`{"reasoning_content":"","content":[]}`)},
		{Role: inference.RoleAssistant, Text: "no JSON", RawProvider: "p", Raw: json.RawMessage(`{`)},
		answer(call("dup", "clock", "{}"), call("dup", "clock", "{}"), call("", "", ""), call("has space", "na me.ü",
			"null"), call(strings.Repeat("l", 64), strings.Repeat("n", 65), "[1]"),
			call(strings.Repeat("l", 65), "clock", `{"open":`), call("tilde~", "clock", strings.Repeat("é", 501)),
			call("abcDEF019", "clock", "{\"a\":\"\xff\"}"),
			call("abcDEF01", "clock", "7"), call("dot.", "clock", "{}"), call("\x7f", "clock", "{}")),
		result("dup", "one"), result("dup", "two"), result("", "of the empty id"),
		{Role: "", Text: "a role that is none"},
	}
}

// TestWhatEachProfileSends compares the requests of all profiles with testdata: the whole one of the generic profile,
// and the lines in which others differ from it. Each can be rendered again from its form.
func TestWhatEachProfileSends(t *testing.T) {
	full := inference.Request{Model: "m", Messages: everyMessage(), MaxOutputTokens: 9, User: "u",
		Temperature: new(0.25), Tools: []inference.ToolDefinition{
			{Name: "clock", Description: "Tells the time.",
				Parameters: json.RawMessage(`{"required":null,"properties":{"zone":{"type":"string"}},"title":"<t>"}`)},
			{Name: "clock", Description: "twice"}, {Name: "read", Parameters: json.RawMessage(`[]`)},
		}}
	with := func(change func(*inference.Request)) inference.Request {
		r := full
		change(&r)
		return r
	}
	var lines []string
	var generic map[string]bool
	show := func(name string, profile openai.Profile, req inference.Request) {
		s := &sender{}
		client := newClient(t, openai.Config{Name: "p", BaseURL: "http://h/v1/openai", APIKey: "k", Profile: profile,
			HTTPClient: &http.Client{Transport: s}})
		_, _ = client.Generate(t.Context(), req, nil)
		_, body, _ := strings.Cut(s.sent[0], "{")
		if faults := inferencetest.Violations([]byte("{" + body)); faults != nil {
			t.Errorf("%s: %q", name, faults)
		}
		lines = append(lines, "# "+name)
		these := map[string]bool{}
		for line := range strings.SplitSeq(s.sent[0], "\n") {
			these[line] = true
			if !generic[line] {
				lines = append(lines, line)
			}
		}
		if generic == nil {
			generic = these
		}
	}
	show("generic", openai.Profile{}, full)
	for _, name := range openai.ProfileNames() {
		profile, _ := openai.ProfileNamed(name)
		show(name, profile, full)
	}
	extra := map[string]json.RawMessage{"seed": json.RawMessage(`7`), "model": json.RawMessage(`"x"`),
		"messages": json.RawMessage(`[]`)}
	show("other switches", openai.Profile{NoStream: true, EmptyContent: openai.ContentOmit, TokenField: "limit",
		Extra: extra}, full)
	show("no calls allowed", openai.Profile{}, with(func(r *inference.Request) {
		r.ToolChoice = inference.ToolChoiceNone
	}))
	show("tools of before", openai.Profile{}, with(func(r *inference.Request) { r.Tools = nil }))
	show("only messages", openai.Profile{}, with(func(r *inference.Request) {
		*r = inference.Request{Model: r.Model, Messages: r.Messages[:3]}
	}))
	show("with reasoning", openai.Profile{}, with(func(r *inference.Request) { r.Reasoned = true }))
	show("with required reasoning", openai.Profile{Reasoning: openai.ReasoningRequire},
		with(func(r *inference.Request) { r.Reasoned = true }))
	golden.File(t, "testdata/requests.txt", strings.Join(lines, "\n")+"\n")
}

// TestWhereRequestsGo compares the addresses and headers of all kinds of requests with testdata.
func TestWhereRequestsGo(t *testing.T) {
	var lines []string
	for _, base := range []string{"", "http://h/v1", "https://ann:pass@h:8/a%2Fb/openai/?x=1#frag"} {
		for _, name := range []string{"generic", "azure", "anthropic", "ollama", "llamacpp"} {
			profile, _ := openai.ProfileNamed(name)
			s := &sender{}
			client := newClient(t, openai.Config{
				Name: "p", BaseURL: base, APIKey: "k", Profile: profile, HTTPClient: &http.Client{Transport: s},
				Headers: map[string]openai.Secret{"x-own": "mine", "user-agent": "other"},
				Query:   map[string]openai.Secret{"api-version": "1", "x": "2"},
			})
			_, _ = client.Generate(t.Context(), inference.Request{Model: "m/1", Messages: question.Messages}, nil)
			_, _, _ = client.Models(t.Context())
			_, _ = client.Window(t.Context(), "m/1")
			lines = append(lines, fmt.Sprintf("# %s at %q", name, base))
			lines = append(lines, s.sent...)
		}
	}
	client := newClient(t, openai.Config{Name: "p", BaseURL: "http://h",
		HTTPClient: &http.Client{Transport: &sender{}}})
	if !client.Streams() || newClient(t, openai.Config{Name: "p", Profile: openai.Profile{NoStream: true}}).Streams() {
		t.Error("a client does not know whether its answers stream")
	}
	golden.File(t, "testdata/addresses.txt", strings.Join(lines, "\n")+"\n")
}

package messages_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/messages"
)

// The answers in this package are written by hand, in the shapes of Anthropic's documentation.

// A server answers every request in the same way.
type server struct {
	status      int
	contentType string
	answer      string
	sent        []byte // the last body
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var err error
	if s.sent, err = io.ReadAll(r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{"Content-Type": {s.contentType}},
		Body: io.NopCloser(strings.NewReader(s.answer)), Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

func (s *server) client(tb testing.TB, profile openai.Profile) *openai.Client {
	tb.Helper()
	profile.API, profile.Separates = openai.APIMessages, true
	c, err := openai.New(openai.Config{Name: "p", BaseURL: "http://h/v1", Profile: profile, Read: messages.Read,
		HTTPClient: &http.Client{Transport: s}})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func streaming(events ...string) *server {
	var b strings.Builder
	for _, e := range events {
		var k struct{ Type string }
		_ = json.Unmarshal([]byte(e), &k)
		b.WriteString("event: " + k.Type + "\ndata: " + e + "\n\n")
	}
	return &server{status: 200, contentType: "text/event-stream", answer: b.String()}
}

func whole(status int, body string) *server {
	return &server{status: status, contentType: "application/json", answer: body}
}

// Parts of streams.
const (
	begun = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"output_tokens":1}}}`
	ping  = `{"type":"ping"}`
	ended = `{"type":"message_stop"}`
)

func started(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
}

func delta(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":` + delta + `}`
}

func stopped(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

func because(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"output_tokens":15}}`
}

func text(index, s string) []string {
	return []string{started(index, `{"type":"text","text":""}`), delta(index, `{"type":"text_delta","text":"`+s+`"}`),
		stopped(index)}
}

func call(index, id, name string, pieces ...string) []string {
	events := []string{started(index, `{"type":"tool_use","id":"`+id+`","name":"`+name+`","input":{}}`)}
	for _, p := range pieces {
		quoted, _ := json.Marshal(p) //nolint:errchkjson // a text
		events = append(events, delta(index, `{"type":"input_json_delta","partial_json":`+string(quoted)+`}`))
	}
	return append(events, stopped(index))
}

// join returns a stream of events and lists of events.
func join(parts ...any) (all []string) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			all = append(all, p)
		case []string:
			all = append(all, p...)
		}
	}
	return all
}

var request = inference.Request{Model: "claude-x", Messages: []inference.Message{{Role: inference.RoleUser,
	Text: "hi"}},
	Tools: []inference.ToolDefinition{{Name: "clock"}, {Name: "read_file"}}}

var used = turnkeeper.Usage{InputTokens: 1125, OutputTokens: 15, CachedTokens: 1000, CacheWriteTokens: 100}

// deltas adds up what is streamed.
type deltas struct {
	said, thought string
	calls         []string
}

func (d *deltas) add(delta inference.Delta) {
	switch delta.Kind {
	case inference.DeltaText:
		d.said += delta.Text
	case inference.DeltaThinking:
		d.thought += delta.Text
	case inference.DeltaTool:
		if delta.Name != "" {
			d.calls = append(d.calls, delta.Name)
		}
		d.calls[delta.Index] += delta.Text
	}
}

// generate returns the answer of a server, and checks that what was streamed adds up to it.
func generate(t *testing.T, s *server, profile openai.Profile) (inference.Response, error) {
	t.Helper()
	var streamed deltas
	res, err := s.client(t, profile).Generate(t.Context(), request, streamed.add)
	if err != nil {
		return res, err
	}
	want := deltas{said: res.Text, thought: res.Reasoning}
	for _, c := range res.Calls {
		want.calls = append(want.calls, c.Name+c.Arguments)
	}
	if !reflect.DeepEqual(want, streamed) {
		t.Errorf("streamed %+v, want %+v", streamed, want)
	}
	res.Sent, res.Provider = inference.Sent{}, ""
	return res, nil
}

func said(text, reason string) inference.Response {
	return inference.Response{ID: "msg_1", Model: "claude-x", Text: text, FinishReason: reason, Usage: used}
}

func asks(reason string, calls ...inference.Call) inference.Response {
	res := said("", reason)
	res.Calls = calls
	return res
}

func with(res inference.Response, change func(*inference.Response)) inference.Response {
	change(&res)
	return res
}

func raw(text string) func(*inference.Response) {
	return func(r *inference.Response) { r.Raw = json.RawMessage(text) }
}

func doubt(why string) func(*inference.Response) {
	return func(r *inference.Response) { r.Doubt = why }
}

func TestStreams(t *testing.T) {
	clock := inference.Call{ID: "toolu_1", Name: "clock", Arguments: "{}"}
	read := inference.Call{ID: "toolu_2", Name: "read_file", Arguments: `{"path": "x y"}`}
	reading := call("1", "toolu_2", "read_file", "", `{"pa`, `th": "x`, ` y"}`)
	for name, tc := range map[string]struct {
		events []string
		want   inference.Response
	}{
		"text": {join(begun, ping, text("0", "hel\\ud83c"), text("1", "\\udf0d"), because("end_turn"), ended),
			with(said("hel\uFFFD\uFFFD", "end_turn"), raw(`[{"text":"hel�","type":"text"},{"text":"�","type":"text"}]`))},
		"a pair of surrogates in two deltas": {join(begun, started("0", `{"type":"text","text":"h"}`),
			delta("0", `{"type":"text_delta","text":"\ud83c"}`), delta("0", `{"type":"text_delta","text":"\udf0d"}`),
			stopped("0"), because("end_turn"), ended), said("h🌍", "end_turn")},
		"events and deltas that nobody knows": {join(begun, `{"type":"new_event","index":0}`,
			started("0", `{"type":"text","text":""}`), delta("0", `{"type":"new_delta","score":[1]}`),
			delta("0", `{"type":"text_delta","text":"hi"}`), stopped("0"), because("stop_sequence"), ended),
			with(said("hi", "stop_sequence"), raw(`[{"score":[1],"text":"hi","type":"text"}]`))},
		"thinking": {join(begun, started("0", `{"type":"thinking","thinking":"","signature":""}`),
			delta("0", `{"type":"thinking_delta","thinking":"let me "}`),
			delta("0", `{"type":"thinking_delta","thinking":"see"}`),
			delta("0", `{"type":"signature_delta","signature":"c2ln+/=="}`), stopped("0"), text("1", "hi"),
			because("end_turn"), ended), with(said("hi", "end_turn"), func(r *inference.Response) {
			r.Reasoning = "let me see"
			raw(`[{"signature":"c2ln+/==","thinking":"let me see","type":"thinking"},{"text":"hi","type":"text"}]`)(r)
		})},
		"thinking that is not shown, an empty text, and redacted thinking": {join(begun,
			started("0", `{"type":"thinking","thinking":"","signature":""}`),
			delta("0", `{"type":"signature_delta","signature":"s1"}`), stopped("0"),
			started("1", `{"type":"text","text":""}`), stopped("1"),
			started("2", `{"type":"redacted_thinking","data":"ZGF0YQ"}`), stopped("2"),
			call("3", "toolu_1", "clock"), because("tool_use"), ended),
			with(asks("tool_use", clock), raw(`[{"signature":"s1","thinking":"","type":"thinking"},{"text":"","type":"text"},`+
				`{"data":"ZGF0YQ","type":"redacted_thinking"},{"id":"toolu_1","input":{},"name":"clock","type":"tool_use"}]`))},
		"parallel calls after a text": {join(begun, text("0", "Wait."), reading, call("2", "toolu_1", "clock", ""),
			because("tool_use"), ended), with(said("Wait.", "tool_use"), func(r *inference.Response) {
			r.Calls = []inference.Call{read, clock}
		})},
		"pieces of calls that interleave": {join(begun, started("0", `{"type":"tool_use","id":"a","name":"clock","input":{}}`),
			started("1", `{"type":"tool_use","id":"b","name":"clock","input":{}}`),
			delta("0", `{"type":"input_json_delta","partial_json":"{\"a\":"}`),
			delta("1", `{"type":"input_json_delta","partial_json":"{\"b\":2}"}`),
			delta("0", `{"type":"input_json_delta","partial_json":"1}"}`), stopped("1"), stopped("0"),
			because("tool_use"), ended), asks("tool_use", inference.Call{ID: "a", Name: "clock", Arguments: `{"a":1}`},
			inference.Call{ID: "b", Name: "clock", Arguments: `{"b":2}`})},
		"a caller of a call": {join(begun, started("0", `{"type":"tool_use","id":"toolu_1","name":"clock","input":{},"caller":{"type":"direct"}}`),
			stopped("0"), because("tool_use"), ended), with(asks("tool_use", clock),
			raw(`[{"caller":{"type":"direct"},"id":"toolu_1","input":{},"name":"clock","type":"tool_use"}]`))},
		"texts with another block between": {join(begun, text("0", "One."),
			started("1", `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`),
			delta("1", `{"type":"input_json_delta","partial_json":"{\"q\":1}"}`), stopped("1"),
			started("2", `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"url":"u","text":{"a":1}}]}`),
			stopped("2"), started("3", `{"type":"text","text":"","citations":[]}`),
			delta("3", `{"type":"citations_delta","citation":{"type":"char_location","cited_text":"c"}}`),
			delta("3", `{"type":"text_delta","text":"Two."}`), stopped("3"), text("4", " Three."), because("end_turn"),
			ended), with(said("One.\n\nTwo. Three.", "end_turn"), raw(`[{"text":"One.","type":"text"},`+
			`{"id":"srvtoolu_1","input":{"q":1},"name":"web_search","type":"server_tool_use"},`+
			`{"content":[{"url":"u","text":{"a":1}}],"tool_use_id":"srvtoolu_1","type":"web_search_tool_result"},`+
			`{"citations":[{"type":"char_location","cited_text":"c"}],"text":"Two.","type":"text"},{"text":" Three.","type":"text"}]`))},
		"usage only at the end": {join(`{"type":"message_start","message":{"id":"msg_1","model":"claude-x","content":[]}}`,
			text("0", "hi"),
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"output_tokens":15,"output_tokens_details":{"thinking_tokens":4}}}`,
			ended), with(said("hi", "end_turn"), func(r *inference.Response) { r.Usage.ReasoningTokens = 4 })},
		"max_tokens within a call": {join(begun, call("0", "toolu_1", "clock", `{"a`), because("max_tokens"), ended),
			asks("max_tokens", inference.Call{ID: "toolu_1", Name: "clock", Arguments: `{"a`, Truncated: true})},
		"a call and a window that is full": {join(begun, call("0", "toolu_1", "clock"),
			because("model_context_window_exceeded"), ended), asks("model_context_window_exceeded",
			inference.Call{ID: "toolu_1", Name: "clock", Arguments: `{}`, Truncated: true})},
		"pause_turn": {join(begun, text("0", "hi"), because("pause_turn"), ended), said("hi", "pause_turn")},
		"a refusal within a text": {join(begun, text("0", "Hello.."),
			`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"It could harm."}},"usage":{"output_tokens":15}}`,
			ended), with(said("Hello..", "refusal"), func(r *inference.Response) { r.Refusal = "It could harm." })},
		"a stop reason that nobody knows": {join(begun, call("0", "toolu_1", "clock"), because("tired"), ended),
			with(asks("tired", clock), doubt("the stop reason is unknown: the answer may have been cut"))},
		"no stop reason": {join(begun, call("0", "toolu_1", "clock"), ended), with(asks("", clock),
			func(r *inference.Response) {
				r.Doubt, r.Usage.OutputTokens = "there is no stop reason: the answer may have been cut", 1
			})},
		"a call without its end": {join(begun, call("0", "toolu_1", "clock")[:1], because("tool_use"), ended),
			with(asks("tool_use", clock), doubt("a call has no end"))},
		"a piece after the end of a call": {join(begun, call("0", "toolu_1", "clock"),
			delta("0", `{"type":"input_json_delta","partial_json":"{}"}`), because("tool_use"), ended), inference.Response{}},
		"a piece of no call": {join(begun, call("0", "toolu_1", "clock"),
			delta("7", `{"type":"input_json_delta","partial_json":"{}"}`), because("tool_use"), ended),
			with(asks("tool_use", clock), doubt("a piece of a call fits no call"))},
		"two calls with one index, one after the other": {join(begun, call("0", "toolu_1", "clock"),
			call("0", "toolu_2", "read_file", `{"path": "x y"}`), because("tool_use"), ended), asks("tool_use",
			clock, read)},
		"two open calls with one index": {join(begun, call("0", "toolu_1", "clock")[:1], call("0", "toolu_2", "clock"),
			because("tool_use"), ended), inference.Response{}},
		"two inputs": {join(begun, started("0", `{"type":"tool_use","id":"toolu_1","name":"clock","input":{"a":1}}`),
			delta("0", `{"type":"input_json_delta","partial_json":"{}"}`), stopped("0"), because("tool_use"), ended),
			inference.Response{}},
		"the whole input at the beginning": {join(begun,
			started("0", `{"type":"tool_use","id":"toolu_1","name":"clock","input":{"a": 1}}`), stopped("0"),
			because("tool_use"), ended), asks("tool_use", inference.Call{ID: "toolu_1", Name: "clock",
			Arguments: `{"a":1}`})},
		"a call without a name and an id": {join(begun, started("0", `{"type":"tool_use","input":{}}`), stopped("0"),
			because("tool_use"), ended), with(asks("tool_use", inference.Call{Name: "unnamed_call", Arguments: "{}"}),
			doubt("a call has no name"))},
		"text of a block that did not begin": {join(begun, delta("0", `{"type":"text_delta","text":"hi"}`),
			because("end_turn"), ended), said("hi", "end_turn")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := generate(t, streaming(tc.events...), openai.Profile{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.ID == "" { // the calls may not be those of the model
				if got.Doubt == "" {
					t.Errorf("there is no doubt about %+v", got)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestWholeAnswersSayTheSame reads each answer of TestStreams' shapes once more, as the library puts it together.
func TestWholeAnswersSayTheSame(t *testing.T) {
	for name, events := range map[string][]string{
		"text": join(begun, text("0", "hi"), because("end_turn"), ended),
		"thinking and calls": join(begun, started("0", `{"type":"thinking","thinking":"","signature":""}`),
			delta("0", `{"type":"thinking_delta","thinking":"hm"}`), delta("0", `{"type":"signature_delta","signature":"sig"}`),
			stopped("0"), started("1", `{"type":"redacted_thinking","data":"ZGF0YQ"}`), stopped("1"), text("2", "Wait."),
			call("3", "toolu_1", "clock"), call("4", "toolu_2", "read_file", `{"path":`, `"x"}`),
			because("tool_use"), ended),
		"citations": join(begun, started("0", `{"type":"text","text":"","citations":[]}`),
			delta("0", `{"type":"citations_delta","citation":{"type":"char_location","cited_text":"c","document_index":0,"document_title":"d","start_char_index":0,"end_char_index":1,"file_id":null}}`),
			delta("0", `{"type":"text_delta","text":"hi"}`), stopped("0"), because("end_turn"), ended),
		"cut": join(begun, call("0", "toolu_1", "clock", `{"a":1}`), because("max_tokens"), ended),
		"refusal": join(begun, text("0", "Hel"),
			`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":"cyber","explanation":"no"}},"usage":{"output_tokens":15}}`,
			ended),
	} {
		t.Run(name, func(t *testing.T) {
			var m sdk.Message
			for _, data := range events {
				var e sdk.MessageStreamEventUnion
				if err := errors.Join(json.Unmarshal([]byte(data), &e), m.Accumulate(e)); err != nil {
					t.Fatal(err)
				}
			}
			streamed, err := generate(t, streaming(events...), openai.Profile{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := generate(t, whole(200, m.RawJSON()), openai.Profile{NoStream: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, streamed.Raw), decoded(t, got.Raw)); diff != "" {
				t.Errorf("the blocks (-streamed +whole):\n%s", diff)
			}
			streamed.Raw, got.Raw = nil, nil
			if diff := cmp.Diff(streamed, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-streamed +whole:\n%s", diff)
			}
		})
	}
}

func decoded(t *testing.T, data []byte) (v any) {
	t.Helper()
	if len(data) > 0 {
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// TestAnswersGoBackAsTheyCame sends answers back, and compares their blocks with those that came.
func TestAnswersGoBackAsTheyCame(t *testing.T) {
	blocks := `[{"type":"thinking","thinking":"","signature":"s1"},{"type":"text","text":""},
		{"type":"redacted_thinking","data":"ZGF0YQ"},{"type":"text","text":"Wait. <b> \u2028"},{"type":"later","of":{"b":1,"a":[2.50]}},
		{"type":"tool_use","id":"toolu_1","name":"clock","input":{"b": 1,"a":2.0},"caller":{"type":"direct"}}]`
	s := whole(200, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","stop_reason":"tool_use","content":`+
		blocks+`,"usage":{"input_tokens":1,"output_tokens":1}}`)
	client := s.client(t, openai.Profile{NoStream: true})
	res, err := client.Generate(t.Context(), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Calls[0].Arguments = `{"a":2,"b":1}` // as it is on record
	next := request
	next.Messages = append(next.Messages[:1:1],
		inference.Message{Role: inference.RoleAssistant, Text: res.Text, Calls: res.Calls, Raw: res.Raw,
			RawProvider: "p"},
		inference.Message{Role: inference.RoleTool, CallID: "toolu_1", Text: "noon"})
	sent, err := client.Generate(t.Context(), next, nil)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(blocks)); err != nil {
		t.Fatal(err)
	}
	again, err := openai.Render(sent.Sent.Form, next)
	if err != nil || !bytes.Equal(again, s.sent) || sent.Sent.Bytes != len(s.sent) {
		t.Errorf("rendered again: %s, %v", again, err)
	}
	if want := `{"role":"assistant","content":` + compact.String() + `}`; !strings.Contains(string(s.sent), want) {
		t.Errorf("sent %s, want %s", s.sent, want)
	}
}

// TestTheEndOfACallIsTold checks when a delta says that a call has come whole.
func TestTheEndOfACallIsTold(t *testing.T) {
	var said []string
	events := join(begun, text("0", "I look."), call("1", "a", "clock", `{"n":`, `1}`), started("2",
		`{"type":"tool_use","id":"b","name":"read_file","input":{}}`), delta("2", `{"type":"input_json_delta","partial_json":"{}"}`),
		because("tool_use"), `{"type":"message_stop"}`)
	_, err := streaming(events...).client(t, openai.Profile{}).Generate(t.Context(), inference.Request{Model: "m",
		Messages: []inference.Message{{Role: inference.RoleUser, Text: "hello"}}},
		func(d inference.Delta) {
			if d.Kind == inference.DeltaTool {
				said = append(said, fmt.Sprintf("%d %s%s %t", d.Index, d.Name, d.Text, d.Done))
			}
		})
	want := []string{"0 clock false", `0 {"n": false`, "0 1} false", "0  true", "1 read_file false", "1 {} false"}
	if diff := cmp.Diff(want, said); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

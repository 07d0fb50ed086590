package inferencetest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
)

// body returns the body that a Provider sends for a request, to a strict server.
func (s suite) body(t *testing.T, req inference.Request, change ...func(*Target)) (map[string]any, Chat) {
	t.Helper()
	recorded := s.sent(t, req, change...)
	var sent map[string]any
	if err := json.Unmarshal(recorded.Body, &sent); err != nil {
		t.Fatal(err)
	}
	return sent, recorded.Chat()
}

// sent returns the request that a Provider sends to a strict server.
func (s suite) sent(t *testing.T, req inference.Request, change ...func(*Target)) Recorded {
	t.Helper()
	server := NewServer(Text("ok")).Strict()
	if _, err := s.provider(t, server, change...).Generate(t.Context(), req, nil); err != nil {
		t.Errorf("refused: %v", err)
	}
	return server.Requests()[0]
}

func answered(calls ...inference.Call) inference.Message {
	return inference.Message{Role: inference.RoleAssistant, Calls: calls}
}

func result(id, text string) inference.Message {
	return inference.Message{Role: inference.RoleTool, CallID: id, Text: text}
}

func (s suite) requests(t *testing.T) {
	t.Run("1.1 a plain request", s.plainRequest)
	t.Run("2 a whole answer asks for no stream and no stream_options", s.wholeAnswerRequest)
	t.Run("1.1 no tools is no list of tools", s.noTools)
	t.Run("1.1 a tool without parameters gets an empty object", s.noParameters)
	t.Run("2 tool_choice none keeps the tools", s.toolChoiceNone)
	t.Run("2 calls in a history without tools are declared", s.formerTools)
	t.Run("1.1 limits", s.limits)
}

func (s suite) plainRequest(t *testing.T) {
	req := plainRequest()
	req.Messages = append([]inference.Message{{Role: inference.RoleSystem, Text: "Be <brief> & kind."}},
		req.Messages...)
	sent, _ := s.body(t, req)
	want := map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true},
		"messages": []any{
			map[string]any{"role": "system", "content": "Be <brief> & kind."},
			map[string]any{"role": "user", "content": "hello"},
		},
		"tools": []any{
			map[string]any{"type": "function", "function": map[string]any{"name": "clock",
				"description": "Tells the time.", "parameters": map[string]any{"type": "object",
					"properties": map[string]any{}}}},
			map[string]any{"type": "function", "function": map[string]any{"name": "read_file",
				"parameters": map[string]any{"type": "object",
					"properties": map[string]any{"path": map[string]any{"type": "string"}}}}},
		},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}

func (s suite) wholeAnswerRequest(t *testing.T) {
	sent, _ := s.body(t, plainRequest(), wholeAnswers)
	if sent["stream"] == true || sent["stream_options"] != nil {
		t.Errorf("sent %v", sent)
	}
}

func (s suite) noTools(t *testing.T) {
	for _, tools := range [][]inference.ToolDefinition{nil, {}} {
		req := plainRequest()
		req.Tools = tools
		sent, _ := s.body(t, req)
		for _, name := range []string{"tools", "tool_choice"} {
			if _, ok := sent[name]; ok {
				t.Errorf("sent %s: %v", name, sent[name])
			}
		}
	}
}

func (s suite) noParameters(t *testing.T) {
	req := plainRequest()
	req.Tools = []inference.ToolDefinition{{Name: "a"}, {Name: "b", Parameters: json.RawMessage(`null`)},
		{Name: "c", Parameters: json.RawMessage(`{"type":"object"}`)}}
	sent, _ := s.body(t, req)
	for _, tool := range sent["tools"].([]any) {
		got := tool.(map[string]any)["function"].(map[string]any)["parameters"]
		if diff := cmp.Diff(map[string]any{"type": "object", "properties": map[string]any{}}, got); diff != "" {
			t.Error(diff)
		}
	}
}

func (s suite) toolChoiceNone(t *testing.T) {
	req := plainRequest()
	req.ToolChoice = inference.ToolChoiceNone
	sent, chat := s.body(t, req)
	if sent["tool_choice"] != "none" || len(chat.Tools) != 2 {
		t.Errorf("sent tool_choice %v, %d tools", sent["tool_choice"], len(chat.Tools))
	}
}

func (s suite) formerTools(t *testing.T) {
	req := plainRequest()
	req.Tools = nil
	req.Messages = append(req.Messages, answered(called("a", "clock", "{}")), result("a", "noon"))
	sent, chat := s.body(t, req)
	if len(chat.Tools) != 1 || sent["tool_choice"] != "none" {
		t.Errorf("sent tools %s, tool_choice %v", chat.Tools, sent["tool_choice"])
	}
}

func (s suite) limits(t *testing.T) {
	temperature := 0.5
	req := plainRequest()
	req.MaxOutputTokens, req.Temperature, req.User = 100, &temperature, "turn-7"
	sent, _ := s.body(t, req)
	if sent["max_tokens"] != 100.0 && sent["max_completion_tokens"] != 100.0 || sent["temperature"] != 0.5 ||
		sent["user"] != "turn-7" {
		t.Errorf("sent %v", sent)
	}
}

// An exchange is a call with its result.
type exchange struct{ ID, Name, Arguments, Result string }

func exchanges(chat Chat) []exchange {
	results := map[string]string{}
	for _, m := range chat.Messages {
		if m.Role == "tool" {
			results[m.ToolCallID] = m.Text()
		}
	}
	var all []exchange
	for _, m := range chat.Messages {
		for _, c := range m.ToolCalls {
			all = append(all, exchange{c.ID, c.Function.Name, c.Function.Arguments, results[c.ID]})
		}
	}
	return all
}

// replay tests histories that servers would refuse unchanged.
func (s suite) replay(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history []inference.Message
		expect  []exchange // empty ID: any
	}{
		{name: "1.4 a call and its result keep their id",
			history: []inference.Message{answered(called("call_abc", "clock", `{"a":1}`)), result("call_abc", "noon")},
			expect:  []exchange{{"call_abc", "clock", `{"a":1}`, "noon"}}},
		{name: "1.4 empty arguments", history: []inference.Message{answered(called("a", "clock", "")),
			result("a", "noon")},
			expect: []exchange{{"a", "clock", "{}", "noon"}}},
		{name: "2 null arguments", history: []inference.Message{answered(called("a", "clock", "null")),
			result("a", "noon")},
			expect: []exchange{{"a", "clock", "{}", "noon"}}},
		{name: "2 arguments that are no JSON (poisoned history)",
			history: []inference.Message{answered(called("a", "clock", `{"a": oops`)), result("a", "bad")},
			expect:  []exchange{{"a", "clock", `{"malformed_arguments":"{\"a\": oops"}`, "bad"}}},
		{name: "2 arguments that are no object", history: []inference.Message{answered(called("a", "clock", `[1]`)),
			result("a", "bad")},
			expect: []exchange{{"a", "clock", `{"malformed_arguments":"[1]"}`, "bad"}}},
		{name: "2 a missing id", history: []inference.Message{answered(called("", "clock", "{}")), result("", "noon")},
			expect: []exchange{{"", "clock", "{}", "noon"}}},
		{name: "2 two calls of one message with one id",
			history: []inference.Message{answered(called("a", "clock", "{}"), called("a", "read_file", "{}")),
				result("a", "noon"), result("a", "text")},
			expect: []exchange{{"a", "clock", "{}", "noon"}, {"", "read_file", "{}", "text"}}},
		{name: "2 an id reused by a later message", history: []inference.Message{answered(called("a", "clock", "{}")),
			result("a", "noon"), answered(called("a", "clock", "{}")), result("a", "one")},
			expect: []exchange{{"a", "clock", "{}", "noon"}, {"", "clock", "{}", "one"}}},
		{name: "2 an id of more than 64 characters",
			history: []inference.Message{answered(called(strings.Repeat("x", 65), "clock", "{}")),
				result(strings.Repeat("x", 65), "noon")},
			expect: []exchange{{"", "clock", "{}", "noon"}}},
		{name: "2 a call without a result", history: []inference.Message{answered(called("a", "clock", "{}"),
			called("b", "clock", "{}")), result("b", "noon")},
			expect: []exchange{{"a", "clock", "{}", "error: there is no record of this call's result"},
				{"b", "clock", "{}", "noon"}}},
		{name: "2 a call without a result before one that reuses its id",
			history: []inference.Message{answered(called("a", "clock", "{}")), answered(called("a", "clock", "{}")),
				result("a", "noon")},
			expect: []exchange{{"a", "clock", "{}", "error: there is no record of this call's result"},
				{"", "clock", "{}", "noon"}}},
		{name: "2 a result without a call", history: []inference.Message{result("zzz", "orphan")}},
		{name: "2 a second result", history: []inference.Message{answered(called("a", "clock", "{}")),
			result("a", "noon"), result("a", "again")},
			expect: []exchange{{"a", "clock", "{}", "noon"}}},
		{name: "2 a result after another message", history: []inference.Message{answered(called("a", "clock", "{}")),
			{Role: inference.RoleUser, Text: "and?"}, result("a", "noon")},
			expect: []exchange{{"a", "clock", "{}", "noon"}}},
		{name: "2 results out of order", history: []inference.Message{answered(called("a", "clock", "{}"),
			called("b", "clock", "{}")), result("b", "second"), result("a", "first")},
			expect: []exchange{{"a", "clock", "{}", "first"}, {"b", "clock", "{}", "second"}}},
		{name: "2 a tool name that cannot be", history: []inference.Message{answered(called("a", "my tool.v2", "{}"),
			called("b", "", "{}")), result("a", "no"), result("b", "no")},
			expect: []exchange{{"a", "my_tool_v2", "{}", "no"}, {"b", "unknown", "{}", "no"}}},
		{name: "2 a tool name of more than 64 characters",
			history: []inference.Message{answered(called("a", strings.Repeat("x", 65), "{}")), result("a", "no")},
			expect:  []exchange{{"a", strings.Repeat("x", 64), "{}", "no"}}},
		{name: "2 an answer of nothing", history: []inference.Message{answered()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := plainRequest()
			req.Messages = append(req.Messages, tc.history...)
			got := s.wire.exchanges(s.sent(t, req).Body)
			for i := range got {
				if i < len(tc.expect) && tc.expect[i].ID == "" {
					got[i].ID = ""
				}
			}
			if diff := cmp.Diff(tc.expect, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	group(s, t, "ids of nine letters and digits", s.nineCharacterIDs) // Mistral's
	t.Run("1.4 the same history is sent the same way (prompt caches)", s.stableHistory)
	group(s, t, "what completions send back of theirs", s.raw)
	t.Run("2 plain answers need no replay", s.plainAnswersNeedNoReplay)
}

func (s suite) nineCharacterIDs(t *testing.T) {
	req := plainRequest()
	req.Messages = append(req.Messages, answered(called("call_abc", "clock", "{}"), called("", "clock", "{}"),
		called("abcdefgh1", "clock", "{}")))
	_, chat := s.body(t, req, func(target *Target) { target.IDs9 = true })
	nine := regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)
	calls := chat.Messages[1].ToolCalls
	for _, c := range calls {
		if !nine.MatchString(c.ID) {
			t.Errorf("sent the id %q", c.ID)
		}
	}
	if calls[2].ID != "abcdefgh1" {
		t.Errorf("an id that fits became %q", calls[2].ID)
	}
}

func (s suite) stableHistory(t *testing.T) {
	req := plainRequest()
	req.Messages = append(req.Messages, answered(called("", "clock", "{}"), called("", "clock", "{}")))
	once := s.wire.exchanges(s.sent(t, req).Body)
	req.Messages = append(req.Messages, inference.Message{Role: inference.RoleUser, Text: "go on"})
	if diff := cmp.Diff(once, s.wire.exchanges(s.sent(t, req).Body)); diff != "" {
		t.Error(diff)
	}
}

type rawCase struct {
	name  string
	reply Reply
	want  map[string]any // members of the assistant message that is sent back
	call  map[string]any // members of its call, in addition to those of every call
}

// raw tests that a provider's own message is sent back to that provider only.
func (s suite) raw(t *testing.T) {
	for _, tc := range []rawCase{
		{"2 reasoning_content (DeepSeek)",
			SSE(delta(`{"reasoning_content":"hm, "}`), delta(`{"reasoning_content":"so"}`),
				toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			map[string]any{"reasoning_content": "hm, so"}, nil},
		{"2 thought_signature (Gemini)",
			SSE(
				toolDelta(
					`{"index":0,"id":"a","type":"function","function":{"name":"clock","arguments":"{}"},"extra_content":{"google":{"thought_signature":"sig"}}}`), finish("tool_calls")),
			nil, map[string]any{"extra_content": map[string]any{"google": map[string]any{"thought_signature": "sig"}}}},
		{"2 thought_signature (Gemini), whole",
			message(
				`{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"clock","arguments":"{}"},"extra_content":{"google":{"thought_signature":"sig"}}}]}`, "tool_calls"),
			nil, map[string]any{"extra_content": map[string]any{"google": map[string]any{"thought_signature": "sig"}}}},
		{"2 reasoning_details (OpenRouter)",
			SSE(delta(`{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm, "}]}`),
				delta(`{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"so","signature":"s"}]}`),
				delta(`{"reasoning_details":[{"type":"reasoning.encrypted","index":1,"data":"xyz"}]}`),
				toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			map[string]any{"reasoning_details": []any{
				map[string]any{"type": "reasoning.text", "index": 0.0, "text": "hm, so", "signature": "s"},
				map[string]any{"type": "reasoning.encrypted", "index": 1.0, "data": "xyz"},
			}}, nil},
		{"2 thinking parts (Mistral)",
			message(
				`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"one moment"}],"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{}"}}]}`, "tool_calls"),
			map[string]any{"content": []any{
				map[string]any{"type": "thinking", "thinking": []any{map[string]any{"type": "text", "text": "hm"}}},
				map[string]any{"type": "text", "text": "one moment"},
			}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.rawCase(t, tc)
		})
	}
}

func (s suite) rawCase(t *testing.T, tc rawCase) {
	server := NewServer(tc.reply)
	res, err := s.provider(t, server).Generate(t.Context(), plainRequest(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Calls) != 1 || res.Raw == nil {
		t.Fatalf("got %+v", res)
	}
	assistant, call := s.sendBack(t, res, suiteProvider)
	if diff := cmp.Diff(tc.want, pick(assistant, tc.want)); diff != "" {
		t.Errorf("the message (-want +got):\n%s", diff)
	}
	plain := map[string]any{"id": "wire_1", "type": "function", "function": map[string]any{"name": "clock",
		"arguments": `{"mended":true}`}}
	if diff := cmp.Diff(plain, pick(call, plain)); diff != "" {
		t.Errorf("the call (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(tc.call, pick(call, tc.call)); diff != "" {
		t.Errorf("beside the call (-want +got):\n%s", diff)
	}
	other, otherCall := s.sendBack(t, res, "another")
	for name, value := range tc.want {
		if cmp.Equal(value, other[name]) {
			t.Errorf("%s is sent to another provider", name)
		}
	}
	if diff := cmp.Diff(plain, otherCall); diff != "" {
		t.Errorf("the call for another provider (-want +got):\n%s", diff)
	}
}

// sendBack puts an answer of a provider into the history, with another id and other arguments,
// and returns the message and the call that are sent for it.
func (s suite) sendBack(t *testing.T, res inference.Response, provider string) (message, call map[string]any) {
	t.Helper()
	mended := res.Calls[0]
	mended.ID, mended.Arguments = "wire_1", `{"mended":true}`
	req := plainRequest()
	req.Messages = append(req.Messages, inference.Message{
		Role: inference.RoleAssistant, Text: res.Text, Calls: []inference.Call{mended}, Raw: res.Raw,
		RawProvider: provider,
	}, result("wire_1", "noon"))
	sent, _ := s.body(t, req)
	message = sent["messages"].([]any)[1].(map[string]any)
	return message, message["tool_calls"].([]any)[0].(map[string]any)
}

func (s suite) plainAnswersNeedNoReplay(t *testing.T) {
	server := NewServer(Calls(Call{Name: "clock"}))
	res, err := s.provider(t, server).Generate(t.Context(), plainRequest(), nil)
	if err != nil || res.Raw != nil {
		t.Errorf("got raw %s, %v", res.Raw, err)
	}
}

// pick returns the members of got that have the names of want, or nil if there are none.
func pick(got, want map[string]any) map[string]any {
	if want == nil {
		return nil
	}
	picked := map[string]any{}
	for name := range want {
		picked[name] = got[name]
	}
	return picked
}

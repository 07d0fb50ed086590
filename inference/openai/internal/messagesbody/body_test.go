package messagesbody_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai/internal/messagesbody"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/limittest"
)

// one returns one of a few values, which makes collisions likely.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// randomMessages returns messages in any order.
func randomMessages(r *rand.Rand, n int) (messages []inference.Message) {
	for range n {
		m := inference.Message{
			Role: one(r, inference.RoleUser, inference.RoleAssistant, inference.RoleAssistant, inference.RoleTool,
				inference.RoleTool, inference.RoleSystem, ""),
			Text:   one(r, "", " \n", "text <b> \u2028", "\xff\x00"),
			CallID: one(r, "", "a", "b", "c"), RawProvider: one(r, "", "p", "q"),
			Raw: json.RawMessage(one(r, "", "null", "[]", "{}", `{"reasoning":"hm"}`, `[null]`, `[{"type":7}]`,
				`[{"type":"text","text":""},{"type":"text","text":"x"}]`, `[{"type":"thinking","thinking":"","signature":"s"}]`,
				`[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a","name":"clock","input":{"b": 1,"a":2}}]`,
				`[{"type":"later","text":{}},{"type":"tool_use","id":"z!","name":"clock"},{"type":"tool_use","name":7}]`)),
		}
		if m.Role == inference.RoleAssistant {
			for range r.IntN(4) {
				m.Calls = append(m.Calls, inference.Call{
					ID: one(r, "", "a", "b", "c", strings.Repeat("l", 70), "ü", "a.b"), Name: one(r, "clock", "",
						"no such tool"),
					Arguments: one(r, "{}", "", "null", "{", "[1]", `"x"`, ` {"a":2,"b":1} `, "{\"a\":\"\xff\"}"),
				})
			}
		}
		messages = append(messages, m)
	}
	return messages
}

// conversation returns whole rounds: a message of the user, answers with the results of their calls, and notes.
func conversation(r *rand.Rand, rounds int) (messages []inference.Message) {
	for round := range rounds {
		m := inference.Message{Role: inference.RoleAssistant, Text: one(r, "", "Wait.", "Done."), RawProvider: one(r,
			"p", "q")}
		raw := `[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"` + m.Text + `"}`
		for i := range r.IntN(3) {
			c := inference.Call{ID: one(r, fmt.Sprintf("toolu_%d_%d", round, i), "a"), Name: "clock",
				Arguments: one(r, "{}", `{"a": 1}`, "{")}
			m.Calls = append(m.Calls, c)
			raw += `,{"type":"tool_use","id":"` + c.ID + `","name":"clock","input":` + one(r, "{}", `{"a":1}`) + `}`
		}
		m.Raw = json.RawMessage(one(r, raw+"]", "", `{"content":[]}`))
		messages = append(messages, m)
		for _, c := range m.Calls {
			messages = append(messages, inference.Message{Role: inference.RoleTool, CallID: c.ID, Text: one(r, "",
				"noon")})
		}
		for range r.IntN(3) {
			messages = append(messages, inference.Message{Role: one(r, inference.RoleUser, inference.RoleSystem),
				Text: one(r, "note", "", "go on")})
		}
	}
	return messages
}

var tools = []inference.ToolDefinition{{Name: "clock", Description: "Tells the time."}, {Name: "clock"},
	{Name: "read", Parameters: json.RawMessage(`{"properties":{"path":{"type":"string"}},"required":null}`)}}

const mark = `,"cache_control":{"type":"ephemeral"}`

// render returns a body, and checks that it is the same twice, and that a strict server takes it.
func render(t *testing.T, req inference.Request) string {
	t.Helper()
	o := messagesbody.Options{Provider: "p"}
	body, err := messagesbody.Render(o, req)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := messagesbody.Render(o, req); err != nil || !bytes.Equal(body, again) {
		t.Errorf("the same request is rendered as %s, and %s", body, again)
	}
	if faults := inferencetest.MessagesViolations(body); faults != nil {
		t.Errorf("%q in %s", faults, body)
	}
	return string(body)
}

// TestAnyHistoryIsAccepted renders random messages.
func TestAnyHistoryIsAccepted(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		req := inference.Request{Model: "m", Messages: append(randomMessages(r, r.IntN(12)),
			inference.Message{Role: inference.RoleUser, Text: "x"})}
		if r.IntN(2) == 0 {
			req.Tools = tools
		}
		if render(t, req); t.Failed() {
			t.Fatalf("seed %d: %+v", seed, req.Messages)
		}
	}
}

// TestExtendedRequestsKeepTheirBytes extends random conversations at their end: what was sent before stays, but for
// cache marks.
func TestExtendedRequestsKeepTheirBytes(t *testing.T) {
	for seed := range uint64(700) {
		r := rand.New(rand.NewPCG(seed, 2))
		req := inference.Request{Model: "m", Tools: tools, Messages: append([]inference.Message{
			{Role: inference.RoleSystem, Text: "Be brief."}, {Role: one(r, inference.RoleUser,
				inference.RoleAssistant), Text: "hi"}},
			conversation(r, r.IntN(4))...)}
		before := strings.ReplaceAll(render(t, req), mark, "")
		req.ToolChoice = one(r, inference.ToolChoiceAuto, inference.ToolChoiceNone)
		req.User, req.CacheKey = fmt.Sprint("turn-", seed), "k"
		req.Messages = append(req.Messages, conversation(r, 1+r.IntN(3))...)
		after := strings.ReplaceAll(render(t, req), mark, "")
		head, rest, _ := strings.Cut(before, `]}],"model"`)
		if t.Failed() || !strings.HasPrefix(after, head) || !strings.HasSuffix(after, `"model"`+rest) {
			t.Fatalf("seed %d:\n%s\n%s", seed, before, after)
		}
	}
}

// TestBodies compares bodies with testdata.
func TestBodies(t *testing.T) {
	raw := json.RawMessage(`[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":""},
		{"type":"tool_use","id":"toolu_1","name":"clock","input":{"zone": "UTC"}},{"type":"tool_use","id":"toolu_2","name":"read","input":{}}]`)
	calls := []inference.Call{{ID: "toolu_1", Name: "clock", Arguments: `{"zone":"UTC"}`},
		{ID: "toolu_2", Name: "read", Arguments: `{"path":"mended"}`}}
	history := []inference.Message{
		{Role: inference.RoleSystem, Text: "Be brief."}, {Role: inference.RoleSystem, Text: "Be kind."},
		{Role: inference.RoleUser, Text: "hi"}, {Role: inference.RoleUser, Text: "there"},
		{Role: inference.RoleAssistant, Calls: calls, Raw: raw, RawProvider: "p"},
		{Role: inference.RoleUser, Text: "A note."}, {Role: inference.RoleTool, CallID: "toolu_2", Text: "text"},
		{Role: inference.RoleTool, CallID: "toolu_1", Text: "noon"}, {Role: inference.RoleTool, CallID: "lost",
			Text: "x"},
		{Role: inference.RoleAssistant, Text: "It is noon."}, {Role: inference.RoleSystem, Text: "A later word."},
		{Role: inference.RoleAssistant, Calls: calls, Raw: raw, RawProvider: "q"},
		{Role: inference.RoleTool, CallID: "toolu_1", Text: " "},
	}
	full := inference.Request{Model: "m", Messages: history, Tools: tools, MaxOutputTokens: 9, User: "u", CacheKey: "k",
		Temperature: new(0.25), ToolChoice: inference.ToolChoiceNone, Reasoned: true}
	var text strings.Builder
	show := func(name string, o messagesbody.Options, req inference.Request) {
		body, err := messagesbody.Render(o, req)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "# %s\n%s\n", name, strings.ReplaceAll(string(body), "},{", "},\n{"))
	}
	show("a conversation", messagesbody.Options{Provider: "p"}, full)
	bare := full
	bare.Tools, bare.MaxOutputTokens, bare.Temperature = nil, 0, nil
	show("tools of before, more fields, and not streamed", messagesbody.Options{Provider: "p", NoStream: true,
		Extra: map[string]json.RawMessage{"thinking": json.RawMessage(`{"type":"enabled","budget_tokens":2000}`),
			"tool_choice": json.RawMessage(`{"type":"auto"}`), "model": json.RawMessage(`"x"`)}}, bare)
	show("an answer at the beginning, and no tools", messagesbody.Options{Provider: "p",
		Extra: map[string]json.RawMessage{"tool_choice": json.RawMessage(`{"type":"auto"}`)}},
		inference.Request{Model: "m", Messages: history[9:10]})
	golden.File(t, "testdata/bodies.txt", text.String())
	if _, err := messagesbody.Render(messagesbody.Options{}, inference.Request{Messages: history[:2]}); err == nil {
		t.Error("a request without a message was rendered")
	}
}

// TestLimits names the tests of the limits.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"DefaultMaxTokens": {Test: "TestBodies"}, "maxTail": {Test: "TestBodies"},
		"maxTemperature": {Test: "TestWhatCannotBeSent"}, "minBudget": {Test: "TestWhatCannotBeSent"},
		"minTopP": {Test: "TestWhatCannotBeSent"},
	})
}

// TestWhatCannotBeSent checks combinations of settings that the API refuses.
func TestWhatCannotBeSent(t *testing.T) {
	for extra, says := range map[string]string{
		`{}`: "", `{"top_p":0.5,"top_k":3,"temperature":0.5}`: "", `{"thinking":{"type":"disabled"},"top_k":3}`: "",
		`{"thinking":{"type":"adaptive"},"top_p":0.95,"temperature":1,"output_config":{"effort":"low"}}`: "",
		`{"thinking":{"type":"enabled","budget_tokens":1024}}`:                                           "",
		`{"thinking":{"type":"enabled","budget_tokens":1023}}`:                                           "extra.thinking.budget_tokens is 1023: the API demands at least 1024",
		`{"thinking":{"type":"enabled"}}`:                                                                "extra.thinking.budget_tokens is 0: the API demands at least 1024",
		`{"thinking":true}`:                                                                              "extra.thinking must be an object with a type, such as {type: adaptive}",
		`{"thinking":{"type":"adaptive"},"top_k":3}`:                                                     "extra has thinking and top_k, which the API refuses together",
		`{"thinking":{"type":"adaptive"},"top_p":0.94}`:                                                  "extra.top_p is 0.94: with thinking the API takes 0.95 to 1",
		`{"thinking":{"type":"adaptive"},"temperature":0.5}`:                                             "a temperature of 0.5 and thinking: the API refuses them together; leave one out",
		`{"max_tokens":5}`: "extra must not have max_tokens, which is set for each request",
	} {
		var decoded map[string]json.RawMessage
		if err := json.Unmarshal([]byte(extra), &decoded); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := messagesbody.Check(decoded); err != nil {
			got = err.Error()
		}
		if got != says {
			t.Errorf("%s: %q, want %q", extra, got, says)
		}
	}
	thinking := map[string]json.RawMessage{"thinking": json.RawMessage(`{"type":"enabled","budget_tokens":2000}`)}
	for _, tc := range []struct {
		tokens      int
		temperature *float64
		ok          bool
	}{{0, nil, true}, {2001, nil, true}, {2000, nil, false}, {0, new(1.0), true}, {0, new(0.5), false}} {
		if err := messagesbody.CheckAnswer(thinking, tc.tokens, tc.temperature); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	if messagesbody.CheckAnswer(nil, 0, new(1.0)) != nil || messagesbody.CheckAnswer(nil, 0, new(1.1)) == nil {
		t.Error("the greatest temperature is not 1")
	}
	body, err := messagesbody.Render(messagesbody.Options{Extra: thinking}, inference.Request{MaxOutputTokens: 1500,
		Temperature: new(0.5), Messages: []inference.Message{{Text: "Sum up."}}})
	if err != nil || strings.Contains(string(body), "thinking") {
		t.Errorf("a summary is asked for with %s, %v", body, err)
	}
}

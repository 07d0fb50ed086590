package responses_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
)

// randomRaw returns the answer of a provider, in its own form, another API's or none.
func randomRaw(r *rand.Rand) json.RawMessage {
	var items []string
	for range r.IntN(5) {
		items = append(items, one(r,
			`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}`,
			`{"type":"reasoning","id":"rs_2","encrypted_content":null,"status":"completed"}`,
			`{"type":"reasoning","encrypted_content":"e","summary":null,"content":[]}`,
			`{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"text"}]}`,
			`{"type":"message","id":"","role":"assistant","status":"completed","content":[{"type":"refusal","refusal":"no"}]}`,
			`{"role":"assistant","content":"text"}`, `{"type":"message","role":"assistant","content":null}`,
			`{"type":"function_call","id":"f1","call_id":"a","name":"clock","arguments":"{}"}`,
			`{"type":"function_call","id":"f2","call_id":"b","name":"clock","arguments":null,"x":null}`,
			`{"type":"function_call","id":7,"call_id":"b","name":"no such tool","arguments":{"a":1}}`,
			`{"type":"web_search_call","id":"w1"}`, `{"type":"custom_tool_call","id":"c1","call_id":"x"}`,
			`{"type":"compaction","id":"k","encrypted_content":"k"}`, `{"type":"local_shell_call_output"}`, `{"x":1}`))
	}
	return json.RawMessage(one(r, "["+strings.Join(items, ",")+"]", "["+strings.Join(items, ",")+"]",
		"["+strings.Join(items, ",")+"]", `{"role":"assistant","content":"text"}`, `[{"type":"tool_use"}]`, `[`, ""))
}

func randomCalls(r *rand.Rand) (calls []inference.Call) {
	for range r.IntN(4) {
		calls = append(calls, call(one(r, "", "a", "b", strings.Repeat("l", 70), "ü"),
			one(r, "clock", "", "no such tool"), one(r, "{}", "", "null", "{", "[1]", ` {"a":1} `, "{\"a\":\"\xff\"}")))
	}
	return calls
}

// randomTurn returns messages that any conversation can go on with: each call has its result, or none.
func randomTurn(r *rand.Rand) (messages []inference.Message) {
	switch r.IntN(4) {
	case 0:
		return []inference.Message{{Role: one(r, inference.RoleUser, inference.RoleSystem, ""),
			Text: one(r, "", "text", "\xff\x00")}}
	case 1:
		return []inference.Message{result(one(r, "a", "b", ""), "of no call")}
	}
	m := inference.Message{Role: inference.RoleAssistant, Text: one(r, "", "text", "text\n\ntext"),
		RawProvider: one(r, "p", "p", "p", "q", ""), Raw: randomRaw(r), Calls: randomCalls(r)}
	messages = append(messages, m)
	for _, n := range r.Perm(len(m.Calls)) {
		messages = append(messages, result(m.Calls[n].ID, one(r, "", "done")))
	}
	return messages
}

// parts returns the encoded parts of a body that caches compare.
func parts(t *testing.T, body []byte) (items []json.RawMessage, rest string) {
	t.Helper()
	var p struct {
		Input        []json.RawMessage `json:"input"`
		Instructions json.RawMessage   `json:"instructions"`
		Tools        json.RawMessage   `json:"tools"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	return p.Input, string(p.Instructions) + string(p.Tools)
}

// TestLongerRequestsBeginAlike extends random histories at their end. Strict servers accept each request, the same one
// is the same bytes again, also from its form, and a longer one begins with the bytes of a shorter one.
func TestLongerRequestsBeginAlike(t *testing.T) {
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 3))
		profile := openai.Profile{IDs: one(r, openai.IDAny, openai.IDNine, openai.IDWord),
			Reasoning: one(r, openai.ReasoningSame, openai.ReasoningSame, openai.ReasoningNever)}
		req := inference.Request{Model: "m", Tools: tools, Messages: []inference.Message{user("begin")}}
		if r.IntN(2) == 0 {
			req.Messages = append([]inference.Message{{Role: inference.RoleSystem, Text: "Be brief."}}, req.Messages...)
		}
		var before []json.RawMessage
		var rest string
		for round := range 5 {
			body, _ := sentFor(t, profile, req)
			again, _ := sentFor(t, profile, req)
			items, others := parts(t, body)
			same := len(items) >= len(before) && (round == 0 || others == rest) && bytes.Equal(body, again)
			for n, item := range before {
				same = same && bytes.Equal(item, items[n])
			}
			if !same || t.Failed() {
				t.Fatalf("seed %d, round %d: the request\n%s\ndoes not begin as\n%s", seed, round, body, before)
			}
			before, rest = items, others
			req.Messages = append(req.Messages, randomTurn(r)...)
		}
	}
}

// TestRenderedAgain checks that a stored form gives the bytes that were sent.
func TestRenderedAgain(t *testing.T) {
	w := &wire{contentType: "application/json", answer: []byte(
		`{"object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}]}`)}
	req := inference.Request{Model: "m", CacheKey: "k", Tools: tools, Messages: []inference.Message{user("hi"),
		rawAnswers[0].message, result("c1", "done")}}
	res, err := wired(t, w, openai.Profile{NoUser: true, Extra: map[string]json.RawMessage{
		"reasoning": json.RawMessage(`{"effort":"low"}`)}}).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openai.Render(res.Sent.Form, req)
	if err != nil || !bytes.Equal(again, w.sent) {
		t.Errorf("%v, rendered\n%s\nsent\n%s", err, again, w.sent)
	}
	if faults := inferencetest.ResponsesViolations(again); faults != nil {
		t.Error(faults)
	}
}

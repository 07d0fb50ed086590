package openai_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// one returns one of a few values, which makes collisions likely.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func randomHistory(r *rand.Rand) []inference.Message {
	var messages []inference.Message
	for range r.IntN(12) {
		m := inference.Message{
			Role: one(r, inference.RoleUser, inference.RoleAssistant, inference.RoleAssistant, inference.RoleTool,
				inference.RoleTool, inference.RoleSystem, ""),
			Text:   one(r, "", "text", "\xff\x00"),
			CallID: one(r, "", "a", "b", "c"), Tool: one(r, "", "clock"),
			RawProvider: one(r, "", "p", "q"),
			Raw: json.RawMessage(one(r, "", "null", "[]",
				`{"tool_calls":[{"id":"z","index":3,"function":{"arguments":[]}}],"content":[{"type":"text","text":"text"}]}`,
				`{"tool_calls":[null],"reasoning":"r","role":"user"}`,
				`{"content":[],"tool_call_id":"a","reasoning_details":[null]}`)),
		}
		for range r.IntN(4) {
			m.Calls = append(m.Calls, inference.Call{
				ID: one(r, "", "a", "b", "c", strings.Repeat("l", 70), "ü"), Name: one(r, "clock", "", "no such tool"),
				Arguments: one(r, "{}", "", "null", "{", "[1]", `"x"`, ` {"a":1} `, "{\"a\":\"\xff\"}"),
			})
		}
		messages = append(messages, m)
	}
	return messages
}

func TestAnyHistoryIsReplayable(t *testing.T) {
	names := openai.ProfileNames()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		profile, _ := openai.ProfileNamed(one(r, names...))
		w := &wire{contentType: "application/json"}
		req := inference.Request{Model: "m", Messages: randomHistory(r)}
		if r.IntN(2) == 0 {
			req.Tools = []inference.ToolDefinition{{Name: "clock"}, {Name: "clock", Parameters: json.RawMessage(`[]`)}}
		}
		if replayable(t, w, wired(t, w, profile), req); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestParallelCallsInAnyPieces streams calls whole, cut and interleaved in every unambiguous
// way, and expects them back.
func TestParallelCallsInAnyPieces(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		indexed, named := r.IntN(2) == 0, r.IntN(2) == 0
		interleave := indexed && r.IntN(2) == 0
		var want []inference.Call
		var pieces [][]string
		for i := range 1 + r.IntN(4) {
			call := inference.Call{Name: one(r, "clock", "read_file"), Arguments: one(r, `{"a":1}`,
				`{"path":"x/y","deep":{"er":[{}]}}`, `{"s":"}{\""}`)}
			if named {
				call.ID = fmt.Sprintf("id%d", i)
			}
			want = append(want, call)
			pieces = append(pieces, cutUp(r, call, i, indexed))
		}
		events := []string{}
		for {
			var left []int
			for i, p := range pieces {
				if len(p) > 0 {
					left = append(left, i)
				}
			}
			if len(left) == 0 {
				break
			}
			next := left[0]
			if interleave {
				next = one(r, left...)
			}
			events = append(events, `{"choices":[{"delta":{"tool_calls":[`+pieces[next][0]+`]}}]}`)
			pieces[next] = pieces[next][1:]
		}
		events = append(events, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`)
		w := &wire{contentType: "text/event-stream", answer: []byte("data: " + strings.Join(events,
			"\n\ndata: ") + "\n\n")}
		res, err := wired(t, w, openai.Profile{}).Generate(t.Context(), inference.Request{
			Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "x"}},
			Tools: []inference.ToolDefinition{{Name: "clock"}, {Name: "read_file"}},
		}, nil)
		if err != nil || fmt.Sprint(res.Calls) != fmt.Sprint(want) {
			t.Fatalf("seed %d: got %v, %v, want %v from\n%s", seed, res.Calls, err, want, strings.Join(events, "\n"))
		}
	}
}

func cutUp(r *rand.Rand, call inference.Call, index int, indexed bool) []string {
	cut := 1 + r.IntN(len(call.Arguments))
	repeatName := call.ID != "" && r.IntN(2) == 0
	var pieces []string
	for i, arguments := range []string{call.Arguments[:cut], call.Arguments[cut:]} {
		function := map[string]any{"arguments": arguments}
		piece := map[string]any{"function": function}
		if i == 0 || repeatName {
			function["name"] = call.Name
		}
		if call.ID != "" && (i == 0 || repeatName) {
			piece["id"] = call.ID
		}
		if indexed {
			piece["index"] = index
		}
		data, _ := json.Marshal(piece) //nolint:errchkjson // strings and numbers
		pieces = append(pieces, string(data))
	}
	return pieces
}

// TestLongAnswersTakeLinearMemory checks that four times the chunks do not take sixteen
// times the memory.
func TestLongAnswersTakeLinearMemory(t *testing.T) {
	for name, chunk := range map[string]string{
		"text":              `{"content":"word "}`,
		"reasoning":         `{"reasoning":"word ","reasoning_content":"word "}`,
		"reasoning_details": `{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"word "}]}`,
		"arguments":         `{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"word "}}]}`,
		"parts":             `{"content":[{"type":"text","text":"word "}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			short, long := allocated(t, chunk, 2000), allocated(t, chunk, 8000)
			if ratio := float64(long) / float64(short); ratio > 8 {
				t.Errorf("four times the chunks take %.1f times the memory", ratio)
			}
		})
	}
}

// allocated returns the number of bytes that reading an answer of n chunks allocates.
func allocated(t *testing.T, chunk string, n int) uint64 {
	t.Helper()
	events := strings.Repeat(`data: {"choices":[{"delta":`+chunk+`}]}`+"\n\n", n)
	events += `data: {"choices":[{"delta":{"content":"end"},"finish_reason":"stop"}]}` + "\n\n"
	w := &wire{contentType: "text/event-stream", answer: []byte(events)}
	c := wired(t, w, openai.Profile{})
	req := inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "x"}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.Generate(t.Context(), req, func(inference.Delta) {}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

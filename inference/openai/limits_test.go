package openai_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// TestBulkyAnswersAreRefused checks that answers of a provider with millions of values are refused
// before they are decoded.
func TestBulkyAnswersAreRefused(t *testing.T) {
	many := func(item string) string { return "[" + strings.Repeat(item+",", 15_000_000/(len(item)+1)) + item + "]" }
	calls := "data: " + `{"choices":[{"delta":{"tool_calls":[` + strings.Repeat(`{"function":{"name":"f","arguments":"{}"}},`, 1000)
	calls = strings.TrimSuffix(calls, ",") + "]}}]}\n\n"
	for name, c := range map[string]struct{ contentType, answer, says string }{
		"whole":  {"application/json", `{"choices":` + many(`{}`) + `}`, "the answer is not taken: it has more than 50000 JSON values"},
		"event":  {"text/event-stream", `data: {"choices":[{"delta":{"x":` + many(`[]`) + "}}]}\n\n", "the answer is not taken: it has more than 50000 JSON values"},
		"deep":   {"application/json", `{"choices":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "the answer is not taken: it has more than 128 levels of nested JSON objects and arrays"},
		"calls":  {"text/event-stream", strings.Repeat(calls, 3), "the answer is not taken: it has more than 2000 tool calls"},
		"errors": {"application/json", `{"error":{"message":"no","details":` + many(`{}`) + `}}`, "the answer is not taken: it has more than 50000 JSON values"},
	} {
		client := wired(t, &wire{contentType: c.contentType, answer: []byte(c.answer)}, openai.Profile{})
		var err error
		allocated := allocates(func() {
			_, err = client.Generate(t.Context(), inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}, nil)
		})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if allocated > 150<<20 {
			t.Errorf("%s: %d MiB were allocated", name, allocated>>20)
		}
	}
}

// TestABulkyListOfModels checks that such a list counts as none.
func TestABulkyListOfModels(t *testing.T) {
	entries, err := json.Marshal(make([]struct{}, 3_000_000))
	if err != nil {
		t.Fatal(err)
	}
	client := wired(t, &wire{contentType: "application/json", answer: []byte(`{"data":` + string(entries) + `}`)}, openai.Profile{})
	if allocated := allocates(func() {
		if all, known, err := client.Models(t.Context()); err != nil || known || len(all) > 0 {
			t.Errorf("%d models, %t, %v", len(all), known, err)
		}
	}); allocated > 150<<20 {
		t.Errorf("%d MiB were allocated", allocated>>20)
	}
}

// allocates returns how many bytes f allocates in total.
func allocates(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

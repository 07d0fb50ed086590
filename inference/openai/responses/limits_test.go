package responses_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/responses"
)

// read reads a stream to a request without tools.
func read(t *testing.T, stream string) (inference.Response, *inference.Error) {
	t.Helper()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}}
	return responses.Read(t.Context(), res, strings.NewReader(stream), inference.Request{}, nil, nil)
}

// TestLargeAnswers checks that answers beyond a limit are refused.
func TestLargeAnswers(t *testing.T) {
	const end = `{"type":"response.completed"}`
	many := func(line string, n int) string {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprintf(line, i))
		}
		return streamOf(strings.Join(append(lines, end), "\n"), true)
	}
	for name, c := range map[string]struct{ stream, says string }{
		"items": {many(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"x"}}`, 2001),
			"more than 2000 items"},
		"items of one event": {streamOf(`{"type":"response.completed","response":{"output":[`+
			strings.Repeat(`{"type":"x"},`, 2001)+`{}]}}`, true), "more than 2000 items"},
		"parts": {many(`{"type":"response.output_text.delta","content_index":%d,"delta":"x"}`, 2001),
			"more than 2000 parts"},
		"values": {streamOf(`{"type":"response.new","x":[`+strings.Repeat("0,", 60_000)+`0]}`, true),
			"more than 50000 JSON values"},
		"levels": {streamOf(`{"type":"response.new","x":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}`, true),
			"more than 128 levels"},
	} {
		_, failure := read(t, c.stream)
		if failure == nil || failure.Class != inference.ClassTransport || !strings.Contains(failure.Detail, c.says) {
			t.Errorf("%s: %v, want %q", name, failure, c.says)
		}
	}
}

// TestLongAnswersTakeLinearMemory checks that four times the events do not take sixteen times the memory.
func TestLongAnswersTakeLinearMemory(t *testing.T) {
	for name, line := range map[string]string{
		"text":      `{"type":"response.output_text.delta","item_id":"m","delta":"word "}`,
		"reasoning": `{"type":"response.reasoning_text.delta","item_id":"r","delta":"word "}`,
		"arguments": `{"type":"response.function_call_arguments.delta","item_id":"f","name":"look","delta":"word "}`,
		"ends": `{"type":"response.output_text.delta","item_id":"m","delta":"word word word"}
{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[]}}`,
	} {
		allocated := func(n int) uint64 {
			stream := streamOf(strings.Repeat(line+"\n", n)+`{"type":"response.output_text.delta","delta":"end"}
{"type":"response.completed"}`, false)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, failure := read(t, stream); failure != nil {
				t.Fatal(name, failure)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		if ratio := float64(allocated(4000)) / float64(allocated(1000)); ratio > 8 {
			t.Errorf("%s: four times the events take %.1f times the memory", name, ratio)
		}
	}
}

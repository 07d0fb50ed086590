package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/completions"
)

// BenchmarkStream reads a streamed answer of a hundred pieces of text and two tool calls.
func BenchmarkStream(b *testing.B) {
	var stream strings.Builder
	chunk := func(delta, finish string) {
		fmt.Fprintf(&stream,
			`data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
	}
	for range 100 {
		chunk(`{"role":"assistant","content":"ten words "}`, "null")
	}
	for i := range 2 {
		chunk(
			fmt.Sprintf(
				`{"tool_calls":[{"index":%d,"id":"call_%d","type":"function","function":{"name":"look","arguments":"{\"n\":1}"}}]}`, i, i), "null")
	}
	chunk(`{}`, `"tool_calls"`)
	stream.WriteString("data: [DONE]\n\n")
	answer := stream.String()
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}}
		got, failure := completions.Read(b.Context(), res, strings.NewReader(answer), inference.Request{}, nil, nil)
		if failure != nil || len(got.Calls) != 2 {
			b.Fatal(got, failure)
		}
	}
}

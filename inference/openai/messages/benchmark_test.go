package messages_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/messages"
)

// BenchmarkStream reads a streamed answer of a hundred pieces of text and two tool calls.
func BenchmarkStream(b *testing.B) {
	pieces := slices.Repeat([]string{delta("0", `{"type":"text_delta","text":"ten words "}`)}, 100)
	answer := streaming(join(begun, started("0", `{"type":"text","text":""}`), pieces, stopped("0"),
		call("1", "toolu_1", "look", `{"n":1}`), call("2", "toolu_2", "look", `{"n":1}`), because("tool_use"),
		ended)...).answer
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}}
		got, failure := messages.Read(b.Context(), res, strings.NewReader(answer), inference.Request{}, nil, nil)
		if failure != nil || len(got.Calls) != 2 {
			b.Fatal(got, failure)
		}
	}
}

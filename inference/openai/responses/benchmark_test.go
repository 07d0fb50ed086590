package responses_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/responses"
)

// BenchmarkStream reads a streamed answer of a hundred pieces of text and two tool calls, as BenchmarkStream of package
// openai does for Chat Completions.
func BenchmarkStream(b *testing.B) {
	var stream strings.Builder
	event := func(kind, members string) {
		fmt.Fprintf(&stream, "event: %s\ndata: {\"type\":\"%[1]s\",\"sequence_number\":1,%s}\n\n", kind, members)
	}
	const message = `{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[` +
		`{"type":"output_text","annotations":[],"text":%q}]}`
	event("response.created", `"response":{"id":"r","object":"response","status":"in_progress","model":"m","output":[]}`)
	for range 100 {
		event("response.output_text.delta",
			`"item_id":"msg_1","output_index":0,"content_index":0,"delta":"ten words ","logprobs":[]`)
	}
	output := fmt.Sprintf(message, strings.Repeat("ten words ", 100))
	event("response.output_item.done", `"output_index":0,"item":`+output)
	for i := 1; i <= 2; i++ {
		call := fmt.Sprintf(
			`{"id":"fc_%d","type":"function_call","call_id":"call_%[1]d","name":"look","arguments":%%q,"status":"completed"}`, i)
		at := fmt.Sprintf(`"output_index":%d`, i)
		event("response.output_item.added", at+`,"item":`+fmt.Sprintf(call, ""))
		event("response.function_call_arguments.delta", at+`,"delta":"{\"n\":1}"`)
		event("response.function_call_arguments.done", at+`,"arguments":"{\"n\":1}"`)
		event("response.output_item.done", at+`,"item":`+fmt.Sprintf(call, `{"n":1}`))
		output += "," + fmt.Sprintf(call, `{"n":1}`)
	}
	event("response.completed", `"response":{"id":"r","object":"response","status":"completed","model":"m","output":[`+
		output+`],"usage":{"input_tokens":1,"output_tokens":2}}`)
	answer := stream.String()
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}}
		got, failure := responses.Read(b.Context(), res, strings.NewReader(answer), inference.Request{}, nil, nil)
		if failure != nil || len(got.Calls) != 2 || got.Doubt != "" {
			b.Fatal(got, failure)
		}
	}
}

// BenchmarkRequest renders a request with 40 answers, each with a call and reasoning, for two APIs.
func BenchmarkRequest(b *testing.B) {
	for _, api := range []openai.API{openai.APIChat, openai.APIResponses} {
		b.Run(string(api), func(b *testing.B) {
			req := inference.Request{Model: "m", Tools: tools, Messages: []inference.Message{user("begin")}}
			for i := range 40 {
				id, thoughts := fmt.Sprintf("call_%d", i), strings.Repeat("gAAAA", 200)
				raw := fmt.Sprintf(`{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":%q}]}`,
					thoughts)
				if api == openai.APIResponses {
					raw = fmt.Sprintf(
						`[{"type":"reasoning","id":"rs_%d","summary":[],"encrypted_content":%q},`+
							`{"type":"function_call","id":"fc_%[1]d","call_id":%[3]q,"name":"clock","arguments":"{}"}]`,
						i, thoughts, id)
				}
				req.Messages = append(req.Messages, answer(raw, "", call(id, "clock", "{}")),
					result(id, strings.Repeat("a result ", 50)))
			}
			w := &wire{}
			profile := openai.Profile{API: api}
			client, err := openai.New(openai.Config{Read: responses.Read, Name: "p", Profile: profile,
				HTTPClient: &http.Client{Transport: w}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = client.Generate(b.Context(), req, nil) // the answer does not matter
			}
			b.SetBytes(int64(len(w.sent)))
		})
	}
}

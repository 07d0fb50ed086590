package inferencetest

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/inference"
)

type answerCase struct {
	name   string
	reply  Reply
	whole  bool // ask for an answer that does not stream
	max    int  // MaxOutputTokens
	expect outcome
}

// said returns the outcome of an answer with a text.
func said(text string) outcome { return outcome{Text: text, Finish: "stop"} }

// asks returns the outcome of an answer that calls tools.
func asks(calls ...inference.Call) outcome { return outcome{Calls: calls, Finish: "tool_calls"} }

// doubtful returns the outcome of an answer whose calls may not be those of the model.
func doubtful(calls ...inference.Call) outcome {
	return outcome{Calls: calls, Finish: "tool_calls", Doubt: true}
}

func failed(class inference.Class) outcome { return outcome{Class: class} }

func (s suite) answers(t *testing.T) {
	for _, group := range [][]answerCase{wordCases(), callCases(), pieceCases(), pieceEdges(), renamedCases(),
		elsewhereCases(), encodingCases(), finishCases(), usageCases(), chunkSpeechCases(), endCases()} {
		run(s, t, group)
	}
}

func run(s suite, t *testing.T, cases []answerCase) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			server := NewServer(tc.reply)
			var change []func(*Target)
			if tc.whole {
				change = append(change, wholeAnswers)
			}
			req := plainRequest()
			req.MaxOutputTokens = tc.max
			compare(t, tc.expect, s.generate(t, server, s.provider(t, server, change...), req))
		})
	}
}

func wordCases() []answerCase {
	const whole = `{"id":"x","model":"m","choices":[{"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`
	hello := said("hello")
	return []answerCase{
		{name: "1.1 a stream", reply: SSE(delta(`{"content":"hel"}`), delta(`{"content":"lo"}`), finish("stop")),
			expect: hello},
		{name: "1.1 a whole answer", reply: Status(200, whole), whole: true, expect: hello},
		{name: "1.3 a comment before and between chunks (OPENROUTER PROCESSING)", reply: Raw(200, "text/event-stream",
			": OPENROUTER PROCESSING\n\ndata: "+delta(`{"content":"hello"}`)+"\n\n: OPENROUTER PROCESSING\n\ndata: "+
				finish("stop")+"\n\ndata: [DONE]\n\n"), expect: hello},
		{name: "1.4 content is an array of parts",
			reply: message(`{"content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}`, "stop"),
			whole: true, expect: hello},
		{name: "1.4 content is an array of parts, streaming",
			reply: SSE(delta(`{"content":[{"type":"text","text":"hel"}]}`),
				delta(`{"content":[{"type":"text","text":"lo"}]}`), finish("stop")), expect: hello},
		{name: "1.4 chunk ids differ", reply: SSE(`{"id":"a","choices":[{"index":0,"delta":{"content":"hel"}}]}`,
			`{"id":"b","choices":[{"index":0,"delta":{"content":"lo"}}]}`, finish("stop")), expect: hello},
		{name: "1.4 a later chunk has an empty id",
			reply: SSE(`{"id":"a","choices":[{"index":0,"delta":{"content":"hel"}}]}`,
				`{"id":"","choices":[{"index":0,"delta":{"content":"lo"}}]}`,
				`{"id":"","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`), expect: hello},
		{name: "1.4 an error that is null in each chunk",
			reply: SSE(`{"error":null,"choices":[{"index":0,"delta":{"content":"hello"},"error":null}]}`,
				`{"error":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`), expect: hello},
		{name: "1.4 a JSON body though a stream was asked for", reply: Status(200, whole), expect: hello},
		{name: "1.4 a stream though a whole answer was asked for", reply: SSE(delta(`{"content":"hello"}`),
			finish("stop")), whole: true, expect: hello},
		{name: "1.4 the last event has no blank line", reply: Raw(200, "text/event-stream",
			"data: "+delta(`{"content":"hello"}`)+"\n\ndata: "+finish("stop")), expect: hello},
		{name: "1.4 no [DONE] after the finish reason", reply: OpenSSE(delta(`{"content":"hello"}`), finish("stop")),
			expect: hello},
		{name: "1.4 reset after the finish reason", reply: ResetAfter(OpenSSE(delta(`{"content":"hello"}`),
			finish("stop"))), expect: hello},
		{name: "1.4 other line endings and no space after the colon", reply: Raw(200, "text/event-stream",
			"\uFEFFdata:"+delta(`{"content":"hel"}`)+"\r\n\r\ndata:"+delta(`{"content":"lo"}`)+"\r\rdata: "+
				finish("stop")+"\n\n"), expect: hello},
		{name: "1.4 a chunk in several data lines", reply: Raw(200, "text/event-stream",
			"data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n"),
			expect: hello},
		{name: "1.4 the stream ends with the whole message once more", reply: SSE(delta(`{"content":"hello"}`),
			`{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}`), expect: hello},
		{name: "1.4 other choices are not mixed in", reply: SSE(delta(`{"content":"hello"}`),
			`{"choices":[{"index":1,"delta":{"content":"no"}}]}`, finish("stop")), expect: hello},
		{name: "1.4 fields of unexpected types", reply: SSE(
			`{"id":7,"model":null,"choices":[null,{"index":"0","delta":{"content":"hello","tool_calls":null,"refusal":false}}],"usage":"none"}`, finish("stop")), expect: outcome{Text: "hello", Finish: "stop", Refusal: "false"}},
		{name: "1.4 characters cut by chunks keep whole", reply: SSE(delta(`{"content":"h\u00e9"}`),
			delta(`{"content":"\ud83c\udf0d"}`), finish("stop")), expect: said("hé🌍")},
		{name: "1.4 a surrogate pair split over two chunks", reply: SSE(delta(`{"content":"h\ud83c"}`),
			delta(`{"content":"\uDF0d!"}`), finish("stop")), expect: said("h🌍!")},
		{name: "1.4 a surrogate pair split over two chunks, an empty one between",
			reply: SSE(delta(`{"content":"\ud83c"}`), delta(`{"content":""}`), delta(`{"content":"\udf0d"}`),
				finish("stop")), expect: said("🌍")},
		{name: "1.4 a surrogate pair split over two parts",
			reply: SSE(delta(`{"content":[{"type":"text","text":"\ud83c"}]}`),
				delta(`{"content":[{"type":"text","text":"\udf0d"}]}`), finish("stop")), expect: said("🌍")},
		{name: "1.4 a surrogate pair of reasoning split over two chunks",
			reply: SSE(delta(`{"reasoning_content":"\ud83c"}`), delta(`{"reasoning_content":"\udf0d"}`),
				delta(`{"content":"hello"}`), finish("stop")), expect: outcome{Text: "hello", Reasoning: "🌍",
				Finish: "stop"}},
		{name: "1.4 halves of surrogate pairs that stay alone", reply: SSE(delta(`{"content":"a\ud83cb\udf0d"}`),
			delta(`{"content":"\\ud83c"}`), delta(`{"content":"\ud83c"}`), finish("stop")),
			expect: said("a\uFFFDb\uFFFD\\ud83c\uFFFD")},
		{name: "1.4 reasoning_content deltas", reply: SSE(delta(`{"reasoning_content":"let me "}`),
			delta(`{"reasoning_content":"see"}`), delta(`{"content":"hello"}`), finish("stop")),
			expect: outcome{Text: "hello", Reasoning: "let me see", Finish: "stop"}},
		{name: "1.1 reasoning and reasoning_details of OpenRouter",
			reply: SSE(
				delta(`{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm"}]}`),
				delta(`{"content":"hello"}`), finish("stop")), expect: outcome{Text: "hello", Reasoning: "hm",
				Finish: "stop"}},
		{name: "2 both reasoning fields say the same", reply: SSE(delta(`{"reasoning":"hm","reasoning_content":"hm"}`),
			delta(`{"content":"hello"}`), finish("stop")), expect: outcome{Text: "hello", Reasoning: "hm",
			Finish: "stop"}},
		{name: "2 content as parts, with thinking (Mistral)",
			reply: message(
				`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"hello"}]}`, "stop"), whole: true, expect: outcome{Text: "hello", Reasoning: "hm", Finish: "stop"}},
		{name: "2 a refusal beside text", reply: SSE(delta(`{"content":"hello","refusal":"no more"}`), finish("stop")),
			expect: outcome{Text: "hello", Refusal: "no more", Finish: "stop"}},
	}
}

func callCases() []answerCase {
	clock := asks(called("a", "clock", "{}"))
	two := asks(called("a", "clock", `{"a":1}`), called("b", "read_file", `{"b":2}`))
	noIDs := asks(called("", "clock", `{"a":1}`), called("", "read_file", `{"b":2}`))
	return []answerCase{
		{name: "1.1 a call in pieces", reply: SSE(
			toolDelta(`{"index":0,"id":"a","type":"function","function":{"name":"read_file","arguments":""}}`),
			toolDelta(`{"index":0,"function":{"arguments":"{\"path\":"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"\"x\"}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", `{"path":"x"}`))},
		{name: "1.4 arguments are an object", reply: message(
			`{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"clock","arguments":{"a": 1}}}]}`, "tool_calls"), whole: true, expect: asks(called("a", "clock", `{"a":1}`))},
		{name: "1.4 arguments are an object, streaming",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":{"a": 1}}}`),
				finish("tool_calls")), expect: asks(called("a", "clock", `{"a":1}`))},
		{name: "1.4 arguments are null", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":null}}`), finish("tool_calls")),
			expect: asks(called("a", "clock", ""))},
		{name: "1.4 arguments are missing", reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock"}}`),
			finish("tool_calls")), expect: asks(called("a", "clock", ""))},
		{name: "1.4 a call without type", reply: message(
			`{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{}"}}]}`, "tool_calls"), whole: true,
			expect: clock},
		{name: "1.4 content null and calls", reply: message(
			`{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"clock","arguments":"{}"}}]}`,
			"tool_calls"), whole: true, expect: clock},
		{name: "1.4 two parallel calls with the same index", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"id":"b","function":{"name":"read_file","arguments":"{\"b\":2}"}}`),
			finish("tool_calls")), expect: two},
		{name: "1.4 two parallel calls without index", reply: SSE(
			toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			toolDelta(`{"id":"b","function":{"name":"read_file","arguments":"{\"b\":2}"}}`),
			finish("tool_calls")), expect: two},
		{name: "1.4 two parallel calls without index, in pieces", reply: SSE(
			toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
			toolDelta(`{"function":{"arguments":":1}"}}`),
			toolDelta(`{"id":"b","function":{"name":"read_file","arguments":"{\"b\":"}}`),
			toolDelta(`{"function":{"arguments":"2}"}}`), finish("tool_calls")), expect: two},
		{name: "2 two parallel calls with index 0 and no ids", reply: SSE(
			toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"function":{"name":"read_file","arguments":"{\"b\":2}"}}`), finish("tool_calls")),
			expect: noIDs},
		{name: "2 two calls of the same tool with index 0 and no ids", reply: SSE(
			toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{\"b\":2}"}}`), finish("tool_calls")),
			expect: asks(called("", "clock", `{"a":1}`), called("", "clock", `{"b":2}`))},
		{name: "2 two calls of the same tool with index 0, told apart by id alone", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock"}}`),
			toolDelta(`{"index":0,"id":"b","function":{"name":"clock"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", ""), called("b", "clock", ""))},
		{name: "2 two calls without arguments, index and ids", reply: SSE(
			toolDelta(`{"function":{"name":"clock"}}`), toolDelta(`{"function":{"name":"read_file"}}`),
			finish("tool_calls")), expect: doubtful(called("", "clock", ""), called("", "read_file", ""))},
		{name: "2 two calls in one chunk with index 0", reply: SSE(
			delta(
				`{"tool_calls":[{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}},{"index":0,"id":"b","function":{"name":"read_file","arguments":"{\"b\":2}"}}]}`), finish("tool_calls")), expect: two},
		{name: "2 pieces of parallel calls interleave", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
			toolDelta(`{"index":1,"id":"b","function":{"name":"read_file","arguments":"{\"b\""}}`),
			toolDelta(`{"index":0,"function":{"arguments":":1}"}}`),
			toolDelta(`{"index":1,"function":{"arguments":":2}"}}`), finish("tool_calls")), expect: two},
		{name: "1.4 the name is repeated in each delta", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":":1}"}}`),
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":""}}`), finish("tool_calls")),
			expect: asks(called("a", "clock", `{"a":1}`))},
		{name: "1.4 the name comes in pieces", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"read_"}}`),
			toolDelta(`{"index":0,"function":{"name":"file","arguments":"{}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", "{}"))},
		{name: "1.4 a surrogate pair of arguments split over two chunks",
			reply: SSE(
				toolDelta(`{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"\ud83c"}}`),
				toolDelta(`{"index":0,"function":{"arguments":"\udf0d\"}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", `{"path":"🌍"}`))},
		{name: "1.4 surrogate pairs of parallel calls split over chunks", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"\ud83c"}}`),
			toolDelta(`{"index":1,"id":"b","function":{"name":"read_file","arguments":"{\"path\":\"\ud83d"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"\udf0d\"}"}}`),
			toolDelta(`{"index":1,"function":{"arguments":"\ude00\"}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", `{"path":"🌍"}`), called("b", "read_file", `{"path":"😀"}`))},
		{name: "1.4 half of a surrogate pair in arguments is passed on as what it is",
			reply: SSE(
				toolDelta(`{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"\ud83c"}}`),
				toolDelta(`{"index":0,"function":{"arguments":"\"}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", `{"path":"\ud83c"}`))},
		{name: "1.4 arguments before the name", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"arguments":"{\"path\":"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"\"x\"}"}}`),
			toolDelta(`{"index":0,"function":{"name":"read_file"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", `{"path":"x"}`))},
		{name: "1.4 arguments before the name and the id, without index",
			reply: SSE(toolDelta(`{"function":{"arguments":"{\"path\":\"x\"}"}}`),
				toolDelta(`{"id":"a","function":{"name":"read_file"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", `{"path":"x"}`))},
		{name: "1.4 arguments before the name, beside another call", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":1,"id":"b","function":{"name":"read_file","arguments":"{\"b\":2}"}}`),
			toolDelta(`{"index":0,"function":{"name":"clock"}}`), finish("tool_calls")), expect: two},
		{name: "1.4 calls out of the order of their index", reply: SSE(
			toolDelta(`{"index":1,"id":"b","function":{"name":"read_file","arguments":"{\"b\":"}}`),
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":1,"function":{"arguments":"2}"}}`), finish("tool_calls")), expect: two},
		{name: "1.4 calls out of order from index 1 on", reply: SSE(
			toolDelta(`{"index":2,"id":"b","function":{"name":"read_file","arguments":"{\"b\":2}"}}`),
			toolDelta(`{"index":1,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			finish("tool_calls")), expect: two},
		{name: "1.4 the first index is 1", reply: SSE(
			toolDelta(`{"index":1,"id":"a","function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			expect: clock},
		{name: "1.4 null among the calls", reply: message(
			`{"tool_calls":[null,{"id":"a","function":{"name":"clock","arguments":"{}"}}]}`, "tool_calls"), whole: true,
			expect: clock},
		{name: "1.4 an empty entry among the calls",
			reply: SSE(toolDelta(`{"index":0,"type":"function","function":{}}`),
				toolDelta(`{"index":1,"id":"a","function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			expect: clock},
		{name: "2 the id is missing", reply: SSE(toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{}"}}`),
			finish("tool_calls")), expect: asks(called("", "clock", "{}"))},
		{name: "2 the id is empty",
			reply: SSE(toolDelta(`{"index":0,"id":"","function":{"name":"clock","arguments":"{}"}}`),
				finish("tool_calls")), expect: asks(called("", "clock", "{}"))},
		{name: "2 both calls have one id", reply: message(
			`{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}},{"id":"a","function":{"name":"read_file","arguments":"{\"b\":2}"}}]}`, "tool_calls"), whole: true, expect: asks(called("a", "clock", `{"a":1}`), called("a", "read_file", `{"b":2}`))},
		{name: "2 both calls have one id, streaming",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"index":1,"id":"a","function":{"name":"read_file","arguments":"{\"b\":2}"}}`),
				finish("tool_calls")), expect: asks(called("a", "clock", `{"a":1}`),
				called("a", "read_file", `{"b":2}`))},
		{name: "2 arguments are not JSON and stay as they are",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\": oops"}}`),
				finish("tool_calls")), expect: asks(called("a", "clock", `{"a": oops`))},
		{name: "2 arguments are a JSON string of JSON and stay as they are",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"\"{\\\"a\\\":1}\""}}`),
				finish("tool_calls")), expect: asks(called("a", "clock", `"{\"a\":1}"`))},
		{name: "2 an unknown tool and unknown parameters are passed on",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"launch","arguments":"{\"x\":1}"}}`),
				finish("tool_calls")), expect: asks(called("a", "launch", `{"x":1}`))},
		{name: "2 text before a call", reply: SSE(delta(`{"content":"Let me see."}`),
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			expect: outcome{Text: "Let me see.", Calls: clock.Calls, Finish: "tool_calls"}},
	}
}

// pieceCases are ways to cut calls into pieces that servers are known for, or that leave a doubt.
func pieceCases() []answerCase {
	one := asks(called("a", "clock", `{"a":1}`))
	two := asks(called("a", "clock", `{"a":1}`), called("b", "read_file", `{"b":2}`))
	begin := toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":""}}`)
	return []answerCase{
		{name: "2 a new id in each delta", reply: SSE(begin,
			toolDelta(`{"index":0,"id":"x","function":{"arguments":"{\"a\""}}`),
			toolDelta(`{"index":0,"id":"y","function":{"arguments":":1}"}}`), finish("tool_calls")), expect: one},
		{name: "2 a new id in each delta, without index",
			reply: SSE(toolDelta(`{"id":"a","function":{"name":"clock","arguments":""}}`),
				toolDelta(`{"id":"x","function":{"arguments":"{\"a\""}}`),
				toolDelta(`{"id":"y","function":{"arguments":":1}"}}`), finish("tool_calls")), expect: one},
		{name: "2 a new id in each delta, two calls", reply: SSE(begin,
			toolDelta(`{"index":0,"id":"x","function":{"arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":1,"id":"b","function":{"name":"read_file"}}`),
			toolDelta(`{"index":1,"id":"y","function":{"arguments":"{\"b\":2}"}}`), finish("tool_calls")), expect: two},
		{name: "2 the id in each delta", reply: SSE(begin,
			toolDelta(`{"index":0,"id":"a","function":{"arguments":"{\"a\""}}`),
			toolDelta(`{"index":0,"id":"a","function":{"arguments":":1}"}}`), finish("tool_calls")), expect: one},
		{name: "2 pieces of parallel calls interleave, told apart by id alone", reply: SSE(
			toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
			toolDelta(`{"id":"b","function":{"name":"read_file","arguments":"{\"b\""}}`),
			toolDelta(`{"id":"a","function":{"arguments":":1}"}}`),
			toolDelta(`{"id":"b","function":{"arguments":":2}"}}`), finish("tool_calls")), expect: two},
		{name: "2 pieces of parallel calls interleave, all with index 0", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
			toolDelta(`{"index":0,"id":"b","function":{"name":"read_file","arguments":"{\"b\""}}`),
			toolDelta(`{"index":0,"id":"a","function":{"arguments":":1}"}}`),
			toolDelta(`{"index":0,"id":"b","function":{"arguments":":2}"}}`), finish("tool_calls")), expect: two},
		{name: "2 the name in three pieces", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"read"}}`),
			toolDelta(`{"index":0,"function":{"name":"_"}}`), toolDelta(`{"index":0,"function":{"name":"file"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"{}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_file", "{}"))},
		{name: "2 the whole call again at the end", reply: SSE(begin,
			toolDelta(`{"index":0,"function":{"arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			finish("tool_calls")), expect: one},
		{name: "2 the whole arguments again at the end", reply: SSE(begin,
			toolDelta(`{"index":0,"function":{"arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"function":{"arguments":""}}`), finish("tool_calls")), expect: one},
		{name: "2 an empty delta with a new id at the end", reply: SSE(begin,
			toolDelta(`{"index":0,"function":{"arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"id":"x","function":{"arguments":""}}`), finish("tool_calls")), expect: one},
		{name: "2 a piece without a name that fits no call",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"index":4,"id":"x","function":{"arguments":"{\"b\":2}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":1}`), called("x", "unnamed_call", `{"b":2}`))},
		{name: "2 more arguments than one value", reply: SSE(
			toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"{\"b\":2}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":1}`), called("", "unnamed_call", `{"b":2}`))},
		{name: "2 arguments that two calls without index may have",
			reply: SSE(toolDelta(`{"function":{"name":"clock"}}`), toolDelta(`{"function":{"name":"read_file"}}`),
				toolDelta(`{"function":{"arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(called("", "clock", ""), called("", "read_file", `{"a":1}`))},
		{name: "2 arguments under another call's index",
			reply: SSE(begin, toolDelta(`{"index":1,"id":"b","function":{"name":"read_file","arguments":""}}`),
				toolDelta(`{"index":1,"id":"a","function":{"arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", ""), called("b", "read_file", `{"a":1}`))},
		{name: "2 arguments under the index of a call between others",
			reply: SSE(begin, toolDelta(`{"index":1,"id":"b","function":{"name":"read_file","arguments":""}}`),
				toolDelta(`{"index":2,"id":"c","function":{"name":"clock","arguments":"{}"}}`),
				toolDelta(`{"index":1,"id":"c","function":{"arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", ""), called("b", "read_file", `{"a":1}`),
				called("c", "clock", "{}"))},
		{name: "2 pieces with other ids in between",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":\""}}`),
				toolDelta(`{"index":0,"id":"b","function":{"arguments":"{"}}`),
				toolDelta(`{"index":0,"id":"c","function":{"arguments":"}"}}`),
				toolDelta(`{"index":0,"id":"a","function":{"arguments":"\"}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":"{}"}`))},
		{name: "2 pieces with other ids and the name in between",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":\""}}`),
				toolDelta(`{"index":0,"id":"b","function":{"name":"clock","arguments":"{}"}}`),
				toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"\"}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":"{}"}`))},
	}
}

// pieceEdges are rare ways to cut calls into pieces. Each tests one condition of the code that joins them.
func pieceEdges() []answerCase {
	one := asks(called("a", "clock", `{"a":1}`))
	begin := toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":""}}`)
	return []answerCase{
		{name: "2 the id in some deltas", reply: SSE(begin,
			toolDelta(`{"index":0,"function":{"arguments":"{\"a\""}}`),
			toolDelta(`{"index":0,"id":"a","function":{"arguments":":1}"}}`), finish("tool_calls")), expect: one},
		{name: "2 the index in later deltas", reply: SSE(
			toolDelta(`{"id":"a","function":{"name":"clock","arguments":""}}`),
			toolDelta(`{"index":1,"function":{"arguments":"{\"a\":1}"}}`), finish("tool_calls")), expect: one},
		{name: "2 an unknown tool without arguments",
			reply:  SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"launch"}}`), finish("tool_calls")),
			expect: asks(called("a", "launch", ""))},
		{name: "2 calls whose names make up a name, in a whole message",
			reply: message(
				`{"tool_calls":[{"id":"a","function":{"name":"read_"}},{"id":"b","function":{"name":"file"}},{"id":"c","function":{"name":"file"}}]}`, "tool_calls"), whole: true,
			expect: asks(called("a", "read_", ""), called("b", "file", ""), called("c", "file", ""))},
		{name: "2 calls whose names make up a name, with another call between them",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"read_","arguments":"{}"}}`),
				toolDelta(`{"index":1,"id":"b","function":{"name":"clock","arguments":"{}"}}`),
				toolDelta(`{"index":2,"id":"c","function":{"name":"file","arguments":"{}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read_", "{}"), called("b", "clock", "{}"), called("c", "file", "{}"))},
		{name: "2 the rest of a name after another call",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"read_"}}`),
				toolDelta(`{"index":1,"id":"b","function":{"name":"clock","arguments":"{}"}}`),
				toolDelta(`{"index":0,"function":{"name":"file","arguments":"{}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "read_", ""), called("b", "clock", "{}"), called("", "file", "{}"))},
		{name: "2 the rest of a name after the arguments",
			reply: SSE(toolDelta(`{"index":1,"id":"a","function":{"name":"read_","arguments":"{}"}}`),
				toolDelta(`{"index":1,"id":"a","function":{"name":"file"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "read_", "{}"), called("a", "file", ""))},
		{name: "2 the rest of a name with another id",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"read_"}}`),
				toolDelta(`{"index":0,"id":"b","function":{"name":"file","arguments":"{}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "read_", ""), called("b", "file", "{}"))},
		{name: "2 the name repeated in an empty delta with a new id",
			reply: SSE(toolDelta(`{"index":1,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"id":"x","function":{"name":"clock","arguments":""}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":1}`), called("x", "clock", ""))},
		{name: "2 the name repeated in an empty delta, without index and id",
			reply: SSE(toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"function":{"name":"clock","arguments":""}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":1}`))},
		{name: "2 two calls of the same tool with index 0, the first with an id",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{\"b\":2}"}}`), finish("tool_calls")),
			expect: asks(called("a", "clock", `{"a":1}`), called("", "clock", `{"b":2}`))},
		{name: "2 pieces of calls of the same tool interleave, told apart by id alone", reply: SSE(
			toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
			toolDelta(`{"id":"b","function":{"name":"clock","arguments":"{\"b\""}}`),
			toolDelta(`{"id":"a","function":{"arguments":":1}"}}`),
			toolDelta(`{"id":"b","function":{"arguments":":2}"}}`), finish("tool_calls")),
			expect: asks(called("a", "clock", `{"a":1}`), called("b", "clock", `{"b":2}`))},
		{name: "2 arguments that two calls may have, of which one has an id",
			reply: SSE(toolDelta(`{"id":"a","function":{"name":"clock"}}`),
				toolDelta(`{"function":{"name":"read_file"}}`),
				toolDelta(`{"function":{"arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", ""), called("", "read_file", `{"a":1}`))},
		{name: "2 arguments with one id, and a name with another",
			reply: SSE(toolDelta(`{"id":"a","function":{"arguments":"{\"a\":1}"}}`),
				toolDelta(`{"id":"b","function":{"name":"clock"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "unnamed_call", `{"a":1}`), called("b", "clock", ""))},
		{name: "2 a call with the same index, without arguments", reply: SSE(begin,
			toolDelta(`{"index":0,"id":"b","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
			finish("tool_calls")), expect: doubtful(called("a", "clock", ""), called("b", "clock", `{"a":1}`))},
		{name: "2 the same call twice, without ids",
			reply: SSE(toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"index":0,"function":{"name":"clock","arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(called("", "clock", `{"a":1}`), called("", "clock", `{"a":1}`))},
		{name: "2 pieces of two calls, of which one has an id",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\""}}`),
				toolDelta(`{"index":1,"function":{"name":"read_file","arguments":"{\"b\""}}`),
				toolDelta(`{"index":0,"function":{"arguments":":1}"}}`),
				toolDelta(`{"index":1,"function":{"arguments":":2}"}}`), finish("tool_calls")),
			expect: asks(called("a", "clock", `{"a":1}`), called("", "read_file", `{"b":2}`))},
		{name: "2 arguments after a whole call, and then a name",
			reply: SSE(toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{}"}}`),
				toolDelta(`{"function":{"arguments":"{\"a\":1}"}}`), toolDelta(`{"function":{"name":"read_file"}}`),
				finish("tool_calls")),
			expect: doubtful(called("a", "clock", "{}"), called("", "read_file", `{"a":1}`))},
		{name: "2 the same call twice, once with an id",
			reply: SSE(toolDelta(`{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`),
				toolDelta(`{"function":{"name":"clock","arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":1}`), called("", "clock", `{"a":1}`))},
		{name: "2 a call without an index, and another with one",
			reply: SSE(toolDelta(`{"function":{"name":"read_file"}}`),
				toolDelta(`{"index":1,"function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			expect: doubtful(called("", "read_file", ""), called("", "clock", "{}"))},
		{name: "2 a name that has grown, then with an id",
			reply: SSE(toolDelta(`{"function":{"name":"read","arguments":"{}"}}`),
				toolDelta(`{"id":"b","function":{"name":"read_file","arguments":"{}"}}`), finish("tool_calls")),
			expect: doubtful(called("", "read", "{}"), called("b", "read_file", "{}"))},
		{name: "2 a name that has grown, then without an id",
			reply: SSE(toolDelta(`{"id":"a","function":{"name":"read","arguments":"{}"}}`),
				toolDelta(`{"function":{"name":"read_file","arguments":"{}"}}`), finish("tool_calls")),
			expect: doubtful(called("a", "read", "{}"), called("", "read_file", "{}"))},
		{name: "2 a longer name with another id", reply: SSE(
			toolDelta(`{"id":"a","function":{"name":"read","arguments":"{}"}}`),
			toolDelta(`{"id":"b","function":{"name":"read_file","arguments":"{}"}}`), finish("tool_calls")),
			expect: asks(called("a", "read", "{}"), called("b", "read_file", "{}"))},
		{name: "2 a call without a name", reply: message(
			`{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}},{"id":"b","function":{"arguments":"{}"}}]}`, "tool_calls"), whole: true,
			expect: doubtful(called("a", "clock", `{"a":1}`), called("b", "unnamed_call", "{}"))},
	}
}

// encodingCases are answers with bytes that are not UTF-8. JSON decoders replace them, so that a tool would run with
// other arguments than the model's.
func encodingCases() []answerCase {
	const begin, end = `{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":\"`, `\"}"}}`
	wrong := doubtful(called("a", "clock", `{"a":"M\udcfc\udcfcller"}`))
	return []answerCase{
		{name: "1.4 arguments in Latin-1", reply: SSE(toolDelta(begin+"M\xfcller"+end), finish("tool_calls")),
			expect: wrong},
		{name: "1.4 arguments in Latin-1, whole", reply: message(`{"tool_calls":[`+begin+"M\xfcller"+end+`]}`,
			"tool_calls"), whole: true, expect: wrong},
		{name: "1.4 arguments in Latin-1, an object",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":{"a":"M`+"\xfc"+
				`ller"}}}`), finish("tool_calls")), expect: wrong},
		{name: "1.4 a character cut within its bytes", reply: SSE(toolDelta(begin+"\xc3"+`"}}`),
			toolDelta(`{"index":0,"function":{"arguments":"`+"\xa9"+end), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":"\udcc3\udcc3\udca9\udca9"}`))},
		{name: "1.4 a byte after half a surrogate pair", reply: SSE(toolDelta(begin+`\ud83d`+"\xff"+end),
			finish("tool_calls")), expect: doubtful(called("a", "clock", `{"a":"📿\udcff"}`))},
		{name: "1.4 another part in Latin-1", reply: SSE(delta(`{"content":"M`+"\xfc"+`ller"}`),
			toolDelta(begin+"x"+end), finish("tool_calls")), expect: outcome{Text: "M\uFFFDller",
			Calls: []inference.Call{called("a", "clock", `{"a":"x"}`)}, Finish: "tool_calls", Doubt: true}},
	}
}

// renamedCases are streams whose second piece has another name than the first, which has no arguments: a name that
// grows, or another call. The first must not run without arguments.
func renamedCases() (cases []answerCase) {
	keys := map[string][2]string{
		"the same index and id": {`"index":0,"id":"a",`, `"index":0,"id":"a",`},
		"the same index":        {`"index":0,`, `"index":0,`},
		"the same id":           {`"id":"a",`, `"id":"a",`},
		"another id":            {`"index":0,"id":"a",`, `"index":0,"id":"b",`},
		"another id, no index":  {`"id":"a",`, `"id":"b",`},
		"no index and id":       {"", ""},
	}
	piece := func(key, name, arguments string) string {
		return toolDelta(`{` + key + `"function":{"name":"` + name + `","arguments":"` + arguments + `"}}`)
	}
	for what, key := range keys {
		for _, second := range []string{"read_file_note", "clock"} {
			first, next := piece(key[0], "read_file", ""), piece(key[1], second, `{\"a\":1}`)
			id := func(i int) string {
				return strings.TrimSuffix(strings.TrimPrefix(key[i][strings.LastIndex(key[i], ":")+1:], `"`), `",`)
			}
			if !strings.Contains(key[0], "id") {
				id = func(int) string { return "" }
			}
			cases = append(cases, answerCase{
				name: "2 a name, and then " + second + " with " + what, reply: SSE(first, next, finish("tool_calls")),
				expect: doubtful(called(id(0), "read_file", ""), called(id(1), second, `{"a":1}`)),
			})
		}
	}
	return append(cases,
		answerCase{name: "2 a name, and then another with another index",
			reply: SSE(piece(`"index":0,`, "read_file", ""), piece(`"index":1,`, "clock", `{\"a\":1}`),
				finish("tool_calls")),
			expect: asks(called("", "read_file", ""), called("", "clock", `{"a":1}`))},
		answerCase{name: "2 another name for a whole call", reply: SSE(piece(`"index":0,"id":"a",`, "clock", `{}`),
			piece(`"index":0,"id":"a",`, "read_file", ""), finish("tool_calls")),
			expect: doubtful(called("a", "clock", "{}"), called("a", "read_file", ""))},
		answerCase{name: "2 a longer name for a whole call", reply: SSE(piece(`"index":0,`, "read_file", `{}`),
			piece(`"index":0,`, "read_file_note", `{}`), finish("tool_calls")),
			expect: doubtful(called("", "read_file", "{}"), called("", "read_file_note", "{}"))},
	)
}

// elsewhereCases are answers whose arguments do not stand where the protocol has them, so that a call seems to have
// none. The call must not run with none.
func elsewhereCases() (cases []answerCase) {
	const args = `"{\"a\":1}"`
	none := doubtful(called("a", "clock", ""))
	for name, call := range map[string]string{
		"in parameters":                  `"function":{"name":"clock","parameters":{"a":1}}`,
		"in parameters, arguments null":  `"function":{"name":"clock","arguments":null,"parameters":{"a":1}}`,
		"in parameters, arguments empty": `"function":{"name":"clock","arguments":"","parameters":{"a":1}}`,
		"under another case":             `"function":{"name":"clock","Arguments":` + args + `}`,
		"beside the function":            `"function":{"name":"clock"},"arguments":` + args,
		"in input":                       `"function":{"name":"clock","arguments":""},"input":{"a":1}`,
		"in a member of any name":        `"function":{"name":"clock","given":{"a":1}}`,
		"in a list of any name":          `"function":{"name":"clock","given":[1]}`,
		"in a text of any name":          `"function":{"name":"clock","given":"a"}`,
	} {
		call = `{"index":0,"id":"a",` + call + `}`
		cases = append(cases,
			answerCase{name: "2 arguments " + name, reply: SSE(toolDelta(call), finish("tool_calls")), expect: none},
			answerCase{name: "2 arguments " + name + ", whole", reply: message(`{"tool_calls":[`+call+`]}`,
				"tool_calls"), whole: true, expect: none})
	}
	const empty, full = `{"index":0,"id":"a","function":{"name":"clock","arguments":""}}`,
		`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}`
	const legacy, other = `"function_call":{"name":"clock","arguments":"{\"a\":1}"}`,
		`"function_call":{"name":"read_file","arguments":"{}"}`
	last := func(call string) string {
		return `{"choices":[{"index":0,"delta":{},"message":{"tool_calls":[` + call +
			`]},"finish_reason":"tool_calls"}]}`
	}
	one := asks(called("a", "clock", `{"a":1}`))
	return append(cases,
		answerCase{name: "2 arguments in a piece of parameters",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock"}}`),
				toolDelta(`{"function":{"parameters":{"a":1}}}`), finish("tool_calls")), expect: none},
		answerCase{name: "2 arguments twice, the same",
			reply: message(
				`{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}","parameters":{"a": 1}}}]}`,
				"tool_calls"), whole: true, expect: one},
		answerCase{name: "2 arguments twice, once empty",
			reply: message(
				`{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}","parameters":{}}}]}`,
				"tool_calls"), whole: true, expect: one},
		answerCase{name: "2 arguments twice, and not the same",
			reply: message(
				`{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}","parameters":{"a":2}}}]}`,
				"tool_calls"), whole: true, expect: doubtful(one.Calls...)},
		answerCase{name: "2 no arguments, and a signature",
			reply: SSE(
				toolDelta(
					`{"index":0,"id":"a","function":{"name":"clock"},"extra_content":{"google":{"thought_signature":"s"}}}`), finish("tool_calls")), expect: asks(called("a", "clock", ""))},
		answerCase{name: "2 no arguments, and members that cannot be any",
			reply: SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","given":""},"number":1234}`),
				finish("tool_calls")), expect: asks(called("a", "clock", ""))},
		answerCase{name: "2 arguments, and another member",
			reply: SSE(
				toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"},"note":{"b":2}}`),
				finish("tool_calls")), expect: one},
		answerCase{name: "2 arguments in function_call", reply: SSE(delta(`{"tool_calls":[`+empty+`],`+legacy+`}`),
			finish("tool_calls")), expect: none},
		answerCase{name: "2 arguments in function_call, whole", reply: message(`{"tool_calls":[`+empty+`],`+legacy+`}`,
			"tool_calls"), whole: true, expect: none},
		answerCase{name: "2 arguments in pieces of function_call", reply: SSE(toolDelta(empty),
			delta(`{"function_call":{"name":"clock","arguments":"{\"a\""}}`),
			delta(`{"function_call":{"arguments":":1}"}}`), finish("tool_calls")), expect: none},
		answerCase{name: "2 function_call says the same", reply: SSE(delta(`{"tool_calls":[`+full+`],`+legacy+`}`),
			finish("tool_calls")), expect: one},
		answerCase{name: "2 function_call is empty",
			reply: message(`{"tool_calls":[`+full+`],"function_call":{"name":"","arguments":""}}`, "tool_calls"),
			whole: true, expect: one},
		answerCase{name: "2 function_call of another tool", reply: SSE(toolDelta(full), delta(`{`+other+`}`),
			finish("tool_calls")), expect: doubtful(one.Calls...)},
		answerCase{name: "2 function_call says the same with another name", reply: SSE(toolDelta(full),
			delta(`{"function_call":{"name":"read_file","arguments":"{\"a\":1}"}}`), finish("tool_calls")),
			expect: doubtful(one.Calls...)},
		answerCase{name: "2 function_call repeats its name in each piece", reply: SSE(toolDelta(full),
			delta(`{"function_call":{"name":"clock","arguments":"{\"a\""}}`),
			delta(`{"function_call":{"name":"clock","arguments":":1}"}}`), finish("tool_calls")), expect: one},
		answerCase{name: "2 function_call says the same as one of two",
			reply: SSE(
				delta(`{"tool_calls":[`+full+`,{"index":1,"id":"b","function":{"name":"read_file","arguments":"{}"}}],`+
					legacy+`}`), finish("tool_calls")),
			expect: doubtful(called("a", "clock", `{"a":1}`), called("b", "read_file", "{}"))},
		answerCase{name: "2 function_call, and no calls", reply: SSE(delta(`{"content":"hello",`+legacy+`}`),
			finish("stop")), expect: said("hello")},
		answerCase{name: "2 a message with other arguments, and then one without calls", reply: SSE(toolDelta(empty),
			last(full), `{"choices":[{"index":0,"delta":{},"message":{"content":""}}]}`), expect: none},
		answerCase{name: "2 the message at the end has other arguments", reply: SSE(toolDelta(empty), last(full)),
			expect: none},
		answerCase{name: "2 the message at the end has another call", reply: SSE(toolDelta(full),
			last(full+`,{"id":"b","function":{"name":"read_file"}}`)), expect: doubtful(one.Calls...)},
		answerCase{name: "2 the message at the end says the same", reply: SSE(toolDelta(full),
			last(full)), expect: one},
		answerCase{name: "2 the message at the end instead of a delta has other arguments", reply: SSE(toolDelta(empty),
			`{"choices":[{"index":0,"message":{"tool_calls":[`+full+`]},"finish_reason":"tool_calls"}]}`),
			expect: none},
		answerCase{name: "2 two choices without index",
			reply: Status(200, `{"choices":[{"message":{"tool_calls":[`+empty+
				`]},"finish_reason":"tool_calls"},{"message":{"tool_calls":[`+full+
				`]},"finish_reason":"tool_calls"}]}`), whole: true, expect: none},
	)
}

func finishCases() []answerCase {
	return append(ordinaryFinishes(), cutFinishes()...)
}

// cutFinishes returns a case for each finish reason by which a server says that the answer was cut off.
func cutFinishes() (cases []answerCase) {
	const call = `{"index":0,"id":"a","function":{"name":"clock","arguments":""}}`
	for _, word := range []string{
		"length", "LENGTH", "Max_Tokens", "MAX_TOKENS", "max-tokens", "max_output_tokens", "model_length",
		"token_limit", "incomplete",
		"model_context_window_exceeded", "insufficient_system_resource", "abort", "MALFORMED_FUNCTION_CALL", "SAFETY",
		"recitation", "PROHIBITED_CONTENT",
	} {
		expect := outcome{Calls: []inference.Call{cut(called("a", "clock", ""))}, Finish: word}
		cases = append(cases,
			answerCase{name: "2 a call cut by " + word, reply: SSE(toolDelta(call), finish(word)), expect: expect},
			answerCase{name: "2 a whole call cut by " + word, reply: message(`{"tool_calls":[`+call+`]}`, word),
				whole: true, expect: expect})
	}
	return cases
}

func ordinaryFinishes() []answerCase {
	a, clock := called("a", "clock", "{"), called("a", "clock", "{}")
	cutClock := []inference.Call{cut(clock)}
	const half = `{"index":0,"id":"a","function":{"name":"clock","arguments":"{"}}`
	const whole = `{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}`
	const other = `{"index":1,"id":"b","function":{"name":"read_file","arguments":"{"}}`
	const used = `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20}}`
	return []answerCase{
		{name: "2 finish reason stop with calls", reply: SSE(toolDelta(whole), finish("stop")),
			expect: outcome{Calls: []inference.Call{called("a", "clock", "{}")}, Finish: "stop"}},
		{name: "2 finish reason tool_calls with none", reply: SSE(delta(`{"content":""}`), finish("tool_calls")),
			expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "2 finish reason tool_calls with words only", reply: SSE(delta(`{"content":"hello"}`),
			finish("tool_calls")), expect: outcome{Text: "hello", Finish: "tool_calls"}},
		{name: "2 a call cut by length", reply: SSE(toolDelta(half), finish("length")),
			expect: outcome{Calls: []inference.Call{cut(a)}, Finish: "length"}},
		{name: "2 every call of a cut answer", reply: SSE(toolDelta(whole), toolDelta(other), finish("length")),
			expect: outcome{Calls: []inference.Call{cut(called("a", "clock", "{}")),
				cut(called("b", "read_file", "{"))}, Finish: "length"}},
		{name: "2 a cut call reported as tool_calls", reply: SSE(toolDelta(half), finish("tool_calls"), used), max: 20,
			expect: outcome{Calls: []inference.Call{cut(a)}, Finish: "tool_calls", Usage: tokensOf(10, 20)}},
		{name: "2 one token below the limit is not cut", reply: SSE(toolDelta(whole), finish("tool_calls"), used),
			max: 21, expect: outcome{Calls: []inference.Call{called("a", "clock", "{}")}, Finish: "tool_calls",
				Usage: tokensOf(10, 20)}},
		{name: "2 length, and then stop", reply: SSE(toolDelta(whole), finish("length"), finish("stop")),
			expect: outcome{Calls: cutClock, Finish: "length"}},
		{name: "2 length with a call, and then tool_calls",
			reply: SSE(`{"choices":[{"index":0,"delta":{"tool_calls":[`+whole+`]},"finish_reason":"length"}]}`,
				finish("tool_calls"), used), expect: outcome{Calls: cutClock, Finish: "length",
				Usage: tokensOf(10, 20)}},
		{name: "2 content_filter, and then tool_calls", reply: SSE(toolDelta(whole), finish("content_filter"),
			finish("tool_calls")), expect: outcome{Calls: cutClock, Finish: "content_filter"}},
		{name: "2 stop, and then length", reply: SSE(toolDelta(whole), finish("stop"), finish("length")),
			expect: outcome{Calls: cutClock, Finish: "length"}},
		{name: "2 a cut that only the native reason names", reply: SSE(toolDelta(whole),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop","native_finish_reason":"MAX_TOKENS"}]}`,
			finish("stop")), expect: outcome{Calls: cutClock, Finish: "MAX_TOKENS"}},
		{name: "2 a native reason that says no more", reply: SSE(toolDelta(whole),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","native_finish_reason":"done"}]}`),
			expect: asks(clock)},
		{name: "2 a finish reason that nobody knows", reply: SSE(toolDelta(whole), finish("tired")),
			expect: outcome{Calls: []inference.Call{clock}, Finish: "tired", Doubt: true}},
		{name: "2 words cut by length", reply: SSE(delta(`{"content":"hel"}`), finish("length")),
			expect: outcome{Text: "hel", Finish: "length"}},
		{name: "2 an empty stop", reply: SSE(delta(`{"content":""}`), finish("stop")),
			expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "2 an empty stop that was billed", reply: SSE(finish("stop"), used),
			expect: outcome{Class: inference.ClassBadOutput, Code: "empty", Usage: tokensOf(10, 20)}},
		{name: "2 nothing but white space", reply: SSE(delta(`{"content":" \n"}`), finish("stop")),
			expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "2 nothing but NUL", reply: SSE(delta(`{"content":"\u0000"}`), delta(`{"content":" \u0000"}`),
			finish("stop")), expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "2 nothing but characters without width", reply: SSE(delta(`{"content":"\ufeff\u200b\u001b\u2060"}`),
			finish("stop")), expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "2 nothing but reasoning", reply: SSE(delta(`{"reasoning_content":"hm"}`), finish("stop")),
			expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "2 reasoning used the whole answer up", reply: SSE(delta(`{"reasoning_content":"hm"}`), finish("length"),
			used), expect: outcome{Class: inference.ClassBadOutput, Code: "empty", Usage: tokensOf(10, 20)}},
		{name: "2 length without any output (Xiaomi) is an overflow", reply: SSE(finish("length"),
			`{"choices":[],"usage":{"prompt_tokens":9000,"completion_tokens":0}}`),
			expect: outcome{Class: inference.ClassContextOverflow, Code: "length", Usage: tokensOf(9000, 0)}},
		{name: "2 a refusal", reply: SSE(delta(`{"refusal":"I cannot "}`), delta(`{"refusal":"do that"}`),
			finish("stop")), expect: outcome{Class: inference.ClassRefused, Code: "refusal"}},
		{name: "2 a refusal, whole", reply: message(`{"content":null,"refusal":"no"}`, "stop"), whole: true,
			expect: outcome{Class: inference.ClassRefused, Code: "refusal"}},
		{name: "2 content_filter without text", reply: SSE(finish("content_filter")),
			expect: outcome{Class: inference.ClassRefused, Code: "content_filter"}},
		{name: "2 a content filter by another name, without text", reply: SSE(finish("content_filter: SAFETY")),
			expect: outcome{Class: inference.ClassRefused, Code: "content_filter"}},
		{name: "2 content_filter within words", reply: SSE(delta(`{"content":"hel"}`), finish("content_filter")),
			expect: outcome{Text: "hel", Finish: "content_filter"}},
		{name: "2 a content filter by another name, within a call", reply: SSE(toolDelta(half), finish("sensitive")),
			expect: outcome{Calls: []inference.Call{cut(a)}, Finish: "sensitive"}},
		{name: "2 content_filter within a call", reply: SSE(toolDelta(half), finish("content_filter")),
			expect: outcome{Calls: []inference.Call{cut(a)}, Finish: "content_filter"}},
	}
}

func tokensOf(in, out int64) turnkeeper.Usage {
	return turnkeeper.Usage{InputTokens: in, OutputTokens: out}
}

func usageCases() []answerCase {
	ok := []string{delta(`{"content":"hello"}`), finish("stop")}
	with := func(usage string) Reply { return SSE(append(ok, `{"choices":[],"usage":`+usage+`}`)...) }
	hello := func(u turnkeeper.Usage, cost string) outcome {
		return outcome{Text: "hello", Finish: "stop", Usage: u, Cost: cost}
	}
	return []answerCase{
		{name: "2 usage is missing", reply: SSE(ok...), expect: hello(turnkeeper.Usage{}, "")},
		{name: "2 usage is null until the last chunk",
			reply: SSE(`{"choices":[{"index":0,"delta":{"content":"hello"}}],"usage":null}`, finish("stop"),
				`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}`), expect: hello(tokensOf(7, 2), "")},
		{name: "2 usage in the last chunk, without choices",
			reply:  with(`{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}`),
			expect: hello(tokensOf(7, 2), "")},
		{name: "1.1 cached and reasoning tokens, and cost (OpenRouter)",
			reply: with(
				`{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":5,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":1},"cost":0.00014,"cost_details":{"upstream_inference_cost":null}}`), expect: hello(turnkeeper.Usage{InputTokens: 7, OutputTokens: 2, CachedTokens: 5, CacheWriteTokens: 2, ReasoningTokens: 1}, "0.00014")},
		{name: "1.1 what was cached is counted beside the rest", reply: with(
			`{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":20}}`),
			expect: hello(turnkeeper.Usage{InputTokens: 77, OutputTokens: 2, CachedTokens: 50,
				CacheWriteTokens: 20}, "")},
		{name: "1.1 a small cost", reply: with(`{"prompt_tokens":7,"completion_tokens":2,"cost":1.5e-7}`),
			expect: hello(tokensOf(7, 2), "0.00000015")},
		{name: "2 usage that makes no sense", reply: with(
			`{"prompt_tokens":-7,"completion_tokens":"2","prompt_tokens_details":null,"cost":"free"}`),
			expect: hello(tokensOf(0, 2), "")},
		{name: "2 a silent truncation shows in the usage only",
			reply: with(`{"prompt_tokens":4096,"completion_tokens":2}`), expect: hello(tokensOf(4096, 2), "")},
	}
}

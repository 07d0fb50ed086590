package inferencetest

import (
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// content returns answers with a text: whole, in one piece, and by characters.
func content(wire *Wire, name, text string, expect outcome) []answerCase {
	a := Spoken{Text: text, Finish: "stop"}
	letters := a
	letters.Letters = true
	if expect.Class == "" {
		expect.Finish = wire.finish("stop")
	}
	return []answerCase{
		{name: name + ", whole", reply: Say(a), whole: true, expect: expect},
		{name: name, reply: Say(a), expect: expect},
		{name: name + ", by characters", reply: Say(letters), expect: expect},
	}
}

// quote returns a text as JSON.
func quote(text string) string { return encode([]string{text})[1 : len(encode([]string{text}))-1] }

// thinkCases returns answers with reasoning in their text.
func thinkCases(wire *Wire) (cases []answerCase) {
	thought := func(reasoning, text string) outcome { return outcome{Text: text, Reasoning: reasoning, Finish: "stop"} }
	empty := outcome{Class: inference.ClassBadOutput, Code: "empty"}
	for _, c := range []struct {
		text   string
		expect outcome
	}{
		{"<think>a</think>b", thought("a", "b")},
		{"a</think>b", thought("a", "b")},
		{"<think>a", empty},
		{"<think>a</think>", empty},
		{"a</think>", empty},
		{"</think>b", thought("", "b")},
		{"<think></think>b", thought("", "b")},
		{"\n\n<think>\na\n</think>\n\nb\n", thought("\na\n", "b\n")},
		{"<THINK>a</Think>b", thought("a", "b")},
		{"<think>a</think>\n<think>c</think>b", thought("ac", "b")},
		{"<think>a</think>b</think>c", thought("ab", "c")},
		{"<think>a <think> b</think>c", thought("a <think> b", "c")},
		{"<think>it ends with `</think>`, or \"</think>\".</think>b",
			thought("it ends with `</think>`, or \"</think>\".", "b")},
		{"he said \"hi\"</think>b", thought("he said \"hi\"", "b")},
		{"<thinking>a</thinking>b", thought("a", "b")},
		{"<thought>a</thought>b", thought("a", "b")},
		{"<seed:think>a</seed:think>b", thought("a", "b")},
		{"[THINK]a[/THINK]b", thought("a", "b")},
		{"<|START_THINKING|>a<|END_THINKING|>b", thought("a", "b")},
		{"◁think▷a◁/think▷b", thought("a", "b")},
		{"a◁/think▷b", thought("a", "b")},
		{"Well <think>a</think> so", thought("a", "Well  so")},
		{"é🌍</think>ü", thought("é🌍", "ü")},
	} {
		cases = append(cases, content(wire, "5 reasoning in the text: "+c.text, c.text, c.expect)...)
	}
	return cases
}

// chunkSpeechCases returns answers with reasoning or calls in their text that only Chat Completions can have.
func chunkSpeechCases() (cases []answerCase) {
	empty := outcome{Class: inference.ClassBadOutput, Code: "empty"}
	unparsed := outcome{Class: inference.ClassBadOutput, Code: inference.CodeMarkup}
	call := `"tool_calls":[{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}]`
	beside := doubtful(called("a", "clock", "{}"))
	beside.Text = "Well."
	asked := asks(called("a", "clock", "{}"))
	asked.Reasoning = "a"
	return append(cases,
		answerCase{name: "5 a block without its end beside a call", reply: SSE(delta(`{"content":"<think>a"}`),
			delta(`{`+call+`}`), finish("tool_calls")), expect: asked},
		answerCase{name: "5 reasoning in a field and in the text", reply: SSE(delta(`{"reasoning_content":"x"}`),
			delta(`{"content":"a</thi"}`), delta(`{"content":"nk>b"}`), finish("stop")),
			expect: outcome{Text: "b", Reasoning: "xa", Finish: "stop"}},
		answerCase{name: "5 a tag in parts of content", reply: SSE(delta(`{"content":[{"type":"text","text":"<thi"}]}`),
			delta(`{"content":[{"type":"text","text":"nk>a</think>b"}]}`), finish("stop")),
			expect: outcome{Text: "b", Reasoning: "a", Finish: "stop"}},
		answerCase{name: "5 reasoning that was cut", reply: SSE(delta(`{"content":"<think>a"}`), finish("length")),
			expect: empty},
		answerCase{name: "5 markup that was cut", reply: SSE(
			delta(`{"content":"Well.\n<tool_call>\n{\"name\": \"clock\", \"argu"}`), finish("length")),
			expect: unparsed},
		answerCase{name: "5 markup beside a call",
			reply: SSE(delta(`{"content":"Well.\n<tool_call>{\"name\":\"read_file\",\"arguments\":{}}</tool_call>"}`),
				toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}`), finish("tool_calls")),
			expect: beside},
	)
}

// markupCases returns answers with calls that the server did not parse. The request declares clock and read_file.
func markupCases(wire *Wire) (cases []answerCase) {
	unparsed := outcome{Class: inference.ClassBadOutput, Code: inference.CodeMarkup}
	for i, text := range []string{
		"<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
		"<tool_call>{\"arguments\": {\"path\": \"x\"}, \"name\": \"read_file\"}</tool_call>",
		"Let me see.\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
		"<think>a</think>\n<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>",
		"<tool_call>{\"name\":\"no_such_tool\",\"arguments\":{}}</tool_call>",
		"<tool_call>\n<function=read_file>\n<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>",
		"<function=read_file>\n<parameter=path>x</parameter>\n</function>",
		"<function=clock>{}</function>",
		"<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
		"<|python_tag|>{\"name\": \"clock\", \"parameters\": {}}",
		"<|python_tag|>clock.call(a=1)",
		"[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}]",
		"Sure.[TOOL_CALLS]clock[ARGS]{}",
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"clock\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
		"<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
		"<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]",
		"<|tool_call>call:clock{}<tool_call|>",
		"<start_function_call>call:clock{}<end_function_call>",
		"<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}<|call|>",
		"<minimax:tool_call>\n<invoke name=\"clock\">\n</invoke>\n</minimax:tool_call>",
		"<tool_calls>[{\"name\": \"clock\", \"arguments\": {}}]</tool_calls>",
		"<seed:tool_call><function=clock></function></seed:tool_call>",
		"<function_calls>\n<invoke name=\"clock\">\n</invoke>\n</function_calls>",
		"<invoke name=\"clock\"></invoke>",
		"{\"name\": \"clock\", \"parameters\": {}}",
		"[{\"name\": \"clock\", \"arguments\": {}}, {\"name\": \"read_file\", \"arguments\": {\"path\": \"x\"}}]",
		"[read_file(path=\"x\")]",
	} {
		cases = append(cases, content(wire, fmt.Sprintf("5 tool markup %d: %.20q", i, text), text, unparsed)...)
	}
	return cases
}

// quotedCases returns answers whose text speaks of tags, and is sent as it is.
func quotedCases(wire *Wire) (cases []answerCase) {
	for i, text := range []string{
		"The tag `</think>` ends it.",
		"Split at \"</think>\" and take the rest.",
		"It begins with \"<think>\" and ends with '</think>'.",
		"Use the <think> tag.",
		"1 < 2 and [x] <b>bold</b> <thin",
		"<thinner>x</thinner>",
		"```xml\n<think>a\n```",
		"Hermes writes <tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call> for a call.",
		"Hermes writes:\n```\n<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>\n```",
		"```\n<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>\n```",
		"`<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>`",
		"Such as\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>",
		"Such as\n<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>\nwhich asks for the time.",
		"<tool_call> is the tag that Hermes models use.",
		"<function=NAME> begins a call.",
		"The token \"[TOOL_CALLS]\" begins calls of Mistral's models.",
		"[TOOL_CALLS] begins calls.",
		"{\"name\": \"clock\", \"colour\": \"red\"}",
		"{\"name\": \"get_weather\", \"arguments\": {}}",
		"[clock] is a tool.",
	} {
		cases = append(cases, content(wire, fmt.Sprintf("5 quoted %d: %.20q", i, text), text, said(text))...)
	}
	return cases
}

// endCases returns answers without a finish reason.
func endCases() []answerCase {
	usage := `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	used := turnkeeper.Usage{InputTokens: 3, OutputTokens: 2}
	call := toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}`)
	clock := []inference.Call{called("a", "clock", "{}")}
	return []answerCase{
		{name: "5 [DONE] without a finish reason", reply: SSE(delta(`{"content":"hello"}`)),
			expect: outcome{Text: "hello"}},
		{name: "5 usage and [DONE] without a finish reason", reply: SSE(delta(`{"content":"hello"}`), usage),
			expect: outcome{Text: "hello", Usage: used}},
		{name: "5 usage and a clean end without a finish reason", reply: OpenSSE(delta(`{"content":"hello"}`), usage),
			expect: outcome{Text: "hello", Usage: used}},
		{name: "5 usage and a reset without a finish reason", reply: ResetAfter(OpenSSE(delta(`{"content":"hello"}`),
			usage)), expect: outcome{Class: inference.ClassTransport, Usage: used}},
		{name: "5 a whole answer without a finish reason",
			reply: Status(200, `{"choices":[{"message":{"content":"hello"}}]}`), whole: true,
			expect: outcome{Text: "hello"}},
		{name: "5 nothing but [DONE] after an empty chunk", reply: SSE(delta(`{"content":""}`)),
			expect: outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		{name: "5 whole calls and [DONE] without a finish reason", reply: SSE(call), expect: outcome{Calls: clock}},
		{name: "5 whole calls and a clean end without a finish reason", reply: OpenSSE(call, usage),
			expect: outcome{Calls: clock, Doubt: true, Usage: used}},
		{name: "5 a call without arguments and [DONE] without a finish reason",
			reply:  SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock"}}`)),
			expect: outcome{Calls: []inference.Call{called("a", "clock", "")}, Doubt: true}},
		{name: "5 half a call and [DONE] without a finish reason",
			reply:  SSE(toolDelta(`{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":"}}`)),
			expect: outcome{Calls: []inference.Call{called("a", "clock", `{"a":`)}, Doubt: true}},
		{name: "5 as many tokens as allowed and [DONE] without a finish reason", max: 2, reply: SSE(call, usage),
			expect: outcome{Calls: []inference.Call{cut(clock[0])}, Usage: used}},
	}
}

// Reasoning returns an answer whose reasoning stands in its text, as servers without a parser for it send it: with the
// opening tag in the prompt, the first part is reasoning though no tag says so.
func Reasoning(thought, text string) Reply {
	return func(x *Exchange) {
		var chunks []string
		for _, word := range strings.SplitAfter(thought+"</think>"+text, " ") {
			chunks = append(chunks, delta(`{"content":`+quote(word)+`}`))
		}
		SSE(append(chunks, finish("stop"))...)(x)
	}
}

package inferencetest

import (
	"strings"
	"testing"

	"turnkeeper/inference"
)

// anyAnswers tests answers that every wire can carry.
func (s suite) anyAnswers(t *testing.T) {
	for _, group := range [][]answerCase{spokenCases(s.wire), cutCases(s.wire), emptyCases(s.wire),
		thinkCases(s.wire), markupCases(s.wire),
		quotedCases(s.wire)} {
		run(s, t, group)
	}
}

// both returns an answer streamed and whole.
func both(name string, a Spoken, expect outcome) []answerCase {
	return []answerCase{{name: name, reply: Say(a), expect: expect},
		{name: name + ", whole", reply: Say(a), whole: true, expect: expect}}
}

func spokenCases(wire *Wire) (cases []answerCase) {
	clock := Call{ID: "a", Name: "clock", Arguments: `{"zone": "é🌍 </think>"}`}
	read := Call{ID: "b", Name: "read_file", Arguments: `{"path":"x/y","deep":{"er":[{}]}}`}
	for name, a := range map[string]Spoken{
		"a text":                   {Text: "hello"},
		"a text of several lines":  {Text: "hello\n\nhé🌍 \u2028<b>\"\\"},
		"reasoning and a text":     {Thinking: "let me see", Text: "hello"},
		"a call":                   {Calls: []Call{clock}, Finish: "tool_calls"},
		"a call without arguments": {Calls: []Call{{ID: "a", Name: "clock", Arguments: "{}"}}, Finish: "tool_calls"},
		"two calls of one tool": {Calls: []Call{clock, {ID: "b", Name: "clock", Arguments: "{}"}},
			Finish: "tool_calls"},
		"everything": {Thinking: "hm", Text: "Wait.", Calls: []Call{clock, read}, Finish: "tool_calls"},
		"a tool that nobody offered": {Calls: []Call{{ID: "a", Name: "no_such_tool", Arguments: "{}"}},
			Finish: "tool_calls"},
		"usage":                     {Text: "hello", In: 7, Out: 2},
		"usage and a cache":         {Text: "hello", In: 700, Out: 2, Cached: 512},
		"calls that end like words": {Calls: []Call{read}, Finish: "stop"},
		"words that end like calls": {Text: "hello", Finish: "tool_calls"},
	} {
		if a.Finish == "" {
			a.Finish = "stop"
		}
		want := wire.outcome(a)
		for i := range want.Calls { // a stream keeps the white space of arguments, an object does not
			want.Calls[i].Arguments = strings.ReplaceAll(want.Calls[i].Arguments, ": ", ":")
		}
		a.Calls = append([]Call{}, a.Calls...)
		for i := range a.Calls {
			a.Calls[i].Arguments = want.Calls[i].Arguments
		}
		cases = append(cases, both(name, a, want)...)
	}
	return append(cases,
		answerCase{name: "a whole answer though a stream was asked for", reply: wholeAnswer("hello"),
			expect: wire.outcome(Spoken{Text: "hello", Finish: "stop"})},
		answerCase{name: "a stream though a whole answer was asked for", whole: true, reply: streamedAnswer("hello"),
			expect: wire.outcome(Spoken{Text: "hello", Finish: "stop"})})
}

func wholeAnswer(text string) Reply {
	return func(x *Exchange) { Status(200, x.wire.whole(x.named(Spoken{Text: text, Finish: "stop"})))(x) }
}

func streamedAnswer(text string) Reply {
	return func(x *Exchange) {
		begun, rest := x.wire.stream(x.named(Spoken{Text: text, Finish: "stop"}))
		Frames(append(begun, rest...)...)(x)
	}
}

// cutCases returns answers that were cut off: none of their calls may run.
func cutCases(wire *Wire) (cases []answerCase) {
	whole := Call{ID: "a", Name: "clock", Arguments: "{}"}
	for name, c := range map[string]struct {
		a   Spoken
		max int
		cut bool
	}{
		"a whole call cut by length": {Spoken{Calls: []Call{whole}, Finish: "length"}, 0, true},
		"words cut by length":        {Spoken{Text: "hel", Finish: "length"}, 0, true},
		"a filter within words":      {Spoken{Text: "hel", Finish: "content_filter"}, 0, true},
		"a filter within a call":     {Spoken{Calls: []Call{whole}, Finish: "content_filter"}, 0, true},
		"as many tokens as allowed": {Spoken{Calls: []Call{whole}, Finish: "tool_calls", In: 10, Out: 20}, 20,
			true},
		"one token below the limit": {Spoken{Calls: []Call{whole}, Finish: "tool_calls", In: 10, Out: 20}, 21,
			false},
		"a window that is full": {Spoken{Calls: []Call{whole}, Finish: "model_context_window_exceeded"}, 0,
			true},
		"a finish reason nobody knows":   {Spoken{Calls: []Call{whole}, Finish: "tired"}, 0, false},
		"words, and one that none knows": {Spoken{Text: "hel", Finish: "tired"}, 0, false},
	} {
		want := wire.outcome(c.a)
		for i := range want.Calls {
			want.Calls[i].Truncated = c.cut
		}
		want.Doubt = len(want.Calls) > 0 && c.a.Finish == "tired"
		for _, tc := range both(name, c.a, want) {
			tc.max = c.max
			cases = append(cases, tc)
		}
	}
	half := wire.outcome(Spoken{Calls: []Call{{ID: "a", Name: "clock", Arguments: `{"a`}}, Finish: "length"})
	half.Calls[0].Truncated = true
	return append(cases, answerCase{name: "a call cut by length", expect: half,
		reply: Say(Spoken{Calls: []Call{{ID: "a", Name: "clock", Arguments: `{"a`}}, Finish: "length"})})
}

// emptyCases returns answers that say nothing.
func emptyCases(wire *Wire) (cases []answerCase) {
	for name, c := range map[string]struct {
		a    Spoken
		want outcome
	}{
		"nothing": {Spoken{Finish: "stop"}, outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		"nothing but white space": {Spoken{Text: " \n", Finish: "stop"}, outcome{Class: inference.ClassBadOutput,
			Code: "empty"}},
		"nothing but NUL": {Spoken{Text: "\x00 \x00", Finish: "stop"},
			outcome{Class: inference.ClassBadOutput, Code: "empty"}},
		"nothing but reasoning": {Spoken{Thinking: "hm", Finish: "stop"}, outcome{Class: inference.ClassBadOutput,
			Code: "empty"}},
		"reasoning used the whole answer up": {Spoken{Thinking: "hm", Finish: "length", In: 10, Out: 20},
			outcome{Class: inference.ClassBadOutput, Code: "empty", Usage: tokensOf(10, 20)}},
		"a full window": {Spoken{Finish: "model_context_window_exceeded", In: 9000, Out: 1},
			outcome{Class: inference.ClassContextOverflow, Code: "model_context_window_exceeded",
				Usage: tokensOf(9000, 1)}},
		"a filter": {Spoken{Finish: "content_filter"},
			outcome{Class: inference.ClassRefused, Code: wire.finish("content_filter")}},
	} {
		cases = append(cases, both(name, c.a, c.want)...)
	}
	return cases
}

// anyBroken tests unusable answers with status 200 that every wire can have.
func (s suite) anyBroken(t *testing.T) {
	hel, calls := Spoken{Text: "hel"}, Spoken{Calls: []Call{{Name: "clock", Arguments: `{"a":1}`}}}
	half := func(x *Exchange) { Status(200, x.wire.whole(x.named(Spoken{Text: "hello", Finish: "stop"}))[:40])(x) }
	for name, tc := range map[string]struct {
		reply Reply
		whole bool
	}{
		"1.3 200 that is not JSON":               {Raw(200, "text/html", "<html><title>Sign in</title></html>"), false},
		"1.3 the body is cut within the JSON":    {ResetAfter(half), true},
		"1.3 the body ends within the JSON":      {half, true},
		"1.3 reset before the first byte":        {Reset(), false},
		"1.3 empty body":                         {Status(200, ""), false},
		"1.3 an object of nothing":               {Status(200, "{}"), true},
		"1.4 clean end before the finish reason": {Begin(hel), false},
		"1.4 clean end after a call":             {Begin(calls), false},
		"1.4 reset within the stream":            {ResetAfter(Begin(hel)), false},
		"1.4 reset within a call":                {ResetAfter(Begin(calls)), false},
		"1.4 end within an event":                {Raw(200, "text/event-stream", `data: {"type":"message_start","choices":[{"del`), false},
		"1.4 a stream of nothing":                {Frames(), false},
		"1.4 a stream of comments":               {Frames(": wait\n\n", ": wait\n\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := NewServer(tc.reply)
			p := s.provider(t, server, func(target *Target) { target.NoStream = tc.whole })
			compare(t, failed(inference.ClassTransport), s.generate(t, server, p, plainRequest()))
		})
	}
}

package messages_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/limittest"
)

func problem(kind, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, kind, message)
}

// refusal returns the error that a server's answer leads to.
func refusal(t *testing.T, s *server) *inference.Error {
	t.Helper()
	_, err := generate(t, s, openai.Profile{})
	failure, ok := errors.AsType[*inference.Error](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return failure
}

// TestErrorTypes sends each documented type of error with its status, and in a stream.
func TestErrorTypes(t *testing.T) {
	for kind, tc := range map[string]struct {
		status int
		class  inference.Class
	}{
		"invalid_request_error": {400, inference.ClassInvalid},
		"authentication_error":  {401, inference.ClassAuth},
		"billing_error":         {402, inference.ClassQuota},
		"permission_error":      {403, inference.ClassAuth},
		"not_found_error":       {404, inference.ClassNotFound},
		"request_too_large":     {413, inference.ClassContextOverflow},
		"rate_limit_error":      {429, inference.ClassRateLimited},
		"api_error":             {500, inference.ClassOverloaded},
		"timeout_error":         {504, inference.ClassOverloaded},
		"overloaded_error":      {529, inference.ClassOverloaded},
	} {
		t.Run(kind, func(t *testing.T) {
			body := problem(kind, "No.")
			got := refusal(t, whole(tc.status, body))
			if got.Class != tc.class || got.Code != kind || got.Status != tc.status || got.Detail != "No." {
				t.Errorf("with its status: %+v", got)
			}
			got = refusal(t, streaming(join(begun, text("0", "hel"), body)...))
			class := tc.class
			if kind == "timeout_error" { // in a stream there is no status
				class = inference.ClassTransport
			}
			if got.Class != class || got.Code != kind || got.Status != 200 || got.Usage.InputTokens != 1125 {
				t.Errorf("in a stream: %+v", got)
			}
			if got = refusal(t, whole(200, body)); got.Class != class {
				t.Errorf("as an answer: %+v", got)
			}
		})
	}
}

// TestRefusedRequests sends what the API says about requests that it refuses.
func TestRefusedRequests(t *testing.T) {
	for message, want := range map[string]inference.Error{
		"prompt is too long: 213462 tokens > 200000 maximum": {Class: inference.ClassContextOverflow, Have: 213462,
			Limit: 200000},
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again": {
			Class: inference.ClassContextOverflow},
		"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.": {
			Class: inference.ClassQuota},
		"messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".": {
			Class: inference.ClassInvalid, Record: inference.RecordReasoning},
		"messages.1.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.": {
			Class: inference.ClassInvalid, Record: inference.RecordReasoning},
		"messages: text content blocks must be non-empty": {Class: inference.ClassInvalid, Record: inference.RecordReasoning},
		"messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next message.": {
			Class: inference.ClassInvalid, Record: inference.RecordCalls},
		"max_tokens: 999999 > 64000, which is the maximum allowed number of output tokens": {Class: inference.ClassInvalid},
	} {
		got := refusal(t, whole(400, problem("invalid_request_error", message)))
		if got.Class != want.Class || got.Record != want.Record || got.Have != want.Have || got.Limit != want.Limit {
			t.Errorf("%s: %+v", message, got)
		}
	}
}

func TestUnusableAnswers(t *testing.T) {
	hello := join(begun, text("0", "hello"), because("end_turn"))
	for name, tc := range map[string]struct {
		from  *server
		class inference.Class
		says  string
	}{
		"no end event": {streaming(hello...), inference.ClassTransport, "without message_stop"},
		"an end within a call": {streaming(join(begun, call("0", "a", "clock", `{"a`)[:2])...),
			inference.ClassTransport, ""},
		"a stream of nothing": {streaming(), inference.ClassTransport, ""},
		"a stream of pings":   {streaming(ping, ping), inference.ClassTransport, ""},
		"an event that was cut": {&server{status: 200, contentType: "text/event-stream",
			answer: "event: message_start\ndata: " + begun[:50]}, inference.ClassTransport, "not JSON"},
		"an error that is text": {&server{status: 200, contentType: "text/event-stream",
			answer: "event: error\ndata: Overloaded\n\n"}, inference.ClassOverloaded, "Overloaded"},
		"an error of an unknown type": {streaming(join(begun, problem("new_error", "Hm."))...),
			inference.ClassOverloaded, "Hm."},
		"a page": {&server{status: 200, contentType: "text/html", answer: "<title>Sign in</title>"},
			inference.ClassTransport, "text/html: an HTML page: Sign in"},
		"a chat completion":    {whole(200, `{"choices":[{"message":{"content":"hi"}}]}`), inference.ClassTransport, "neither a stream nor a message"},
		"content that is null": {whole(200, `{"type":"message","content":null}`), inference.ClassTransport, "neither"},
		"nothing said": {streaming(join(begun, because("end_turn"), ended)...), inference.ClassBadOutput,
			"stop reason end_turn"},
		"nothing but thinking": {streaming(join(begun, started("0", `{"type":"thinking","thinking":"hm"}`),
			stopped("0"),
			because("max_tokens"), ended)...), inference.ClassBadOutput, ""},
		"a full window": {streaming(join(begun, because("model_context_window_exceeded"), ended)...),
			inference.ClassContextOverflow, "no room"},
		"a refusal": {streaming(join(begun, because("refusal"), ended)...), inference.ClassRefused, "filter"},
		"a refusal that is explained": {whole(200,
			`{"type":"message","content":[],"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"No."}}`),
			inference.ClassRefused, "the model refused: No."},
		"a call as text": {streaming(join(begun,
			text("0", `<invoke name=\"clock\"></invoke>`), because("end_turn"), ended)...), inference.ClassBadOutput,
			""},
	} {
		t.Run(name, func(t *testing.T) {
			got := refusal(t, tc.from)
			if got.Class != tc.class || !strings.Contains(got.Detail, tc.says) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestADamagedAnswerIsNotFatal reads answers with members of unexpected types.
func TestADamagedAnswerIsNotFatal(t *testing.T) {
	got, err := generate(t, whole(200, `{"id":7,"model":null,"stop_reason":"end_turn","content":[null,3,{"type":"text","text":7},
		{"type":"thinking","thinking":{}},{"type":"tool_use","id":{},"name":"clock","input":[1]}],"usage":{"input_tokens":"3","output_tokens":-1}}`),
		openai.Profile{NoStream: true})
	if err != nil || got.Text != "7" || len(got.Calls) != 1 || got.Calls[0].Arguments != "[1]" ||
		got.Usage != (turnkeeper.Usage{InputTokens: 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestLimits tries each limit of an answer.
func TestLimits(t *testing.T) {
	takes := func(block string) func(t *testing.T, n int) bool {
		return func(t *testing.T, n int) bool {
			t.Helper()
			_, err := generate(t, whole(200, `{"stop_reason":"end_turn","content":[`+
				strings.TrimSuffix(strings.Repeat(block+",", n), ",")+`]}`), openai.Profile{})
			return err == nil
		}
	}
	limittest.Check(t, map[string]limittest.Row{
		"maxCalls":  {At: 2000, Takes: takes(`{"type":"tool_use","name":"clock","input":{}}`)},
		"maxBlocks": {At: 5000, Takes: takes(`{"type":"text","text":"x"}`)},
	})
}

// FuzzAnswers checks that any answer is an error with a class, or says something, was streamed unchanged, and can be
// sent back.
func FuzzAnswers(f *testing.F) {
	for _, events := range [][]string{
		join(begun, ping, text("0", "hi"), call("1", "toolu_1", "clock", `{"a`, `":1}`), because("tool_use"), ended),
		join(begun, started("0", `{"type":"thinking","thinking":"","signature":""}`),
			delta("0", `{"type":"signature_delta","signature":"s"}`), because("max_tokens"), ended),
		{problem("overloaded_error", "no")},
	} {
		f.Add(true, []byte(streaming(events...).answer))
	}
	f.Add(false, []byte(`{"content":[{"type":"text","text":"x"},{"type":"tool_use"},{"type":""}],"stop_reason":"refusal"}`))
	f.Fuzz(func(t *testing.T, stream bool, answer []byte) {
		s := whole(http.StatusOK, string(answer))
		if stream {
			s.contentType = "text/event-stream"
		}
		res, err := generate(t, s, openai.Profile{})
		if err != nil {
			if failure, ok := errors.AsType[*inference.Error](err); !ok || failure.Class == "" {
				t.Errorf("got %v", err)
			}
			return
		}
		if len(res.Calls) == 0 && inference.Blank(res.Text) {
			t.Errorf("an answer of nothing: %+v", res)
		}
		next := request
		next.Messages = append(next.Messages[:1:1], inference.Message{Role: inference.RoleAssistant, Text: res.Text,
			Calls: res.Calls, Raw: res.Raw, RawProvider: "p"})
		s = whole(http.StatusOK, `{"content":[{"type":"text","text":"x"}]}`)
		if _, err := s.client(t, openai.Profile{}).Generate(t.Context(), next, nil); err != nil {
			t.Errorf("cannot be sent back: %v", err)
		}
	})
}

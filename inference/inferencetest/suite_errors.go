package inferencetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference"
)

type errorCase struct {
	name  string
	reply Reply
	class inference.Class
	code  string
}

// refusals tests error responses: by status, or an error in a 200.
func (s suite) refusals(t *testing.T) {
	run := func(groups ...[]errorCase) func(t *testing.T) {
		return func(t *testing.T) {
			for _, tc := range slices.Concat(groups...) {
				t.Run(tc.name, func(t *testing.T) {
					server := NewServer(tc.reply)
					got := s.generate(t, server, s.provider(t, server), plainRequest())
					compare(t, outcome{Class: tc.class, Code: tc.code}, got)
				})
			}
		}
	}
	t.Run("in any wire", run(statusCases(), shapeCases(), embeddedCases(), overflowCases(), outputCases()))
	group(s, t, "errors in chunks", run(chunkErrorCases()))
}

func statusCases() []errorCase {
	var cases []errorCase
	for status, class := range map[int]inference.Class{
		400: inference.ClassInvalid, 401: inference.ClassAuth, 402: inference.ClassQuota, 403: inference.ClassAuth,
		404: inference.ClassNotFound, 405: inference.ClassNotFound, 408: inference.ClassTransport,
		409: inference.ClassOverloaded,
		413: inference.ClassContextOverflow, 422: inference.ClassInvalid, 429: inference.ClassRateLimited,
		500: inference.ClassOverloaded, 502: inference.ClassOverloaded, 503: inference.ClassOverloaded,
		504: inference.ClassOverloaded, 529: inference.ClassOverloaded,
	} {
		cases = append(cases,
			errorCase{fmt.Sprintf("1.3 status %d, one request", status), Status(status, `{"error":{"message":"no"}}`),
				class, ""},
			errorCase{fmt.Sprintf("1.3 status %d without a body", status), Raw(status, "", ""), class, ""})
	}
	return append(cases,
		errorCase{"1.3 429 insufficient_quota", Fault(429, "insufficient_quota", "You exceeded your current quota"),
			inference.ClassQuota, "insufficient_quota"},
		errorCase{"2 402 with Retry-After (OpenRouter, in flight)", Fault(402, "", "budget", "Retry-After", "3"),
			inference.ClassRateLimited, ""},
		errorCase{"2 402 without Retry-After", Fault(402, "", "Insufficient credits"), inference.ClassQuota, ""},
		errorCase{"2 503 Loading model (llama-server)",
			Status(503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`),
			inference.ClassOverloaded, "unavailable_error"},
		errorCase{"2 529 overloaded (Anthropic)", Fault(529, "overloaded_error", "Overloaded"),
			inference.ClassOverloaded, "overloaded_error"},
		errorCase{"1.3 a key that is refused with 400 (Gemini)",
			Status(400,
				`[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`), inference.ClassAuth, "INVALID_ARGUMENT"},
		errorCase{"1.3 a model that is refused with 400 (OpenRouter)",
			Status(400, `{"error":{"message":"foo/bar is not a valid model ID","code":400}}`),
			inference.ClassNotFound, "400"},
		errorCase{"2 moderation with 403 (OpenRouter)",
			Status(403,
				`{"error":{"code":403,"message":"flagged","metadata":{"reasons":["violence"],"flagged_input":"x"}}}`),
			inference.ClassRefused, "403"},
		errorCase{"2 a content filter with 400 (Azure)", Fault(400, "content_filter", "filtered"),
			inference.ClassRefused, "content_filter"},
	)
}

func shapeCases() []errorCase {
	return []errorCase{
		{"1.3 the error is text (Ollama)", Status(404, `{"error":"model 'x' not found"}`), inference.ClassNotFound, ""},
		{"1.3 a flat error (vLLM)",
			Status(400, `{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}`),
			inference.ClassInvalid, "BadRequestError"},
		{"1.3 detail (FastAPI)", Status(422, `{"detail":[{"loc":["body"],"msg":"field required","type":"missing"}]}`),
			inference.ClassInvalid, ""},
		{"1.3 an array (Gemini)",
			Status(429, `[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]`),
			inference.ClassRateLimited, "RESOURCE_EXHAUSTED"},
		{"1.3 HTML", Raw(502, "text/html", `<html><head><title>502 Bad Gateway</title></head></html>`),
			inference.ClassOverloaded, ""},
		{"1.3 plain text", Raw(503, "text/plain", `upstream connect error`), inference.ClassOverloaded, ""},
		{"1.3 an integer code", Status(429, `{"error":{"message":"slow","code":429}}`),
			inference.ClassRateLimited, "429"},
	}
}

func embeddedCases() []errorCase {
	in := func(body string) Reply { return Status(200, body) }
	return []errorCase{
		{"1.3 200 with an error (OpenRouter)", in(`{"error":{"code":502,"message":"upstream"}}`),
			inference.ClassOverloaded, "502"},
		{"2 200 with a 429 in it", in(`{"error":{"code":429,"message":"slow"}}`), inference.ClassRateLimited, "429"},
		{"2 200 with a 400 in it", in(`{"error":{"code":400,"message":"bad"}}`), inference.ClassInvalid, "400"},
		{"2 200 with a 401 in it", in(`{"error":{"code":"401","message":"bad"}}`), inference.ClassAuth, "401"},
		{"2 200 with an unknown error", in(`{"error":{"message":"something broke"}}`), inference.ClassOverloaded, ""},
		{"2 200 with a type only", in(`{"error":{"type":"invalid_request_error","message":"bad"}}`),
			inference.ClassInvalid, "invalid_request_error"},
		{"2 200 with an error that is text", in(`{"error":"busy"}`), inference.ClassOverloaded, ""},
		{"2 200 with an error beside empty choices", in(`{"choices":[],"error":{"code":503,"message":"busy"}}`),
			inference.ClassOverloaded, "503"},
		{"1.4 an error in the stream", FailStream(Spoken{Text: "hel"}, "rate_limit_error", "slow"),
			inference.ClassRateLimited, "rate_limit_error"},
		{"1.4 an error in the stream that says nothing else", FailStream(Spoken{}, "overloaded_error", "Overloaded"),
			inference.ClassOverloaded, "overloaded_error"},
	}
}

// chunkErrorCases returns errors that stand in chunks.
func chunkErrorCases() []errorCase {
	return []errorCase{
		{"1.4 an error chunk in the stream", SSE(delta(`{"content":"hel"}`), `{"error":{"code":429,"message":"slow"}}`),
			inference.ClassRateLimited, "429"},
		{"1.4 an error in choices[0] only", SSE(delta(`{"content":"hel"}`),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":502,"message":"upstream"}}]}`),
			inference.ClassOverloaded, "502"},
		{"1.4 an error in choices[0] of a whole answer",
			Status(200, `{"choices":[{"message":{"content":"hel"},"error":{"code":401,"message":"key"}}]}`),
			inference.ClassAuth, "401"},
		{"1.4 finish reason error", SSE(delta(`{"content":"hel"}`), finish("error")), inference.ClassOverloaded, ""},
		{"1.4 event: error without an error member", Raw(200, "text/event-stream",
			"data: "+delta(`{"content":"hel"}`)+"\n\nevent: error\ndata: {\"message\":\"slow down\",\"code\":429}\n\n"),
			inference.ClassRateLimited, "429"},
		{"1.4 an array of errors in the stream (Gemini)",
			SSE(`[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`), inference.ClassOverloaded,
			"UNAVAILABLE"},
		{"2 a parse error within the stream", SSE(`{"error":{"message":"error parsing tool call: raw='x'"}}`),
			inference.ClassBadOutput, ""},
	}
}

func overflowCases() []errorCase {
	text := func(status int, message string) Reply {
		return JSON(status, map[string]any{"error": map[string]any{"message": message}})
	}
	cases := []errorCase{
		{"2 overflow by code (OpenAI)", Fault(400, "context_length_exceeded", "too long"),
			inference.ClassContextOverflow, "context_length_exceeded"},
		{"2 overflow by type (llama-server)", Status(400,
			`{"error":{"code":400,"message":"the request exceeds","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}`), inference.ClassContextOverflow, "exceed_context_size_error"},
		{"2 throttling that talks of tokens (Bedrock)",
			text(400, "ThrottlingException: Too many tokens, please wait before trying again."),
			inference.ClassRateLimited, ""},
		{"2 a rate of tokens with 413 (Groq)", Fault(413, "rate_limit_exceeded",
			"Request too large: tokens per minute (TPM): Limit 6000"), inference.ClassRateLimited,
			"rate_limit_exceeded"},
		{"2 too many tokens with 429", text(429, "Too many tokens, please wait"), inference.ClassRateLimited, ""},
		{"2 overflow in a 200",
			Status(200, `{"error":{"code":400,"message":"This endpoint's maximum context length is 4096 tokens."}}`),
			inference.ClassContextOverflow, "400"},
		{"2 overflow as a 500", text(500, "input length 9000 exceeds context length 4096"),
			inference.ClassContextOverflow, ""},
		{"2 400 that is no overflow", text(400, "max_tokens must be positive"), inference.ClassInvalid, ""},
	}
	for _, message := range []string{
		"prompt is too long: 213462 tokens > 200000 maximum",
		"Your input exceeds the context window of this model",
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
		"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
		"Please reduce the length of the messages or completion",
		"the request exceeds the available context size, try increasing it",
		"tokens to keep from the initial prompt is greater than the context length",
		"prompt too long; exceeded max context length by 4 tokens",
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
		"Prompt contains 9000 tokens, too large for model with 8192 maximum context length",
	} {
		cases = append(cases, errorCase{"2 overflow by text: " + message, text(400, message),
			inference.ClassContextOverflow, ""})
	}
	return cases
}

func outputCases() []errorCase {
	return []errorCase{
		{"2 500 error parsing tool call (Ollama)",
			Status(500,
				`{"error":{"message":"error parsing tool call: raw='{\"a\":', err=unexpected end of JSON input","type":"api_error"}}`), inference.ClassBadOutput, "api_error"},
		{"2 500 peg-native format (llama-server)",
			Status(500,
				`{"error":{"code":500,"message":"The model's output does not match the expected peg-native format","type":"server_error"}}`), inference.ClassBadOutput, "server_error"},
		{"2 500 invalid character (Ollama)", Status(500,
			`{"error":"invalid character '<' looking for beginning of value"}`), inference.ClassBadOutput, ""},
		{"2 400 tool_use_failed (Groq)", Fault(400, "tool_use_failed", "Failed to call a function."),
			inference.ClassBadOutput, "tool_use_failed"},
		{"2 a 500 that is an outage", Fault(500, "server_error", "The server had an error"), inference.ClassOverloaded,
			"server_error"},
	}
}

// broken tests unusable answers with status 200.
func (s suite) broken(t *testing.T) {
	whole := `{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}`
	const half = `{"index":0,"id":"a","function":{"name":"clock","arguments":"{"}}`
	for _, tc := range []struct {
		name     string
		reply    Reply
		noStream bool
	}{
		{"1.3 200 that is not JSON", Raw(200, "text/html", "<html><title>Sign in</title></html>"), false},
		{"1.3 the body is cut within the JSON", ResetAfter(Raw(200, "application/json", whole[:40])), true},
		{"1.3 the body ends within the JSON", Status(200, whole[:40]), true},
		{"1.3 reset before the first byte", Reset(), false},
		{"1.3 empty body", Status(200, ""), false},
		{"1.3 zero choices", Status(200, `{"id":"x","choices":[]}`), true},
		{"1.4 clean end before the finish reason", OpenSSE(delta(`{"content":"hel"}`)), false},
		{"1.4 clean end within a call", OpenSSE(toolDelta(half)), false},
		{"1.4 reset within the stream", ResetAfter(OpenSSE(delta(`{"content":"hel"}`))), false},
		{"1.4 reset within a chunk", ResetAfter(Raw(200, "text/event-stream", `data: {"choices":[{"del`)), false},
		{"1.4 end within a chunk", Raw(200, "text/event-stream", `data: {"choices":[{"del`), false},
		{"1.4 a stream of nothing", OpenSSE(), false},
		{"1.4 a stream of [DONE]", SSE(), false},
		{"1.4 a stream of chunks without choices", SSE(`{"choices":[]}`, `{"choices":[],"usage":{"prompt_tokens":0}}`),
			false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := NewServer(tc.reply)
			p := s.provider(t, server, func(target *Target) { target.NoStream = tc.noStream })
			compare(t, failed(inference.ClassTransport), s.generate(t, server, p, plainRequest()))
		})
	}
}

// retryHints tests the headers that say whether and when to retry.
func (s suite) retryHints(t *testing.T) {
	for _, tc := range []struct {
		name    string
		status  int
		headers []string
		body    string
		after   time.Duration
		slack   time.Duration
		class   inference.Class
		noRetry bool
	}{
		{name: "1.3 Retry-After in seconds", status: 429, headers: []string{"Retry-After", "3"}, after: 3 * time.Second,
			class: inference.ClassRateLimited},
		{name: "1.3 Retry-After in fractions", status: 429, headers: []string{"Retry-After", "1.5"},
			after: 1500 * time.Millisecond, class: inference.ClassRateLimited},
		{name: "1.3 Retry-After-Ms goes first", status: 429, headers: []string{"Retry-After", "3", "Retry-After-Ms",
			"250"}, after: 250 * time.Millisecond, class: inference.ClassRateLimited},
		{name: "1.3 a long Retry-After is told as it is", status: 503, headers: []string{"Retry-After", "300"},
			after: 300 * time.Second, class: inference.ClassOverloaded},
		{name: "1.3 Retry-After as a date", status: 429, headers: []string{"Retry-After",
			time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}, after: time.Hour, slack: 2 * time.Minute,
			class: inference.ClassRateLimited},
		{name: "1.3 Retry-After in the past", status: 429, headers: []string{"Retry-After",
			"Mon, 02 Jan 2006 15:04:05 GMT"}, class: inference.ClassRateLimited},
		{name: "1.3 Retry-After that makes no sense", status: 429, headers: []string{"Retry-After", "soon"},
			class: inference.ClassRateLimited},
		{name: "1.3 a negative Retry-After", status: 429, headers: []string{"Retry-After", "-5"},
			class: inference.ClassRateLimited},
		{name: "2 retryDelay in the body (Gemini)", status: 429,
			body:  `[{"error":{"code":429,"message":"slow","details":[{"@type":"RetryInfo","retryDelay":"37s"}]}}]`,
			after: 37 * time.Second, class: inference.ClassRateLimited},
		{name: "1.3 x-should-retry false", status: 500, headers: []string{"X-Should-Retry", "false"},
			class: inference.ClassOverloaded, noRetry: true},
		{name: "1.3 x-should-retry true", status: 400, headers: []string{"X-Should-Retry", "true"},
			class: inference.ClassOverloaded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := NewServer(Status(tc.status, tc.body, tc.headers...))
			_, err := s.provider(t, server).Generate(t.Context(), plainRequest(), nil)
			failure, ok := err.(*inference.Error) //nolint:errorlint // not a wrapped one
			if !ok {
				t.Fatalf("got %v", err)
			}
			if failure.Class != tc.class || failure.Status != tc.status || failure.NoRetry != tc.noRetry {
				t.Errorf("got class %s, status %d, no retry %v", failure.Class, failure.Status, failure.NoRetry)
			}
			if off := (failure.RetryAfter - tc.after).Abs(); off > tc.slack {
				t.Errorf("RetryAfter is %s, want %s", failure.RetryAfter, tc.after)
			}
		})
	}
}

// causes tests which failures the request itself may have caused.
func (s suite) causes(t *testing.T) {
	hel := Spoken{Text: "hel"}
	for name, tc := range map[string]struct {
		reply Reply
		want  bool
	}{
		"401": {Status(401, ""), true}, "402": {Status(402, ""), false}, "403": {Status(403, ""), true},
		"404": {Status(404, ""), true},
		"405": {Status(405, ""), false}, "408": {Status(408, ""), false}, "429": {Status(429, ""), false},
		"500": {Status(500, ""), true},
		"502": {Status(502, ""), true}, "503": {Status(503, ""), false}, "504": {Status(504, ""), true},
		"529":                        {Status(529, ""), false},
		"500 that says overloaded":   {Fault(500, "overloaded_error", "busy"), false},
		"401 for want of credit":     {Fault(401, "insufficient_quota", "pay first"), false},
		"a key refused with 400":     {Fault(400, "", "API key not valid"), false},
		"a 502 in a 200":             {Status(200, `{"error":{"code":502,"message":"upstream"}}`), true},
		"a 503 in a 200":             {Status(200, `{"error":{"code":503,"message":"busy"}}`), false},
		"a 429 in the stream":        {FailStream(hel, "rate_limit_error", "slow"), false},
		"a reset":                    {Reset(), true},
		"a cut stream":               {ResetAfter(Begin(hel)), true},
		"a stream that ends early":   {Begin(hel), true},
		"no byte":                    {Hang(), true},
		"no byte after the first":    {HangAfter(Begin(hel)), true},
		"an answer that is not JSON": {Raw(200, "text/html", "<html></html>"), true},
	} {
		t.Run("3 "+name, func(t *testing.T) {
			server, idle := NewServer(tc.reply), strings.HasPrefix(name, "no byte")
			_, err := s.provider(t, server, func(target *Target) {
				if idle {
					soonIdle(target)
				}
			}).Generate(within(t), plainRequest(), nil)
			failure, ok := err.(*inference.Error) //nolint:errorlint // not a wrapped one
			if !ok {
				t.Fatalf("got %v", err)
			}
			if failure.ByRequest != tc.want {
				t.Errorf("%v: may the request have caused it? got %v, want %v", failure, failure.ByRequest, tc.want)
			}
			if failure.Idle != idle {
				t.Errorf("%v: got idle %v, want %v", failure, failure.Idle, idle)
			}
		})
	}
}

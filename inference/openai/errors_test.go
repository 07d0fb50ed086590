package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/golden"
)

// A refusal is an error response of a provider.
type refusal struct {
	status int
	header string // lines
	body   string
}

// The forms of error bodies: each member of each form, and values of another type where a text is expected.
var forms = []refusal{
	{400, "", ""},
	{400, "", "plain text,\n  on two\tlines "},
	{502, "", "<html><head><title> 502 Bad &amp; Gateway\n</title></head><body>nginx</body></html>"},
	{502, "", "<p>No <b>title</b><script>var x = '<p>';</script> &lt;here&gt;<style>p { color: red }</style></p>"},
	{502, "", "<p>an open tag <b"},
	{400, "", `"a JSON text"`}, {400, "", `[]`}, {400, "", `["a"]`}, {400, "", `{}`}, {400, "", `{"other":1}`},
	{400, "", `{"error":`},
	{400, "", `{"error":{"code":"c","type":"t","message":"m","param":"p"}}`},
	{400, "", `{"error":{"type":"t","message":"m"}}`},
	{400, "", `{"error":{"code":400,"message":"m","status":"S"}}`},
	{400, "", `{"error":{"code":400,"message":"m"}}`},
	{400, "", `{"error":{"code":null,"type":null,"message":null}}`},
	{400, "", `{"error":{"code":true,"type":["t"],"message":{"text":"m"}}}`},
	{400, "", `{"error":"e","message":"m","code":"c"}`}, {400, "", `{"error":true,"message":"m"}`},
	{400, "", `{"error":7}`}, {400, "", `{"error":[]}`},
	{400, "", `{"code":"outer","type":"t2","message":"outer m","error":{"message":"inner m"}}`},
	{400, "", `{"code":"outer","type":"t2","message":"outer m","error":{"code":"inner","type":"t1"}}`},
	{200, "", `{"code":503,"message":"m","error":{"type":"t1"}}`},
	{200, "", `{"code":503,"message":"m","error":{"code":429}}`},
	{400, "", `{"object":"error","message":"flat","type":"BadRequestError","code":400}`},
	{422, "", `{"detail":"a detail"}`}, {422, "", `{"detail":[{"msg":"one","loc":["a"]},{"msg":"two"},{"loc":[]}]}`},
	{422, "", `{"detail":{"msg":"one"}}`},
	{422, "", `{"message":"m","detail":"a detail"}`},
	{503, "", `[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}},{"error":{"message":"another"}}]`},
	{429, "",
		`{"error":{"message":"m","details":[{"@type":"x"},{"retryDelay":"1.5s"},{"retryDelay":"0s"},{"retryDelay":"-3s"},{"retryDelay":"soon"}]}}`},
	{429, "Retry-After: 7", `{"error":{"message":"m","details":[{"retryDelay":"1.5s"}]}}`},
	{400, "", `{"error":{"message":"m","metadata":{"raw":"upstream","provider_name":"x"}}}`},
	{400, "", `{"error":{"message":"m","metadata":{"raw":{"error":"upstream"}}}}`},
	{400, "", `{"error":{"message":"m","metadata":{"raw":null}}}`},
	{400, "", `{"error":{"message":"m","metadata":{"reasons":["violence"]}}}`},
	{400, "", `{"error":{"message":"m","metadata":{"flagged_input":"x"}}}`},
	{400, "", `{"error":{"message":"m","metadata":{"reasons":null,"flagged_input":""}}}`},
	{400, "", `{"error":{"message":"m","metadata":"x"}}`},
	{400, "", `{"error":{"message":"from ` + planted + ` and sk-another-key-0123456789, Bearer abcdefgh.ijk"}}`},
	{400, "", "{\"error\":{\"code\":\"" + planted + "\",\"message\":\"a\\u0000b\\u2028c\xff\"}}"},
}

// Pauses that headers ask for, and advice on whether to ask again. The clock shows 2000-01-01 00:00:00.
var pauses = []refusal{
	{429, "Retry-After: 2", ""}, {429, "Retry-After: 2.5", ""}, {429, "Retry-After-Ms: 1500", ""},
	{429, "Retry-After: 2\nRetry-After-Ms: 1500", ""},
	{429, "Retry-After: 2\nRetry-After-Ms: 0", ""}, {429, "Retry-After: -1", ""}, {429, "Retry-After: NaN", ""},
	{429, "Retry-After: 1e999", ""},
	{429, "Retry-After:  3 ", ""}, {429, "Retry-After: soon", ""},
	{429, "Retry-After: Sat, 01 Jan 2000 00:00:30 GMT", ""},
	{429, "Retry-After: Fri, 31 Dec 1999 23:59:00 GMT", ""}, {429, "Retry-After: Mon, 01 Jan 2001 00:00:00 GMT", ""},
	{402, "Retry-After: 2", ""}, {402, "", ""},
	{400, "X-Should-Retry: true", ""}, {400, "X-Should-Retry: false", ""}, {503, "X-Should-Retry: false", ""},
	{429, "X-Should-Retry: true", ""},
	{302, "Location: https://other.example/v1", "moved"}, {302, "", "moved"},
	{400, "Location: https://other.example/v1", "not moved"},
}

// Messages of known servers, which decide the class or say what of the record was refused.
var messages = []string{
	"Rate limit exceeded: 10 tokens per minute", "Service Unavailable", "your quota", "TPM reached",
	"prompt is too long", "maximum context length is 10 tokens", "too many tokens",
	"This exceeds the model's maximum context length",
	"error parsing tool call: x", "failed to parse model output",
	"invalid character 'x' looking for beginning of value", "Unexpected end of JSON input",
	"API key not valid", "incorrect API key provided", "insufficient credits", "Your credit balance is too low",
	"model x does not exist", "no such model", "unknown model: x",
	"missing thought_signature", "reasoning_content must be passed back", "invalid signature in thinking block",
	"tool_call_id not found", "messages.3: bad", "jinja: raise_exception",
	"roles must alternate", "something else",
}

// TestErrorsOfProviders compares everything that an error says with testdata: for each form of a body, each header, and
// the messages of known servers with the statuses that matter to them.
func TestErrorsOfProviders(t *testing.T) {
	var lines []string
	synctest.Test(t, func(t *testing.T) {
		refuse := func(r refusal) *inference.Error {
			header := http.Header{"Content-Type": {"application/json"}}
			for line := range strings.Lines(r.header) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
				header.Set(name, value)
			}
			return failure(t, refusing{status: r.status, header: header, body: r.body})
		}
		for _, list := range [][]refusal{forms, pauses} {
			for _, r := range list {
				e := refuse(r)
				lines = append(lines, fmt.Sprintf("%d %q %q\n  %s\n  %q", r.status, r.header, r.body,
					facts(e), e.Error()))
			}
		}
		for _, message := range messages {
			for _, status := range []int{200, 400, 403, 413, 500, 503} {
				e := refuse(refusal{status, "", fmt.Sprintf(`{"error":{"message":%q}}`, message)})
				lines = append(lines, message+": "+facts(e))
			}
		}
	})
	golden.File(t, "testdata/errors.txt", strings.Join(lines, "\n")+"\n")
}

// facts returns what an error says in addition to its text.
func facts(e *inference.Error) string {
	text := fmt.Sprintf("%s, %s/%s, status %d, code %q", e.Class, e.Provider, e.Model, e.Status, e.Code)
	for _, fact := range []struct {
		is   bool
		says string
	}{
		{e.RetryAfter != 0, "after " + e.RetryAfter.String()}, {e.NoRetry, "not again"}, {e.Transient(), "transient"},
		{e.ByRequest, "by the request"},
		{e.Record != "", "record: " + string(e.Record)}, {e.Idle, "idle"}, {e.Unsent, "unsent"},
		{e.Unworked(), "unworked"}, {e.Lasting(), "lasting"},
		{e.Have != 0 || e.Limit != 0, fmt.Sprintf("%d of %d tokens", e.Have, e.Limit)},
		{e.Err != nil, fmt.Sprintf("cause %v", e.Err)},
		{e.Usage.InputTokens+e.Usage.OutputTokens > 0, fmt.Sprintf("used %+v", e.Usage)},
	} {
		if fact.is {
			text += ", " + fact.says
		}
	}
	return text
}

// TestFailuresOfTheConnection checks what is said of a request that did not get through, by how far it came.
func TestFailuresOfTheConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		transport http.RoundTripper
		want      string
	}{
		"refused": {http.DefaultTransport, "transport, p/m, status 0, code \"\", transient, unsent, unworked"},
		"with a secret": {roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("no way to " + planted)
		}),
			"transport, p/m, status 0, code \"\", transient, unsent, unworked"},
	} {
		client := newClient(t, openai.Config{Name: "p", BaseURL: "http://127.0.0.1:1/v1", APIKey: planted,
			HTTPClient: &http.Client{Transport: c.transport}})
		_, err := client.Generate(t.Context(), question, nil)
		e, ok := errors.AsType[*inference.Error](err)
		if !ok || strings.Contains(e.Error(), planted) || e.Err != nil && strings.Contains(e.Err.Error(), planted) {
			t.Fatalf("%s: %v", name, err)
		}
		if got, _, _ := strings.Cut(facts(e), ", cause"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

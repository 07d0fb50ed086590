package completions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper/inference"
	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/testrun"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { testrun.Main(m) }

// A reading is what is read of an answer.
type reading struct {
	Deltas   []inference.Delta
	Response inference.Response
	Failure  *inference.Error
	library  bool // the library has decoded a chunk
}

// readWith reads an answer. plainly says whether plain chunks are decoded without the library.
func readWith(ctx context.Context, res *http.Response, body io.Reader, req inference.Request, habit *inference.Habit,
	plainly bool) (r reading) {
	a := newAnswer(req.Tools, habit, func(d inference.Delta) { r.Deltas = append(r.Deltas, d) })
	if !plainly {
		a.decoder.plain = nil
	}
	r.Response, r.Failure = a.read(ctx, res, body, req.MaxOutputTokens)
	r.library = a.decoder.library != nil
	return r
}

var twoTools = inference.Request{MaxOutputTokens: 100, Tools: []inference.ToolDefinition{{Name: "clock"},
	{Name: "read_file"}}}

func streamed() *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		ContentLength: -1, ProtoMajor: 1}
}

// events returns the stream of chunks.
func events(chunks ...string) string {
	var stream strings.Builder
	for _, c := range chunks {
		stream.WriteString("data: " + strings.ReplaceAll(c, "\n", "\ndata: ") + "\n\n")
	}
	return stream.String()
}

// sameStream fails the test unless chunks are read equally with and without the library. It reports whether the library
// was needed.
func sameStream(t testing.TB, chunks ...string) (library bool) {
	t.Helper()
	stream := events(chunks...)
	got := readWith(t.Context(), streamed(), strings.NewReader(stream), twoTools, nil, true)
	want := readWith(t.Context(), streamed(), strings.NewReader(stream), twoTools, nil, false)
	if diff := difference(want, got); diff != "" {
		t.Errorf("%s\nfrom\n%s", diff, stream)
	}
	for _, c := range chunks {
		sameChunk(t, strings.TrimSpace(c))
	}
	return got.library
}

func difference(want, got reading) string {
	want.library, got.library = false, false
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.EquateErrors(), cmp.AllowUnexported(reading{})) + fmt.Sprint(want, got)
}

// sameChunk fails the test if a chunk is plain, and differs from the library's, or is beyond a limit.
func sameChunk(t testing.TB, data string) {
	t.Helper()
	var got chunk
	if !(&plain{}).read([]byte(data), &got) {
		return
	}
	if err := jsonlimit.ModelMessage.Check([]byte(data)); err != nil {
		t.Errorf("%v: %s", err, data)
	}
	want, _ := (&decoder{}).decode([]byte(data))
	if want == nil {
		t.Fatalf("it is no chunk for the library: %s", data)
	}
	if diff := cmp.Diff(*want, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(chunk{}, usage{}, choice{}, message{},
		piece{}, index{})); diff != "" {
		t.Errorf("%s\nfrom %s", diff, data)
	}
}

// ordinary holds answers as servers stream them.
var ordinary = map[string][]string{
	"OpenAI": {
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x1"}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"Grüße,\n\"two\" \ud83c\udf0d"},"logprobs":{"content":[{"token":"a","logprob":-0.5e-3,"bytes":[97],"top_logprobs":[]}],"refusal":null},"finish_reason":null}],"usage":null,"obfuscation":""}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"gpt-5","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read_file","arguments":""}}]},"logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"gpt-5","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":\"\\u00e4\\n\"}"}}]},"logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"gpt-5","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"gpt-5","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":12,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`,
		`[DONE]`,
	},
	"Azure": {
		`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}`,
		`{"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"delta":{"content":"Hi"},"finish_reason":null,"index":0,"logprobs":null}],"created":1738000000,"id":"chatcmpl-1","model":"gpt-5","object":"chat.completion.chunk","system_fingerprint":"fp_1"}`,
		`{"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"stop","index":0,"logprobs":null}],"created":1738000000,"id":"chatcmpl-1","model":"gpt-5","object":"chat.completion.chunk","system_fingerprint":"fp_1"}`,
		`[DONE]`,
	},
	"vLLM": {
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"qwen","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"qwen","choices":[{"index":0,"delta":{"reasoning_content":"why"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":11,"total_tokens":12,"completion_tokens":1}}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"qwen","choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"clock","arguments":"{}"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"qwen","choices":[{"index":0,"delta":{"content":"","tool_calls":null,"function_call":null},"logprobs":null,"finish_reason":"tool_calls","stop_reason":151645,"token_ids":null}]}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1738000000,"model":"qwen","choices":[],"usage":{"prompt_tokens":11,"total_tokens":23,"completion_tokens":12,"prompt_tokens_details":null}}`,
		`[DONE]`,
	},
	"llama.cpp": {
		`{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1738000000,"id":"chatcmpl-1","model":"gpt-oss","system_fingerprint":"b6000-abc","object":"chat.completion.chunk"}`,
		`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}],"created":1738000000,"id":"chatcmpl-1","model":"gpt-oss","system_fingerprint":"b6000-abc","object":"chat.completion.chunk"}`,
		`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1738000000,"id":"chatcmpl-1","model":"gpt-oss","system_fingerprint":"b6000-abc","object":"chat.completion.chunk"}`,
		`{"choices":[],"created":1738000000,"id":"chatcmpl-1","model":"gpt-oss","system_fingerprint":"b6000-abc","object":"chat.completion.chunk","usage":{"completion_tokens":9,"prompt_tokens":70,"total_tokens":79},"timings":{"cache_n":0,"prompt_n":70,"prompt_ms":51.1,"prompt_per_token_ms":0.73,"predicted_n":9}}`,
		`[DONE]`,
	},
	"OpenRouter": {
		`{"id":"gen-1","provider":"Anthropic","model":"anthropic/claude","object":"chat.completion.chunk","created":1738000000,"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"think ","reasoning_details":[{"type":"reasoning.text","text":"think ","format":"anthropic-claude-v1","index":0}]},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}`,
		`{"id":"gen-1","provider":"Anthropic","model":"anthropic/claude","object":"chat.completion.chunk","created":1738000000,"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":null,"reasoning_details":[{"type":"reasoning.text","signature":"x\ud83c","index":0}]},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}`,
		`{"id":"gen-1","provider":"Anthropic","model":"anthropic/claude","object":"chat.completion.chunk","created":1738000000,"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop","native_finish_reason":"end_turn","logprobs":null}]}`,
		`{"id":"gen-1","provider":"Anthropic","model":"anthropic/claude","object":"chat.completion.chunk","created":1738000000,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"native_finish_reason":null,"logprobs":null}],"usage":{"prompt_tokens":11,"completion_tokens":12,"total_tokens":23,"cost":0.00014,"is_byok":false,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0,"video_tokens":0},"cost_details":{"upstream_inference_cost":null,"upstream_inference_prompt_cost":0.1},"completion_tokens_details":{"reasoning_tokens":5,"image_tokens":0}}}`,
		`[DONE]`,
	},
	"DeepSeek": {
		`{"id":"1","object":"chat.completion.chunk","created":1738000000,"model":"deepseek-chat","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"half \ud83c"},"logprobs":null,"finish_reason":null}]}`,
		`{"id":"1","object":"chat.completion.chunk","created":1738000000,"model":"deepseek-chat","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"half \ud83c","reasoning_content":"\udf0d"},"logprobs":null,"finish_reason":null}]}`,
		`{"id":"1","object":"chat.completion.chunk","created":1738000000,"model":"deepseek-chat","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":12,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":4},"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":7}}`,
		`[DONE]`,
	},
}

// TestOrdinaryChunksArePlain checks that the library decodes no chunk of what servers usually send.
func TestOrdinaryChunksArePlain(t *testing.T) {
	for server, chunks := range ordinary {
		t.Run(server, func(t *testing.T) {
			if !sameStream(t, chunks...) {
				return
			}
			for _, c := range chunks {
				if c[0] == '{' && !(&plain{}).read([]byte(c), &chunk{}) {
					t.Errorf("the library decodes %s", c)
				}
			}
		})
	}
}

// TestUnusualChunksAreNotPlain checks that the library decides about all that is unusual.
func TestUnusualChunksAreNotPlain(t *testing.T) {
	delta := func(members string) string { return `{"choices":[{"index":0,"delta":{` + members + `}}]}` }
	call := func(members string) string { return delta(`"tool_calls":[{` + members + `}]`) }
	for _, c := range []string{
		``, `{`, `{}{}`, `{} x`, `{"id":"a",}`, `{,}`, `{"id" "a"}`, `{"choices":[}`, "{\"id\":\"\xff\"}",
		"{\"id\":\"\n\"}", "{\"id\":\"a\\u\"}", `{"id":"\u004"}`, `{"id":"\u004g"}`, `{"id":"\x"}`, `{"id":"\`,
		`{"id":1}`, `{"id":"\n"}`, `{"id":"a","id":"a"}`, `{"ID":"a"}`, `{"i\u0064":"a"}`, `{"error":null}`,
		`{"strange":null}`, `{"choices":null}`, `{"choices":{}}`, `{"choices":[null]}`, `{"choices":[{}]}`,
		`{"choices":[{"delta":null}]}`, `{"choices":[{"delta":{}},{"delta":{}}]}`,
		`{"choices":[{"index":1,"delta":{}}]}`, `{"choices":[{"index":null,"delta":{}}]}`,
		`{"choices":[{"index":0.0,"delta":{}}]}`, `{"choices":[{"delta":{},"message":{}}]}`,
		`{"choices":[{"delta":{},"error":{}}]}`, `{"choices":[{"delta":{},"finish_reason":"st\u006fp"}]}`,
		`{"choices":[{"delta":{},"finish_reason":1}]}`, `{"object":[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}`,
		`{"created":01}`, `{"created":1.}`, `{"created":.1}`, `{"created":1e}`, `{"created":-}`, `{"created":+1}`,
		`{"created":nul}`, `{"created":truth}`, `{"created":[1,]}`, `{"created":{"a":1,}}`, `{"created":{"a"}}`,
		`{"created":{a:1}}`, `{"usage":[]}`, `{"usage":{"prompt_tokens":-1}}`, `{"usage":{"prompt_tokens":1e3}}`,
		`{"usage":{"prompt_tokens":01}}`, `{"usage":{"prompt_tokens":1234567890123456}}`,
		`{"usage":{"prompt_tokens":"1"}}`, `{"usage":{"prompt_tokens":null}}`, `{"usage":{"strange":1}}`,
		`{"usage":{"prompt_tokens_details":[]}}`, `{"usage":{"prompt_tokens_details":{"strange":1}}}`,
		delta(`"content":[]`), delta(`"content":1`), delta(`"strange":1`), delta(`"function_call":{}`),
		delta(`"extra_content":{}`), delta(`"refusal":1`), delta(`"tool_calls":{}`), delta(`"tool_calls":[null]`),
		call(`"index":-1`), call(`"index":"0"`), call(`"index":null`), call(`"id":1`), call(`"id":"\n"`),
		call(`"input":{}`), call(`"function":null`), call(`"function":{"name":1}`), call(`"function":{"name":"\n"}`),
		call(`"function":{"arguments":{}}`), call(`"function":{"strange":null}`),
	} {
		if (&plain{}).read([]byte(c), &chunk{}) {
			t.Errorf("%q is plain", c)
		}
		sameStream(t, c, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`)
	}
}

// TestServersAnswersAreReadEqually compares the decoders on the answers of the client's tests.
func TestServersAnswersAreReadEqually(t *testing.T) {
	data, err := os.ReadFile("../testdata/answers.txt")
	if err != nil {
		t.Fatal(err)
	}
	var chunks []string
	answers := 0
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "  ") {
			chunks = append(chunks, line)
			continue
		}
		if len(chunks) > 0 {
			sameStream(t, chunks...)
			answers++
		}
		chunks = nil
	}
	if answers < 40 {
		t.Errorf("there are only %d answers", answers)
	}
}

// FuzzPlainChunk checks that any chunks, one a line, are read as if the library had decoded them all.
func FuzzPlainChunk(f *testing.F) {
	for _, chunks := range ordinary {
		f.Add([]byte(strings.Join(chunks, "\n")))
		for _, c := range chunks {
			f.Add([]byte(c))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameStream(t, strings.Split(string(data), "\n")...) })
}

// TestLimits tries each limit of an answer.
func TestLimits(t *testing.T) {
	reads := func(text string) bool { return (&plain{}).read([]byte(text), &chunk{}) }
	taken := func(t *testing.T, delta string) bool {
		r := readWith(t.Context(), streamed(), strings.NewReader(events(`{"choices":[{"delta":{`+delta+
			`},"finish_reason":"stop"}]}`)), inference.Request{}, nil, true)
		return r.Failure == nil
	}
	list := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	limittest.Check(t, map[string]limittest.Row{
		"maxPlain": {At: 65536, Takes: func(_ *testing.T, n int) bool {
			return reads(`{"id":"` + strings.Repeat("x", n-len(`{"id":""}`)) + `"}`)
		}},
		"maxLevels": {At: 16, Takes: func(_ *testing.T, n int) bool {
			return reads(`{"object":` + strings.Repeat(`[`, n-1) + `{}` + strings.Repeat(`]`, n-1) + `}`)
		}},
		"maxDigits": {At: 15, Takes: func(_ *testing.T, n int) bool {
			return reads(`{"usage":{"prompt_tokens":` + strings.Repeat("9", n) + `}}`)
		}},
		"maxCalls": {At: 2000, Takes: func(t *testing.T, n int) bool {
			return taken(t, `"tool_calls":[`+list(`{"function":{"name":"f","arguments":"{}"}}`, n)+`]`)
		}},
		"maxParts": {At: 20000, Takes: func(t *testing.T, n int) bool {
			return taken(t, `"content":[{"text":"x"},`+list(`{}`, n-1)+`]`)
		}},
	})
}

var errBroken = errors.New("the connection broke")

// A tee keeps what is read.
type tee struct {
	from io.Reader
	all  bytes.Buffer
	err  error // of the last read
}

func (t *tee) Read(p []byte) (n int, err error) {
	n, err = t.from.Read(p)
	t.all.Write(p[:n])
	t.err = err
	return n, err
}

// again returns a reader of what was read, which ends in the same way.
func (t *tee) again() io.Reader {
	err := t.err
	if err == nil {
		err = errBroken // the answer had ended before
	}
	return io.MultiReader(bytes.NewReader(t.all.Bytes()), failing{err})
}

// A failing reader fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
)

const key = "sk-test-0123456789abcdef"

func TestNewChecksItsConfiguration(t *testing.T) {
	for name, cfg := range map[string]openai.Config{
		"no name":        {BaseURL: "http://localhost"},
		"no scheme":      {Name: "p", BaseURL: "localhost:1234/v1"},
		"another scheme": {Name: "p", BaseURL: "ftp://user:pass-word@localhost"},
		"not a URL":      {Name: "p", BaseURL: "http://user:pass-word@%zz"},
		"no host":        {Name: "p", BaseURL: "http:///v1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openai.New(cfg)
			if err == nil || strings.Contains(err.Error(), "pass-word") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	cfg := openai.Config{Name: "p", APIKey: key, Headers: map[string]openai.Secret{"X-Key": "header-secret"}}
	client := newClient(t, cfg)
	encoded, err := json.Marshal(cfg.APIKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{cfg.APIKey, cfg, &cfg, client} {
			if s := fmt.Sprintf(verb, v) + string(encoded); strings.Contains(s, "0123456789") || strings.Contains(s,
				"header-secret") || strings.Contains(s, fmt.Sprintf("%x", key)) {
				t.Errorf("%s of a %T prints %s", verb, v, s)
			}
		}
	}
	if got := fmt.Sprint(openai.Secret("")); got != "" {
		t.Errorf("no secret prints %q", got)
	}
}

func TestProfiles(t *testing.T) {
	history := []inference.Message{
		{Role: inference.RoleUser, Text: "hi"},
		{Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "call_1", Name: "clock", Arguments: "{}"}},
			RawProvider: "p", Raw: json.RawMessage(`{"reasoning":"hm"}`)},
		{Role: inference.RoleTool, CallID: "call_1", Text: "noon"},
	}
	type sent struct {
		Stream, StreamOptions, ToolChoice, User, TokenField any
		Content, Reasoning, ReasoningContent                any
		ID                                                  int
	}
	const absent = "absent"
	usage := map[string]any{"include_usage": true}
	usual := sent{true, usage, "none", "u", "max_tokens", nil, "hm", absent, 6}
	with := func(change func(*sent)) sent {
		s := usual
		change(&s)
		return s
	}
	for name, want := range map[string]sent{
		"generic":    usual,
		"openrouter": usual,
		"openai":     with(func(s *sent) { s.TokenField = "max_completion_tokens" }),
		"ollama":     with(func(s *sent) { s.Content, s.ToolChoice = "", absent }),
		"vllm":       with(func(s *sent) { s.Content = "" }),
		"llamacpp":   with(func(s *sent) { s.Content = "" }),
		"mistral":    with(func(s *sent) { s.Content, s.StreamOptions, s.User, s.ID = "", absent, absent, 9 }),
		"deepseek":   with(func(s *sent) { s.Content, s.ReasoningContent = "", "" }),
		"azure":      with(func(s *sent) { s.TokenField = "max_completion_tokens" }),
		"anthropic":  with(func(s *sent) { s.User, s.Reasoning = absent, absent }),
		"gemini":     with(func(s *sent) { s.User, s.Reasoning = absent, absent }),
	} {
		t.Run(name, func(t *testing.T) {
			profile, ok := openai.ProfileNamed(name)
			if !ok {
				t.Fatal("there is no such profile")
			}
			w := &wire{contentType: "application/json"}
			_, _ = wired(t, w, profile).Generate(t.Context(), inference.Request{
				Model: "m", Messages: history, MaxOutputTokens: 9, User: "u", ToolChoice: inference.ToolChoiceNone,
				Tools: []inference.ToolDefinition{{Name: "clock"}},
			}, nil)
			var body map[string]any
			if err := json.Unmarshal(w.sent, &body); err != nil {
				t.Fatal(err)
			}
			get := func(from map[string]any, name string) any {
				if v, ok := from[name]; ok {
					return v
				}
				return absent
			}
			assistant := body["messages"].([]any)[1].(map[string]any)
			got := sent{
				get(body, "stream"), get(body, "stream_options"), get(body, "tool_choice"), get(body, "user"), absent,
				get(assistant, "content"), get(assistant, "reasoning"), get(assistant, "reasoning_content"),
				len(assistant["tool_calls"].([]any)[0].(map[string]any)["id"].(string)),
			}
			for _, field := range []string{"max_tokens", "max_completion_tokens"} {
				if body[field] == 9.0 {
					got.TokenField = field
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if len(openai.ProfileNames()) != 11 {
		t.Errorf("profiles are %v", openai.ProfileNames())
	}
}

func TestProfileSwitches(t *testing.T) {
	w := &wire{contentType: "application/json"}
	profile := openai.Profile{
		NoStream: true, EmptyContent: openai.ContentOmit, Reasoning: openai.ReasoningNever,
		Extra: map[string]json.RawMessage{"seed": json.RawMessage(`7`), "model": json.RawMessage(`"stolen"`)},
	}
	_, _ = wired(t, w, profile).Generate(t.Context(), inference.Request{Model: "m", Messages: []inference.Message{
		{Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "a", Name: "clock", Arguments: "{}"}},
			RawProvider: "p", Raw: json.RawMessage(`{"reasoning":"hm"}`)},
	}}, nil)
	var body map[string]any
	if err := json.Unmarshal(w.sent, &body); err != nil {
		t.Fatal(err)
	}
	if body["seed"] != 7.0 || body["model"] != "m" || body["stream"] != nil {
		t.Errorf("sent %s", w.sent)
	}
	assistant := body["messages"].([]any)[0].(map[string]any)
	if _, ok := assistant["content"]; ok || assistant["reasoning"] != nil {
		t.Errorf("sent %v", assistant)
	}
}

func TestSignaturesGoToTheirOwnCalls(t *testing.T) {
	w := &wire{contentType: "application/json"}
	_, _ = wired(t, w, openai.Profile{}).Generate(t.Context(), inference.Request{Model: "m",
		Messages: []inference.Message{{
			Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "b", Name: "clock", Arguments: "{}"}},
			RawProvider: "p",
			Raw: json.RawMessage(
				`{"tool_calls":[{"id":"a","function":{"name":"other"},"extra_content":{"signature":"of a"}},{"id":"b","function":{"name":"clock"}}]}`),
		}}}, nil)
	if strings.Contains(string(w.sent), "of a") || !strings.Contains(string(w.sent), `"id":"b"`) {
		t.Errorf("one of two calls was kept, and sent as %s", w.sent)
	}
}

// A silent body returns no byte until it is closed.
type silent struct{ ended <-chan struct{} }

func (s silent) Read([]byte) (int, error) { <-s.ended; return 0, io.ErrClosedPipe }
func (silent) Close() error               { return nil }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheIdleTimeoutIs20Seconds(t *testing.T) {
	for name, header := range map[string]bool{"before the answer": false, "within the answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := roundTrip(func(r *http.Request) (*http.Response, error) {
					if !header {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return &http.Response{StatusCode: http.StatusOK,
						Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: silent{r.Context().Done()},
						Request: r}, nil
				})
				c := newClient(t, openai.Config{Name: "p", BaseURL: "http://localhost",
					HTTPClient: &http.Client{Transport: transport}})
				start := time.Now()
				_, err := c.Generate(t.Context(), inference.Request{Model: "m",
					Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}, nil)
				if inference.ClassOf(err) != inference.ClassTransport || !strings.Contains(err.Error(), "20s") {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != 20*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

func TestWholeAnswersMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-time.After(50 * time.Second)
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
				Body: io.NopCloser(strings.NewReader(
					`{"choices":[{"message":{"content":"late"},"finish_reason":"stop"}]}`)),
			}, nil
		})
		c := newClient(t, openai.Config{Name: "p", BaseURL: "http://localhost", Profile: openai.Profile{NoStream: true},
			HTTPClient: &http.Client{Transport: transport}})
		res, err := c.Generate(t.Context(), inference.Request{Model: "m",
			Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}, nil)
		if err != nil || res.Text != "late" {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func TestModels(t *testing.T) {
	base := inferencetest.NewServer().Start(t)
	status := func(code int) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx       context.Context
		base      string
		transport http.RoundTripper
		class     inference.Class
	}{
		"there":                   {base: base},
		"there without a list":    {transport: status(404)},
		"a wrong key":             {transport: status(401), class: inference.ClassAuth},
		"busy":                    {transport: status(503), class: inference.ClassOverloaded},
		"nobody there":            {base: "http://127.0.0.1:1/v1", class: inference.ClassTransport},
		"no time to look for it":  {ctx: ended, base: base, class: inference.ClassTransport},
		"a redirect is not there": {transport: status(302), class: inference.ClassInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := openai.Config{Name: "p", BaseURL: tc.base, APIKey: key}
			if tc.transport != nil {
				cfg.BaseURL, cfg.HTTPClient = "http://localhost/v1", &http.Client{Transport: tc.transport}
			}
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			_, _, err := newClient(t, cfg).Models(ctx)
			if (err == nil) != (tc.class == "") || err != nil && inference.ClassOf(err) != tc.class {
				t.Errorf("got %v", err)
			}
		})
	}
}

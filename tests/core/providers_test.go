package core_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// An endpoint is the part of a provider's service around its model.
type endpoint struct {
	refuse func(r *http.Request, body map[string]json.RawMessage) (status int, answer string)
	get    map[string]string // answers to GET, by path
	post   map[string]string // answers to POST other than completions, by path
	path   string            // path of completions
}

const (
	endpointKey = "key-of-the-endpoint-7c1d"
	team        = "team-secret-91aa"
	signature   = "signature-secret-33f0"
)

// serve runs the endpoint in front of e's model server, and returns its scheme and host.
func (p endpoint) serve(e *env.Env) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]map[string]string{http.MethodGet: p.get, http.MethodPost: p.post}[r.Method]
		switch answer, ok := answers[r.URL.Path]; {
		case r.URL.Path != p.path && !ok:
			http.NotFound(w, r)
		case r.URL.Path != p.path:
			if status, refusal := p.refused(r, nil); status != 0 {
				answerJSON(w, status, refusal)
				return
			}
			answerJSON(w, http.StatusOK, answer)
		default:
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client disconnected
			}
			body := map[string]json.RawMessage{}
			_ = json.Unmarshal(text, &body) // the strict model server complains
			if status, refusal := p.refused(r, body); status != 0 {
				answerJSON(w, status, refusal)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(text))
			e.Model.ServeHTTP(w, r)
		}
	}))
	e.T.Cleanup(func() {
		e.Model.Release()
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func (p endpoint) refused(r *http.Request, body map[string]json.RawMessage) (int, string) {
	if p.refuse == nil {
		return 0, ""
	}
	return p.refuse(r, body)
}

func answerJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// azure refuses the requests that Azure OpenAI refuses.
func azure(version bool) func(*http.Request, map[string]json.RawMessage) (int, string) {
	return func(r *http.Request, body map[string]json.RawMessage) (int, string) {
		switch {
		case r.Header.Get("Api-Key") != endpointKey || r.Header.Get("Authorization") != "":
			return 401,
				`{"error":{"code":"401","message":"Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API endpoint for your resource."}}`
		case version && r.URL.Query().Get("api-version") != "2024-10-21":
			return 404, `{"error":{"code":"404","message":"Resource not found"}}`
		case body != nil && body["max_tokens"] != nil:
			return 400,
				`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`
		}
		return 0, ""
	}
}

// without refuses a request with an unknown field. format is the message with a verb for the field's name.
func without(known []string, status int, format string, body map[string]json.RawMessage) (int, string) {
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if !slices.Contains(known, name) {
			return status, fmt.Sprintf(format, name)
		}
	}
	return 0, ""
}

// The fields that Anthropic documents as supported, and those that Google's endpoint knows.
var (
	anthropicFields = []string{"model", "max_tokens", "max_completion_tokens", "stream", "stream_options", "top_p",
		"parallel_tool_calls", "stop", "temperature", "n", "tools", "tool_choice", "messages"}
	geminiFields = []string{"model", "max_tokens", "max_completion_tokens", "stream", "stream_options", "top_p",
		"stop", "temperature", "n", "tools", "tool_choice", "messages", "response_format",
		"reasoning_effort", "extra_body"}
	anthropicIDs = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

func messagesOf(body map[string]json.RawMessage) (messages []inferencetest.ChatMessage) {
	_ = json.Unmarshal(body["messages"], &messages) // the strict model server complains
	return messages
}

func anthropic(r *http.Request, body map[string]json.RawMessage) (int, string) {
	if body == nil { // Anthropic's own API
		if r.Header.Get("X-Api-Key") != endpointKey || r.Header.Get("Anthropic-Version") == "" ||
			r.Header.Get("Authorization") != "" {
			return 401,
				`{"type":"error","error":{"type":"authentication_error","message":"x-api-key header is required"},"request_id":"req_1"}`
		}
		return 0, ""
	}
	if r.Header.Get("Authorization") != "Bearer "+endpointKey {
		return 401,
			`{"error":{"code":"authentication_error","message":"Invalid bearer token","type":"authentication_error","param":null}}`
	}
	for _, m := range messagesOf(body) {
		if m.Role == "assistant" && string(m.Content) == `""` {
			return 400,
				`{"error":{"code":"invalid_request_error","message":"messages: text content blocks must be non-empty","type":"invalid_request_error","param":null}}`
		}
		for _, c := range m.ToolCalls {
			if !anthropicIDs.MatchString(c.ID) {
				return 400,
					`{"error":{"code":"invalid_request_error","message":"messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'","type":"invalid_request_error","param":null}}`
			}
		}
	}
	return without(anthropicFields, 400,
		`{"error":{"code":"invalid_request_error","message":"%s: Extra inputs are not permitted","type":"invalid_request_error","param":null}}`, body)
}

// anthropicMessages refuses the requests that Anthropic's own API refuses, besides those of the strict server.
func anthropicMessages(r *http.Request, body map[string]json.RawMessage) (int, string) {
	if r.Header.Get("X-Api-Key") != endpointKey || r.Header.Get("Anthropic-Version") == "" ||
		r.Header.Get("Authorization") != "" {
		return 401,
			`{"type":"error","error":{"type":"authentication_error","message":"x-api-key header is required"},"request_id":"req_1"}`
	}
	if body == nil {
		return 0, ""
	}
	return without([]string{"model", "max_tokens", "stream", "system", "tools", "messages"}, 400,
		`{"type":"error","error":{"type":"invalid_request_error","message":"%s: Extra inputs are not permitted"}}`, body)
}

func gemini(r *http.Request, body map[string]json.RawMessage) (int, string) {
	if r.Header.Get("Authorization") != "Bearer "+endpointKey {
		return 400,
			`[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}]`
	}
	return without(geminiFields, 400,
		`[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"%s\": Cannot find field.","status":"INVALID_ARGUMENT"}}]`, body)
}

func openrouter(r *http.Request, body map[string]json.RawMessage) (int, string) {
	switch {
	case r.Header.Get("Authorization") != "Bearer "+endpointKey:
		return 401, `{"error":{"message":"No auth credentials found","code":401}}`
	case r.Header.Get("HTTP-Referer") != "https://example.com" || r.Header.Get("X-Title") != "Example":
		return 400, `{"error":{"message":"the test wants to know the application","code":400}}`
	case body != nil && string(body["provider"]) != `{"allow_fallbacks":false,"order":["anthropic","google-vertex"]}`:
		return 400, `{"error":{"message":"the test wants the routing","code":400}}`
	}
	return 0, ""
}

func gateway(r *http.Request, _ map[string]json.RawMessage) (int, string) {
	if r.Header.Get("Authorization") != "Bearer "+endpointKey || r.Header.Get("X-Team") != team ||
		r.URL.Query().Get("region") != "eu" || r.URL.Query().Get("signature") != signature {
		return 403, `{"detail":"not for ` + r.URL.Query().Get("signature") + `"}`
	}
	return 0, ""
}

func bearer(r *http.Request, _ map[string]json.RawMessage) (int, string) {
	if r.Header.Get("Authorization") != "Bearer "+endpointKey {
		return 401,
			`{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`
	}
	return 0, ""
}

const (
	azureModels     = `{"data":[{"id":"gpt-4o-2024-11-20","object":"model","lifecycle_status":"generally-available"}],"object":"list"}`
	anthropicModels = `{"data":[{"type":"model","id":"claude-sonnet-4-5-20250929","display_name":"Claude Sonnet 4.5","created_at":"2025-09-29T00:00:00Z"}],"has_more":false,"first_id":"a","last_id":"a"}`
	geminiModels    = `{"object":"list","data":[{"id":"models/gemini-2.5-flash","object":"model","owned_by":"google"},{"id":"models/gemini-2.5-pro","object":"model","owned_by":"google"}]}`
)

// endpoints has an endpoint for each recipe of docs/providers.md, by heading and number.
var endpoints = map[string]struct {
	endpoint
	window int
}{
	"OpenAI 1": {endpoint{path: "/v1/chat/completions", refuse: bearer,
		get: map[string]string{"/v1/models": `{"object":"list","data":[{"id":"gpt-5-mini","object":"model"}]}`}},
		272000},
	"Azure OpenAI 1": {endpoint{path: "/openai/deployments/gpt-5-mini/chat/completions", refuse: azure(true),
		get: map[string]string{"/openai/models": azureModels}}, 272000},
	"Azure OpenAI 2": {endpoint{path: "/openai/v1/chat/completions", refuse: azure(false),
		get: map[string]string{"/openai/v1/models": azureModels}}, 272000},
	"Anthropic 1": {endpoint{path: "/v1/messages", refuse: anthropicMessages,
		get: map[string]string{"/v1/models": anthropicModels}}, 200000},
	"Anthropic 2": {endpoint{path: "/v1/chat/completions", refuse: anthropic,
		get: map[string]string{"/v1/models": anthropicModels}}, 200000},
	"Gemini 1": {endpoint{path: "/v1beta/openai/chat/completions", refuse: gemini,
		get: map[string]string{"/v1beta/openai/models": geminiModels}}, 1048576},
	"OpenRouter 1": {endpoint{path: "/api/v1/chat/completions", refuse: openrouter,
		get: map[string]string{
			"/api/v1/models": `{"data":[{"id":"anthropic/claude-sonnet-4.5","context_length":1000000}]}`}}, 1000000},
	"Ollama 1": {endpoint{path: "/v1/chat/completions",
		post: map[string]string{
			"/api/show": `{"parameters":"stop \"x\"\nnum_ctx    9216","model_info":{"qwen3.context_length":40960}}`},
		get: map[string]string{
			"/v1/models": `{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}`,
			"/api/ps":    `{"models":[{"name":"other:latest","context_length":2048}]}`}}, 9216},
	"vLLM 1": {endpoint{path: "/v1/chat/completions",
		get: map[string]string{
			"/v1/models": `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","owned_by":"vllm","max_model_len":10240}]}`}}, 10240},
	"llama.cpp 1": {endpoint{path: "/v1/chat/completions",
		get: map[string]string{"/props": `{"default_generation_settings":{"id":0,"n_ctx":8192},"total_slots":4}`,
			"/v1/models": `{"object":"list","data":[{"id":"qwen3-8b","object":"model","owned_by":"llamacpp","meta":{"n_ctx_train":40960}}]}`}}, 8192},
	"Any other endpoint 1": {endpoint{path: "/v1/chat/completions", refuse: gateway,
		get: map[string]string{"/v1/models": `{"object":"list","data":[{"id":"large","object":"model"}]}`}}, 131072},
}

// recipes returns the config files in docs/providers.md, by heading and number.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(env.Path("docs/providers.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(body, -1) {
			found[fmt.Sprintf("%s %d", title, i+1)] = m[1]
		}
	}
	return found
}

var anyHost = regexp.MustCompile(`base_url: https?://[^/\s]+`)

// setRecipe writes a recipe as the settings, for an endpoint at the host. If the recipe relies on the
// default address, it adds the endpoint's.
func setRecipe(e *env.Env, recipe, host, path string) {
	settings := anyHost.ReplaceAllString(recipe, "base_url: "+host)
	if !strings.Contains(settings, "base_url:") {
		settings = strings.Replace(settings, "    api_key_env", "    base_url: "+host+path+"\n    api_key_env", 1)
	}
	e.WriteFile("turnkeeper.yaml", settings)
	for _, name := range []string{"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY",
		"OPENROUTER_API_KEY", "GATEWAY_KEY"} {
		if strings.Contains(recipe, "api_key_env: "+name) {
			e.Vars[name] = endpointKey
		}
	}
	if strings.Contains(recipe, "GATEWAY_TEAM") {
		e.Vars["GATEWAY_TEAM"], e.Vars["GATEWAY_SIGNATURE"] = team, signature
	}
	e.WriteAgent("clerk", env.MarkerTools)
}

// A turn with a tool call runs with each recipe of the docs, against a server that behaves like the
// provider's, with the right context window. No command that checks the settings reports a problem.
func TestEachProvidersRecipe(t *testing.T) {
	t.Parallel()
	all := recipes(t)
	if missing := slices.DeleteFunc(slices.Sorted(maps.Keys(endpoints)), func(name string) bool {
		return all[name] != ""
	}); len(missing) > 0 || len(all) != len(endpoints) {
		t.Fatalf("the docs lack recipes for %q, or have others: %q", missing, slices.Sorted(maps.Keys(all)))
	}
	for _, name := range testrun.Sample(slices.Sorted(maps.Keys(endpoints)), 4) {
		tc := endpoints[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			host := tc.serve(e)
			setRecipe(e, all[name], host, strings.TrimSuffix(strings.TrimSuffix(tc.path,
				"/chat/completions"), "/messages"))
			// the table omits local servers, because they may serve other models under OpenAI's names
			if name == "OpenAI 1" {
				e.WriteAgent("clerk", env.MarkerTools, "context_window: 272000")
			}
			e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{ID: "call:1/a", Name: "mark_none",
				Arguments: `{"label":"one"}`}), inferencetest.Text("Done.")))
			e.StartWorker()
			turn := e.TurnOf(e.Enqueue("clerk", "Mark one."))
			e.WantEnd(turn, "succeeded", "none", 2)
			e.WantReply(turn, "Done.")
			if got := windowOf(e, turn); got != tc.window {
				t.Errorf("the context window is %d, want %d", got, tc.window)
			}
			for _, args := range [][]string{{"agents", "check"}, {"doctor"}} {
				r := e.Turnctl(args...)
				for _, said := range []string{"not known", "does not list", "refuses", "cannot be reached", endpointKey,
					team, signature} {
					if strings.Contains(r.Stdout+r.Stderr, said) {
						t.Errorf("turnctl %s says %q:\n%s%s", args[0], said, r.Stdout, r.Stderr)
					}
				}
				if args[0] == "doctor" && !strings.Contains(r.Stdout, " answers") {
					t.Errorf("turnctl doctor prints\n%s", r.Stdout)
				}
			}
		})
	}
}

// windowOf returns the context window of a turn's first request.
func windowOf(e *env.Env, turn env.Turn) int {
	e.T.Helper()
	rounds := env.Turnctl[shownWindow](e, "show", fmt.Sprint(turn.ID)).RoundLog
	if len(rounds) == 0 {
		e.T.Fatalf("turn %d has no round", turn.ID)
	}
	return rounds[0].Request.Window
}

// Doctor distinguishes a wrong key, an unreachable endpoint and an unlisted model. It accepts Azure
// deployments.
func TestDoctorOnProviders(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	dead := httptest.NewServer(http.NotFoundHandler())
	deadURL := dead.URL
	dead.Close()
	hangs := endpointThatHangs(t)
	g := endpoints["Gemini 1"].serve(e)
	a := endpoints["Azure OpenAI 1"].serve(e)
	elsewhere := endpoints["Any other endpoint 1"].serve(e)
	e.Vars["RIGHT"], e.Vars["WRONG"], e.Vars["SIGNATURE"] = endpointKey, "wrong-key-0011223344", signature
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`
default_model: gemini/gemini-2.5-flash
providers:
  gemini: {base_url: %[1]s/v1beta/openai, api_key_env: RIGHT}
  wrong: {base_url: %[1]s/v1beta/openai, api_key_env: WRONG, profile: gemini}
  keyless: {base_url: %[2]s/openai, profile: azure, query: {api-version: 2024-10-21}}
  azure: {base_url: %[2]s/openai, api_key_env: RIGHT, query: {api-version: 2024-10-21}}
  dead: {base_url: %[3]s/v1}
  hangs: {base_url: %[4]s/v1}
  signed: {base_url: %[5]s/v1, api_key_env: RIGHT, query: {signature: {env: SIGNATURE}}}
`, g, a, deadURL, hangs, elsewhere))
	e.WriteAgent("listed", "model: gemini/models/gemini-2.5-pro")
	e.WriteAgent("misspelt", "model: gemini/gemini-2.5-flush", "fallback_models: [azure/my-deployment]",
		"context_window: 20000")
	e.WriteAgent("unlucky", "model: wrong/gemini-2.5-pro", "fallback_models: [dead/x]", "context_window: 20000")
	found := diagnose(e)
	for name, want := range map[string][3]string{
		"provider gemini": {"ok", "answers; models listed: 2", ""},
		"provider azure":  {"ok", "answers", ""},
		"provider wrong":  {"fail", "refuses the key: HTTP 400, API key not valid", "replace the key"},
		"provider keyless": {"warn", "requires a key, and none is set: HTTP 401, Access denied",
			"set providers.keyless.api_key_env"},
		"provider signed": {"warn", "refuses the key: HTTP 403, not for [redacted]", "replace the key"},
		"provider dead": {"fail", "cannot be reached: ",
			"start the server, or correct providers.dead.base_url"},
		"provider hangs": {"warn", "cannot be reached: no answer within", "start the server"},
		"model gemini/gemini-2.5-flush": {"warn", "does not list it; used by misspelt",
			"similar names are gemini/gemini-2.5-flash"},
	} {
		is := false
		for _, c := range found {
			is = is || c.Name == name && c.Verdict == want[0] && strings.Contains(c.Found, want[1]) &&
				strings.Contains(c.Advice, want[2]) && (want[2] == "") == (c.Advice == "")
		}
		if !is {
			t.Errorf("doctor has no finding about %s: %q", name, want)
		}
	}
	for _, c := range found {
		if strings.HasPrefix(c.Name, "model ") && c.Name != "model gemini/gemini-2.5-flush" {
			t.Errorf("doctor prints %+v", c)
		}
	}
	if t.Failed() {
		t.Logf("%+v", found)
	}
}

// A finding is one check of turnctl doctor.
type finding struct{ Name, Verdict, Found, Advice string }

// diagnose runs doctor. It ignores the exit code, because the tests' Postgres does not sync.
func diagnose(e *env.Env) []finding {
	e.T.Helper()
	r := e.Turnctl("-o", "json", "doctor")
	if strings.Contains(r.Stdout+r.Stderr, endpointKey) || strings.Contains(r.Stdout+r.Stderr, "wrong-key") ||
		strings.Contains(r.Stdout+r.Stderr, signature) {
		e.T.Errorf("doctor shows a key:\n%s%s", r.Stdout, r.Stderr)
	}
	var found struct{ Checks []finding }
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		e.T.Fatalf("doctor ended with %d: %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	return found.Checks
}

// endpointThatHangs accepts requests and never answers.
func endpointThatHangs(t *testing.T) string {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(over)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// The context window of a model comes from the table or the settings. If it is unknown, the worker, agents
// check and doctor warn once. If a server reports its window in an error, later turns use it.
func TestContextWindowsByModel(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	var loaded atomic.Bool
	ollama := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/ps":
			answerJSON(w, 200, map[bool]string{false: `{"models":[]}`,
				true: `{"models":[{"name":"llama3.2:latest","model":"llama3.2:latest","context_length":12288}]}`}[loaded.Load()])
		case "/api/show":
			answerJSON(w, 200, `{"parameters":"temperature 0.7","model_info":{"llama.context_length":131072}}`)
		case "/v1/models":
			answerJSON(w, 200, `{"object":"list","data":[{"id":"llama3.2:latest"}]}`)
		default:
			loaded.Store(true)
			e.Model.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(ollama.Close)
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`
default_model: azure/gpt-4.1-2025-04-14
providers:
  azure: {base_url: %[1]s, max_tokens_field: max_tokens}
  test: {base_url: %[1]s}
  ollama: {base_url: %[2]s/v1}
models:
  azure/gpt-5: {context_window: 64000}
`, e.ModelURL, ollama.URL))
	e.WriteAgent("known")
	e.WriteAgent("overridden", "model: azure/gpt-5")
	e.WriteAgent("unknown", "model: test/my-gpt-5", "fallback_models: [azure/gpt-5]")
	e.WriteAgent("unknown-too", "model: test/my-gpt-5")
	e.WriteAgent("given", "model: test/another", "context_window: 5000")
	e.WriteAgent("local", "model: ollama/llama3.2")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("Hello.") })
	w := e.StartWorker()
	window := func(agent string) int {
		return windowOf(e, e.TurnOf(e.Enqueue(agent, "Hello")))
	}
	for agent, want := range map[string]int{"known": 1047576, "overridden": 64000, "unknown": 32768, "given": 5000,
		"local": 4096} {
		if got := window(agent); got != want {
			t.Errorf("the window of %s is %d, want %d", agent, got, want)
		}
	}
	w.Await("the server now reports the context window of a model")
	if got := window("local"); got != 12288 {
		t.Errorf("the window of Ollama's loaded model is %d", got)
	}
	const unknown = "the context window of test/my-gpt-5 is unknown: assuming 32,768 tokens"
	const notLoaded = "the context window of ollama/llama3.2 is unknown (Ollama reports it once the model is loaded"
	for _, warning := range []string{unknown, notLoaded} {
		if n := strings.Count(w.Output.String(), warning); n != 1 {
			t.Errorf("the worker warns %d times: %s\n%s", n, warning, w.Output.Tail())
		}
	}
	if n := strings.Count(w.Output.String(), "is unknown"); n != 2 {
		t.Errorf("the worker warns of %d windows", n)
	}
	check := e.Turnctl("agents", "check")
	if check.Code != 0 || strings.Count(check.Stdout, unknown) != 1 || strings.Contains(check.Stdout, "ollama/") ||
		!strings.Contains(check.Stdout, "set context_window for it under models: in the config file") {
		t.Errorf("agents check ended with %d:\n%s", check.Code, check.Stdout)
	}
	said := ""
	for _, c := range diagnose(e) {
		if c.Name == "context window" {
			said += c.Verdict + " " + c.Found + "\n"
		}
	}
	for _, want := range []string{"warn " + unknown,
		"azure/gpt-4.1-2025-04-14 1,047,576 tokens (the table of known models of 20",
		"azure/gpt-5 64,000 tokens (models: in the config file)", "ollama/llama3.2 12,288 tokens (the server)"} {
		if !strings.Contains(said, want) {
			t.Errorf("doctor does not print %q:\n%s", want, said)
		}
	}
}

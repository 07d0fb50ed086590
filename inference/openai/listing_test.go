package openai_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// answering serves one answer at each path, and 404 at others.
func answering(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		profile, model string
		answers        map[string]string
		want           int
	}{
		"vLLM": {"vllm", "a", map[string]string{
			"GET /v1/models": `{"data":[{"id":"b","max_model_len":2048},{"id":"a","max_model_len":4096}]}`}, 4096},
		"Groq": {"generic", "a", map[string]string{
			"GET /v1/models": `{"data":[{"id":"a","context_window":131072}]}`}, 131072},
		"Mistral": {"mistral", "a", map[string]string{
			"GET /v1/models": `{"data":[{"id":"a","max_context_length":32768}]}`}, 32768},
		"a bare list": {"generic", "a", map[string]string{"GET /v1/models": `[{"id":"a","context_length":8192}]`},
			8192},
		"a text": {"generic", "a", map[string]string{
			"GET /v1/models": `{"data":[{"id":"a","context_length":"8192"}]}`}, 8192},
		"no list": {"generic", "a", nil, 0},
		"no JSON": {"generic", "a", map[string]string{"GET /v1/models": `<html>`}, 0},
		"another": {"vllm", "a", map[string]string{"GET /v1/models": `{"data":[{"id":"b","max_model_len":2048}]}`},
			0},
		"nonsense": {"vllm", "a", map[string]string{"GET /v1/models": `{"data":[{"id":"a","max_model_len":-5}]}`},
			0},
		"llama.cpp, trained for more": {"llamacpp", "a", map[string]string{
			"GET /v1/models": `{"data":[{"id":"a","meta":{"n_ctx_train":131072}}]}`,
			"GET /props":     `{"default_generation_settings":{"n_ctx":4096}}`}, 4096},
		"llama.cpp tells in the list": {"llamacpp", "a",
			map[string]string{"GET /v1/models": `{"data":[{"id":"a","meta":{"n_ctx":2048,"n_ctx_train":131072}}]}`},
			2048},
		"Ollama, loaded": {"ollama", "a", map[string]string{
			"GET /api/ps":    `{"models":[{"name":"a:latest","context_length":16384}]}`,
			"POST /api/show": `{"parameters":"num_ctx 2048"}`}, 16384},
		"Ollama, set in the Modelfile": {"ollama", "a", map[string]string{"GET /api/ps": `{"models":[]}`,
			"POST /api/show": `{"parameters":"num_ctx                        2048"}`}, 2048},
		"Ollama, neither": {"ollama", "a", map[string]string{"GET /api/ps": `{"models":[]}`,
			"POST /api/show": `{"model_info":{"llama.context_length":131072}}`}, 0},
		"Azure is not asked": {"azure", "a",
			map[string]string{"GET /v1/models": `{"data":[{"id":"a","context_length":8192}]}`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile, _ := openai.ProfileNamed(tc.profile)
			client := newClient(t, openai.Config{Name: "p", BaseURL: answering(t, tc.answers) + "/v1",
				Profile: profile})
			got, err := client.Window(t.Context(), tc.model)
			if got != tc.want || err != nil {
				t.Errorf("%d, %v, want %d", got, err, tc.want)
			}
		})
	}
	for _, profile := range []string{"generic", "ollama", "llamacpp"} {
		profile, _ := openai.ProfileNamed(profile)
		client := newClient(t, openai.Config{Name: "p", BaseURL: "http://127.0.0.1:1/v1", Profile: profile})
		if _, err := client.Window(t.Context(), "a"); inference.ClassOf(err) != inference.ClassTransport {
			t.Errorf("nobody there: %v", err)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	all := []openai.Model{{Name: "models/gemini-2.5-flash"}, {Name: "claude-sonnet-4-5-20250929"},
		{Name: "llama3.2:latest"}, {Name: "qwen3:8b"}, {Name: "anthropic/claude-opus-4.5"}, {Name: "gpt-5-mini"}}
	for name, want := range map[string]bool{
		"gemini-2.5-flash": true, "models/gemini-2.5-flash": true, "gemini-2.5-flush": false, "claude-sonnet-4-5": true,
		"claude-sonnet-4-5-latest": true, "claude-sonnet-4": false,
		"llama3.2": true, "qwen3:8b": true, "qwen3:14b": false, "qwen3": false, "anthropic/claude-opus-4.5:nitro": true,
		"gpt-5-mini-2025-08-07": true, "gpt-5": false,
	} {
		if got := openai.Lists(all, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The errors of OpenAI-compatible endpoints, in their various forms.
func TestErrorsOfCompatibleEndpoints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status       int
		body         string
		class        inference.Class
		have, window int
	}{
		"Azure, no version": {404, `{"error":{"code":"404","message":"Resource not found"}}`,
			inference.ClassNotFound, 0, 0},
		"Azure, no deployment": {404,
			`{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`,
			inference.ClassNotFound, 0, 0},
		"Azure, wrong key": {401,
			`{"error":{"code":"401","message":"Access denied due to invalid subscription key or wrong API endpoint."}}`,
			inference.ClassAuth, 0, 0},
		"Azure, flat": {401,
			`{"statusCode":401,"message":"Unauthorized. Access token is missing, invalid, audience is incorrect, or have expired."}`, inference.ClassAuth, 0, 0},
		"Azure, flat, bad field": {400,
			`{"requestid":"df62","code":400,"message":"Validation error at #/max_completion_tokens: Extra inputs are not permitted"}`, inference.ClassInvalid, 0, 0},
		"Azure, filtered": {400,
			`{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, inference.ClassRefused, 0, 0},
		"Azure, busy": {429,
			`{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation have exceeded call rate limit of your current OpenAI S0 pricing tier. Please retry after 7 seconds."}}`, inference.ClassRateLimited, 0, 0},
		"OpenAI, question too long": {400,
			`{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 277404 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, inference.ClassContextOverflow, 277404, 272000},
		"Anthropic, wrong key": {401,
			`{"error":{"code":"authentication_error","message":"Invalid bearer token","type":"authentication_error","param":null}}`, inference.ClassAuth, 0, 0},
		"Anthropic, own shape": {529,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`,
			inference.ClassOverloaded, 0, 0},
		"Anthropic, no credit": {400,
			`{"error":{"code":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API.","type":"invalid_request_error","param":null}}`, inference.ClassQuota, 0, 0},
		"Anthropic, no model": {404,
			`{"error":{"code":"not_found_error","message":"model: claude-sonet-4-5","type":"not_found_error","param":null}}`, inference.ClassNotFound, 0, 0},
		"Anthropic, too long": {400,
			`{"error":{"code":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum","type":"invalid_request_error","param":null}}`, inference.ClassContextOverflow, 210000, 200000},
		"Gemini, wrong key": {400,
			`[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`, inference.ClassAuth, 0, 0},
		"Gemini, unknown field": {400,
			`[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"user\": Cannot find field.","status":"INVALID_ARGUMENT"}}]`, inference.ClassInvalid, 0, 0},
		"Gemini, not here": {400,
			`[{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}]`, inference.ClassAuth, 0, 0},
		"Gemini, quota a minute": {429,
			`[{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"12s"}]}}]`, inference.ClassRateLimited, 0, 0},
		"Gemini, overloaded": {503,
			`[{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}]`, inference.ClassOverloaded, 0, 0},
		"Gemini, no model": {404,
			`[{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1main","status":"NOT_FOUND"}}]`, inference.ClassNotFound, 0, 0},
		"OpenRouter, no key": {401, `{"error":{"message":"No auth credentials found","code":401}}`,
			inference.ClassAuth, 0, 0},
		"OpenRouter, no endpoint": {404,
			`{"error":{"message":"No endpoints found that support tool use.","code":404}}`,
			inference.ClassNotFound, 0, 0},
		"OpenRouter, no credit": {402, `{"error":{"message":"Insufficient credits.","code":402}}`,
			inference.ClassQuota, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			t.Cleanup(server.Close)
			client := newClient(t, openai.Config{Name: "p", BaseURL: server.URL})
			err := generateOnce(t.Context(), client)
			got, ok := errors.AsType[*inference.Error](err)
			if !ok || got.Class != tc.class || got.Have != tc.have || got.Limit != tc.window {
				t.Errorf("%v (%+v)", err, got)
			}
		})
	}
}

func generateOnce(ctx context.Context, client *openai.Client) error {
	_, err := client.Generate(ctx, inference.Request{Model: "m",
		Messages: []inference.Message{{Role: inference.RoleUser, Text: "Hi"}}}, func(inference.Delta) {})
	return err
}

package openai_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
)

// The numbers of tokens are read from a server's refusal.
func TestNumbersOfAnOverflow(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		body        string
		have, limit int
	}{
		"OpenAI": {400,
			`{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 10345 tokens. Please reduce the length of the messages."}}`, 10345, 8192},
		"vLLM": {400,
			`{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 6000 tokens (5000 in the messages, 1000 in the completion).","type":"BadRequestError","code":400}`, 5000, 4096},
		"OpenRouter": {400,
			`{"error":{"message":"This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens (190000 of text input, 10000 in the output).","code":400}}`, 190000, 131072},
		"llama.cpp": {400,
			`{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5011,"n_ctx":4096}}`, 5011, 4096},
		"Anthropic": {400,
			`{"error":{"type":"invalid_request_error","message":"prompt is too long: 210,511 tokens > 200,000 maximum"}}`, 210511, 200000},
		"Gemini": {400,
			`[{"error":{"code":400,"message":"The input token count (1200001) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]`, 1200001, 1048576},
		"Mistral": {400,
			`{"message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}`, 40000, 32768},
		"no numbers": {413, `too large`, 0, 0},
		"nonsense": {400,
			`{"error":{"code":"context_length_exceeded","message":"maximum context length is 99999999999999999999999 tokens","n_ctx":-1}}`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			address := inferencetest.NewServer(inferencetest.Status(c.status, c.body)).Start(t)
			client, err := openai.New(openai.Config{Read: completions.Read, Name: "test", BaseURL: address})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.Generate(t.Context(), inference.Request{Model: "m",
				Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}, nil)
			failure, ok := errors.AsType[*inference.Error](err)
			if !ok || failure.Class != inference.ClassContextOverflow || failure.Have != c.have ||
				failure.Limit != c.limit {
				t.Errorf("%v: have %d, limit %d", err, failure.Have, failure.Limit)
			}
		})
	}
}

// Response.Sent describes the body that the endpoint received, and Render encodes it again.
func TestWhatWasSent(t *testing.T) {
	server := inferencetest.NewServer(inferencetest.Text("hello"), inferencetest.Text("hello"))
	address := server.Start(t)
	mistral, _ := openai.ProfileNamed("mistral")
	mistral.Extra = map[string]json.RawMessage{"safe": json.RawMessage(`{ "a" : "<b>" }`)}
	client, err := openai.New(openai.Config{Read: completions.Read, Name: "test", BaseURL: address,
		APIKey: "sk-secret-not-in-forms", Profile: mistral})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := inference.Request{
		Model: "m", User: "turn-1", MaxOutputTokens: 100,
		Messages: []inference.Message{{Role: inference.RoleSystem, Text: "<s> & \u2028"},
			{Role: inference.RoleUser, Text: "hi"}},
		Tools: []inference.ToolDefinition{{Name: "clock", Parameters: json.RawMessage(`{"type": "object"}`)}},
	}
	res, err := client.Generate(t.Context(), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := server.Requests()[0].Body
	if want := inference.SentAs(res.Sent.Form, body); res.Sent != want || strings.Contains(res.Sent.Form, "sk-secret") {
		t.Errorf("it says that it sent %+v; the endpoint got %+v", res.Sent, want)
	}
	again, err := openai.Render(res.Sent.Form, request)
	if err != nil || !bytes.Equal(again, body) {
		t.Errorf("%v\nagain %s\nsent  %s", err, again, body)
	}
	for _, form := range []string{"", "other/1 {}", "openai/2 {}", "openai/1 {"} {
		if _, err := openai.Render(form, request); err == nil {
			t.Errorf("the form %q is known", form)
		}
	}
}

package responses_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
)

// TestRefusedRequests checks the classes of error responses, as OpenAI and others send them. What a request is refused
// for is told, so that another form of the record can be sent.
func TestRefusedRequests(t *testing.T) {
	const invalid = `{"error":{"message":%q,"type":"invalid_request_error","param":"input","code":null}}`
	for _, c := range []struct {
		status int
		body   string
		class  inference.Class
		record inference.RecordPart
	}{
		{401, `{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`,
			inference.ClassAuth, ""},
		{403, `{"error":{"message":"Project does not have access to model","type":"invalid_request_error","code":"model_not_found"}}`,
			inference.ClassNotFound, ""},
		{404, `{"error":{"message":"The model 'x' does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}`,
			inference.ClassNotFound, ""},
		{404, `404 page not found`, inference.ClassNotFound, ""}, // the server has no Responses API
		{400, `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`,
			inference.ClassContextOverflow, ""},
		{429, `{"error":{"message":"Rate limit reached for gpt-6 on tokens per min (TPM)","type":"tokens","code":"rate_limit_exceeded"}}`,
			inference.ClassRateLimited, ""},
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`,
			inference.ClassQuota, ""},
		{500, `{"error":{"message":"The server had an error","type":"server_error","code":"server_error"}}`,
			inference.ClassOverloaded, ""},
		{503, `{"error":{"message":"Our servers are currently overloaded. Please try again later.","type":"service_unavailable_error","code":"server_is_overloaded"}}`,
			inference.ClassOverloaded, ""},
		{400, `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","code":"invalid_prompt"}}`,
			inference.ClassRefused, ""},
		{400, `{"error":{"message":"previous_response_id is not supported","code":"invalid_prompt"}}`, inference.ClassInvalid, ""},
		{400, fmt.Sprintf(invalid, "Reasoning input items can only be provided to a reasoning or computer use model."),
			inference.ClassInvalid, inference.RecordReasoning},
		{400, fmt.Sprintf(invalid, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
			inference.ClassInvalid, inference.RecordReasoning},
		{400, fmt.Sprintf(invalid, "Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'."),
			inference.ClassInvalid, inference.RecordReasoning},
		{400, fmt.Sprintf(invalid, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
			inference.ClassInvalid, inference.RecordReasoning},
		{404, fmt.Sprintf(invalid, "Item with id 'msg_1' not found."), inference.ClassInvalid,
			inference.RecordReasoning},
		{400, `{"error":{"message":"The encrypted content gAAA... could not be verified.","type":"invalid_request_error","code":"invalid_encrypted_content"}}`,
			inference.ClassInvalid, inference.RecordReasoning},
		{400, fmt.Sprintf(invalid, "No tool output found for function call call_1."), inference.ClassInvalid,
			inference.RecordCalls},
		{400, fmt.Sprintf(invalid, "Duplicate item found with id fc_1. Remove duplicate items from your input and try again."),
			inference.ClassInvalid, inference.RecordCalls},
		{400, fmt.Sprintf(invalid, "Unsupported parameter: 'temperature' is not supported with this model."),
			inference.ClassInvalid, ""},
		{422, `{"detail":[{"loc":["body","input"],"msg":"field required"}]}`, inference.ClassInvalid, ""},
	} {
		w := &wire{status: c.status, contentType: "application/json", answer: []byte(c.body)}
		_, err := wired(t, w, openai.Profile{}).Generate(t.Context(), inference.Request{Model: "m",
			Messages: []inference.Message{user("hi")}}, nil)
		failure, ok := errors.AsType[*inference.Error](err)
		if !ok || failure.Class != c.class || failure.Record != c.record || failure.Status != c.status {
			t.Errorf("%d %s\nis %+v, want %s %q", c.status, c.body, failure, c.class, c.record)
		}
	}
}

// TestModelsWithoutReasoning checks that a model that has no encrypted reasoning is asked again without it, and from
// then on only so. What is sent can be rendered again.
func TestModelsWithoutReasoning(t *testing.T) {
	var bodies [][]byte
	server := roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		bodies = append(bodies, body)
		status, text := http.StatusOK,
			`{"object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":"hi"}]}`
		if bytes.Contains(body, []byte("encrypted_content")) {
			status, text = http.StatusBadRequest,
				`{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}`
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(text)), ProtoMajor: 1, ProtoMinor: 1}, err
	})
	c := wired(t, server, openai.Profile{})
	req := inference.Request{Model: "m", Messages: []inference.Message{user("hi"), rawAnswers[0].message,
		result("c1", "done")}}
	for sent := range 2 {
		res, err := c.Generate(t.Context(), req, nil)
		if err != nil || res.Text != "hi" || len(bodies) != 2+sent {
			t.Fatalf("%+v, %v after %d requests", res, err, len(bodies))
		}
		last := bodies[len(bodies)-1]
		if again, err := openai.Render(res.Sent.Form, req); err != nil || !bytes.Equal(again, last) {
			t.Errorf("%v, rendered\n%s\nsent\n%s", err, again, last)
		}
		if faults := inferencetest.ResponsesViolations(last); faults != nil {
			t.Error(faults)
		}
	}
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

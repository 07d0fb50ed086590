package openai_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
)

// A wire answers requests without a network, and records the last body.
type wire struct {
	contentType string
	answer      []byte
	sent        []byte
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var err error
	if w.sent, err = io.ReadAll(r.Body); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {w.contentType}},
		Body: io.NopCloser(bytes.NewReader(w.answer)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func wired(tb testing.TB, w *wire, profile openai.Profile) *openai.Client {
	tb.Helper()
	c, err := openai.New(openai.Config{Read: completions.Read, Name: "p", BaseURL: "http://localhost/v1",
		Profile: profile, HTTPClient: &http.Client{Transport: w}})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// FuzzAnswer checks that any response is an error with a class, or an answer that has
// content, was streamed unchanged, and can be replayed.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\r\rdata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"g\",\"arguments\":{}},\"extra_content\":{}}]},\"finish_reason\":\"length\"}]}",
		`{"choices":[{"message":{"content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"x"}],"reasoning_details":[{"index":0,"type":"a"},{"index":0,"type":"a","text":"b"}],"tool_calls":[null,{"id":""}]},"finish_reason":"stop"}]}`,
		`{"error":{"code":429,"metadata":{"raw":"x"}}}`, `[{"error":{"details":[{"retryDelay":"1s"}]}}]`, "<html>",
		"event: error\ndata: x\n\n",
	} {
		f.Add(strings.HasPrefix(seed, "data") || strings.HasPrefix(seed, "event"), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream bool, answer []byte) {
		w := &wire{contentType: "application/json", answer: answer}
		if stream {
			w.contentType = "text/event-stream"
		}
		c := wired(t, w, openai.Profile{})
		req := inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}
		var text, reasoning, arguments strings.Builder
		res, err := c.Generate(t.Context(), req, func(d inference.Delta) {
			switch d.Kind {
			case inference.DeltaText:
				text.WriteString(d.Text)
			case inference.DeltaThinking:
				reasoning.WriteString(d.Text)
			case inference.DeltaTool:
				arguments.WriteString(d.Text)
			}
		})
		if err != nil {
			if failure, ok := errors.AsType[*inference.Error](err); !ok || failure.Class == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		if strings.TrimSpace(res.Text) == "" && len(res.Calls) == 0 {
			t.Errorf("an answer of nothing: %+v", res)
		}
		var whole int
		for _, call := range res.Calls {
			whole += len(call.Arguments)
		}
		if text.String() != res.Text || reasoning.String() != res.Reasoning || arguments.Len() != whole {
			t.Errorf("streamed %q, %q, %q of %+v", text.String(), reasoning.String(), arguments.String(), res)
		}
		req.Messages = append(req.Messages, inference.Message{
			Role: inference.RoleAssistant, Text: res.Text, Calls: res.Calls, Raw: res.Raw, RawProvider: res.Provider,
		})
		replayable(t, w, c, req)
	})
}

// replayable fails the test unless strict servers accept what is sent for a request.
func replayable(t *testing.T, w *wire, c *openai.Client, req inference.Request) {
	t.Helper()
	w.sent = nil
	_, _ = c.Generate(t.Context(), req, nil) // the answer does not matter
	if w.sent == nil {
		return // the request has no message
	}
	if faults := inferencetest.Violations(w.sent); faults != nil {
		t.Errorf("%q in %s", faults, w.sent)
	}
}

// FuzzRequest checks that strict servers accept what is sent for any request.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`[{"Role":"user","Text":"hi"},{"Role":"assistant","Calls":[{"ID":"a","Name":"f","Arguments":"{}"},{"ID":"a","Name":"","Arguments":"["}]},{"Role":"tool","CallID":"a"},{"Role":"tool","CallID":"b"}]`,
		`[{"Role":"assistant","Text":"x","RawProvider":"p","Raw":{"content":[{"type":"text","text":"x"}],"tool_calls":[null],"reasoning_details":null,"role":"tool"}}]`,
		`[{"Role":"assistant","Calls":[{"ID":"","Name":"f"}],"RawProvider":"p","Raw":{"tool_calls":[{"index":0,"id":null,"function":{"arguments":null,"x":1}}],"reasoning":"r","content":[]}},{"Role":"tool","CallID":""},{"Role":"","Text":"x"}]`,
	} {
		f.Add([]byte(seed), uint8(0), true)
		f.Add([]byte(seed), uint8(7), false)
	}
	names := openai.ProfileNames()
	f.Fuzz(func(t *testing.T, messages []byte, profile uint8, tools bool) {
		req := inference.Request{Model: "m"}
		if json.Unmarshal(messages, &req.Messages) != nil {
			return
		}
		if tools {
			req.Tools = []inference.ToolDefinition{{Name: "f", Parameters: messages}}
		}
		p, _ := openai.ProfileNamed(names[int(profile)%len(names)])
		w := &wire{contentType: "application/json"}
		replayable(t, w, wired(t, w, p), req)
	})
}

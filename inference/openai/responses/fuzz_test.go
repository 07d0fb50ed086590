package responses_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// FuzzAnswer checks that any response is an error with a class, or an answer that has content, was streamed
// unchanged unless its parts differ, and can be sent back.
func FuzzAnswer(f *testing.F) {
	for _, answer := range answersOfServers {
		if strings.Contains(answer, "\n") {
			f.Add(true, []byte(streamOf(answer, true)))
		} else {
			f.Add(false, []byte(answer))
		}
	}
	f.Fuzz(func(t *testing.T, stream bool, answer []byte) {
		w := &wire{contentType: "application/json", answer: answer}
		if stream {
			w.contentType = "text/event-stream"
		}
		c := wired(t, w, openai.Profile{})
		req := inference.Request{Model: "m", Messages: []inference.Message{user("hi")}}
		var text, reasoning strings.Builder
		arguments := map[int]string{}
		res, err := c.Generate(t.Context(), req, func(d inference.Delta) {
			switch d.Kind {
			case inference.DeltaText:
				text.WriteString(d.Text)
			case inference.DeltaThinking:
				reasoning.WriteString(d.Text)
			case inference.DeltaTool:
				arguments[d.Index] += d.Text
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
		same := text.String() == res.Text
		for n, call := range res.Calls {
			same = same && compact(arguments[n]) == compact(call.Arguments)
		}
		if reasoning.String() != res.Reasoning || res.Doubt == "" && !same {
			t.Errorf("streamed %q, %q, %v of %+v", text.String(), reasoning.String(), arguments, res)
		}
		if res.Raw != nil && !json.Valid(res.Raw) {
			t.Errorf("not JSON: %q", res.Raw)
		}
		req.Messages = append(req.Messages, inference.Message{
			Role: inference.RoleAssistant, Text: res.Text, Calls: res.Calls, Raw: res.Raw, RawProvider: res.Provider,
		})
		sentFor(t, openai.Profile{}, req)
	})
}

// compact returns arguments without white space.
func compact(arguments string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(arguments)) != nil {
		return arguments
	}
	return b.String()
}

// FuzzRequest checks that strict servers accept what is sent for any request.
func FuzzRequest(f *testing.F) {
	for _, a := range rawAnswers {
		if !json.Valid(a.message.Raw) {
			continue
		}
		messages, err := json.Marshal([]inference.Message{user("hi"), a.message, result("a", "x"), a.message})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(messages, true)
		f.Add(messages, false)
	}
	f.Fuzz(func(t *testing.T, messages []byte, declared bool) {
		req := inference.Request{Model: "m"}
		if json.Unmarshal(messages, &req.Messages) != nil {
			return
		}
		if declared {
			req.Tools = []inference.ToolDefinition{{Name: "clock", Parameters: messages}}
		}
		sentFor(t, openai.Profile{}, req)
	})
}

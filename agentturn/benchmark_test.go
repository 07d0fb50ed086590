package agentturn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// BenchmarkTurn runs the standard turn without a database and a network: two calls in each of two
// rounds, then a text, after a number of earlier turns of the same kind.
func BenchmarkTurn(b *testing.B) {
	for _, earlier := range []int{0, 40} {
		b.Run(fmt.Sprintf("past=%d", earlier), func(b *testing.B) { benchmarkTurn(b, earlier) })
	}
}

func benchmarkTurn(b *testing.B, earlier int) {
	model := &instantModel{}
	client, err := openai.New(openai.Config{Name: "main", BaseURL: "http://model/v1", Read: completions.Read,
		HTTPClient: &http.Client{Transport: model}})
	if err != nil {
		b.Fatal(err)
	}
	result := strings.Repeat("0123456789", 20)
	noop := tools.Func(tools.Spec{Name: "noop", Description: "Does nothing.", Effect: turnkeeper.EffectNone},
		func(context.Context, struct {
			N int `json:"n"`
		}) (string, error) {
			return result, nil
		})
	registry, err := tools.NewRegistry(noop)
	if err != nil {
		b.Fatal(err)
	}
	runner := agentturn.New(agentturn.Config{Models: oneModel{client}, Tools: registry, Bounds: bounds.Default()})
	def := &agentdef.Definition{Name: "tester", Prompt: "You test.", Model: "main/model", Tools: []string{"noop"}}
	record := &turnlog.Record{
		Turn: turnkeeper.Turn{ID: turnkeeper.TurnID(earlier + 1)}, Message: turnkeeper.Message{Body: "go"},
		NextBlock: 1, Remaining: time.Hour,
		// of those not shown
		Summary: turnlog.Summary{UpTo: turnkeeper.TurnID(max(earlier-20, 0)),
			Text: strings.Repeat("They talked. ", 100)},
	}
	for n := range earlier {
		record.History = append(record.History, pastTurn(turnkeeper.TurnID(n+1), result))
	}
	b.ReportAllocs()
	for b.Loop() {
		model.asked = 0
		outcome, err := runner.Run(b.Context(), agentturn.Assignment{Record: record, Definition: def}, emptyJournal{})
		if err != nil || outcome.State != turnkeeper.TurnSucceeded {
			b.Fatal(outcome, err)
		}
	}
}

// pastTurn returns a standard turn as history.
func pastTurn(id turnkeeper.TurnID, result string) turnlog.Past {
	p := turnlog.Past{TurnID: id, Body: fmt.Sprint("message ", id), Reply: "All four calls were made.",
		State: turnkeeper.TurnSucceeded}
	for number := 1; number <= 2; number++ {
		r := turnkeeper.Round{Number: number, Provider: "main", Model: "model", FinishReason: "tool_calls"}
		for i := range 2 {
			r.Calls = append(r.Calls, turnkeeper.ToolCall{
				Key: turnkeeper.CallKey{Round: number, Ordinal: i + 1}, WireID: fmt.Sprintf("call_%d_%d", number,
					i), Name: "noop",
				Arguments: fmt.Sprintf(`{"n":%d}`, number*10+i), State: turnkeeper.CallSucceeded, Shown: result,
			})
		}
		p.Rounds = append(p.Rounds, r)
	}
	p.Rounds = append(p.Rounds, turnkeeper.Round{Number: 3, Provider: "main", Model: "model", FinishReason: "stop",
		Text: p.Reply})
	return p
}

// An emptyJournal accepts every entry.
type emptyJournal struct{ agentturn.Journal }

func (emptyJournal) Append(context.Context, turnlog.Entry) error { return nil }

// oneModel is the provider of every model.
type oneModel struct{ inference.Provider }

func (m oneModel) Find(string) (inference.Provider, agentturn.ModelInfo, error) {
	return m.Provider, agentturn.ModelInfo{Provider: "main", Model: "model", ContextWindow: 200_000}, nil
}

// An instantModel is a transport that streams the answers of the standard turn.
type instantModel struct{ asked int }

func (m *instantModel) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	m.asked++
	var stream bytes.Buffer
	chunk := func(delta, finish string) {
		fmt.Fprintf(&stream,
			`data: {"id":"c","object":"chat.completion.chunk","model":"model","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
	}
	if m.asked <= 2 {
		calls := make([]string, 2)
		for i := range calls {
			arguments, _ := json.Marshal(fmt.Sprintf(`{"n":%d}`, m.asked*10+i))
			calls[i] = fmt.Sprintf(
				`{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":"noop","arguments":%s}}`, i,
				m.asked, i, arguments)
		}
		chunk(`{"role":"assistant","content":null,"tool_calls":[`+strings.Join(calls, ",")+`]}`, "null")
		chunk(`{}`, `"tool_calls"`)
	} else {
		chunk(`{"role":"assistant","content":""}`, "null")
		for _, word := range strings.SplitAfter("All four calls were made.", " ") {
			text, _ := json.Marshal(word)
			chunk(fmt.Sprintf(`{"content":%s}`, text), "null")
		}
		chunk(`{}`, `"stop"`)
	}
	stream.WriteString(
		`data: {"id":"c","object":"chat.completion.chunk","model":"model","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}}` + "\n\ndata: [DONE]\n\n")
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(&stream), Request: r,
	}, nil
}

package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// An oracle is a fake model for the sampling requests of calls.
type oracle struct {
	mu    sync.Mutex
	asked []tools.Sampling
	does  func(ctx context.Context) (tools.Sampled, error) // nil: it says "hello"
}

func (o *oracle) sample(ctx context.Context, s tools.Sampling) (tools.Sampled, error) {
	o.mu.Lock()
	o.asked = append(o.asked, s)
	o.mu.Unlock()
	if o.does != nil {
		return o.does(ctx)
	}
	return tools.Sampled{Text: "hello STOP and more", Model: "m", Tokens: 100}, nil
}

func (o *oracle) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asked)
}

func allowing(calls, tokens int) func(*mcp.Server) {
	return func(s *mcp.Server) { s.Sampling = mcp.Sampling{Allow: true, MaxCalls: calls, MaxTokens: tokens} }
}

func (b *bench) asks(o *oracle, arguments string) string {
	b.t.Helper()
	got := b.callAs(b.t.Context(), tools.Call{TurnID: 1, Lane: "lane", Sample: o.sample}, "ask", arguments, patience)
	if got.Outcome != tools.Succeeded {
		b.t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
	return got.Result.Text
}

const declined = `{"code":-1,"message":"sampling is declined: %s"}`

func TestSampling(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		o := &oracle{}
		b := newBench(t, transport, "", allowing(4, 1000))
		got := b.asks(o,
			`{"params":{"maxTokens":10,"systemPrompt":"Be kind.","temperature":0.5,"includeContext":"allServers","stopSequences":["STOP"],
			"messages":[{"role":"user","content":{"type":"text","text":"hi"}},{"role":"assistant","content":{"type":"text","text":"what?"}},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}}`)
		if want :=
			`1 times {"content":{"type":"text","text":"hello "},"model":"m","role":"assistant","stopReason":"stopSequence"}`; got != want {
			t.Errorf("%s", got)
		}
		want := []tools.Sampling{{
			System: "Be kind.", MaxTokens: 10, Temperature: new(0.5), Tokens: 1000,
			Messages: []tools.SamplingMessage{{Text: "hi"}, {FromModel: true, Text: "what?"}, {Text: "a\n\nb"}},
		}}
		if diff := cmp.Diff(want, o.asked); diff != "" {
			t.Errorf("the model is asked (-want +got):\n%s", diff)
		}
	})
}

func TestSamplingIsDeclined(t *testing.T) {
	t.Parallel()
	plain := `"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]`
	invalid := `{"code":-32602,"message":"sampling is declined: %s"}`
	cases := map[string]struct {
		set       func(*mcp.Server)
		nobody    bool
		arguments string
		want      string
	}{
		"by default": {func(*mcp.Server) {}, false, `{}`,
			fmt.Sprintf(declined, "the operator's policy does not allow it")},
		"nobody can": {allowing(4, 1000), true, `{}`, fmt.Sprintf(declined, "no call runs that it could be for")},
		"tools": {allowing(4, 1000), false,
			`{"params":{` + plain + `,"tools":[{"name":"x","inputSchema":{"type":"object"}}]}}`,
			fmt.Sprintf(invalid, "tools in sampling are not supported")},
		"choice of tools": {allowing(4, 1000), false, `{"params":{` + plain + `,"toolChoice":{"mode":"auto"}}}`,
			fmt.Sprintf(invalid, "tools in sampling are not supported")},
		"a picture": {allowing(4, 1000), false,
			`{"params":{"messages":[{"role":"user","content":{"type":"image","mimeType":"image/png","data":"AAEC"}}]}}`,
			fmt.Sprintf(invalid, "only text can be asked")},
		"nothing is asked": {allowing(4, 1000), false, `{"params":{"messages":[]}}`,
			fmt.Sprintf(invalid, "there is no message in it")},
		"a strange role": {allowing(4, 1000), false,
			`{"params":{"messages":[{"role":"system","content":{"type":"text","text":"hi"}}]}}`,
			fmt.Sprintf(invalid, "a message must have the role user or assistant")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, transport string) {
				o := &oracle{}
				b := newBench(t, transport, "", c.set)
				call := tools.Call{TurnID: 1, Sample: o.sample}
				if c.nobody {
					call.Sample = nil
				}
				got := b.callAs(t.Context(), call, "ask", c.arguments, patience)
				if want := "1 times " + c.want; got.Result.Text != want {
					t.Errorf("%q, want %q", got.Result.Text, want)
				}
				if o.count() > 0 {
					t.Error("a model was asked")
				}
			})
		})
	}
}

// A server that asks a thousand times gets a thousand answers at once, and the
// models are asked only as often as allowed.
func TestSamplingIsBounded(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		o := &oracle{}
		b := newBench(t, transport, "", allowing(3, 1000))
		got := b.asks(o, `{"times":1000}`)
		want := "997 times " + fmt.Sprintf(declined, "the call has asked as often as it may (max_sampling_calls)") +
			"\n" +
			`3 times {"content":{"type":"text","text":"hello STOP and more"},"model":"m","role":"assistant","stopReason":"endTurn"}`
		if got != want || o.count() != 3 {
			t.Errorf("%d times asked: %s", o.count(), got)
		}
		if got := b.asks(o, `{}`); !strings.HasPrefix(got, `1 times {"content"`) {
			t.Errorf("the next call: %s", got)
		}
	})
}

func TestSamplingTokensAreBounded(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		o := &oracle{}
		b := newBench(t, transport, "", allowing(10, 150))
		got := b.asks(o, `{"times":5}`)
		if !strings.Contains(got, `2 times {"content"`) || !strings.Contains(got, "max_sampling_tokens") ||
			o.count() != 2 {
			t.Errorf("%d times asked: %s", o.count(), got)
		}
		if o.asked[0].Tokens != 150 || o.asked[1].Tokens != 50 {
			t.Errorf("%+v", o.asked)
		}
	})
}

// An error of the turn, about its budget or its models, is reported at once.
func TestSamplingThatFails(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		o := &oracle{does: func(context.Context) (tools.Sampled, error) {
			return tools.Sampled{}, errors.New("the budget allows no more model calls")
		}}
		b := newBench(t, transport, "", allowing(3, 1000))
		if got := b.asks(o,
			`{}`); got != `1 times {"code":-32603,"message":"no model has answered: the budget allows no more model calls"}` {
			t.Errorf("%s", got)
		}
	})
}

func TestSamplingAfterTheCall(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		o := &oracle{}
		b := newBench(t, transport, "", allowing(3, 1000))
		b.Use("h")
		if got := b.asks(o, `{"late":true,"after":"go"}`); got != "answered" {
			t.Errorf("%s", got)
		}
		newHostile(b.dir, "").mark("go", "now")
		await(t, "the answer", func() bool { return marksIn(b.dir, "told")[0] != "" })
		if got := marksIn(b.dir, "told")[0]; got != fmt.Sprintf(declined, "no call runs that it could be for") ||
			o.count() > 0 {
			t.Errorf("%s", got)
		}
	})
}

// When the call ends, the model call ends, and the server gets an error.
func TestSamplingOfACallThatIsCancelled(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		o := &oracle{does: func(ctx context.Context) (tools.Sampled, error) {
			cancel(errors.New("the turn was cancelled"))
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return tools.Sampled{}, errors.New("the call has ended")
		}}
		b := newBench(t, transport, "", allowing(3, 1000))
		got := b.callAs(ctx, tools.Call{TurnID: 1, Sample: o.sample}, "ask", `{}`, patience)
		if got.Outcome != tools.Cancelled {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		if err := <-ended; err == nil || err.Error() != "the turn was cancelled" {
			t.Errorf("the model's work ended by %v", err)
		}
		await(t, "the answer", func() bool { return marksIn(b.dir, "told")[0] != "" })
	})
}

// A server that asks in the result of a call shows which call it asks for.
func TestSamplingByTheResult(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		for name, c := range map[string]struct {
			set     func(*mcp.Server)
			does    func(context.Context) (tools.Sampled, error)
			outcome tools.Outcome
			want    string
		}{
			"allowed": {allowing(2, 1000), nil, tools.Succeeded,
				`{"q":{"content":{"type":"text","text":"hello STOP and more"},"model":"m","role":"assistant","stopReason":"endTurn"}}`},
			"declined": {func(*mcp.Server) {}, nil, tools.Failed,
				"tool error: the MCP server \"h\": the server asked for an answer of a model, which is declined by the operator's policy"},
			"fails": {allowing(2, 1000), func(context.Context) (tools.Sampled, error) {
				return tools.Sampled{}, errors.New("too dear")
			}, tools.Failed,
				`tool error: the MCP server "h": the server asked for an answer of a model, and got none: no model has answered: too dear`},
		} {
			b := newBench(t, transport, "", c.set)
			o := &oracle{does: c.does}
			got := b.callAs(t.Context(), tools.Call{TurnID: 1, Sample: o.sample}, "ask_by_result", `{}`, patience)
			if got.Outcome != c.outcome || got.Result.Text != c.want {
				t.Errorf("%s: %s: %s", name, got.Outcome, got.Result.Text)
			}
		}
	})
}

// If calls of two turns use a session, it is unknown which call a request is
// for. With a session per lane it is known.
func TestSamplingInASessionOfTwoTurns(t *testing.T) {
	t.Parallel()
	for _, perLane := range []bool{false, true} {
		t.Run(fmt.Sprint("a session for each lane: ", perLane), func(t *testing.T) {
			both(t, func(t *testing.T, transport string) {
				b := newBench(t, transport, "", allowing(3, 1000), func(s *mcp.Server) { s.SessionPerLane = perLane })
				ctx, stop := context.WithCancel(t.Context())
				other := make(chan tools.RunResult, 1)
				go func() {
					other <- b.callAs(ctx, tools.Call{TurnID: 2, Lane: "another", Sample: (&oracle{}).sample}, "hang",
						`{}`, patience)
				}()
				await(t, "the other call", func() bool { return marksIn(b.dir, "calls")[0] == "hang" })
				o := &oracle{}
				got := b.asks(o, `{}`)
				if known := o.count() == 1; known != perLane || !known && !strings.Contains(got,
					"calls of several turns run in this session") {
					t.Errorf("%s", got)
				}
				stop()
				<-other
			})
		})
	}
}

// A request may be charged to any call of the same turn, because the turn pays.
func TestSamplingInASessionOfOneTurn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "", allowing(3, 1000))
		ctx, stop := context.WithCancel(t.Context())
		other := make(chan tools.RunResult, 1)
		o := &oracle{}
		go func() {
			other <- b.callAs(ctx, tools.Call{TurnID: turnkeeper.TurnID(1), Lane: "lane", Sample: o.sample}, "hang",
				`{}`, patience)
		}()
		await(t, "the other call", func() bool { return marksIn(b.dir, "calls")[0] == "hang" })
		if got := b.asks(o, `{"times":7}`); !strings.HasPrefix(got, `1 times {"code"`) || o.count() != 6 {
			t.Errorf("%d times asked: %s", o.count(), got)
		}
		stop()
		<-other
	})
}

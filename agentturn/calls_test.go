package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

func TestFaultyCallsAreAnswered(t *testing.T) {
	tests := []struct {
		name  string
		call  inference.Call
		shown string // prefix of the result
		args  string // arguments in the journal and in the next request
		raw   string
	}{
		{"unknown tool", inference.Call{ID: "a", Name: "lok", Arguments: `{}`},
			"tool not found: lok\nNothing was run. Available tools: look, send. Did you mean \"look\"?", `{}`, ""},
		{"a tool that is not the agent's", inference.Call{ID: "a", Name: "secret", Arguments: `{"n":1}`},
			"tool not found: secret\nNothing was run. Available tools: look, send.", `{"n":1}`, ""},
		{"arguments that are no JSON", inference.Call{ID: "a", Name: "look", Arguments: `{"n":`},
			"invalid arguments: ", `{"malformed_arguments":true,"raw":"{\"n\":"}`, `{"n":`},
		{"arguments against the schema", inference.Call{ID: "a", Name: "send", Arguments: `{"n": "x"}`},
			"invalid arguments: ", `{"n":"x"}`, `{"n": "x"}`},
		{"no arguments", inference.Call{ID: "a", Name: "look", Arguments: ``}, "look ran", `{}`, ""},
		{"spaces", inference.Call{ID: "a", Name: "look", Arguments: "{ \"n\" : 4 }"}, "look ran", `{"n":4}`,
			"{ \"n\" : 4 }"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send, secret := once("send"), read("secret")
				b := newBench(t, inferStep(inference.Response{Calls: []inference.Call{test.call}}), says("done")).with(
					read("look"), send)
				b.tools = append(b.tools, secret)
				if got := b.run(t.Context()); got.State != turnkeeper.TurnSucceeded {
					t.Fatalf("%+v", got)
				}
				call := b.store.calls()[0]
				if !strings.HasPrefix(call.Shown, test.shown) {
					t.Errorf("result %q, want it to begin with %q", call.Shown, test.shown)
				}
				if call.Arguments != test.args || call.RawArgs != test.raw {
					t.Errorf("arguments %q, raw %q", call.Arguments, call.RawArgs)
				}
				if test.shown != "look ran" && call.State != turnkeeper.CallDenied {
					t.Errorf("state %s", call.State)
				}
				if send.runs.count()+secret.runs.count() != 0 {
					t.Error("a faulty call was run")
				}
				if got := results(b.requests()[1]); len(got) != 1 || got[0] != call.Shown {
					t.Errorf("the model was answered %q", got)
				}
			})
		})
	}
}

func TestTruncatedAnswerRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := read("look")
		b := newBench(t, inferStep(inference.Response{FinishReason: "length", Calls: []inference.Call{
			{ID: "a", Name: "look", Arguments: `{"n":1}`},
			{ID: "c", Name: "secret", Arguments: `{}`},
			{ID: "b", Name: "look", Arguments: `{"n":`, Truncated: true},
		}}), says("shorter")).with(look)
		b.run(t.Context())
		if look.runs.count() != 0 || !slices.Equal(b.states(), []turnkeeper.CallState{"denied", "denied", "denied"}) {
			t.Errorf("%d runs, states %v", look.runs.count(), b.states())
		}
		// Otherwise the reply would show the name.
		if shown := b.store.calls()[1].Shown; !strings.HasPrefix(shown, "tool not found: secret") {
			t.Errorf("the call of an unknown tool is shown %q", shown)
		}
		b.requests()
	})
}

// TestACallInDoubtRunsNoEffect checks that no call with an effect runs if the calls of an answer did not arrive whole.
func TestACallInDoubtRunsNoEffect(t *testing.T) {
	send := func(arguments string) inference.Call {
		return inference.Call{ID: "s" + arguments, Name: "send", Arguments: arguments}
	}
	look := inference.Call{ID: "l", Name: "look", Arguments: `{"n":1}`}
	for name, answer := range map[string]inference.Response{
		"the provider doubts": {Doubt: "a piece fits no call", Calls: []inference.Call{send(""), look}},
		"arguments that are not whole": {Calls: []inference.Call{send(`{"n":2}`), look, {ID: "x", Name: "look",
			Arguments: `{"n":`}}},
		"arguments with more after it": {Calls: []inference.Call{{ID: "x", Name: "look", Arguments: `{"n":1}{"n":2}`},
			look, send(`{"n":2}`)}},
		"of a call that does not exist": {Calls: []inference.Call{send(`{"n":2}`), look, {ID: "x", Name: "none",
			Arguments: `"n":1}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				effect := once("send")
				b := newBench(t, inferStep(answer), says("done")).with(read("look"), effect)
				b.run(t.Context())
				for _, call := range b.store.calls() {
					if call.Name == "send" && (call.State != turnkeeper.CallDenied || !strings.HasPrefix(call.Shown,
						"denied: the tool calls of this answer did not arrive whole (")) {
						t.Errorf("%s: %q", call.State, call.Shown)
					}
					if call.ProviderID == "l" && call.State != turnkeeper.CallSucceeded {
						t.Errorf("the read is %s: %q", call.State, call.Shown)
					}
				}
				if n := effect.runs.count(); n != 0 {
					t.Errorf("the effect ran %d times", n)
				}
				if n := b.logged(
					"the calls of an answer may not be those of the model; none with an effect runs"); n != 1 {
					t.Errorf("%d warnings", n)
				}
			})
		})
	}
}

// TestACallWithoutArgumentsIsWhole checks that other calls of its answer run.
func TestACallWithoutArgumentsIsWhole(t *testing.T) {
	for _, arguments := range []string{"", " \n"} {
		synctest.Test(t, func(t *testing.T) {
			effect := once("send")
			b := newBench(t, inferStep(inference.Response{Calls: []inference.Call{
				{ID: "l", Name: "look", Arguments: arguments}, {ID: "s", Name: "send", Arguments: `{"n":2}`},
			}}), says("done")).with(read("look"), effect)
			b.run(t.Context())
			if n := effect.runs.count(); n != 1 {
				t.Errorf("beside a call with the arguments %q, the effect ran %d times", arguments, n)
			}
		})
	}
}

// TestAStreamCutIntoManyCallsRunsNoEffect checks that a call whose pieces fit none does not run with the arguments {}.
func TestAStreamCutIntoManyCallsRunsNoEffect(t *testing.T) {
	const begin = `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"send","arguments":""}}]}}]}`
	piece := func(index int, id, arguments string) string {
		return fmt.Sprintf(`{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":%q,"function":{"arguments":%q}}]}}]}`,
			index, id, arguments)
	}
	const end = `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`
	for name, test := range map[string]struct {
		events []string
		runs   int
	}{
		"a new id in each piece":    {[]string{begin, piece(0, "x", `{"n":`), piece(0, "y", `7}`), end}, 1},
		"another index":             {[]string{begin, piece(1, "x", `{"n":`), piece(2, "y", `7}`), end}, 0},
		"another index and no name": {[]string{begin, piece(1, "x", `{"n":7}`), end}, 0},
		"cut in the arguments": {[]string{begin, piece(0, "a", `{"n":`), strings.Replace(end, "tool_calls",
			"length", 1)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(inferencetest.NewServer(inferencetest.SSE(test.events...),
				inferencetest.SSE(`{"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}`)))
			defer server.Close()
			send := once("send")
			b := newBench(t).with(send)
			model, err := openai.New(openai.Config{Read: completions.Read, Name: "main", BaseURL: server.URL + "/v1"})
			if err != nil {
				t.Fatal(err)
			}
			b.models["main/model"] = model
			if outcome, err := b.dispatch(t.Context()); err != nil || outcome.State != turnkeeper.TurnSucceeded {
				t.Fatal(outcome, err)
			}
			if n := send.runs.count(); n != test.runs {
				t.Fatalf("the effect ran %d times with %+v", n, send.runs.calls)
			}
			if test.runs == 1 && string(send.runs.calls[0].Arguments) != `{"n":7}` {
				t.Errorf("it ran with %s", send.runs.calls[0].Arguments)
			}
		})
	}
}

func TestWireIDs(t *testing.T) {
	call := func(id string, n int) inference.Call {
		return inference.Call{ID: id, Name: "look", Arguments: fmt.Sprintf(`{"n":%d}`, n)}
	}
	answer := func(calls ...inference.Call) inference.Response { return inference.Response{Calls: calls} }
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t,
			inferStep(answer(call("x", 1), call("", 2), call("x", 3), call("round-1-tool-5", 4), call("", 5),
				call("bad\x00id", 6))),
			inferStep(answer(call("x", 7), call("y", 8))), says("done")).with(read("look"))
		b.run(t.Context())
		var wire, provider []string
		for _, c := range b.store.calls() {
			wire, provider = append(wire, c.WireID), append(provider, c.ProviderID)
		}
		want := []string{"x", "round-1-tool-2", "round-1-tool-3", "round-1-tool-5", "turn-7-round-1-tool-5",
			"round-1-tool-6", "round-2-tool-1", "y"}
		if diff := cmp.Diff(want, wire); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"x", "", "x", "round-1-tool-5", "", "badid", "x", "y"}, provider); diff != "" {
			t.Error(diff)
		}
		b.requests()
	})
}

func TestOrderAndOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		var order []string
		slow := func(context.Context, tools.Call) (tools.Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return tools.Result{Text: "read"}, nil
		}
		effect := func(_ context.Context, call tools.Call) (tools.Result, error) {
			if running.Load() != 0 {
				t.Error("an effect ran beside a read")
			}
			order = append(order, call.Key.String())
			time.Sleep(time.Second)
			return tools.Result{Text: "sent"}, nil
		}
		calls := append(slices.Repeat([]string{"look"}, 10), "send", "send", "look", "look")
		b := newBench(t, asks(calls...), says("done")).with(read("look").does(slow), once("send").does(effect))
		b.bounds.MaxToolCalls = 50
		started := time.Now()
		b.run(t.Context())
		if took := time.Since(started); took != 5*time.Second { // 8 and 2 reads, two effects, two reads
			t.Errorf("it took %s", took)
		}
		if most.Load() != 8 {
			t.Errorf("%d reads at once", most.Load())
		}
		if diff := cmp.Diff([]string{"round-1-tool-11", "round-1-tool-12"}, order); diff != "" {
			t.Error(diff)
		}
		got := results(b.requests()[1])
		want := append(slices.Repeat([]string{"read"}, 10), "sent", "sent", "read", "read")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestToolsThatFail(t *testing.T) {
	tests := []struct {
		name  string
		f     func(ctx context.Context, call tools.Call) (tools.Result, error)
		shown string
	}{
		{"error", func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{}, errors.New("no such room")
		},
			"tool error: no such room"},
		{"panic", func(context.Context, tools.Call) (tools.Result, error) {
			panic("oops")
		}, "tool error: 'send' panicked: oops"},
		{"hang", func(ctx context.Context, _ tools.Call) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{}, ctx.Err()
		}, "tool error: 'send' timed out after 60 s"},
		{"deaf", func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(80 * time.Second)
			return tools.Result{}, nil
		}, "tool error: 'send' timed out after 60 s"},
		{"says so", func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{Text: "refused", IsError: true}, nil
		}, "refused"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("send"), says("It failed.")).with(once("send").does(test.f))
				started := time.Now()
				got := b.run(t.Context())
				if got.State != turnkeeper.TurnSucceeded || got.Reply != "It failed." {
					t.Errorf("%+v", got)
				}
				if call := b.store.calls()[0]; call.State != turnkeeper.CallFailed || call.Shown != test.shown {
					t.Errorf("call is %s, %q", call.State, call.Shown)
				}
				if took := time.Since(started); took > 61*time.Second {
					t.Errorf("it took %s", took)
				}
				time.Sleep(time.Minute) // lets a tool that ignores its context end
			})
		})
	}
}

func TestTransactionalTool(t *testing.T) {
	note := func(b *bench, fail bool) *tool {
		n := once("note").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
			if err := b.store.notes(ctx, call.Key.String()); err != nil {
				return tools.Result{}, err
			}
			if fail {
				return tools.Result{}, errors.New("full")
			}
			return tools.Result{Text: "noted"}, nil
		})
		n.spec.Transactional, n.spec.Timeout = true, 7*time.Second
		return n
	}
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fail), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("note"), says("done"))
				b.with(note(b, fail))
				b.run(t.Context())
				want, state := []string{"round-1-tool-1"}, turnkeeper.CallSucceeded
				if fail {
					want, state = nil, turnkeeper.CallFailed
				}
				if diff := cmp.Diff(want, b.store.effects); diff != "" {
					t.Error(diff)
				}
				if b.states()[0] != state {
					t.Errorf("state %s", b.states()[0])
				}
				if diff := cmp.Diff([]time.Duration{7*time.Second + tools.DefaultGrace}, b.store.within); diff != "" {
					t.Error("the time of the transaction:", diff)
				}
			})
		})
	}
}

func TestIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := newTool("send", turnkeeper.EffectKeyed)
		b := newBench(t, asks("send", "send"), says("done")).with(send)
		b.run(t.Context())
		first, second := send.runs.calls[0].IdempotencyKey, send.runs.calls[1].IdempotencyKey
		if first == second || !strings.HasPrefix(first, "turn-7-") || !strings.HasSuffix(first, "round-1-tool-1") {
			t.Errorf("keys %q and %q", first, second)
		}
	})
}

func TestRepeatedCalls(t *testing.T) {
	const n = `{"n":1}`
	tests := []struct {
		name string
		ask  [][]string // calls of each round
		want []turnkeeper.CallState
		runs int
	}{
		{"in the next round", [][]string{{"send " + n}, {"send " + n}}, []turnkeeper.CallState{"succeeded",
			"skipped"}, 1},
		{"in the same answer", [][]string{{"send " + n, "send " + n, "send " + n}}, []turnkeeper.CallState{"succeeded",
			"skipped", "skipped"}, 1},
		{"a read", [][]string{{"look " + n, "look " + n}, {"look " + n}}, []turnkeeper.CallState{"succeeded",
			"succeeded", "succeeded"}, 3},
		{"a read that is guarded", [][]string{{"watch " + n, "watch " + n}}, []turnkeeper.CallState{"succeeded",
			"skipped"}, 1},
		{"an effect that may repeat", [][]string{{"poke " + n, "poke " + n}, {"poke " + n}},
			[]turnkeeper.CallState{"succeeded", "succeeded", "succeeded"}, 3},
		{"written otherwise", [][]string{{"send " + n}, {`send { "n": 1.0 }`}}, []turnkeeper.CallState{"succeeded",
			"skipped"}, 1},
		{"with another between", [][]string{{"send " + n, "look", "send " + n}}, []turnkeeper.CallState{"succeeded",
			"succeeded", "succeeded"}, 3},
		{"with paging between", [][]string{{"send " + n, "page", "send " + n}}, []turnkeeper.CallState{"succeeded",
			"succeeded", "skipped"}, 2},
		{"paging itself", [][]string{{"page " + n, "page " + n}}, []turnkeeper.CallState{"succeeded", "succeeded"}, 2},
		{"after a failure", [][]string{{"fail " + n}, {"fail " + n}}, []turnkeeper.CallState{"failed", "failed"}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				page := read("page")
				page.spec.Paging = true
				fail := once("fail").does(func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{}, errors.New("no")
				})
				send, look, watch, poke := once("send"), read("look"), read("watch"), once("poke")
				watch.spec.Repeat, poke.spec.Repeat = tools.RepeatGuard, tools.RepeatAllow
				b := newBench(t).with(send, look, watch, poke, page, fail)
				for _, calls := range test.ask {
					b.script.Add(asks(calls...))
				}
				b.script.Add(says("done"))
				b.run(t.Context())
				if diff := cmp.Diff(test.want, b.states()); diff != "" {
					t.Error(diff)
				}
				if runs := send.runs.count() + look.runs.count() + watch.runs.count() + poke.runs.count() +
					page.runs.count() + fail.runs.count(); runs != test.runs {
					t.Errorf("%d runs, want %d", runs, test.runs)
				}
				for _, call := range b.store.calls() {
					if call.State == turnkeeper.CallSkipped && !strings.HasPrefix(call.Shown,
						call.Name+" ran\n\n[This is the result of round-1-tool-1 again") {
						t.Errorf("the repeat is shown %q", call.Shown)
					}
				}
				b.requests()
			})
		})
	}
}

// TestRepeatsAndTheCap checks that a repeat that is answered from the first call is not
// executed and does not count towards the cap, and that a repeat that runs, because the
// first call failed, counts.
func TestRepeatsAndTheCap(t *testing.T) {
	const n = ` {"n":1}`
	tests := []struct {
		name string
		max  int
		ask  []string
		want []turnkeeper.CallState
		runs int
		stop turnkeeper.StopReason
	}{
		{"a repeat is free", 2, []string{"send" + n, "send" + n, "look"}, []turnkeeper.CallState{"succeeded", "skipped",
			"succeeded"}, 2, turnkeeper.StopNone},
		{"reads count", 2, []string{"look" + n, "look" + n, "look" + n}, []turnkeeper.CallState{"succeeded",
			"succeeded", "denied"}, 2, turnkeeper.StopMaxToolCalls},
		{"at the cap", 1, []string{"send" + n, "send" + n}, []turnkeeper.CallState{"succeeded", "skipped"}, 1,
			turnkeeper.StopNone},
		{"with paging between", 1, []string{"send" + n, "page", "send" + n}, []turnkeeper.CallState{"succeeded",
			"succeeded", "skipped"}, 2, turnkeeper.StopNone},
		{"after a failure it counts", 2, []string{"fail" + n, "fail" + n, "look"}, []turnkeeper.CallState{"failed",
			"failed", "denied"}, 2, turnkeeper.StopMaxToolCalls},
		{"of a read that fails", 2, []string{"miss" + n, "miss" + n, "look", "page"}, []turnkeeper.CallState{"failed",
			"failed", "denied", "succeeded"}, 3, turnkeeper.StopMaxToolCalls},
		{"after a failure at the cap", 1, []string{"fail" + n, "fail" + n}, []turnkeeper.CallState{"failed", "denied"},
			1, turnkeeper.StopMaxToolCalls},
		{"others count", 2, []string{"look", "send", "send"}, []turnkeeper.CallState{"succeeded", "succeeded",
			"denied"}, 2, turnkeeper.StopMaxToolCalls},
		{"no call at all", 0, []string{"send" + n, "send" + n}, []turnkeeper.CallState{"denied", "denied"}, 0,
			turnkeeper.StopMaxToolCalls},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				page, failing := read("page"), func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{}, errors.New("no")
				}
				page.spec.Paging = true
				all := []*tool{once("send"), read("look"), page, once("fail").does(failing), read("miss").does(failing)}
				b := newBench(t, asks(test.ask...), says("done"))
				for _, tool := range all {
					b.with(tool)
				}
				b.bounds.MaxToolCalls = test.max
				got := b.run(t.Context())
				if diff := cmp.Diff(test.want, b.states()); diff != "" {
					t.Error(diff)
				}
				runs := 0
				for _, tool := range all {
					runs += tool.runs.count()
				}
				if runs != test.runs || got.StopReason != test.stop {
					t.Errorf("%d runs, stop %q; want %d, %q", runs, got.StopReason, test.runs, test.stop)
				}
			})
		})
	}
}

// TestARepeatInALaterRoundIsFree repeats a call after the last one that the turn may run.
func TestARepeatInALaterRoundIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := once("send")
		b := newBench(t, asks("send"), asks("send"), says("done")).with(send)
		b.bounds.MaxToolCalls = 1
		got := b.run(t.Context())
		if states := b.states(); !slices.Equal(states, []turnkeeper.CallState{turnkeeper.CallSucceeded,
			turnkeeper.CallSkipped}) || send.runs.count() != 1 || got.StopReason != turnkeeper.StopNone {
			t.Errorf("calls %v, %d runs, stop %q", states, send.runs.count(), got.StopReason)
		}
	})
}

type pastCalls []turnlog.PastCall

func (p pastCalls) RecentCalls(context.Context, string, string, string, time.Duration) ([]turnlog.PastCall, error) {
	return p, nil
}

type noPast struct{}

func (noPast) RecentCalls(context.Context, string, string, string, time.Duration) ([]turnlog.PastCall, error) {
	return nil, errors.New("the database is away")
}

func TestScheduledCalls(t *testing.T) {
	failed := func(ago ...time.Duration) (p pastCalls) {
		for _, d := range ago {
			p = append(p, turnlog.PastCall{Ago: d})
		}
		return p
	}
	ok := func(ago time.Duration) turnlog.PastCall { return turnlog.PastCall{Succeeded: true, Ago: ago} }
	const cool = "skipped due to failure cool-down: 3 failures within 1800 second window, last 5 seconds ago, cool-down of 1800 seconds"
	tests := []struct {
		name    string
		past    agentturn.Freshness
		trigger turnkeeper.Trigger
		want    string // result of the first call; empty: it runs
	}{
		{"fresh", pastCalls{ok(42500 * time.Millisecond)}, "schedule",
			"skipped due to freshness dedupe: last success 42 seconds ago within 600 second window"},
		{"at the window's end", pastCalls{ok(600 * time.Second)}, "schedule",
			"skipped due to freshness dedupe: last success 600 seconds ago within 600 second window"},
		{"stale", pastCalls{ok(601 * time.Second)}, "schedule", ""},
		{"fresh behind a failure", pastCalls{{Ago: time.Second}, ok(9 * time.Second)}, "schedule",
			"skipped due to freshness dedupe: last success 9 seconds ago within 600 second window"},
		{"not scheduled", pastCalls{ok(time.Second)}, "message", ""},
		{"two failures", failed(5*time.Second, 10*time.Second), "schedule", ""},
		{"three failures", failed(5*time.Second, 10*time.Second, 1800*time.Second), "schedule", cool},
		{"three failures far apart", failed(5*time.Second, 10*time.Second, 1900*time.Second), "schedule", ""},
		{"three failures long ago", failed(1800*time.Second, 1801*time.Second, 1802*time.Second), "schedule", ""},
		{"a success among the failures", append(failed(5*time.Second, 10*time.Second), ok(700*time.Second),
			turnlog.PastCall{Ago: 800 * time.Second}), "schedule", ""},
		{"nothing known", noPast{}, "schedule", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := once("send")
				b := newBench(t, asks("send"), asks(`send {"n":2}`), says("done")).with(send)
				b.freshness, b.store.trigger = test.past, test.trigger
				b.run(t.Context())
				first, second := b.store.calls()[0], b.store.calls()[1]
				if test.want == "" && first.State != turnkeeper.CallSucceeded {
					t.Errorf("the call is %s, %q", first.State, first.Shown)
				}
				if test.want != "" && (first.State != turnkeeper.CallSkipped || first.Shown != test.want) {
					t.Errorf("the call is %s, %q; want %q", first.State, first.Shown, test.want)
				}
				if second.State != turnkeeper.CallSucceeded {
					t.Errorf("the second round's call is %s", second.State)
				}
			})
		})
	}
}

func TestScheduledReplies(t *testing.T) {
	tests := []struct {
		name         string
		steps        []inference.Response
		max          int
		reply, inner string
	}{
		{"an answer is a reply", []inference.Response{asking("Looking.", "look"), {Text: "It changed."}}, 3,
			"It changed.", "Looking."},
		{"a summary is none", []inference.Response{asking("Looking.", "look")}, 1, "", "Looking."},
		{"nothing said", []inference.Response{asking("", "look")}, 1, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t).with(read("look"))
				for _, res := range test.steps {
					b.script.Add(inferStep(res))
				}
				b.bounds.MaxRounds, b.store.trigger = test.max, turnkeeper.TriggerSchedule
				got := b.run(t.Context())
				if got.Reply != test.reply || got.InnerDialogue != test.inner {
					t.Errorf("reply %q, inner dialogue %q", got.Reply, got.InnerDialogue)
				}
			})
		})
	}
}

func TestLeaseTooShortForAnEffect(t *testing.T) {
	const denied = "denied: not enough time left in this turn"
	synctest.Test(t, func(t *testing.T) {
		send, look := once("send"), read("look")
		b := newBench(t, asks("look", "send", "look", "send"), says("never asked")).with(send, look)
		b.lease = 90 * time.Second // a minute for the tool, and 30 s of margin
		got := b.run(t.Context())
		if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopMaxDuration ||
			len(b.requests()) != 1 {
			t.Errorf("%+v", got)
		}
		calls := b.store.calls()
		if send.runs.count() != 0 || look.runs.count() != 1 || calls[1].Shown != denied || calls[3].Shown != denied {
			t.Errorf("%d effects, %d reads, %q", send.runs.count(), look.runs.count(), calls[1].Shown)
		}
		if b.store.calls()[1].Starts+b.store.calls()[3].Starts != 0 {
			t.Error("a start was written")
		}
	})
	t.Run("just enough", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			send := once("send")
			b := newBench(t, asks("send"), says("sent")).with(send)
			b.lease = 90*time.Second + time.Millisecond
			if got := b.run(t.Context()); got.State != turnkeeper.TurnSucceeded || send.runs.count() != 1 {
				t.Errorf("%+v, %d runs", got, send.runs.count())
			}
		})
	})
	t.Run("used up by the write of the start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			send := once("send")
			b := newBench(t, asks("send", "send"), says("never asked")).with(send)
			b.lease = 100 * time.Second
			b.fault = at(agentturn.PointStartAfter, 1, func() { time.Sleep(11 * time.Second) })
			got := b.run(t.Context())
			if got.StopReason != turnkeeper.StopMaxDuration || send.runs.count() != 0 {
				t.Errorf("%+v, %d runs", got, send.runs.count())
			}
			calls := b.store.calls()
			if calls[0].State != turnkeeper.CallFailed || calls[0].Shown != denied ||
				calls[1].State != turnkeeper.CallDenied {
				t.Errorf("%+v", calls)
			}
		})
	})
}

// at returns a hook that calls f when a label is reached for the nth time.
func at(label string, n int, f func()) fault.Hook { return &trap{label: label, n: n, f: f} }

type trap struct {
	label string // empty: any
	n     int
	f     func()
	seen  []string
}

func (h *trap) At(_ context.Context, label string) {
	h.seen = append(h.seen, label)
	if h.label != "" && h.label != label {
		return
	}
	if h.n--; h.n == 0 {
		h.f()
	}
}

// TestThousandsOfCallsInOneAnswer checks that the time to deny the calls of one answer
// grows linearly with their number: a model in a loop asks for thousands, and the turn's
// deadline cannot interrupt the denial.
func TestThousandsOfCallsInOneAnswer(t *testing.T) {
	planned := func(n int) (bytes uint64) {
		var calls []inference.Call
		for i := range n {
			calls = append(calls, inference.Call{ID: fmt.Sprint("c", i), Name: "look",
				Arguments: fmt.Sprintf(`{"n":%d}`, i)})
		}
		b := newBench(t, inferStep(inference.Response{FinishReason: "tool_calls", Calls: calls}),
			says("Enough.")).with(read("look"))
		b.def.ContextWindow = 10_000_000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o := b.run(t.Context())
		runtime.ReadMemStats(&after)
		if o.StopReason != turnkeeper.StopMaxToolCalls || len(b.store.calls()) != n {
			t.Errorf("%s with %d calls on record", o.StopReason, len(b.store.calls()))
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := planned(300), planned(2400)
	if many > 16*few {
		t.Errorf("8 times as many calls take %d times the memory", many/few)
	}
}

package agentturn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// early allows the tool's calls to start while the answer streams.
func (t *tool) early() *tool {
	t.spec.Early = true
	return t
}

// speaks returns a step that streams its calls one after the other, each as it came whole, calls meanwhile, and then
// answers.
func speaks(res inference.Response, meanwhile func()) inferencetest.Step {
	return inferencetest.Func(func(_ context.Context, _ inference.Request,
		onDelta func(inference.Delta)) (inference.Response, error) {
		streamCalls(res.Calls, onDelta)
		meanwhile()
		return res, nil
	})
}

func streamCalls(calls []inference.Call, onDelta func(inference.Delta)) {
	for i, call := range calls {
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Name: call.Name})
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Text: call.Arguments})
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Done: true})
	}
}

// A decider is a tool that decides about its calls.
type decider struct {
	*tool
	asked atomic.Int64
}

func (d *decider) Approve(context.Context, tools.Call) (policy.Decision, error) {
	d.asked.Add(1)
	return policy.Decision{Verdict: policy.Allow}, nil
}

// allows is a compiler whose rules allow everything.
func allows(string) (policy.Rule, error) { return policy.Compile(policy.Never, nil) }

// earlyCases are answers with a call of look, which may start early, and the number of runs that begin before the
// answer is complete.
var earlyCases = map[string]struct {
	change func(b *bench, look *tool)
	calls  []string
	want   int
}{
	"a read":  {nil, []string{"look"}, 1},
	"several": {nil, []string{"look", "look", "look"}, 3},
	"more than run at once": {func(b *bench, _ *tool) { b.bounds.MaxToolCalls = 20 },
		slices.Repeat([]string{"look"}, 9), 8},
	"its tool does not allow it":  {func(_ *bench, look *tool) { look.spec.Early = false }, []string{"look"}, 0},
	"an effect before it":         {nil, []string{"send", "look"}, 0},
	"an effect between":           {nil, []string{"look", "send", "look"}, 1},
	"an effect with wrong words":  {nil, []string{`send {"x":1}`, "look"}, 0},
	"an effect after it":          {nil, []string{"look", "send"}, 1},
	"an unknown tool before it":   {nil, []string{"nothing", "look"}, 0},
	"another read before it":      {nil, []string{"plain", "look"}, 1},
	"a wrong read before it":      {nil, []string{`plain {"x":1}`, "look"}, 1},
	"wrong arguments":             {nil, []string{`look {"x":1}`}, 0},
	"no arguments":                {nil, []string{"look "}, 1},
	"each step on record":         {func(b *bench, _ *tool) { b.def.Durability = "step" }, []string{"look"}, 0},
	"its rule asks":               {ruled(policy.Always), []string{"look"}, 0},
	"its rule never asks":         {ruled(policy.Never), []string{"look"}, 1},
	"its rule may look at labels": {ruled("a rule"), []string{"look"}, 0},
	"the agent's rule asks": {func(b *bench, _ *tool) { b.def.Approve = map[string]string{"look": policy.Always} },
		[]string{"look"}, 0},
	"the agent's rule for all asks": {func(b *bench, _ *tool) {
		b.def.Approve = map[string]string{policy.AllTools: policy.Always}
	}, []string{"look"}, 0},
	"the agent's rule may look at labels": {func(b *bench, _ *tool) {
		b.def.Approve = map[string]string{policy.AllTools: "a rule"}
	}, []string{"look"}, 0},
	"the worker's rule asks": {func(b *bench, _ *tool) {
		b.config = func(c *agentturn.Config) { c.Approve = policy.Always }
	}, []string{"look"}, 0},
	"the worker's rule may look at labels": {func(b *bench, _ *tool) {
		b.config = func(c *agentturn.Config) { c.Approve, c.Rules = "a rule", &policy.Cache{Compiler: allows} }
	}, []string{"look"}, 0},
	"the newest rules deny it": {func(b *bench, _ *tool) {
		newest := *b.def
		newest.Approve = map[string]string{"look": "a rule"}
		b.newest, b.config = &newest, func(c *agentturn.Config) {
			c.Rules = &policy.Cache{Compiler: func(string) (policy.Rule, error) { return denies{}, nil }}
		}
	}, []string{"look"}, 0},
	"the newest rules may look at labels": {func(b *bench, _ *tool) {
		newest := *b.def
		newest.Approve = map[string]string{policy.AllTools: "a rule"}
		b.newest = &newest
		b.config = func(c *agentturn.Config) { c.Rules = &policy.Cache{Compiler: allows} }
	}, []string{"look"}, 0},
	"a read that asks before it": {func(b *bench, _ *tool) {
		b.def.Approve = map[string]string{"plain": policy.Always}
	},
		[]string{"plain", "look"}, 0},
	"it is a sink": {func(_ *bench, look *tool) { look.spec.Flow.Sinks = []policy.Sink{policy.Sends} },
		[]string{"look"}, 0},
	"a sink before it": {nil, []string{"search", "look"}, 0},
	"its results have labels": {func(_ *bench, look *tool) { look.spec.Flow.Labels = []policy.Label{policy.Private} },
		[]string{"look"}, 1},
	"a question to a person before it": {nil, []string{`ask_person {"question":"Why?"}`, "look"}, 0},
	"a wait before it":                 {nil, []string{"wait_for_tool_output {}", "look"}, 0},
	"over the limit": {func(b *bench, _ *tool) { b.bounds.MaxToolCalls = 1 },
		[]string{"look", "look"}, 1},
	"a repetition": {func(_ *bench, look *tool) { look.spec.Repeat = tools.RepeatGuard },
		[]string{`look {"n":1}`, `look {"n":1}`}, 1},
	"a schedule": {func(b *bench, _ *tool) { b.store.trigger = turnkeeper.TriggerSchedule },
		[]string{"look"}, 1},
	"a schedule that looks back": {func(b *bench, look *tool) {
		b.store.trigger, b.freshness, look.spec.Freshness = turnkeeper.TriggerSchedule, pastCalls{}, time.Minute
	}, []string{"look"}, 0},
	"a handle": {func(b *bench, look *tool) {
		b.bounds.OutputHandles = true
		look.spec.Parameters = json.RawMessage(`{"type":"object"}`)
	}, []string{`look {"a":"output:1"}`}, 0},
	"a turn that is to finish": {func(b *bench, _ *tool) { b.finish = make(chan struct{}); close(b.finish) },
		[]string{"look"}, 0},
	"the last round": {func(b *bench, _ *tool) {
		b.bounds.MaxRounds = 2
		b.script = inferencetest.NewScript(asks("plain"))
		b.models["main/model"] = b.script
	}, []string{"look"}, 0},
}

// ruled sets the tool's own rule.
func ruled(rule string) func(*bench, *tool) {
	return func(_ *bench, look *tool) { look.spec.Approve = rule }
}

type denies struct{}

func (denies) Decide(policy.Call) policy.Decision { return policy.Decision{Verdict: policy.Deny} }

// playEarly runs a case, with or without early reads. It returns what the turn writes, and how many runs began before
// the answer was complete.
func playEarly(t *testing.T, name string, early bool) (writes []string, before int) {
	c := earlyCases[name]
	b := newBench(t)
	look, search := read("look").early(), read("search")
	search.spec.Flow.Sinks = []policy.Sink{policy.Sends}
	b.with(look, read("plain"), once("send"), search)
	for _, tool := range append(builtin.NewReaders(), builtin.NewAskPerson()) {
		b.with(tool)
	}
	if c.change != nil {
		c.change(b, look)
	}
	look.spec.Early = look.spec.Early && early
	b.script.Add(speaks(asking("", c.calls...), func() {
		synctest.Wait()
		before = look.runs.count()
	}), says("Done."))
	r := b.record()
	b.run(t.Context())
	return r.written(), before
}

// written returns the lines of a recording about writes.
func (r *recording) written() (lines []string) {
	for line := range strings.SplitSeq(r.String(), "\n") {
		if strings.Contains(line, "s writes ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestWhichReadsStartEarly checks for each answer how many of its reads begin before it is complete, and that the turn
// is recorded as if none did.
func TestWhichReadsStartEarly(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(earlyCases)) {
		t.Run(name, func(t *testing.T) {
			var got, want []string
			synctest.Test(t, func(t *testing.T) {
				var n int
				if got, n = playEarly(t, name, true); n != earlyCases[name].want {
					t.Errorf("%d runs began early, want %d", n, earlyCases[name].want)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				var n int
				if want, n = playEarly(t, name, false); n != 0 {
					t.Errorf("%d runs began early though the tool does not allow it", n)
				}
			})
			if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
				t.Errorf("it is recorded differently (-without +with):\n%s", diff)
			}
		})
	}
}

// TestAToolThatDecidesIsNotAskedEarly checks that the tool decides only after its answer.
func TestAToolThatDecidesIsNotAskedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := &decider{tool: read("look").early()}
		b := newBench(t).with(look)
		b.script.Add(speaks(asking("", "look"), func() {
			if synctest.Wait(); look.asked.Load() != 0 || look.runs.count() != 0 {
				t.Errorf("it decided %d times and ran %d times", look.asked.Load(), look.runs.count())
			}
		}), says("Done."))
		if b.run(t.Context()); look.runs.count() != 1 {
			t.Errorf("it ran %d times", look.runs.count())
		}
	})
}

// TestRecordedTurnsWithEarlyReads plays the recorded turns with reads that may start early: they write the same, at
// the same time.
func TestRecordedTurnsWithEarlyReads(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(recordedTurns)) {
		t.Run(name, func(t *testing.T) {
			var written [2][]string
			for i := range written {
				synctest.Test(t, func(t *testing.T) {
					b := recordedTurns[name].begin(t)
					for _, any := range b.tools {
						if own, ok := any.(*tool); ok && i == 1 && own.spec.Effect == turnkeeper.EffectNone &&
							!own.spec.Detached && !own.spec.AsksInput {
							own.early()
						}
					}
					r := b.record()
					recordedTurns[name].play(b)
					written[i] = r.written()
				})
			}
			if diff := cmp.Diff(written[0], written[1]); diff != "" {
				t.Errorf("it is recorded differently (-without +with):\n%s", diff)
			}
		})
	}
}

// TestAnEarlyReadThatIsNotUsed checks that the result of a read is thrown away if its answer is not used or has another
// call in its place. The read then runs again, if it is still asked for, and the turn is recorded as if it had run
// once.
func TestAnEarlyReadThatIsNotUsed(t *testing.T) {
	cut := &inference.Error{Class: inference.ClassOverloaded, Provider: "main", Model: "model", Detail: "it broke"}
	whole := asking("", "look", "look")
	other := func(change func(*inference.Response)) inference.Response {
		res := asking("", "look", "look")
		change(&res)
		return res
	}
	for name, c := range map[string]struct {
		change func(b *bench)
		res    inference.Response
		err    error
		then   []inferencetest.Step
		runs   map[string]int // by the number in the arguments
	}{
		"used": {res: whole, runs: map[string]int{"1": 1, "2": 1}},
		"a stream that breaks": {err: cut, then: []inferencetest.Step{inferencetest.Answer(whole)},
			runs: map[string]int{"1": 2, "2": 2}},
		"an answer without the call after it broke": {err: cut, then: []inferencetest.Step{asks("look")},
			runs: map[string]int{"1": 2, "2": 1}},
		"an answer without calls after it broke": {err: cut, runs: map[string]int{"1": 1, "2": 1}},
		"a model that is given up": {change: func(b *bench) {
			b.def.FallbackModels = []string{"main/other"}
			b.models["main/other"] = inferencetest.NewScript(inferencetest.Answer(whole), says("Done."))
		}, err: &inference.Error{Class: inference.ClassInvalid, Provider: "main", Model: "model"},
			runs: map[string]int{"1": 2, "2": 2}},
		"other arguments": {res: other(func(r *inference.Response) { r.Calls[1].Arguments = `{"n":3}` }),
			runs: map[string]int{"1": 1, "2": 1, "3": 1}},
		"the same arguments, written otherwise": {res: other(func(r *inference.Response) {
			r.Calls[1].Arguments = ` { "n" : 2 } `
		}), runs: map[string]int{"1": 1, "2": 1}},
		"another tool": {res: other(func(r *inference.Response) { r.Calls[1].Name = "send" }),
			runs: map[string]int{"1": 1, "2": 1}},
		"fewer calls": {res: other(func(r *inference.Response) { r.Calls = r.Calls[:1] }),
			runs: map[string]int{"1": 1, "2": 1}},
		"another order": {res: other(func(r *inference.Response) { slices.Reverse(r.Calls) }),
			runs: map[string]int{"1": 2, "2": 2}},
		"doubt about the calls": {res: other(func(r *inference.Response) { r.Doubt = "a piece fits no call" }),
			runs: map[string]int{"1": 2, "2": 2}},
		"an answer that was cut": {res: other(func(r *inference.Response) { r.Calls[1].Truncated = true }),
			runs: map[string]int{"1": 1, "2": 1}},
		"an effect in front": {res: other(func(r *inference.Response) {
			r.Calls = append(asking("", "send").Calls, r.Calls...)
		}), runs: map[string]int{"1": 2, "2": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var written [2][]string
			for i := range written {
				synctest.Test(t, func(t *testing.T) {
					look := read("look")
					look.spec.Early = i == 1
					b := newBench(t).with(look, once("send"))
					if c.change != nil {
						c.change(b)
					}
					counts := &toolCounter{}
					b.script.Add(append([]inferencetest.Step{inferencetest.Func(func(_ context.Context,
						_ inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
						streamCalls(whole.Calls, onDelta)
						synctest.Wait()
						return c.res, c.err
					})}, append(c.then, says("Done."))...)...)
					r := b.record()
					set, logs := b.config, (*observer.ObservedLogs)(nil)
					b.config = func(cfg *agentturn.Config) {
						set(cfg)
						counts.Observer, cfg.Observer = cfg.Observer, counts
						var core zapcore.Core
						core, logs = observer.New(zapcore.DebugLevel)
						cfg.Log = zap.New(zapcore.NewTee(cfg.Log.Core(), core))
					}
					b.run(t.Context())
					written[i] = r.written()
					if i == 0 {
						return
					}
					runs := map[string]int{}
					for _, call := range look.runs.calls {
						runs[strings.Trim(string(call.Arguments), `{"n:}`)]++
					}
					if diff := cmp.Diff(c.runs, runs); diff != "" {
						t.Errorf("runs by argument (-want +got):\n%s", diff)
					}
					used := 0
					for _, call := range b.store.calls() {
						if call.State.Executed() {
							used++
						}
					}
					if counts.counted != used || counts.ended != counts.all {
						t.Errorf("the observer counts %d runs of %d calls, and %d of %d have ended", counts.counted,
							used, counts.ended, counts.all)
					}
					logged := logs.FilterMessageSnippet("is thrown away").All()
					if thrown := look.runs.count() + len(b.toolRuns("send")) - used; len(logged) != thrown ||
						thrown > 0 && logged[0].Level != zapcore.DebugLevel {
						t.Errorf("%d runs were thrown away, and %d lines logged", thrown, len(logged))
					}
				})
			}
			if diff := cmp.Diff(written[0], written[1]); diff != "" {
				t.Errorf("it is recorded differently (-without +with):\n%s", diff)
			}
		})
	}
}

// toolRuns returns the calls that a tool of the bench has received.
func (b *bench) toolRuns(name string) []tools.Call {
	for _, any := range b.tools {
		if own, ok := any.(*tool); ok && own.spec.Name == name {
			return own.runs.calls
		}
	}
	return nil
}

// A toolCounter is an Observer that counts the tool runs that begin and end.
type toolCounter struct {
	agentturn.Observer
	mu                  sync.Mutex
	all, ended, counted int
}

func (c *toolCounter) ToolCall(ctx context.Context, b agentturn.ToolBegin) (context.Context,
	func(agentturn.ToolEnd)) {
	ctx, end := c.Observer.ToolCall(ctx, b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	return ctx, func(e agentturn.ToolEnd) {
		end(e)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ended++; !e.Unused {
			c.counted++
		}
	}
}

// TestAnEarlyReadWaitsForItsAnswer checks that nothing of a run shows before its answer is complete: no progress, no
// question to a model, no output that is read, and that the same shows then as without.
func TestAnEarlyReadWaitsForItsAnswer(t *testing.T) {
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var stage atomic.Int64
			look := read("look").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
				call.Progress("looking")
				call.Progress("found it")
				stage.Store(1)
				_, found, err := call.Outputs.Find(ctx, "call_look_1")
				stage.Store(2)
				if err != nil || found {
					t.Errorf("it finds itself: %t, %v", found, err)
				}
				said, err := call.Sample(ctx, question("moon"))
				return tools.Result{Text: said.Text}, err
			})
			look.spec.Early = early
			b := newBench(t).with(look)
			b.script.Add(speaks(asking("", "look"), func() {
				synctest.Wait()
				time.Sleep(time.Second) // so that what waits is written
				if early != (stage.Load() == 1) || slices.Contains(b.eventTypes(), "notice") {
					t.Errorf("early %t: the run is at %d; events %v", early, stage.Load(), b.eventTypes())
				}
			}), says("June."), says("Done."))
			b.run(t.Context())
			call := b.store.calls()[0]
			if call.Shown != "June." || call.Usage.InputTokens != 10 || len(b.requests()) != 3 {
				t.Errorf("early %t: %q, %+v, %d requests", early, call.Shown, call.Usage, len(b.requests()))
			}
			notes := 0
			for _, e := range b.store.events() {
				if e.Type == turnkeeper.EventNotice && strings.Contains(string(e.Data), "found it") {
					notes++
				}
			}
			if notes != 1 {
				t.Errorf("early %t: %d notes of progress", early, notes)
			}
		})
	}
}

// TestHangingEarlyReads checks that a turn that stops, is cancelled or fenced, or whose model breaks, does not wait for
// an early read that never returns.
func TestHangingEarlyReads(t *testing.T) {
	for _, cause := range []error{agentturn.ErrCancelled, agentturn.ErrShutdown, turnkeeper.ErrFenced, nil} {
		t.Run(fmt.Sprint(cause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				let := make(chan struct{})
				var told atomic.Bool
				look := read("look").early().does(func(ctx context.Context, _ tools.Call) (tools.Result, error) {
					<-ctx.Done()
					told.Store(true)
					<-let // it does not return
					return tools.Result{Text: "late"}, nil
				})
				b := newBench(t).with(look)
				b.script.Add(inferencetest.Func(func(ctx context.Context, _ inference.Request,
					onDelta func(inference.Delta)) (inference.Response, error) {
					streamCalls(asking("", "look").Calls, onDelta)
					synctest.Wait()
					if cause == nil {
						return inference.Response{}, &inference.Error{Class: inference.ClassInvalid}
					}
					cancel(cause)
					<-ctx.Done()
					return inference.Response{}, context.Cause(ctx)
				}))
				began := time.Now()
				_, err := b.dispatch(ctx)
				if took := time.Since(began); took > time.Second || look.runs.count() != 1 || !told.Load() {
					t.Errorf("the dispatch took %s, with %d runs, cancelled: %t", took, look.runs.count(), told.Load())
				}
				if errors.Is(cause, turnkeeper.ErrFenced) != errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("the dispatch ended with %v", err)
				}
				if len(b.store.calls()) != 0 {
					t.Errorf("calls %v are on record", b.store.calls())
				}
				close(let)
				synctest.Wait()
			})
		})
	}
}

// TestAHostileStream sends pieces of calls that contradict each other and the answer. Whatever comes, no effect and no
// read that a person must approve runs before its answer stands, and each read runs with arguments that some piece said
// were whole.
func TestAHostileStream(t *testing.T) {
	piece := func(index int, name, text string, done bool) inference.Delta {
		return inference.Delta{Kind: inference.DeltaTool, Index: index, Name: name, Text: text, Done: done}
	}
	for name, deltas := range map[string][]inference.Delta{
		"an effect that says it is whole": {piece(0, "send", `{"n":1}`, false), piece(0, "", "", true)},
		"a read that becomes an effect": {piece(0, "look", `{"n":1}`, false),
			piece(0, "", "", true), piece(0, "send", "", false)},
		"a name in two pieces": {piece(0, "se", "", false),
			piece(0, "nd", `{"n":1}`, false), piece(0, "", "", true)},
		"a read over an effect": {piece(0, "send", `{"n":1}`, false),
			piece(1, "look", `{"n":1}`, false), piece(1, "", "", true)},
		"an index that is left out":    {piece(1, "look", `{"n":1}`, false), piece(1, "", "", true)},
		"a negative index":             {piece(-1, "look", `{"n":1}`, true)},
		"a huge index":                 {piece(1<<60, "look", `{"n":1}`, true)},
		"the end of nothing":           {piece(0, "", "", true), piece(0, "look", `{"n":1}`, false)},
		"a read that must be approved": {piece(0, "secret", `{"n":1}`, false), piece(0, "", "", true)},
		"a read after one that must be": {piece(0, "secret", `{"n":1}`, false),
			piece(0, "", "", true), piece(1, "look", `{"n":1}`, true)},
		"a name in other letters":               {piece(0, "LOOK", `{"n":1}`, true)},
		"a name with a NUL":                     {piece(0, "look\x00", `{"n":1}`, true)},
		"two values":                            {piece(0, "look", `{"n":1}{"n":2}`, true)},
		"the same key twice":                    {piece(0, "look", `{"n":1,"n":2}`, true)},
		"arguments that are not whole":          {piece(0, "look", `{"n":`, true)},
		"arguments of another tool in one call": {piece(0, "look", `{"n":1,"to":"all"}`, true)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look, send, secret := read("look").early(), once("send"), read("secret").early().needsApproval()
				b := newBench(t).with(look, send, secret)
				b.script.Add(inferencetest.Func(func(_ context.Context, _ inference.Request,
					onDelta func(inference.Delta)) (inference.Response, error) {
					for _, d := range deltas {
						onDelta(d)
						if d.Done && d.Name != "" { // in one delta, the end comes after the text
							onDelta(inference.Delta{Kind: d.Kind, Index: d.Index, Done: true})
						}
					}
					synctest.Wait()
					if send.runs.count()+secret.runs.count() > 0 {
						t.Error("an effect, or a read that must be approved, ran before its answer was complete")
					}
					for _, call := range look.runs.calls {
						if string(call.Arguments) != `{"n":1}` {
							t.Errorf("look ran with %s", call.Arguments)
						}
					}
					return says("Nothing.")(t.Context(), inference.Request{}, func(inference.Delta) {})
				}))
				if b.run(t.Context()); len(b.store.calls()) != 0 {
					t.Errorf("calls %v are on record", b.store.calls())
				}
			})
		})
	}
}

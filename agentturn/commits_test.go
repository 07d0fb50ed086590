package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// TestWrites checks the number of writes, which is part of the contract because each
// costs a commit.
func TestWrites(t *testing.T) {
	transactional := once("note")
	transactional.spec.Transactional = true
	post := once("post")
	post.spec.Transactional, post.spec.Flow.Sinks = true, []policy.Sink{policy.Sends}
	search, fresh := read("search"), read("fresh")
	search.spec.Flow.Sinks, fresh.spec.Freshness = []policy.Sink{policy.Sends}, time.Minute
	long := read("long").does(func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{Text: strings.Repeat("words ", 20_000)}, nil
	})
	slow := read("slow").does(func(context.Context, tools.Call) (tools.Result, error) {
		time.Sleep(time.Second)
		return tools.Result{Text: "at last"}, nil
	})
	tests := []struct {
		name  string
		steps []inferencetest.Step
		max   int // max_rounds; 0: the default
		want  []string
		step  []string // with durability step; nil: the same
	}{
		{"no tools", []inferencetest.Step{says("hello")}, 0, []string{"answer+outcome"}, nil},
		{"the standard turn", []inferencetest.Step{asks("look", "look"), asks(`look {"n":5}`, `look {"n":6}`),
			says("done")}, 0,
			[]string{"answer+results, answer+results, answer+outcome"},
			[]string{"answer", "results", "answer", "results", "answer+outcome"}},
		{"one effect", []inferencetest.Step{asks("send"), says("done")}, 0,
			[]string{"answer+start", "results", "answer+outcome"}, nil},
		{"effects in a row", []inferencetest.Step{asks("send", "send", "send"), says("done")}, 0,
			[]string{"answer+start", "start+results", "start+results", "results", "answer+outcome"}, nil},
		{"reads before an effect", []inferencetest.Step{asks("look", "look", "send"), says("done")}, 0,
			[]string{"answer+start+results", "results", "answer+outcome"},
			[]string{"answer", "start+results", "results", "answer+outcome"}},
		{"an effect after an answer with reads", []inferencetest.Step{asks("look"), asks("send"), says("done")}, 0,
			[]string{"answer+results, answer+start", "results", "answer+outcome"},
			[]string{"answer", "results", "answer+start", "results", "answer+outcome"}},
		{"reads after an effect", []inferencetest.Step{asks("send", "look"), says("done")}, 0,
			[]string{"answer+start", "results", "answer+results+outcome"},
			[]string{"answer+start", "results", "results", "answer+outcome"}},
		{"a transactional tool", []inferencetest.Step{asks("note"), says("done")}, 0,
			[]string{"answer", "transaction", "answer+outcome"}, nil},
		{"an effect before a transactional tool", []inferencetest.Step{asks("send", "note"), says("done")}, 0,
			[]string{"answer+start", "results", "transaction", "answer+outcome"}, nil},
		{"a repeat before a transactional tool", []inferencetest.Step{asks(`note {"n":1}`, `note {"n":1}`,
			`note {"n":2}`), says("done")}, 0,
			[]string{"answer", "transaction", "results", "transaction", "answer+outcome"}, nil},
		{"an effect that does not run", []inferencetest.Step{asks(`note {"n":1}`, `note {"n":1}`), says("done")}, 0,
			[]string{"answer", "transaction", "results", "answer+outcome"}, nil},
		{"a read before a transactional tool", []inferencetest.Step{asks("look", "note"), says("done")}, 0,
			[]string{"answer+results", "transaction", "answer+outcome"},
			[]string{"answer", "transaction", "results", "answer+outcome"}},
		{"a read without labels before a sink", []inferencetest.Step{asks("look", "post"), says("done")}, 0,
			[]string{"answer+results", "transaction", "answer+outcome"},
			[]string{"answer", "transaction", "results", "answer+outcome"}},
		{"a read that sends out", []inferencetest.Step{asks("look"), asks("search"), says("done")}, 0,
			[]string{"answer+results, answer", "answer+results+outcome"},
			[]string{"answer", "results", "answer", "results", "answer+outcome"}},
		{"a read that sends out, after another", []inferencetest.Step{asks("look", "search"), says("done")}, 0,
			[]string{"answer", "answer+results+outcome"},
			[]string{"answer", "results", "answer+outcome"}},
		{"a result that is stored", []inferencetest.Step{asks("long"), says("done")}, 0,
			[]string{"answer+results", "answer+outcome"},
			[]string{"answer", "results", "answer+outcome"}},
		{"a read whose starts are looked up", []inferencetest.Step{asks("fresh"), says("done")}, 0,
			[]string{"answer+start+results", "answer+outcome"},
			[]string{"answer", "start+results", "answer+outcome"}},
		{"slow reads", []inferencetest.Step{asks("slow"), asks("slow", "slow"), says("done")}, 0,
			[]string{"answer", "answer+results", "answer+results+outcome"},
			[]string{"answer", "events", "results", "answer", "events", "results", "answer+outcome"}},
		{"a slow model", []inferencetest.Step{slowly(asks("look")), slowly(asks("look")), slowly(says("done"))}, 0,
			[]string{"events", "answer+results", "answer+results", "answer+outcome"},
			[]string{"events", "answer", "results", "answer", "results", "answer+outcome"}},
		{"a model that fails once", []inferencetest.Step{asks("look"), fails(inference.ClassBadOutput),
			says("done")}, 0,
			[]string{"answer+results", "answer+outcome"},
			[]string{"answer", "results", "answer+outcome"}},
		{"a model that is given up for its answers, after an effect", []inferencetest.Step{asks("send"),
			fails(inference.ClassBadOutput), fails(inference.ClassBadOutput), fails(inference.ClassBadOutput)}, 0,
			[]string{"answer+start", "results", "outcome"}, nil},
		{"nothing to run", []inferencetest.Step{asks("nothing"), says("done")}, 0,
			[]string{"answer, answer+outcome"}, []string{"answer", "answer+outcome"}},
		{"one round only", []inferencetest.Step{asks("look")}, 1, []string{"answer+results+outcome"},
			[]string{"answer", "results+outcome"}},
		{"a last round that asks for tools", []inferencetest.Step{asks("look"), asks("look")}, 2,
			[]string{"answer+results, answer+outcome"},
			[]string{"answer", "results", "answer+outcome"}},
	}
	for _, test := range tests {
		for _, durability := range []string{"barrier", "step"} {
			t.Run(test.name+", "+durability, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, test.steps...).with(read("look"), once("send"), transactional, post, search, long,
						fresh, slow)
					b.def.Durability = durability
					if test.max != 0 {
						b.bounds.MaxRounds = test.max
					}
					b.run(t.Context())
					want := test.want
					if durability == "step" && test.step != nil {
						want = test.step
					}
					if diff := cmp.Diff(want, b.store.writes); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

// TestWhenAnAnswerIsOnRecord checks how long an answer, and the result of a read, may wait to be written: 20 ms of a
// wait for a tool or a model, and not at all before a pause, or a model call of another kind.
func TestWhenAnAnswerIsOnRecord(t *testing.T) {
	const soon = 20*time.Millisecond - 1
	tests := []struct {
		name  string
		steps func(note func()) []inferencetest.Step
		read  func(note func())
		want  []string
	}{
		{"during a read", nil, func(note func()) { time.Sleep(soon); note(); time.Sleep(2 * time.Nanosecond); note() },
			[]string{"0 of 0", "1 of 0"}},
		{"during a model call", func(note func()) []inferencetest.Step {
			return []inferencetest.Step{inferencetest.Func(func(ctx context.Context, req inference.Request,
				onDelta func(inference.Delta)) (inference.Response, error) {
				time.Sleep(soon)
				note()
				time.Sleep(2 * time.Nanosecond)
				note()
				return says("done")(ctx, req, onDelta)
			})}
		}, nil, []string{"0 of 0", "1 of 1"}},
		{"before another attempt", func(note func()) []inferencetest.Step {
			return []inferencetest.Step{fails(inference.ClassBadOutput), inferencetest.Func(func(ctx context.Context,
				req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
				note()
				return says("done")(ctx, req, onDelta)
			})}
		}, nil, []string{"1 of 1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var recorded []string
				var b *bench
				note := func() { // rounds and results on record
					results := 0
					for _, call := range b.store.calls() {
						if call.State == turnkeeper.CallSucceeded {
							results++
						}
					}
					recorded = append(recorded, fmt.Sprintf("%d of %d", len(b.store.rounds()), results))
				}
				steps := []inferencetest.Step{says("done")}
				if test.steps != nil {
					steps = test.steps(note)
				}
				b = newBench(t, append([]inferencetest.Step{asks("look")}, steps...)...)
				b.with(read("look").does(func(context.Context, tools.Call) (tools.Result, error) {
					if test.read != nil {
						test.read(note)
					}
					return tools.Result{Text: "ok"}, nil
				}))
				b.run(t.Context())
				if diff := cmp.Diff(test.want, recorded); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// slowly returns a step that takes a second.
func slowly(step inferencetest.Step) inferencetest.Step {
	return inferencetest.Func(func(ctx context.Context, req inference.Request,
		onDelta func(inference.Delta)) (inference.Response, error) {
		time.Sleep(time.Second)
		return step(ctx, req, onDelta)
	})
}

// stream returns a step that sends text pieces with pauses between them.
func stream(pause time.Duration, pieces ...string) inferencetest.Step {
	return inferencetest.Func(func(ctx context.Context, _ inference.Request,
		onDelta func(inference.Delta)) (inference.Response, error) {
		for _, piece := range pieces {
			onDelta(inference.Delta{Kind: inference.DeltaText, Text: piece})
			select {
			case <-ctx.Done():
				return inference.Response{}, context.Cause(ctx)
			case <-time.After(pause):
			}
		}
		return inference.Response{Text: strings.Join(pieces, "")}, nil
	})
}

func TestStreamedText(t *testing.T) {
	kilobyte := strings.Repeat("x", 1024)
	tests := []struct {
		name   string
		step   inferencetest.Step
		want   []string
		deltas []string
	}{
		{"a fast stream is one write", stream(time.Millisecond, "a", "b", "c"),
			[]string{"answer+outcome"}, []string{"abc"}},
		{"after half a second without a piece, the turn is shown", inferencetest.Func(
			func(ctx context.Context, req inference.Request,
				onDelta func(inference.Delta)) (inference.Response, error) {
				time.Sleep(5 * time.Second)
				return stream(time.Millisecond, "a", "b")(ctx, req, onDelta)
			}), []string{"events", "answer+outcome"}, []string{"ab"}},
		{"a slow stream is written every 250 ms", stream(100*time.Millisecond, "a", "b", "c", "d", "e", "f"),
			[]string{"events", "events", "answer+outcome"}, []string{"abc", "def"}},
		{"what came before a pause is written in it", stream(10*time.Second, "a", "b"),
			[]string{"events", "events", "answer+outcome"}, []string{"a", "b"}},
		{"a kilobyte is written at once", stream(time.Millisecond, kilobyte, "b", kilobyte, "c"),
			[]string{"events", "events", "answer+outcome"}, []string{kilobyte, "b" + kilobyte, "c"}},
		{"an answer that did not stream", inferencetest.Func(
			func(context.Context, inference.Request, func(inference.Delta)) (inference.Response, error) {
				return inference.Response{Text: "all at once"}, nil
			}), []string{"answer+outcome"}, []string{"all at once"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, test.step)
				got := b.run(t.Context())
				if diff := cmp.Diff(test.want, b.store.writes); diff != "" {
					t.Error(diff)
				}
				if b.streamed(1) != got.Reply {
					t.Errorf("watchers have %q, the reply is %q", b.streamed(1), got.Reply)
				}
				var deltas []string
				for _, e := range b.store.events() {
					if e.Type == turnkeeper.EventBlockDelta {
						var data struct{ Text string }
						b.decode(e.Data, &data)
						deltas = append(deltas, data.Text)
					}
				}
				if diff := cmp.Diff(test.deltas, deltas); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestRetryRollsBackWhatStreamed(t *testing.T) {
	cut := inferencetest.Func(func(ctx context.Context, req inference.Request,
		onDelta func(inference.Delta)) (inference.Response, error) {
		if _, err := stream(300*time.Millisecond, "half ", "of it")(ctx, req, onDelta); err != nil {
			return inference.Response{}, err
		}
		return inference.Response{}, &inference.Error{Class: inference.ClassTransport}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, cut, says("all of it"))
		got := b.run(t.Context())
		if got.Reply != "all of it" || b.streamed(1) != "all of it" {
			t.Errorf("reply %q, watchers have %q", got.Reply, b.streamed(1))
		}
		want := []string{"turn_start",
			"round_start", "block_start", "block_delta", "block_delta", "block_stop", "round_rollback",
			"round_start", "block_start", "block_delta", "block_stop", "round_stop", "turn_complete"}
		if diff := cmp.Diff(want, b.eventTypes()); diff != "" {
			t.Error(diff)
		}
		if b.store.rounds()[0].Attempts != 2 {
			t.Errorf("%d attempts on record", b.store.rounds()[0].Attempts)
		}
	})
	t.Run("for good", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t).with(read("look"))
			b.script.Add(asks("look"))
			b.script.Then(cut)
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || b.streamed(2) != "" {
				t.Errorf("%+v; watchers have %q", got, b.streamed(2))
			}
		})
	})
	t.Run("an answer unlike its stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferencetest.Func(
				func(_ context.Context, _ inference.Request,
					onDelta func(inference.Delta)) (inference.Response, error) {
					onDelta(inference.Delta{Kind: inference.DeltaText, Text: "<think>hm</think>yes"})
					return inference.Response{Text: "yes"}, nil
				}))
			b.run(t.Context())
			if b.streamed(1) != "yes" {
				t.Errorf("watchers have %q", b.streamed(1))
			}
		})
	})
}

func TestEventsOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t).with(read("look"), once("send"))
		b.script.Add(inferStep(inference.Response{
			Reasoning: "think hard", Text: "One moment.", Calls: asking("", "look", "send").Calls,
		}), says("Done."))
		b.run(t.Context())
		want := []string{"turn_start", "round_start",
			"block_start", "block_delta", "block_stop", // thinking
			"block_start", "block_delta", "block_stop", // text
			"block_start", "block_delta", "block_stop", // look
			"block_start", "block_delta", "block_stop", // send
			"tool_started", "tool_result", "tool_started", "tool_result", "round_stop",
			"round_start", "block_start", "block_delta", "block_stop", "round_stop", "turn_complete"}
		if diff := cmp.Diff(want, b.eventTypes()); diff != "" {
			t.Error(diff)
		}
		last := 0
		for _, e := range b.store.events() {
			if e.Type == turnkeeper.EventBlockStart || e.Type == turnkeeper.EventToolResult {
				if e.Block != last+1 {
					t.Errorf("block %d follows %d", e.Block, last)
				}
				last = e.Block
			}
		}
		end := b.store.events()[len(b.store.events())-1]
		if diff := cmp.Diff(`{"state":"succeeded","stop_reason":"none","rounds":2,"calls":2,"reply":"Done."}`,
			string(end.Data)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFenceWhileStreaming checks that a write refused by the fence ends a streaming model
// call.
func TestFenceWhileStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		pieces := 0
		b.script.Add(inferencetest.Func(func(ctx context.Context, _ inference.Request,
			onDelta func(inference.Delta)) (inference.Response, error) {
			for ; ctx.Err() == nil; pieces++ {
				if pieces == 5 {
					b.store.dispatch() // another worker holds the turn now
				}
				onDelta(inference.Delta{Kind: inference.DeltaText, Text: "word "})
				time.Sleep(100 * time.Millisecond)
			}
			return inference.Response{}, context.Cause(ctx)
		}))
		if _, err := b.dispatch(t.Context()); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("error %v, want ErrFenced", err)
		}
		if pieces > 10 {
			t.Errorf("the model went on for %d pieces", pieces)
		}
	})
}

func TestResultsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := read("big").does(func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{Text: strings.Repeat("é", 50)}, nil
		})
		b := newBench(t, asks("big"), says("done")).with(big)
		b.bounds.MaxToolResultChars = 10
		b.run(t.Context())
		shown := b.store.calls()[0].Shown
		if want := strings.Repeat("é", 10) + "\n\n[... truncated: showing first 10 of 50 chars]"; shown != want {
			t.Errorf("shown %q, want %q", shown, want)
		}
		if len(b.store.outputs()) != 1 || b.store.outputs()[0].Chars != 50 || b.store.calls()[0].OutputID == "" {
			t.Errorf("outputs %+v", b.store.outputs())
		}
	})
}

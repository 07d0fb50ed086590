package agentturn_test

import (
	"context"
	"errors"
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
	tests := []struct {
		name  string
		steps []inferencetest.Step
		max   int // max_rounds; 0: the default
		want  []string
	}{
		{"no tools", []inferencetest.Step{says("hello")}, 0, []string{"answer+outcome"}},
		{"the standard turn", []inferencetest.Step{asks("look", "look"), asks(`look {"n":5}`, `look {"n":6}`),
			says("done")}, 0,
			[]string{"answer", "results", "answer", "results", "answer+outcome"}},
		{"one effect", []inferencetest.Step{asks("send"), says("done")}, 0,
			[]string{"answer+start", "results", "answer+outcome"}},
		{"effects in a row", []inferencetest.Step{asks("send", "send", "send"), says("done")}, 0,
			[]string{"answer+start", "start+results", "start+results", "results", "answer+outcome"}},
		{"reads before an effect", []inferencetest.Step{asks("look", "look", "send"), says("done")}, 0,
			[]string{"answer", "start+results", "results", "answer+outcome"}},
		{"reads after an effect", []inferencetest.Step{asks("send", "look"), says("done")}, 0,
			[]string{"answer+start", "results", "results", "answer+outcome"}},
		{"a transactional tool", []inferencetest.Step{asks("note"), says("done")}, 0,
			[]string{"answer", "transaction", "answer+outcome"}},
		{"an effect before a transactional tool", []inferencetest.Step{asks("send", "note"), says("done")}, 0,
			[]string{"answer+start", "results", "transaction", "answer+outcome"}},
		{"a repeat before a transactional tool", []inferencetest.Step{asks(`note {"n":1}`, `note {"n":1}`,
			`note {"n":2}`), says("done")}, 0,
			[]string{"answer", "transaction", "results", "transaction", "answer+outcome"}},
		{"a read before a transactional tool", []inferencetest.Step{asks("look", "note"), says("done")}, 0,
			[]string{"answer", "transaction", "results", "answer+outcome"}},
		{"a read without labels before a sink", []inferencetest.Step{asks("look", "post"), says("done")}, 0,
			[]string{"answer", "transaction", "results", "answer+outcome"}},
		{"nothing to run", []inferencetest.Step{asks("nothing"), says("done")}, 0,
			[]string{"answer", "answer+outcome"}},
		{"one round only", []inferencetest.Step{asks("look")}, 1, []string{"answer", "results+outcome"}},
		{"a last round that asks for tools", []inferencetest.Step{asks("look"), asks("look")}, 2,
			[]string{"answer", "results", "answer+outcome"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, test.steps...).with(read("look"), once("send"), transactional, post)
				if test.max != 0 {
					b.bounds.MaxRounds = test.max
				}
				b.run(t.Context())
				if diff := cmp.Diff(test.want, b.store.writes); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
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

package agentturn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
)

// A timeline records the starts and ends of tools. Entries of the same moment are sorted
// by name.
type timeline struct {
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
	what  []string
}

func (l *timeline) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Since(l.start)
	i := len(l.at)
	for i > 0 && l.at[i-1] == at && l.what[i-1] > what {
		i--
	}
	l.at, l.what = slices.Insert(l.at, i, at), slices.Insert(l.what, i, what)
}

func (l *timeline) lines() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, what := range l.what {
		lines = append(lines, fmt.Sprintf("%s at %s", what, l.at[i]))
	}
	return lines
}

// timed returns a tool that runs for d and records its start and end.
func timed(name string, effect turnkeeper.Effect, d time.Duration, log *timeline) *tool {
	return newTool(name, effect).does(func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		log.note(name + " begins")
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return tools.Result{}, context.Cause(ctx)
		}
		log.note(name + " ends")
		return tools.Result{Text: name + " is done"}, nil
	})
}

// TestEffectsRunInOrder checks that effects of one answer run one after the other, in the
// background or not, and that a call in the background delays no read, and delays effects
// only if it has an effect itself.
func TestEffectsRunInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		background *bool
		firstIs    turnkeeper.Effect
		want       []string
		shown      string // result of the first call
	}{
		"an effect stays": {
			nil, turnkeeper.EffectOnce,
			[]string{"first begins at 0s", "first ends at 20s", "look begins at 20s", "look ends at 21s",
				"second begins at 21s", "second ends at 22s"}, "first is done",
		},
		"an effect in the background is waited for": {
			new(true), turnkeeper.EffectOnce,
			[]string{"first begins at 0s", "look begins at 5s", "look ends at 6s", "first ends at 20s",
				"second begins at 20s", "second ends at 21s"}, "Tool Output ID",
		},
		"a read in the background is not": {
			nil, turnkeeper.EffectNone,
			[]string{"first begins at 0s", "look begins at 0s", "look ends at 1s", "second begins at 5s",
				"second ends at 6s", "first ends at 20s"}, "Tool Output ID",
		},
		"a read may be kept out of the background": {
			new(false), turnkeeper.EffectNone,
			[]string{"first begins at 0s", "look begins at 0s", "look ends at 1s", "first ends at 20s",
				"second begins at 20s", "second ends at 21s"}, "first is done",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &timeline{start: time.Now()}
				first := timed("first", c.firstIs, 20*time.Second, log)
				first.spec.Background = c.background
				b := asyncBench(t, asks("first", "look", "second"), asks("wait_for_tool_output {}"),
					says("Done.")).with(
					first, timed("look", turnkeeper.EffectNone, time.Second, log),
					timed("second", turnkeeper.EffectKeyed, time.Second, log))
				if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
					t.Errorf("%+v", outcome)
				}
				if diff := cmp.Diff(c.want, log.lines()); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if got := results(b.requests()[1]); !strings.HasPrefix(got[0], c.shown) || got[2] != "second is done" {
					t.Errorf("the model was shown %q", got)
				}
			})
		})
	}
}

// TestTimeIsOverWhileAnEffectWaits checks that a call that waits for an effect does not
// run if the turn's time ends first.
func TestTimeIsOverWhileAnEffectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := once("second")
		b := asyncBench(t, asks("first", "second")).with(lasting("first", turnkeeper.EffectOnce,
			59*time.Second).withBackground(), second)
		b.bounds.MaxDuration, b.wall = 40*time.Second, 40*time.Second
		outcome := b.run(t.Context())
		if outcome.StopReason != turnkeeper.StopMaxDuration || second.runs.count() != 0 {
			t.Errorf("%+v, it ran %d times", outcome, second.runs.count())
		}
		if got, want := b.states(), []turnkeeper.CallState{turnkeeper.CallCancelled,
			turnkeeper.CallCancelled}; !cmp.Equal(got, want) {
			t.Errorf("states %v", got)
		}
	})
}

// TestADetachedEffectHoldsTheNextBack checks that the turn waits for a detached effect
// before it runs the next effect of the same answer.
func TestADetachedEffectHoldsTheNextBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := once("second")
		b := newBench(t, asks("remote", "second"), says("Done.")).with(far("remote", turnkeeper.EffectOnce), second)
		b.waits()
		if second.runs.count() != 0 {
			t.Fatal("the second effect began before the first had ended")
		}
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded || o.Reply != "Done." ||
			second.runs.count() != 1 {
			t.Errorf("%+v, it ran %d times", o, second.runs.count())
		}
	})
}

// TestAnAnswerThatHasNotSeenAFailure checks that a degraded turn does not reply with an
// answer that was written before the model saw how an effect ended.
func TestAnAnswerThatHasNotSeenAFailure(t *testing.T) {
	fail := func(context.Context, inference.Request, func(inference.Delta)) (inference.Response, error) {
		return inference.Response{}, &inference.Error{Class: inference.ClassAuth}
	}
	for name, c := range map[string]struct {
		rounds int
		more   []inferencetest.Step
		state  turnkeeper.TurnState
		stop   turnkeeper.StopReason
		reply  string
	}{
		"a round is left": {3, []inferencetest.Step{says("It failed.")}, turnkeeper.TurnSucceeded,
			turnkeeper.StopNone, "It failed."},
		"no round is left": {2, nil, turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds,
			"Tool results: 1 succeeded, 1 failed.\n"},
		"the model cannot be asked again": {3, []inferencetest.Step{inferencetest.Func(fail)}, turnkeeper.TurnDegraded,
			turnkeeper.StopInferenceError, "Tool results: 1 succeeded, 1 failed.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := append([]inferencetest.Step{asks("sender", "quick"), says("All went well.")}, c.more...)
				b := asyncBench(t, steps...).with(read("quick"), once("sender").withBackground().does(
					func(context.Context, tools.Call) (tools.Result, error) {
						time.Sleep(10 * time.Second)
						return tools.Result{Text: "refused", IsError: true}, nil
					}))
				b.bounds.MaxRounds = c.rounds
				o := b.run(t.Context())
				if o.State != c.state || o.StopReason != c.stop || !strings.HasPrefix(o.Reply, c.reply) {
					t.Errorf("%+v", o)
				}
			})
		})
	}
}

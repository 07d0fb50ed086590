package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"turnkeeper/agentturn/prompt"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// far returns a tool whose calls are detached.
func far(name string, effect turnkeeper.Effect) *tool {
	t := newTool(name, effect)
	t.spec.Detached, t.spec.Timeout = true, 2*time.Hour
	return t
}

var farKey = turnkeeper.CallKey{Round: 1, Ordinal: 1}

func (b *bench) waits() {
	b.t.Helper()
	if o := b.run(b.t.Context()); o.State != turnkeeper.TurnWaiting {
		b.t.Fatalf("the dispatch ended %s", o.State)
	}
}

func TestADetachedCallIsStartedAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := far("remote", turnkeeper.EffectOnce)
		b := newBench(t, asks("remote"), says("It is done.")).with(remote)
		b.waits()
		start, handle := b.store.entries[0].Starts[0], b.store.entries[0].Results[0]
		if start.Detached != 2*time.Hour || handle.State != turnkeeper.CallRunning || handle.Nonce != start.Nonce {
			t.Errorf("start %+v with result %+v", start, handle)
		}
		id := string(handle.OutputID)
		want := "Tool Output ID: " + id + "\nTool: remote\n\n" +
			"When the System Notice shows this tool is ready, use get_tool_output(\"" + id +
			"\", mode) to retrieve its output."
		if handle.Shown != want || len(id) != 12 {
			t.Errorf("the model is shown %q", handle.Shown)
		}
		if n := remote.runs.count(); n != 0 {
			t.Errorf("the tool ran %d times in the turn", n)
		}

		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		time.Sleep(3 * time.Hour) // a new dispatch has its own deadline
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded || o.Reply != "It is done." {
			t.Errorf("the turn ended %s with %q", o.State, o.Reply)
		}
		second := b.requests()[1]
		if got := results(second); len(got) != 1 || got[0] != want {
			t.Errorf("after the result the model is shown %q", got)
		}
		notice := second.Messages[len(second.Messages)-1].Text
		if !strings.HasPrefix(notice, "# System Notice") || !strings.Contains(notice,
			"### Ready (1)\n- remote (id: "+id) {
			t.Errorf("the notice is %q", notice)
		}
		if call := b.store.calls()[0]; call.State != turnkeeper.CallSucceeded || call.OutputID != handle.OutputID {
			t.Errorf("the call is %+v", call)
		}
	})
}

// TestATurnWaitsOnlyWithoutNews checks that a turn waits for detached calls only if the
// model has seen every result so far.
func TestATurnWaitsOnlyWithoutNews(t *testing.T) {
	for name, c := range map[string]struct {
		first []string // calls of the first round
		waits bool
	}{
		"all elsewhere":         {[]string{"remote", `remote {"n":7}`}, true},
		"one is answered":       {[]string{"remote", "local"}, false},
		"one is denied":         {[]string{"remote", "nonsense"}, false},
		"one has bad arguments": {[]string{`remote {"x":1}`, "remote"}, false},
		"none is detached":      {[]string{"local"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks(c.first...), says("Done.")).with(far("remote", turnkeeper.EffectNone),
					read("local"))
				o := b.run(t.Context())
				if got := o.State == turnkeeper.TurnWaiting; got != c.waits {
					t.Errorf("the dispatch ended %s", o.State)
				}
				for _, call := range b.store.calls() {
					if !c.waits && !call.State.Answered() {
						t.Errorf("call %s is left %s", call.Key, call.State)
					}
				}
			})
		})
	}
}

// TestOneOfTwoArrives checks that the model is shown the first of two detached results
// while the other call runs, and that the turn waits for the other if the model asks for
// nothing new.
func TestOneOfTwoArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("remote", `remote {"n":2}`), asks(`remote {"n":3}`), says("Enough.")).with(far("remote",
			turnkeeper.EffectKeyed))
		b.waits()
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "one")
		b.waits()
		if n := len(b.requests()); n != 2 {
			t.Errorf("the model was asked %d times", n)
		}
		b.store.arrive(turnkeeper.CallKey{Round: 1, Ordinal: 2}, turnkeeper.CallFailed, "two")
		b.waits()
		b.store.arrive(turnkeeper.CallKey{Round: 2, Ordinal: 1}, turnkeeper.CallSucceeded, "three")
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded || o.Reply != "Enough." {
			t.Errorf("the turn ended %s with %q", o.State, o.Reply)
		}
		want := []turnkeeper.CallState{turnkeeper.CallSucceeded, turnkeeper.CallFailed, turnkeeper.CallSucceeded}
		if states := b.states(); !slices.Equal(states, want) {
			t.Errorf("the calls are %v", states)
		}
	})
}

// TestNewsIsNotToldByTwoClocks checks that a worker whose clock is behind does not report
// a result again that the model has seen: times in the journal are the database's, not
// the worker's.
func TestNewsIsNotToldByTwoClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("local", "remote"), asks(`remote {"n":5}`), asks(`remote {"n":6}`),
			says("Nothing new, is there?"))
		b.bounds.MaxRounds, b.store.ahead = 6, time.Minute
		b.with(far("remote", turnkeeper.EffectNone), read("local"))
		b.waits()
		b.store.arrive(turnkeeper.CallKey{Round: 1, Ordinal: 2}, turnkeeper.CallSucceeded, "one")
		b.waits()
		if n := len(b.requests()); n != 3 {
			t.Errorf("the model was asked %d times, want 3: it has seen all there is", n)
		}
	})
}

// TestAResultComesWhileTheTurnRuns checks that the model is shown a result that arrives
// during a model call.
func TestAResultComesWhileTheTurnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("remote", "local"), says("I will not wait."), says("It has come.")).with(far("remote",
			turnkeeper.EffectOnce))
		b.with(read("local").does(func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{Text: "here"}, nil
		}))
		b.fault = atPoint(agentturn.PointModelAfter, 2, func() {
			b.store.arrive(farKey, turnkeeper.CallSucceeded, "there")
		})
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded || o.Reply != "It has come." {
			t.Errorf("the turn ended %s with %q", o.State, o.Reply)
		}
		if got := b.states(); got[0] != turnkeeper.CallSucceeded {
			t.Errorf("the calls are %v", got)
		}
	})
}

// atPoint returns a hook that calls f when a point is passed for the nth time.
func atPoint(point string, n int, f func()) hook {
	passed := 0
	return func(label string) {
		if label == point {
			if passed++; passed == n {
				f()
			}
		}
	}
}

type hook func(label string)

func (h hook) At(_ context.Context, label string) { h(label) }

func TestAnUnknownOutcomeArrives(t *testing.T) {
	for name, c := range map[string]struct {
		remote tools.Tool
		state  turnkeeper.CallState
		ends   turnkeeper.TurnState
		shown  string // prefix of the result that the model is shown
	}{
		"nobody can tell": {far("remote", turnkeeper.EffectOnce), turnkeeper.CallUnknown, turnkeeper.TurnDegraded,
			"Tool Output ID"},
		"the tool can": {&reconciler{far("remote", turnkeeper.EffectOnce), func() (tools.Result, bool, error) {
			return tools.Result{Text: "it happened"}, true, nil
		}}, turnkeeper.CallSucceeded, turnkeeper.TurnSucceeded, "it happened"},
		"the tool cannot": {&reconciler{far("remote", turnkeeper.EffectOnce), func() (tools.Result, bool, error) {
			return tools.Result{}, false, errors.New("no idea")
		}}, turnkeeper.CallUnknown, turnkeeper.TurnDegraded, "Tool Output ID"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("remote"), says("Done.")).with(c.remote)
				b.waits()
				b.store.arrive(farKey, turnkeeper.CallUnknown, prompt.ShownUnknown)
				if o := b.run(t.Context()); o.State != c.ends {
					t.Errorf("the turn ended %s", o.State)
				}
				if got := b.states(); got[0] != c.state {
					t.Errorf("the call is %s", got[0])
				}
				if told := b.logged("outcome of tool call unknown") == 1; told != (c.state == turnkeeper.CallUnknown) {
					t.Errorf("the log tells that the outcome is unknown: %t", told)
				}
				if got := results(b.requests()[1]); !strings.HasPrefix(got[0], c.shown) {
					t.Errorf("the model is shown %q", got[0])
				}
			})
		})
	}
}

// TestWithoutRoundsLeftTheTurnWaitsForAll checks that a turn without model calls left
// waits for all calls and then replies with its summary.
func TestWithoutRoundsLeftTheTurnWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("remote", "local")).with(far("remote", turnkeeper.EffectNone), read("local"))
		b.bounds.MaxRounds = 1
		b.waits()
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		o := b.run(t.Context())
		if o.State != turnkeeper.TurnDegraded || !strings.Contains(o.Reply, "- remote: succeeded") {
			t.Errorf("the turn ended %s with %q", o.State, o.Reply)
		}
	})
}

// TestAnAnswerWaitsForEffectsElsewhere checks that an answer ends the turn only when no
// effect is detached any more and the model has been shown those that ended meanwhile.
func TestAnAnswerWaitsForEffectsElsewhere(t *testing.T) {
	for _, test := range []struct {
		effect turnkeeper.Effect
		comes  turnkeeper.CallState
		ends   turnkeeper.TurnState
	}{
		{turnkeeper.EffectOnce, turnkeeper.CallSucceeded, turnkeeper.TurnSucceeded},
		{turnkeeper.EffectKeyed, turnkeeper.CallFailed, turnkeeper.TurnSucceeded},
		{turnkeeper.EffectOnce, turnkeeper.CallUnknown, turnkeeper.TurnDegraded},
		{turnkeeper.EffectNone, "", turnkeeper.TurnSucceeded},
	} {
		t.Run(string(test.effect)+" "+string(test.comes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("remote", "local"), says("It is begun."), says("It is over.")).with(far("remote",
					test.effect), read("local"))
				want, asked, reply := turnkeeper.CallCancelled, 2, "It is begun."
				if test.comes != "" {
					asked, reply = 3, "It is over."
					b.waits()
					b.store.arrive(farKey, test.comes, "forty-two")
					want = test.comes
				}
				if test.ends == turnkeeper.TurnDegraded {
					reply += "\n\n- remote: unknown: it may or may not have happened"
				}
				if o := b.run(t.Context()); o.State != test.ends || o.Reply != reply {
					t.Errorf("the turn ended %s with %q", o.State, o.Reply)
				}
				if n := len(b.requests()); n != asked {
					t.Errorf("the model was asked %d times", n)
				}
				if call := b.store.calls()[0]; call.State != want {
					t.Errorf("the call is %s", call.State)
				}
			})
		})
	}
}

// TestADetachedStartThatIsNotWritten checks that a turn ends without a trace of a start
// that could not be written.
func TestADetachedStartThatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("remote")).with(far("remote", turnkeeper.EffectOnce))
		ctx, stop := context.WithCancelCause(t.Context())
		b.before = func(e turnlog.Entry) error {
			if len(e.Starts) > 0 {
				stop(agentturn.ErrCancelled)
				return context.Canceled
			}
			return nil
		}
		o, err := b.dispatch(ctx)
		b.check()
		if err != nil || o.State != turnkeeper.TurnCancelled {
			t.Errorf("%+v, %v", o, err)
		}
		if got := b.states(); got[0] != turnkeeper.CallCancelled {
			t.Errorf("the call is %s", got[0])
		}
	})
}

// A callBox records the results and releases of detached calls.
type callBox struct {
	arrived  []turnlog.CallResult
	handedOn bool
}

func (b *callBox) Arrive(_ context.Context, _ turnlog.ClaimedCall, r turnlog.CallResult) error {
	b.arrived = append(b.arrived, r)
	return nil
}

func (b *callBox) Release(context.Context, turnlog.ClaimedCall) error {
	b.handedOn = true
	return nil
}

func TestRunDetached(t *testing.T) {
	slow := func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		<-ctx.Done()
		return tools.Result{}, ctx.Err()
	}
	for name, c := range map[string]struct {
		run      func(context.Context, tools.Call) (tools.Result, error)
		effect   turnkeeper.Effect
		cut      error // ends the run after a minute with this cause
		state    turnkeeper.CallState
		text     string // text of the stored result; empty: no result is stored
		handedOn bool
	}{
		"succeeds": {run: func(_ context.Context, call tools.Call) (tools.Result, error) {
			return tools.Result{Text: string(call.Arguments) + " " + call.Agent + " " + call.IdempotencyKey}, nil
		}, state: turnkeeper.CallSucceeded, text: `{"n":1} clerk turn-7-0-round-1-tool-1`},
		"fails": {run: func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{}, errors.New("no")
		},
			state: turnkeeper.CallFailed, text: "tool error: no"},
		"is too slow": {run: slow, state: turnkeeper.CallFailed, text: "tool error: 'remote' timed out after 3600 s"},
		"panics": {run: func(context.Context, tools.Call) (tools.Result, error) { panic("on purpose") },
			state: turnkeeper.CallFailed, text: "tool error: 'remote' panicked: on purpose"},
		"once, is cut short": {run: slow, effect: turnkeeper.EffectOnce, cut: agentturn.ErrShutdown,
			state: turnkeeper.CallCancelled,
			text:  "cancelled: the worker that ran this call had to stop. It may or may not have happened."},
		"keyed, is cut short": {run: slow, effect: turnkeeper.EffectKeyed, cut: agentturn.ErrShutdown,
			handedOn: true},
		"keyed, is not awaited any more": {run: slow, effect: turnkeeper.EffectKeyed, cut: turnkeeper.ErrFenced},
		"once, is not awaited any more":  {run: slow, effect: turnkeeper.EffectOnce, cut: turnkeeper.ErrFenced},
		"does not hear that it is cut short": {run: func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(2 * time.Hour)
			return tools.Result{Text: "late"}, nil
		}, effect: turnkeeper.EffectKeyed, cut: agentturn.ErrShutdown, handedOn: true},
		"ends well in spite of it": {run: func(ctx context.Context, _ tools.Call) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{Text: "in time"}, nil
		}, effect: turnkeeper.EffectOnce, cut: agentturn.ErrShutdown, state: turnkeeper.CallSucceeded, text: "in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t).with(far("remote", turnkeeper.EffectOnce).does(c.run))
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				if c.cut != nil {
					time.AfterFunc(time.Minute, func() { stop(c.cut) })
				}
				box := &callBox{}
				state, err := b.runner().RunDetached(ctx, turnlog.ClaimedCall{
					Turn: turnkeeper.Turn{ID: 7, Agent: "clerk", CreatedAt: time.UnixMicro(0)}, Limit: time.Hour,
					Left: time.Hour,
					Call: turnkeeper.ToolCall{Key: farKey, Name: "remote", Arguments: `{"n":1}`, OutputID: "abc",
						Effect: c.effect},
				}, box)
				if c.text == "" {
					if len(box.arrived) != 0 || box.handedOn != c.handedOn || (err == nil) != c.handedOn {
						t.Errorf("%v, %+v", err, box)
					}
				} else if len(box.arrived) != 1 || err != nil || state != c.state {
					t.Errorf("%s, %v, %+v", state, err, box)
				} else if r := box.arrived[0]; r.State != c.state || r.Output.Text != c.text || r.Output.ID != "abc" ||
					r.Key != farKey {
					t.Errorf("%+v with output %+v", r, r.Output)
				}
				time.Sleep(3 * time.Hour) // until the tool that was left behind returns
			})
		})
	}
}

// TestAttachmentsOfADetachedCall checks that attachments of a detached result are stored
// with it and named in its text.
func TestAttachmentsOfADetachedCall(t *testing.T) {
	for name, text := range map[string]string{"below": "two pictures", "above": strings.Repeat("long ", 2000)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).with(far("remote", turnkeeper.EffectOnce).does(func(context.Context,
				tools.Call) (tools.Result, error) {
				return tools.Result{Text: text, Attached: []tools.Attachment{
					{Name: "image", MediaType: "image/png", Bytes: []byte{0, 1}}, {Name: "resource file:///a",
						Bytes: []byte{2}},
				}}, nil
			}))
			box := &callBox{}
			_, err := b.runner().RunDetached(t.Context(), turnlog.ClaimedCall{
				Turn: turnkeeper.Turn{ID: 7, Agent: "clerk"}, Limit: time.Hour, Left: time.Hour,
				Call: turnkeeper.ToolCall{Key: farKey, Name: "remote", Arguments: `{"n":1}`, OutputID: "abc",
					Effect: turnkeeper.EffectOnce},
			}, box)
			if err != nil || len(box.arrived) != 1 || len(box.arrived[0].Attached) != 2 {
				t.Fatalf("%v, %+v", err, box)
			}
			r := box.arrived[0]
			lines := fmt.Sprintf("[image, stored as output %s: ", r.Attached[0].ID)
			if want := map[string]string{"below": text + "\n\n" + lines, "above": lines}[name]; !strings.HasPrefix(
				r.Output.Text, want) {
				t.Errorf("%.300q", r.Output.Text)
			}
			for i, o := range r.Attached {
				if o.TurnID != 7 || o.Call != farKey || o.ID == "" || o.SizeBytes != int64(2-i) ||
					!strings.Contains(r.Output.Text, "stored as output "+string(o.ID)) {
					t.Errorf("%+v", o)
				}
			}
		})
	}
}

// TestAWaitForWhatIsElsewhere checks that a wait for detached calls alone keeps no lease:
// it is answered when the turn continues.
func TestAWaitForWhatIsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("remote", "local"), asks("wait_for_tool_output {}"), says("Done.")).with(far("remote",
			turnkeeper.EffectOnce), read("local"))
		b.waits()
		if got, want := b.states(), []turnkeeper.CallState{turnkeeper.CallRunning, turnkeeper.CallSucceeded,
			turnkeeper.CallPlanned}; !cmp.Equal(got, want) {
			t.Fatalf("states %v", got)
		}
		id := b.store.calls()[0].OutputID
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded {
			t.Errorf("the turn ended %s", o.State)
		}
		got := results(b.requests()[2])
		if !strings.HasPrefix(got[2], "Completed tools:\n- remote (id: "+string(id)+", size: ") {
			t.Errorf("the wait gave %q", got[2])
		}
	})
}

// TestADetachedCallTakesNoHandles checks that a detached call takes no handles, because
// its job does not have the turn's results.
func TestADetachedCallTakesNoHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := far("remote", turnkeeper.EffectOnce)
		remote.spec.Parameters = []byte(`{"type":"object","properties":{"text":{"type":"string"}}}`)
		b := asyncBench(t, asks("local"), asks(`remote {"text":"output:1"}`), says("Done.")).with(remote, read("local"))
		b.bounds.OutputHandles = true
		b.run(t.Context())
		if got, want := results(b.requests()[2])[1],
			"invalid arguments: a tool that runs detached takes no output: handles. Nothing was run."; got != want {
			t.Errorf("the model is shown %q", got)
		}
	})
}

// TestACallKeepsItsHandleWhereItsToolHasBecomeDetached checks that a call that was in the
// background at a shutdown is detached if the next worker's release detaches its tool,
// and keeps the handle that the model knows.
func TestACallKeepsItsHandleWhereItsToolHasBecomeDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := lasting("slow", turnkeeper.EffectKeyed, 20*time.Second).withBackground()
		b := asyncBench(t, asks("slow")).with(slow)
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(12*time.Second, func() { stop(agentturn.ErrShutdown) })
		if o := b.run(ctx); o.State != turnkeeper.TurnQueued {
			t.Fatalf("the dispatch ended %s", o.State)
		}
		before := b.store.calls()[0]
		if before.State != turnkeeper.CallRunning || before.OutputID == "" {
			t.Fatalf("the call is %+v", before)
		}
		slow.spec.Detached, slow.spec.Timeout = true, time.Hour
		b.waits()
		if after := b.store.calls()[0]; after.OutputID != before.OutputID || after.Shown != before.Shown {
			t.Errorf("the call was shown as %q, and is as %q", before.Shown, after.Shown)
		}
	})
}

// TestATurnTakesWhatArrivesWhileItAsks checks that a turn that waits for a person takes a result that arrives, and
// waits on: while a result is not taken, it would be granted again and again.
func TestATurnTakesWhatArrivesWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("remote", "pay"), says("Paid.")).with(far("remote", turnkeeper.EffectNone),
			once("pay").needsApproval())
		b.waits()
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		b.waits()
		if turn, calls := b.store.turn(), b.store.calls(); turn.State != turnkeeper.TurnWaiting ||
			calls[0].State != turnkeeper.CallSucceeded {
			t.Errorf("the turn is %s, its call %s", turn.State, calls[0].State)
		}
		b.answer(yes)
		b.succeeds("Paid.")
	})
}

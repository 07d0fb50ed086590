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

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// hangs is a tool's function that runs until its context ends.
func hangs(ctx context.Context, _ tools.Call) (tools.Result, error) {
	<-ctx.Done()
	return tools.Result{}, context.Cause(ctx)
}

func TestWallTime(t *testing.T) {
	tests := []struct {
		name  string
		steps []inferencetest.Step
		reply string
		calls []turnkeeper.CallState
	}{
		{"in a later model call", []inferencetest.Step{asks("look"), inferencetest.Block()},
			"Tool results: 1 succeeded, 0 failed.\n- look: succeeded", []turnkeeper.CallState{"succeeded"}},
		{"in an effect", []inferencetest.Step{inferStep(asking("Wait.", "look", "hang", "send"))},
			"Tool results: 1 succeeded, 1 failed, 1 unknown.\n- look: succeeded\n- hang: unknown: it may or may not have happened\n- send: cancelled",
			[]turnkeeper.CallState{"succeeded", "cancelled", "cancelled"}},
		{"in a read", []inferencetest.Step{asks("look", "slow", "send")},
			"Tool results: 1 succeeded, 2 failed.\n- look: succeeded\n- slow: cancelled\n- send: cancelled",
			[]turnkeeper.CallState{"succeeded", "cancelled", "cancelled"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := once("send")
				b := newBench(t, test.steps...).with(read("look"), once("hang").does(hangs),
					read("slow").does(hangs), send)
				b.script.Then(inferencetest.Block())
				b.wall = 50 * time.Second
				started := time.Now()
				got := b.run(t.Context())
				if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopMaxDuration ||
					got.Reply != test.reply {
					t.Errorf("%+v", got)
				}
				if diff := cmp.Diff(test.calls, b.states()); diff != "" {
					t.Error(diff)
				}
				if took := time.Since(started); took != 50*time.Second || send.runs.count() != 0 {
					t.Errorf("it took %s, with %d runs of what came after", took, send.runs.count())
				}
			})
		})
	}
	t.Run("counts from the grant", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferencetest.Block())
			record, journal := b.store.dispatch()
			record.Elapsed = 80 * time.Second
			started := time.Now()
			if _, err := b.resume(t.Context(), record, journal); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(started); took != 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	})
}

// TestAnAnswerThatAFilterCut checks that an answer cut by a content filter is passed on
// and is not a plain success.
func TestAnAnswerThatAFilterCut(t *testing.T) {
	cut := inference.Response{Text: "The first step is", FinishReason: "content_filter"}
	calls := asking("Let me see.", "look")
	calls.FinishReason = "content_filter"
	calls.Calls[0].Truncated = true
	for name, test := range map[string]struct {
		steps  []inferencetest.Step
		single bool
		reply  string
	}{
		"at once":           {[]inferencetest.Step{inferStep(cut)}, false, cut.Text},
		"after a tool":      {[]inferencetest.Step{asks("look"), inferStep(cut)}, false, cut.Text},
		"in the only round": {[]inferencetest.Step{inferStep(cut)}, true, cut.Text},
		"in the only round, in calls": {[]inferencetest.Step{inferStep(calls)}, true,
			"This message could not be answered: the agent came to no result; the operator was told."},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.steps...).with(read("look"))
			b.bounds.Continuation = !test.single
			want := turnlog.Outcome{
				State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError, Reply: test.reply,
				ErrorClass: "refused", Error: "the provider's content filter stopped the answer",
			}
			if diff := cmp.Diff(want, b.run(t.Context())); diff != "" {
				t.Error(diff)
			}
			if rounds := b.store.rounds(); rounds[len(rounds)-1].FinishReason != "content_filter" {
				t.Errorf("%+v", rounds)
			}
		})
	}
}

// TestWallTimeBeforeAnyTool checks that a turn that times out before any tool ran is
// attempted three times in all, because it has nothing to report.
func TestWallTimeBeforeAnyTool(t *testing.T) {
	for faults, retry := range []bool{true, true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t).with(once("send"))
			b.script.Then(inferencetest.Block())
			b.store.faults = faults
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.StopReason != turnkeeper.StopMaxDuration ||
				got.Retry != retry || !got.Counted ||
				(got.Reply == "") != retry || strings.HasPrefix(got.Reply, "Tool results") {
				t.Errorf("after %d attempts: %+v", faults, got)
			}
		})
	}
}

// TestAnEffectKeepsTheTurnGoing checks that after an effect a failed model call is
// retried until the turn's time is over.
func TestAnEffectKeepsTheTurnGoing(t *testing.T) {
	for name, class := range map[string]inference.Class{"overloaded": inference.ClassOverloaded,
		"a wrong key": inference.ClassAuth} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := once("send")
				b := newBench(t, asks("send")).with(send)
				began := time.Now()
				b.script.Then(inferencetest.Func(func(_ context.Context, req inference.Request,
					onDelta func(inference.Delta)) (inference.Response, error) {
					if time.Since(began) < 70*time.Second {
						return inference.Response{}, &inference.Error{Class: class, Detail: "as scripted"}
					}
					return inference.Response{Text: "done", FinishReason: "stop"}, nil
				}))
				b.wall = 90 * time.Second
				if got := b.run(t.Context()); got.State != turnkeeper.TurnSucceeded || got.Reply != "done" ||
					send.runs.count() != 1 {
					t.Errorf("%+v after %d runs", got, send.runs.count())
				}
			})
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("send")).with(once("send"))
				b.script.Then(fails(class))
				b.wall = 90 * time.Second
				began := time.Now()
				got := b.run(t.Context())
				if took := time.Since(began); got.State != turnkeeper.TurnDegraded || got.ErrorClass != string(class) ||
					took < 80*time.Second || took > 91*time.Second {
					t.Errorf("%+v after %s", got, took)
				}
			})
		})
	}
}

func TestCancelledTurn(t *testing.T) {
	for _, trigger := range []turnkeeper.Trigger{turnkeeper.TriggerMessage, turnkeeper.TriggerSchedule} {
		t.Run(string(trigger), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, inferStep(asking("On it.", "hang"))).with(once("hang").does(hangs))
				b.store.trigger = trigger
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(5*time.Second, func() { cancel(agentturn.ErrCancelled) })
				want := turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled,
					Reply: "This turn was cancelled.\n\nBefore that it had written:\n\nOn it."}
				if trigger == turnkeeper.TriggerSchedule {
					want.Reply, want.InnerDialogue = "", "On it."
				}
				if diff := cmp.Diff(want, b.run(ctx)); diff != "" {
					t.Error(diff)
				}
				call := b.store.calls()[0]
				if call.State != turnkeeper.CallCancelled ||
					call.Shown != "tool error: 'hang' was cancelled: the turn was cancelled. It may or may not have happened." {
					t.Errorf("%s, %q", call.State, call.Shown)
				}
			})
		})
	}
}

// TestQuietReply checks that the agent's quiet reply counts as no reply in a scheduled
// turn, and is an ordinary reply to a sender.
func TestQuietReply(t *testing.T) {
	for trigger, want := range map[turnkeeper.Trigger]turnlog.Outcome{
		turnkeeper.TriggerMessage: {State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
			Reply: "**Nothing new**"},
		turnkeeper.TriggerSchedule: {State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
			InnerDialogue: "Looking.\n\n**Nothing new**"},
	} {
		t.Run(string(trigger), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, inferStep(asking("Looking.", "look")), says("**Nothing new**")).with(read("look"))
				b.store.trigger, b.def.QuietReply = trigger, "Nothing new."
				if diff := cmp.Diff(want, b.run(t.Context())); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestShutdown(t *testing.T) {
	canTell := &reconciler{tool: once("ask").does(hangs), look: func() (tools.Result, bool, error) {
		return tools.Result{Text: "it was booked"}, true, nil
	}}
	tests := []struct {
		name   string
		steps  []inferencetest.Step
		calls  []turnkeeper.CallState // states when the turn is handed back
		again  []inferencetest.Step   // steps of the next dispatch
		end    turnkeeper.TurnState
		closed []turnkeeper.CallState
	}{
		{"in a model call", []inferencetest.Step{inferencetest.Block()}, nil,
			[]inferencetest.Step{says("hello")}, turnkeeper.TurnSucceeded, nil},
		{"in a stream", []inferencetest.Step{stream(300*time.Millisecond, "a", "b", "c", "d", "e", "f", "g", "h", "i",
			"j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t")}, nil,
			[]inferencetest.Step{says("hello")}, turnkeeper.TurnSucceeded, nil},
		{"in a read", []inferencetest.Step{asks("look", "slow", "send")}, []turnkeeper.CallState{"succeeded",
			"planned", "planned"},
			[]inferencetest.Step{says("done")}, turnkeeper.TurnSucceeded, []turnkeeper.CallState{"succeeded",
				"succeeded", "succeeded"}},
		{"in an effect", []inferencetest.Step{asks("hang", "send")}, []turnkeeper.CallState{"cancelled", "planned"},
			[]inferencetest.Step{says("done")}, turnkeeper.TurnDegraded, []turnkeeper.CallState{"cancelled",
				"succeeded"}},
		{"in a keyed effect", []inferencetest.Step{asks("keyed")}, []turnkeeper.CallState{"started"},
			[]inferencetest.Step{says("done")}, turnkeeper.TurnSucceeded, []turnkeeper.CallState{"succeeded"}},
		{"in an effect that can be looked up", []inferencetest.Step{asks("ask")}, []turnkeeper.CallState{"started"},
			[]inferencetest.Step{says("done")}, turnkeeper.TurnSucceeded, []turnkeeper.CallState{"succeeded"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				onFirst := func(ctx context.Context, call tools.Call) (tools.Result, error) {
					if first {
						return hangs(ctx, call)
					}
					return tools.Result{Text: "ran"}, nil
				}
				hang := once("hang").does(hangs)
				b := newBench(t, test.steps...).with(read("look"), read("slow").does(onFirst), once("send"), hang,
					newTool("keyed", turnkeeper.EffectKeyed).does(onFirst), canTell)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(5*time.Second, func() { cancel(agentturn.ErrShutdown) })
				got := b.run(ctx)
				if got.State != turnkeeper.TurnQueued || got.Reply != "" || got.Backoff != 0 {
					t.Fatalf("%+v", got)
				}
				if diff := cmp.Diff(test.calls, b.states()); diff != "" {
					t.Error(diff)
				}
				if b.logged("turn handed back") != 1 || b.logged("turn ended") != 0 {
					t.Errorf("a turn that was handed back is logged as %v", b.log.All())
				}
				first = false
				b.script.Add(test.again...)
				if got := b.run(t.Context()); got.State != test.end {
					t.Errorf("then %+v", got)
				}
				if diff := cmp.Diff(test.closed, b.states()); diff != "" {
					t.Error(diff)
				}
				if hang.runs.count() > 1 {
					t.Error("an effect was run again")
				}
				b.requests()
			})
		})
	}
}

// TestAHandBackUndoesWhatHasNotBegun hands a turn back because its worker stops while the start of a call is written.
// The journal must not have a trace of it, and the next worker begins the call once.
func TestAHandBackUndoesWhatHasNotBegun(t *testing.T) {
	done := []inferencetest.Step{says("Done.")}
	background := []inferencetest.Step{asks("wait_for_tool_output {}"), says("Done.")}
	for name, c := range map[string]struct {
		tool  *tool // nil: it sends a task to a sub-agent
		until func(b *bench)
		then  []inferencetest.Step
		state turnkeeper.CallState // of the call when the turn was handed back
		runs  int                  // in all
	}{
		"once":  {tool: once("way"), then: done, state: turnkeeper.CallPlanned, runs: 1},
		"keyed": {tool: newTool("way", turnkeeper.EffectKeyed), then: done, state: turnkeeper.CallPlanned, runs: 1},
		"approved": {tool: once("way").needsApproval(), until: func(b *bench) {
			b.waits()
			b.answer(yes)
		}, then: done, state: turnkeeper.CallPlanned, runs: 1},
		"with input": {tool: once("way").asksFor(1), until: func(b *bench) {
			b.waits()
			b.answer(seat(4))
		}, then: done, state: turnkeeper.CallStarted, runs: 2},
		"a read with input": {tool: read("way").asksFor(1), until: func(b *bench) {
			b.waits()
			b.answer(seat(4))
		}, then: done, state: turnkeeper.CallStarted, runs: 2},
		"again in the background": {
			tool:  lasting("way", turnkeeper.EffectKeyed, 20*time.Second).withBackground(),
			until: func(b *bench) { b.lose(agentturn.PointModelBefore, 2) },
			then:  background, state: turnkeeper.CallRunning, runs: 2,
		},
		// the model answers before the result arrives, and after
		"detached": {tool: far("way", turnkeeper.EffectOnce), then: slices.Repeat(done, 2),
			state: turnkeeper.CallPlanned},
		"a sub-agent": {then: done, state: turnkeeper.CallPlanned},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := asyncBench(t, asks("way", "quick"))
				if c.tool == nil {
					b = team(t, asks(charges("scout", "find it"), "quick"))
				} else {
					b.with(c.tool)
				}
				b.with(read("quick"))
				if c.until != nil {
					c.until(b)
				}
				ctx, stop := context.WithCancelCause(t.Context())
				b.before = func(e turnlog.Entry) error {
					if e.Outcome == nil && len(e.Starts)+len(e.Inputs) > 0 {
						stop(agentturn.ErrShutdown)
						return context.Canceled
					}
					return nil
				}
				before := b.store.calls()
				if o := b.run(ctx); o.State != turnkeeper.TurnQueued {
					t.Fatalf("the turn is %s", o.State)
				}
				last := b.store.entries[len(b.store.entries)-1]
				if len(last.Starts)+len(last.Inputs)+len(last.Results) > 0 || b.states()[0] != c.state {
					t.Errorf("the call is %s; the write has %+v, %v, %+v", b.states()[0], last.Starts, last.Inputs,
						last.Results)
				}
				if diff := cmp.Diff(before, b.store.calls()); diff != "" && len(before) > 0 {
					t.Errorf("the calls have changed: %s", diff)
				}
				for _, ask := range b.store.asked() {
					if ask.Used {
						t.Errorf("%s %d counts as used", ask.Kind, ask.N)
					}
				}
				b.before = nil
				b.script.Add(c.then...)
				if c.tool == nil || c.tool.spec.Detached {
					b.waits()
					if c.tool == nil {
						b.store.reply(farKey, good("found"))
					} else {
						b.store.arrive(farKey, turnkeeper.CallSucceeded, "found")
					}
				}
				b.succeeds("Done.")
				if b.states()[0] != turnkeeper.CallSucceeded {
					t.Errorf("the call is %s", b.states()[0])
				}
				if c.tool != nil && c.tool.runs.count() != c.runs {
					t.Errorf("%d runs, want %d", c.tool.runs.count(), c.runs)
				}
			})
		})
	}
}

// TestLogOfATurnThatEndedByACap checks the numbers in the lines about the bound, a warning, and about the end.
func TestLogOfATurnThatEndedByACap(t *testing.T) {
	line := func(b *bench, text string) map[string]any {
		t.Helper()
		lines := b.log.FilterMessage(text).All()
		if len(lines) != 1 {
			t.Fatalf("%d lines %q", len(lines), text)
		}
		fields := lines[0].ContextMap()
		fields["level"] = lines[0].Level.String()
		return fields
	}
	for name, c := range map[string]struct {
		bound func(*turnkeeper.Bounds)
		steps []inferencetest.Step
		line  string
		stop  turnkeeper.StopReason
	}{
		"rounds": {
			func(b *turnkeeper.Bounds) { b.MaxRounds = 1 }, []inferencetest.Step{asks("look")},
			"max tool rounds reached, completing turn", turnkeeper.StopMaxRounds,
		},
		"calls": {
			func(b *turnkeeper.Bounds) {
				b.MaxToolCalls = 1
			}, []inferencetest.Step{asks("look", `look {"n":2}`), says("One.")},
			"max tool calls reached, completing turn", turnkeeper.StopMaxToolCalls,
		},
		"time": {
			func(*turnkeeper.Bounds) {}, []inferencetest.Step{asks("look"), inferencetest.Block()},
			"max turn duration reached, completing turn", turnkeeper.StopMaxDuration,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.steps...).with(read("look"))
				b.wall = 50 * time.Second
				c.bound(&b.bounds)
				b.run(t.Context())
				limit, ended := line(b, c.line), line(b, "turn ended")
				if limit["level"] != "warn" || limit["max_rounds"] != int64(b.bounds.MaxRounds) ||
					limit["executed_calls"] != int64(1) || limit["max_tool_calls"] != int64(b.bounds.MaxToolCalls) ||
					limit["rounds"] != ended["inference_round_count"] || limit["max_duration"] != b.bounds.MaxDuration {
					t.Errorf("the line about the bound is %v", limit)
				}
				if ended["continuation_stop_reason"] != string(c.stop) ||
					ended["inference_round_count"] != int64(len(b.store.rounds())) || ended["turn_duration_ms"] == nil {
					t.Errorf("the line about the end is %v", ended)
				}
			})
		})
	}
}

// TestLogOfATurnThatEndedWell checks that the log line of an end without an error has no
// error field.
func TestLogOfATurnThatEndedWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, says("hello"))
		b.run(t.Context())
		ended := b.log.FilterMessage("turn ended").All()
		if len(ended) != 1 {
			t.Fatalf("%d lines", len(ended))
		}
		if text, found := ended[0].ContextMap()["error"]; found {
			t.Errorf("the line has an error: %q", text)
		}
	})
}

// TestTheLogTellsHowLongATurnTook checks that the duration of a turn is the time from its first grant to its end. The
// turn waits for a person, loses a worker, and starts some time after each grant. What its message waited before does
// not count, and the clocks of the database and the worker need not agree.
func TestTheLogTellsHowLongATurnTook(t *testing.T) {
	const accepted, late, parked, lost, later, run = time.Hour, 2 * time.Second, 48 * time.Hour, time.Minute,
		3 * time.Second, 4 * time.Second
	for name, c := range map[string]struct {
		ahead  time.Duration // of the database's clock
		change time.Duration // of that clock, while the turn waits
		want   time.Duration
	}{
		"one clock":                        {0, 0, late + parked + lost + later + run},
		"the database's clock is ahead":    {7 * time.Hour, 0, late + parked + lost + later + run},
		"the database's clock is behind":   {-7 * time.Hour, 0, late + parked + lost + later + run},
		"it is set back behind the start":  {0, -72 * time.Hour, later + run},
		"it is set forward, and not ahead": {-time.Hour, time.Hour, late + parked + time.Hour + lost + later + run},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval().does(func(context.Context, tools.Call) (tools.Result, error) {
					time.Sleep(run)
					return tools.Result{Text: "paid"}, nil
				})
				b := newBench(t, asks("pay"), says("Paid.")).with(pay)
				b.store.ahead, b.store.waited = c.ahead, accepted // for a model
				b.store.accept()
				dispatch := func(startsAfter time.Duration) turnlog.Outcome {
					grant := b.store.grant(b.store.message)
					time.Sleep(startsAfter)
					record, journal := b.store.load(grant)
					outcome, err := b.resume(t.Context(), record, journal)
					if err != nil {
						t.Fatal(err)
					}
					return outcome
				}
				time.Sleep(accepted)
				if o := dispatch(late); o.State != turnkeeper.TurnWaiting {
					t.Fatalf("the turn is %s", o.State)
				}
				time.Sleep(parked)
				b.store.ahead += c.change
				b.answer(yes)
				b.store.grant(b.store.message) // its worker is lost
				time.Sleep(lost)
				if o := dispatch(later); o.State != turnkeeper.TurnSucceeded {
					t.Fatalf("the turn is %s: %s", o.State, o.Error)
				}
				b.check()
				ended := b.log.FilterMessage("turn ended").All()
				if len(ended) != 1 {
					t.Fatalf("%d lines", len(ended))
				}
				if got := ended[0].ContextMap()["turn_duration_ms"]; got != c.want.Milliseconds() {
					t.Errorf("the turn took %v ms, want %d", got, c.want.Milliseconds())
				}
			})
		})
	}
}

// TestLogOfATurnThatCouldNotBeHandedBack checks that a failed hand-back is not logged as
// a hand-back.
func TestLogOfATurnThatCouldNotBeHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, inferencetest.Block())
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() {
			b.store.dispatch() // another worker has the turn
			cancel(agentturn.ErrShutdown)
		})
		if _, err := b.dispatch(ctx); err == nil {
			t.Fatal("the outcome was written")
		}
		if b.logged("turn handed back") != 0 {
			t.Error("the log says that the turn was handed back")
		}
	})
}

// TestFinishedTurnIsNotHandedBack checks that a turn whose model has answered is finished
// even if its context ends.
func TestFinishedTurnIsNotHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		b := newBench(t, inferencetest.Func(func(context.Context, inference.Request,
			func(inference.Delta)) (inference.Response, error) {
			cancel(agentturn.ErrShutdown)
			return inference.Response{Text: "just in time"}, nil
		}))
		if got := b.run(ctx); got.Reply != "just in time" {
			t.Errorf("%+v", got)
		}
	})
}

func TestLostLease(t *testing.T) {
	tests := []struct {
		name string
		late int // results stored after the lease was lost
		f    func(b *bench, cancel context.CancelCauseFunc) func(context.Context, tools.Call) (tools.Result, error)
	}{
		{"noticed by the next write", 1, func(b *bench, _ context.CancelCauseFunc) func(context.Context,
			tools.Call) (tools.Result, error) {
			return func(context.Context, tools.Call) (tools.Result, error) {
				b.store.dispatch() // the worker was paused, and another one has the turn
				return tools.Result{Text: "sent"}, nil
			}
		}},
		{"while a tool runs that ends with it", 0, func(_ *bench, cancel context.CancelCauseFunc) func(context.Context,
			tools.Call) (tools.Result, error) {
			return func(ctx context.Context, call tools.Call) (tools.Result, error) {
				cancel(turnkeeper.ErrFenced)
				return hangs(ctx, call)
			}
		}},
		{"while a tool runs that finishes all the same", 1, func(_ *bench, cancel context.CancelCauseFunc) func(
			context.Context, tools.Call) (tools.Result, error) {
			return func(context.Context, tools.Call) (tools.Result, error) {
				cancel(turnkeeper.ErrFenced)
				return tools.Result{Text: "sent"}, nil
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("look", "send", "look"), says("never asked"))
				ctx, cancel := context.WithCancelCause(t.Context())
				b.with(read("look"), once("send").does(test.f(b, cancel)))
				_, err := b.dispatch(ctx)
				b.check()
				if !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("error %v, want ErrFenced", err)
				}
				if len(b.store.outcomes()) != 0 || len(b.script.Requests()) != 1 {
					t.Errorf("it went on: %v, %d requests", b.store.outcomes(), len(b.script.Requests()))
				}
				if len(b.store.lateCalls) != test.late {
					t.Fatalf("late results %+v", b.store.lateCalls)
				}
				// It is not the call's result while another worker has the turn.
				if call := b.store.calls()[1]; test.late == 1 && call.Shown+call.LateResult != "sent" {
					t.Errorf("the late result is not kept: %+v", call)
				}
			})
		})
	}
}

// TestAttachmentsOfALateResult checks that attachments and binary content of a late
// result are stored, so every output that is named exists.
func TestAttachmentsOfALateResult(t *testing.T) {
	for name, c := range map[string]struct {
		result tools.Result
		shown  string // text before the id
	}{
		"attached": {tools.Result{Text: "a picture:", Attached: []tools.Attachment{{Name: "image",
			MediaType: "image/png", Bytes: []byte{0, 1}}}}, "a picture:\n\n[image, stored as output "},
		"binary": {tools.Result{Bytes: []byte{0, 1}, MediaType: "image/png"}, "[the result, stored as output "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("send"), says("never asked"))
				ctx, cancel := context.WithCancelCause(t.Context())
				b.with(once("send").does(func(context.Context, tools.Call) (tools.Result, error) {
					cancel(turnkeeper.ErrFenced)
					return c.result, nil
				}))
				if _, err := b.dispatch(ctx); !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("error %v, want ErrFenced", err)
				}
				late := b.store.lateCalls[0]
				if len(late.Attached) != 1 || string(late.Attached[0].Bytes) != "\x00\x01" ||
					late.Attached[0].MediaType != "image/png" {
					t.Fatalf("%+v", late)
				}
				if !strings.HasPrefix(late.Shown, c.shown+string(late.Attached[0].ID)) {
					t.Errorf("%q", late.Shown)
				}
			})
		})
	}
}

// TestJournalMoved checks that no result is lost when the journal has to be read again.
func TestJournalMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := once("send")
		b := newBench(t, asks("send"), says("done")).with(send)
		refused := false
		b.before = func(e turnlog.Entry) error {
			if len(e.Results) > 0 && !refused {
				refused = true
				return fmt.Errorf("wrapped: %w", turnkeeper.ErrJournalMoved)
			}
			return nil
		}
		record, journal := b.store.dispatch()
		journal.before = b.before
		_, err := b.resume(t.Context(), record, journal)
		if !errors.Is(err, turnkeeper.ErrJournalMoved) {
			t.Fatalf("error %v, want ErrJournalMoved", err)
		}
		record, journal = b.store.load(journal.grant)
		got, err := b.resume(t.Context(), record, journal)
		b.check()
		if err != nil || got.State != turnkeeper.TurnSucceeded || send.runs.count() != 1 {
			t.Errorf("%+v, %v after %d runs", got, err, send.runs.count())
		}
	})
}

func TestJournalThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk full")
		b := newBench(t, asks("send"), says("done")).with(once("send"))
		b.before = func(turnlog.Entry) error { return broken }
		_, err := b.dispatch(t.Context())
		if !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
		if b.tools[0].(*tool).runs.count() != 0 {
			t.Error("an effect ran without its start on record")
		}
	})
}

// TestJournalAwayUntilTheWall checks that a turn ends and runs nothing if the start of
// its effect could not be written in time.
func TestJournalAwayUntilTheWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := once("send")
		b := newBench(t, asks("look", "send")).with(read("look"), send)
		b.before = func(e turnlog.Entry) error {
			if len(e.Starts) > 0 {
				time.Sleep(2 * time.Minute)
				return errors.New("the wait was given up")
			}
			return nil
		}
		got := b.run(t.Context())
		if got.StopReason != turnkeeper.StopMaxDuration || send.runs.count() != 0 {
			t.Errorf("%+v after %d runs", got, send.runs.count())
		}
		if diff := cmp.Diff([]turnkeeper.CallState{"succeeded", "cancelled"}, b.states()); diff != "" {
			t.Error(diff)
		}
		for _, e := range b.store.events() {
			if e.Type == turnkeeper.EventToolStarted &&
				string(e.Data) != `{"call":"round-1-tool-1","name":"look","state":"started"}` {
				t.Errorf("an event says that it started: %s", e.Data)
			}
		}
	})
}

// TestNotBegun checks a turn whose time ends between a start and its effect.
func TestNotBegun(t *testing.T) {
	for effect, want := range map[turnkeeper.Effect]turnkeeper.CallState{
		turnkeeper.EffectOnce: turnkeeper.CallFailed, turnkeeper.EffectKeyed: turnkeeper.CallCancelled,
	} {
		t.Run(string(effect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := newTool("send", effect)
				b := newBench(t, asks("send")).with(send)
				b.fault = at(agentturn.PointChecked, 1, func() { time.Sleep(2 * time.Minute) })
				got := b.run(t.Context())
				call := b.store.calls()[0]
				if got.StopReason != turnkeeper.StopMaxDuration || send.runs.count() != 0 {
					t.Errorf("%+v after %d runs", got, send.runs.count())
				}
				if call.State != want || call.Shown != "not run: the turn was stopped before this call began." {
					t.Errorf("%s, %q", call.State, call.Shown)
				}
			})
		})
	}
}

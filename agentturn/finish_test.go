package agentturn_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

const finishNotice = "the last one, because the turn was asked to finish: tools can no longer be called. Answer now from what you have, and say what is missing."

// finishing returns a bench whose turn can be asked to finish.
func finishing(t *testing.T, steps ...inferencetest.Step) *bench {
	b := asyncBench(t, steps...)
	b.finish = make(chan struct{})
	return b
}

// finishes returns a tool that succeeds after a minute. The turn is asked to finish after its first second.
func finishes(b *bench, name string, effect turnkeeper.Effect) *tool {
	return newTool(name, effect).does(func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		time.Sleep(time.Second)
		select {
		case <-b.finish:
		default:
			close(b.finish)
		}
		select {
		case <-time.After(time.Minute):
			return tools.Result{Text: name + " found it"}, nil
		case <-ctx.Done():
			return tools.Result{}, context.Cause(ctx)
		}
	})
}

// wantLastRound checks that the newest request announces the last round to a turn that is to finish.
func (b *bench) wantLastRound(requests int) {
	b.t.Helper()
	all := b.requests()
	if len(all) != requests {
		b.t.Fatalf("%d requests, want %d", len(all), requests)
	}
	for i, r := range all {
		final := r.ToolChoice == inference.ToolChoiceNone && strings.Contains(last(r), finishNotice)
		if final != (i == requests-1) {
			b.t.Errorf("request %d is announced as the last: %t; tool choice %q, it ends %q", i+1, final,
				r.ToolChoice, last(r))
		}
	}
}

func (b *bench) wantFinished(o turnlog.Outcome, state turnkeeper.TurnState, reply string) {
	b.t.Helper()
	if o.State != state || o.StopReason != turnkeeper.StopFinished || o.Reply != reply {
		b.t.Errorf("the turn ended %s, %s, with %q; error %q", o.State, o.StopReason, o.Reply, o.Error)
	}
}

// TestATurnFinishes asks turns to finish while calls run: reads are stopped, effects end, and nothing else starts.
func TestATurnFinishes(t *testing.T) {
	const (
		notRun = "denied: the turn was asked to finish before this call was run. Nothing was run."
		sent   = "send found it"
		cancel = turnkeeper.CallCancelled
		done   = turnkeeper.CallSucceeded
		denied = turnkeeper.CallDenied
	)
	tests := map[string]struct {
		calls  []string
		set    func(*bench)
		states []turnkeeper.CallState
		took   time.Duration // at most
		shown  []string      // nil: not compared
	}{
		"a read runs": {[]string{"look", "send"}, func(b *bench) {
			b.bounds.AsyncTimeout = 0
		}, []turnkeeper.CallState{cancel, denied}, 2 * time.Second, nil},
		"a read in the background": {[]string{"slow", "look"}, func(b *bench) {
			b.bounds.AsyncTimeout = 500 * time.Millisecond
		}, []turnkeeper.CallState{cancel, cancel}, 2 * time.Second, nil},
		"an effect runs": {[]string{"send", "send", "look"}, func(*bench) {}, []turnkeeper.CallState{done,
			denied, denied}, 62 * time.Second, []string{sent, notRun, notRun}},
		"an effect in the background": {[]string{"post", "slow"}, func(*bench) {}, []turnkeeper.CallState{done, denied},
			62 * time.Second, nil},
		"an effect that waits for one in the background": {[]string{"post", "send"}, func(b *bench) {
			b.bounds.AsyncTimeout = 500 * time.Millisecond
		}, []turnkeeper.CallState{done, denied}, 62 * time.Second, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := finishing(t, asks(test.calls...), says("What I have."))
				test.set(b)
				b.bounds.ToolTimeout = 2 * time.Minute
				b.bounds.MaxDuration = 3 * time.Minute
				b.with(finishes(b, "look", turnkeeper.EffectNone), finishes(b, "send", turnkeeper.EffectOnce),
					finishes(b, "post", turnkeeper.EffectKeyed).withBackground(), lasting("slow", turnkeeper.EffectNone,
						100*time.Second))
				b.lease = 10 * time.Minute
				started := time.Now()
				b.wantFinished(b.run(t.Context()), turnkeeper.TurnSucceeded, "What I have.")
				b.wantLastRound(2)
				if took := time.Since(started); took > test.took {
					t.Errorf("it took %s", took)
				}
				if got := b.states(); !cmp.Equal(got, test.states) {
					t.Errorf("calls %v, want %v", got, test.states)
				}
				if got := results(b.requests()[1]); test.shown != nil && !cmp.Equal(got, test.shown) {
					t.Errorf("shown: %q", got)
				}
			})
		})
	}
}

// TestATurnFinishesAtOnce asks turns to finish before a dispatch.
func TestATurnFinishesAtOnce(t *testing.T) {
	tests := map[string]struct {
		steps    []inferencetest.Step
		state    turnkeeper.TurnState
		reply    string
		requests int
	}{
		"it answers in its first round": {[]inferencetest.Step{says("Nothing yet.")}, turnkeeper.TurnSucceeded,
			"Nothing yet.", 1},
		"it calls a tool all the same": {[]inferencetest.Step{inferencetest.Answer(asking("Here is a part.", "send"))},
			turnkeeper.TurnDegraded, "Here is a part.", 1},
		"it calls a tool and says nothing": {[]inferencetest.Step{asks("send")}, turnkeeper.TurnDegraded,
			"This message could not be answered: it was asked to finish before there was an answer.", 1},
		"it calls a tool that does not exist": {[]inferencetest.Step{asks("shout")}, turnkeeper.TurnDegraded,
			"This message could not be answered: it was asked to finish before there was an answer.", 1},
		"it writes and calls a tool that does not exist": {
			[]inferencetest.Step{inferencetest.Answer(asking("Here is a part.", "shout"))},
			turnkeeper.TurnDegraded, "Here is a part.", 1},
		"it says nothing": {[]inferencetest.Step{says(""), says(""), says(""), says("")}, turnkeeper.TurnDegraded,
			"This message could not be answered: it was asked to finish before there was an answer.", 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := finishing(t, test.steps...).with(once("send"))
				close(b.finish)
				b.wantFinished(b.run(t.Context()), test.state, test.reply)
				if test.requests == 1 {
					b.wantLastRound(1)
				} else if n := len(b.requests()); n != test.requests { // each of them is announced
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// TestARunningModelCallIsLetEnd asks turns to finish while the model answers.
func TestARunningModelCallIsLetEnd(t *testing.T) {
	for name, test := range map[string]struct {
		answer inference.Response
		stop   turnkeeper.StopReason
		rounds int
	}{
		"it answers":    {inference.Response{Text: "All of it.", FinishReason: "stop"}, turnkeeper.StopNone, 1},
		"it asks calls": {asking("", "send"), turnkeeper.StopFinished, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, send := finishing(t), once("send")
				b.with(send).script.Add(inferencetest.Func(func(context.Context, inference.Request,
					func(inference.Delta)) (inference.Response, error) {
					close(b.finish)
					return test.answer, nil
				}), says("What I have."))
				o := b.run(t.Context())
				if o.State != turnkeeper.TurnSucceeded || o.StopReason != test.stop ||
					len(b.requests()) != test.rounds || send.runs.count() != 0 {
					t.Errorf("%+v after %d requests, and send ran %d times", o, len(b.requests()), send.runs.count())
				}
			})
		})
	}
}

// TestAParkedTurnFinishes asks turns to finish that wait for a person.
func TestAParkedTurnFinishes(t *testing.T) {
	for name, test := range map[string]struct {
		calls []string
		state turnkeeper.CallState
	}{
		"an approval": {[]string{"pay"}, turnkeeper.CallDenied},
		"a question":  {[]string{`ask_person {"question":"Which?"}`}, turnkeeper.CallDenied},
		"input":       {[]string{"book"}, turnkeeper.CallUnknown},
		"its input":   {[]string{"rent"}, turnkeeper.CallUnknown},
		"a reader's":  {[]string{"look"}, turnkeeper.CallCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, pay := newBench(t, asks(test.calls...), says("Without it.")), once("pay").needsApproval()
				b.with(pay, once("book").asksFor(1), newTool("rent", turnkeeper.EffectKeyed).asksFor(1),
					read("look").asksFor(1), builtin.NewAskPerson())
				b.waits()
				if _, err := b.store.conn.FinishTurn(t.Context(), b.store.turn().ID); err != nil {
					t.Fatal(err)
				}
				if ask := b.store.asked()[0]; ask.State != askings.Withdrawn {
					t.Errorf("the ask is %s", ask.State)
				}
				o := b.run(t.Context())
				b.wantLastRound(2)
				if o.StopReason == turnkeeper.StopNone || b.states()[0] != test.state || pay.runs.count() != 0 {
					t.Errorf("%+v, calls %v; pay ran %d times", o, b.states(), pay.runs.count())
				}
			})
		})
	}
}

// TestATurnFinishesWithoutAModel asks turns to finish whose model, or budget for it, is away.
func TestATurnFinishesWithoutAModel(t *testing.T) {
	t.Run("the model is down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("look"), fails(inference.ClassQuota)).with(read("look"))
			b.finish = make(chan struct{})
			b.tools[0].(*tool).does(func(context.Context, tools.Call) (tools.Result, error) {
				close(b.finish)
				return tools.Result{Text: "seen"}, nil
			})
			o := b.run(t.Context())
			if o.State != turnkeeper.TurnWaiting || len(o.WaitsFor) != 1 {
				t.Errorf("%+v", o)
			}
			if got := b.states(); !cmp.Equal(got, []turnkeeper.CallState{turnkeeper.CallSucceeded}) {
				t.Errorf("it keeps %v", got)
			}
		})
	})
	t.Run("the budget is spent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("look"), says("never asked")).with(read("look"))
			b.finish = make(chan struct{})
			close(b.finish)
			b.budget = &budget{left: 0}
			if o := b.run(t.Context()); !o.State.Terminal() || o.StopReason != turnkeeper.StopBudget {
				t.Errorf("%+v", o)
			}
		})
	})
}

// TestAFinishedReplyIsWithheld checks that a turn that is to finish asks nobody about its reply.
func TestAFinishedReplyIsWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := finishing(t, says("It is 4711."))
		b.def.InboxLabels, b.def.ReplySink = []string{"private"}, policy.ReplyAsk
		close(b.finish)
		o := b.run(t.Context())
		if o.StopReason != turnkeeper.StopWithheld || strings.Contains(o.Reply, "4711") || len(b.store.asked()) != 0 {
			t.Errorf("%+v, asks %v", o, b.store.asked())
		}
	})
}

// TestATurnThatFinishesIsTakenOver kills the worker of a turn that is to finish at each point that it reaches.
func TestATurnThatFinishesIsTakenOver(t *testing.T) {
	killed := 0
	for _, label := range agentturn.FaultPoints() {
		for n := range 3 {
			synctest.Test(t, func(t *testing.T) {
				b := finishing(t)
				answer := inferencetest.Func(func(_ context.Context, r inference.Request,
					_ func(inference.Delta)) (inference.Response, error) {
					if r.ToolChoice != inference.ToolChoiceNone {
						return asking("", "send", "look", "send"), nil
					}
					return inference.Response{Text: "What I have.", FinishReason: "stop"}, nil
				})
				b.script.Add(answer, answer, answer, answer)
				b.with(newTool("send", turnkeeper.EffectKeyed).does(func(context.Context,
					tools.Call) (tools.Result, error) {
					if _, err := b.store.conn.FinishTurn(b.t.Context(), b.store.turn().ID); err != nil {
						t.Error(err)
					}
					select {
					case <-b.finish:
					default:
						close(b.finish)
					}
					return tools.Result{Text: "sent"}, nil
				}), read("look"))
				o, died := b.mayDie(label, n+1)
				if died {
					killed++
					b.finish = nil // the worker that takes over knows it from the record, or not at all
					if b.store.conn != nil && b.store.turn().State != turnkeeper.TurnRunning {
						return // it died after the end
					}
					b.finish = make(chan struct{})
					o = b.run(b.t.Context())
				}
				b.wantFinished(o, turnkeeper.TurnSucceeded, "What I have.")
				if got := b.states(); !cmp.Equal(got, []turnkeeper.CallState{turnkeeper.CallSucceeded,
					turnkeeper.CallDenied, turnkeeper.CallDenied}) {
					t.Errorf("%s, %d: calls %v", label, n+1, got)
				}
			})
		}
	}
	if killed < 15 {
		t.Errorf("only %d workers were killed", killed)
	}
}

// mayDie runs a dispatch whose worker is killed if the label is reached for the nth time.
func (b *bench) mayDie(label string, n int) (o turnlog.Outcome, died bool) {
	b.fault, died = at(label, n, runtime.Goexit), true
	done := make(chan struct{})
	go func() {
		defer close(done)
		o = b.run(b.t.Context())
		died = false
	}()
	<-done
	b.fault = nil
	return o, died
}

// TestATurnThatWaitsForMoreFinishes asks turns to finish that wait for a person to raise their budget, to approve their
// reply, or to settle a call. They make no other model call, or no other call.
func TestATurnThatWaitsForMoreFinishes(t *testing.T) {
	for name, test := range map[string]struct {
		kind  askings.Kind
		set   func(*bench)
		state turnkeeper.TurnState
		stop  turnkeeper.StopReason
	}{
		"its budget": {askings.KindBudget, func(b *bench) {
			b.def.Budget, b.budget = agentdef.Budget{TurnCalls: 1, OnLimit: "ask"}, &strictBudget{}
		}, turnkeeper.TurnDegraded, turnkeeper.StopBudget},
		"its reply": {askings.KindReply, private(policy.ReplyAsk), turnkeeper.TurnDegraded, turnkeeper.StopWithheld},
		"the outcome of a call": {askings.KindSettle, func(b *bench) {
			b.def.OnUnknown = "ask"
			b.lose(agentturn.PointEffectDone, 1)
		}, turnkeeper.TurnDegraded, turnkeeper.StopWorkerLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, pay := newBench(t, asks("pay"), says("Paid.")), once("pay")
				b.with(pay)
				test.set(b)
				b.waits()
				if ask := b.store.asked()[0]; ask.Kind != test.kind {
					t.Fatalf("it asks about %s", ask.Kind)
				}
				if _, err := b.store.conn.FinishTurn(t.Context(), b.store.turn().ID); err != nil {
					t.Fatal(err)
				}
				o := b.run(t.Context())
				all := b.store.asked()
				if o.State != test.state || o.StopReason != test.stop || len(all) != 1 ||
					all[0].State != askings.Withdrawn || pay.runs.count() != 1 {
					t.Errorf("%+v, asks %+v; pay ran %d times", o, all, pay.runs.count())
				}
			})
		})
	}
}

// TestDetachedCallsOfATurnThatFinishes checks that a turn that finishes cancels its detached reads and waits for its
// detached effects.
func TestDetachedCallsOfATurnThatFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("read", "act"), says("What I have.")).with(far("read", turnkeeper.EffectNone),
			far("act", turnkeeper.EffectOnce))
		b.waits()
		if _, err := b.store.conn.FinishTurn(t.Context(), b.store.turn().ID); err != nil {
			t.Fatal(err)
		}
		b.waits()
		if got := b.states(); !cmp.Equal(got, []turnkeeper.CallState{turnkeeper.CallCancelled,
			turnkeeper.CallRunning}) {
			t.Fatalf("calls %v", got)
		}
		b.store.arrive(turnkeeper.CallKey{Round: 1, Ordinal: 2}, turnkeeper.CallSucceeded, "done")
		b.wantFinished(b.run(t.Context()), turnkeeper.TurnSucceeded, "What I have.")
		b.wantLastRound(2)
	})
}

// TestATurnWithoutRoundsLeftFinishes checks that a turn that is to finish ends by its bound if that leaves it no round.
func TestATurnWithoutRoundsLeftFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := finishing(t, asks("send", "send"))
		b.with(finishes(b, "send", turnkeeper.EffectOnce))
		b.bounds.MaxRounds, b.bounds.ToolTimeout, b.bounds.MaxDuration, b.lease = 1, 2*time.Minute, 3*time.Minute,
			10*time.Minute
		o := b.run(t.Context())
		if o.StopReason != turnkeeper.StopMaxRounds || !strings.HasPrefix(o.Reply,
			"Tool results: 1 succeeded, 1 failed.") {
			t.Errorf("%+v", o)
		}
	})
}

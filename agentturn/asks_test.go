package agentturn_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/scheduler"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// needsApproval makes a person approve each call of the tool.
func (t *tool) needsApproval() *tool {
	t.spec.Approve = policy.Always
	return t
}

// asked returns the asks of the turn.
func (s *store) asked() []askings.Ask { return must(s.conn.Asks(context.Background(), s.turn().ID)) }

// answer answers the newest open ask, or the oldest of several.
func (b *bench) answer(a askings.Answer) {
	b.t.Helper()
	a.By, a.Channel = "ann", "test"
	for _, ask := range b.store.asked() {
		if !ask.Closed() {
			if _, err := b.store.conn.AnswerAsk(b.t.Context(), ask.ID, a); err != nil {
				b.t.Fatal(err)
			}
			return
		}
	}
	b.t.Fatal("no ask is open")
}

func (b *bench) succeeds(reply string) {
	b.t.Helper()
	if o := b.run(b.t.Context()); o.State != turnkeeper.TurnSucceeded || o.Reply != reply {
		b.t.Fatalf("the turn ended %s with %q: %s", o.State, o.Reply, o.Error)
	}
}

// arguments returns the arguments that a tool ran with, in order.
func (t *tool) arguments() (all []string) {
	for _, call := range t.runs.calls {
		all = append(all, string(call.Arguments))
	}
	return all
}

var yes, no = askings.Answer{Decision: askings.Approved}, askings.Answer{Decision: askings.Denied}

func TestACallWaitsForItsApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		b := newBench(t, asks("pay"), says("Paid.")).with(pay)
		b.waits()
		ask := b.store.asked()[0]
		if ask.Kind != askings.KindApprove || ask.Tool != "pay" || ask.Arguments != `{"n":1}` ||
			ask.Rule != policy.Always || !ask.Hold ||
			ask.Timeout != askings.DefaultTimeout || ask.Hash != tools.Hash("pay", `{"n":1}`) ||
			ask.Schema != string(pay.spec.Parameters) {
			t.Errorf("the ask is %+v", ask)
		}
		if n := len(b.store.entries); n != 1 {
			t.Errorf("plan, ask and end took %d writes", n)
		}
		if got := b.states(); !slices.Equal(got, []turnkeeper.CallState{turnkeeper.CallPlanned}) ||
			pay.runs.count() != 0 {
			t.Errorf("calls %v, %d runs", got, pay.runs.count())
		}
		time.Sleep(48 * time.Hour)
		b.answer(askings.Answer{Decision: askings.Approved, Comment: "the invoice is right"})
		b.succeeds("Paid.")
		if got := results(
			b.requests()[1]); got[0] != "[Comment of the person who approved this call: the invoice is right]\n\npay ran" {
			t.Errorf("the model is shown %q", got)
		}
		if pay.runs.count() != 1 || len(b.store.asked()) != 1 {
			t.Errorf("%d runs, asks %+v", pay.runs.count(), b.store.asked())
		}
	})
}

// TestANoteLeavesAHandleInFront checks that the comment of the person who approved a call stands behind the handle of
// its large result, which is then listed as ready like any other.
func TestANoteLeavesAHandleInFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := read("big").does(func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{Text: strings.Repeat("é", 32001)}, nil
		})
		big.spec.Approve = policy.Always
		b := asyncBench(t).with(big)
		b.script.Add(asks("big"), says("Read."))
		b.waits()
		b.answer(askings.Answer{Decision: askings.Approved, Comment: "go on"})
		b.succeeds("Read.")
		request := b.requests()[1]
		shown := results(request)[0]
		if want := b.handle(0, "Tool Output ID: @\nTool: big\n"); !strings.HasPrefix(shown, want) ||
			!strings.HasSuffix(shown, "\n\n[Comment of the person who approved this call: go on]") {
			t.Errorf("the model is shown %q", shown)
		}
		if want := b.handle(0, "### Ready (1)\n- big (id: @"); !strings.Contains(last(request), want) {
			t.Errorf("the notice: %q", last(request))
		}
	})
}

func TestACallThatIsNotApprovedDoesNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*bench)
		shown  string
	}{
		"denied": {func(b *bench) { b.answer(no) }, "denied: a person did not approve this call. Nothing was run."},
		"denied with a comment": {
			func(b *bench) { b.answer(askings.Answer{Decision: askings.Denied, Comment: "ask Bob"}) },
			"denied: a person did not approve this call. Nothing was run.\nComment: ask Bob",
		},
		"expired": {func(b *bench) {
			time.Sleep(askings.DefaultTimeout)
			b.store.expire()
		}, "denied: nobody approved this call in time. Nothing was run."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks("pay"), says("It is not paid.")).with(pay)
				b.waits()
				c.answer(b)
				b.succeeds("It is not paid.")
				if got := results(b.requests()[1]); got[0] != c.shown || pay.runs.count() != 0 {
					t.Errorf("the model is shown %q, %d runs", got, pay.runs.count())
				}
				if got := b.states(); got[0] != turnkeeper.CallDenied {
					t.Errorf("calls %v", got)
				}
			})
		})
	}
}

// expire runs the part of a tick that closes asks.
func (s *store) expire() {
	s.tick(func(t scheduler.Tick) error {
		_, err := t.ExpireAsks(context.Background(), 10)
		return err
	})
}

func TestAPersonChangesTheArguments(t *testing.T) {
	const edited = `{"n":5}`
	note := "[A person changed the arguments of this call before it ran. It ran with: " + edited +
		"]\nComment: five is enough"
	answer := askings.Answer{Decision: askings.Approved, Edited: `{"n": 5.0 }`, Comment: "five is enough"}
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		b := newBench(t, asks("pay"), says("Paid.")).with(pay)
		b.waits()
		b.answer(answer)
		b.succeeds("Paid.")
		if got := results(b.requests()[1]); got[0] != note+"\n\npay ran" || !slices.Equal(pay.arguments(),
			[]string{edited}) {
			t.Errorf("it ran with %q, and the model is shown %q", pay.arguments(), got)
		}
	})
	t.Run("detached", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			remote := far("remote", turnkeeper.EffectOnce).needsApproval()
			b := newBench(t, asks("remote"), says("Done.")).with(remote)
			b.waits()
			b.answer(answer)
			b.waits()
			claimed := b.store.claim(farKey)
			if claimed.Call.AsRun() != edited {
				t.Errorf("it runs with %s", claimed.Call.AsRun())
			}
			b.store.deliver(claimed, turnkeeper.CallSucceeded, "42")
			b.succeeds("Done.")
			if got := results(b.requests()[1]); !strings.HasSuffix(got[0], note) {
				t.Errorf("the model is shown %q", got)
			}
		})
	})
	for name, invalid := range map[string]string{"invalid": `{"n":"five"}`, "valid without a null": `{"n":null}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks("pay"), says("It is not paid.")).with(pay)
				b.waits()
				b.answer(askings.Answer{Decision: askings.Approved, Edited: invalid})
				b.succeeds("It is not paid.")
				if got := results(b.requests()[1]); !strings.HasPrefix(got[0],
					"denied: a person changed the arguments of this call, but they are invalid: ") ||
					pay.runs.count() != 0 {
					t.Errorf("the model is shown %q", got)
				}
			})
		})
	}
}

// Every way to run a call goes through the gate.
func TestEveryKindOfCallIsApproved(t *testing.T) {
	transactional := once("change")
	transactional.spec.Transactional = true
	for name, tool := range map[string]*tool{
		"a read": read("look"), "a keyed call": newTool("send", turnkeeper.EffectKeyed),
		"a call of effect once": once("pay"),
		"a transactional call":  transactional,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks(tool.spec.Name), says("Done.")).with(tool.needsApproval())
				b.waits()
				if tool.runs.count() != 0 {
					t.Error("it ran before the approval")
				}
				b.answer(yes)
				b.succeeds("Done.")
				if tool.runs.count() != 1 {
					t.Errorf("%d runs", tool.runs.count())
				}
				var used []askings.ID
				for _, e := range b.store.entries {
					for _, start := range e.Starts {
						used = append(used, start.Ask)
					}
				}
				if !slices.Equal(used, []askings.ID{b.store.asked()[0].ID}) {
					t.Errorf("starts use the asks %v", used)
				}
			})
		})
	}
	t.Run("a sub-agent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks(`spawn_agent {"agent":"scout","task":"look"}`), says("Found."))
			b.def.SubAgents, b.def.Approve = []string{"scout"}, map[string]string{"spawn_agent": policy.Always}
			b.waits()
			if _, spawned := b.store.child(farKey); spawned {
				t.Error("it was spawned before the approval")
			}
			b.answer(yes)
			b.waits()
			b.store.reply(farKey, good("here"))
			b.succeeds("Found.")
		})
	})
	t.Run("a call in the background", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			slow := once("slow").withBackground().needsApproval().does(func(context.Context,
				tools.Call) (tools.Result, error) {
				time.Sleep(time.Minute)
				return tools.Result{Text: "slow ran"}, nil
			})
			b := newBench(t, asks("slow"), says("Waiting."), says("Done.")).with(slow, reader("get_tool_output"),
				reader("wait_for_tool_output"))
			b.waits()
			b.answer(askings.Answer{Decision: askings.Approved, Edited: `{"n":3}`})
			if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded || slow.runs.count() != 1 {
				t.Fatalf("the turn ended %s: %s", o.State, o.Error)
			}
			if got := results(b.requests()[1]); !strings.Contains(got[0], `It ran with: {"n":3}]`) {
				t.Errorf("the model is shown %q", got)
			}
		})
	})
}

func reader(name string) *tool {
	t := read(name)
	t.spec.Paging = true
	return t
}

func TestAChangedCallIsAskedAboutAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		b := newBench(t, asks(`pay {"n":10}`), asks(`pay {"n":11}`), says("Paid.")).with(pay)
		b.waits()
		b.answer(yes)
		b.waits()
		if n := pay.runs.count(); n != 1 {
			t.Errorf("%d runs after one approval", n)
		}
		b.answer(no)
		b.succeeds("Paid.")
		if !slices.Equal(pay.arguments(), []string{`{"n":10}`}) {
			t.Errorf("it ran with %q", pay.arguments())
		}
	})
}

func TestCallsOfOneAnswerAreAskedAboutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay, look := once("pay").needsApproval(), read("look")
		b := newBench(t, asks("look", "pay", "look", "pay"), says("Paid.")).with(pay, look)
		b.waits()
		if n := len(b.store.asked()); n != 2 {
			t.Fatalf("%d asks", n)
		}
		b.answer(no)
		b.waits()
		b.answer(yes)
		b.succeeds("Paid.")
		if !slices.Equal(pay.arguments(), []string{`{"n":4}`}) || look.runs.count() != 2 {
			t.Errorf("pay ran with %q, look %d times", pay.arguments(), look.runs.count())
		}
	})
}

// An approver is a tool that asks about large numbers, and refuses larger ones.
type approver struct{ *tool }

func (a approver) Approve(_ context.Context, call tools.Call) (policy.Decision, error) {
	switch string(call.Arguments) {
	case `{"n":1}`:
		return policy.Decision{}, nil
	case `{"n":2}`:
		return policy.Decision{Verdict: policy.Ask, Reason: "two is much"}, nil
	case `{"n":3}`:
		return policy.Decision{Verdict: policy.Deny, Reason: "three is too much"}, nil
	default:
		return policy.Decision{}, errors.New("it cannot count")
	}
}

func TestAToolDecidesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay")
		b := newBench(t, asks("pay", "pay", "pay", "pay"), says("Done."))
		b.tools, b.def.Tools = []tools.Tool{approver{pay}}, []string{"pay"}
		b.waits()
		var reasons []string
		for _, ask := range b.store.asked() {
			reasons = append(reasons, ask.Reason)
		}
		if !slices.Equal(reasons, []string{"two is much", "the tool could not decide: it cannot count"}) ||
			pay.runs.count() != 1 {
			t.Errorf("asked because %q, %d runs", reasons, pay.runs.count())
		}
		b.answer(yes)
		b.waits()
		b.answer(no)
		b.succeeds("Done.")
		if got := results(b.requests()[1])[2]; got != "denied by a rule: three is too much. Nothing was run." {
			t.Errorf("the model is shown %q", got)
		}
	})
}

// TestADeniedCallTakesNoPlace checks that a call that a rule denies does not count towards the calls that a turn may
// make.
func TestADeniedCallTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay")
		b := newBench(t, inferStep(inference.Response{Calls: []inference.Call{
			{ID: "a", Name: "pay", Arguments: `{"n":3}`}, {ID: "b", Name: "pay", Arguments: `{"n":1}`},
		}}), says("Done."))
		b.tools, b.def.Tools = []tools.Tool{approver{pay}}, []string{"pay"}
		b.bounds.MaxToolCalls = 1
		b.succeeds("Done.")
		if got := results(b.requests()[1])[0]; got != "denied by a rule: three is too much. Nothing was run." ||
			pay.runs.count() != 1 {
			t.Errorf("the model is shown %q, %d runs", got, pay.runs.count())
		}
	})
}

func TestRulesOfAnAgent(t *testing.T) {
	for name, c := range map[string]struct {
		rules map[string]string
		all   string // the rule of the settings
		asked int
	}{
		"none":                           {nil, "", 0},
		"for the tool":                   {map[string]string{"pay": policy.Always}, "", 1},
		"for all tools":                  {map[string]string{"*": policy.Always}, "", 1},
		"an exception":                   {map[string]string{"*": policy.Always, "pay": policy.Never}, "", 0},
		"no exception of the settings":   {map[string]string{"pay": policy.Never}, policy.Always, 1},
		"a rule that nobody can compile": {map[string]string{"pay": "args.n > 5 ? ask : allow"}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay")
				b := newBench(t, asks("pay"), says("Paid.")).with(pay)
				b.def.Approve = c.rules
				record, journal := b.store.dispatch()
				_, err := b.runnerWith(func(cfg *agentturn.Config) {
					cfg.Approve = c.all
				}).Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def}, journal)
				if err != nil || len(b.store.asked()) != c.asked || pay.runs.count() != 1-c.asked {
					t.Errorf("%d asks, %d runs, error %v", len(b.store.asked()), pay.runs.count(), err)
				}
			})
		})
	}
}

// A worker that dies between the approval and the result asks nothing again, and runs nothing twice.
func TestAKillAfterTheApproval(t *testing.T) {
	for _, label := range agentturn.FaultPoints() {
		t.Run(label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks("pay"), says("Paid."), says("Paid.")).with(pay)
				die := func() {
					b.fault = &trap{label: label, n: 1, f: func() { runtime.Goexit() }}
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, _ = b.dispatch(t.Context())
					}()
					<-done
					b.fault = nil
				}
				die()
				if len(b.store.rounds()) == 0 { // the model is asked again
					b.script = inferencetest.NewScript(asks("pay"), says("Paid."), says("Paid."))
					b.models["main/model"] = b.script
				}
				if b.store.turn().State != turnkeeper.TurnWaiting {
					b.waits()
				}
				b.answer(yes)
				die()
				if !b.store.turn().State.Terminal() {
					b.run(t.Context())
				}
				b.check()
				if n := pay.runs.count(); n > 1 || len(b.store.asked()) != 1 || n == 0 &&
					b.states()[0] != turnkeeper.CallUnknown {
					t.Errorf("%d runs, %d asks, call %s", n, len(b.store.asked()), b.states()[0])
				}
			})
		})
	}
}

func TestAModelAsksAPerson(t *testing.T) {
	for name, c := range map[string]struct {
		answer askings.Answer
		want   string
		state  turnkeeper.CallState
	}{
		"answered": {askings.Answer{Decision: askings.Answered, Answer: `"blue"`}, "blue", turnkeeper.CallSucceeded},
		"with a comment": {
			askings.Answer{Decision: askings.Answered, Answer: `{"a":1}`, Comment: "sorry"},
			"{\"a\":1}\nComment: sorry", turnkeeper.CallSucceeded,
		},
		"declined": {no, "no answer: a person declined to answer this question.", turnkeeper.CallDenied},
		"expired":  {askings.Answer{}, "no answer: nobody answered this question in time.", turnkeeper.CallDenied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks(`ask_person {"options":["blue","red"],"question":"Which colour?"}`),
					says("Thanks.")).with(read("look"))
				b.tools, b.def.Tools = append(b.tools, builtin.NewAskPerson()), append(b.def.Tools, "ask_person")
				b.waits()
				ask := b.store.asked()[0]
				if ask.Kind != askings.KindQuestion || ask.Reason != "Which colour?" ||
					ask.Schema != `{"enum":["blue","red"],"type":"string"}` {
					t.Errorf("the ask is %+v", ask)
				}
				if c.answer.Decision == "" {
					time.Sleep(askings.DefaultTimeout)
					b.store.expire()
				} else {
					b.answer(c.answer)
				}
				b.succeeds("Thanks.")
				if got := results(b.requests()[1]); got[0] != c.want || b.states()[0] != c.state {
					t.Errorf("the model is shown %q, the call is %s", got, b.states()[0])
				}
			})
		})
	}
}

func TestAPersonSettlesAnUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		state  turnkeeper.CallState
		end    turnkeeper.TurnState
		runs   int
	}{
		"it happened":    {askings.Happened, turnkeeper.CallSucceeded, turnkeeper.TurnSucceeded, 1},
		"it did not":     {askings.DidNotHappen, turnkeeper.CallSucceeded, turnkeeper.TurnSucceeded, 2},
		"nobody knows":   {askings.Unknown, turnkeeper.CallUnknown, turnkeeper.TurnDegraded, 1},
		"nobody answers": {"", turnkeeper.CallUnknown, turnkeeper.TurnDegraded, 1},
	} {
		for kind, lost := range map[string]bool{"a lost worker": true, "a tool in doubt": false} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pay := once("pay")
					pay.does(func(context.Context, tools.Call) (tools.Result, error) {
						if pay.runs.count() > 1 {
							return tools.Result{Text: "paid"}, nil
						}
						if lost {
							runtime.Goexit()
						}
						return tools.Result{}, tools.ErrInDoubt
					})
					b := newBench(t, asks("pay"), says("Paid.")).with(pay)
					b.def.OnUnknown = "ask"
					if lost {
						b.fault = &trap{label: agentturn.PointEffectDone, n: 1, f: func() { runtime.Goexit() }}
						pay.does(nil)
						done := make(chan struct{})
						go func() {
							defer close(done)
							_, _ = b.dispatch(t.Context())
						}()
						<-done
						b.fault = nil
					}
					b.waits()
					ask := b.store.asked()[0]
					if ask.Kind != askings.KindSettle || ask.Arguments != `{"n":1}` || ask.N != 1 {
						t.Errorf("the ask is %+v", ask)
					}
					if c.answer == "" {
						time.Sleep(askings.DefaultTimeout)
						b.store.expire()
					} else {
						b.answer(askings.Answer{Decision: askings.Answered, Answer: c.answer, Comment: "I looked"})
					}
					o := b.run(t.Context())
					if o.State != c.end || b.states()[0] != c.state || pay.runs.count() != c.runs {
						t.Errorf("the turn is %s, the call %s, %d runs", o.State, b.states()[0], pay.runs.count())
					}
					if got := results(b.requests()[1])[0]; c.answer == askings.Happened &&
						got != "A person says that this call happened. Its result was lost.\nComment: I looked" {
						t.Errorf("the model is shown %q", got)
					}
				})
			})
		}
	}
}

func TestAPersonLetsATurnGoOnAfterItsBudget(t *testing.T) {
	for name, c := range map[string]struct {
		answer askings.Answer
		end    turnkeeper.TurnState
	}{"yes": {yes, turnkeeper.TurnSucceeded}, "no": {no, turnkeeper.TurnDegraded},
		"nobody": {end: turnkeeper.TurnDegraded}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("pay"), says("Paid.")).with(once("pay"))
				b.def.Budget = agentdef.Budget{TurnCalls: 1, OnLimit: "ask"}
				b.budget = &strictBudget{}
				b.waits()
				if ask := b.store.asked()[0]; ask.Kind != askings.KindBudget || ask.Reason == "" {
					t.Errorf("the ask is %+v", ask)
				}
				if name == "nobody" {
					time.Sleep(askings.DefaultTimeout)
					b.store.expire()
				} else {
					b.answer(c.answer)
				}
				if o := b.run(t.Context()); o.State != c.end {
					t.Errorf("the turn ended %s: %s", o.State, o.Error)
				}
			})
		})
	}
}

// A person is asked again if the budget is still used up after the approval, and asked no more after a denial.
func TestAPersonIsAskedTwiceAboutABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("pay"), says("Paid.")).with(once("pay"))
		b.def.Budget = agentdef.Budget{TurnCalls: 1, OnLimit: "ask"}
		budget := &strictBudget{}
		b.budget = budget
		b.waits()
		budget.calls = 5 // others have used it meanwhile
		b.answer(yes)
		b.waits()
		if all := b.store.asked(); len(all) != 2 || all[1].N != 2 {
			t.Fatalf("asks %+v", all)
		}
		b.answer(no)
		if o := b.run(t.Context()); o.State != turnkeeper.TurnDegraded || len(b.store.asked()) != 2 {
			t.Errorf("the turn ended %s, asks %+v", o.State, b.store.asked())
		}
	})
}

// The approval of a call lets no turn go on after its budget.
func TestAnApprovedCallExtendsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("pay"), says("Paid.")).with(once("pay").needsApproval())
		b.def.Budget = agentdef.Budget{TurnCalls: 1, OnLimit: "ask"}
		b.budget = &strictBudget{}
		b.waits()
		b.answer(yes)
		b.waits()
		if all := b.store.asked(); len(all) != 2 || all[1].Kind != askings.KindBudget {
			t.Errorf("asks %+v", all)
		}
	})
}

// A strictBudget counts the calls of a turn.
type strictBudget struct{ calls int64 }

func (s *strictBudget) Reserve(_ context.Context, who agentturn.Spender,
	_ turnkeeper.Usage) (agentturn.Reservation, error) {
	if s.calls >= who.Limits.TurnCalls {
		return agentturn.Reservation{Blocked: true, Scope: "turn", Reason: "the turn has made its calls"}, nil
	}
	s.calls++
	return agentturn.Reservation{}, nil
}

func (s *strictBudget) Settle(context.Context, agentturn.Reservation, turnkeeper.Usage) error {
	return nil
}

// TestReadsBesideOneThatAsks checks that calls which run in parallel do not take one along that needs a person.
func TestReadsBesideOneThatAsks(t *testing.T) {
	for name, second := range map[string]string{"an approval": "secret",
		"a question": `ask_person {"question":"Which?"}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look, secret := read("look"), read("secret").needsApproval()
				b := newBench(t, asks("look", second, "look"), says("Done.")).with(look, secret, builtin.NewAskPerson())
				b.waits()
				if n := len(b.store.asked()); n != 1 || look.runs.count() != 1 || secret.runs.count() != 0 {
					t.Errorf("%d asks, %d and %d runs", n, look.runs.count(), secret.runs.count())
				}
				b.answer(no)
				b.succeeds("Done.")
				if look.runs.count() != 2 || secret.runs.count() != 0 {
					t.Errorf("%d and %d runs after the answer", look.runs.count(), secret.runs.count())
				}
			})
		})
	}
}

// withHandle is a call whose argument is the handle of an earlier result.
const withHandle = `pay {"text":"output:1"}`

func payText() *tool {
	pay := once("pay")
	pay.spec.Parameters = []byte(`{"type":"object","properties":{"text":{"type":"string"}}}`)
	return pay
}

// aRule is a rule in Go.
type aRule func(policy.Call) policy.Decision

func (r aRule) Decide(c policy.Call) policy.Decision { return r(c) }

// TestRulesSeeTheTextOfAHandle checks that a rule decides about the text in place of a handle, and about its labels.
func TestRulesSeeTheTextOfAHandle(t *testing.T) {
	for name, c := range map[string]struct {
		rule policy.Rule
		want turnkeeper.CallState
	}{
		"denies what is untrusted": {denyUntrusted{}, turnkeeper.CallDenied},
		"denies all other texts": {aRule(func(c policy.Call) policy.Decision {
			if string(c.Arguments) == `{"text":"page ran"}` {
				return policy.Decision{Verdict: policy.Allow}
			}
			return policy.Decision{Verdict: policy.Deny, Reason: "another text"}
		}), turnkeeper.CallSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := payText()
				pay.spec.Approve = "a rule"
				b := newBench(t, asks("page"), asks(withHandle), says("Done.")).with(labelled("page", "page ran",
					policy.Untrusted), pay)
				b.bounds.OutputHandles = true
				record, journal := b.store.dispatch()
				rules := func(cfg *agentturn.Config) {
					cfg.Rules = &policy.Cache{Compiler: func(string) (policy.Rule, error) { return c.rule, nil }}
				}
				if _, err := b.runnerWith(rules).Run(t.Context(), agentturn.Assignment{Record: record,
					Definition: b.def}, journal); err != nil {
					t.Fatal(err)
				}
				ran := map[turnkeeper.CallState]int{turnkeeper.CallSucceeded: 1}[c.want]
				if got := b.states(); !slices.Equal(got, []turnkeeper.CallState{turnkeeper.CallSucceeded, c.want}) ||
					pay.runs.count() != ran {
					t.Errorf("calls %v, %d runs", got, pay.runs.count())
				}
			})
		})
	}
}

// TestAGateStays continues a turn whose worker planned a call that needs an approval, and was lost before it asked. The
// rules of the next worker allow the call, say nothing about it, or deny it.
func TestAGateStays(t *testing.T) {
	for _, rule := range []string{"allow", "nothing", "deny"} {
		synctest.Test(t, func(t *testing.T) {
			pay := once("pay")
			b := newBench(t, says("Done.")).with(pay)
			if rule == "nothing" {
				pay.spec.Approve = "rule"
				b.config = func(cfg *agentturn.Config) {
					cfg.Rules = &policy.Cache{Compiler: func(string) (policy.Rule, error) { return saysNothing{}, nil }}
				}
			}
			_, journal := b.store.dispatch()
			planned := turnlog.Entry{Gates: []turnkeeper.CallKey{keyOf(1)}, Round: &turnkeeper.Round{
				Number: 1, Charged: true, Provider: "main", Model: "model", Attempts: 1, FinishReason: "tool_calls",
				Calls: []turnkeeper.ToolCall{{
					Key: keyOf(1), WireID: "call", Name: "pay", Arguments: `{"n":3}`,
					ArgsHash: tools.Hash("pay", `{"n":3}`),
					Effect:   turnkeeper.EffectOnce, State: turnkeeper.CallPlanned,
				}},
			}}
			if err := journal.Append(t.Context(), planned); err != nil {
				t.Fatal(err)
			}
			if rule == "deny" {
				b.tools = []tools.Tool{approver{pay}}
				b.succeeds("Done.")
				if got := b.states(); got[0] != turnkeeper.CallDenied || len(b.store.asked()) != 0 {
					t.Errorf("calls %v, asks %+v", got, b.store.asked())
				}
				return
			}
			b.waits()
			if all := b.store.asked(); len(all) != 1 || !strings.Contains(all[0].Reason, "they have changed since") {
				t.Errorf("asks %+v", all)
			}
			b.answer(yes)
			b.succeeds("Done.")
			if pay.runs.count() != 1 {
				t.Errorf("%d runs", pay.runs.count())
			}
		})
	}
}

// A saysNothing rule makes no decision, which allows the call.
type saysNothing struct{}

func (saysNothing) Decide(policy.Call) policy.Decision { return policy.Decision{} }

// TestAStartedCallIsNotRuledAgain loses a worker that had started a call without an approval. The tool of the next
// worker denies the call, which may have happened and can be repeated.
func TestAStartedCallIsNotRuledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := newTool("pay", turnkeeper.EffectKeyed)
		b := newBench(t, asks("pay"), says("Done.")).with(pay)
		b.lose(agentturn.PointChecked, 1)
		b.tools = []tools.Tool{denier{pay}}
		b.succeeds("Done.")
		if pay.runs.count() != 1 || b.states()[0] != turnkeeper.CallSucceeded {
			t.Errorf("%d runs, the call is %s", pay.runs.count(), b.states()[0])
		}
	})
}

// TestWhichCallsAreGated checks which calls the plan records as needing an approval.
func TestWhichCallsAreGated(t *testing.T) {
	const rule = "ask about everything"
	for name, c := range map[string]struct {
		rule, call string
		gated      bool
	}{
		"always":                     {policy.Always, `pay {"text":"x"}`, true},
		"always, with a handle":      {policy.Always, withHandle, true},
		"a rule":                     {rule, `pay {"text":"x"}`, true},
		"a rule, with a handle":      {rule, withHandle, false}, // it decides about the text
		"never":                      {policy.Never, `pay {"text":"x"}`, false},
		"a call that is denied":      {policy.Always, `pay {"text":1}`, false},
		"a call that is denied, too": {policy.Always, `sell {"text":"x"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("page"), asks(c.call), says("Done.")).with(read("page"), payText())
				b.def.Approve = map[string]string{"pay": c.rule, "sell": c.rule}
				b.bounds.OutputHandles = true
				b.run(t.Context())
				var gates []turnkeeper.CallKey
				for _, e := range b.store.entries {
					gates = append(gates, e.Gates...)
				}
				if gated := slices.Equal(gates, []turnkeeper.CallKey{{Round: 2, Ordinal: 1}}); gated != c.gated ||
					len(gates) > 1 {
					t.Errorf("gates %v, want one: %v", gates, c.gated)
				}
			})
		})
	}
}

// TestOtherArgumentsThanApproved continues a turn with an approval of other arguments than the call has.
func TestOtherArgumentsThanApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		b := newBench(t, asks("pay"), says("It is not paid.")).with(pay)
		b.waits()
		b.answer(yes)
		record, journal := b.store.dispatch()
		record.Asks[0].Hash = tools.Hash("pay", `{"n":2}`)
		if o, err := b.resume(t.Context(), record, journal); err != nil || o.State != turnkeeper.TurnSucceeded {
			t.Fatalf("the turn ended %+v, %v", o, err)
		}
		if got := results(b.requests()[1]); pay.runs.count() != 0 || !strings.HasPrefix(got[0],
			"denied: the arguments of this call are no longer those that were approved") {
			t.Errorf("the model is shown %q, %d runs", got, pay.runs.count())
		}
	})
}

// TestOtherArgumentsThanStarted does the same after the worker that had started the call was lost: it may have
// happened.
func TestOtherArgumentsThanStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := newTool("pay", turnkeeper.EffectKeyed).needsApproval()
		b := newBench(t, asks("pay"), says("It may be paid.")).with(pay)
		b.waits()
		b.answer(yes)
		b.lose(agentturn.PointChecked, 1)
		record, journal := b.store.dispatch()
		record.Asks[0].Hash = tools.Hash("pay", `{"n":2}`)
		if _, err := b.resume(t.Context(), record, journal); err != nil {
			t.Fatal(err)
		}
		if pay.runs.count() != 0 || b.states()[0] != turnkeeper.CallUnknown {
			t.Errorf("%d runs, the call is %s", pay.runs.count(), b.states()[0])
		}
	})
}

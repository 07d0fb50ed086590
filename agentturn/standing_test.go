package agentturn_test

import (
	"context"
	"encoding/json"
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
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// denials compiles the rules "deny" and "deny five".
func denials(cfg *agentturn.Config) {
	cfg.Rules = &policy.Cache{Compiler: func(source string) (policy.Rule, error) { return denial(source), nil }}
}

type denial string

func (d denial) Decide(call policy.Call) policy.Decision {
	if d == "deny five" && string(call.Arguments) != `{"n":5}` {
		return policy.Decision{Verdict: policy.Allow, Rule: string(d)}
	}
	return policy.Decision{Verdict: policy.Deny, Rule: string(d), Reason: "payments are stopped"}
}

// schemaOf changes the schema of a tool, as another worker with the same tool has it.
func (b *bench) schemaOf(t *tool, schema string) {
	t.spec.Parameters = json.RawMessage(schema)
}

// newestIs changes the agent's file while its turn waits.
func (b *bench) newestIs(change func(*agentdef.Definition)) {
	newest := *b.def
	change(&newest)
	b.newest = &newest
}

const onlyText = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`

// changesSince are what may have changed between an approval and the start. None of the calls may run.
var changesSince = map[string]struct {
	change func(*bench, *tool)
	answer askings.Answer
	shown  string
}{
	"the tool's rule denies": {
		change: func(_ *bench, pay *tool) { pay.spec.Approve = "deny" },
		shown:  "denied: a person allowed this call, but a rule denies it now (payments are stopped). Nothing was run.",
	},
	"the rule of the settings denies": {
		change: func(b *bench, _ *tool) {
			b.config = func(cfg *agentturn.Config) { denials(cfg); cfg.Approve = "deny" }
		},
		shown: "denied: a person allowed this call, but a rule denies it now",
	},
	"the agent's newest rule denies": {
		change: func(b *bench, _ *tool) {
			b.newestIs(func(d *agentdef.Definition) { d.Approve = map[string]string{"pay": "deny"} })
		},
		shown: "denied: a person allowed this call, but a rule denies it now",
	},
	"the agent's newest rule for all tools denies": {
		change: func(b *bench, _ *tool) {
			b.newestIs(func(d *agentdef.Definition) { d.Approve = map[string]string{"*": "deny"} })
		},
		shown: "denied: a person allowed this call, but a rule denies it now",
	},
	"a rule denies what a person changed it to": {
		change: func(_ *bench, pay *tool) { pay.spec.Approve = "deny five" },
		answer: askings.Answer{Decision: askings.Approved, Edited: `{"n":5}`},
		shown:  "denied: a person allowed this call, but a rule denies it now",
	},
	"the tool itself denies": {
		change: func(b *bench, pay *tool) { b.tools[0] = denier{pay} },
		shown:  "denied: a person allowed this call, but a rule denies it now (no more)",
	},
	"the agent's newest definition lacks the tool": {
		change: func(b *bench, _ *tool) { b.newestIs(func(d *agentdef.Definition) { d.Tools = nil }) },
		shown:  "denied: a person allowed this call, but the agent no longer has this tool. Nothing was run.",
	},
	"no worker has the tool": {
		change: func(b *bench, _ *tool) { b.tools = nil },
		shown:  "tool not found: pay\nIt was removed after the call was planned. Nothing was run.",
	},
	"another schema": {
		change: func(b *bench, pay *tool) { b.schemaOf(pay, onlyText) },
		shown:  `denied: a person allowed this call, but its arguments no longer fit the tool: invalid arguments: missing "text"; unexpected "n". `,
	},
	"a schema that wants more": {
		change: func(b *bench, pay *tool) {
			b.schemaOf(pay,
				`{"type":"object","properties":{"n":{"type":"integer"},"to":{"type":"string"}},"required":["n","to"]}`)
		},
		shown: "denied: a person allowed this call, but its arguments no longer fit the tool: ",
	},
	"another schema than a person saw": {
		change: func(b *bench, pay *tool) { b.schemaOf(pay, onlyText) },
		answer: askings.Answer{Decision: askings.Approved, Edited: `{"n":5}`},
		shown:  "denied: a person changed the arguments of this call, but they are invalid: ",
	},
	"arguments of another tool": {
		answer: askings.Answer{Decision: askings.Approved, Edited: `{"text":"all of it"}`},
		shown:  "denied: a person changed the arguments of this call, but they are invalid: ",
	},
	"the agent was retired": {
		change: func(b *bench, _ *tool) { b.retired = true },
		shown:  "denied: a person allowed this call, but the agent was retired since. Nothing was run.",
	},
}

type denier struct{ *tool }

func (denier) Approve(context.Context, tools.Call) (policy.Decision, error) {
	return policy.Decision{Verdict: policy.Deny, Reason: "no more"}, nil
}

func TestWhatHasChangedSinceAnApproval(t *testing.T) {
	for name, c := range changesSince {
		for kind, effect := range map[string]turnkeeper.Effect{"once": turnkeeper.EffectOnce,
			"keyed": turnkeeper.EffectKeyed, "a read": turnkeeper.EffectNone} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pay := newTool("pay", effect).needsApproval()
					b := newBench(t, asks("pay"), says("It is not paid.")).with(pay)
					b.config = denials
					b.waits()
					if c.answer.Decision == "" {
						c.answer = yes
					}
					b.answer(c.answer)
					if c.change != nil {
						c.change(b, pay)
					}
					b.succeeds("It is not paid.")
					if got := b.store.calls()[0].Shown; !strings.HasPrefix(got, c.shown) ||
						b.states()[0] != turnkeeper.CallDenied {
						t.Errorf("the call is %s, and the model is shown %q", b.states()[0], got)
					}
					if n := pay.runs.count(); n != 0 {
						t.Errorf("%d runs", n)
					}
				})
			})
		}
	}
}

// TestWhatMayChangeAfterAnApproval checks that a change that does not concern the call keeps nothing from running.
func TestWhatMayChangeAfterAnApproval(t *testing.T) {
	for name, change := range map[string]func(*bench, *tool){
		"nothing":               func(*bench, *tool) {},
		"the rule asks no more": func(_ *bench, pay *tool) { pay.spec.Approve = policy.Never },
		"the newest rule asks": func(b *bench, _ *tool) {
			b.newestIs(func(d *agentdef.Definition) { d.Approve = map[string]string{"pay": policy.Always} })
		},
		"another prompt": func(b *bench, _ *tool) {
			b.newestIs(func(d *agentdef.Definition) { d.Prompt = "Pay all." })
		},
		"another tool": func(b *bench, _ *tool) {
			b.newestIs(func(d *agentdef.Definition) { d.Tools = append(d.Tools, "more") })
		},
		"a wider schema": func(b *bench, pay *tool) {
			b.schemaOf(pay, `{"type":"object","properties":{"n":{"type":"number"},"to":{"type":"string"}}}`)
		},
		"a rule denies others": func(_ *bench, pay *tool) { pay.spec.Approve = "deny five" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks("pay"), says("Paid.")).with(pay)
				b.config = denials
				b.waits()
				b.answer(yes)
				change(b, pay)
				b.succeeds("Paid.")
				if pay.runs.count() != 1 {
					t.Errorf("%d runs", pay.runs.count())
				}
			})
		})
	}
}

// TestAnApprovedCallWithAHandle checks that a call whose handle stands for more text than arguments may have runs once
// it was approved, and that one that a person edited must fit the tool of now.
func TestAnApprovedCallWithAHandle(t *testing.T) {
	for name, c := range map[string]struct {
		answer askings.Answer
		schema string
		runs   int
	}{
		"as planned": {yes, "", 1},
		"edited":     {askings.Answer{Decision: askings.Approved, Edited: `{"text":"y"}`}, "", 1},
		"edited, for a new schema": {askings.Answer{Decision: askings.Approved, Edited: `{"text":"y"}`},
			`{"type":"object","properties":{"text":{"type":"string","minLength":2}}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				page := read("page").does(func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{Text: strings.Repeat("x", tools.MaxArgumentBytes)}, nil
				})
				pay := payText().needsApproval()
				b := newBench(t, asks("page"), asks(withHandle), says("Done.")).with(page, pay)
				b.bounds.OutputHandles = true
				b.waits()
				b.answer(c.answer)
				if c.schema != "" {
					b.newestIs(func(*agentdef.Definition) {})
					b.schemaOf(pay, c.schema)
				}
				b.succeeds("Done.")
				if pay.runs.count() != c.runs {
					t.Errorf("%d runs; the call is %+v", pay.runs.count(), b.states())
				}
			})
		})
	}
}

// TestAnApprovedSpawnWithAHandle takes the sub-agent from the agent's file between the approval and the start. The
// schema of spawn_agent names the agents.
func TestAnApprovedSpawnWithAHandle(t *testing.T) {
	for name, answer := range map[string]askings.Answer{
		"as planned": yes, "edited": {Decision: askings.Approved, Edited: `{"agent":"scout","task":"find it"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := team(t, asks("page"), asks(charges("scout", "output:1")), says("Done.")).with(read("page"))
				b.def.Approve = map[string]string{turnkeeper.ToolSpawnAgent: policy.Always}
				b.bounds.OutputHandles = true
				b.waits()
				b.answer(answer)
				b.newestIs(func(d *agentdef.Definition) { d.SubAgents = []string{"critic"} })
				b.succeeds("Done.")
				const want = "denied: a person allowed this call, but its arguments no longer fit the tool: "
				if got := b.store.calls()[1].Shown; len(b.store.spawned()) != 0 || !strings.HasPrefix(got, want) {
					t.Errorf("spawned %+v, and the model is shown %q", b.store.spawned(), got)
				}
			})
		})
	}
}

// TestANewerRuleThatAsks checks that of the agent's newest definition only what it denies counts.
func TestANewerRuleThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay")
		b := newBench(t, asks("pay"), says("Paid.")).with(pay)
		b.newestIs(func(d *agentdef.Definition) { d.Approve = map[string]string{"pay": policy.Always} })
		b.succeeds("Paid.")
		if pay.runs.count() != 1 || len(b.store.asked()) != 0 {
			t.Errorf("%d runs, asks %+v", pay.runs.count(), b.store.asked())
		}
	})
}

// TestAKillBetweenApprovalAndChange kills the worker at each point after an approval; then the rule denies. What had
// not started does not start.
func TestAKillBetweenApprovalAndChange(t *testing.T) {
	for _, effect := range []turnkeeper.Effect{turnkeeper.EffectOnce, turnkeeper.EffectKeyed} {
		for _, label := range agentturn.FaultPoints() {
			t.Run(string(effect)+" "+label, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pay := newTool("pay", effect).needsApproval()
					b := newBench(t, asks("pay"), says("Done."), says("Done.")).with(pay)
					b.config = denials
					b.waits()
					b.answer(yes)
					b.dies(label)
					ran := pay.runs.count()
					pay.spec.Approve = "deny"
					if !b.store.turn().State.Terminal() {
						b.run(t.Context())
					}
					if n := pay.runs.count(); n != ran {
						t.Errorf("%d runs before the rule, %d after it", ran, n)
					}
					if state := b.states()[0]; ran == 0 && state != turnkeeper.CallDenied &&
						state != turnkeeper.CallUnknown {
						t.Errorf("the call is %s", state)
					}
				})
			})
		}
	}
}

// dies runs a dispatch that is killed at a point.
func (b *bench) dies(label string) {
	b.fault = &trap{label: label, n: 1, f: func() { runtime.Goexit() }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.dispatch(b.t.Context())
	}()
	<-done
	b.fault = nil
}

// TestApprovedCallsOfABatch approves several calls of an answer together. The rule of now holds for each.
func TestApprovedCallsOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		b := newBench(t, asks(`pay {"n":4}`, `pay {"n":5}`, `pay {"n":6}`), says("Done.")).with(pay)
		b.config = denials
		b.waits()
		for range 3 {
			b.answer(yes)
		}
		pay.spec.Approve = "deny five"
		b.succeeds("Done.")
		if got := pay.arguments(); !slices.Equal(got, []string{`{"n":4}`, `{"n":6}`}) {
			t.Errorf("it ran with %q", got)
		}
		if got := b.states(); !slices.Equal(got, []turnkeeper.CallState{"succeeded", "denied", "succeeded"}) {
			t.Errorf("calls %v", got)
		}
	})
}

// TestACallThatDidNotHappenIsDeniedNow lets a person say that a call did not happen, and denies it since.
func TestACallThatDidNotHappenIsDeniedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay")
		pay.does(func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{}, tools.ErrInDoubt })
		b := newBench(t, asks("pay"), says("Not paid.")).with(pay)
		b.config, b.def.OnUnknown = denials, "ask"
		b.waits()
		b.answer(askings.Answer{Decision: askings.Answered, Answer: askings.DidNotHappen})
		pay.spec.Approve = "deny"
		b.run(t.Context())
		if got := results(b.requests()[1])[0]; pay.runs.count() != 1 || b.states()[0] != turnkeeper.CallFailed ||
			!strings.HasPrefix(got, "denied: a person allowed this call, but a rule denies it now") {
			t.Errorf("%d runs, the call is %s, and the model is shown %q", pay.runs.count(), b.states()[0], got)
		}
	})
}

// TestWaysPastAnApproval are answers that approve nothing.
func TestWaysPastAnApproval(t *testing.T) {
	refused := func(b *bench, a askings.Answer, want error) {
		b.t.Helper()
		if a.By == "" {
			a.By = "ann"
		}
		if _, err := b.store.conn.AnswerAsk(b.t.Context(), b.store.asked()[0].ID, a); !errors.Is(err, want) {
			b.t.Errorf("%+v is answered %v, want %v", a, err, want)
		}
	}
	for name, answer := range map[string]func(*bench){
		"an approval after a denial": func(b *bench) {
			b.answer(no)
			refused(b, yes, askings.ErrClosed)
			refused(b, askings.Answer{Decision: askings.Approved, By: "bob"}, askings.ErrClosed)
		},
		"an approval after the time": func(b *bench) {
			b.expireAll()
			refused(b, yes, askings.ErrClosed)
		},
		"an answer that is no approval": func(b *bench) {
			refused(b, askings.Answer{Decision: askings.Answered, Answer: `"approved"`}, askings.ErrInvalid)
			b.answer(no)
		},
		"an approval of other arguments than were shown": func(b *bench) {
			refused(b, askings.Answer{Decision: askings.Approved, Hash: tools.Hash("pay", `{"n":2}`)},
				askings.ErrInvalid)
			b.answer(no)
		},
		"nobody": func(b *bench) {
			refused(b, askings.Answer{Decision: askings.Approved, By: " "}, askings.ErrInvalid)
			b.answer(no)
		},
		"somebody outside of the audience": func(b *bench) {
			refused(b, askings.Answer{Decision: askings.Approved, By: "eve"}, askings.ErrInvalid)
			b.answer(no)
		},
		"a changed answer with other arguments": func(b *bench) {
			b.answer(no)
			refused(b, askings.Answer{Decision: askings.Approved, Edited: `{"n":5}`}, askings.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks("pay"), says("Not paid.")).with(pay)
				b.def.Audience = []string{"ann", "bob"}
				b.waits()
				answer(b)
				b.succeeds("Not paid.")
				if pay.runs.count() != 0 || b.states()[0] != turnkeeper.CallDenied {
					t.Errorf("%d runs, calls %v", pay.runs.count(), b.states())
				}
			})
		})
	}
}

// expireAll lets the time of the open asks pass.
func (b *bench) expireAll() {
	time.Sleep(askings.DefaultTimeout)
	b.store.expire()
}

// TestAnApprovalIsOfOneCall checks that approving a call does not approve an equal call of the next round.
func TestAnApprovalIsOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		allow := tools.RepeatAllow
		pay.spec.Repeat = allow
		b := newBench(t, asks(`pay {"n":1}`), asks(`pay {"n":1}`), says("Paid once.")).with(pay)
		b.waits()
		b.answer(yes)
		b.waits()
		b.answer(no)
		b.succeeds("Paid once.")
		if pay.runs.count() != 1 || len(b.store.asked()) != 2 {
			t.Errorf("%d runs, %d asks", pay.runs.count(), len(b.store.asked()))
		}
	})
}

// TestAnApprovalThatIsNotInTheJournal lets the worker believe in an approval that the journal does not have: the call
// does not start.
func TestAnApprovalThatIsNotInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := once("pay").needsApproval()
		b := newBench(t, asks("pay"), says("Not paid.")).with(pay)
		b.config = denials
		b.waits()
		b.answer(askings.Answer{Decision: askings.Denied, Comment: "no"})
		record, journal := b.store.dispatch()
		record.Asks[0].State = askings.Approved // the journal says denied
		outcome, err := b.resume(t.Context(), record, journal)
		if !errors.Is(err, askings.ErrNotApproved) || pay.runs.count() != 0 {
			t.Errorf("the turn ended %+v, %v, %d runs", outcome, err, pay.runs.count())
		}
	})
}

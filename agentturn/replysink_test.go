package agentturn_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

const withheld = "The answer was withheld, because it may hold private content."

// sinkBench returns a bench whose model reads a private text, and then answers with it.
func sinkBench(t *testing.T, sink string, more ...inferencetest.Step) *bench {
	b := newBench(t, append([]inferencetest.Step{asks("secret"), says("It is 4711.")}, more...)...).
		with(labelled("secret", "4711", policy.Private), labelled("page", "p", policy.Untrusted))
	b.def.ReplySink = sink
	return b
}

// wantReply checks the only reply of the message.
func (b *bench) wantReply(o turnlog.Outcome, state turnkeeper.TurnState, stop turnkeeper.StopReason, text string) {
	b.t.Helper()
	if o.State != state || o.StopReason != stop || o.Reply != text {
		b.t.Errorf("the turn ended %s, %s with %q, want %s, %s with %q", o.State, o.StopReason, o.Reply,
			state, stop, text)
	}
}

// TestTheReplyIsASink checks which replies may be sent.
func TestTheReplyIsASink(t *testing.T) {
	for name, c := range map[string]struct {
		sink   string
		change func(b *bench)
		state  turnkeeper.TurnState
		stop   turnkeeper.StopReason
		reply  string
	}{
		"allowed":           {policy.ReplyAllow, nil, turnkeeper.TurnSucceeded, turnkeeper.StopNone, "It is 4711."},
		"allowed by nobody": {"", nil, turnkeeper.TurnSucceeded, turnkeeper.StopNone, "It is 4711."},
		"withheld":          {policy.ReplyWithhold, nil, turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
		"without the label": {policy.ReplyWithhold, func(b *bench) {
			b.restart(asks("page"), says("It says p."))
		}, turnkeeper.TurnSucceeded, turnkeeper.StopNone, "It says p."},
		"private message": {policy.ReplyWithhold, func(b *bench) {
			b.def.InboxLabels = []string{"private"}
			b.restart(says("You said 4711."))
		},
			turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
		"a summary of the calls": {policy.ReplyWithhold, func(b *bench) {
			b.bounds.MaxRounds = 1
		}, turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
		"the agent's own text": {policy.ReplyWithhold, func(b *bench) {
			b.bounds.MaxRounds, b.def.Replies.OnDegraded = 1, "Sorry."
		},
			turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds, "Sorry."},
		"a schedule's reply": {policy.ReplyWithhold, func(b *bench) { b.store.trigger = turnkeeper.TriggerSchedule },
			turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
		"a schedule without an answer": {policy.ReplyWithhold, func(b *bench) {
			b.bounds.MaxRounds, b.store.trigger = 1, turnkeeper.TriggerSchedule
		},
			turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds, ""},
		"a schedule with nothing to report": {policy.ReplyWithhold, func(b *bench) {
			b.store.trigger, b.def.QuietReply = turnkeeper.TriggerSchedule, "it is 4711"
		}, turnkeeper.TurnSucceeded, turnkeeper.StopNone, ""},
		"a message's quiet reply": {policy.ReplyWithhold, func(b *bench) { b.def.QuietReply = "it is 4711" },
			turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
		// a retry follows, and may succeed: ask only about the last attempt
		"a model that fails": {policy.ReplyAsk, func(b *bench) {
			b.with(sink("send", policy.Flow{Labels: []policy.Label{policy.Private}}))
			b.restart(asks("send"), fails(inference.ClassAuth))
		}, turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := sinkBench(t, c.sink)
				if c.change != nil {
					c.change(b)
				}
				b.wantReply(b.run(t.Context()), c.state, c.stop, c.reply)
				if all := b.store.asked(); len(all) != 0 {
					t.Errorf("asks %+v", all)
				}
			})
		})
	}
}

// TestAFixedReplyIsSent checks the reply of a turn that was cancelled after it had read a private text.
func TestAFixedReplyIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sinkBench(t, policy.ReplyWithhold).with(once("hang").does(hangs))
		b.restart(asks("secret"), asks("hang"))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(agentturn.ErrCancelled) })
		b.wantReply(b.run(ctx), turnkeeper.TurnCancelled, turnkeeper.StopCancelled, "This turn was cancelled.")
	})
}

// TestAReplyThatChangesIsAskedAboutAgain changes the text of a reply after its approval.
func TestAReplyThatChangesIsAskedAboutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sinkBench(t, policy.ReplyAsk)
		b.bounds.MaxRounds = 1
		b.waits()
		b.answer(askings.Answer{Decision: askings.Approved})
		b.def.Replies.SummaryOutput = true
		b.waits()
		all := b.store.asked()
		if len(all) != 2 || all[1].N != 2 || all[1].Arguments == all[0].Arguments ||
			!strings.Contains(all[1].Arguments, "4711") {
			t.Fatalf("asks %+v", all)
		}
		b.answer(askings.Answer{Decision: askings.Approved})
		b.wantReply(b.run(t.Context()), turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds,
			"Tool results: 1 succeeded, 0 failed.\n- secret: 4711")
	})
}

// restart gives the model other steps.
func (b *bench) restart(steps ...inferencetest.Step) {
	b.script = inferencetest.NewScript(steps...)
	b.models["main/model"] = b.script
}

// TestASettingMakesTheReplyASink checks the setting, and that the agent's file has precedence over it.
func TestASettingMakesTheReplyASink(t *testing.T) {
	for own, want := range map[string]string{"": withheld, policy.ReplyAllow: "It is 4711."} {
		synctest.Test(t, func(t *testing.T) {
			b := sinkBench(t, own)
			record, journal := b.store.dispatch()
			runner := b.runnerWith(func(c *agentturn.Config) { c.ReplySink = policy.ReplyWithhold })
			o, err := runner.Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def}, journal)
			if err != nil || o.Reply != want {
				t.Errorf("%q: %q, %v", own, o.Reply, err)
			}
			if guarded := b.guarded(); guarded != (want == withheld) {
				t.Errorf("%q: the streamed text is marked as guarded: %t", own, guarded)
			}
		})
	}
}

// guarded reports whether all streamed text is marked as guarded.
func (b *bench) guarded() bool {
	b.t.Helper()
	texts, marked := 0, 0
	for _, e := range b.store.events() {
		if strings.Contains(string(e.Data), `"text":"It is 4711."`) {
			texts++
			if strings.Contains(string(e.Data), `"guarded":true`) {
				marked++
			}
		}
	}
	if texts == 0 {
		b.t.Error("no text was streamed")
	}
	return marked == texts
}

// TestTheReplyOfASubAgentIsNoSink checks that a parent gets it.
func TestTheReplyOfASubAgentIsNoSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sinkBench(t, policy.ReplyWithhold)
		record, journal := b.store.dispatch()
		record.Lineage.Parent = 9
		o, err := b.runner().Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def}, journal)
		if err != nil || o.Reply != "It is 4711." {
			t.Errorf("%q, %v", o.Reply, err)
		}
	})
}

// TestAPersonApprovesAReply checks what each answer leads to, and that the model is not asked again.
func TestAPersonApprovesAReply(t *testing.T) {
	for name, c := range map[string]struct {
		answer askings.State
		state  turnkeeper.TurnState
		stop   turnkeeper.StopReason
		reply  string
	}{
		"approved": {askings.Approved, turnkeeper.TurnSucceeded, turnkeeper.StopNone, "It is 4711."},
		"denied":   {askings.Denied, turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
		"expired":  {"", turnkeeper.TurnDegraded, turnkeeper.StopWithheld, withheld},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := sinkBench(t, policy.ReplyAsk)
				b.def.AskTimeout = time.Minute
				b.waits()
				all := b.store.asked()
				if len(all) != 1 || all[0].Kind != askings.KindReply || all[0].Arguments != `{"text":"It is 4711."}` ||
					all[0].Call != (turnkeeper.CallKey{Round: 2}) ||
					!strings.Contains(all[0].Reason, "private content from the result of secret") {
					t.Fatalf("asks %+v", all)
				}
				if c.answer != "" {
					b.answer(askings.Answer{Decision: c.answer})
				} else {
					time.Sleep(2 * time.Minute)
					b.store.expire()
				}
				b.wantReply(b.run(t.Context()), c.state, c.stop, c.reply)
				if n := len(b.requests()); n != 2 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// TestAReplyThatWaitsSurvivesALostWorker loses a worker before and after each write, and expects one ask and one reply.
func TestAReplyThatWaitsSurvivesALostWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sinkBench(t, policy.ReplyAsk)
		b.def.Durability = "step" // what was read is on record when the worker is lost
		b.before = func(e turnlog.Entry) error {
			if len(e.Asks) > 0 {
				return turnkeeper.ErrFenced
			}
			return nil
		}
		if _, err := b.dispatch(t.Context()); err == nil {
			t.Fatal("the worker was not lost")
		}
		b.before = nil
		b.restart(says("It is 4711."))
		b.waits()
		b.answer(askings.Answer{Decision: askings.Approved})
		b.before = func(e turnlog.Entry) error {
			if e.Outcome != nil {
				return turnkeeper.ErrFenced
			}
			return nil
		}
		if _, err := b.dispatch(t.Context()); err == nil {
			t.Fatal("the worker was not lost")
		}
		b.before = nil
		b.wantReply(b.run(t.Context()), turnkeeper.TurnSucceeded, turnkeeper.StopNone, "It is 4711.")
		if all := b.store.asked(); len(all) != 1 {
			t.Errorf("asks %+v", all)
		}
	})
}

// TestAReplyIsAskedAboutOnce resumes a turn because a detached call has ended, while the ask about its reply is still
// open. The turn must not ask again or send the reply.
func TestAReplyIsAskedAboutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := read("look")
		look.spec.Flow.Labels = []policy.Label{policy.Private}
		b := newBench(t, asks("remote", "look"), says("It is a secret.")).with(far("remote", turnkeeper.EffectNone),
			look)
		b.def.ReplySink = policy.ReplyAsk
		b.waits()
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		b.waits()
		all := b.store.asked()
		if len(all) != 1 || all[0].Kind != askings.KindReply || all[0].Closed() ||
			b.states()[0] != turnkeeper.CallSucceeded {
			t.Errorf("the asks are %+v, the calls %v", all, b.states())
		}
		b.answer(yes)
		b.succeeds("It is a secret.")
	})
}

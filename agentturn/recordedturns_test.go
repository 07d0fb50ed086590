package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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

// A recordedTurn is a turn that is recorded: how it begins, and what happens to it.
type recordedTurn struct {
	begin func(t *testing.T) *bench
	play  func(b *bench)
}

// atOnce are turns that do several things at the same time, in any order.
var atOnce = []string{"a search"}

// runs plays dispatches until the turn has ended or is put off. Before each but the first it gives the next answer to
// an open ask, if there is one left.
func runs(answers ...askings.Answer) func(*bench) {
	return func(b *bench) {
		for n := range 5 {
			if 0 < n && n <= len(answers) {
				b.answer(answers[n-1])
			}
			if o := b.run(b.t.Context()); o.State.Terminal() || o.State == turnkeeper.TurnQueued {
				return
			}
			time.Sleep(time.Hour)
		}
	}
}

// steps returns a bench whose model takes the steps.
func steps(change func(*bench), steps ...inferencetest.Step) func(*testing.T) *bench {
	return func(t *testing.T) *bench {
		b := newBench(t, steps...)
		if change != nil {
			change(b)
		}
		return b
	}
}

// troupe returns tools of each effect and outcome, of which no two take equally long.
func troupe(b *bench) []tools.Tool {
	note := once("note").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
		return tools.Result{Text: "noted"}, b.store.notes(ctx, call.Key.String())
	})
	note.spec.Transactional = true
	broken := read("broken").does(func(context.Context, tools.Call) (tools.Result, error) {
		time.Sleep(40 * time.Millisecond)
		return tools.Result{Text: "it is broken", IsError: true}, nil
	})
	doubt := once("doubt").does(func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{}, fmt.Errorf("no answer: %w", tools.ErrInDoubt)
	})
	return []tools.Tool{
		lasting("look", turnkeeper.EffectNone, 25*time.Millisecond),
		lasting("put", turnkeeper.EffectKeyed, 30*time.Millisecond),
		lasting("send", turnkeeper.EffectOnce, 50*time.Millisecond), note, broken, doubt,
	}
}

func withTroupe(b *bench) { b.with(troupe(b)...) }

// cancelledAfter plays one dispatch whose context ends with a cause after a while.
func cancelledAfter(d time.Duration, cause error) func(*bench) {
	return func(b *bench) {
		ctx, cancel := context.WithCancelCause(b.t.Context())
		time.AfterFunc(d, func() { cancel(cause) })
		_, err := b.dispatch(ctx)
		b.check()
		if err != nil && !errors.Is(err, cause) {
			b.t.Error(err)
		}
	}
}

var used = turnkeeper.Usage{InputTokens: 11, OutputTokens: 12, CachedTokens: 3, CacheWriteTokens: 4, ReasoningTokens: 5}

var recordedTurns = map[string]recordedTurn{
	"an answer": {steps(nil, inferencetest.Answer(inference.Response{Text: "Hello to you.", Reasoning: "Be kind.",
		FinishReason: "stop", Raw: []byte(`{"raw":1}`), Usage: used})), runs()},
	"calls of each kind": {steps(withTroupe, asks("look", "put", "send", "note"), asks("broken", "look", "nobody",
		`look {"x":1}`), says("Done.")), runs()},
	"a call in doubt": {steps(withTroupe, asks("doubt", "look"), says("Perhaps.")), runs()},
	"a repeated call": {steps(withTroupe, asks(`send {"n":1}`), asks(`send {"n":1}`), says("Done.")), runs()},
	"a text before calls": {steps(withTroupe, inferencetest.Answer(asking("Let me see.", "look")),
		says("Done.")), runs()},
	"an empty answer": {steps(nil, says("")), runs()},
	"an answer that was cut": {steps(nil, inferencetest.Answer(inference.Response{Text: "It is", FinishReason: "length",
		Usage: used})), runs()},
	"a failed request": {steps(nil, inferencetest.FailAfter(inference.Response{Text: "half an answer", Usage: used},
		&inference.Error{Class: inference.ClassTransport, Provider: "main", Model: "model", Usage: used}),
		says("Done.")), runs()},
	"a fallback": {steps(func(b *bench) {
		b.def.FallbackModels = []string{"nobody/here", "other/big"}
		b.models["other/big"] = inferencetest.NewScript(says("I am another."))
	}, fails(inference.ClassAuth)), runs()},
	"an outage": {steps(nil, repeat(9, fails(inference.ClassOverloaded))...), runs()},
	"an outage after an effect": {steps(func(b *bench) {
		withTroupe(b)
		b.wall = 30 * time.Second
	}, append([]inferencetest.Step{asks("send")}, repeat(99, fails(inference.ClassOverloaded))...)...), runs()},
	"a model in doubt": {func(t *testing.T) *bench {
		return newBench(t, inferencetest.Answer(inference.Response{Text: "ok", FinishReason: "stop", Usage: used}),
			says("Done.")).inDoubt()
	}, runs()},
	"a model in doubt that is down": {func(t *testing.T) *bench {
		return newBench(t, repeat(9, fails(inference.ClassOverloaded))...).inDoubt()
	}, runs()},
	"a message at fault": {steps(nil, repeat(9, fails(inference.ClassInvalid))...), runs()},
	"no budget today": {steps(func(b *bench) {
		withTroupe(b)
		b.budget = &till{n: 1, block: agentturn.Reservation{Blocked: true, Scope: "day", Retry: 3 * time.Hour,
			Reason: "the day is spent"}}
		b.def.Budget = agentdef.Budget{TurnTokens: 3, TurnCalls: 4, DayTokens: 5, DayCalls: 6,
			TreeTokens: 7, TreeCalls: 8}
	}, asks("look"), says("Done.")), runs()},
	"no budget for the turn": {steps(func(b *bench) {
		withTroupe(b)
		b.budget = &till{n: 1, block: agentturn.Reservation{Blocked: true, Scope: "turn", Reason: "the turn is spent"}}
	}, asks("send"), says("Done.")), runs()},
	"a budget that a person extends": {steps(func(b *bench) {
		withTroupe(b)
		b.budget = &till{n: 1, block: agentturn.Reservation{Blocked: true, Scope: "turn", Reason: "the turn is spent"}}
		b.def.Budget = agentdef.Budget{TurnTokens: 3, OnLimit: "ask"}
	}, asks("send"), says("Done.")), runs(yes, no)},
	"the last round": {steps(func(b *bench) {
		withTroupe(b)
		b.bounds.MaxRounds = 2
	}, repeat(3, asks("look"))...), runs()},
	"too many calls": {steps(func(b *bench) {
		withTroupe(b)
		b.bounds.MaxToolCalls = 2
	}, asks("look", "put", "send"), says("Done.")), runs()},
	"an approval": {steps(func(b *bench) {
		b.with(once("pay").needsApproval(), read("look"))
	}, asks("pay", "look"), says("Paid.")), runs(askings.Answer{Decision: askings.Approved, Comment: "if you must"})},
	"an edited approval": {steps(func(b *bench) { b.with(once("pay").needsApproval()) }, asks("pay"), says("Paid.")),
		runs(askings.Answer{Decision: askings.Approved, Edited: `{"n":7}`})},
	"a denial": {steps(func(b *bench) { b.with(once("pay").needsApproval()) }, asks("pay"), says("Not paid.")),
		runs(askings.Answer{Decision: askings.Denied, Comment: "too much"})},
	"nobody approves": {steps(func(b *bench) { b.with(once("pay").needsApproval()) }, asks("pay"), says("Not paid.")),
		func(b *bench) {
			b.waits()
			time.Sleep(askings.DefaultTimeout)
			b.store.expire()
			runs()(b)
		}},
	"a question": {steps(func(b *bench) {
		b.tools, b.def.Tools = append(b.tools, builtin.NewAskPerson()), append(b.def.Tools, "ask_person")
	}, asks(`ask_person {"options":["blue","red"],"question":"Which colour?"}`), says("Thanks.")),
		runs(askings.Answer{Decision: askings.Answered, Answer: `"blue"`})},
	"input for a call": {steps(func(b *bench) {
		b.with(newTool("book", turnkeeper.EffectOnce).asksFor(2))
	}, asks("book"),
		says("Booked.")), runs(seat(1), seat(2))},
	"an outcome that a person settles": {steps(func(b *bench) {
		withTroupe(b)
		b.def.OnUnknown = "ask"
	}, asks("doubt"), says("Done.")), runs(askings.Answer{Decision: askings.Answered, Answer: askings.Happened})},
	"a lost worker": {steps(withTroupe, asks("send", "put", "look"), says("Done.")), func(b *bench) {
		b.lose(agentturn.PointEffectDone, 1)
		runs()(b)
	}},
	"a detached call": {steps(func(b *bench) { b.with(far("remote", turnkeeper.EffectOnce)) }, asks("remote"),
		says("Done.")), func(b *bench) {
		b.waits()
		b.store.arrive(farKey, turnkeeper.CallFailed, "forty-two")
		runs()(b)
	}},
	"a call in the background": {func(t *testing.T) *bench {
		b := asyncBench(t, asks("fetcher", "quick"), asks("wait_for_tool_output {}"), says("Done."))
		return b.with(lasting("fetcher", turnkeeper.EffectNone, 12300*time.Millisecond),
			lasting("quick", turnkeeper.EffectNone, 10*time.Millisecond))
	}, runs()},
	"a sub-agent": {func(t *testing.T) *bench {
		return team(t, asks(charges("scout", "find it"), charges("nobody", "find it"), charges("critic", "read it")),
			says("Here."))
	}, func(b *bench) {
		b.waits()
		b.store.reply(keyOf(1), good("under the stone"))
		b.store.reply(keyOf(3), turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Reply: "It failed."})
		runs()(b)
	}},
	"no more sub-agents": {func(t *testing.T) *bench {
		b := team(t, asks(charges("scout", "one"), charges("scout", "two")), says("Here."))
		b.bounds.MaxSubAgents = 1
		return b
	}, func(b *bench) {
		b.waits()
		b.store.reply(keyOf(1), good("found"))
		runs()(b)
	}},
	"a summary": {func(t *testing.T) *bench {
		return talk(t, 12, summarises("They spoke of long words."), says("Done."))
	}, runs()},
	"a summary that fails": {func(t *testing.T) *bench {
		return talk(t, 12, fails(inference.ClassInvalid), says("Done."))
	}, runs()},
	"a search that is stored for another text": {func(t *testing.T) *bench {
		b := extractBench(t, &extractor{}, "which facts?")
		b.windows["aux/x"] = 128_000 // all in one request
		b.extracted = staleCache{}
		return b
	}, runs()},
	"a search": {func(t *testing.T) *bench {
		return extractBench(t, &extractor{takes: 70 * time.Millisecond}, "which facts?")
	}, runs()},
	"a tool that asks a model": {steps(func(b *bench) {
		b.with(sampling(question("moon"), func(tools.Sampled, error) { time.Sleep(10 * time.Millisecond) }))
	}, asks("asker"),
		says("June."), says("Done.")), runs()},
	"a turn that finishes": {func(t *testing.T) *bench {
		b := finishing(t, asks("slow", "send"), says("What I have."))
		return b.with(finishes(b, "slow", turnkeeper.EffectNone), once("send"))
	}, runs()},
	"a turn that finishes while it asks": {func(t *testing.T) *bench {
		b := finishing(t, asks("slow", "pay", "rent"), says("What I have."))
		b.bounds.AsyncTimeout = 500 * time.Millisecond
		return b.with(finishes(b, "slow", turnkeeper.EffectNone), once("pay").needsApproval(),
			once("rent").needsApproval())
	}, runs()},
	"a cancelled turn": {steps(func(b *bench) {
		b.with(once("hang").does(hangs))
	}, inferencetest.Answer(asking("On it.", "hang"))), cancelledAfter(5*time.Second, agentturn.ErrCancelled)},
	"a shutdown": {steps(func(b *bench) {
		b.with(lasting("slow", turnkeeper.EffectNone, time.Minute))
	}, asks("slow")), cancelledAfter(5*time.Second, agentturn.ErrShutdown)},
	"a lost lease": {steps(func(b *bench) {
		b.with(lasting("slow", turnkeeper.EffectNone, time.Minute))
	}, asks("slow")), cancelledAfter(5*time.Second, turnkeeper.ErrFenced)},
	"no time left": {steps(func(b *bench) {
		b.with(once("send"), lasting("slow", turnkeeper.EffectNone, time.Hour))
		b.wall = time.Minute
	}, asks("send", "slow"), says("Done.")), runs()},
	"a scheduled turn": {steps(func(b *bench) {
		withTroupe(b)
		b.store.trigger = turnkeeper.TriggerSchedule
	}, asks("look"), says("All is quiet.")), runs()},
	"a reply that is withheld": {func(t *testing.T) *bench {
		return sinkBench(t, policy.ReplyWithhold)
	}, runs()},
	"a reply that a person sends": {func(t *testing.T) *bench {
		return sinkBench(t, policy.ReplyAsk)
	}, runs(yes)},
}

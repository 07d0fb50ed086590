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
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
)

func TestModelFailsBeforeAnyTool(t *testing.T) {
	tests := []struct {
		name   string
		class  inference.Class
		faults int           // earlier attempts that counted
		waited time.Duration // time since the message was accepted
		denied bool          // an earlier round has a call that did not run
		want   turnlog.Outcome
	}{
		{"bad key", inference.ClassAuth, 9, 0, false,
			turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "auth",
				Retry: true, WaitsFor: []string{"main/model"}, Backoff: 2 * time.Second}},
		{"refused after a call that was denied", inference.ClassInvalid, 0, 0, true,
			turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
				ErrorClass: "invalid", Counted: true,
				Reply: "This message could not be answered: the model does not take it as it is; the operator was told."}},
		{"unusable answers", inference.ClassBadOutput, 1, 0, false,
			turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
				ErrorClass: "bad_output",
				Retry:      true, Counted: true, Backoff: 4 * time.Second}},
		{"unusable answers for the third time", inference.ClassBadOutput, 2, 0, false,
			turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
				ErrorClass: "bad_output", Counted: true,
				Reply: "This message could not be answered: the model gave no usable answer; please send it again."}},
		{"given up", inference.ClassTransport, 0, 24 * time.Hour, false,
			turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
				ErrorClass: "transport",
				Reply:      "This message could not be answered: the model could not be reached; please send it again later."}},
		{"given up, bad key", inference.ClassAuth, 0, 24 * time.Hour, false,
			turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "auth",
				Reply: "This message could not be answered: the model is not available at present; the operator was told."}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t).with(read("look"))
				if test.denied {
					b.script.Add(asks("nothing"))
				}
				b.script.Then(fails(test.class))
				b.store.faults, b.store.waited = test.faults, test.waited
				got := b.run(t.Context())
				if !strings.Contains(got.Error, "as scripted") {
					t.Errorf("operators are told %q", got.Error)
				}
				got.Error = ""
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
				if types := b.eventTypes(); types[len(types)-1] != "turn_error" {
					t.Errorf("events %v", types)
				}
			})
		})
	}
}

func TestModelFailsAfterATool(t *testing.T) {
	tests := []struct {
		name  string
		text  string
		fault inferencetest.Step
		class string
		reply string
	}{
		{"summary", "", fails(inference.ClassAuth), "auth", "Tool results: 1 succeeded, 0 failed.\n- send: succeeded"},
		{"text before the tool", "I send it.", fails(inference.ClassOverloaded), "overloaded",
			"Tool results: 1 succeeded, 0 failed.\n- send: succeeded"},
		{"silence", "", says(""), "bad_output", "Tool results: 1 succeeded, 0 failed.\n- send: succeeded"},
		{"panic", "", inferencetest.Func(func(context.Context, inference.Request,
			func(inference.Delta)) (inference.Response, error) {
			panic("provider bug")
		}), "internal", "Tool results: 1 succeeded, 0 failed.\n- send: succeeded"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := once("send")
				b := newBench(t, inferStep(asking(test.text, "send"))).with(send)
				b.script.Then(test.fault)
				got := b.run(t.Context())
				if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopInferenceError ||
					got.Retry || got.ErrorClass != test.class || got.Reply != test.reply {
					t.Errorf("%+v", got)
				}
				if send.runs.count() != 1 {
					t.Errorf("%d runs", send.runs.count())
				}
			})
		})
	}
}

func TestTransientFailuresAreRetriedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fails(inference.ClassOverloaded), fails(inference.ClassRateLimited), says("hello"))
		if got := b.run(t.Context()); got.Reply != "hello" {
			t.Errorf("%+v", got)
		}
		if b.store.rounds()[0].Attempts != 3 || len(b.store.rounds()) != 1 {
			t.Errorf("%+v", b.store.rounds())
		}
	})
}

func TestFallbackModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := inferencetest.NewScript(says("from the second"))
		b := newBench(t, fails(inference.ClassAuth))
		b.models["other/big"] = second
		b.def.FallbackModels = []string{"nobody/configured", "other/big"}
		got := b.run(t.Context())
		if got.Reply != "from the second" {
			t.Errorf("%+v", got)
		}
		if r := b.store.rounds()[0]; r.Provider != "other" || r.Model != "big" || second.Requests()[0].Model != "big" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("the default model", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.def.Model = ""
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || !strings.Contains(got.Error,
				"the agent has no model and there is no default") {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("a request too long for the first fits the second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			second := inferencetest.NewScript(says("read it all"))
			b.models["other/big"] = second
			b.windows["main/model"], b.windows["other/big"] = 1000, 100_000
			b.def.FallbackModels = []string{"other/big"}
			b.store.body = strings.Repeat("word ", 2000)
			got := b.run(t.Context())
			if got.Reply != "read it all" || len(b.script.Requests()) != 0 {
				t.Errorf("%+v", got)
			}
		})
	})
}

func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, inferStep(inference.Response{Text: "unmetered"}))
		b.run(t.Context())
		if u := b.store.rounds()[0].Usage; !u.Estimated || u.InputTokens < 10 || u.OutputTokens < 1 {
			t.Errorf("%+v", u)
		}
	})
	t.Run("of an answer alone counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferStep(inference.Response{Text: "yes", Usage: turnkeeper.Usage{OutputTokens: 5}}))
			b.run(t.Context())
			if u := b.store.rounds()[0].Usage; u != (turnkeeper.Usage{OutputTokens: 5}) {
				t.Errorf("%+v", u)
			}
		})
	})
	t.Run("of failed attempts counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferencetest.Fail(&inference.Error{Class: inference.ClassTransport,
				Usage: turnkeeper.Usage{InputTokens: 100}}), says("hello"))
			b.run(t.Context())
			if u := b.store.turn().Usage; u.InputTokens != 110 || u.Estimated ||
				b.store.rounds()[0].Usage.InputTokens != 10 {
				t.Errorf("the turn took %+v, its round %+v", u, b.store.rounds()[0].Usage)
			}
		})
	})
	transport := &inference.Error{Class: inference.ClassTransport, Detail: "cut"}
	streams := func(err error) inferencetest.Step {
		return inferencetest.Func(func(ctx context.Context, _ inference.Request,
			onDelta func(inference.Delta)) (inference.Response, error) {
			onDelta(inference.Delta{Kind: inference.DeltaThinking, Text: "I should say half."})
			onDelta(inference.Delta{Kind: inference.DeltaText, Text: strings.Repeat("half a sentence ", 1000)})
			onDelta(inference.Delta{Kind: inference.DeltaTool, Name: "put", Text: `{"n":`})
			if err != nil {
				return inference.Response{}, err
			}
			<-ctx.Done()
			return inference.Response{}, context.Cause(ctx)
		})
	}
	for name, c := range map[string]struct {
		step   inferencetest.Step
		class  string
		worked bool // the model did work, so its usage is estimated
		said   bool
	}{
		"a stream that is cut": {streams(transport), "transport", true, true},
		"a stream that the provider ends": {streams(&inference.Error{Class: inference.ClassOverloaded, Status: 200}),
			"overloaded", true, true},
		"a stream that outlasts the turn": {streams(nil), "interrupted", true, true},
		"an answer that does not come":    {inferencetest.Fail(transport), "transport", true, false},
		"a request that was not sent": {inferencetest.Fail(&inference.Error{Class: inference.ClassTransport,
			Unsent: true}), "transport", false, false},
		"a refusal": {inferencetest.Fail(&inference.Error{Class: inference.ClassRateLimited,
			Status: 429}), "rate_limited", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, slowly(c.step), says("hello"))
				b.run(t.Context())
				if len(b.store.failed()) != 1 {
					t.Fatalf("%d failed attempts are kept", len(b.store.failed()))
				}
				f := b.store.failed()[0]
				if f.Latency < time.Second {
					t.Errorf("it took %s", f.Latency)
				}
				if f.Round != 1 || f.Attempt != 1 || f.Class != c.class || f.Usage.Estimated != c.worked ||
					(f.Usage.InputTokens > 0) != c.worked {
					t.Errorf("%+v", f)
				}
				if c.said && (f.Usage.OutputTokens < 4000 || len(f.Text) > 9000 || !strings.HasPrefix(f.Text,
					"half a sentence half") ||
					!strings.HasSuffix(f.Text, `[call of put] {"n":`) || f.Reasoning != "I should say half.") {
					t.Errorf("%+v", f)
				}
				for _, text := range []string{b.store.turn().InnerDialogue,
					b.store.outcomes()[len(b.store.outcomes())-1].Reply} {
					if strings.Contains(text, "half a sentence") {
						t.Errorf("%q was told", text)
					}
				}
			})
		})
	}
}

func TestPanicsOfTheLoop(t *testing.T) {
	for _, point := range []struct {
		label string
		state turnkeeper.TurnState
		calls []turnkeeper.CallState
	}{
		{agentturn.PointStart, turnkeeper.TurnFailed, nil},
		{agentturn.PointModelBefore, turnkeeper.TurnFailed, nil},
		{agentturn.PointPlanned, turnkeeper.TurnFailed, []turnkeeper.CallState{"cancelled"}},
		{agentturn.PointStartBefore, turnkeeper.TurnFailed, []turnkeeper.CallState{"cancelled"}},
		{agentturn.PointStartAfter, turnkeeper.TurnDegraded, []turnkeeper.CallState{"unknown"}},
		{agentturn.PointEffectDone, turnkeeper.TurnDegraded, []turnkeeper.CallState{"unknown"}},
		{agentturn.PointResultsBefore, turnkeeper.TurnDegraded, []turnkeeper.CallState{"succeeded"}},
	} {
		t.Run(point.label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("send"), says("sent")).with(once("send"))
				b.fault = at(point.label, 1, func() { panic("planted") })
				got := b.run(t.Context())
				if got.State != point.state || got.ErrorClass != "internal" || strings.Contains(got.Reply, "planted") {
					t.Errorf("%+v", got)
				}
				if diff := cmp.Diff(point.calls, b.states()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A till is a Budget that blocks from its nth call on.
type till struct {
	n        int
	block    agentturn.Reservation
	err      error
	reserved []turnkeeper.Usage
	settled  []turnkeeper.Usage
	spender  agentturn.Spender
}

func (b *till) Reserve(_ context.Context, s agentturn.Spender,
	estimate turnkeeper.Usage) (agentturn.Reservation, error) {
	b.spender = s
	if b.n--; b.n < 0 {
		return b.block, b.err
	}
	b.reserved = append(b.reserved, estimate)
	return agentturn.Reservation{ID: int64(len(b.reserved))}, nil
}

func (b *till) Settle(_ context.Context, _ agentturn.Reservation, used turnkeeper.Usage) error {
	b.settled = append(b.settled, used)
	return nil
}

func TestBudget(t *testing.T) {
	day := agentturn.Reservation{Blocked: true, Scope: "day", Retry: 3 * time.Hour, Reason: "the day is spent"}
	turn := agentturn.Reservation{Blocked: true, Scope: "turn", Reason: "the turn is spent"}
	tests := []struct {
		name   string
		budget till
		want   turnlog.Outcome
	}{
		{"the day's, before any tool", till{block: day}, turnlog.Outcome{
			State: turnkeeper.TurnQueued, Backoff: 3 * time.Hour, ErrorClass: "budget", Error: "the day is spent"}},
		{"the day's, after a read", till{n: 1, block: day}, turnlog.Outcome{
			State: turnkeeper.TurnQueued, Backoff: 3 * time.Hour, ErrorClass: "budget", Error: "the day is spent"}},
		{"the day's, in which there is never room", till{block: agentturn.Reservation{
			Blocked: true, Scope: "day", Retry: 3 * time.Hour, Never: true, Reason: "no day has room"}},
			turnlog.Outcome{
				State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopBudget, ErrorClass: "budget", Counted: true,
				Reply: "This message could not be answered: the budget for it is used up; the operator was told.",
				Error: "no day has room"}},
		{"the turn's, before any tool", till{block: turn}, turnlog.Outcome{
			State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopBudget, ErrorClass: "budget", Counted: true,
			Reply: "This message could not be answered: the budget for it is used up; the operator was told.",
			Error: "the turn is spent"}},
		{"that cannot be asked", till{err: errors.New("no connection")}, turnlog.Outcome{
			State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "internal",
			Retry: true, Counted: true, Backoff: 2 * time.Second, Error: "no connection"}},
		{"that suffices", till{n: 9}, turnlog.Outcome{
			State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "done"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("look"), says("done")).with(read("look"))
				b.budget = &test.budget
				b.def.Budget = agentdef.Budget{TurnCalls: 1, DayTokens: 5}
				if diff := cmp.Diff(test.want, b.run(t.Context())); diff != "" {
					t.Error(diff)
				}
				if len(test.budget.reserved) != len(test.budget.settled) {
					t.Errorf("%d reserved, %d settled", len(test.budget.reserved), len(test.budget.settled))
				}
				want := agentturn.Spender{Turn: 7, Agent: "tester", Limits: agentturn.SpendLimits{TurnCalls: 1,
					DayTokens: 5}}
				if diff := cmp.Diff(want, test.budget.spender); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
	t.Run("every attempt is paid for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, fails(inference.ClassOverloaded), says("done"))
			budget := &till{n: 9}
			b.budget = budget
			b.run(t.Context())
			want := []turnkeeper.Usage{{}, {InputTokens: 10, OutputTokens: 5}}
			if diff := cmp.Diff(want, budget.settled); diff != "" {
				t.Error(diff)
			}
			if r := budget.reserved[0]; r.OutputTokens != 4096 || r.InputTokens < 10 {
				t.Errorf("reserved %+v", r)
			}
		})
	})
}

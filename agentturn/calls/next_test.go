package calls_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A situation is a call with what is known of it and of its turn.
type situation struct {
	call  turnkeeper.ToolCall
	spec  tools.Spec
	lacks bool // the agent does not have the tool
	tells bool // the tool reconciles
	asks  []asks.Ask
	turn  calls.Turn
	known func(*calls.Call) // what was found out
}

type change func(*situation)

// reconciler is a tool that can tell whether a call happened.
type reconciler struct{ tools.Tool }

func (reconciler) Reconcile(context.Context, tools.Call) (tools.Result, bool, error) {
	return tools.Result{}, false, nil
}

// of returns the call 1.1 of the tool pay in a turn with enough time and calls left.
func of(state turnkeeper.CallState, effect turnkeeper.Effect, changes ...change) *situation {
	s := &situation{call: turnkeeper.ToolCall{Key: key(1, 1), Name: "pay", Arguments: `{"n":1}`, State: state,
		Effect: effect}}
	if state != turnkeeper.CallPlanned {
		s.call.Starts, s.call.Nonce = 1, "first"
	}
	s.turn = calls.Turn{Bounds: turnkeeper.Bounds{Paging: true, MaxToolCalls: 5}, Left: 1, Time: true}
	for _, c := range changes {
		c(s)
	}
	return s
}

func (s *situation) next(t *testing.T) calls.Step {
	t.Helper()
	have := &tools.Registry{}
	if !s.lacks {
		s.spec.Name, s.spec.Description, s.spec.Effect = s.call.Name, "A tool of a test.", s.call.Effect
		s.spec.Parameters = json.RawMessage(`{"type":"object"}`)
		tool := tools.New(s.spec, func(context.Context, tools.Call, any) (tools.Result, error) {
			return tools.Result{}, nil
		})
		if s.tells {
			tool = reconciler{tool}
		}
		if err := have.Register(tool); err != nil {
			t.Fatal(err)
		}
	}
	offer := prompt.Offer{Registry: have, Bounds: turnkeeper.Bounds{OutputHandles: true}, Stored: true}
	rounds := []turnkeeper.Round{{Number: 1, Calls: []turnkeeper.ToolCall{s.call}}}
	c := calls.New(&turnlog.Record{Rounds: rounds, Asks: s.asks}, offer, nil).Call(s.call.Key)
	c.Begin()
	if s.known != nil {
		s.known(c)
	}
	before := *c.ToolCall
	step := c.Next(s.turn)
	if again := c.Next(s.turn); again.Do != step.Do || *c.ToolCall != before {
		t.Errorf("Next changes the call: %s, then %s", step.Do, again.Do)
	}
	return step
}

// Changes of a situation.

func named(name string) change           { return func(s *situation) { s.call.Name = name } }
func with(arguments string) change       { return func(s *situation) { s.call.Arguments = arguments } }
func spec(f func(*tools.Spec)) change    { return func(s *situation) { f(&s.spec) } }
func in(p calls.Phase) change            { return func(s *situation) { s.turn.Phase = p } }
func knowing(f func(*calls.Call)) change { return func(s *situation) { s.known = f } }
func paging(s *situation)                { s.call.Paging, s.spec.Paging = true, true }
func lacking(s *situation)               { s.lacks = true }
func telling(s *situation)               { s.tells = true }
func noTime(s *situation)                { s.turn.Time = false }
func noneLeft(s *situation)              { s.turn.Left = 0 }
func noPaging(s *situation)              { s.turn.Bounds.Paging = false }
func settles(s *situation)               { s.turn.Settles = true }
func detached(s *tools.Spec)             { s.Detached, s.Timeout = true, time.Minute }
func transactional(s *tools.Spec)        { s.Transactional = true }
func asksInput(s *tools.Spec)            { s.AsksInput = true }
func allowed(c *calls.Call)              { c.Ruling = &policy.Decision{Verdict: policy.Allow} }
func checked(c *calls.Call)              { c.Recheck("") }
func outdated(c *calls.Call)             { c.Recheck("the agent was retired since") }
func askedFirst(c *calls.Call) {
	c.Ruling = &policy.Decision{Verdict: policy.Ask, Reason: "it is dear"}
}
func denied(c *calls.Call) { c.Ruling = &policy.Decision{Verdict: policy.Deny, Reason: "it is late"} }
func cut(ran bool) change {
	return knowing(func(c *calls.Call) { r := c.Result(turnkeeper.CallCancelled, "cut"); r.Ran = ran; c.Cut = &r })
}
func repeats(s *situation) {
	s.turn.Repeats = &turnkeeper.ToolCall{Key: key(1, 0), Shown: "paid", Preview: "pd"}
}
func misfit(s *situation) { s.turn.Misfit = "n is too large" }
func about(k asks.Kind, n int, a asks.Ask) change {
	return func(s *situation) { a.Call, a.Kind, a.N = key(1, 1), k, n; s.asks = append(s.asks, a) }
}

// approval is the answer to an ask for approval of the planned arguments.
func approval(state asks.State) change {
	return about(asks.KindApprove, 1, asks.Ask{State: state, Hash: tools.Hash("pay", `{"n":1}`)})
}

func edited(arguments string) change {
	return about(asks.KindApprove, 1, asks.Ask{State: asks.Approved, Edited: arguments,
		EditedHash: tools.Hash("pay", arguments)})
}

// settlement is the answer of a person who was asked whether the first start happened.
func settlement(answer, hashed string) change {
	return about(asks.KindSettle, 1, asks.Ask{State: asks.Answered, Answer: answer, Hash: tools.Hash("pay", hashed)})
}

func input(state asks.State, answer string) change {
	return about(asks.KindInput, 1, asks.Ask{State: state, Answer: answer,
		Question: asks.Question{Schema: `{"type":"object","required":["x"]}`, Reason: "Which?"}})
}

const handle = `{"a":"output:1.1"}`

// TestNext reads like the contract: what becomes of an open call, in the order of the checks.
func TestNext(t *testing.T) {
	const planned, started, running = turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning
	const none, keyed, once = turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce
	open := func(k asks.Kind) change { return about(k, 1, asks.Ask{State: asks.Open}) }
	for name, c := range map[string]struct {
		of    *situation
		want  calls.Do
		shown string // the beginning of the text
	}{
		// The tool is gone: a call that has not started is denied, another is in doubt.
		"its tool is gone":                   {of(planned, once, lacking), calls.Answer, turnlog.RefusedUnknown},
		"its tool is gone, it had started":   {of(started, keyed, lacking), calls.Doubt, ""},
		"its tool is gone, it had only read": {of(running, none, lacking), calls.Doubt, ""},
		"its tool is gone before the limit": {of(planned, once, lacking, noneLeft), calls.Answer,
			turnlog.RefusedUnknown},
		"detached, and nobody could read it": {of(planned, once, spec(detached), noPaging), calls.Answer,
			turnlog.RefusedArguments},
		"the same, started by a lost worker": {of(started, once, spec(detached), noPaging), calls.Doubt, ""},
		"detached with handles": {of(planned, keyed, spec(detached), with(handle)), calls.Answer,
			turnlog.RefusedArguments},
		"detached with handles, had started": {of(started, keyed, spec(detached), with(handle)), calls.Doubt, ""},
		"detached without handles":           {of(planned, keyed, spec(detached), knowing(allowed)), calls.Detach, ""},
		"detached, with little time": {of(planned, keyed, spec(detached), knowing(allowed), noTime),
			calls.Detach, ""},
		"detached runs that a worker has had": {of(running, keyed, spec(detached)), calls.Detach, ""},

		// Handles are resolved each time, before anything compares or shows the arguments.
		"handles":                    {of(planned, once, with(handle)), calls.Resolve, ""},
		"handles of a repeated call": {of(planned, once, with(handle), repeats), calls.Resolve, ""},
		"handles of a started call":  {of(started, keyed, with(handle)), calls.Resolve, ""},
		"handles that name nothing": {of(planned, once, with(handle), knowing(func(c *calls.Call) {
			c.Unresolvable("gone")
		})), calls.Answer, "gone"},
		"handles that are gone, later": {of(started, once, with(handle), knowing(func(c *calls.Call) {
			c.Unresolvable("gone")
		})), calls.Doubt, ""},
		"handles that are known": {of(planned, once, with(handle), knowing(func(c *calls.Call) {
			c.Resolve(json.RawMessage(`{"a":"x"}`))
		})), calls.Rule, ""},
		"handles of the person's own": {of(planned, once, named(turnkeeper.ToolAskPerson), with(handle)),
			calls.Resolve, ""},
		"handles of a paging call": {of(planned, none, paging, with(handle)), calls.Read, ""},
		"handles, tool gone": {of(planned, once, with(handle), lacking), calls.Answer,
			turnlog.RefusedUnknown},
		"it repeats the one before": {of(planned, once, repeats), calls.Answer,
			"paid\n\n[This is the result of round-1-tool-0 again"},
		"it repeats one, over a limit": {of(planned, once, repeats, noneLeft), calls.Answer, "paid"},
		"over the limit of calls":      {of(planned, once, noneLeft), calls.Answer, calls.OverLimit + "5 tool calls"},
		"over the limit, but paging":   {of(planned, none, noneLeft, paging), calls.Read, ""},
		"over the limit, but started":  {of(started, keyed, noneLeft), calls.Run, ""},
		"over the limit, a question": {of(planned, none, noneLeft, named(turnkeeper.ToolAskPerson)), calls.Answer,
			calls.OverLimit},
		"over the limit, rules deny it": {of(planned, once, noneLeft, knowing(denied)), calls.Answer, calls.OverLimit},

		// The model's own question to a person.
		"a question": {of(planned, none, named(turnkeeper.ToolAskPerson), with(`{"question":"Red?"}`)),
			calls.Ask, "Red?"},
		"a question, open": {of(planned, none, named(turnkeeper.ToolAskPerson), open(asks.KindQuestion)),
			calls.Wait, ""},
		"a question, answered": {of(planned, none, named(turnkeeper.ToolAskPerson), about(asks.KindQuestion, 1,
			asks.Ask{State: asks.Answered, Answer: `"blue"`})), calls.Take, "blue"},
		"a question, by an object": {of(planned, none, named(turnkeeper.ToolAskPerson), about(asks.KindQuestion, 1,
			asks.Ask{State: asks.Answered, Answer: `{"b":1}`, Comment: "so"})),
			calls.Take, "{\"b\":1}\nComment: so"},
		"a question, declined": {of(planned, none, named(turnkeeper.ToolAskPerson), about(asks.KindQuestion, 1,
			asks.Ask{State: asks.Denied})), calls.Answer, "no answer: a person declined"},
		"a question, expired": {of(planned, none, named(turnkeeper.ToolAskPerson), about(asks.KindQuestion, 1,
			asks.Ask{State: asks.Expired})), calls.Answer, "no answer: nobody"},

		// The rules, once.
		"no rule was asked":              {of(planned, once), calls.Rule, ""},
		"no rule was asked about a read": {of(planned, none), calls.Rule, ""},
		"the rules deny it": {of(planned, once, knowing(denied)), calls.Answer,
			"denied by a rule: it is late"},
		"the rules ask":                {of(planned, once, knowing(askedFirst)), calls.Ask, "it is dear"},
		"the rules ask about a read":   {of(planned, none, knowing(askedFirst)), calls.Ask, "it is dear"},
		"the rules allow it":           {of(planned, once, knowing(allowed)), calls.Run, ""},
		"no rule applies to paging":    {of(planned, none, paging, knowing(denied)), calls.Read, ""},
		"a started call is not ruled":  {of(started, keyed, knowing(denied)), calls.Run, ""},
		"in the background, not ruled": {of(running, none, knowing(denied)), calls.Rerun, ""},

		// Approvals.
		"approval is open": {of(planned, once, approval(asks.Open)), calls.Wait, ""},
		"approval was denied": {of(planned, once, approval(asks.Denied)), calls.Answer,
			turnlog.Denied + turnlog.RefusedByPerson},
		"approval has expired": {of(planned, once, approval(asks.Expired)), calls.Answer,
			turnlog.Denied + turnlog.RefusedExpired},
		"approved": {of(planned, once, approval(asks.Approved)), calls.Recheck, ""},
		"approved, and still allowed": {of(planned, once, approval(asks.Approved), knowing(checked)),
			calls.Run, ""},
		"approved, and no longer allowed": {of(planned, once, approval(asks.Approved), knowing(outdated)),
			calls.Answer, turnlog.Denied + turnlog.RefusedSince + ", but the agent was retired"},
		"approved, the rules deny it by now": {of(planned, once, approval(asks.Approved), knowing(denied)),
			calls.Recheck, ""},
		"approved with other arguments": {of(planned, once, approval(asks.Approved), with(`{"n":2}`)),
			calls.Answer, "denied: the arguments of this call are no longer those"},
		"the same, started before": {of(started, keyed, approval(asks.Approved), with(`{"n":2}`)),
			calls.Doubt, ""},
		"edited": {of(planned, once, edited(`{"n":7}`)), calls.Recheck, ""},
		"edited, and it does not fit": {of(planned, once, edited(`{"n":7}`), misfit), calls.Answer,
			turnlog.Denied + turnlog.RefusedEdit + ": n is too large"},
		"edited, started, no longer allowed": {of(started, keyed, edited(`{"n":7}`), knowing(outdated)),
			calls.Doubt, ""},
		"approved read runs alone": {of(planned, none, approval(asks.Approved), knowing(checked)),
			calls.Run, ""},
		"approved and detached": {of(planned, once, approval(asks.Approved), knowing(checked),
			spec(detached)), calls.Detach, ""},
		"approved, with little time": {of(planned, once, approval(asks.Approved), knowing(checked), noTime),
			calls.NoTime, ""},

		// A started call of effect once: only a person can say whether it happened.
		"started once": {of(started, once), calls.Doubt, ""},
		"started once, a person is to decide": {of(started, once, settles), calls.Ask,
			"the worker that ran this call was lost"},
		"started once, in doubt for a reason": {of(started, once, settles, knowing(func(c *calls.Call) {
			c.Doubt = "it timed out"
		})), calls.Ask, "it timed out"},
		"started once, a person was asked": {of(started, once, settles, open(asks.KindSettle)),
			calls.Wait, ""},
		"started once, asked, and set otherwise": {of(started, once, open(asks.KindSettle)), calls.Wait, ""},
		"started once, nobody answered": {of(started, once, settles, about(asks.KindSettle, 1,
			asks.Ask{State: asks.Expired})), calls.Doubt, ""},
		"started once, it happened": {of(started, once, settlement(asks.Happened, `{"n":1}`)),
			calls.Answer, "A person says that this call happened"},
		"started once, nobody knows": {of(started, once, settlement(asks.Unknown, `{"n":1}`)),
			calls.Doubt, ""},
		"started once, it did not happen": {of(started, once, settlement(asks.DidNotHappen, `{"n":1}`)),
			calls.Recheck, ""},
		"it did not happen, and is allowed": {of(started, once, settlement(asks.DidNotHappen, `{"n":1}`),
			knowing(checked)), calls.Run, ""},
		"it did not happen, and is not allowed": {of(started, once, settlement(asks.DidNotHappen, `{"n":1}`),
			knowing(outdated)), calls.Answer, turnlog.Denied + turnlog.RefusedSince},
		"another call did not happen": {of(started, once, settlement(asks.DidNotHappen, `{"n":2}`)),
			calls.Doubt, ""},
		"an earlier start did not happen": {of(started, once, settlement(asks.DidNotHappen, `{"n":1}`),
			func(s *situation) { s.call.Starts = 2 }), calls.Doubt, ""},
		"approved once, it did not happen, allowed": {of(started, once, approval(asks.Approved),
			settlement(asks.DidNotHappen, `{"n":1}`), knowing(checked)), calls.Run, ""},

		// Input that the tool asked for.
		"waits for input": {of(started, once, open(asks.KindInput), spec(asksInput)), calls.Wait, ""},
		"has input": {of(started, once, input(asks.Answered, `{"x":1}`), spec(asksInput)),
			calls.Resume, ""},
		"has input, with little time": {of(started, once, input(asks.Answered, `{"x":1}`), spec(asksInput),
			noTime), calls.NoTime, ""},
		"has invalid input": {of(started, once, input(asks.Answered, `{}`), spec(asksInput)), calls.Ask,
			"The answer was invalid"},
		"has no input in time": {of(started, keyed, input(asks.Expired, ""), spec(asksInput)),
			calls.Resume, ""},
		"a person declined to give input": {of(started, once, input(asks.Denied, ""), spec(asksInput)),
			calls.Resume, ""},
		"lost after it went on with input": {of(started, once, about(asks.KindInput, 1, asks.Ask{State: asks.Answered,
			Used: true}), spec(asksInput)), calls.Doubt, ""},
		"the same, if it may run again": {of(started, keyed, about(asks.KindInput, 1, asks.Ask{State: asks.Answered,
			Used: true}), spec(asksInput)), calls.Run, ""},
		"a read that may ask records start": {of(planned, none, knowing(allowed), spec(asksInput)), calls.Run, ""},

		// How a call runs.
		"a read":                       {of(planned, none, knowing(allowed)), calls.Read, ""},
		"a read, with little time":     {of(planned, none, knowing(allowed), noTime), calls.Read, ""},
		"a read with a recorded start": {of(started, none), calls.Run, ""},
		"an effect, with little time":  {of(planned, keyed, knowing(allowed), noTime), calls.NoTime, ""},
		"in a transaction":             {of(planned, once, knowing(allowed), spec(transactional)), calls.Transact, ""},
		"again in the background":      {of(running, keyed), calls.Rerun, ""},
		"the same, with little time":   {of(running, keyed, noTime), calls.NoTime, ""},
		"keyed, started":               {of(started, keyed), calls.Run, ""},
		"a task for another agent": {of(planned, once, knowing(allowed), named(turnkeeper.ToolSpawnAgent), noTime),
			calls.Spawn, ""},

		// Recovery from the journal.
		"recovery: planned":               {of(planned, once, in(calls.Recovering)), calls.Leave, ""},
		"recovery: may run again":         {of(started, keyed, in(calls.Recovering)), calls.Leave, ""},
		"recovery: was in the background": {of(running, none, in(calls.Recovering)), calls.Leave, ""},
		"recovery: started once":          {of(started, once, in(calls.Recovering)), calls.Reconcile, ""},
		"recovery: the tool cannot tell": {of(started, once, in(calls.Recovering),
			knowing((*calls.Call).Reconciled)), calls.Doubt, ""},
		"recovery: a person is to tell": {of(started, once, in(calls.Recovering), settles,
			knowing((*calls.Call).Reconciled)), calls.Leave, ""},
		"recovery: nobody can in background": {of(running, once, in(calls.Recovering), settles,
			knowing((*calls.Call).Reconciled)), calls.Doubt, ""},
		"recovery: a person has told": {of(started, once, in(calls.Recovering), settlement(asks.DidNotHappen,
			`{"n":1}`)), calls.Leave, ""},
		"recovery: a person has not told": {of(started, once, in(calls.Recovering), open(asks.KindSettle)),
			calls.Reconcile, ""},
		"recovery: waits for input": {of(started, once, in(calls.Recovering), open(asks.KindInput)),
			calls.Leave, ""},
		"recovery: its tool is gone": {of(started, once, in(calls.Recovering), lacking),
			calls.Reconcile, ""},
		"recovery: is the same with every tool": {of(started, once, in(calls.Recovering), telling),
			calls.Reconcile, ""},

		// The turn is to finish.
		"finish: planned": {of(planned, once, in(calls.Finishing)), calls.Answer,
			turnlog.Denied + turnlog.RefusedFinish},
		"finish: a read was cut": {of(planned, none, in(calls.Finishing), cut(true)), calls.Answer, "cut"},
		"finish: an effect was cut": {of(started, keyed, in(calls.Finishing), cut(true)), calls.Answer,
			"cut" + calls.ShownMaybe},
		"finish: a read had a start": {of(started, none, in(calls.Finishing)), calls.Answer, calls.ShownStopped},
		"finish: keyed runs again":   {of(started, keyed, in(calls.Finishing)), calls.Leave, ""},
		"finish: keyed waits for input": {of(started, keyed, in(calls.Finishing), open(asks.KindInput)),
			calls.Doubt, ""},
		"finish: a person was asked": {of(started, once, in(calls.Finishing), open(asks.KindSettle)),
			calls.Doubt, ""},

		// No time is left.
		"no time: planned":    {of(planned, keyed, in(calls.OutOfTime)), calls.Answer, prompt.ShownNoTime},
		"no time: started":    {of(started, keyed, in(calls.OutOfTime)), calls.Doubt, ""},
		"no time: a cut read": {of(planned, none, in(calls.OutOfTime), cut(true)), calls.Answer, prompt.ShownNoTime},

		// The dispatch ends and hands the turn back.
		"handed back: planned":       {of(planned, once, in(calls.HandingBack)), calls.Leave, ""},
		"handed back: keyed was cut": {of(started, keyed, in(calls.HandingBack), cut(true)), calls.Leave, ""},
		"handed back: once was cut": {of(started, once, in(calls.HandingBack), cut(true)), calls.Answer,
			"cut" + calls.ShownMaybe},
		"handed back: once did not begin": {of(started, once, in(calls.HandingBack), cut(false)), calls.Answer, "cut"},
		"handed back: the tool can tell": {of(started, once, in(calls.HandingBack), cut(true), telling),
			calls.Leave, ""},
		"handed back: a person was asked": {of(started, once, in(calls.HandingBack), open(asks.KindSettle)),
			calls.Leave, ""},
		"handed back: in the background": {of(running, keyed, in(calls.HandingBack)), calls.Leave, ""},
		"closed: planned":                {of(planned, once, in(calls.Closing)), calls.Answer, prompt.ShownNotRun},
		"closed: started":                {of(started, keyed, in(calls.Closing)), calls.Doubt, ""},
		"closed: cut": {of(started, keyed, in(calls.Closing), cut(true)), calls.Answer,
			"cut" + calls.ShownMaybe},
		"closed: a read was cut":           {of(planned, none, in(calls.Closing), cut(true)), calls.Answer, "cut"},
		"closed: the tool could have told": {of(started, once, in(calls.Closing), telling), calls.Doubt, ""},
	} {
		t.Run(name, func(t *testing.T) {
			step := c.of.next(t)
			text := step.Result.Shown + step.Text + step.Question.Reason
			if step.Do != c.want || !strings.HasPrefix(text, c.shown) || (c.shown == "") != (text == "") {
				t.Errorf("%s %q, want %s %q", step.Do, text, c.want, c.shown)
			}
			if step.Do == calls.Answer && step.Result.Preview != outputs.Preview(step.Result.Shown) &&
				c.of.turn.Repeats == nil {
				t.Errorf("the preview is %q", step.Result.Preview)
			}
		})
	}
}

// TestWhatAPersonIsAsked checks the questions of each kind: the arguments are those with which the call runs.
func TestWhatAPersonIsAsked(t *testing.T) {
	step := of(turnkeeper.CallStarted, turnkeeper.EffectOnce, edited(`{"n":7}`), settles).next(t)
	if q := step.Question; q.Kind != asks.KindSettle || q.N != 1 || q.Arguments != `{"n":7}` ||
		!json.Valid([]byte(q.Schema)) {
		t.Errorf("a person is asked about %+v: the arguments must be those with which it ran", q)
	}
	step = of(turnkeeper.CallPlanned, turnkeeper.EffectOnce, knowing(askedFirst)).next(t)
	if q := step.Question; q.Kind != asks.KindApprove || q.Arguments != `{"n":1}` || q.Schema != `{"type":"object"}` {
		t.Errorf("a person is asked to approve %+v", q)
	}
	step = of(turnkeeper.CallPlanned, turnkeeper.EffectNone, named(turnkeeper.ToolAskPerson),
		with(`{"question":"Red?","options":["yes","no"]}`)).next(t)
	if q := step.Question; q.Kind != asks.KindQuestion || !strings.Contains(q.Schema, `"enum":["yes","no"]`) {
		t.Errorf("a person is asked %+v", q)
	}
	step = of(turnkeeper.CallStarted, turnkeeper.EffectOnce, input(asks.Answered, `{}`)).next(t)
	if q := step.Question; q.Kind != asks.KindInput || q.N != 2 || !strings.HasSuffix(q.Reason, "Which?") {
		t.Errorf("a person is asked again %+v", q)
	}
}

package storesuite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/calls"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

var askProperties = []property{
	{"a turn that asks a person waits without a lease", askWaits},
	{"an answer queues its turn, and its start uses the approval up", askApproved},
	{"a start needs the approval of its arguments", askRefuses},
	{"an approval, a gate and an ask about an outcome are for one call of one turn", askOfOneCall},
	{"a repeatable call starts again with the arguments that were approved", askRepeated},
	{"a gated call does not start without an ask", askGated},
	{"a gate keeps its call from starting in the same write", askGatedNow},
	{"edited arguments have a hash of their own", askEdited},
	{"a call with edited arguments whose worker was lost is reported with them", askEditedLost},
	{"a repeat of an answer changes nothing, and another answer is refused", askTwice},
	{"an answer that does not fit is refused", askInvalid},
	{"each kind of ask takes its own answers", askKinds},
	{"an answer that comes before the turn waits is not missed", askBeforeWait},
	{"an ask expires, and its turn goes on", askExpires},
	{"an ask expires alone, and not while its turn is locked", askExpiresAlone},
	{"an ask expires in the tick that takes its turn from a lost worker, but not with the turn's end", askExpiresLost},
	{"the agents above one that asks wait for as long as it asks", askExtendsParents},
	{"the wait for a person is no wait for a service", askIsNoFailure},
	{"a cancelled turn's asks are withdrawn", askCancelled},
	{"an ask of an answered call is withdrawn", askWithdrawn},
	{"a call that did not happen starts again once", askSettled},
	{"a call goes on once with the input that it asked for", askInput},
	{"a parked turn blocks no other conversation, and goes back to the head of its lane", askParks},
	{"a turn that asks no longer is not parked", askNotParked},
	{"a parked turn holds its conversation", askHolds},
	{"a turn that goes on while asking holds nothing", askGoesOn},
	{"an ask that was answered holds nothing", askHoldsNoLonger},
	{"an ask holds its conversation although another was answered", askHoldsStill},
	{"a parked turn waits for the end of the turn in its lane", askParkedWaits},
	{"a message accepted while a turn is parked is held", askHoldsLater},
	{"a schedule whose conversation is held has one message that waits", askHoldsSchedule},
	{"a parked turn is cancelled", askParkedCancelled},
}

const askArguments = `{"amount":1}`

func question(k turnkeeper.CallKey, kind asks.Kind) asks.Question {
	return asks.Question{
		Call: k, Kind: kind, N: 1, Tool: "tool", Arguments: askArguments, Rule: "always", Reason: "because",
		Terms: asks.Terms{Hold: true, Timeout: time.Hour},
	}
}

// asksFor returns a dispatch whose turn has asked for the approval of call 1.1, of effect once.
func (e *env) asksFor(questions ...asks.Question) *dispatch {
	e.Helper()
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectKeyed)
	if len(questions) == 0 {
		questions = []asks.Question{question(key(1, 1), asks.KindApprove)}
	}
	d.append(turnlog.Entry{Asks: questions})
	return d
}

func (e *env) onlyAsk(id turnkeeper.TurnID) asks.Ask {
	e.Helper()
	all := e.Asks(id)
	if len(all) != 1 {
		e.Fatalf("%d asks, want 1", len(all))
	}
	return all[0]
}

func approved() asks.Answer {
	return asks.Answer{Decision: asks.Approved, By: "ann", Channel: "test"}
}

func (e *env) answerAsk(id asks.ID, a asks.Answer) {
	e.Helper()
	state, err := e.AnswerAsk(e.Context(), id, a)
	if err != nil || state != a.Decision {
		e.Fatalf("answering gave %q, %v", state, err)
	}
}

func (d *dispatch) startWith(ask asks.ID, arguments string, attempt int) error {
	return d.startCall(key(1, 1), ask, arguments, attempt)
}

func (d *dispatch) startCall(k turnkeeper.CallKey, ask asks.ID, arguments string, attempt int) error {
	return d.Append(d.env.Context(), turnlog.Entry{Starts: []turnlog.CallStart{{
		Key: k, Nonce: nonce(), Attempt: attempt, Effect: d.call(k).Effect, Ask: ask,
		Hash: tools.Hash("tool", arguments),
	}}})
}

// conclude answers the open calls of a dispatch, and ends its turn.
func (e *env) conclude(d *dispatch) {
	e.Helper()
	var results []turnlog.CallResult
	_, rounds := e.Turn(d.grant.TurnID)
	for _, round := range rounds {
		for _, call := range round.Calls {
			if !call.State.Answered() {
				results = append(results, result(call.Key, call.Nonce, turnkeeper.CallCancelled, "ended"))
			}
		}
	}
	d.append(turnlog.Entry{Results: results})
	e.finish(d, succeeded("done"))
}

func askWaits(e *env) {
	d := e.asksFor()
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	ask := e.onlyAsk(d.grant.TurnID)
	equal(e, "state", ask.State, asks.Open)
	equal(e, "hash", ask.Hash, tools.Hash("tool", askArguments))
	equal(e, "reason", ask.Reason, "because")
	equal(e, "hold", ask.Hold, true)
	equal(e, "expires", ask.ExpiresAt.Sub(ask.OpenedAt).Round(time.Minute), time.Hour)
	equal(e, "granted", e.tick().Granted, 0)
	for _, g := range e.Grants(d.grant.TurnID) {
		equal(e, "outcome of the grant", g.Outcome, "waiting")
	}
}

func askApproved(e *env) {
	d := e.asksFor()
	d.wait()
	ask := e.onlyAsk(d.grant.TurnID)
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Approved, By: "ann", Channel: "test", Comment: "fine",
		Hash: ask.Hash})
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	d = e.next(second)
	equal(e, "asks on record", len(d.record.Asks), 1)
	got := d.record.Asks[0]
	equal(e, "state", got.State, asks.Approved)
	equal(e, "by", got.AnsweredBy, "ann")
	equal(e, "comment", got.Comment, "fine")
	equal(e, "seen", got.Seen, false)
	d.append(turnlog.Entry{Seen: []asks.ID{ask.ID}})
	equal(e, "seen", e.onlyAsk(d.grant.TurnID).Seen, true)
	wantErr(e, "start", d.startWith(ask.ID, askArguments, 1), nil)
	wantErr(e, "second use", d.startCall(key(1, 2), ask.ID, askArguments, 1), asks.ErrNotApproved)
}

func askRefuses(e *env) {
	for name, start := range map[string]func(d *dispatch, id asks.ID) error{
		"without the ask":      func(d *dispatch, _ asks.ID) error { return d.startWith(0, askArguments, 1) },
		"with other arguments": func(d *dispatch, id asks.ID) error { return d.startWith(id, `{"amount":2}`, 1) },
		"another call": func(d *dispatch, id asks.ID) error {
			return d.startCall(key(1, 2), id, askArguments, 1)
		},
		"with an unknown ask":   func(d *dispatch, id asks.ID) error { return d.startWith(id+1, askArguments, 1) },
		"a second attempt":      func(d *dispatch, id asks.ID) error { return d.startWith(id, askArguments, 2) },
		"without its arguments": func(d *dispatch, id asks.ID) error { return d.startWith(id, "", 1) },
	} {
		d := e.asksFor()
		ask := e.onlyAsk(d.grant.TurnID)
		equal(e, name+": while it is open", d.startWith(ask.ID, askArguments, 1) != nil, true)
		e.answerAsk(ask.ID, approved())
		equal(e, name, start(d, ask.ID) != nil, true)
		wantErr(e, name+": afterwards", d.startWith(ask.ID, askArguments, 1), nil)
		e.conclude(d)
	}
	d := e.asksFor()
	ask := e.onlyAsk(d.grant.TurnID)
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Denied, By: "ann"})
	wantErr(e, "a denied call", d.startWith(ask.ID, askArguments, 1), asks.ErrNotApproved)
}

// plannedAt returns a dispatch of desk, in a lane of its own, with two planned calls of effect once.
func (e *env) plannedAt(conversation string) *dispatch {
	e.Helper()
	e.enqueue("desk", conversation, "do it")
	d := e.next(first)
	d.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce)})
	return d
}

// asked opens an ask of a dispatch, answers it unless the decision is empty, and returns its id.
func (d *dispatch) asked(q asks.Question, a asks.Answer) asks.ID {
	d.env.Helper()
	d.append(turnlog.Entry{Asks: []asks.Question{q}})
	all := d.env.Asks(d.grant.TurnID)
	id := all[len(all)-1].ID
	if a.Decision != "" {
		d.env.answerAsk(id, a)
	}
	return id
}

func answered(answer string) asks.Answer {
	return asks.Answer{Decision: asks.Answered, By: "ann", Channel: "test", Answer: answer}
}

func askOfOneCall(e *env) {
	settle := func(k turnkeeper.CallKey, n int) asks.Question {
		q := question(k, asks.KindSettle)
		q.N = n
		return q
	}
	one, two := e.plannedAt("one"), e.plannedAt("two")
	one.append(turnlog.Entry{Gates: []turnkeeper.CallKey{key(1, 1)}})
	mine := one.asked(question(key(1, 1), asks.KindApprove), approved())
	wantErr(e, "with the ask of another turn", two.startWith(mine, askArguments, 1), asks.ErrNotApproved)
	two.append(turnlog.Entry{Gates: []turnkeeper.CallKey{key(1, 2)}})
	two.asked(question(key(1, 2), asks.KindApprove), asks.Answer{})
	two.asked(question(key(1, 1), asks.KindQuestion), answered(`"x"`))
	wantErr(e, "beside the gate and the asks of others", two.startWith(0, askArguments, 1), nil)
	two.append(turnlog.Entry{Round: round(2, turnkeeper.EffectOnce, turnkeeper.EffectOnce)})
	wantErr(e, "beside the gate of an earlier round", two.startCall(key(2, 2), 0, askArguments, 1), nil)

	// Call 1.1 of the first turn is started three times, each with an ask of its own. Others ask about theirs
	// meanwhile.
	two.asked(settle(key(1, 1), 1), asks.Answer{})
	wantErr(e, "first start", one.startWith(mine, askArguments, 1), nil)
	wantErr(e, "of another call", one.startCall(key(1, 2), 0, askArguments, 1), nil)
	one.append(turnlog.Entry{Round: round(2, turnkeeper.EffectOnce)})
	wantErr(e, "of another round", one.startCall(key(2, 1), 0, askArguments, 1), nil)
	other, later := one.asked(settle(key(1, 2), 1), answered(asks.Unknown)), one.asked(settle(key(2, 1), 1),
		answered(asks.Happened))
	wantErr(e, "second start of a call of unknown outcome", one.startCall(key(1, 2), other, askArguments, 2),
		asks.ErrNotApproved)
	wantErr(e, "second start of a call that happened", one.startCall(key(2, 1), later, askArguments, 2),
		asks.ErrNotApproved)
	doubt := one.asked(settle(key(1, 1), 1), asks.Answer{})
	wantErr(e, "second start while the ask is open", one.startWith(doubt, askArguments, 2), asks.ErrNotApproved)
	e.answerAsk(doubt, answered(asks.DidNotHappen))
	wantErr(e, "second start with the ask of another call", one.startWith(other, askArguments, 2), asks.ErrNotApproved)
	wantErr(e, "second start", one.startWith(doubt, askArguments, 2), nil)
	wantErr(e, "third start", one.startWith(one.asked(settle(key(1, 1), 2), answered(asks.DidNotHappen)),
		askArguments, 3), nil)
	changed := settle(key(1, 1), 3)
	changed.Arguments = `{"amount":2}`
	doubt = one.asked(changed, answered(asks.DidNotHappen))
	wantErr(e, "fourth start, with arguments that were not approved", one.startWith(doubt, changed.Arguments, 4),
		asks.ErrNotApproved)
}

// A repeatable call whose worker was lost starts again with what was approved, and names no ask again.
func askRepeated(e *env) {
	d := e.planned(turnkeeper.EffectKeyed)
	ask := d.asked(question(key(1, 1), asks.KindApprove), approved())
	wantErr(e, "first start", d.startWith(ask, askArguments, 1), nil)
	wantErr(e, "second start with other arguments", d.startWith(0, `{"amount":2}`, 2), asks.ErrNotApproved)
	wantErr(e, "second start with the ask", d.startWith(ask, askArguments, 2), asks.ErrNotApproved)
	wantErr(e, "second start", d.startWith(0, askArguments, 2), nil)
}

func askGated(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	d.append(turnlog.Entry{Gates: []turnkeeper.CallKey{key(1, 1)}})
	wantErr(e, "start", d.start(key(1, 1), nonce(), 1), asks.ErrNotApproved)
	d.append(turnlog.Entry{Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
	d.wait()
	ask := e.onlyAsk(d.grant.TurnID)
	e.answerAsk(ask.ID, approved())
	d = e.next(first)
	equal(e, "gates on record", len(d.record.Gates), 1)
	wantErr(e, "approved start", d.startWith(ask.ID, askArguments, 1), nil)
}

func askGatedNow(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	start := func(n int) []turnlog.CallStart {
		return []turnlog.CallStart{{Key: key(1, n), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce}}
	}
	ask := question(key(1, 1), asks.KindApprove)
	for name, entry := range map[string]turnlog.Entry{
		"of a gated call":     {Gates: []turnkeeper.CallKey{key(1, 1)}, Starts: start(1)},
		"of a call that asks": {Asks: []asks.Question{ask}, Starts: start(1)},
		"of another call beside a start": {Gates: []turnkeeper.CallKey{key(1, 1)}, Starts: append(start(2),
			start(1)...)},
	} {
		wantErr(e, "start "+name, d.Append(e.Context(), entry), asks.ErrNotApproved)
	}
	equal(e, "asks", len(e.Asks(d.grant.TurnID)), 0) // all or nothing
	d.append(turnlog.Entry{Gates: []turnkeeper.CallKey{key(1, 1)}, Asks: []asks.Question{ask}, Starts: start(2)})
	equal(e, "asks", len(e.Asks(d.grant.TurnID)), 1)
	equal(e, "state of the other call", d.call(key(1, 2)).State, turnkeeper.CallStarted)
}

func askEdited(e *env) {
	const edited = `{"amount":0}`
	d := e.asksFor()
	ask := e.onlyAsk(d.grant.TurnID)
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Approved, By: "ann", Edited: edited})
	ask = e.onlyAsk(d.grant.TurnID)
	equal(e, "hash of the edited arguments", ask.RunHash(), tools.Hash("tool", edited))
	wantErr(e, "start with the first arguments", d.startWith(ask.ID, askArguments, 1), asks.ErrNotApproved)
	d.append(turnlog.Entry{Starts: []turnlog.CallStart{{
		Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: d.call(key(1, 1)).Effect, Ask: ask.ID, Hash: ask.RunHash(),
		RunArgs: edited, ArgsHash: tools.Hash("tool", edited),
	}}})
	call := d.call(key(1, 1))
	equal(e, "arguments as run", call.AsRun(), edited)
	equal(e, "arguments as planned", call.Arguments, "{}")
	equal(e, "hash of the arguments as run", call.ArgsHash, tools.Hash("tool", edited))
	_, rounds := e.Turn(d.grant.TurnID)
	equal(e, "arguments in a new record", rounds[0].Calls[0].AsRun(), edited)
	d.append(turnlog.Entry{Results: []turnlog.CallResult{result(call.Key, call.Nonce,
		turnkeeper.CallSucceeded, "done")}})
	for hash, want := range map[string]int{call.ArgsHash: 1, "hash": 0} {
		past, err := e.RecentCalls(e.Context(), d.record.Turn.Agent, "tool", hash, time.Hour)
		wantErr(e, "recent calls", err, nil)
		equal(e, "recent calls with "+hash, len(past), want)
	}
}

// askEditedLost closes a turn whose worker was lost while a call ran with a person's arguments.
func askEditedLost(e *env) {
	const edited = `{"amount":0}`
	d := e.asksFor()
	ask := e.onlyAsk(d.grant.TurnID)
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Approved, By: "ann", Edited: edited})
	d.append(turnlog.Entry{Seen: []asks.ID{ask.ID}, Starts: []turnlog.CallStart{{
		Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: d.call(key(1, 1)).Effect, Ask: ask.ID,
		Hash:    tools.Hash("tool", edited),
		RunArgs: edited, ArgsHash: tools.Hash("tool", edited),
	}}})
	wantErr(e, "hand-back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued}), nil)
	e.cancel(d.grant.TurnID, true)
	call := d.call(key(1, 1))
	equal(e, "started call", call.State, turnkeeper.CallUnknown)
	equal(e, "its text", call.Shown, agentturn.ShownUnknown+calls.ShownEdited(edited))
	equal(e, "its arguments", call.AsRun(), edited)
}

func askTwice(e *env) {
	d := e.asksFor()
	ask := e.onlyAsk(d.grant.TurnID)
	first := asks.Answer{Decision: asks.Approved, By: "ann", Comment: "checked"}
	e.answerAsk(ask.ID, first)
	e.answerAsk(ask.ID, first)
	first.Comment = " checked "
	e.answerAsk(ask.ID, first)
	for name, other := range map[string]asks.Answer{
		"another person":       {Decision: asks.Approved, By: "bob", Comment: "checked"},
		"another comment":      {Decision: asks.Approved, By: "ann", Comment: "checked twice"},
		"no comment":           {Decision: asks.Approved, By: "ann"},
		"another answer":       {Decision: asks.Denied, By: "ann", Comment: "checked"},
		"another's answer":     {Decision: asks.Denied, By: "bob"},
		"other arguments":      {Decision: asks.Approved, By: "ann", Comment: "checked", Edited: `{"amount":9}`},
		"another's arguments":  {Decision: asks.Approved, By: "bob", Edited: `{"amount":9}`},
		"another letter case":  {Decision: asks.Approved, By: "Ann", Comment: "checked"},
		"somebody else's name": {Decision: asks.Approved, By: "ann ", Comment: "checked"},
	} {
		_, err := e.AnswerAsk(e.Context(), ask.ID, other)
		wantErr(e, name, err, asks.ErrClosed)
		equal(e, name+" learns who answered first", strings.Contains(fmt.Sprint(err), "it was approved by ann"), true)
	}
	equal(e, "comment", e.onlyAsk(d.grant.TurnID).Comment, "checked")
	equal(e, "answered by", e.onlyAsk(d.grant.TurnID).AnsweredBy, "ann")
	var err error
	for _, id := range []asks.ID{ask.ID + 100, ask.ID + 1_000_000} {
		_, err = e.AnswerAsk(e.Context(), id, approved())
		wantErr(e, "no such ask", err, turnkeeper.ErrNotFound)
	}
	err = d.Append(e.Context(), turnlog.Entry{Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
	equal(e, "the same ask again is refused", err != nil, true)
	equal(e, "asks", len(e.Asks(d.grant.TurnID)), 1)
	d.append(turnlog.Entry{Seen: []asks.ID{ask.ID}, Asks: []asks.Question{question(key(1, 2), asks.KindApprove)}})
	d.wait()
	e.answerAsk(ask.ID, first)
	equal(e, "turn that waits for another answer", d.turnState(), turnkeeper.TurnWaiting)
}

func askInvalid(e *env) {
	about := question(key(1, 1), asks.KindQuestion)
	about.Audience = []string{"ann", "bob"}
	d := e.asksFor(about)
	ask := e.onlyAsk(d.grant.TurnID)
	equal(e, "audience", len(ask.Audience), 2)
	for name, a := range map[string]asks.Answer{
		"an approval":         approved(),
		"no answer":           {Decision: asks.Answered, By: "ann"},
		"nobody":              {Decision: asks.Answered, Answer: `"x"`},
		"a blank name":        {Decision: asks.Answered, Answer: `"x"`, By: " "},
		"not of the audience": {Decision: asks.Answered, Answer: `"x"`, By: "eve"},
		"not JSON":            {Decision: asks.Answered, Answer: `x`, By: "ann"},
		"edited arguments":    {Decision: asks.Answered, Answer: `"x"`, Edited: "{}", By: "ann"},
		"another hash":        {Decision: asks.Answered, Answer: `"x"`, Hash: "00", By: "ann"},
		"no decision":         {By: "ann"},
		"expired":             {Decision: asks.Expired, By: "ann"},
	} {
		_, err := e.AnswerAsk(e.Context(), ask.ID, a)
		wantErr(e, name, err, asks.ErrInvalid)
	}
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Answered, Answer: `"x"`, By: "bob"})
}

func askKinds(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	refused := func(id asks.ID, what string, a asks.Answer) {
		e.Helper()
		a.By = "ann"
		_, err := e.AnswerAsk(e.Context(), id, a)
		wantErr(e, what, err, asks.ErrInvalid)
	}
	budget := d.asked(question(key(2, 0), asks.KindBudget), asks.Answer{})
	refused(budget, "arguments of a budget", asks.Answer{Decision: asks.Approved, Edited: "{}"})
	refused(budget, "an answer to an ask for a budget", asks.Answer{Decision: asks.Answered, Answer: `"x"`})
	refused(budget, "an approval with an answer", asks.Answer{Decision: asks.Approved, Answer: `"x"`})
	e.answerAsk(budget, approved())
	reply := d.asked(question(key(1, 0), asks.KindReply), asks.Answer{})
	refused(reply, "another text of a reply", asks.Answer{Decision: asks.Approved, Edited: "{}"})
	refused(reply, "an answer to an ask about a reply", asks.Answer{Decision: asks.Answered, Answer: `"x"`})
	e.answerAsk(reply, approved())
	approve := d.asked(question(key(1, 1), asks.KindApprove), asks.Answer{})
	refused(approve, "a denial with arguments", asks.Answer{Decision: asks.Denied, Edited: "{}"})
	refused(approve, "arguments that are no object", asks.Answer{Decision: asks.Approved, Edited: "[1]"})
	refused(approve, "arguments that are no JSON", asks.Answer{Decision: asks.Approved, Edited: "{"})
	e.answerAsk(approve, asks.Answer{Decision: asks.Denied, By: "ann"})
	text := d.asked(question(key(1, 1), asks.KindQuestion), answered(`"x"`))
	_, err := e.AnswerAsk(e.Context(), text, answered(`"y"`))
	wantErr(e, "another answer", err, asks.ErrClosed)
	e.answerAsk(d.asked(question(key(1, 1), asks.KindInput), asks.Answer{}),
		asks.Answer{Decision: asks.Denied, By: "ann"})
	for n, answer := range []string{asks.Happened, asks.Unknown, asks.DidNotHappen} {
		settle := question(key(1, 1), asks.KindSettle)
		settle.N = n + 1
		e.answerAsk(d.asked(settle, asks.Answer{}), answered(answer))
	}
}

func askBeforeWait(e *env) {
	wait := func(d *dispatch, what string, want turnkeeper.TurnState) {
		e.Helper()
		d.wait()
		equal(e, what, d.turnState(), want)
	}
	d := e.asksFor(question(key(1, 1), asks.KindApprove), question(key(1, 2), asks.KindApprove))
	all := e.Asks(d.grant.TurnID)
	d.append(turnlog.Entry{Seen: []asks.ID{all[0].ID, all[1].ID, all[1].ID + 100}}) // there is nothing to see yet
	e.answerAsk(all[0].ID, approved())
	wait(d, "with one of two answers", turnkeeper.TurnQueued)
	d = e.next(first)
	d.append(turnlog.Entry{Seen: []asks.ID{all[0].ID}})
	wait(d, "once it has seen the answer", turnkeeper.TurnWaiting)
	e.answerAsk(all[1].ID, approved())
	d = e.next(first)
	wait(d, "with both answers", turnkeeper.TurnQueued)
	d = e.next(first)
	d.append(turnlog.Entry{Seen: []asks.ID{all[1].ID}})
	wait(d, "once it has seen all answers", turnkeeper.TurnQueued)
	d = e.next(first)
	d.append(turnlog.Entry{Asks: []asks.Question{question(key(1, 2), asks.KindQuestion)}})
	wait(d, "for another answer", turnkeeper.TurnWaiting)
}

func askExpires(e *env) {
	d := e.asksFor()
	d.wait()
	ask := e.onlyAsk(d.grant.TurnID)
	e.Pass(59 * time.Minute)
	equal(e, "expired early", e.tick().Asks, 0)
	e.Pass(2 * time.Minute)
	_, err := e.AnswerAsk(e.Context(), ask.ID, approved())
	wantErr(e, "an answer after the time", err, asks.ErrClosed)
	d = e.next(first)
	equal(e, "state", d.record.Asks[0].State, asks.Expired)
	wantErr(e, "start", d.startWith(ask.ID, askArguments, 1), asks.ErrNotApproved)
	_, err = e.AnswerAsk(e.Context(), ask.ID, approved())
	wantErr(e, "an answer to an expired ask", err, asks.ErrClosed)
}

// The asks of two turns have expired. A third turn has an answer, and waits for another one, which is open for longer.
func askExpiresAlone(e *env) {
	locked, free, waiting := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce), e.plannedAt("a"), e.plannedAt("b")
	soon := question(key(1, 2), asks.KindApprove)
	soon.Timeout = time.Minute
	locked.asked(soon, asks.Answer{})
	free.asked(soon, asks.Answer{})
	waiting.append(turnlog.Entry{Seen: []asks.ID{waiting.asked(soon, approved())}})
	waiting.asked(question(key(1, 1), asks.KindApprove), asks.Answer{})
	waiting.wait()
	e.Pass(2 * time.Minute)
	n := nonce()
	_, err := locked.transact(key(1, 1), n, func(context.Context) turnlog.CallResult {
		equal(e, "expired while a turn is locked", e.tick().Asks, 1)
		return result(key(1, 1), n, turnkeeper.CallFailed, "no")
	})
	wantErr(e, "transaction", err, nil)
	equal(e, "the ask of the other turn", e.onlyAsk(free.grant.TurnID).State, asks.Expired)
	equal(e, "expired afterwards", e.tick().Asks, 1)
	equal(e, "the ask of the turn that was locked", e.onlyAsk(locked.grant.TurnID).State, asks.Expired)
	equal(e, "the turn that waits", waiting.turnState(), turnkeeper.TurnWaiting)
	equal(e, "its ask", e.Asks(waiting.grant.TurnID)[1].State, asks.Open)
}

// The sub-agent of a sub-agent asks for a day, and for an hour. Another tree has no such reason to wait.
func askExtendsParents(e *env) {
	e.Register(registration("scribe", false))
	other := e.plannedAt("other")
	overdue := other.spawn(key(1, 1), "scribe", "write it down")
	other.wait()
	e.childTurn(overdue)
	parent, message := e.spawned()
	parent.wait()
	child := e.childTurn(message)
	child.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce)})
	message = child.spawn(key(1, 1), "scribe", "write it down")
	child.wait()
	asking := e.childTurn(message)
	asking.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce)})
	day, hour := question(key(1, 1), asks.KindApprove), question(key(1, 1), asks.KindQuestion)
	day.Timeout = 24 * time.Hour
	asking.asked(day, asks.Answer{})
	asking.asked(hour, asks.Answer{})
	asking.wait()
	e.Pass(23 * time.Hour)
	equal(e, "calls that ended", e.tick().Spawns, 1)
	for _, d := range []*dispatch{parent, child} {
		equal(e, "state", d.turnState(), turnkeeper.TurnWaiting)
		equal(e, "call", d.call(key(1, 1)).State, turnkeeper.CallRunning)
	}
	e.Pass(3 * time.Hour)
	equal(e, "calls that ended later", e.tick().Spawns, 2)
}

func askCancelled(e *env) {
	d := e.asksFor()
	d.wait()
	e.cancel(d.grant.TurnID, true)
	ask := e.onlyAsk(d.grant.TurnID)
	equal(e, "state", ask.State, asks.Withdrawn)
	_, err := e.AnswerAsk(e.Context(), ask.ID, approved())
	wantErr(e, "answer", err, asks.ErrClosed)
	d = e.asksFor()
	e.conclude(d)
	equal(e, "state at the end of the turn", e.onlyAsk(d.grant.TurnID).State, asks.Withdrawn)
}

func askWithdrawn(e *env) {
	other := e.plannedAt("a")
	other.asked(question(key(1, 1), asks.KindApprove), asks.Answer{})
	d := e.asksFor(question(key(1, 1), asks.KindApprove), question(key(1, 2), asks.KindApprove))
	answer := d.asked(question(key(1, 1), asks.KindQuestion), answered(`"x"`))
	d.append(turnlog.Entry{
		Seen:      []asks.ID{answer},
		Withdrawn: []turnkeeper.CallKey{key(1, 1)},
		Results:   []turnlog.CallResult{result(key(1, 1), "", turnkeeper.CallDenied, "no time")},
	})
	all := e.Asks(d.grant.TurnID)
	equal(e, "first", all[0].State, asks.Withdrawn)
	equal(e, "second", all[1].State, asks.Open)
	equal(e, "one that had an answer", e.Asks(d.grant.TurnID)[2].State, asks.Answered)
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	e.cancel(d.grant.TurnID, true)
	equal(e, "second, after the end", e.Asks(d.grant.TurnID)[1].State, asks.Withdrawn)
	equal(e, "the ask of another turn", e.onlyAsk(other.grant.TurnID).State, asks.Open)
}

func askSettled(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	wantErr(e, "start", d.startWith(0, askArguments, 1), nil)
	settle := question(key(1, 1), asks.KindSettle)
	d.append(turnlog.Entry{Asks: []asks.Question{settle}})
	d.wait()
	ask := e.onlyAsk(d.grant.TurnID)
	_, err := e.AnswerAsk(e.Context(), ask.ID, asks.Answer{Decision: asks.Answered, By: "ann", Answer: `"perhaps"`})
	wantErr(e, "another word", err, asks.ErrInvalid)
	_, err = e.AnswerAsk(e.Context(), ask.ID, asks.Answer{Decision: asks.Denied, By: "ann"})
	wantErr(e, "a denial", err, asks.ErrInvalid)
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Answered, By: "ann", Answer: asks.DidNotHappen})
	d = e.next(first)
	equal(e, "second start without the ask", d.startWith(0, askArguments, 2) != nil, true)
	wantErr(e, "second start with other arguments", d.startWith(ask.ID, `{}`, 2), asks.ErrNotApproved)
	wantErr(e, "second start", d.startWith(ask.ID, askArguments, 2), nil)
	equal(e, "third start", d.startWith(ask.ID, askArguments, 3) != nil, true)
}

// A turn waits for a person for most of an hour. The time after which its message is given up begins with the answer.
func askIsNoFailure(e *env) {
	asking := e.asksFor()
	asking.wait()
	e.Pass(50 * time.Minute)
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	if waited := e.next(first).record.Waited; waited > 10*time.Minute {
		e.Errorf("the message has waited for %v", waited)
	}
}

func askParks(e *env) {
	asking := e.asksFor()
	b := e.enqueue("clerk", "b", "hello")
	equal(e, "granted while it runs", e.tick().Granted, 0)
	asking.wait()
	d := e.next(first)
	equal(e, "message of the other conversation", d.record.Message.ID, b)
	equal(e, "lane", d.record.Turn.Lane, "clerk")
	c := e.enqueue("clerk", "b", "and again")
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	equal(e, "granted while another turn runs", e.tick().Granted, 0)
	e.finish(d, succeeded("hi"))
	d = e.next(first)
	equal(e, "head of the lane", d.grant.TurnID, asking.grant.TurnID)
	equal(e, "its lane", d.grant.Lane, "clerk")
	e.conclude(d)
	equal(e, "next", e.next(first).record.Message.ID, c)
}

// The turn has an answer, and waits for its sub-agent, which asks.
func askNotParked(e *env) {
	parent, message := e.spawned()
	child := e.childTurn(message)
	child.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce)})
	child.asked(question(key(1, 1), asks.KindApprove), asks.Answer{})
	child.wait()
	parent.append(turnlog.Entry{Seen: []asks.ID{parent.asked(question(key(1, 1), asks.KindQuestion), answered(`"x"`))}})
	parent.wait()
	equal(e, "state", parent.turnState(), turnkeeper.TurnWaiting)
	e.enqueue("clerk", "other", "hello")
	equal(e, "granted while it waits", e.tick().Granted, 0)
}

func askExpiresLost(e *env) {
	for _, cancelled := range []bool{false, true} {
		asking := e.asksFor()
		if cancelled {
			e.cancel(asking.grant.TurnID, false)
		}
		e.Pass(2 * time.Hour)
		report := e.tick()
		equal(e, "taken from the lost worker", report.Requeued, 1)
		state, expired := asks.Expired, 1
		if cancelled {
			state, expired = asks.Withdrawn, 0
		}
		equal(e, "expired", report.Asks, expired)
		equal(e, "state", e.onlyAsk(asking.grant.TurnID).State, state)
		if !cancelled {
			e.conclude(e.take(first)[0])
		}
	}
}

func askHolds(e *env) {
	asking := e.turn()
	mine, other := e.enqueue("clerk", "", "later"), e.enqueue("clerk", "other", "hello")
	asking.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce),
		Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
	asking.wait()
	d := e.next(first)
	equal(e, "granted", d.record.Message.ID, other)
	e.finish(d, succeeded("hi"))
	equal(e, "granted while it asks", e.tick().Granted, 0)
	e.enqueue("desk", "", "hello")
	d = e.next(first)
	equal(e, "granted of the same conversation with another agent", d.record.Turn.Agent, "desk")
	e.finish(d, succeeded("hi"))
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	d = e.next(first)
	equal(e, "granted after the answer", d.grant.TurnID, asking.grant.TurnID)
	other = e.enqueue("clerk", "other", "hello again")
	equal(e, "granted while it runs", e.tick().Granted, 0)
	e.conclude(d)
	d = e.next(first)
	equal(e, "granted after its end", d.record.Message.ID, mine)
	e.finish(d, succeeded("done"))
	equal(e, "granted last", e.next(first).record.Message.ID, other)
}

func askGoesOn(e *env) {
	for _, agent := range []string{"clerk", "desk"} {
		e.enqueue(agent, "", "do it")
		asking := e.next(first)
		goesOn := question(key(1, 1), asks.KindApprove)
		goesOn.Hold = false
		asking.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Asks: []asks.Question{goesOn}})
		next := e.enqueue(agent, "", "meanwhile")
		asking.wait()
		parked, _ := e.Turn(asking.grant.TurnID)
		equal(e, agent+": lane of the turn", parked.Lane, asking.grant.Lane)
		d := e.next(first)
		equal(e, agent+": granted", d.record.Message.ID, next)
		e.finish(d, succeeded("done"))
		e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, asks.Answer{Decision: asks.Denied, By: "ann"})
		d = e.next(first)
		equal(e, agent+": granted after the answer", d.grant.TurnID, asking.grant.TurnID)
		e.conclude(d)
	}
}

// The first ask is open and holds the conversation. The second has an answer, and does not.
func askHoldsStill(e *env) {
	d := e.turn()
	d.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce)})
	d.asked(question(key(1, 1), asks.KindApprove), asks.Answer{})
	goesOn := question(key(1, 1), asks.KindQuestion)
	goesOn.Hold = false
	d.append(turnlog.Entry{Seen: []asks.ID{d.asked(goesOn, answered(`"x"`))}})
	e.enqueue("clerk", "", "later")
	d.wait()
	other := e.enqueue("clerk", "other", "hello")
	equal(e, "granted", e.next(first).record.Message.ID, other)
}

// The terms of the open ask count, not those of one that has an answer.
func askHoldsNoLonger(e *env) {
	d := e.turn()
	d.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce)})
	ask := d.asked(question(key(1, 1), asks.KindApprove), approved())
	goesOn := question(key(1, 1), asks.KindSettle)
	goesOn.Hold = false
	d.append(turnlog.Entry{Seen: []asks.ID{ask}, Asks: []asks.Question{goesOn}})
	next := e.enqueue("clerk", "", "meanwhile")
	d.wait()
	equal(e, "granted", e.next(first).record.Message.ID, next)
}

func askParkedWaits(e *env) {
	one := e.asksFor()
	one.wait()
	e.enqueue("clerk", "two", "do it too")
	two := e.next(first)
	two.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce),
		Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
	two.wait()
	e.enqueue("clerk", "three", "hello")
	three := e.next(first)
	e.answerAsk(e.onlyAsk(two.grant.TurnID).ID, approved())
	e.answerAsk(e.onlyAsk(one.grant.TurnID).ID, approved())
	equal(e, "granted while the lane is busy", e.tick().Granted, 0)
	e.finish(three, succeeded("hi"))
	d := e.next(first)
	equal(e, "the older one is first", d.grant.TurnID, one.grant.TurnID)
	e.conclude(d)
	equal(e, "then the other", e.next(first).grant.TurnID, two.grant.TurnID)
}

func askHoldsLater(e *env) {
	asking := e.asksFor()
	asking.wait()
	later := e.enqueue("clerk", "", "later")
	other := e.enqueue("clerk", "other", "hello")
	d := e.next(first)
	equal(e, "granted", d.record.Message.ID, other)
	e.finish(d, succeeded("hi"))
	equal(e, "granted while it asks", e.tick().Granted, 0)
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	d = e.next(first)
	equal(e, "granted after the answer", d.grant.TurnID, asking.grant.TurnID)
	e.conclude(d)
	equal(e, "granted after its end", e.next(first).record.Message.ID, later)
}

func askHoldsSchedule(e *env) {
	e.Register(registration("clerk", false, turnkeeper.Schedule{Name: "s", Cron: "@every 1h", TimeZone: "UTC",
		Conversation: "main", Message: "look"}))
	e.tick()
	q := question(key(1, 1), asks.KindApprove)
	q.Timeout = 24 * time.Hour
	asking := e.asksFor(q)
	asking.wait()
	for range 3 {
		e.Pass(time.Hour + time.Minute)
		equal(e, "granted while it asks", e.tick().Granted, 0)
		e.tick()
	}
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	e.conclude(e.next(first))
	d := e.next(first)
	equal(e, "schedule", d.record.Message.Schedule, "s")
	e.finish(d, turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone})
	equal(e, "granted after its run", e.tick().Granted, 0)
}

func askParkedCancelled(e *env) {
	asking := e.turn()
	later := e.enqueue("clerk", "", "later")
	asking.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce),
		Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
	asking.wait()
	equal(e, "granted while it asks", e.tick().Granted, 0)
	e.cancel(asking.grant.TurnID, true)
	turn, _ := e.Turn(asking.grant.TurnID)
	equal(e, "lane", turn.Lane, "clerk")
	equal(e, "granted", e.next(first).record.Message.ID, later)
}

func askInput(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	begun := nonce()
	wantErr(e, "start", d.start(key(1, 1), begun, 1), nil)
	asked := question(key(1, 1), asks.KindInput)
	asked.Schema, asked.Resume = `{"type":"object"}`, `{"state":"é\u0000"}`
	d.append(turnlog.Entry{Asks: []asks.Question{asked}})
	use := func(d *dispatch) error {
		return d.Append(e.Context(), turnlog.Entry{Inputs: []asks.ID{e.onlyAsk(d.grant.TurnID).ID}})
	}
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	equal(e, "call", d.call(key(1, 1)).State, turnkeeper.CallStarted)
	ask := e.onlyAsk(d.grant.TurnID)
	e.answerAsk(ask.ID, asks.Answer{Decision: asks.Answered, By: "ann", Channel: "test", Answer: `{"a":1}`})
	d = e.next(first)
	got := d.record.Asks[0]
	equal(e, "state of the tool", got.Resume, asked.Resume)
	equal(e, "answer", got.Answer, `{"a":1}`)
	equal(e, "used", got.Used, false)
	wantErr(e, "use", use(d), nil)
	equal(e, "used", e.onlyAsk(d.grant.TurnID).Used, true)
	wantErr(e, "second use", use(d), asks.ErrNotApproved)
	wantErr(e, "use of an ask that is not there", d.Append(e.Context(), turnlog.Entry{Inputs: []asks.ID{ask.ID + 100}}),
		asks.ErrNotApproved)
	d.append(turnlog.Entry{Results: []turnlog.CallResult{result(key(1, 1), begun, turnkeeper.CallSucceeded, "done")}})
	e.finish(d, succeeded("done"))

	for name, kind := range map[string]asks.Kind{"an open ask": asks.KindInput, "a withdrawn ask": asks.KindInput,
		"an ask of another kind": asks.KindQuestion} {
		d := e.asksFor(question(key(1, 1), kind))
		if name == "a withdrawn ask" {
			d.append(turnlog.Entry{Withdrawn: []turnkeeper.CallKey{key(1, 1)}})
		}
		if kind != asks.KindInput {
			e.answerAsk(e.onlyAsk(d.grant.TurnID).ID, asks.Answer{Decision: asks.Answered, By: "ann",
				Channel: "test", Answer: `1`})
		}
		wantErr(e, name, use(d), asks.ErrNotApproved)
		e.conclude(d)
	}
}

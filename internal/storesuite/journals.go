package storesuite

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

func atomicEntry(e *env) {
	d := e.planned(turnkeeper.EffectKeyed)
	before, _ := e.Turn(d.grant.TurnID)
	written := len(e.Events(d.grant.TurnID))
	part := turnlog.NewRequestPart("of a request that is not on record")
	err := d.Append(e.Context(), turnlog.Entry{
		Parts: []turnlog.RequestPart{part},
		Round: round(2, turnkeeper.EffectOnce), Events: events(turnkeeper.EventRoundStart),
		Starts:  []turnlog.CallStart{{Key: key(2, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce}},
		Results: []turnlog.CallResult{result(key(1, 1), "not its nonce", turnkeeper.CallSucceeded, "x")},
	})
	wantErr(e, "an entry with one bad part", err, turnkeeper.ErrJournalMoved)
	after, rounds := e.Turn(d.grant.TurnID)
	if before != after || len(rounds) != 1 || len(e.Events(d.grant.TurnID)) != written {
		e.Errorf("the turn was\n%+v\nand is\n%+v\nwith %d rounds", before, after, len(rounds))
	}
	parts, err := e.RequestParts(e.Context(), part.SHA256)
	wantErr(e, "parts", err, nil)
	equal(e, "stored parts", len(parts), 0)
	wantErr(e, "the next entry", d.Append(e.Context(), turnlog.Entry{Round: round(2)}), nil)
}

func startUnique(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	wantErr(e, "the same start", d.start(key(1, 1), nonce(), 1), turnkeeper.ErrJournalMoved)
	if err := d.start(key(1, 1), nonce(), 2); err == nil {
		e.Error("a call of effect once was started twice")
	}
	if err := d.start(key(1, 2), n, 1); err == nil {
		e.Error("a nonce was used twice")
	}
	after := e.again(d)
	if err := after.start(key(1, 1), nonce(), 2); err == nil {
		e.Error("a call of effect once was started twice, by another worker")
	}
	equal(e, "nonce", d.call(key(1, 1)).Nonce, n)
	equal(e, "starts", d.call(key(1, 1)).Starts, 1)
	wantErr(e, "the other call's start", after.start(key(1, 2), nonce(), 1), nil)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "executed calls", turn.ExecutedCalls, 2)
}

func startAgain(e *env) {
	d := e.planned(turnkeeper.EffectKeyed)
	d.mustStart(key(1, 1), nonce(), 1)
	after := e.again(d)
	wantErr(e, "a start that skips one", after.start(key(1, 1), nonce(), 3), turnkeeper.ErrJournalMoved)
	after.mustStart(key(1, 1), nonce(), 2)
	equal(e, "starts", d.call(key(1, 1)).Starts, 2)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "executed calls", turn.ExecutedCalls, 1)
}

func newestStart(e *env) {
	d := e.planned(turnkeeper.EffectKeyed)
	old, young := nonce(), nonce()
	d.mustStart(key(1, 1), old, 1)
	after := e.again(d)
	after.mustStart(key(1, 1), young, 2)
	wantErr(e, "a result of the old start", after.answer(key(1, 1), old, turnkeeper.CallSucceeded, "old"),
		turnkeeper.ErrJournalMoved)
	wantErr(e, "a result without a start", after.answer(key(1, 1), "", turnkeeper.CallSucceeded, "none"),
		turnkeeper.ErrJournalMoved)
	wantErr(e, "a late result of the old start", d.Late(e.Context(), result(key(1, 1), old,
		turnkeeper.CallSucceeded, "old")), nil)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallStarted)
	wantErr(e, "the result", after.answer(key(1, 1), young, turnkeeper.CallSucceeded, "young"), nil)
	wantErr(e, "a second result", after.answer(key(1, 1), young, turnkeeper.CallFailed, "x"),
		turnkeeper.ErrJournalMoved)
	equal(e, "shown", d.call(key(1, 1)).Shown, "young")
}

func (d *dispatch) verdict(k turnkeeper.CallKey) error {
	return d.Append(d.env.Context(), turnlog.Entry{Verdicts: []turnlog.CallResult{result(k, "",
		turnkeeper.CallUnknown, "unknown")}})
}

func verdictOnStarted(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	if err := d.verdict(key(1, 2)); err == nil {
		e.Error("a call that was never started became unknown")
	}
	wantErr(e, "the result", d.answer(key(1, 1), n, turnkeeper.CallSucceeded, "it came"), nil)
	wantErr(e, "verdict after the result", e.again(d).verdict(key(1, 1)), turnkeeper.ErrJournalMoved)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
}

func lateAfterVerdict(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	after := e.again(d)
	wantErr(e, "verdict", after.verdict(key(1, 1)), nil)
	wantErr(e, "late", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	wantErr(e, "late, again", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "and again")), nil)
	wantErr(e, "late, of no start", d.Late(e.Context(), result(key(1, 1), "no nonce", turnkeeper.CallSucceeded,
		"never")), nil)
	call := d.call(key(1, 1))
	equal(e, "state", call.State, turnkeeper.CallUnknown)
	equal(e, "shown", call.Shown, "unknown")
	equal(e, "late result", call.LateResult, "it came")
}

func lateWithoutWorker(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	wantErr(e, "hand-back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued}), nil)
	wantErr(e, "late", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	after := e.next(second)
	call := after.record.Rounds[0].Calls[0]
	equal(e, "state", call.State, turnkeeper.CallSucceeded)
	equal(e, "shown", call.Shown, "it came")
	equal(e, "late result", call.LateResult, "")
	wantErr(e, "verdict after the result", after.verdict(key(1, 1)), turnkeeper.ErrJournalMoved)
	wantErr(e, "the end", after.end(succeeded("done")), nil)
}

func lateUnderOwnGrant(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	wantErr(e, "late", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
	wantErr(e, "its next write", d.answer(key(1, 1), n, turnkeeper.CallSucceeded, "again"), turnkeeper.ErrJournalMoved)
	wantErr(e, "the end under the next grant", e.again(d).end(succeeded("done")), nil)
}

func lateWithAnotherWorker(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	after := e.again(d)
	wantErr(e, "late", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	call := d.call(key(1, 1))
	equal(e, "state", call.State, turnkeeper.CallStarted)
	equal(e, "late result", call.LateResult, "it came")
	wantErr(e, "the verdict of the other worker", after.verdict(key(1, 1)), nil)
	equal(e, "state after the verdict", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
}

func lateOfAwaitedCall(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.append(turnlog.Entry{Starts: []turnlog.CallStart{{Key: key(1, 1), Nonce: n, Attempt: 1,
		Effect: turnkeeper.EffectOnce, Detached: time.Hour}}})
	wantErr(e, "late", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallStarted)
	wantErr(e, "its next write", d.Append(e.Context(),
		turnlog.Entry{Results: []turnlog.CallResult{result(key(1, 1), n, turnkeeper.CallRunning, "handle")}}), nil)
}

func lateAfterEnd(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	after := e.again(d)
	wantErr(e, "verdict", after.verdict(key(1, 1)), nil)
	wantErr(e, "end", after.end(turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost,
		Reply: "r"}), nil)
	wantErr(e, "late", d.Late(e.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	call := d.call(key(1, 1))
	equal(e, "state", call.State, turnkeeper.CallUnknown)
	equal(e, "late result", call.LateResult, "it came")
}

func endTogether(e *env) {
	d := e.planned()
	message := d.record.Message.ID
	if _, early := e.Reply(message); early {
		e.Error("there is a reply before the end")
	}
	o := succeeded("done")
	d.append(turnlog.Entry{Outcome: &o, Events: events(turnkeeper.EventTurnComplete)})
	reply, ok := e.Reply(message)
	if !ok || reply.Body != "done" || reply.Outcome != turnkeeper.TurnSucceeded || reply.TurnID != d.grant.TurnID {
		e.Errorf("reply %+v", reply)
	}
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "turn", turn.State, turnkeeper.TurnSucceeded)
	equal(e, "message", e.Message(message).State, turnkeeper.MessageSucceeded)
	log := e.Grants(d.grant.TurnID)
	equal(e, "outcome in the log", log[0].Outcome, "finished")
	wantErr(e, "a second end", d.end(succeeded("again")), turnkeeper.ErrFenced)
	e.enqueue("clerk", "", "next")
	equal(e, "granted from the free lane", e.tick().Granted, 1)
}

func staleEnd(e *env) {
	d := e.turn()
	after := e.again(d)
	wantErr(e, "stale end", d.end(succeeded("stale")), turnkeeper.ErrFenced)
	if _, ok := e.Reply(d.record.Message.ID); ok {
		e.Error("a stale end has written a reply")
	}
	equal(e, "message", e.Message(d.record.Message.ID).State, turnkeeper.MessageRunning)
	wantErr(e, "end", after.end(succeeded("done")), nil)
	wantErr(e, "stale end after it", d.end(succeeded("stale")), turnkeeper.ErrFenced)
	if reply, _ := e.Reply(d.record.Message.ID); reply.Body != "done" {
		e.Errorf("reply %q", reply.Body)
	}
}

func failed(retry bool) turnlog.Outcome {
	o := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no model", Retry: retry}
	if !retry {
		o.Reply = "sorry"
	}
	return o
}

// failedFor returns a failure after which the message is retried after the backoff.
func failedFor(backoff time.Duration) turnlog.Outcome {
	o := failed(true)
	o.Backoff, o.Counted = backoff, true
	return o
}

func failedRetry(e *env) {
	d := e.turn()
	wantErr(e, "end", d.end(failedFor(scheduler.Backoff(1))), nil)
	message := e.Message(d.record.Message.ID)
	equal(e, "message", message.State, turnkeeper.MessageWaiting)
	equal(e, "error", message.LastError, "no model")
	equal(e, "granted at once", e.tick().Granted, 0)
	e.Pass(scheduler.Backoff(1))
	after := e.next(first)
	equal(e, "attempt", after.record.Turn.Attempt, 2)
	equal(e, "failures", after.record.Failures, 1)
	wantErr(e, "end", after.end(failedFor(scheduler.Backoff(2))), nil)
	e.Pass(scheduler.Backoff(1))
	equal(e, "granted before the longer backoff is over", e.tick().Granted, 0)
	e.Pass(scheduler.Backoff(2) - scheduler.Backoff(1))
	third := e.next(first)
	wantErr(e, "end", third.end(succeeded("done")), nil)
	equal(e, "failures after a success", e.turn().record.Failures, 0)
}

func failedFinally(e *env) {
	d := e.turn()
	wantErr(e, "end", d.end(failed(false)), nil)
	equal(e, "message", e.Message(d.record.Message.ID).State, turnkeeper.MessageFailed)
	reply, _ := e.Reply(d.record.Message.ID)
	equal(e, "reply", reply.Body, "sorry")
	equal(e, "outcome", reply.Outcome, turnkeeper.TurnFailed)
}

func lostAnswer(e *env)  { e.cut(true) }
func lostRequest(e *env) { e.cut(false) }

// cut loses a write with a start and a write with its result, each with events. done says whether
// the store did the write before the connection broke.
func (e *env) cut(done bool) {
	e.Helper()
	d := e.turn()
	e.CutNext(done)
	n := nonce()
	d.append(turnlog.Entry{
		Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnlog.CallStart{{Key: key(1, 1), Nonce: n, Attempt: 1, Effect: turnkeeper.EffectOnce}},
	})
	e.CutNext(done)
	d.append(turnlog.Entry{
		Results: []turnlog.CallResult{result(key(1, 1), n, turnkeeper.CallSucceeded, "ok")},
		Events:  events(turnkeeper.EventToolResult),
	})
	d.append(turnlog.Entry{Round: round(2), Events: events(turnkeeper.EventRoundStop)})
	turn, rounds := e.Turn(d.grant.TurnID)
	equal(e, "rounds", len(rounds), 2)
	equal(e, "executed calls", turn.ExecutedCalls, 1)
	equal(e, "events", len(e.Events(turn.ID)), 4)
	equal(e, "starts", d.call(key(1, 1)).Starts, 1)
}

func lostEnd(e *env) {
	d := e.turn()
	e.CutNext(true)
	wantErr(e, "end", d.end(succeeded("done")), nil)
	reply, _ := e.Reply(d.record.Message.ID)
	equal(e, "reply", reply.Body, "done")
	equal(e, "outcome in the log", e.Grants(d.grant.TurnID)[0].Outcome, "finished")
}

func transact(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	_, err := d.transact(key(1, 1), n, func(ctx context.Context) turnlog.CallResult {
		e.Effect(ctx, "booked")
		equal(e, "effects before the commit", len(e.Effects()), 0)
		return result(key(1, 1), n, turnkeeper.CallSucceeded, "ok")
	})
	wantErr(e, "transaction", err, nil)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
	equal(e, "starts", d.call(key(1, 1)).Starts, 1)
	equal(e, "effects", len(e.Effects()), 1)
	wantErr(e, "the next entry", d.Append(e.Context(), turnlog.Entry{Round: round(2)}), nil)
	if _, err := d.transact(key(1, 1), nonce(), func(context.Context) turnlog.CallResult {
		e.Error("a call of effect once ran twice")
		return turnlog.CallResult{}
	}); err == nil {
		e.Error("a call of effect once was started twice")
	}
}

func transactFailure(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	_, err := d.transact(key(1, 1), n, func(ctx context.Context) turnlog.CallResult {
		e.Effect(ctx, "booked")
		return result(key(1, 1), n, turnkeeper.CallFailed, "no")
	})
	wantErr(e, "transaction", err, nil)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallFailed)
	equal(e, "effects", len(e.Effects()), 0)
	wantErr(e, "the next entry", d.Append(e.Context(), turnlog.Entry{Round: round(2)}), nil)
}

func eventNumbers(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	d.append(turnlog.Entry{Events: events(turnkeeper.EventNotice)})
	after := e.again(d)
	o := succeeded("done")
	after.append(turnlog.Entry{
		Results: []turnlog.CallResult{result(key(1, 1), "", turnkeeper.CallDenied, "no")}, Outcome: &o,
		Events: events(turnkeeper.EventTurnResumed, turnkeeper.EventTurnComplete),
	})
	all := e.Events(d.grant.TurnID)
	equal(e, "events", len(all), 5)
	for i, event := range all {
		equal(e, "number", event.Seq, int64(i)+1)
	}
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "newest", turn.LastSeq, 5)
}

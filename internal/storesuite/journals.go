package storesuite

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/scheduler"
)

func wholeEntry(h *house) {
	d := h.planned(turnkeeper.EffectKeyed)
	before, _ := h.Turn(d.grant.TurnID)
	told := len(h.Events(d.grant.TurnID))
	err := d.Append(h.Context(), turnkeeper.Entry{
		Round: round(2, turnkeeper.EffectOnce), Events: events(turnkeeper.EventRoundStart),
		Starts:  []turnkeeper.CallStart{{Key: key(2, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce}},
		Results: []turnkeeper.CallResult{result(key(1, 1), "not its nonce", turnkeeper.CallSucceeded, "x")},
	})
	isIt(h, "an entry with one bad part", err, turnkeeper.ErrJournalMoved)
	after, rounds := h.Turn(d.grant.TurnID)
	if before != after || len(rounds) != 1 || len(h.Events(d.grant.TurnID)) != told {
		h.Errorf("the turn was\n%+v\nand is\n%+v\nwith %d rounds", before, after, len(rounds))
	}
	isIt(h, "the next entry", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), nil)
}

func startUnique(h *house) {
	d := h.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	isIt(h, "the same start", d.start(key(1, 1), nonce(), 1), turnkeeper.ErrJournalMoved)
	if err := d.start(key(1, 1), nonce(), 2); err == nil {
		h.Error("a call of effect once was started twice")
	}
	if err := d.start(key(1, 2), n, 1); err == nil {
		h.Error("a nonce was used twice")
	}
	after := h.again(d)
	if err := after.start(key(1, 1), nonce(), 2); err == nil {
		h.Error("a call of effect once was started twice, by another worker")
	}
	equal(h, "nonce", d.call(key(1, 1)).Nonce, n)
	equal(h, "starts", d.call(key(1, 1)).Starts, 1)
	isIt(h, "the other call's start", after.start(key(1, 2), nonce(), 1), nil)
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "executed calls", turn.ExecutedCalls, 2)
}

func startAgain(h *house) {
	d := h.planned(turnkeeper.EffectKeyed)
	d.mustStart(key(1, 1), nonce(), 1)
	after := h.again(d)
	isIt(h, "a start that skips one", after.start(key(1, 1), nonce(), 3), turnkeeper.ErrJournalMoved)
	after.mustStart(key(1, 1), nonce(), 2)
	equal(h, "starts", d.call(key(1, 1)).Starts, 2)
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "executed calls", turn.ExecutedCalls, 1)
}

func newestStart(h *house) {
	d := h.planned(turnkeeper.EffectKeyed)
	old, young := nonce(), nonce()
	d.mustStart(key(1, 1), old, 1)
	after := h.again(d)
	after.mustStart(key(1, 1), young, 2)
	isIt(h, "a result of the old start", after.answer(key(1, 1), old, turnkeeper.CallSucceeded, "old"), turnkeeper.ErrJournalMoved)
	isIt(h, "a result without a start", after.answer(key(1, 1), "", turnkeeper.CallSucceeded, "none"), turnkeeper.ErrJournalMoved)
	isIt(h, "a late result of the old start", d.Late(h.Context(), result(key(1, 1), old, turnkeeper.CallSucceeded, "old")), nil)
	equal(h, "state", d.call(key(1, 1)).State, turnkeeper.CallStarted)
	isIt(h, "the result", after.answer(key(1, 1), young, turnkeeper.CallSucceeded, "young"), nil)
	isIt(h, "a second result", after.answer(key(1, 1), young, turnkeeper.CallFailed, "x"), turnkeeper.ErrJournalMoved)
	equal(h, "shown", d.call(key(1, 1)).Shown, "young")
}

func (d *dispatch) verdict(k turnkeeper.CallKey) error {
	return d.Append(d.h.Context(), turnkeeper.Entry{Verdicts: []turnkeeper.CallResult{result(k, "", turnkeeper.CallUnknown, "unknown")}})
}

func verdictOnStarted(h *house) {
	d := h.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	if err := d.verdict(key(1, 2)); err == nil {
		h.Error("a call that was never started is unknown")
	}
	after := h.again(d)
	isIt(h, "late", d.Late(h.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	isIt(h, "verdict after the result", after.verdict(key(1, 1)), turnkeeper.ErrJournalMoved)
	equal(h, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
}

func lateBeside(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	after := h.again(d)
	isIt(h, "verdict", after.verdict(key(1, 1)), nil)
	isIt(h, "late", d.Late(h.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	isIt(h, "late, again", d.Late(h.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "and again")), nil)
	isIt(h, "late, of no start", d.Late(h.Context(), result(key(1, 1), "no nonce", turnkeeper.CallSucceeded, "never")), nil)
	call := d.call(key(1, 1))
	equal(h, "state", call.State, turnkeeper.CallUnknown)
	equal(h, "shown", call.Shown, "unknown")
	equal(h, "beside it", call.LateResult, "it came")
}

func lateFirst(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	h.again(d)
	isIt(h, "late", d.Late(h.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	call := d.call(key(1, 1))
	equal(h, "state", call.State, turnkeeper.CallSucceeded)
	equal(h, "shown", call.Shown, "it came")
	equal(h, "beside it", call.LateResult, "")
}

func lateAfterEnd(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	n := nonce()
	d.mustStart(key(1, 1), n, 1)
	after := h.again(d)
	isIt(h, "verdict", after.verdict(key(1, 1)), nil)
	isIt(h, "end", after.end(turnkeeper.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost, Reply: "r"}), nil)
	isIt(h, "late", d.Late(h.Context(), result(key(1, 1), n, turnkeeper.CallSucceeded, "it came")), nil)
	call := d.call(key(1, 1))
	equal(h, "state", call.State, turnkeeper.CallUnknown)
	equal(h, "beside it", call.LateResult, "it came")
}

func endTogether(h *house) {
	d := h.planned()
	message := d.record.Message.ID
	if _, early := h.Reply(message); early {
		h.Error("there is a reply before the end")
	}
	o := succeeded("done")
	d.append(turnkeeper.Entry{Outcome: &o, Events: events(turnkeeper.EventTurnComplete)})
	reply, ok := h.Reply(message)
	if !ok || reply.Body != "done" || reply.Outcome != turnkeeper.TurnSucceeded || reply.TurnID != d.grant.TurnID {
		h.Errorf("reply %+v", reply)
	}
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "turn", turn.State, turnkeeper.TurnSucceeded)
	equal(h, "message", h.Message(message).State, turnkeeper.MessageAnswered)
	log := h.Grants(d.grant.TurnID)
	equal(h, "outcome in the log", log[0].Outcome, "finished")
	isIt(h, "a second end", d.end(succeeded("again")), turnkeeper.ErrFenced)
	h.enqueue("clerk", "", "next")
	equal(h, "granted: the lane is free", h.tick().Granted, 1)
}

func staleEnd(h *house) {
	d := h.turn()
	after := h.again(d)
	isIt(h, "stale end", d.end(succeeded("stale")), turnkeeper.ErrFenced)
	if _, ok := h.Reply(d.record.Message.ID); ok {
		h.Error("a stale end has written a reply")
	}
	equal(h, "message", h.Message(d.record.Message.ID).State, turnkeeper.MessageRunning)
	isIt(h, "end", after.end(succeeded("done")), nil)
	isIt(h, "stale end after it", d.end(succeeded("stale")), turnkeeper.ErrFenced)
	if reply, _ := h.Reply(d.record.Message.ID); reply.Body != "done" {
		h.Errorf("reply %q", reply.Body)
	}
}

func failed(retry bool) turnkeeper.Outcome {
	o := turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no model", Retry: retry}
	if !retry {
		o.Reply = "sorry"
	}
	return o
}

// failedFor is a failure after which the message is tried again after a pause.
func failedFor(pause time.Duration) turnkeeper.Outcome {
	o := failed(true)
	o.Backoff, o.Counted = pause, true
	return o
}

func failedRetry(h *house) {
	d := h.turn()
	isIt(h, "end", d.end(failedFor(scheduler.Backoff(1))), nil)
	message := h.Message(d.record.Message.ID)
	equal(h, "message", message.State, turnkeeper.MessageWaiting)
	equal(h, "error", message.LastError, "no model")
	equal(h, "granted at once", h.tick().Granted, 0)
	h.Pass(scheduler.Backoff(1))
	after := h.next(first)
	equal(h, "attempt", after.record.Turn.Attempt, 2)
	equal(h, "failures", after.record.Failures, 1)
	isIt(h, "end", after.end(failedFor(scheduler.Backoff(2))), nil)
	h.Pass(scheduler.Backoff(1))
	equal(h, "granted before the longer back-off is over", h.tick().Granted, 0)
	h.Pass(scheduler.Backoff(2) - scheduler.Backoff(1))
	third := h.next(first)
	isIt(h, "end", third.end(succeeded("done")), nil)
	equal(h, "failures after a success", h.turn().record.Failures, 0)
}

func failedForGood(h *house) {
	d := h.turn()
	isIt(h, "end", d.end(failed(false)), nil)
	equal(h, "message", h.Message(d.record.Message.ID).State, turnkeeper.MessageFailed)
	reply, _ := h.Reply(d.record.Message.ID)
	equal(h, "reply", reply.Body, "sorry")
	equal(h, "outcome", reply.Outcome, turnkeeper.TurnFailed)
}

func lostAnswer(h *house)  { h.cut(true) }
func lostRequest(h *house) { h.cut(false) }

// cut loses a write with a start and one with its result, each with events.
func (h *house) cut(done bool) {
	h.Helper()
	d := h.turn()
	h.CutNext(done)
	n := nonce()
	d.append(turnkeeper.Entry{
		Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnkeeper.CallStart{{Key: key(1, 1), Nonce: n, Attempt: 1, Effect: turnkeeper.EffectOnce}},
	})
	h.CutNext(done)
	d.append(turnkeeper.Entry{
		Results: []turnkeeper.CallResult{result(key(1, 1), n, turnkeeper.CallSucceeded, "ok")}, Events: events(turnkeeper.EventToolResult),
	})
	d.append(turnkeeper.Entry{Round: round(2), Events: events(turnkeeper.EventRoundStop)})
	turn, rounds := h.Turn(d.grant.TurnID)
	equal(h, "rounds", len(rounds), 2)
	equal(h, "executed calls", turn.ExecutedCalls, 1)
	equal(h, "events", len(h.Events(turn.ID)), 4)
	equal(h, "starts", d.call(key(1, 1)).Starts, 1)
}

func lostEnd(h *house) {
	d := h.turn()
	h.CutNext(true)
	isIt(h, "end", d.end(succeeded("done")), nil)
	reply, _ := h.Reply(d.record.Message.ID)
	equal(h, "reply", reply.Body, "done")
	equal(h, "outcome in the log", h.Grants(d.grant.TurnID)[0].Outcome, "finished")
}

func transact(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	n := nonce()
	_, err := d.transact(key(1, 1), n, func(ctx context.Context) turnkeeper.CallResult {
		h.Effect(ctx, "booked")
		equal(h, "effects before the commit", len(h.Effects()), 0)
		return result(key(1, 1), n, turnkeeper.CallSucceeded, "ok")
	})
	isIt(h, "transaction", err, nil)
	equal(h, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
	equal(h, "starts", d.call(key(1, 1)).Starts, 1)
	equal(h, "effects", len(h.Effects()), 1)
	isIt(h, "the next entry", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), nil)
	if _, err := d.transact(key(1, 1), nonce(), func(context.Context) turnkeeper.CallResult {
		h.Error("a call of effect once ran twice")
		return turnkeeper.CallResult{}
	}); err == nil {
		h.Error("a call of effect once was started twice")
	}
}

func transactFailure(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	n := nonce()
	_, err := d.transact(key(1, 1), n, func(ctx context.Context) turnkeeper.CallResult {
		h.Effect(ctx, "booked")
		return result(key(1, 1), n, turnkeeper.CallFailed, "no")
	})
	isIt(h, "transaction", err, nil)
	equal(h, "state", d.call(key(1, 1)).State, turnkeeper.CallFailed)
	equal(h, "effects", len(h.Effects()), 0)
	isIt(h, "the next entry", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), nil)
}

func eventNumbers(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	d.append(turnkeeper.Entry{Events: events(turnkeeper.EventNotice)})
	after := h.again(d)
	o := succeeded("done")
	after.append(turnkeeper.Entry{
		Results: []turnkeeper.CallResult{result(key(1, 1), "", turnkeeper.CallDenied, "no")}, Outcome: &o,
		Events: events(turnkeeper.EventTurnResumed, turnkeeper.EventTurnComplete),
	})
	all := h.Events(d.grant.TurnID)
	equal(h, "events", len(all), 5)
	for i, e := range all {
		equal(h, "number", e.Seq, int64(i)+1)
	}
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "newest", turn.LastSeq, 5)
}

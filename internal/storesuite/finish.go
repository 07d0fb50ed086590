package storesuite

import (
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
)

// finishProperties are about turns that are to answer with what they have.
var finishProperties = []property{
	{"a running turn is to finish, whoever takes it over", finishRunning},
	{"a parked turn goes on to finish, and its ask is withdrawn", finishParked},
	{"a turn that is to finish waits for no person", finishThenAsk},
	{"a turn that is to finish waits for calls with an effect alone", finishThenWait},
	{"a turn that was put off is to finish now", finishPutOff},
	{"a turn that waits for a model waits on", finishWithoutModel},
	{"the next turn of a message is to finish too", finishThenRetry},
	{"sub-agents are to finish with their parent", finishTree},
	{"a cancellation replaces a request to finish", finishThenCancel},
	{"an ended turn is not to finish", finishEnded},
}

func askToFinish(e *env, id turnkeeper.TurnID) {
	e.Helper()
	closed, err := e.EndTurn(e.Context(), id, turnlog.EndFinish)
	wantErr(e, "request to finish", err, nil)
	equal(e, "has ended", closed, false)
}

// wantEnd checks the request in the record of a dispatch as it would be read now.
func (d *dispatch) wantEnd(what string, want turnlog.WantedEnd) {
	d.env.Helper()
	record, err := d.env.Load(d.env.Context(), d.grant.TurnID, d.grant.GrantID)
	wantErr(d.env, "load", err, nil)
	equal(d.env, what, record.End, want)
}

func finishRunning(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), nonce(), 1)
	d.wantEnd("before the request", "")
	askToFinish(e, d.grant.TurnID)
	askToFinish(e, d.grant.TurnID)
	d.wantEnd("after the request", turnlog.EndFinish)
	equal(e, "turn", d.turnState(), turnkeeper.TurnRunning)
	other := e.plannedAt("elsewhere")
	other.wantEnd("another turn", "")
	e.conclude(other)
	e.Pass(LeaseTTL)
	report := e.tick()
	equal(e, "taken from the lost worker", report.Requeued, 1)
	equal(e, "granted again", report.Granted, 1)
	d = e.take(first)[0]
	equal(e, "the request in the record of the take-over", d.record.End, turnlog.EndFinish)
	equal(e, "the started call", d.call(key(1, 1)).State, turnkeeper.CallStarted)
	o := succeeded("what it has")
	o.StopReason = turnkeeper.StopFinished
	d.append(turnlog.Entry{Results: []turnlog.CallResult{result(key(1, 1), d.call(key(1, 1)).Nonce,
		turnkeeper.CallSucceeded, "done")}})
	e.finish(d, o)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "stop reason", turn.StopReason, turnkeeper.StopFinished)
	closed, err := e.EndTurn(e.Context(), d.grant.TurnID, turnlog.EndFinish)
	wantErr(e, "a repeat after the end", err, nil)
	equal(e, "has ended", closed, true)
}

func finishParked(e *env) {
	d := e.asksFor()
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	askToFinish(e, d.grant.TurnID)
	ask := e.onlyAsk(d.grant.TurnID)
	equal(e, "ask", ask.State, asks.Withdrawn)
	_, err := e.AnswerAsk(e.Context(), ask.ID, approved())
	wantErr(e, "a late answer", err, asks.ErrClosed)
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	askToFinish(e, d.grant.TurnID) // while it is queued
	d = e.next(first)
	equal(e, "request", d.record.End, turnlog.EndFinish)
	equal(e, "ask in the record", d.record.Asks[0].State, asks.Withdrawn)
	equal(e, "call", d.call(key(1, 1)).State, turnkeeper.CallPlanned)
	e.conclude(d)
}

func finishThenAsk(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	askToFinish(e, d.grant.TurnID)
	// its worker has not seen the request
	d.append(turnlog.Entry{Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	equal(e, "ask", e.onlyAsk(d.grant.TurnID).State, asks.Withdrawn)
	e.conclude(e.next(first))
}

func finishThenWait(e *env) {
	reads := e.detached(turnkeeper.EffectNone)
	askToFinish(e, reads.grant.TurnID)
	reads.wait() // its worker has not seen the request
	equal(e, "a turn that waits for a read", reads.turnState(), turnkeeper.TurnQueued)
	e.cancel(reads.grant.TurnID, true)

	acts := e.waits(turnkeeper.EffectOnce)
	askToFinish(e, acts.grant.TurnID)
	equal(e, "a turn that waited for an effect", acts.turnState(), turnkeeper.TurnQueued)
	acts = e.next(first)
	acts.wait()
	equal(e, "after its worker has seen the request", acts.turnState(), turnkeeper.TurnWaiting)
	equal(e, "granted", e.tick().Granted, 0)
	c := e.claim(second)
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	equal(e, "request", e.next(first).record.End, turnlog.EndFinish)
}

func finishPutOff(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	wantErr(e, "hand-back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Hour}), nil)
	equal(e, "granted", e.tick().Granted, 0)
	askToFinish(e, d.grant.TurnID)
	equal(e, "request", e.next(first).record.End, turnlog.EndFinish)
}

func finishWithoutModel(e *env) {
	e.registerWithModel("clerk", 24*time.Hour)
	d := e.planned(turnkeeper.EffectNone)
	wantErr(e, "end", d.end(turnlog.Outcome{State: turnkeeper.TurnWaiting, WaitsFor: []string{modelUsed},
		Backoff: time.Minute}), nil)
	askToFinish(e, d.grant.TurnID)
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	e.Pass(2 * time.Minute)
	equal(e, "request", e.next(first).record.End, turnlog.EndFinish)
}

func finishThenRetry(e *env) {
	d := e.turn()
	askToFinish(e, d.grant.TurnID)
	e.finish(d, turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "unavailable", Retry: true})
	equal(e, "message", e.Message(d.record.Message.ID).State, turnkeeper.MessageWaiting)
	_, err := e.EndTurn(e.Context(), d.grant.TurnID, turnlog.EndFinish)
	wantErr(e, "the failed turn", err, turnkeeper.ErrWrongState)
	e.Pass(3 * time.Minute)
	d = e.next(first)
	equal(e, "attempt", d.record.Turn.Attempt, 2)
	equal(e, "request", d.record.End, turnlog.EndFinish)
}

func finishTree(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	child := e.childTurn(d.spawn(key(1, 1), "desk", "run"))
	child.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	grand := e.childTurn(child.spawn(key(1, 1), "clerk", "ask"))
	grand.append(turnlog.Entry{
		Round: round(1, turnkeeper.EffectOnce), Asks: []asks.Question{question(key(1, 1), asks.KindApprove)},
		Events: events(turnkeeper.EventTurnStart),
	})
	grand.wait()
	child.wantEnd("before the request", "")
	askToFinish(e, d.grant.TurnID)
	child.wantEnd("the running child", turnlog.EndFinish)
	equal(e, "the ask of the grandchild", e.onlyAsk(grand.grant.TurnID).State, asks.Withdrawn)
	equal(e, "request of the grandchild", e.next(first).record.End, turnlog.EndFinish)

	d = e.plannedAt("elsewhere")
	waiting := d.spawn(key(1, 1), "desk", "wait")
	askToFinish(e, d.grant.TurnID)
	equal(e, "request of a child that had not begun", e.childTurn(waiting).record.End, turnlog.EndFinish)
	e.cancel(d.grant.TurnID, false)
	child.wantEnd("a cancellation of another tree", turnlog.EndFinish)
}

func finishThenCancel(e *env) {
	d := e.turn()
	askToFinish(e, d.grant.TurnID)
	e.cancel(d.grant.TurnID, false)
	d.wantEnd("request", turnlog.EndCancel)
	_, err := e.EndTurn(e.Context(), d.grant.TurnID, turnlog.EndFinish)
	wantErr(e, "request to finish a turn that is being cancelled", err, turnkeeper.ErrWrongState)
	d.wantEnd("request after that", turnlog.EndCancel)
	e.Pass(LeaseTTL)
	e.tick()
	e.wantCancelled(d.grant.TurnID)
}

func finishEnded(e *env) {
	d := e.turn()
	e.finish(d, succeeded("done"))
	_, err := e.EndTurn(e.Context(), d.grant.TurnID, turnlog.EndFinish)
	wantErr(e, "request to finish", err, turnkeeper.ErrWrongState)
	_, err = e.EndTurn(e.Context(), 999, turnlog.EndFinish)
	wantErr(e, "no such turn", err, turnkeeper.ErrNotFound)
	reply, _ := e.Reply(d.record.Message.ID)
	equal(e, "reply", reply.Body, "done")
}

package storesuite

import (
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

const cancelledReply = "This turn was cancelled."

// wantCancelled fails the test unless the turn is closed as cancelled with its message, reply and last
// event, and its lane is free. It returns the next dispatch of the lane.
func (e *env) wantCancelled(id turnkeeper.TurnID) (next *dispatch) {
	e.Helper()
	turn, rounds := e.Turn(id)
	equal(e, "turn", turn.State, turnkeeper.TurnCancelled)
	equal(e, "stop reason", turn.StopReason, turnkeeper.StopCancelled)
	equal(e, "message", e.Message(turn.MessageID).State, turnkeeper.MessageCancelled)
	equal(e, "turn of the message", e.Message(turn.MessageID).TurnID, id)
	reply, ok := e.Reply(turn.MessageID)
	if !ok || !strings.HasPrefix(reply.Body, cancelledReply) || reply.TurnID != id ||
		reply.Outcome != turnkeeper.TurnCancelled {
		e.Errorf("reply %+v", reply)
	}
	all := e.Events(id)
	if len(all) == 0 || all[len(all)-1].Type != turnkeeper.EventTurnError || all[len(all)-1].Seq != int64(len(all)) {
		e.Errorf("events %v", all)
	}
	for _, round := range rounds {
		for _, call := range round.Calls {
			equal(e, "call is answered", call.State.Answered(), true)
		}
	}
	behind := e.enqueue(turn.Agent, turn.Conversation, "behind")
	e.Pass(3 * time.Minute) // the lane's backoff
	next = e.next(first)
	equal(e, "next in the lane", next.record.Message.ID, behind)
	return next
}

func (e *env) cancel(id turnkeeper.TurnID, closed bool) {
	e.Helper()
	got, err := e.EndTurn(e.Context(), id, turnlog.EndCancel)
	wantErr(e, "cancellation", err, nil)
	equal(e, "closed at once", got, closed)
}

func cancelWaiting(e *env) {
	id := e.enqueue("clerk", "", "never mind")
	turn, closed, err := e.CancelMessage(e.Context(), id)
	wantErr(e, "cancellation", err, nil)
	equal(e, "closed", closed, true)
	equal(e, "granted", e.tick().Granted, 0)
	equal(e, "grants", len(e.Grants(turn)), 0)
	again, closed, err := e.CancelMessage(e.Context(), id)
	wantErr(e, "the second cancellation", err, nil)
	equal(e, "closed", closed, true)
	equal(e, "turn", again, turn)
	e.finish(e.wantCancelled(turn), succeeded("the next one"))

	// A message whose first turn failed waits for the next turn.
	d := e.turn()
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "unavailable", Retry: true}
	e.finish(d, failed)
	turn, _, err = e.CancelMessage(e.Context(), d.record.Message.ID)
	wantErr(e, "cancellation in backoff", err, nil)
	now, _ := e.Turn(turn)
	equal(e, "attempt", now.Attempt, 2)

	// A message waits behind a running turn.
	d = e.wantCancelled(turn)
	behind := e.enqueue("clerk", "", "behind")
	turn, _, err = e.CancelMessage(e.Context(), behind)
	wantErr(e, "cancellation behind a running turn", err, nil)
	equal(e, "running turn", d.turnState(), turnkeeper.TurnRunning)
	e.finish(d, succeeded("done"))
	e.wantCancelled(turn)
	_, _, err = e.CancelMessage(e.Context(), 999)
	wantErr(e, "no such message", err, turnkeeper.ErrNotFound)
}

// finish ends the dispatch with the outcome.
func (e *env) finish(d *dispatch, o turnlog.Outcome) {
	e.Helper()
	wantErr(e, "end", d.end(o), nil)
}

func cancelAwaiting(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	c := e.claim(second)
	e.cancel(d.grant.TurnID, true)
	e.cancel(d.grant.TurnID, true)
	call := d.call(key(1, 1))
	equal(e, "call", call.State, turnkeeper.CallCancelled)
	equal(e, "preview", call.Preview,
		"cancelled: the turn ended before this call had. It may or may not have happened.")
	equal(e, "text shown to the model", call.Shown, "handle")
	held, err := e.ClaimsHeld(e.Context(), []turnlog.ClaimID{c.Claim})
	wantErr(e, "claims", err, nil)
	equal(e, "valid claims", len(held), 0)
	wantErr(e, "late completion", e.Arrive(e.Context(), c, completed(c, "done")), turnkeeper.ErrFenced)
	equal(e, "call after it", d.call(key(1, 1)).State, turnkeeper.CallCancelled)
	e.wantCancelled(d.grant.TurnID)
}

func cancelAfterResult(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	c := e.claim(second)
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	e.cancel(d.grant.TurnID, true)
	equal(e, "call", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
	e.wantCancelled(d.grant.TurnID)
}

func cancelQueued(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), nonce(), 1)
	d.append(turnlog.Entry{Events: events(turnkeeper.EventRoundStop)})
	wantErr(e, "hand-back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued}), nil)
	e.cancel(d.grant.TurnID, true)
	equal(e, "started call", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
	equal(e, "its text", d.call(key(1, 1)).Shown, agentturn.ShownUnknown)
	equal(e, "planned call", d.call(key(1, 2)).State, turnkeeper.CallCancelled)
	equal(e, "its text", d.call(key(1, 2)).Shown, agentturn.ShownNotRun)
	e.wantCancelled(d.grant.TurnID)
}

func cancelRunning(e *env) {
	d := e.turn()
	equal(e, "asked to cancel at the start", d.record.End, turnlog.WantedEnd(""))
	e.cancel(d.grant.TurnID, false)
	e.cancel(d.grant.TurnID, false)
	equal(e, "turn", d.turnState(), turnkeeper.TurnRunning)
	record, err := e.Load(e.Context(), d.grant.TurnID, d.grant.GrantID)
	wantErr(e, "load", err, nil)
	equal(e, "asked to cancel", record.End, turnlog.EndCancel)
	wantErr(e, "end", d.Append(e.Context(), turnlog.Entry{
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled,
			Reply: cancelledReply},
		Events: events(turnkeeper.EventTurnError),
	}), nil)
	e.wantCancelled(d.grant.TurnID)
}

func cancelThenLost(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), nonce(), 1)
	d.append(turnlog.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventRoundStart, Round: 2}}})
	e.cancel(d.grant.TurnID, false)
	e.Pass(LeaseTTL)
	report := e.tick()
	equal(e, "taken from the lost worker", report.Requeued, 1)
	equal(e, "granted", report.Granted, 0)
	equal(e, "started call", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
	all := e.Events(d.grant.TurnID)
	equal(e, "event for the unfinished round", all[len(all)-2].Type, turnkeeper.EventRoundRollback)
	wantErr(e, "a write of the lost worker", d.Append(e.Context(), turnlog.Entry{Round: round(2)}),
		turnkeeper.ErrFenced)
	e.wantCancelled(d.grant.TurnID)
}

func cancelThenLostLast(e *env) {
	d := e.turn()
	for range 2 { // one more ends it
		e.Pass(LeaseTTL)
		equal(e, "queued again", e.tick().Requeued, 1)
		e.take(second)
	}
	e.cancel(d.grant.TurnID, false)
	e.Pass(LeaseTTL)
	e.tick()
	e.wantCancelled(d.grant.TurnID)
}

func cancelThenEnd(e *env) {
	d := e.detached(turnkeeper.EffectNone)
	e.cancel(d.grant.TurnID, false)
	d.wait()
	equal(e, "call", d.call(key(1, 1)).Preview, "cancelled: the turn ended before this call had.")
	e.finish(e.wantCancelled(d.grant.TurnID), succeeded("the next one"))
	d = e.turn()
	e.cancel(d.grant.TurnID, false)
	e.finish(d, turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "unavailable", Retry: true})
	failed, _ := e.Turn(d.grant.TurnID)
	equal(e, "failed turn", failed.State, turnkeeper.TurnFailed)
	e.wantCancelled(e.Message(d.record.Message.ID).TurnID)
}

func cancelEnded(e *env) {
	d := e.turn()
	e.finish(d, succeeded("done"))
	_, err := e.EndTurn(e.Context(), d.grant.TurnID, turnlog.EndCancel)
	wantErr(e, "cancellation", err, turnkeeper.ErrWrongState)
	_, _, err = e.CancelMessage(e.Context(), d.record.Message.ID)
	wantErr(e, "cancellation of the message", err, turnkeeper.ErrWrongState)
	_, err = e.EndTurn(e.Context(), 999, turnlog.EndCancel)
	wantErr(e, "no such turn", err, turnkeeper.ErrNotFound)
	reply, _ := e.Reply(d.record.Message.ID)
	equal(e, "reply", reply.Body, "done")
}

// cancelShown cancels turns whose model has written something, while no worker runs them.
func cancelShown(e *env) {
	said := func(text string) *turnkeeper.Round {
		r := round(1)
		r.Text = text
		return r
	}
	stream := func(kind turnkeeper.EventType, block int, data string) turnkeeper.Event {
		return turnkeeper.Event{Type: kind, Round: 2, Block: block, Data: []byte(data)}
	}
	streamed := []turnkeeper.Event{
		stream(turnkeeper.EventRoundStart, 0, `{"of":3}`), stream(turnkeeper.EventBlockStart, 3, `{"kind":"text"}`),
		stream(turnkeeper.EventBlockDelta, 3, `{"text":"void"}`), stream(turnkeeper.EventRoundRollback, 0,
			`{"reason":"timeout"}`),
		stream(turnkeeper.EventRoundStart, 0, `{"of":3}`), stream(turnkeeper.EventBlockStart, 4, `{"kind":"thinking"}`),
		stream(turnkeeper.EventBlockDelta, 4, `{"text":"a thought"}`), stream(turnkeeper.EventBlockStop, 4, `null`),
		stream(turnkeeper.EventBlockStart, 5, `{"kind":"text"}`), stream(turnkeeper.EventBlockDelta, 5,
			`{"text":"The tap "}`),
		stream(turnkeeper.EventBlockDelta, 5, `{"text":"drips "}`), stream(turnkeeper.EventBlockStart, 6,
			`{"kind":"tool_use"}`),
		stream(turnkeeper.EventBlockDelta, 6, `{"text":"{}"}`),
	}
	const before = cancelledReply + "\n\nBefore that it had written:\n\n"
	for name, c := range map[string]struct {
		entries []turnlog.Entry
		want    string
	}{
		"nothing": {nil, cancelledReply},
		"a blank": {[]turnlog.Entry{{Round: said(" \n"), Events: events(turnkeeper.EventRoundStart)}},
			cancelledReply},
		"a finished round": {[]turnlog.Entry{{Round: said("Let me look."), Events: events(turnkeeper.EventRoundStart)}},
			before + "Let me look."},
		"an open round": {[]turnlog.Entry{{Round: said("Let me look."), Events: events(turnkeeper.EventRoundStart)},
			{Events: streamed}}, before + "Let me look.\n\nThe tap drips "},
		"a void round": {[]turnlog.Entry{{Round: said("Let me look."), Events: events(turnkeeper.EventRoundStart)},
			{Events: streamed[:4]}},
			before + "Let me look."},
		"private content": {[]turnlog.Entry{{Round: said("It is 4711."), Events: events(turnkeeper.EventRoundStart),
			Labels: []policy.Mark{private}}}, cancelledReply},
		"untrusted content": {[]turnlog.Entry{{Round: said("It is 4711."), Events: events(turnkeeper.EventRoundStart),
			Labels: []policy.Mark{untrusted}}}, before + "It is 4711."},
	} {
		e.enqueue("clerk", name, name)
		d := e.next(first)
		for _, entry := range c.entries {
			d.append(entry)
		}
		e.cancel(d.grant.TurnID, false)
		e.Pass(LeaseTTL)
		e.tick() // the worker is lost
		reply, _ := e.Reply(d.record.Message.ID)
		equal(e, name, reply.Body, c.want)
		all := e.Events(d.grant.TurnID)
		equal(e, name+": reply in the last event", strings.Contains(string(all[len(all)-1].Data),
			"This turn was cancelled."), true)
	}
}

package storesuite

import (
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
)

const cancelledReply = "This turn was cancelled."

// isCancelled fails the test unless the turn is closed as cancelled: with its
// message and one reply, its last event, and its lane free for the next.
func (h *house) isCancelled(id turnkeeper.TurnID) (next *dispatch) {
	h.Helper()
	turn, rounds := h.Turn(id)
	equal(h, "turn", turn.State, turnkeeper.TurnCancelled)
	equal(h, "stop reason", turn.StopReason, turnkeeper.StopCancelled)
	equal(h, "message", h.Message(turn.MessageID).State, turnkeeper.MessageCancelled)
	equal(h, "turn of the message", h.Message(turn.MessageID).TurnID, id)
	reply, ok := h.Reply(turn.MessageID)
	if !ok || reply.Body != cancelledReply || reply.TurnID != id || reply.Outcome != turnkeeper.TurnCancelled {
		h.Errorf("reply %+v", reply)
	}
	all := h.Events(id)
	if len(all) == 0 || all[len(all)-1].Type != turnkeeper.EventTurnError || all[len(all)-1].Seq != int64(len(all)) {
		h.Errorf("events %v", all)
	}
	for _, round := range rounds {
		for _, call := range round.Calls {
			equal(h, "call is answered", call.State.Answered(), true)
		}
	}
	behind := h.enqueue(turn.Agent, turn.Conversation, "behind")
	h.Pass(3 * time.Minute) // a lane's back-off
	next = h.next(first)
	equal(h, "next in the lane", next.record.Message.ID, behind)
	return next
}

func (h *house) cancel(id turnkeeper.TurnID, closed bool) {
	h.Helper()
	got, err := h.CancelTurn(h.Context(), id)
	isIt(h, "cancellation", err, nil)
	equal(h, "closed at once", got, closed)
}

func cancelWaiting(h *house) {
	id := h.enqueue("clerk", "", "never mind")
	turn, closed, err := h.CancelMessage(h.Context(), id)
	isIt(h, "cancellation", err, nil)
	equal(h, "closed", closed, true)
	equal(h, "granted", h.tick().Granted, 0)
	equal(h, "grants", len(h.Grants(turn)), 0)
	again, closed, err := h.CancelMessage(h.Context(), id)
	isIt(h, "the second cancellation", err, nil)
	equal(h, "closed", closed, true)
	equal(h, "turn", again, turn)
	h.ends(h.isCancelled(turn), succeeded("of the one behind"))

	// One whose first turn has failed waits for the next.
	d := h.turn()
	failed := turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "away", Retry: true}
	h.ends(d, failed)
	turn, _, err = h.CancelMessage(h.Context(), d.record.Message.ID)
	isIt(h, "cancellation in back-off", err, nil)
	now, _ := h.Turn(turn)
	equal(h, "attempt", now.Attempt, 2)

	// One that waits behind a turn that runs.
	d = h.isCancelled(turn)
	behind := h.enqueue("clerk", "", "behind")
	turn, _, err = h.CancelMessage(h.Context(), behind)
	isIt(h, "cancellation behind a turn that runs", err, nil)
	equal(h, "turn that runs", d.turnState(), turnkeeper.TurnRunning)
	h.ends(d, succeeded("done"))
	h.isCancelled(turn)
	_, _, err = h.CancelMessage(h.Context(), 999)
	isIt(h, "no such message", err, turnkeeper.ErrNotFound)
}

// ends ends the dispatch so.
func (h *house) ends(d *dispatch, o turnkeeper.Outcome) {
	h.Helper()
	isIt(h, "end", d.end(o), nil)
}

func cancelAwaiting(h *house) {
	d := h.waits(turnkeeper.EffectOnce)
	c := h.claim(second)
	h.cancel(d.grant.TurnID, true)
	h.cancel(d.grant.TurnID, true)
	call := d.call(key(1, 1))
	equal(h, "call", call.State, turnkeeper.CallCancelled)
	equal(h, "preview", call.Preview, "cancelled: the turn ended before this call had. It may or may not have happened.")
	equal(h, "what the model was shown", call.Shown, "handle")
	held, err := h.ClaimsHeld(h.Context(), []turnkeeper.ClaimID{c.Claim})
	isIt(h, "claims", err, nil)
	equal(h, "claims that stand", len(held), 0)
	isIt(h, "late arrival", h.Arrive(h.Context(), c, arrival(c, "done")), turnkeeper.ErrFenced)
	equal(h, "call after it", d.call(key(1, 1)).State, turnkeeper.CallCancelled)
	h.isCancelled(d.grant.TurnID)
}

func cancelArrived(h *house) {
	d := h.waits(turnkeeper.EffectOnce)
	c := h.claim(second)
	isIt(h, "arrival", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	equal(h, "turn", d.turnState(), turnkeeper.TurnQueued)
	h.cancel(d.grant.TurnID, true)
	equal(h, "call", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
	h.isCancelled(d.grant.TurnID)
}

func cancelQueued(h *house) {
	d := h.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), nonce(), 1)
	d.append(turnkeeper.Entry{Events: events(turnkeeper.EventRoundStop)})
	isIt(h, "hand-back", d.end(turnkeeper.Outcome{State: turnkeeper.TurnQueued}), nil)
	h.cancel(d.grant.TurnID, true)
	equal(h, "started call", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
	equal(h, "what is said of it", d.call(key(1, 1)).Shown, agentturn.ShownUnknown)
	equal(h, "planned call", d.call(key(1, 2)).State, turnkeeper.CallCancelled)
	equal(h, "what is said of it", d.call(key(1, 2)).Shown, agentturn.ShownNotRun)
	h.isCancelled(d.grant.TurnID)
}

func cancelRunning(h *house) {
	d := h.turn()
	equal(h, "asked at the start", d.record.Cancelled, false)
	h.cancel(d.grant.TurnID, false)
	h.cancel(d.grant.TurnID, false)
	equal(h, "turn", d.turnState(), turnkeeper.TurnRunning)
	record, err := h.Load(h.Context(), d.grant.TurnID, d.grant.GrantID)
	isIt(h, "load", err, nil)
	equal(h, "asked", record.Cancelled, true)
	isIt(h, "end", d.Append(h.Context(), turnkeeper.Entry{
		Outcome: &turnkeeper.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled, Reply: cancelledReply},
		Events:  events(turnkeeper.EventTurnError),
	}), nil)
	h.isCancelled(d.grant.TurnID)
}

func cancelThenLost(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), nonce(), 1)
	d.append(turnkeeper.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventRoundStart, Round: 2}}})
	h.cancel(d.grant.TurnID, false)
	h.Pass(LeaseTTL)
	report := h.tick()
	equal(h, "taken from the lost worker", report.Requeued, 1)
	equal(h, "granted", report.Granted, 0)
	equal(h, "started call", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
	all := h.Events(d.grant.TurnID)
	equal(h, "what the lost worker had streamed", all[len(all)-2].Type, turnkeeper.EventRoundRollback)
	isIt(h, "a write of the lost worker", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), turnkeeper.ErrFenced)
	h.isCancelled(d.grant.TurnID)
}

func cancelThenEnd(h *house) {
	d := h.detached(turnkeeper.EffectNone)
	h.cancel(d.grant.TurnID, false)
	d.wait()
	equal(h, "call", d.call(key(1, 1)).Preview, "cancelled: the turn ended before this call had.")
	h.ends(h.isCancelled(d.grant.TurnID), succeeded("of the one behind"))
	d = h.turn()
	h.cancel(d.grant.TurnID, false)
	h.ends(d, turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "away", Retry: true})
	failed, _ := h.Turn(d.grant.TurnID)
	equal(h, "turn that failed", failed.State, turnkeeper.TurnFailed)
	h.isCancelled(h.Message(d.record.Message.ID).TurnID)
}

func cancelEnded(h *house) {
	d := h.turn()
	h.ends(d, succeeded("done"))
	_, err := h.CancelTurn(h.Context(), d.grant.TurnID)
	isIt(h, "cancellation", err, turnkeeper.ErrWrongState)
	_, _, err = h.CancelMessage(h.Context(), d.record.Message.ID)
	isIt(h, "cancellation of the message", err, turnkeeper.ErrWrongState)
	_, err = h.CancelTurn(h.Context(), 999)
	isIt(h, "no such turn", err, turnkeeper.ErrNotFound)
	reply, _ := h.Reply(d.record.Message.ID)
	equal(h, "reply", reply.Body, "done")
}

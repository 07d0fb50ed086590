package storesuite

import (
	"time"

	"turnkeeper"
)

var farTools = []string{"tool"}

// detached is a turn of the clerk with a call of the effect that is open
// elsewhere, and may take an hour.
func (h *house) detached(effect turnkeeper.Effect) *dispatch {
	h.Helper()
	d := h.planned(effect)
	n := nonce()
	d.append(turnkeeper.Entry{
		Starts: []turnkeeper.CallStart{{Key: key(1, 1), Nonce: n, Attempt: 1, Effect: effect, Detached: time.Hour}},
		Results: []turnkeeper.CallResult{{
			Key: key(1, 1), Nonce: n, State: turnkeeper.CallRunning, Shown: "handle", OutputID: turnkeeper.OutputID(nonce()),
		}},
		Events: events(turnkeeper.EventToolStarted),
	})
	call := d.call(key(1, 1))
	equal(h, "state", call.State, turnkeeper.CallRunning)
	equal(h, "elsewhere", call.Elsewhere, true)
	equal(h, "ended", call.EndedAt.IsZero(), true)
	return d
}

func (d *dispatch) wait() {
	d.h.Helper()
	d.append(turnkeeper.Entry{Outcome: &turnkeeper.Outcome{State: turnkeeper.TurnWaiting}, Events: events(turnkeeper.EventTurnWaiting)})
}

// waits is a turn that waits for such a call.
func (h *house) waits(effect turnkeeper.Effect) *dispatch {
	h.Helper()
	d := h.detached(effect)
	d.wait()
	equal(h, "turn", d.turnState(), turnkeeper.TurnWaiting)
	return d
}

func (d *dispatch) turnState() turnkeeper.TurnState {
	turn, _ := d.h.Turn(d.grant.TurnID)
	return turn.State
}

// claim takes the one call that rings.
func (h *house) claim(worker turnkeeper.WorkerID) turnkeeper.ClaimedCall {
	h.Helper()
	refs := h.FetchCalls(worker)
	if len(refs) != 1 {
		h.Fatalf("%d detached calls ring, want 1", len(refs))
	}
	c, err := h.Claim(h.Context(), refs[0], worker, farTools)
	if err != nil {
		h.Fatal(err)
	}
	return c
}

func arrival(c turnkeeper.ClaimedCall, text string) turnkeeper.CallResult {
	return turnkeeper.CallResult{
		Key: c.Call.Key, State: turnkeeper.CallSucceeded, Preview: text,
		Output: &turnkeeper.Output{ID: c.Call.OutputID, TurnID: c.Turn.ID, Call: c.Call.Key, MediaType: "text/plain", Text: text},
	}
}

// with attaches binary content to a result.
func with(r turnkeeper.CallResult, id turnkeeper.OutputID) turnkeeper.CallResult {
	r.Attached = append(r.Attached, turnkeeper.Output{
		ID: id, Call: r.Key, MediaType: "image/png", Bytes: []byte{0, 1}, SizeBytes: 2, RawBytes: 2, Description: "[a dot]",
	})
	return r
}

// attached checks that what was attached to a result is stored.
func (d *dispatch) attached(id turnkeeper.OutputID) {
	d.h.Helper()
	o, err := d.h.Outputs().DescribeOutput(d.h.Context(), d.grant.TurnID, id)
	isIt(d.h, "what is attached", err, nil)
	equal(d.h, "its kind", o.MediaType, "image/png")
	equal(d.h, "its size", o.SizeBytes, 2)
}

// takeIn appends the one result that has arrived, and nothing more arrives.
func (d *dispatch) takeIn(state turnkeeper.CallState) turnkeeper.CallResult {
	d.h.Helper()
	arrived, err := d.Arrivals(d.h.Context())
	if err != nil || len(arrived) != 1 {
		d.h.Fatalf("%d results have arrived, error %v", len(arrived), err)
	}
	equal(d.h, "state of the arrival", arrived[0].State, state)
	arrived[0].Shown = "handle"
	d.append(turnkeeper.Entry{Results: arrived, Events: events(turnkeeper.EventToolResult)})
	equal(d.h, "state in the journal", d.call(key(1, 1)).State, state)
	left, err := d.Arrivals(d.h.Context())
	if err != nil || len(left) != 0 {
		d.h.Errorf("%d results are left, error %v", len(left), err)
	}
	return arrived[0]
}

func waitsHoldingNothing(h *house) {
	d := h.waits(turnkeeper.EffectNone)
	h.enqueue("clerk", "", "behind")
	equal(h, "granted while it waits", h.tick().Granted, 0)
	h.Pass(2 * LeaseTTL)
	report := h.tick()
	equal(h, "granted after two leases", report.Granted, 0)
	equal(h, "lost", report.Requeued+report.Closed, 0)
	equal(h, "outcome in the log", h.Grants(d.grant.TurnID)[0].Outcome, "waiting")
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "grant", turn.GrantID, "")
	isIt(h, "a write of its last holder", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), turnkeeper.ErrFenced)
}

func arrivalWakes(h *house) {
	d := h.waits(turnkeeper.EffectOnce)
	behind := h.enqueue("clerk", "", "behind")
	c := h.claim(second)
	equal(h, "limit", c.Limit, time.Hour)
	equal(h, "left", c.Left > 59*time.Minute && c.Left <= time.Hour, true)
	equal(h, "tool", c.Call.Name, "tool")
	isIt(h, "arrival", h.Arrive(h.Context(), c, with(with(arrival(c, "done"), "dot"), "another")), nil)
	d.attached("dot")
	d.attached("another")
	equal(h, "turn", d.turnState(), turnkeeper.TurnQueued)
	equal(h, "call, for nobody holds the turn", d.call(key(1, 1)).State, turnkeeper.CallRunning)
	after := h.next(second)
	equal(h, "turn that goes on", after.grant.TurnID, d.grant.TurnID)
	equal(h, "losses", after.record.Turn.Losses, 0)
	equal(h, "outputs named", after.takeIn(turnkeeper.CallSucceeded).OutputID, c.Call.OutputID)
	equal(h, "output of the call", after.call(key(1, 1)).OutputID, c.Call.OutputID)
	isIt(h, "end", after.end(succeeded("done")), nil)
	equal(h, "next in the lane", h.next(first).record.Message.ID, behind)
}

func arrivedBeforeTheWait(h *house) {
	d := h.detached(turnkeeper.EffectOnce)
	c := h.claim(second)
	isIt(h, "arrival", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	equal(h, "turn", d.turnState(), turnkeeper.TurnRunning)
	d.wait()
	equal(h, "turn that would wait", d.turnState(), turnkeeper.TurnQueued)
	h.next(second).takeIn(turnkeeper.CallSucceeded)
}

func nothingToWaitFor(h *house) {
	d := h.planned(turnkeeper.EffectNone)
	d.wait()
	equal(h, "turn", d.turnState(), turnkeeper.TurnQueued)
	equal(h, "granted", h.tick().Granted, 1)
}

func arrivalWhileRunning(h *house) {
	d := h.detached(turnkeeper.EffectKeyed)
	c := h.claim(second)
	isIt(h, "arrival", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	d.append(turnkeeper.Entry{Round: round(2), Events: events(turnkeeper.EventRoundStart)})
	d.takeIn(turnkeeper.CallSucceeded)
	d.append(turnkeeper.Entry{Round: round(3), Events: events(turnkeeper.EventRoundStart)})
	for i, e := range h.Events(d.grant.TurnID) {
		equal(h, "number", e.Seq, int64(i)+1)
	}
}

func claimOnce(h *house) {
	d := h.waits(turnkeeper.EffectOnce)
	ref := h.FetchCalls(first)[0]
	_, err := h.Claim(h.Context(), ref, second, []string{"another"})
	isIt(h, "a worker without the tool", err, turnkeeper.ErrNotFound)
	_, err = h.Claim(h.Context(), turnkeeper.CallRef{TurnID: ref.TurnID, Key: ref.Key, Attempt: 2}, first, farTools)
	isIt(h, "an attempt there is not", err, turnkeeper.ErrNotFound)
	c, err := h.Claim(h.Context(), ref, first, farTools)
	isIt(h, "the first", err, nil)
	for _, worker := range []turnkeeper.WorkerID{first, second} {
		_, err := h.Claim(h.Context(), ref, worker, farTools)
		isIt(h, "another claim", err, turnkeeper.ErrNotFound)
	}
	equal(h, "starts", d.call(key(1, 1)).Starts, 1)
	stranger := c
	stranger.Claim = "somebody else's"
	isIt(h, "a result under another claim", h.Arrive(h.Context(), stranger, arrival(c, "x")), turnkeeper.ErrFenced)
	equal(h, "turn", d.turnState(), turnkeeper.TurnWaiting)
	isIt(h, "the result", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	_, err = h.Claim(h.Context(), ref, second, farTools)
	isIt(h, "a claim after the result", err, turnkeeper.ErrNotFound)
}

func claimVoid(h *house) {
	d := h.detached(turnkeeper.EffectOnce)
	c := h.claim(second)
	held, err := h.ClaimsHeld(h.Context(), []turnkeeper.ClaimID{c.Claim})
	isIt(h, "claims", err, nil)
	equal(h, "claims that stand", len(held), 1)
	o := succeeded("without it")
	d.append(turnkeeper.Entry{
		Results: []turnkeeper.CallResult{result(key(1, 1), c.Call.Nonce, turnkeeper.CallCancelled, "cancelled")}, Outcome: &o,
		Events: events(turnkeeper.EventTurnComplete),
	})
	held, err = h.ClaimsHeld(h.Context(), []turnkeeper.ClaimID{c.Claim})
	isIt(h, "claims", err, nil)
	equal(h, "claims that stand after the end", len(held), 0)
	isIt(h, "a result", h.Arrive(h.Context(), c, with(arrival(c, "it came"), "dot")), turnkeeper.ErrFenced)
	d.attached("dot")
	equal(h, "state", d.call(key(1, 1)).State, turnkeeper.CallCancelled)
	isIt(h, "a hand-on", h.HandOn(h.Context(), c), turnkeeper.ErrFenced)
	equal(h, "calls that ring", len(h.FetchCalls(first)), 0)
	equal(h, "turn", d.turnState(), turnkeeper.TurnSucceeded)
}

func handOn(h *house) {
	d := h.waits(turnkeeper.EffectKeyed)
	for attempt := 1; attempt <= turnkeeper.MaxDetachedLosses+1; attempt++ {
		c := h.claim(first)
		equal(h, "attempt", c.Ref.Attempt, attempt)
		isIt(h, "hand-on", h.HandOn(h.Context(), c), nil)
		isIt(h, "a result after it", h.Arrive(h.Context(), c, arrival(c, "late")), turnkeeper.ErrFenced)
	}
	c := h.claim(second)
	equal(h, "starts", d.call(key(1, 1)).Starts, c.Ref.Attempt)
	isIt(h, "the result", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	h.next(second).takeIn(turnkeeper.CallSucceeded)
}

// loseCall has the first worker fall silent.
func (h *house) loseCall() {
	h.Helper()
	h.Pass(takeover + time.Second)
	h.beat(second)
	equal(h, "calls that something was done about", h.tickAlone().Calls, 1)
}

func lostOnce(h *house) {
	d := h.waits(turnkeeper.EffectOnce)
	c := h.claim(first)
	h.beat(second)
	equal(h, "calls lost before the worker is silent", h.tickAlone().Calls, 0)
	h.Pass(takeover + time.Second)
	h.countSilence()
	h.beat(second)
	equal(h, "calls lost at the database's return", h.tickAlone().Calls, 0)
	h.loseCall()
	equal(h, "calls that ring", len(h.FetchCalls(second)), 0)
	isIt(h, "a result after the verdict", h.Arrive(h.Context(), c, arrival(c, "it came")), turnkeeper.ErrFenced)
	after := h.take(second)[0] // the tick that gave the verdict granted it
	after.takeIn(turnkeeper.CallUnknown)
	equal(h, "late result", after.call(key(1, 1)).LateResult, "it came")
	equal(h, "losses of the turn", after.record.Turn.Losses, 0)
	equal(h, "starts", d.call(key(1, 1)).Starts, 1)
}

func lostRepeatable(h *house) {
	d := h.waits(turnkeeper.EffectKeyed)
	for range turnkeeper.MaxDetachedLosses - 1 {
		h.beat(first)
		old := h.claim(first)
		h.loseCall()
		equal(h, "turn", d.turnState(), turnkeeper.TurnWaiting)
		isIt(h, "a result of the lost run", h.Arrive(h.Context(), old, arrival(old, "late")), turnkeeper.ErrFenced)
	}
	h.beat(first)
	c := h.claim(first)
	equal(h, "attempt", c.Ref.Attempt, turnkeeper.MaxDetachedLosses)
	h.loseCall()
	h.take(second)[0].takeIn(turnkeeper.CallFailed)
}

func overdue(h *house) {
	h.waits(turnkeeper.EffectOnce)
	c := h.claim(first)
	h.Pass(time.Hour + time.Minute)
	equal(h, "calls that something was done about", h.tick().Calls, 1)
	isIt(h, "a result after it", h.Arrive(h.Context(), c, arrival(c, "late")), turnkeeper.ErrFenced)
	h.take(second)[0].takeIn(turnkeeper.CallFailed)
}

func unwanted(h *house) {
	h.waits(turnkeeper.EffectOnce)
	h.Pass(turnkeeper.MaxDetachedWait - time.Minute)
	equal(h, "calls before it has waited for so long", h.tick().Calls, 0)
	h.Pass(20 * time.Minute) // it is not looked at each time
	equal(h, "calls that something was done about", h.tick().Calls, 1)
	equal(h, "calls that ring", len(h.FetchCalls(second)), 0)
	h.take(second)[0].takeIn(turnkeeper.CallFailed)
}

func lostArrival(h *house) {
	d := h.waits(turnkeeper.EffectOnce)
	c := h.claim(first)
	h.Journal(d.record, d.grant) // opens the way that can be cut
	h.CutNext(true)
	isIt(h, "arrival", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	equal(h, "turn", d.turnState(), turnkeeper.TurnQueued)
	h.next(second).takeIn(turnkeeper.CallSucceeded)
}

func arrivedThenLost(h *house) {
	d := h.detached(turnkeeper.EffectOnce)
	c := h.claim(second)
	d = h.again(h.again(d))
	isIt(h, "arrival", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	h.Pass(LeaseTTL)
	equal(h, "closed", h.tick().Closed, 1)
	equal(h, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
}

// third is a worker whose silence says nothing.
const third turnkeeper.WorkerID = "worker-3"

func (h *house) beatThird() {
	h.Beat(turnkeeper.Heartbeat{WorkerID: third, Host: "h", Version: "v", Slots: 10})
}

func overlookedFetch(h *house) {
	h.waits(turnkeeper.EffectOnce)
	h.beatThird()
	equal(h, "calls that ring", len(h.FetchCalls(third)), 1)
	equal(h, "calls that something was done about at once", h.tick().Calls, 0)
	h.Pass(5*time.Minute + time.Second)
	equal(h, "calls that something was done about", h.tick().Calls, 1)
	c := h.claim(second)
	equal(h, "attempt", c.Ref.Attempt, 1)
	isIt(h, "arrival", h.Arrive(h.Context(), c, arrival(c, "done")), nil)
	h.next(second).takeIn(turnkeeper.CallSucceeded)
}

func clockPutBackCall(h *house) {
	h.waits(turnkeeper.EffectOnce)
	h.beatThird()
	h.claim(third)
	h.Pass(-3 * time.Hour)
	for range 4 { // the first tick may find the step, and hold off; a later one ends that
		h.beat(second)
		if h.tickAlone().Calls == 1 {
			return
		}
		h.Pass(LeaseTTL)
	}
	h.Error("the call waits for the hours to come round")
}

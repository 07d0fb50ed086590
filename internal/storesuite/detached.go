package storesuite

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
)

var toolNames = []string{"tool"}

// detached returns a dispatch with one detached call of the effect, which may run for an hour.
func (e *env) detached(effect turnkeeper.Effect) *dispatch {
	e.Helper()
	d := e.planned(effect)
	n := nonce()
	d.append(turnlog.Entry{
		Starts: []turnlog.CallStart{{Key: key(1, 1), Nonce: n, Attempt: 1, Effect: effect, Detached: time.Hour}},
		Results: []turnlog.CallResult{{
			Key: key(1, 1), Nonce: n, State: turnkeeper.CallRunning, Shown: "handle",
			OutputID: turnkeeper.OutputID(nonce()),
		}},
		Events: events(turnkeeper.EventToolStarted),
	})
	call := d.call(key(1, 1))
	equal(e, "state", call.State, turnkeeper.CallRunning)
	equal(e, "detached", call.Awaited, true)
	equal(e, "ended", call.EndedAt.IsZero(), true)
	return d
}

func (d *dispatch) wait() {
	d.env.Helper()
	d.append(turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting},
		Events: events(turnkeeper.EventTurnWaiting)})
}

// waits returns a dispatch that has ended because its turn waits for a detached call.
func (e *env) waits(effect turnkeeper.Effect) *dispatch {
	e.Helper()
	d := e.detached(effect)
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	return d
}

func (d *dispatch) turnState() turnkeeper.TurnState {
	turn, _ := d.env.Turn(d.grant.TurnID)
	return turn.State
}

// claim fetches and claims the only queued detached call.
func (e *env) claim(worker turnkeeper.WorkerID) turnlog.ClaimedCall {
	e.Helper()
	refs := e.FetchCalls(worker)
	if len(refs) != 1 {
		e.Fatalf("%d detached calls are queued, want 1", len(refs))
	}
	c, err := e.Claim(e.Context(), refs[0], worker, toolNames)
	if err != nil {
		e.Fatal(err)
	}
	turn, _ := e.Turn(c.Ref.TurnID)
	equal(e, "agent of the call", c.Turn.Agent, turn.Agent)
	equal(e, "user of the call", c.Turn.User, turn.User)
	equal(e, "conversation of the call", c.Turn.Conversation, turn.Conversation)
	return c
}

// completed returns the result of a detached call.
func completed(c turnlog.ClaimedCall, text string) turnlog.CallResult {
	return turnlog.CallResult{
		Key: c.Call.Key, State: turnkeeper.CallSucceeded, Preview: text,
		Output: &turnkeeper.Output{ID: c.Call.OutputID, TurnID: c.Turn.ID, Call: c.Call.Key,
			MediaType: "text/plain", Text: text},
	}
}

// with attaches binary content to a result.
func with(r turnlog.CallResult, id turnkeeper.OutputID) turnlog.CallResult {
	r.Attached = append(r.Attached, turnkeeper.Output{
		ID: id, Call: r.Key, MediaType: "image/png", Bytes: []byte{0, 1}, SizeBytes: 2, RawBytes: 2,
		Description: "[a dot]",
	})
	return r
}

// wantAttached fails the test unless the attachment is stored.
func (d *dispatch) wantAttached(id turnkeeper.OutputID) {
	d.env.Helper()
	o, err := d.env.Outputs().DescribeOutput(d.env.Context(), d.grant.TurnID, id)
	wantErr(d.env, "attachment", err, nil)
	equal(d.env, "media type", o.MediaType, "image/png")
	equal(d.env, "size", o.SizeBytes, 2)
}

// takeResult appends the only completed result to the journal.
func (d *dispatch) takeResult(state turnkeeper.CallState) turnlog.CallResult {
	d.env.Helper()
	completed, err := d.Arrivals(d.env.Context())
	if err != nil || len(completed) != 1 {
		d.env.Fatalf("%d calls completed, want 1; error %v", len(completed), err)
	}
	equal(d.env, "state of the result", completed[0].State, state)
	completed[0].Shown = "handle"
	d.append(turnlog.Entry{Results: completed, Events: events(turnkeeper.EventToolResult)})
	equal(d.env, "state in the journal", d.call(key(1, 1)).State, state)
	left, err := d.Arrivals(d.env.Context())
	if err != nil || len(left) != 0 {
		d.env.Errorf("%d results left after the entry, error %v", len(left), err)
	}
	return completed[0]
}

func waitsHoldingNothing(e *env) {
	d := e.waits(turnkeeper.EffectNone)
	e.enqueue("clerk", "", "behind")
	equal(e, "granted while it waits", e.tick().Granted, 0)
	e.Pass(2 * LeaseTTL)
	report := e.tick()
	equal(e, "granted after two leases", report.Granted, 0)
	equal(e, "lost", report.Requeued+report.Closed, 0)
	equal(e, "outcome in the log", e.Grants(d.grant.TurnID)[0].Outcome, "waiting")
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "grant", turn.GrantID, "")
	wantErr(e, "a write of its last holder", d.Append(e.Context(), turnlog.Entry{Round: round(2)}),
		turnkeeper.ErrFenced)
}

func resultWakesTurn(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	behind := e.enqueue("clerk", "", "behind")
	c := e.claim(second)
	equal(e, "limit", c.Limit, time.Hour)
	equal(e, "left", c.Left > 59*time.Minute && c.Left <= time.Hour, true)
	equal(e, "tool", c.Call.Name, "tool")
	wantErr(e, "completion", e.Arrive(e.Context(), c, with(with(completed(c, "done"), "dot"), "another")), nil)
	d.wantAttached("dot")
	d.wantAttached("another")
	for _, id := range []turnkeeper.OutputID{c.Call.OutputID, "dot"} {
		o, err := e.Outputs().DescribeOutput(e.Context(), d.grant.TurnID, id)
		wantErr(e, "output", err, nil)
		equal(e, "the output has a time", o.CreatedAt.IsZero(), false)
	}
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	equal(e, "call while nobody holds the turn", d.call(key(1, 1)).State, turnkeeper.CallRunning)
	after := e.next(second)
	equal(e, "continued turn", after.grant.TurnID, d.grant.TurnID)
	equal(e, "losses", after.record.Turn.Losses, 0)
	equal(e, "output of the result", after.takeResult(turnkeeper.CallSucceeded).OutputID, c.Call.OutputID)
	equal(e, "output of the call", after.call(key(1, 1)).OutputID, c.Call.OutputID)
	wantErr(e, "end", after.end(succeeded("done")), nil)
	equal(e, "next in the lane", e.next(first).record.Message.ID, behind)
}

func resultBeforeWait(e *env) {
	d := e.detached(turnkeeper.EffectOnce)
	c := e.claim(second)
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	equal(e, "turn", d.turnState(), turnkeeper.TurnRunning)
	d.wait()
	equal(e, "turn after it asked to wait", d.turnState(), turnkeeper.TurnQueued)
	e.next(second).takeResult(turnkeeper.CallSucceeded)
}

func nothingToWaitFor(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	d.wait()
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	equal(e, "granted", e.tick().Granted, 1)
}

func resultWhileRunning(e *env) {
	d := e.detached(turnkeeper.EffectKeyed)
	c := e.claim(second)
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	d.append(turnlog.Entry{Round: round(2), Events: events(turnkeeper.EventRoundStart)})
	d.takeResult(turnkeeper.CallSucceeded)
	d.append(turnlog.Entry{Round: round(3), Events: events(turnkeeper.EventRoundStart)})
	for i, event := range e.Events(d.grant.TurnID) {
		equal(e, "number", event.Seq, int64(i)+1)
	}
}

func claimOnce(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	ref := e.FetchCalls(first)[0]
	_, err := e.Claim(e.Context(), ref, second, []string{"another"})
	wantErr(e, "a worker without the tool", err, turnkeeper.ErrNotFound)
	_, err = e.Claim(e.Context(), turnlog.CallRef{TurnID: ref.TurnID, Key: ref.Key, Attempt: 2}, first, toolNames)
	wantErr(e, "an unknown attempt", err, turnkeeper.ErrNotFound)
	c, err := e.Claim(e.Context(), ref, first, toolNames)
	wantErr(e, "the first", err, nil)
	for _, worker := range []turnkeeper.WorkerID{first, second} {
		_, err := e.Claim(e.Context(), ref, worker, toolNames)
		wantErr(e, "another claim", err, turnkeeper.ErrNotFound)
	}
	equal(e, "starts", d.call(key(1, 1)).Starts, 1)
	other := c
	other.Claim = "somebody else's"
	wantErr(e, "a result under another claim", e.Arrive(e.Context(), other, completed(c, "x")), turnkeeper.ErrFenced)
	equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
	wantErr(e, "the result", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	_, err = e.Claim(e.Context(), ref, second, toolNames)
	wantErr(e, "a claim after the result", err, turnkeeper.ErrNotFound)
}

func claimVoid(e *env) {
	d := e.detached(turnkeeper.EffectOnce)
	c := e.claim(second)
	held, err := e.ClaimsHeld(e.Context(), []turnlog.ClaimID{c.Claim})
	wantErr(e, "claims", err, nil)
	equal(e, "valid claims", len(held), 1)
	o := succeeded("without it")
	d.append(turnlog.Entry{
		Results: []turnlog.CallResult{result(key(1, 1), c.Call.Nonce, turnkeeper.CallCancelled, "cancelled")},
		Outcome: &o,
		Events:  events(turnkeeper.EventTurnComplete),
	})
	held, err = e.ClaimsHeld(e.Context(), []turnlog.ClaimID{c.Claim})
	wantErr(e, "claims", err, nil)
	equal(e, "valid claims after the end", len(held), 0)
	wantErr(e, "a result", e.Arrive(e.Context(), c, with(completed(c, "it came"), "dot")), turnkeeper.ErrFenced)
	d.wantAttached("dot")
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallCancelled)
	wantErr(e, "a release", e.Release(e.Context(), c), turnkeeper.ErrFenced)
	equal(e, "queued calls", len(e.FetchCalls(first)), 0)
	equal(e, "turn", d.turnState(), turnkeeper.TurnSucceeded)
}

func released(e *env) {
	d := e.waits(turnkeeper.EffectKeyed)
	for attempt := 1; attempt <= granting.MaxDetachedLosses+1; attempt++ {
		c := e.claim(first)
		equal(e, "attempt", c.Ref.Attempt, attempt)
		wantErr(e, "release", e.Release(e.Context(), c), nil)
		wantErr(e, "a result after it", e.Arrive(e.Context(), c, completed(c, "late")), turnkeeper.ErrFenced)
	}
	c := e.claim(second)
	equal(e, "starts", d.call(key(1, 1)).Starts, c.Ref.Attempt)
	wantErr(e, "the result", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	e.next(second).takeResult(turnkeeper.CallSucceeded)
}

// loseWorkerOfCall lets the first worker be silent until its call is reclaimed.
func (e *env) loseWorkerOfCall() {
	e.Helper()
	e.Pass(takeover + time.Second)
	e.beat(second)
	equal(e, "calls handled by the tick", e.tickAlone().Calls, 1)
}

func lostOnce(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	c := e.claim(first)
	e.beat(second)
	equal(e, "calls lost before the worker is silent", e.tickAlone().Calls, 0)
	e.Pass(takeover + time.Second)
	e.countSilence()
	e.beat(second)
	equal(e, "calls lost when the database returns", e.tickAlone().Calls, 0)
	e.loseWorkerOfCall()
	equal(e, "queued calls", len(e.FetchCalls(second)), 0)
	wantErr(e, "a result after the verdict", e.Arrive(e.Context(), c, completed(c, "it came")), turnkeeper.ErrFenced)
	after := e.take(second)[0] // granted by the tick that gave the verdict
	after.takeResult(turnkeeper.CallUnknown)
	equal(e, "late result", after.call(key(1, 1)).LateResult, "it came")
	equal(e, "losses of the turn", after.record.Turn.Losses, 0)
	equal(e, "starts", d.call(key(1, 1)).Starts, 1)
}

func lostRepeatable(e *env) {
	d := e.waits(turnkeeper.EffectKeyed)
	for range granting.MaxDetachedLosses - 1 {
		e.beat(first)
		old := e.claim(first)
		e.loseWorkerOfCall()
		equal(e, "turn", d.turnState(), turnkeeper.TurnWaiting)
		wantErr(e, "a result of the lost run", e.Arrive(e.Context(), old, completed(old, "late")), turnkeeper.ErrFenced)
	}
	e.beat(first)
	c := e.claim(first)
	equal(e, "attempt", c.Ref.Attempt, granting.MaxDetachedLosses)
	e.loseWorkerOfCall()
	e.take(second)[0].takeResult(turnkeeper.CallFailed)
}

func overdue(e *env) {
	e.waits(turnkeeper.EffectOnce)
	c := e.claim(first)
	e.Pass(time.Hour + time.Minute)
	equal(e, "calls handled by the tick", e.tick().Calls, 1)
	wantErr(e, "a result after it", e.Arrive(e.Context(), c, completed(c, "late")), turnkeeper.ErrFenced)
	e.take(second)[0].takeResult(turnkeeper.CallFailed)
}

func neverClaimed(e *env) {
	e.waits(turnkeeper.EffectOnce)
	e.Pass(turnkeeper.MaxDetachedWait - time.Minute)
	equal(e, "calls handled before the limit", e.tick().Calls, 0)
	e.Pass(20 * time.Minute) // the scheduler does not check it at every tick
	equal(e, "calls handled by the tick", e.tick().Calls, 1)
	equal(e, "queued calls", len(e.FetchCalls(second)), 0)
	e.take(second)[0].takeResult(turnkeeper.CallFailed)
}

// releasedUnclaimed releases a call near the end of its first wait: the wait for a worker begins anew.
func releasedUnclaimed(e *env) {
	e.waits(turnkeeper.EffectKeyed)
	e.Pass(turnkeeper.MaxDetachedWait - time.Minute)
	e.beat(first)
	wantErr(e, "release", e.Release(e.Context(), e.claim(first)), nil)
	e.Pass(turnkeeper.MaxDetachedWait - time.Minute)
	equal(e, "calls handled before the limit", e.tick().Calls, 0)
	e.Pass(20 * time.Minute)
	equal(e, "calls handled by the tick", e.tick().Calls, 1)
	e.take(second)[0].takeResult(turnkeeper.CallFailed)
}

func lostCompletion(e *env) {
	d := e.waits(turnkeeper.EffectOnce)
	c := e.claim(first)
	e.Journal(d.record, d.grant) // CutNext needs an open journal
	e.CutNext(true)
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	equal(e, "turn", d.turnState(), turnkeeper.TurnQueued)
	e.next(second).takeResult(turnkeeper.CallSucceeded)
}

func resultThenLost(e *env) {
	d := e.detached(turnkeeper.EffectOnce)
	c := e.claim(second)
	d = e.again(e.again(d))
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	e.Pass(LeaseTTL)
	equal(e, "closed", e.tick().Closed, 1)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
}

// third is a worker without a takeover timeout: its silence does not make it lost.
const third turnkeeper.WorkerID = "worker-3"

func (e *env) beatThird() {
	e.Beat(presence.Heartbeat{WorkerID: third, Host: "h", Version: "v", Slots: 10})
}

func overlookedFetch(e *env) {
	e.waits(turnkeeper.EffectOnce)
	e.beatThird()
	equal(e, "queued calls", len(e.FetchCalls(third)), 1)
	equal(e, "calls handled at once", e.tick().Calls, 0)
	e.Pass(5*time.Minute + time.Second)
	equal(e, "calls handled by the tick", e.tick().Calls, 1)
	c := e.claim(second)
	equal(e, "attempt", c.Ref.Attempt, 1)
	wantErr(e, "completion", e.Arrive(e.Context(), c, completed(c, "done")), nil)
	e.next(second).takeResult(turnkeeper.CallSucceeded)
}

func clockBackDetachedCall(e *env) {
	e.waits(turnkeeper.EffectOnce)
	e.beatThird()
	e.claim(third)
	e.Pass(-3 * time.Hour)
	for range 4 { // the first tick may find the clock step and hold off; a later tick ends the hold-off
		e.beat(second)
		if e.tickAlone().Calls == 1 {
			return
		}
		e.Pass(LeaseTTL)
	}
	e.Error("the call still waits for the old clock time")
}

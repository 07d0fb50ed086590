package storesuite

import (
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// earlierTurns checks which earlier turns of a conversation the model sees. Cancelled and
// failed turns are among them. If a message took several attempts, the last one is
// included, and each earlier one that ran a tool with an effect. A message that was
// cancelled before its first turn is not.
func earlierTurns(e *env) {
	withdrawn := e.enqueue("clerk", "", "withdrawn")
	_, _, err := e.CancelMessage(e.Context(), withdrawn)
	wantErr(e, "cancellation", err, nil)

	d := e.planned(turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), "a", 1)
	wantErr(e, "result", d.answer(key(1, 1), "a", turnkeeper.CallSucceeded, "paid"), nil)
	e.finish(d, turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled,
		Reply: cancelledReply})

	for attempt, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectOnce,
		turnkeeper.EffectNone} {
		if attempt == 0 {
			d = e.planned(effect)
		} else {
			e.Pass(3 * time.Minute) // the lane's backoff
			d = e.next(first)
			d.append(turnlog.Entry{Round: round(1, effect), Events: events(turnkeeper.EventTurnStart,
				turnkeeper.EventRoundStart)})
		}
		name := "b"
		if effect == turnkeeper.EffectNone {
			name = ""
		} else {
			d.mustStart(key(1, 1), name, 1)
		}
		wantErr(e, "result", d.answer(key(1, 1), name, turnkeeper.CallSucceeded, "done"), nil)
		o := failed(attempt < 2)
		o.ErrorClass = "overloaded"
		e.finish(d, o)
	}
	e.Pass(3 * time.Minute)
	d = e.turn()
	var got []string
	for _, p := range d.record.History {
		calls := 0
		for _, r := range p.Rounds {
			calls += len(r.Calls)
		}
		equal(e, "calls of an earlier turn", calls, 1)
		reply := p.Reply
		if p.Silent {
			reply = "-"
		}
		got = append(got, string(p.State)+" "+p.ErrorClass+" "+reply)
	}
	equal(e, "earlier turns", strings.Join(got, "; "),
		"cancelled  "+cancelledReply+"; failed overloaded -; failed overloaded sorry")
}

// previousRun checks that a run of a schedule sees the schedule's previous run, whatever ran in
// between, and that a message sees none.
func previousRun(e *env) {
	e.Register(schedule())
	e.tick()
	var last turnkeeper.TurnID
	for n := range 3 {
		e.Pass(hourly + time.Minute)
		e.tick()
		d := e.take(first)[0]
		if n == 0 && d.record.LastRun != nil || n > 0 && (d.record.LastRun == nil || d.record.LastRun.TurnID != last) {
			e.Errorf("run %d: previous run %+v, want turn %d", n+1, d.record.LastRun, last)
		}
		last = d.grant.TurnID
		e.finish(d, turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
			InnerDialogue: "quiet"})
		for range 41 * (n % 2) {
			between := e.turn()
			if between.record.LastRun != nil {
				e.Error("a message has a previous run")
			}
			e.finish(between, succeeded("done"))
		}
	}
}

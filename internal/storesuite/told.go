package storesuite

import (
	"strings"
	"time"

	"turnkeeper"
)

// toldTurns checks which earlier turns of a conversation the model sees. Cancelled and
// failed turns are among them. If a message took several attempts, the last one is
// included, and each earlier one that ran a tool with an effect. A message that was
// cancelled before its first turn is not.
func toldTurns(h *house) {
	withdrawn := h.enqueue("clerk", "", "withdrawn")
	_, _, err := h.CancelMessage(h.Context(), withdrawn)
	isIt(h, "cancellation", err, nil)

	d := h.planned(turnkeeper.EffectOnce)
	d.mustStart(key(1, 1), "a", 1)
	isIt(h, "result", d.answer(key(1, 1), "a", turnkeeper.CallSucceeded, "paid"), nil)
	h.ends(d, turnkeeper.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled, Reply: cancelledReply})

	for attempt, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectOnce, turnkeeper.EffectNone} {
		if attempt == 0 {
			d = h.planned(effect)
		} else {
			h.Pass(3 * time.Minute) // the lane's back-off
			d = h.next(first)
			d.append(turnkeeper.Entry{Round: round(1, effect), Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
		}
		name := "b"
		if effect == turnkeeper.EffectNone {
			name = ""
		} else {
			d.mustStart(key(1, 1), name, 1)
		}
		isIt(h, "result", d.answer(key(1, 1), name, turnkeeper.CallSucceeded, "done"), nil)
		o := failed(attempt < 2)
		o.ErrorClass = "overloaded"
		h.ends(d, o)
	}
	h.Pass(3 * time.Minute)
	d = h.turn()
	var got []string
	for _, p := range d.record.History {
		calls := 0
		for _, r := range p.Rounds {
			calls += len(r.Calls)
		}
		equal(h, "calls of an earlier turn", calls, 1)
		reply := p.Reply
		if p.Silent {
			reply = "-"
		}
		got = append(got, string(p.State)+" "+p.ErrorClass+" "+reply)
	}
	equal(h, "the turns that are told", strings.Join(got, "; "),
		"cancelled  "+cancelledReply+"; failed overloaded -; failed overloaded sorry")
}

// lastRunKept: a run of a schedule is told of the one before it, whatever came
// in between, and of no other schedule's.
func lastRunKept(h *house) {
	h.Register(schedule())
	h.tick()
	var last turnkeeper.TurnID
	for n := range 3 {
		h.Pass(hourly + time.Minute)
		h.tick()
		d := h.take(first)[0]
		if n == 0 && d.record.LastRun != nil || n > 0 && (d.record.LastRun == nil || d.record.LastRun.TurnID != last) {
			h.Errorf("run %d: the run before is %+v, want turn %d", n+1, d.record.LastRun, last)
		}
		last = d.grant.TurnID
		h.ends(d, turnkeeper.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, InnerDialogue: "quiet"})
		for range 41 * (n % 2) {
			between := h.turn()
			if between.record.LastRun != nil {
				h.Error("a message is told of a run before it")
			}
			h.ends(between, succeeded("done"))
		}
	}
}

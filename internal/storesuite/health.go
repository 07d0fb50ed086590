package storesuite

import (
	"time"

	"turnkeeper"
	"turnkeeper/scheduler"
)

var healths = []property{
	{"a model that fails is down for all, and its first answer brings all back", modelDown},
	{"failures side by side count once", failuresSideBySide},
	{"a model is tried by one turn, and by another where its worker is lost", oneProbe},
	{"what has waited for long enough is granted although the model is down", overdueGranted},
}

const modelUsed = "test/m"

// asking registers an agent, with a lane for each conversation, whose turns ask the model.
func (h *house) asking(agent string, giveUp time.Duration) {
	r := registration(agent, true)
	r.Models, r.GiveUpAfter = []string{modelUsed}, giveUp
	h.Register(r)
}

// failedBy ends a turn by a fault of the service.
func (d *dispatch) failedBy(seen int, after time.Duration) error {
	f := turnkeeper.ModelFailure{Model: modelUsed, Seen: seen, ErrorClass: "overloaded", Error: "away", RetryAfter: after}
	o := failed(true)
	o.WaitsFor, o.Backoff = []string{modelUsed}, min(f.Pause(), scheduler.Backoff(9))
	return d.Append(d.h.Context(), turnkeeper.Entry{ModelFailures: []turnkeeper.ModelFailure{f}, Outcome: &o})
}

// down is what a look of the scheduler finds down.
func (h *house) down() (down []turnkeeper.ModelHealth) {
	h.Helper()
	ctx := h.Context()
	err := h.Scheduler().InTick(ctx, func(t scheduler.Tick) error {
		sit, _, err := t.Look(ctx)
		down = sit.Down
		return err
	})
	isIt(h, "look", err, nil)
	return down
}

func modelDown(h *house) {
	h.asking("asker", time.Hour)
	for _, conversation := range []string{"a", "b", "c"} {
		h.enqueue("asker", conversation, "x")
	}
	h.beat(first)
	h.tick()
	all := h.take(first)
	equal(h, "granted while it is up", len(all), 3)
	isIt(h, "end", all[0].failedBy(0, 0), nil)
	isIt(h, "end", all[1].failedBy(0, 0), nil)
	m := h.Message(all[0].record.Message.ID)
	equal(h, "message", m.State, turnkeeper.MessageWaiting)
	equal(h, "attempts that count", m.Faults, 0)
	down := h.down()
	equal(h, "models that are down", len(down), 1)
	equal(h, "class", down[0].ErrorClass, "overloaded")
	equal(h, "due", down[0].Due, false)
	h.enqueue("asker", "d", "x")
	h.beat(first)
	equal(h, "granted while it is down", h.tick().Granted, 0)
	h.enqueue("desk", "", "x") // asks no model that is down
	equal(h, "granted of another agent", h.tick().Granted, 1)
	h.take(first)

	o := succeeded("answered")
	isIt(h, "end", all[2].Append(h.Context(), turnkeeper.Entry{Answered: []string{modelUsed}, Outcome: &o}), nil)
	equal(h, "models that are down after an answer", len(h.down()), 0)
	equal(h, "granted at once", h.tick().Granted, 3)
}

func failuresSideBySide(h *house) {
	h.asking("asker", time.Hour)
	for _, conversation := range []string{"a", "b", "c"} {
		h.enqueue("asker", conversation, "x")
	}
	h.beat(first)
	h.tick()
	all := h.take(first)
	for i, d := range all {
		isIt(h, "end", d.failedBy(0, []time.Duration{0, 0, time.Minute}[i]), nil)
		equal(h, "failures in a row", h.down()[0].Failures, 1)
	}
	h.Pass(scheduler.Backoff(1))
	equal(h, "due before the provider said", h.down()[0].Due, false)
	h.Pass(time.Minute - scheduler.Backoff(1))
	equal(h, "due", h.down()[0].Due, true)
	h.beat(first)
	d := h.next(first)
	equal(h, "failures that its turn knows of", d.record.Down[0].Failures, 1)
	isIt(h, "end", d.failedBy(1, 0), nil)
	equal(h, "failures in a row", h.down()[0].Failures, 2)
	h.Pass(scheduler.Backoff(1))
	equal(h, "due before the longer pause is over", h.down()[0].Due, false)
	h.Pass(scheduler.Backoff(2) - scheduler.Backoff(1))
	equal(h, "due", h.down()[0].Due, true)
}

func oneProbe(h *house) {
	h.asking("asker", time.Hour)
	h.asking("other", time.Hour)
	h.enqueue("asker", "a", "x")
	h.beat(first)
	isIt(h, "end", h.next(first).failedBy(0, 0), nil)
	h.enqueue("asker", "b", "x")
	h.enqueue("other", "c", "x")
	h.Pass(scheduler.Backoff(1))
	h.beat(first)
	equal(h, "granted", h.tick().Granted, 1)
	probing := h.take(first)[0]
	equal(h, "tried by", h.down()[0].Probe, probing.grant.GrantID)
	equal(h, "its turn knows", probing.record.Down[0].Probe, probing.grant.GrantID)
	equal(h, "granted beside it", h.tick().Granted, 0)

	h.Pass(LeaseTTL)
	h.beat(second)
	h.tick() // takes the turn back
	h.tick()
	after := h.take(second)
	equal(h, "granted after the worker was lost", len(after), 1)
	equal(h, "tried by", h.down()[0].Probe, after[0].grant.GrantID)
	o := succeeded("answered")
	isIt(h, "end", after[0].Append(h.Context(), turnkeeper.Entry{Answered: []string{modelUsed}, Outcome: &o}), nil)
	equal(h, "granted at once", h.tick().Granted, 2)
}

func overdueGranted(h *house) {
	h.asking("asker", time.Minute)
	h.asking("patient", time.Hour)
	h.enqueue("asker", "a", "x")
	h.beat(first)
	isIt(h, "end", h.next(first).failedBy(0, time.Hour), nil)
	h.enqueue("asker", "b", "x")
	h.enqueue("patient", "c", "x")
	equal(h, "granted while they may wait", h.tick().Granted, 0)
	h.Pass(2 * time.Minute)
	h.beat(first)
	equal(h, "granted", h.tick().Granted, 2)
	for _, d := range h.take(first) {
		equal(h, "agent", d.record.Turn.Agent, "asker")
		equal(h, "has waited", d.record.Waited >= time.Minute, true)
		equal(h, "is told that it does not try the model", d.record.Down[0].Probe, "")
		o := failed(false)
		o.Counted = true
		isIt(h, "end", d.end(o), nil)
		equal(h, "attempts that count", h.Message(d.record.Message.ID).Faults, 1)
	}
}

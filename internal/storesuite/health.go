package storesuite

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

var healthProperties = []property{
	{"a failing model is down for all turns until its first answer", modelDown},
	{"concurrent failures count once", failuresSideBySide},
	{"one turn probes a model, and another if its worker is lost", oneProbe},
	{"an overdue message is granted although its model is down", overdueGranted},
}

const modelUsed = "test/m"

// registerWithModel registers an agent that uses the model and has a lane for each conversation.
func (e *env) registerWithModel(agent string, giveUp time.Duration) {
	r := registration(agent, true)
	r.Models, r.GiveUpAfter = []string{modelUsed}, giveUp
	e.Register(r)
}

// failedBy ends a turn because the model's service failed.
func (d *dispatch) failedBy(seen int, after time.Duration) error {
	f := modelhealth.Failure{Model: modelUsed, Seen: seen, ErrorClass: "overloaded", Error: "unavailable", RetryAfter: after}
	o := failed(true)
	o.WaitsFor, o.Backoff = []string{modelUsed}, min(f.Pause(), scheduler.Backoff(9))
	return d.Append(d.env.Context(), turnlog.Entry{ModelFailures: []modelhealth.Failure{f}, Outcome: &o})
}

// down returns the models that are down in a snapshot of the scheduler.
func (e *env) down() (down []modelhealth.Health) {
	e.Helper()
	ctx := e.Context()
	err := e.Scheduler().InTick(ctx, func(t scheduler.Tick) error {
		sit, _, err := t.Look(ctx, true)
		down = sit.Down
		return err
	})
	wantErr(e, "snapshot", err, nil)
	return down
}

func modelDown(e *env) {
	e.registerWithModel("asker", time.Hour)
	for _, conversation := range []string{"a", "b", "c"} {
		e.enqueue("asker", conversation, "x")
	}
	e.beat(first)
	e.tick()
	all := e.take(first)
	equal(e, "granted while it is up", len(all), 3)
	wantErr(e, "end", all[0].failedBy(0, 0), nil)
	wantErr(e, "end", all[1].failedBy(0, 0), nil)
	m := e.Message(all[0].record.Message.ID)
	equal(e, "message", m.State, turnkeeper.MessageWaiting)
	equal(e, "counted attempts", m.Faults, 0)
	down := e.down()
	equal(e, "models that are down", len(down), 1)
	equal(e, "class", down[0].ErrorClass, "overloaded")
	equal(e, "due", down[0].Due, false)
	e.enqueue("asker", "d", "x")
	e.beat(first)
	equal(e, "granted while it is down", e.tick().Granted, 0)
	e.enqueue("desk", "", "x") // uses no model
	equal(e, "granted to another agent", e.tick().Granted, 1)
	e.take(first)

	o := succeeded("answered")
	wantErr(e, "end", all[2].Append(e.Context(), turnlog.Entry{Answered: []string{modelUsed}, Outcome: &o}), nil)
	equal(e, "models that are down after an answer", len(e.down()), 0)
	equal(e, "granted at once", e.tick().Granted, 3)
}

func failuresSideBySide(e *env) {
	e.registerWithModel("asker", time.Hour)
	for _, conversation := range []string{"a", "b", "c"} {
		e.enqueue("asker", conversation, "x")
	}
	e.beat(first)
	e.tick()
	all := e.take(first)
	for i, d := range all {
		wantErr(e, "end", d.failedBy(0, []time.Duration{0, 0, time.Minute}[i]), nil)
		equal(e, "failures in a row", e.down()[0].Failures, 1)
	}
	e.Pass(scheduler.Backoff(1))
	equal(e, "due before the provider's retry time", e.down()[0].Due, false)
	e.Pass(time.Minute - scheduler.Backoff(1))
	equal(e, "due", e.down()[0].Due, true)
	e.beat(first)
	d := e.next(first)
	equal(e, "failures in the record", d.record.Down[0].Failures, 1)
	wantErr(e, "end", d.failedBy(1, 0), nil)
	equal(e, "failures in a row", e.down()[0].Failures, 2)
	e.Pass(scheduler.Backoff(1))
	equal(e, "due before the longer pause is over", e.down()[0].Due, false)
	e.Pass(scheduler.Backoff(2) - scheduler.Backoff(1))
	equal(e, "due", e.down()[0].Due, true)
}

func oneProbe(e *env) {
	e.registerWithModel("asker", time.Hour)
	e.registerWithModel("other", time.Hour)
	e.enqueue("asker", "a", "x")
	e.beat(first)
	wantErr(e, "end", e.next(first).failedBy(0, 0), nil)
	e.enqueue("asker", "b", "x")
	e.enqueue("other", "c", "x")
	e.Pass(scheduler.Backoff(1))
	e.beat(first)
	equal(e, "granted", e.tick().Granted, 1)
	probing := e.take(first)[0]
	equal(e, "probe", e.down()[0].Probe, probing.grant.GrantID)
	equal(e, "probe in its record", probing.record.Down[0].Probe, probing.grant.GrantID)
	equal(e, "granted beside the probe", e.tick().Granted, 0)

	e.Pass(LeaseTTL)
	e.beat(second)
	e.tick() // reclaims the turn
	e.tick()
	after := e.take(second)
	equal(e, "granted after the worker was lost", len(after), 1)
	equal(e, "probe", e.down()[0].Probe, after[0].grant.GrantID)
	wantErr(e, "answer", after[0].Append(e.Context(), turnlog.Entry{Answered: []string{modelUsed}}), nil)
	equal(e, "granted at once, before the turn ends", e.tick().Granted, 2)
}

func overdueGranted(e *env) {
	e.registerWithModel("asker", time.Minute)
	e.registerWithModel("patient", time.Hour)
	e.enqueue("asker", "a", "x")
	e.beat(first)
	wantErr(e, "end", e.next(first).failedBy(0, time.Hour), nil)
	e.enqueue("asker", "b", "x")
	e.enqueue("patient", "c", "x")
	equal(e, "granted while they may wait", e.tick().Granted, 0)
	e.Pass(2 * time.Minute)
	e.beat(first)
	equal(e, "granted", e.tick().Granted, 2)
	for _, d := range e.take(first) {
		equal(e, "agent", d.record.Turn.Agent, "asker")
		equal(e, "has waited", d.record.Waited >= time.Minute, true)
		equal(e, "probe in its record", d.record.Down[0].Probe, "")
		o := failed(false)
		o.Counted = true
		wantErr(e, "end", d.end(o), nil)
		equal(e, "counted attempts", e.Message(d.record.Message.ID).Faults, 1)
	}
}

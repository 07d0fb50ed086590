package storesuite

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/scheduler"
)

var healthProperties = []property{
	{"a failing model is down for all turns until its first answer", modelDown},
	{"concurrent failures count once", failuresSideBySide},
	{"one turn probes a model, and another if its worker is lost", oneProbe},
	{"an overdue message is granted although its model is down", overdueGranted},
	{"a failed message probes its model only if nobody else can", probeElsewhere},
	{"a lane that has not failed probes a model before all that have", probeAHealthyLane},
	{"an answer to another request after a failure makes one pair", pairs},
	{"a turn waits for a model with its journal, until it is back or the time is over", waitsForModel},
	{"the wait for a service counts from its first failure, and stands still for budgets", waitForService},
	{"a turn that waits for a model has no other blocker", modelBlocks},
	{"a budget puts a turn off until its agent has another one", budgetRaised},
}

func modelBlocks(e *env) {
	e.registerWithModel("asker", time.Hour)
	e.enqueue("asker", "", "x")
	d := e.next(first)
	o := turnlog.Outcome{State: turnkeeper.TurnWaiting, WaitsFor: []string{modelUsed}, Backoff: 10 * time.Minute}
	wantErr(e, "wait", d.Append(e.Context(), turnlog.Entry{Outcome: &o, ModelFailures: failuresOf(d.record)}), nil)
	found := e.Blockers(d.record.Message.ID)
	if len(found) != 1 || found[0] != waiting.ModelDown {
		e.Errorf("blockers: %v, want %v", found, waiting.ModelDown)
	}
}

func budgetRaised(e *env) {
	for _, class := range []string{"budget", "another"} {
		d := e.turn()
		wantErr(e, "end", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued, ErrorClass: class,
			Backoff: time.Hour}), nil)
		equal(e, class+": granted", e.tick().Granted, 0)
		e.Register(registration("clerk", false))
		due := e.tick().Granted == 1
		equal(e, class+": granted after a change of the agent", due, class == "budget")
		if due {
			e.finish(e.take(first)[0], succeeded("done"))
		}
	}
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
	f := modelhealth.Failure{Model: modelUsed, Seen: seen, ErrorClass: "overloaded", Error: "unavailable",
		RetryAfter: after}
	o := failed(true)
	o.WaitsFor, o.Backoff = []string{modelUsed}, min(f.Pause(), scheduler.Backoff(9))
	return d.Append(d.env.Context(), turnlog.Entry{ModelFailures: []modelhealth.Failure{f}, Outcome: &o})
}

// down returns the models that are down in a snapshot of the scheduler.
func (e *env) down() (down []modelhealth.Health) {
	e.Helper()
	ctx := e.Context()
	err := e.Scheduler().InTick(ctx, func(t scheduler.Tick) error {
		sit, _, err := t.Snapshot(ctx, true)
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

// service ends a turn because the model's service failed, in a way that the message may have caused. waits says that
// the turn waits for the model instead of failing.
func (d *dispatch) service(requests int, waits bool) error {
	f := modelhealth.Failure{Model: modelUsed, ErrorClass: "overloaded", Error: "500", Requests: requests}
	for _, h := range d.record.Down {
		f.Seen = h.Failures
	}
	o := failed(true)
	if waits {
		o.State, o.StopReason, o.Retry = turnkeeper.TurnWaiting, "", false
	}
	o.ErrorClass, o.WaitsFor, o.Backoff = "overloaded", []string{modelUsed}, f.Pause()
	return d.Append(d.env.Context(), turnlog.Entry{ModelFailures: []modelhealth.Failure{f}, Outcome: &o})
}

// granted runs a tick, and returns the dispatches by conversation.
func (e *env) granted() map[string]*dispatch {
	e.Helper()
	by := map[string]*dispatch{}
	e.grantTo(by)
	return by
}

// grantTo runs a tick, and adds the dispatches by conversation.
func (e *env) grantTo(by map[string]*dispatch) {
	e.Helper()
	e.beat(first)
	e.tick()
	for _, d := range e.take(first) {
		by[d.record.Turn.Conversation] = d
	}
}

// probeElsewhere checks that the message that failed last, or that may be at fault, probes its model only if nobody
// else can.
func probeElsewhere(e *env) {
	e.registerWithModel("asker", time.Hour)
	e.enqueue("asker", "bad", "x")
	wantErr(e, "end", e.granted()["bad"].service(4, false), nil)
	equal(e, "failed lanes", len(e.down()[0].Failed), 1)
	e.Pass(scheduler.Backoff(1))
	e.enqueue("asker", "good", "x")
	by := e.granted()
	equal(e, "granted", len(by), 1)
	good := by["good"]
	if good == nil {
		e.Fatalf("the message that failed is the probe")
	}
	equal(e, "probe", good.record.Down[0].Probe, good.grant.GrantID)
	wantErr(e, "end", good.service(0, false), nil) // the service: nobody is at fault
	e.Pass(scheduler.Backoff(2))
	equal(e, "failed lanes", len(e.down()[0].Failed), 2)
	bad := e.granted()["bad"]
	if bad == nil {
		e.Fatalf("nobody probes the model")
	}
	equal(e, "failed lanes in the record", len(bad.record.Down[0].Failed), 2)
	equal(e, "suspects", len(bad.record.Suspects), 1)
	equal(e, "failures", bad.record.Suspects[0].Failures, 1)
	equal(e, "open", bad.record.Suspects[0].Open, true)
}

// probeAHealthyLane makes the messages of three lanes fail, one after another, while that of a fourth has not been
// tried.
func probeAHealthyLane(e *env) {
	e.registerWithModel("asker", time.Hour)
	for _, conversation := range []string{"a", "b", "c"} {
		e.enqueue("asker", conversation, "x")
	}
	for _, d := range withSlots(e, 3) {
		wantErr(e, "end", d.failedBy(0, 0), nil)
	}
	equal(e, "failed lanes", len(e.down()[0].Failed), 3)
	e.Pass(scheduler.Backoff(1) + time.Second)
	healthy := e.enqueue("asker", "d", "x") // its rank is behind theirs
	d := only(e)
	equal(e, "the probe", d.record.Message.ID, healthy)
	equal(e, "it probes", d.record.Down[0].Probe, d.grant.GrantID)
	o := succeeded("answered")
	wantErr(e, "end", d.Append(e.Context(), turnlog.Entry{Answered: []string{modelUsed}, Outcome: &o}), nil)

	for _, d := range withSlots(e, 3) {
		wantErr(e, "end", d.failedBy(0, 0), nil)
	}
	e.Pass(scheduler.Backoff(2))
	failed := only(e).record.Down[0]
	equal(e, "failed lanes without a healthy one", len(failed.Failed), 3)
}

// A pairing tells the dispatches of a test of pairs apart.
type pairing struct {
	env     *env
	granted map[string]*dispatch // by conversation
}

// next returns the next dispatch of a conversation.
func (p *pairing) next(conversation string) *dispatch {
	p.env.Helper()
	if p.granted[conversation] == nil {
		p.env.grantTo(p.granted)
	}
	d := p.granted[conversation]
	if d == nil {
		p.env.Fatalf("the message of %s was not granted", conversation)
	}
	delete(p.granted, conversation)
	return d
}

// fail makes the bad message fail again.
func (p *pairing) fail() *dispatch {
	p.env.Helper()
	d := p.next("bad")
	wantErr(p.env, "end", d.service(4, false), nil)
	return d
}

// answer makes a message of another conversation succeed after an entry.
func (p *pairing) answer(conversation string, entry turnlog.Entry) {
	p.env.Helper()
	p.env.enqueue("asker", conversation, "x")
	d := p.next(conversation)
	wantErr(p.env, "answer", d.Append(p.env.Context(), entry), nil)
	wantErr(p.env, "end", d.end(succeeded("answered")), nil)
}

// pairs checks what makes a pair of a failure, and what a pair changes.
func pairs(e *env) {
	e.registerWithModel("asker", time.Hour)
	p := &pairing{e, map[string]*dispatch{}}
	e.enqueue("asker", "bad", "x")
	p.fail()
	e.Pass(scheduler.Backoff(1))
	p.answer("refused", turnlog.Entry{Refused: []string{modelUsed}}) // proves nothing, but the model is up
	equal(e, "models that are down", len(e.down()), 0)
	again := p.next("bad")
	equal(e, "pairs", again.record.Suspects[0].Pairs, 0)
	// its own answer is none
	wantErr(e, "end", again.Append(e.Context(), turnlog.Entry{Answered: []string{modelUsed}}), nil)
	wantErr(e, "end", again.service(4, false), nil)
	equal(e, "models that are down", len(e.down()), 1)

	e.Pass(scheduler.Backoff(1))
	p.answer("first", turnlog.Entry{Answered: []string{modelUsed}})
	p.answer("second", turnlog.Entry{Answered: []string{modelUsed}}) // the same failure makes one pair
	d := p.fail()
	equal(e, "pairs", d.record.Suspects[0].Pairs, 1)
	equal(e, "open", d.record.Suspects[0].Open, false)
	equal(e, "failures", d.record.Suspects[0].Failures, 2)
	equal(e, "requests", d.record.Suspects[0].Requests, 8)
	equal(e, "models that are down after a pair", len(e.down()), 0)

	p.answer("third", turnlog.Entry{Answered: []string{modelUsed}})
	e.grantTo(p.granted)
	equal(e, "granted before its own pause is over", p.granted["bad"] == nil, true)
	e.Pass(10 * time.Minute)
	d = p.fail()
	equal(e, "pairs", d.record.Suspects[0].Pairs, 2)
	equal(e, "span", d.record.Suspects[0].Span > 0, true)
	pairsTooLate(e, p)
}

// pairsTooLate goes on with the bad message after two pairs. An answer makes a pair only soon after the failure, and a
// message that succeeds leaves the model up.
func pairsTooLate(e *env, p *pairing) {
	e.Pass(modelhealth.PairWindow(9)) // an answer after that is none for this failure
	p.answer("late", turnlog.Entry{Answered: []string{modelUsed}})
	d := p.next("bad")
	equal(e, "pairs", d.record.Suspects[0].Pairs, 2)
	equal(e, "open", d.record.Suspects[0].Open, true)
	wantErr(e, "answer", d.Append(e.Context(), turnlog.Entry{Probed: []string{modelUsed}}), nil) // too late as well
	wantErr(e, "end", d.service(4, false), nil)
	e.Pass(scheduler.Backoff(9))
	d = p.next("bad")
	// the worker's own request
	wantErr(e, "answer", d.Append(e.Context(), turnlog.Entry{Probed: []string{modelUsed}}), nil)
	wantErr(e, "end", d.service(4, false), nil)
	e.Pass(scheduler.Backoff(9))
	d = p.next("bad")
	equal(e, "pairs", d.record.Suspects[0].Pairs, 3)
	wantErr(e, "end", d.end(succeeded("answered")), nil)
	equal(e, "models that are down", len(e.down()), 0)
}

// waitsForModel checks a turn that waits for a model with its journal.
func waitsForModel(e *env) {
	e.registerWithModel("asker", time.Hour)
	e.enqueue("asker", "a", "x")
	e.enqueue("asker", "b", "x")
	by := e.granted()
	wantErr(e, "end", by["a"].service(4, true), nil)
	turn, _ := e.Turn(by["a"].grant.TurnID)
	equal(e, "state", turn.State, turnkeeper.TurnWaiting)
	equal(e, "error class", turn.ErrorClass, "overloaded")
	e.enqueue("asker", "a", "later")
	equal(e, "granted while it waits", len(e.granted()), 0)

	wantErr(e, "answer", by["b"].Append(e.Context(), turnlog.Entry{Probed: []string{modelUsed}}), nil)
	turn, _ = e.Turn(by["a"].grant.TurnID)
	equal(e, "state", turn.State, turnkeeper.TurnWaiting) // it has a pair: its own pause holds
	e.Pass(scheduler.Backoff(1))
	d := e.granted()["a"]
	if d == nil || d.grant.TurnID != by["a"].grant.TurnID {
		e.Fatalf("the turn does not go on")
	}
	equal(e, "it has waited", d.record.Waited >= scheduler.Backoff(1), true)
	wantErr(e, "end", d.service(0, true), nil)
	wantErr(e, "answer", by["b"].Append(e.Context(), turnlog.Entry{Refused: []string{modelUsed}}), nil)
	turn, _ = e.Turn(by["a"].grant.TurnID)
	equal(e, "state", turn.State, turnkeeper.TurnWaiting)
	e.Pass(scheduler.Backoff(9))
	if d = e.granted()["a"]; d == nil {
		e.Fatalf("the turn does not go on")
	}
	wantErr(e, "end", d.end(succeeded("answered")), nil)

	e.enqueue("asker", "c", "x")
	for _, d = range e.granted() {
		if d.record.Turn.Conversation == "c" {
			break
		}
	}
	wantErr(e, "end", d.service(0, true), nil)
	wantErr(e, "answer", by["b"].Append(e.Context(), turnlog.Entry{Answered: []string{modelUsed}}), nil)
	turn, _ = e.Turn(d.grant.TurnID)
	equal(e, "state after an answer to another", turn.State, turnkeeper.TurnQueued)
}

// waitForService checks from when give_up_after counts.
func waitForService(e *env) {
	e.registerWithModel("asker", time.Minute)
	e.enqueue("asker", "a", "x")
	e.enqueue("asker", "b", "x")
	e.Pass(time.Hour) // nobody has asked the model
	by := e.granted()
	equal(e, "waited", by["a"].record.Waited, 0)
	wantErr(e, "end", by["a"].service(0, false), nil)
	wantErr(e, "end", by["b"].end(succeeded("answered")), nil)
	e.enqueue("asker", "c", "x")
	e.Pass(30 * time.Second)
	d := e.granted()["c"]
	if d == nil {
		e.Fatalf("the untried message does not probe the model")
	}
	equal(e, "the untried message has waited", d.record.Waited >= 30*time.Second && d.record.Waited < time.Minute, true)
	// its budget is waited for
	o := turnlog.Outcome{State: turnkeeper.TurnQueued, ErrorClass: "budget", Backoff: time.Hour}
	wantErr(e, "end", d.end(o), nil)
	e.Pass(time.Hour)
	by = e.granted() // a has waited too long, c probes the model
	if by["a"] == nil || by["c"] == nil {
		e.Fatalf("granted are %v", by)
	}
	equal(e, "the deferred turn has waited", by["c"].record.Waited < time.Minute, true)
	equal(e, "the other has waited since its first failure", by["a"].record.Waited >= time.Hour, true)
}

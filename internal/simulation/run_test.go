package simulation_test

import (
	"context"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
)

// run runs the simulation and returns the broken invariants.
func (e *env) run() []string {
	faults := e.actor(nil, kindFaults, 2)
	for range e.profile.processes {
		e.boot()
		faults.apart()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go e.restartProcesses(e.actor(nil, kindBoot))
	accepted := make(chan turnkeeper.MessageID, e.profile.messages)
	for i := range e.profile.messages {
		go e.client(ctx, e.actor(nil, kindClient, uint64(i)), i, accepted)
	}
	if e.profile.crashes > 0 {
		go e.crashServer(ctx, e.actor(nil, kindServer))
	}
	if e.profile.asks || e.profile.labels {
		go e.answerAsks(ctx, e.actor(nil, kindPeople))
	}
	e.injectFaults(faults)
	e.endFaults()
	took := e.drain(faults)
	e.check(took, accepted)
	cancel()
	e.simulated = time.Since(e.began)
	e.end()
	time.Sleep(time.Hour) // sleeping goroutines wake up and end
	return e.found
}

// injectFaults injects faults of the whole installation, and power cuts, until the time is over.
func (e *env) injectFaults(a *actor) {
	end := e.began.Add(e.profile.length)
	gap := e.profile.length / time.Duration(e.profile.faults+1)
	for i := range e.profile.faults {
		time.Sleep(min(a.between(0, 2*gap), max(time.Until(end), 1)))
		e.injectFault(a)
		if i < e.profile.powerCuts {
			end = end.Add(e.powerCut(a))
		}
	}
	time.Sleep(max(time.Until(end), 0))
}

// powerCut stops all processes for hours or days.
func (e *env) powerCut(a *actor) time.Duration {
	lasts := a.between(time.Hour, 60*time.Hour)
	e.mu.Lock()
	e.powerAt = time.Now().Add(lasts)
	e.mu.Unlock()
	e.note(nil, "power cut", "", int64(lasts/time.Second), 0)
	for _, p := range e.alive() {
		p.kill("power cut")
	}
	time.Sleep(lasts)
	return lasts
}

// untilPower returns how long the power cut still lasts.
func (e *env) untilPower() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.powerAt)
}

func (e *env) injectFault(a *actor) {
	alive := e.alive()
	victim := func() *process { return alive[a.IntN(len(alive))] }
	kind := a.IntN(9)
	e.note(nil, "fault", "", int64(kind), int64(len(alive)))
	switch {
	case kind == 0: // the database is unavailable, and its sessions end
		e.mu.Lock()
		e.databaseBackAt = time.Now().Add(a.between(time.Second, 5*time.Minute))
		e.mu.Unlock()
		for _, p := range alive {
			p.conn.Break()
		}
	case kind == 1 && e.profile.clockSteps:
		e.stepClock(a)
	case kind == 2: // a failover that loses nothing
		e.store.SetTimeline(fmt.Sprint("timeline-", time.Since(e.began)))
	case kind == 3:
		e.forget(a)
	case len(alive) == 0:
	case kind == 4: // the power fails for a moment
		for _, p := range alive {
			p.kill("power")
		}
	case kind == 5:
		p := victim()
		go p.shutDown(e.actor(p, kindBoot, uint64(p.n), 1))
	case kind == 6:
		victim().freeze(a.between(time.Second, 10*time.Minute), "fault")
	default:
		victim().kill("fault")
	}
}

// forget makes the server lose a fetch of a job.
func (e *env) forget(a *actor) {
	if grants := e.store.Grants(); len(grants) > 0 {
		e.store.Forget(grants[len(grants)-1-a.IntN(min(3, len(grants)))].JobID)
		e.ring(memory.Bell{Topic: memory.TopicJobs})
	}
}

// crashServer crashes the server again and again until ctx ends or faults end: it is unavailable for a
// moment and loses a fetch of a job.
func (e *env) crashServer(ctx context.Context, a *actor) {
	gap := e.profile.length / time.Duration(e.profile.crashes)
	for sleep(ctx, a.between(0, 2*gap)) && !e.isQuiet() {
		e.mu.Lock()
		e.databaseBackAt = time.Now().Add(a.between(time.Millisecond, 2*time.Second))
		e.mu.Unlock()
		for _, p := range e.alive() {
			p.conn.Break()
		}
		e.forget(a)
	}
}

func (e *env) stepClock(a *actor) {
	by := a.between(-300*time.Second, 300*time.Second)
	if a.chance(0.3) {
		by = a.between(-time.Hour, time.Hour)
	}
	e.mu.Lock()
	e.skew += by
	e.mu.Unlock()
	e.note(nil, "clock step", "", int64(by/time.Second), 0)
}

// restartProcesses starts a new process for each dead one, after a while.
func (e *env) restartProcesses(a *actor) {
	for {
		time.Sleep(a.between(time.Second, 20*time.Second))
		e.mu.Lock()
		over, quiet := e.over, e.quiet
		e.mu.Unlock()
		if over {
			return
		}
		missing := e.profile.processes - len(e.alive())
		if missing <= 0 {
			continue
		}
		if until := e.untilPower(); until > 0 && !quiet {
			time.Sleep(min(until, a.between(time.Minute, time.Hour)))
			continue
		}
		e.boot()
	}
}

// client sends one message until it gets an id.
func (e *env) client(ctx context.Context, a *actor, i int, accepted chan<- turnkeeper.MessageID) {
	if !sleep(ctx, a.between(0, e.profile.length)) {
		return
	}
	m := turnkeeper.Submission{
		Agent: agentNames[a.IntN(len(agentNames))], Conversation: fmt.Sprint(a.IntN(3)),
		Body: fmt.Sprint("message ", i),
		Key:  fmt.Sprint("key ", i), Priority: a.IntN(3),
	}
	if a.chance(0.05) {
		m.Body = poison
	}
	m = e.labelMessage(i, m)
	conn := e.store.Connect(&wire{env: e})
	for ctx.Err() == nil {
		id, err := conn.Enqueue(a.in(ctx), m)
		e.note(nil, "enqueue", outcomeOf(err), int64(i), int64(id))
		if err == nil {
			accepted <- id
			return
		}
		sleep(ctx, a.between(time.Second, 10*time.Second))
	}
}

// endFaults ends all faults, and starts a process if none is alive.
func (e *env) endFaults() {
	e.mu.Lock()
	e.quiet, e.databaseBackAt, e.powerAt = true, time.Time{}, time.Time{}
	for _, p := range e.processes {
		if p.thaw.After(time.Now()) {
			p.thaw = time.Now()
		}
	}
	e.mu.Unlock()
	e.note(nil, "no more faults", "", 0, 0)
	if len(e.alive()) == 0 {
		e.boot()
	}
}

// drain waits until every message is answered and returns how long that took, or -1 if it took too
// long.
func (e *env) drain(a *actor) time.Duration {
	began := time.Now()
	// A hold-off after a clock step, the lease of a lost worker, a stopped process, backoffs, and then
	// the time of each message.
	bound := 25*time.Minute + time.Duration(e.store.Open())*2*time.Minute
	conn := e.store.Connect(nil)
	grantable := map[turnkeeper.MessageID]time.Time{}
	for e.store.Open() > 0 || time.Since(began) < 30*time.Second {
		if time.Since(began) > bound {
			return -1
		}
		_ = conn.RegisterAgents(context.Background(), e.agents()) // without schedules and backoffs
		time.Sleep(a.between(5*time.Second, 10*time.Second))
		grantable = e.checkGranted(grantable)
	}
	return time.Since(began)
}

const notGranted = "has no blocker and is not granted, although slots are free"

// checkGranted checks that no message was without a blocker for much longer than a tick. since says from when on each
// was, at every look; it returns the same as of now.
func (e *env) checkGranted(since map[turnkeeper.MessageID]time.Time) map[turnkeeper.MessageID]time.Time {
	now := map[turnkeeper.MessageID]time.Time{}
	for _, id := range memory.Grantable(e.store) {
		now[id] = time.Now()
		if first, known := since[id]; known {
			now[id] = first
		}
		if waits := time.Since(now[id]); waits > 2*e.profile.poll+5*time.Minute {
			e.report("message %d %s: for %s", id, notGranted, waits)
			delete(now, id)
		}
	}
	return now
}

// check checks every invariant.
func (e *env) check(drained time.Duration, accepted chan turnkeeper.MessageID) {
	if drained < 0 {
		e.report("%d turns and messages are still open long after the last fault", e.store.Open())
		for _, m := range e.store.Messages() {
			if m.ClosedAt.IsZero() {
				turn, _, _, _ := e.store.Turn(m.TurnID)
				lease, _ := e.store.Lease(m.Lane)
				e.report(
					"message %d is %s and due in %s; its turn %d is %s and due in %s; its lane is not granted for %s",
					m.ID, m.State,
					m.DueAt.Sub(e.databaseNow()), turn.ID, turn.State, turn.DueAt.Sub(e.databaseNow()),
					lease.NotBefore.Sub(e.databaseNow()))
			}
		}
	}
	for _, v := range e.store.Check(0) {
		e.report("%s", v)
	}
	e.checkLedger()
	if n := len(accepted); n != e.profile.messages {
		e.report("%d of %d messages were accepted", n, e.profile.messages)
	}
	for range len(accepted) {
		id := <-accepted
		if _, ok := e.store.ReplyTo(id); !ok && drained >= 0 {
			e.report("message %d was accepted and has no reply", id)
		}
	}
	e.checkModelOutages()
	for _, why := range e.signer.Refusals() {
		e.report("%s: %s", refusedRecord, why)
	}
	slots := map[string]turnkeeper.MessageID{}
	for _, m := range e.store.Messages() {
		if m.Trigger != turnkeeper.TriggerSchedule {
			continue
		}
		slot := m.Agent + m.Schedule + m.Slot.String()
		if first, twice := slots[slot]; twice {
			e.report("messages %d and %d have the same slot", first, m.ID)
		}
		slots[slot] = m.ID
	}
}

const refusedRecord = "a request does not extend the one before it"

const failedByService = "failed by a fault of the service"

// checkModelOutages checks that no message failed because the model's provider failed.
func (e *env) checkModelOutages() {
	for _, m := range e.store.Messages() {
		turn, _, _, _ := e.store.Turn(m.TurnID)
		if m.State == turnkeeper.MessageFailed && inference.Class(turn.ErrorClass).OfService() {
			e.report("message %d %s: %s", m.ID, failedByService, turn.Error)
		}
	}
}

// end stops the remaining processes.
func (e *env) end() {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	for _, p := range e.alive() {
		p.kill("end")
	}
}

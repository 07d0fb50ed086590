package simulation_test

import (
	"context"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
)

// run lives one world from its beginning to its end, and says what was wrong.
func (w *world) run() []string {
	chaos := w.actor(nil, kindChaos, 2)
	for range w.profile.processes {
		w.boot()
		chaos.apart()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go w.keepUp(w.actor(nil, kindBoot))
	accepted := make(chan turnkeeper.MessageID, w.profile.messages)
	for i := range w.profile.messages {
		go w.client(ctx, w.actor(nil, kindClient, uint64(i)), i, accepted)
	}
	if w.profile.crashes > 0 {
		go w.crashServer(ctx, w.actor(nil, kindServer))
	}
	w.befall(chaos)
	w.calmDown()
	took := w.drain(chaos)
	w.check(took, accepted)
	cancel()
	w.lived = time.Since(w.began)
	w.end()
	time.Sleep(time.Hour) // whatever still sleeps wakes up, and ends
	return w.found
}

// befall has one disaster after another until the time is over, and nights
// between.
func (w *world) befall(a *actor) {
	end := w.began.Add(w.profile.length)
	gap := w.profile.length / time.Duration(w.profile.disasters+1)
	for i := range w.profile.disasters {
		time.Sleep(min(a.between(0, 2*gap), max(time.Until(end), 1)))
		w.disaster(a)
		if i < w.profile.nights {
			end = end.Add(w.night(a))
		}
	}
	time.Sleep(max(time.Until(end), 0))
}

// night is the power off until somebody comes: in the morning, or after the
// weekend.
func (w *world) night(a *actor) time.Duration {
	lasts := a.between(time.Hour, 60*time.Hour)
	w.mu.Lock()
	w.dark = time.Now().Add(lasts)
	w.mu.Unlock()
	w.note(nil, "night", "", int64(lasts/time.Second), 0)
	for _, p := range w.alive() {
		p.kill("night")
	}
	time.Sleep(lasts)
	return lasts
}

func (w *world) darkness() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.dark)
}

func (w *world) disaster(a *actor) {
	alive := w.alive()
	victim := func() *process { return alive[a.IntN(len(alive))] }
	kind := a.IntN(9)
	w.note(nil, "disaster", "", int64(kind), int64(len(alive)))
	switch {
	case kind == 0: // the database is away, and its sessions are gone
		w.mu.Lock()
		w.away = time.Now().Add(a.between(time.Second, 5*time.Minute))
		w.mu.Unlock()
		for _, p := range alive {
			p.conn.Break()
		}
	case kind == 1 && w.profile.clockSteps:
		w.stepClock(a)
	case kind == 2: // a failover that has lost nothing
		w.store.SetTimeline(fmt.Sprint("timeline-", time.Since(w.began)))
	case kind == 3:
		w.forget(a)
	case len(alive) == 0:
	case kind == 4: // the power fails
		for _, p := range alive {
			p.kill("power")
		}
	case kind == 5:
		p := victim()
		go p.shutDown(w.actor(p, kindBoot, uint64(p.n), 1))
	case kind == 6:
		victim().freeze(a.between(time.Second, 10*time.Minute), "disaster")
	default:
		victim().kill("disaster")
	}
}

// forget has the server forget that a job was taken.
func (w *world) forget(a *actor) {
	if grants := w.store.Grants(); len(grants) > 0 {
		w.store.Forget(grants[len(grants)-1-a.IntN(min(3, len(grants)))].JobID)
		w.ring(memory.Bell{Topic: memory.TopicJobs})
	}
}

// crashServer crashes the server again and again until ctx ends or all is calm: it
// is away for a moment, and has forgotten that a job was taken.
func (w *world) crashServer(ctx context.Context, a *actor) {
	gap := w.profile.length / time.Duration(w.profile.crashes)
	for sleep(ctx, a.between(0, 2*gap)) && !w.isCalm() {
		w.mu.Lock()
		w.away = time.Now().Add(a.between(time.Millisecond, 2*time.Second))
		w.mu.Unlock()
		for _, p := range w.alive() {
			p.conn.Break()
		}
		w.forget(a)
	}
}

func (w *world) stepClock(a *actor) {
	by := a.between(-300*time.Second, 300*time.Second)
	if a.chance(0.3) {
		by = a.between(-time.Hour, time.Hour)
	}
	w.mu.Lock()
	w.skew += by
	w.mu.Unlock()
	w.note(nil, "clock step", "", int64(by/time.Second), 0)
}

// keepUp starts a new process for each that is gone, after a while.
func (w *world) keepUp(a *actor) {
	for {
		time.Sleep(a.between(time.Second, 20*time.Second))
		w.mu.Lock()
		over, calm := w.over, w.calm
		w.mu.Unlock()
		if over {
			return
		}
		missing := w.profile.processes - len(w.alive())
		if missing <= 0 {
			continue
		}
		if until := w.darkness(); until > 0 && !calm {
			time.Sleep(min(until, a.between(time.Minute, time.Hour)))
			continue
		}
		w.boot()
	}
}

// client sends one message, until it is told its id.
func (w *world) client(ctx context.Context, a *actor, i int, accepted chan<- turnkeeper.MessageID) {
	if !sleep(ctx, a.between(0, w.profile.length)) {
		return
	}
	m := turnkeeper.Submission{
		Agent: agentNames[a.IntN(len(agentNames))], Conversation: fmt.Sprint(a.IntN(3)), Body: fmt.Sprint("message ", i),
		Key: fmt.Sprint("key ", i), Priority: a.IntN(3),
	}
	if a.chance(0.05) {
		m.Body = poison
	}
	conn := w.store.Connect(&wire{w: w})
	for ctx.Err() == nil {
		id, err := conn.Enqueue(a.in(ctx), m)
		w.note(nil, "enqueue", outcomeOf(err), int64(i), int64(id))
		if err == nil {
			accepted <- id
			return
		}
		sleep(ctx, a.between(time.Second, 10*time.Second))
	}
}

// calmDown ends all trouble; from here on somebody works.
func (w *world) calmDown() {
	w.mu.Lock()
	w.calm, w.away, w.dark = true, time.Time{}, time.Time{}
	for _, p := range w.processes {
		if p.thaw.After(time.Now()) {
			p.thaw = time.Now()
		}
	}
	w.mu.Unlock()
	w.note(nil, "calm", "", 0, 0)
	if len(w.alive()) == 0 {
		w.boot()
	}
}

// drain waits until everything is answered, and returns how long that took; less
// than 0: it did not end in time.
func (w *world) drain(a *actor) time.Duration {
	began := time.Now()
	// A hold-off for the clock, a lease of a lost worker, a stopped process's
	// thaw, back-offs, and then each message's own time.
	bound := 25*time.Minute + time.Duration(w.store.Open())*2*time.Minute
	conn := w.store.Connect(nil)
	for w.store.Open() > 0 || time.Since(began) < 30*time.Second {
		if time.Since(began) > bound {
			return -1
		}
		_ = conn.RegisterAgents(context.Background(), w.agents()) // no schedules any more, no back-off
		time.Sleep(a.between(5*time.Second, 10*time.Second))
	}
	return time.Since(began)
}

// check holds everything against the invariants.
func (w *world) check(drained time.Duration, accepted chan turnkeeper.MessageID) {
	if drained < 0 {
		w.violated("nothing went wrong any more, and %d turns and messages are still open", w.store.Open())
		for _, m := range w.store.Messages() {
			if m.ClosedAt.IsZero() {
				turn, _, _, _ := w.store.Turn(m.TurnID)
				lease, _ := w.store.Lease(m.Lane)
				w.violated("message %d is %s and due in %s; its turn %d is %s and due in %s; its lane is not granted for %s", m.ID, m.State,
					m.DueAt.Sub(w.databaseNow()), turn.ID, turn.State, turn.DueAt.Sub(w.databaseNow()), lease.NotBefore.Sub(w.databaseNow()))
			}
		}
	}
	for _, v := range w.store.Check(0) {
		w.violated("%s", v)
	}
	w.checkLedger()
	if n := len(accepted); n != w.profile.messages {
		w.violated("%d of %d messages were accepted", n, w.profile.messages)
	}
	for range len(accepted) {
		id := <-accepted
		if _, ok := w.store.ReplyTo(id); !ok && drained >= 0 {
			w.violated("message %d was accepted and has no reply", id)
		}
	}
	w.checkWaits()
	slots := map[string]turnkeeper.MessageID{}
	for _, m := range w.store.Messages() {
		if m.Trigger != turnkeeper.TriggerSchedule {
			continue
		}
		slot := m.Agent + m.Schedule + m.Slot.String()
		if first, twice := slots[slot]; twice {
			w.violated("messages %d and %d are of one slot", first, m.ID)
		}
		slots[slot] = m.ID
	}
}

const failedByService = "failed by a fault of the service"

// checkWaits checks that no message failed because the model's provider was away.
func (w *world) checkWaits() {
	for _, m := range w.store.Messages() {
		turn, _, _, _ := w.store.Turn(m.TurnID)
		if m.State == turnkeeper.MessageFailed && inference.Class(turn.ErrorClass).OfService() {
			w.violated("message %d %s: %s", m.ID, failedByService, turn.Error)
		}
	}
}

// end stops whoever is left.
func (w *world) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	for _, p := range w.alive() {
		p.kill("end")
	}
}

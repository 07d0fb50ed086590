package storesuite

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/scheduler"
)

const takeover = 30 * time.Second

func is(err, want error) bool { return errors.Is(err, want) }

func keys(h *house) {
	m := turnkeeper.Submission{Agent: "clerk", Body: "one", Key: "k"}
	id, err := h.Enqueue(h.Context(), m)
	isIt(h, "first", err, nil)
	again, err := h.Enqueue(h.Context(), m)
	isIt(h, "repeat", err, nil)
	equal(h, "id of the repeat", again, id)
	m.Body = "two"
	_, err = h.Enqueue(h.Context(), m)
	isIt(h, "another body", err, turnkeeper.ErrKeyConflict)
	m.Agent = "desk"
	other, err := h.Enqueue(h.Context(), m)
	isIt(h, "another agent", err, nil)
	if other <= id {
		h.Errorf("id %d comes after %d", other, id)
	}
}

func refusals(h *house) {
	for name, c := range map[string]struct {
		m    turnkeeper.Submission
		want error
	}{
		"empty":    {turnkeeper.Submission{Agent: "clerk", Body: " \n"}, turnkeeper.ErrEmptyMessage},
		"stranger": {turnkeeper.Submission{Agent: "nobody", Body: "x"}, turnkeeper.ErrUnknownAgent},
		"too long": {turnkeeper.Submission{Agent: "clerk", Body: string(make([]byte, 1<<17))}, turnkeeper.ErrEmptyMessage},
		"not text": {turnkeeper.Submission{Agent: "clerk", Body: "a\xff"}, turnkeeper.ErrInvalidMessage},
		"priority": {turnkeeper.Submission{Agent: "clerk", Body: "x", Priority: 5000}, turnkeeper.ErrInvalidMessage},
	} {
		if name == "too long" {
			c.m.Body, c.want = string(slices.Repeat([]byte("x"), 1<<17)), turnkeeper.ErrInvalidMessage
		}
		_, err := h.Enqueue(h.Context(), c.m)
		isIt(h, name, err, c.want)
	}
	equal(h, "granted", h.tick().Granted, 0)
}

func oneOpenTurn(h *house) {
	h.enqueue("clerk", "a", "one")
	h.enqueue("clerk", "b", "two")
	h.enqueue("desk", "a", "three")
	h.enqueue("desk", "b", "four")
	equal(h, "granted", h.tick().Granted, 3)
	equal(h, "granted with every lane busy", h.tick().Granted, 0)
	lanes := map[turnkeeper.Lane]int{}
	for _, d := range h.take(first) {
		lanes[d.grant.Lane]++
	}
	if lanes["clerk"] != 1 || lanes["desk/a"] != 1 || lanes["desk/b"] != 1 {
		h.Errorf("granted lanes %v", lanes)
	}
}

func inOrder(h *house) {
	var want []turnkeeper.Message
	for _, priority := range []int{0, 5, -3, 5} {
		id, err := h.Enqueue(h.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x", Priority: priority})
		isIt(h, "enqueue", err, nil)
		want = append(want, h.Message(id))
	}
	slices.SortFunc(want, func(a, b turnkeeper.Message) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range want {
		d := h.next(first)
		equal(h, "message", d.record.Message.ID, m.ID)
		isIt(h, "end", d.end(succeeded("done")), nil)
	}
}

func dueLater(h *house) {
	now := h.Message(h.enqueue("desk", "", "what is the time?")).AcceptedAt
	later := func(due time.Time) turnkeeper.MessageID {
		id, err := h.Enqueue(h.Context(), turnkeeper.Submission{Agent: "clerk", Body: "later", Priority: 1000, DueAt: due})
		isIt(h, "enqueue", err, nil)
		return id
	}
	past := later(now.Add(-time.Hour))
	if m := h.Message(past); m.DueAt.After(m.AcceptedAt) || m.DueAt.Before(now.Add(-time.Second)) {
		h.Errorf("accepted at %v with a time in the past, and due at %v", m.AcceptedAt, m.DueAt)
	}
	due := now.Truncate(time.Second).Add(30 * time.Minute)
	id := later(due.Add(time.Microsecond)) // the next whole second
	if m := h.Message(id); !m.DueAt.Equal(due.Add(time.Second)) {
		h.Errorf("due at %v, want the whole second after %v", m.DueAt, due)
	}
	_, err := h.Enqueue(h.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x", DueAt: now.Add(turnkeeper.MaxDelay + time.Hour)})
	isIt(h, "too far ahead", err, turnkeeper.ErrInvalidMessage)
	wait, err := h.Scheduler().NextDue(h.Context(), now)
	if err != nil || wait < 20*time.Minute || wait > 31*time.Minute {
		h.Errorf("the next is due in %v, error %v", wait, err)
	}
	soon := h.enqueue("clerk", "", "soon")
	equal(h, "granted", h.tick().Granted, 2) // of the desk, and the clerk's first
	for _, want := range []turnkeeper.MessageID{past, soon} {
		for _, d := range h.take(first) {
			if d.record.Message.Agent == "clerk" {
				equal(h, "message", d.record.Message.ID, want)
			}
			isIt(h, "end", d.end(succeeded("done")), nil)
		}
		h.tick()
	}
	equal(h, "state", h.Message(id).State, turnkeeper.MessageWaiting)
	h.Pass(29 * time.Minute)
	equal(h, "granted a minute before", h.tick().Granted, 0)
	h.Pass(2 * time.Minute)
	d := h.next(first)
	equal(h, "message", d.record.Message.ID, id)
	if d.record.Waited > 10*time.Minute {
		h.Errorf("it has waited for %v: what counts is the time since it is due", d.record.Waited)
	}
}

// laterBeforeStep accepts a message for later before the clock is put back: all that was due is due, and it is not.
func laterBeforeStep(h *house) {
	now := h.Message(h.enqueue("desk", "", "x")).AcceptedAt
	id, err := h.Enqueue(h.Context(), turnkeeper.Submission{Agent: "clerk", Body: "later", DueAt: now.Add(time.Hour)})
	isIt(h, "enqueue", err, nil)
	h.Pass(-time.Hour)
	for range 3 {
		h.beat(second)
		h.tickAlone()
		h.Pass(LeaseTTL)
	}
	equal(h, "state", h.Message(id).State, turnkeeper.MessageWaiting)
}

func retiredAgent(h *house) {
	h.Register(schedule())
	agent := schedule().Name
	h.tick()
	keyed := turnkeeper.Submission{Agent: agent, Body: "accepted before", Key: "k"}
	waits, err := h.Enqueue(h.Context(), keyed)
	isIt(h, "enqueue", err, nil)
	h.Retire(agent, true)
	_, err = h.Enqueue(h.Context(), turnkeeper.Submission{Agent: agent, Body: "x"})
	isIt(h, "a new message", err, turnkeeper.ErrAgentRetired)
	again, err := h.Enqueue(h.Context(), keyed)
	isIt(h, "a repeat", err, nil)
	equal(h, "id of the repeat", again, waits)
	h.Register(schedule()) // a worker starts that has its file
	h.Pass(3 * hourly)
	h.enqueue("desk", "", "x")
	report := h.tick()
	equal(h, "slots", report.Slots, 0)
	equal(h, "granted to others", report.Granted, 1)
	equal(h, "state", h.Message(waits).State, turnkeeper.MessageWaiting)
	h.Retire(agent, false)
	report = h.tick()
	equal(h, "slots that were missed", report.Slots, 0)
	equal(h, "granted after it was restored", report.Granted, 1)
	equal(h, "state", h.Message(waits).State, turnkeeper.MessageRunning)
	h.Pass(hourly)
	equal(h, "slots an hour later", h.tick().Slots, 1)
}

func tokens(h *house) {
	for want := int64(1); want <= 5; want += 2 {
		d := h.turn()
		equal(h, "token", d.grant.Token, want)
		after := h.again(d)
		equal(h, "token after a loss", after.grant.Token, want+1)
		if after.grant.GrantID == d.grant.GrantID {
			h.Error("two grants have one id")
		}
		isIt(h, "end", after.end(succeeded("done")), nil)
	}
}

func ticksExclude(h *house) {
	h.beat(first)
	h.enqueue("clerk", "", "x")
	err := h.Scheduler().InTick(h.Context(), func(t scheduler.Tick) error {
		_, locked, err := t.Look(h.Context())
		equal(h, "the first has the lock", locked, true)
		other, err2 := scheduler.New(scheduler.Config{Store: h.Scheduler()}).Tick(h.Context())
		equal(h, "the other is told", other.Busy, true)
		return errors.Join(err, err2)
	})
	isIt(h, "tick", err, nil)
	equal(h, "granted after it", h.tick().Granted, 1)
}

var errOnPurpose = errors.New("on purpose")

func tickUndone(h *house) {
	d := h.turn()
	h.Pass(LeaseTTL)
	h.beat(first, second)
	ctx := h.Context()
	err := h.Scheduler().InTick(ctx, func(t scheduler.Tick) error {
		if _, _, err := t.Look(ctx); err != nil {
			return err
		}
		lost, err := t.Lost(ctx, 10)
		if err != nil || len(lost) != 1 {
			h.Fatalf("%d grants are lost, error %v", len(lost), err)
		}
		if err := t.Requeue(ctx, lost[0]); err != nil {
			return err
		}
		ready, err := t.ReadyTurns(ctx, 10, nil)
		if err != nil || len(ready) != 1 {
			h.Fatalf("%d turns are ready after it, error %v", len(ready), err)
		}
		return errOnPurpose
	})
	isIt(h, "tick", err, errOnPurpose)
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "state", turn.State, turnkeeper.TurnRunning)
	equal(h, "losses", turn.Losses, 0)
	isIt(h, "the holder's write", d.Append(ctx, turnkeeper.Entry{Round: round(1)}), nil)
}

func oldGrant(h *house) {
	d := h.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	after := h.again(d)
	before, _ := h.Turn(d.grant.TurnID)
	isIt(h, "a step", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), turnkeeper.ErrFenced)
	isIt(h, "a start", d.start(key(1, 1), nonce(), 1), turnkeeper.ErrFenced)
	isIt(h, "an end", d.end(succeeded("stale")), turnkeeper.ErrFenced)
	_, err := d.transact(key(1, 2), nonce(), func(context.Context) turnkeeper.CallResult {
		h.Error("a transactional tool ran under an old grant")
		return turnkeeper.CallResult{}
	})
	isIt(h, "a transaction", err, turnkeeper.ErrFenced)
	_, err = h.Load(h.Context(), d.grant.TurnID, d.grant.GrantID)
	isIt(h, "a load", err, turnkeeper.ErrFenced)
	if now, rounds := h.Turn(d.grant.TurnID); now != before || len(rounds) != 1 {
		h.Errorf("the turn was %+v and is %+v with %d rounds", before, now, len(rounds))
	}
	isIt(h, "the new holder's write", after.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), nil)
}

func oneWorker(h *house) {
	h.enqueue("clerk", "", "x")
	h.tick()
	job := h.Fetch(first)[0]
	bind := func(worker turnkeeper.WorkerID) (bool, error) {
		return h.BindGrant(h.Context(), job.TurnID, job.GrantID, worker)
	}
	early := h.read(job, first)
	isIt(h, "a write under a grant that is not bound", early.Append(h.Context(), turnkeeper.Entry{Round: round(1)}), turnkeeper.ErrFenced)
	fresh, err := bind(first)
	isIt(h, "bind", err, nil)
	equal(h, "it is the first", fresh, true)
	turn, _ := h.Turn(job.TurnID)
	equal(h, "worker", turn.WorkerID, first)
	fresh, err = bind(first)
	isIt(h, "bind again", err, nil)
	equal(h, "it is the first again", fresh, false)
	_, err = bind(second)
	isIt(h, "bind to another", err, turnkeeper.ErrFenced)
	one, other := h.read(job, first), h.read(job, second)
	isIt(h, "the other's write", other.Append(h.Context(), turnkeeper.Entry{Round: round(1)}), turnkeeper.ErrFenced)
	one.append(turnkeeper.Entry{Round: round(1)})
	isIt(h, "the other's write after one", h.read(job, second).Append(h.Context(), turnkeeper.Entry{Round: round(2)}), turnkeeper.ErrFenced)
	isIt(h, "end", one.end(succeeded("done")), nil)
	_, err = bind(first)
	isIt(h, "bind after the end", err, turnkeeper.ErrFenced)
	_, err = h.BindGrant(h.Context(), job.TurnID+99, job.GrantID, first)
	isIt(h, "bind for another turn", err, turnkeeper.ErrFenced)
	_, err = h.BindGrant(h.Context(), job.TurnID, "00000000-0000-4000-8000-999999999999", first)
	isIt(h, "bind another grant", err, turnkeeper.ErrFenced)
}

// boundNotFetched has the job of a grant fetched by a second worker, as after a crash
// of the server, and that worker fall silent, and then the one that has the grant.
func boundNotFetched(h *house) {
	d := h.turn()
	h.ForgetFetch(d.grant.JobID)
	equal(h, "jobs", len(h.Fetch(second)), 1)
	h.Pass(takeover + time.Second)
	h.beat(first)
	equal(h, "requeued while its worker lives", h.tickAlone().Requeued, 0)
	d.append(turnkeeper.Entry{Round: round(1)})
	h.Pass(takeover + time.Second)
	h.beat(second)
	equal(h, "requeued when its worker is silent", h.tickAlone().Requeued, 1)
	equal(h, "holder in the log", h.Grants(d.grant.TurnID)[0].WorkerID, first)
}

func buildsOnLess(h *house) {
	one := h.turn()
	job := Job{one.grant.JobID, one.grant.TurnID, one.grant.GrantID}
	twin := h.load(job, first)
	one.append(turnkeeper.Entry{Round: round(1)})
	isIt(h, "a write that builds on less", twin.Append(h.Context(), turnkeeper.Entry{Round: round(1)}), turnkeeper.ErrJournalMoved)
}

// lostAmongOthers loses a write where somebody else has made one: the journal then
// has as many entries as the writer expects after its own.
func lostAmongOthers(h *house) {
	one := h.turn()
	twin := h.load(Job{one.grant.JobID, one.grant.TurnID, one.grant.GrantID}, first)
	one.append(turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce), Starts: []turnkeeper.CallStart{
		{Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce},
	}})
	h.CutNext(false)
	err := twin.Append(h.Context(), turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce), Starts: []turnkeeper.CallStart{
		{Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce},
	}})
	isIt(h, "the lost write", err, turnkeeper.ErrJournalMoved)
	equal(h, "starts", one.call(key(1, 1)).Starts, 1)
}

func lostBeforeTakeover(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	after := h.again(d)
	after.append(turnkeeper.Entry{Round: round(2)})
	h.CutNext(false)
	isIt(h, "the lost start", d.start(key(1, 1), nonce(), 1), turnkeeper.ErrFenced)
	equal(h, "starts", d.call(key(1, 1)).Starts, 0)
	h.CutNext(false)
	isIt(h, "the lost end", d.end(succeeded("stale")), turnkeeper.ErrFenced)
}

func handedBack(h *house) {
	d := h.planned(turnkeeper.EffectKeyed)
	d.mustStart(key(1, 1), nonce(), 1)
	isIt(h, "hand back", d.end(turnkeeper.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}), nil)
	log := h.Grants(d.grant.TurnID)
	equal(h, "outcome in the log", log[0].Outcome, "handed_back")
	after := h.next(second)
	equal(h, "turn", after.grant.TurnID, d.grant.TurnID)
	equal(h, "dispatches", after.record.Turn.Dispatches, 2)
	equal(h, "losses", after.record.Turn.Losses, 0)
	equal(h, "rounds", len(after.record.Rounds), 1)
	equal(h, "call", after.record.Rounds[0].Calls[0].State, turnkeeper.CallStarted)
	isIt(h, "put off", after.end(turnkeeper.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Minute}), nil)
	equal(h, "granted before it is due", h.tick().Granted, 0)
	h.Pass(time.Minute)
	equal(h, "granted when it is due", h.tick().Granted, 1)
	equal(h, "outcome in the log", h.Grants(d.grant.TurnID)[1].Outcome, "deferred")
}

func threeLosses(h *house) {
	d := h.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectNone)
	d.mustStart(key(1, 1), nonce(), 1)
	h.enqueue("clerk", "", "next in the lane")
	d = h.again(h.again(d))
	h.Pass(LeaseTTL)
	report := h.tick()
	equal(h, "closed", report.Closed, 1)
	equal(h, "granted: the lane goes on", report.Granted, 1)
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "state", turn.State, turnkeeper.TurnDegraded)
	equal(h, "stop reason", turn.StopReason, turnkeeper.StopWorkerLost)
	equal(h, "losses", turn.Losses, 3)
	equal(h, "the started call", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
	equal(h, "the planned call", d.call(key(1, 2)).State, turnkeeper.CallCancelled)
	equal(h, "what is said of it", d.call(key(1, 2)).Shown, agentturn.ShownNotRun)
	equal(h, "the read, which needs no start", d.call(key(1, 3)).State, turnkeeper.CallCancelled)
	equal(h, "what is said of it", d.call(key(1, 3)).Shown, agentturn.ShownPerhaps)
	reply, ok := h.Reply(turn.MessageID)
	if !ok || reply.Outcome != turnkeeper.TurnDegraded {
		h.Errorf("reply %+v", reply)
	}
	equal(h, "message", h.Message(turn.MessageID).State, turnkeeper.MessageAnswered)
	isIt(h, "a write of the last holder", d.Append(h.Context(), turnkeeper.Entry{Round: round(2)}), turnkeeper.ErrFenced)
}

func unclaimed(h *house) {
	h.enqueue("clerk", "", "x")
	for range 4 { // more often than a message may lose its worker
		equal(h, "granted", h.tick().Granted, 1)
		h.Pass(LeaseTTL)
	}
	d := h.next(first)
	equal(h, "losses", d.record.Turn.Losses, 0)
	equal(h, "dispatches", d.record.Turn.Dispatches, 5)
	equal(h, "outcome in the log", h.Grants(d.grant.TurnID)[0].Outcome, "unclaimed")
}

func silentWorker(h *house) {
	d := h.turn()
	h.Pass(takeover / 2)
	h.beat(second)
	equal(h, "requeued before the worker is silent", h.tickAlone().Requeued, 0)
	h.Pass(takeover/2 + time.Second)
	h.beat(second)
	equal(h, "requeued", h.tickAlone().Requeued, 1)
	equal(h, "outcome in the log", h.Grants(d.grant.TurnID)[0].Outcome, "lost")
	equal(h, "holder in the log", h.Grants(d.grant.TurnID)[0].WorkerID, first)
	isIt(h, "the silent worker's write", d.Append(h.Context(), turnkeeper.Entry{Round: round(1)}), turnkeeper.ErrFenced)
}

// lateWorkers takes a turn from a worker that is silent while its process is there: it is short of time, or
// stopped. The message is not to blame, until the process is gone.
func lateWorkers(h *house) {
	gone := h.Present(first)
	const dead = "worker-dead"
	h.beat(second, dead)
	h.enqueue("clerk", "", "do it")
	equal(h, "granted", h.tickAlone().Granted, 1)
	d := h.take(dead)[0]
	for _, next := range []turnkeeper.WorkerID{dead, first} { // two are lost with their process
		h.Pass(takeover + time.Second)
		h.beat(second)
		equal(h, "requeued", h.tickAlone().Requeued, 1)
		if next == first {
			h.beat(first)
		}
		equal(h, "taken", len(h.take(next)), 1)
	}
	for range 4 { // more often than a message may lose its worker
		h.Pass(takeover + time.Second)
		h.beat(second)
		report := h.tickAlone()
		equal(h, "requeued", report.Requeued, 1)
		equal(h, "closed", report.Closed, 0)
		equal(h, "taken", len(h.take(first)), 1)
	}
	gone()
	equal(h, "closed when the process is gone", h.tickAlone().Closed, 1)
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "stop reason", turn.StopReason, turnkeeper.StopWorkerLost)
}

// heardAgain takes a turn from a worker that seems gone and comes back, as one whose network was down.
func heardAgain(h *house) {
	h.turn()
	for range 4 {
		h.Pass(takeover + time.Second)
		h.beat(second)
		report := h.tickAlone()
		equal(h, "requeued", report.Requeued, 1)
		equal(h, "closed", report.Closed, 0)
		h.Pass(time.Second)
		h.beat(first)
		equal(h, "taken", len(h.take(first)), 1)
	}
	for range 2 { // now it is gone
		h.Pass(takeover + time.Second)
		h.beat(second)
		equal(h, "requeued", h.tickAlone().Requeued, 1)
		h.take(first)
	}
	equal(h, "closed", h.tickAlone().Closed, 1)
}

// databaseAway lets the database be away for longer than workers may be silent.
func databaseAway(h *house) {
	h.turn()
	h.Pass(takeover + time.Second)
	h.beat(second)
	equal(h, "the worker looks lost", h.countSilence().Lost, true)
	equal(h, "requeued at the database's return", h.tickAlone().Requeued, 0)
	h.Pass(takeover / 2)
	h.beat(second)
	equal(h, "requeued before the worker is silent again", h.tickAlone().Requeued, 0)
	h.Pass(takeover/2 + time.Second)
	h.beat(second)
	equal(h, "requeued", h.tickAlone().Requeued, 1)
}

// countSilence is a tick at the return of the database.
func (h *house) countSilence() (sit turnkeeper.Situation) {
	h.Helper()
	err := h.Scheduler().InTick(h.Context(), func(t scheduler.Tick) (err error) {
		if sit, _, err = t.Look(h.Context()); err != nil {
			return err
		}
		return t.CountSilence(h.Context(), sit.Now)
	})
	isIt(h, "the tick", err, nil)
	return sit
}

// clockPutBack loses a worker before the clock is put back by an hour: its lease
// would seem good, and its last sign of life new, until the hour has come round.
func clockPutBack(h *house) {
	d := h.turn()
	h.Pass(-time.Hour)
	h.awaitDispatches(d.grant.TurnID, 2)
	isIt(h, "the lost worker's write", d.Append(h.Context(), turnkeeper.Entry{Round: round(1)}), turnkeeper.ErrFenced)
}

func messageBeforeStep(h *house) {
	isIt(h, "a turn that fails", h.turn().end(failed(true)), nil)
	h.Pass(-time.Hour)
	h.beat(second)
	for range 3 { // the first tick finds the step, and holds off; a later one ends that
		h.beat(second)
		if h.tickAlone().Granted == 1 {
			return
		}
		h.Pass(LeaseTTL)
	}
	h.Error("the message waits for the hour to come round")
}

// awaitDispatches ticks, through a hold-off if there is one, until a turn was
// granted so often.
func (h *house) awaitDispatches(turn turnkeeper.TurnID, n int) {
	h.Helper()
	for range 3 {
		h.beat(second)
		h.tickAlone()
		if len(h.Grants(turn)) >= n {
			return
		}
		h.Pass(LeaseTTL)
	}
	h.Errorf("turn %d was granted %d times", turn, len(h.Grants(turn)))
}

const hourly = time.Hour

func schedule() turnkeeper.AgentRegistration {
	return registration("clerk", false, turnkeeper.Schedule{Name: "s", Cron: "@every 1h", TimeZone: "UTC", Conversation: "main", Message: "look"})
}

func slotsCollapse(h *house) {
	h.Register(schedule())
	equal(h, "slots before the first is known", h.tick().Slots, 0)
	h.Pass(10*hourly + time.Minute)
	equal(h, "slots after ten", h.tick().Slots, 1)
	d := h.take(first)[0]
	equal(h, "trigger", d.record.Message.Trigger, turnkeeper.TriggerSchedule)
	equal(h, "body", d.record.Message.Body, "look")
	equal(h, "slots again", h.tick().Slots, 0)
	h.Pass(hourly)
	equal(h, "slots an hour later", h.tick().Slots, 1)
}

// slotOnce has two schedulers decide about one slot: the second comes with what
// it read before.
func slotOnce(h *house) {
	h.Register(schedule())
	h.tick()
	h.Pass(hourly + time.Minute)
	ctx := h.Context()
	var decision turnkeeper.SlotDecision
	occur := func(t scheduler.Tick) error {
		sit, _, err := t.Look(ctx)
		if err != nil {
			return err
		}
		if decision.Slot.IsZero() {
			due, err := t.DueSchedules(ctx, 10)
			if err != nil || len(due) != 1 {
				h.Fatalf("%d schedules are due, error %v", len(due), err)
			}
			decision = scheduler.Decide(due[0], sit.Now)
		}
		return t.Occur(ctx, decision)
	}
	isIt(h, "first", h.Scheduler().InTick(ctx, occur), nil)
	isIt(h, "again", h.Scheduler().InTick(ctx, occur), nil)
	isIt(h, "end", h.next(first).end(succeeded("done")), nil)
	equal(h, "granted: there is one message", h.tick().Granted, 0)
}

// slotRefused fires a schedule whose conversation has a name that no message may have.
// Its message is refused, and the tick goes on.
func slotRefused(h *house) {
	h.Register(registration("clerk", false, turnkeeper.Schedule{
		Name: "s", Cron: "* * * * *", TimeZone: "UTC", Conversation: strings.Repeat("ж", turnkeeper.MaxKeyLength), Message: "Go.",
	}))
	h.tick()
	h.Pass(2 * time.Minute)
	id := h.enqueue("desk", "", "somebody else's")
	d := h.next(first)
	equal(h, "message that is handled", d.record.Message.ID, id)
}

// lostInARound has a message lose its last worker while a round is streamed: whoever
// watches must not take what came of it for a part of the reply.
func lostInARound(h *house) {
	d := h.planned(turnkeeper.EffectNone)
	d.append(turnkeeper.Entry{Results: []turnkeeper.CallResult{result(key(1, 1), "", turnkeeper.CallSucceeded, "x")}})
	for range 2 {
		d = h.again(d)
	}
	d.append(turnkeeper.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventRoundStart, Round: 2}}})
	h.Pass(LeaseTTL)
	equal(h, "closed", h.tick().Closed, 1)
	all := h.Events(d.grant.TurnID)
	equal(h, "last event", all[len(all)-1].Type, turnkeeper.EventTurnComplete)
	before := all[len(all)-2]
	equal(h, "what the lost worker had streamed", before.Type, turnkeeper.EventRoundRollback)
	equal(h, "of round", before.Round, 2)
	equal(h, "number of the last event", all[len(all)-1].Seq, int64(len(all)))
}

// changeLanes changes the lanes of agents, there and back, while before has made of a message what it likes. The
// next message of the conversation waits for it, and no longer.
func (h *house) changeLanes(before func(*house)) {
	for agent, byConversation := range map[string]bool{"clerk": true, "desk": false} {
		for range 2 {
			h.enqueue(agent, "talk", "first")
			if before != nil {
				before(h)
			}
			h.Register(registration(agent, byConversation))
			h.enqueue(agent, "talk", "second")
			if before == nil {
				equal(h, "granted", h.tick().Granted, 1)
			} else {
				equal(h, "granted beside the old lane", h.tick().Granted, 0)
				h.Pass(2 * time.Second)
				equal(h, "granted beside the old lane", h.tick().Granted, 0)
				h.enqueue(agent, "other", "by itself")
				want := 0
				if byConversation {
					want = 1
				}
				equal(h, agent+" grants to another conversation", h.tick().Granted, want)
				h.Pass(time.Minute)
				h.tick()
			}
			h.answerInOrder("talk", "first", "second")
			byConversation = !byConversation
		}
	}
}

func granted(h *house) { equal(h, "granted", h.tick().Granted, 1) }

func putOff(h *house) {
	isIt(h, "put off", h.next(first).end(turnkeeper.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Minute}), nil)
}

// answerInOrder ends all turns that are granted. Those of a conversation are to be these messages, in this order.
func (h *house) answerInOrder(conversation string, bodies ...string) {
	h.Helper()
	var answered []string
	for range 2 * len(bodies) {
		for _, d := range h.take(first) {
			isIt(h, "end", d.end(succeeded("done")), nil)
			if d.record.Turn.Conversation == conversation {
				answered = append(answered, d.record.Message.Body)
			}
		}
		h.tick()
	}
	for _, d := range h.take(first) {
		isIt(h, "end", d.end(succeeded("done")), nil)
	}
	if !slices.Equal(answered, bodies) {
		h.Errorf("answered %q, want %q", answered, bodies)
	}
}

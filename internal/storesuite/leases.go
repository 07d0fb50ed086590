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
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

const takeover = 30 * time.Second

func keys(e *env) {
	m := turnkeeper.Submission{Agent: "clerk", Body: "one", Key: "k"}
	id, err := e.Enqueue(e.Context(), m)
	wantErr(e, "first", err, nil)
	again, err := e.Enqueue(e.Context(), m)
	wantErr(e, "repeat", err, nil)
	equal(e, "id of the repeat", again, id)
	m.Body = "two"
	_, err = e.Enqueue(e.Context(), m)
	wantErr(e, "another body", err, turnkeeper.ErrKeyConflict)
	m.Agent = "desk"
	other, err := e.Enqueue(e.Context(), m)
	wantErr(e, "another agent", err, nil)
	if other <= id {
		e.Errorf("id %d follows %d", other, id)
	}
}

func refusals(e *env) {
	for name, c := range map[string]struct {
		m    turnkeeper.Submission
		want error
	}{
		"empty":    {turnkeeper.Submission{Agent: "clerk", Body: " \n"}, turnkeeper.ErrEmptyMessage},
		"stranger": {turnkeeper.Submission{Agent: "nobody", Body: "x"}, turnkeeper.ErrUnknownAgent},
		"too long": {turnkeeper.Submission{Agent: "clerk", Body: string(make([]byte, 1<<17))},
			turnkeeper.ErrEmptyMessage},
		"not text": {turnkeeper.Submission{Agent: "clerk", Body: "a\xff"}, turnkeeper.ErrInvalidMessage},
		"priority": {turnkeeper.Submission{Agent: "clerk", Body: "x", Priority: 5000}, turnkeeper.ErrInvalidMessage},
	} {
		if name == "too long" {
			c.m.Body, c.want = string(slices.Repeat([]byte("x"), 1<<17)), turnkeeper.ErrInvalidMessage
		}
		_, err := e.Enqueue(e.Context(), c.m)
		wantErr(e, name, err, c.want)
	}
	equal(e, "granted", e.tick().Granted, 0)
}

func oneOpenTurn(e *env) {
	e.enqueue("clerk", "a", "one")
	e.enqueue("clerk", "b", "two")
	e.enqueue("desk", "a", "three")
	e.enqueue("desk", "b", "four")
	equal(e, "granted", e.tick().Granted, 3)
	equal(e, "granted with every lane busy", e.tick().Granted, 0)
	lanes := map[turnkeeper.Lane]int{}
	for _, d := range e.take(first) {
		lanes[d.grant.Lane]++
	}
	if lanes["clerk"] != 1 || lanes["desk/a"] != 1 || lanes["desk/b"] != 1 {
		e.Errorf("granted lanes %v", lanes)
	}
}

func inOrder(e *env) {
	var want []turnkeeper.Message
	for _, priority := range []int{0, 5, -3, 5} {
		id, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x", Priority: priority})
		wantErr(e, "enqueue", err, nil)
		want = append(want, e.Message(id))
	}
	slices.SortFunc(want, func(a, b turnkeeper.Message) int {
		return cmp.Or(a.Rank().Compare(b.Rank()), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range want {
		d := e.next(first)
		equal(e, "message", d.record.Message.ID, m.ID)
		wantErr(e, "end", d.end(succeeded("done")), nil)
	}
}

func dueLater(e *env) {
	now := e.Message(e.enqueue("desk", "", "what is the time?")).AcceptedAt
	later := func(due time.Time) turnkeeper.MessageID {
		id, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "later",
			Priority: 1000, DueAt: due})
		wantErr(e, "enqueue", err, nil)
		return id
	}
	past := later(now.Add(-time.Hour))
	if m := e.Message(past); m.DueAt.After(m.AcceptedAt) || m.DueAt.Before(now.Add(-time.Second)) {
		e.Errorf("accepted at %v with a due time in the past: due at %v", m.AcceptedAt, m.DueAt)
	}
	due := now.Truncate(time.Second).Add(30 * time.Minute)
	id := later(due.Add(time.Microsecond)) // the next whole second
	if m := e.Message(id); !m.DueAt.Equal(due.Add(time.Second)) {
		e.Errorf("due at %v, want the whole second after %v", m.DueAt, due)
	}
	_, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x",
		DueAt: now.Add(3661 * 24 * time.Hour)})
	wantErr(e, "too far ahead", err, turnkeeper.ErrInvalidMessage)
	wait, err := e.Scheduler().NextDue(e.Context(), e.Message(id).AcceptedAt)
	if err != nil || wait < 20*time.Minute || wait > 31*time.Minute {
		e.Errorf("next due in %v, want half an hour; error %v", wait, err)
	}
	soon := e.enqueue("clerk", "", "soon")
	equal(e, "granted", e.tick().Granted, 2) // one of desk, and the first of clerk
	for _, want := range []turnkeeper.MessageID{past, soon} {
		for _, d := range e.take(first) {
			if d.record.Message.Agent == "clerk" {
				equal(e, "message", d.record.Message.ID, want)
			}
			wantErr(e, "end", d.end(succeeded("done")), nil)
		}
		e.tick()
	}
	equal(e, "state", e.Message(id).State, turnkeeper.MessageWaiting)
	e.Pass(29 * time.Minute)
	equal(e, "granted a minute before", e.tick().Granted, 0)
	e.Pass(2 * time.Minute)
	d := e.next(first)
	equal(e, "message", d.record.Message.ID, id)
	if d.record.Waited > 10*time.Minute {
		e.Errorf("waited %v, want the time since it was due", d.record.Waited)
	}
}

// clockBackDelayed sets the clock back after a delayed message was accepted: the message stays delayed.
func clockBackDelayed(e *env) {
	now := e.Message(e.enqueue("desk", "", "x")).AcceptedAt
	id, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "later", DueAt: now.Add(time.Hour)})
	wantErr(e, "enqueue", err, nil)
	e.Pass(-time.Hour)
	for range 3 {
		e.beat(second)
		e.tickAlone()
		e.Pass(LeaseTTL)
	}
	equal(e, "state", e.Message(id).State, turnkeeper.MessageWaiting)
}

func retiredAgent(e *env) {
	e.Register(schedule())
	agent := schedule().Name
	e.tick()
	keyed := turnkeeper.Submission{Agent: agent, Body: "accepted before", Key: "k"}
	waits, err := e.Enqueue(e.Context(), keyed)
	wantErr(e, "enqueue", err, nil)
	e.Retire(agent, true)
	_, err = e.Enqueue(e.Context(), turnkeeper.Submission{Agent: agent, Body: "x"})
	wantErr(e, "a new message", err, turnkeeper.ErrAgentRetired)
	again, err := e.Enqueue(e.Context(), keyed)
	wantErr(e, "a repeat", err, nil)
	equal(e, "id of the repeat", again, waits)
	keyed.User = "anna"
	_, err = e.Enqueue(e.Context(), keyed)
	wantErr(e, "a new message of a user with the same key", err, turnkeeper.ErrAgentRetired)
	e.Register(schedule()) // as a worker that has its file does at its start
	e.Pass(3 * hourly)
	e.enqueue("desk", "", "x")
	report := e.tick()
	equal(e, "slots", report.Slots, 0)
	equal(e, "granted to other agents", report.Granted, 1)
	equal(e, "state", e.Message(waits).State, turnkeeper.MessageWaiting)
	e.Retire(agent, false)
	report = e.tick()
	equal(e, "missed slots", report.Slots, 0)
	equal(e, "granted after the restore", report.Granted, 1)
	equal(e, "state", e.Message(waits).State, turnkeeper.MessageRunning)
	e.Pass(hourly)
	equal(e, "slots an hour later", e.tick().Slots, 1)
}

func tokens(e *env) {
	for want := int64(1); want <= 5; want += 2 {
		d := e.turn()
		equal(e, "token", d.grant.Token, want)
		after := e.again(d)
		equal(e, "token after a loss", after.grant.Token, want+1)
		if after.grant.GrantID == d.grant.GrantID {
			e.Error("two grants have the same id")
		}
		wantErr(e, "end", after.end(succeeded("done")), nil)
	}
}

func ticksExclude(e *env) {
	e.beat(first)
	e.enqueue("clerk", "", "x")
	err := e.Scheduler().InTick(e.Context(), func(t scheduler.Tick) error {
		_, locked, err := t.Snapshot(e.Context(), true)
		equal(e, "the first has the lock", locked, true)
		other, err2 := scheduler.New(scheduler.Config{Store: e.Scheduler()}).Tick(e.Context())
		equal(e, "the other is busy", other.Busy, true)
		return errors.Join(err, err2)
	})
	wantErr(e, "tick", err, nil)
	equal(e, "granted after it", e.tick().Granted, 1)
}

var errOnPurpose = errors.New("on purpose")

func tickUndone(e *env) {
	d := e.turn()
	e.Pass(LeaseTTL)
	e.beat(first, second)
	ctx := e.Context()
	err := e.Scheduler().InTick(ctx, func(t scheduler.Tick) error {
		if _, _, err := t.Snapshot(ctx, true); err != nil {
			return err
		}
		lost, err := t.Lost(ctx, 10)
		if err != nil || len(lost) != 1 {
			e.Fatalf("%d grants are lost, error %v", len(lost), err)
		}
		if err := t.Requeue(ctx, lost[0]); err != nil {
			return err
		}
		ready, err := t.ReadyTurns(ctx, 10, nil)
		if err != nil || len(ready) != 1 {
			e.Fatalf("%d turns are ready after it, error %v", len(ready), err)
		}
		return errOnPurpose
	})
	wantErr(e, "tick", err, errOnPurpose)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "state", turn.State, turnkeeper.TurnRunning)
	equal(e, "losses", turn.Losses, 0)
	wantErr(e, "the holder's write", d.Append(ctx, turnlog.Entry{Round: round(1)}), nil)
}

func oldGrant(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	after := e.again(d)
	before, _ := e.Turn(d.grant.TurnID)
	wantErr(e, "a step", d.Append(e.Context(), turnlog.Entry{Round: round(2)}), turnkeeper.ErrFenced)
	wantErr(e, "a start", d.start(key(1, 1), nonce(), 1), turnkeeper.ErrFenced)
	wantErr(e, "an end", d.end(succeeded("stale")), turnkeeper.ErrFenced)
	_, err := d.transact(key(1, 2), nonce(), func(context.Context) turnlog.CallResult {
		e.Error("a transactional tool ran under an old grant")
		return turnlog.CallResult{}
	})
	wantErr(e, "a transaction", err, turnkeeper.ErrFenced)
	_, err = e.Load(e.Context(), d.grant.TurnID, d.grant.GrantID)
	wantErr(e, "a load", err, turnkeeper.ErrFenced)
	if now, rounds := e.Turn(d.grant.TurnID); now != before || len(rounds) != 1 {
		e.Errorf("the turn was %+v and is %+v with %d rounds", before, now, len(rounds))
	}
	wantErr(e, "the new holder's write", after.Append(e.Context(), turnlog.Entry{Round: round(2)}), nil)
}

func oneWorker(e *env) {
	e.enqueue("clerk", "", "x")
	e.tick()
	job := e.Fetch(first)[0]
	bind := func(worker turnkeeper.WorkerID) (bool, error) {
		return e.BindGrant(e.Context(), job.TurnID, job.GrantID, worker)
	}
	early := e.read(job, first)
	wantErr(e, "a write under a grant that is not bound", early.Append(e.Context(), turnlog.Entry{Round: round(1)}),
		turnkeeper.ErrFenced)
	fresh, err := bind(first)
	wantErr(e, "bind", err, nil)
	equal(e, "first binding", fresh, true)
	turn, _ := e.Turn(job.TurnID)
	equal(e, "worker", turn.WorkerID, first)
	fresh, err = bind(first)
	wantErr(e, "bind again", err, nil)
	equal(e, "first binding, the second time", fresh, false)
	_, err = bind(second)
	wantErr(e, "bind to another", err, turnkeeper.ErrFenced)
	one, other := e.read(job, first), e.read(job, second)
	wantErr(e, "the other's write", other.Append(e.Context(), turnlog.Entry{Round: round(1)}), turnkeeper.ErrFenced)
	one.append(turnlog.Entry{Round: round(1)})
	wantErr(e, "the other's write after one", e.read(job, second).Append(e.Context(), turnlog.Entry{Round: round(2)}),
		turnkeeper.ErrFenced)
	wantErr(e, "end", one.end(succeeded("done")), nil)
	_, err = bind(first)
	wantErr(e, "bind after the end", err, turnkeeper.ErrFenced)
	_, err = e.BindGrant(e.Context(), job.TurnID+99, job.GrantID, first)
	wantErr(e, "bind for another turn", err, turnkeeper.ErrFenced)
	_, err = e.BindGrant(e.Context(), job.TurnID, "00000000-0000-4000-8000-999999999999", first)
	wantErr(e, "bind another grant", err, turnkeeper.ErrFenced)
}

// boundNotFetched checks that a turn is lost with the worker that bound its grant. Another worker
// that fetched the job again, as after a crash of the server, does not count.
func boundNotFetched(e *env) {
	d := e.turn()
	e.ForgetFetch(d.grant.JobID)
	equal(e, "jobs", len(e.Fetch(second)), 1)
	e.Pass(takeover + time.Second)
	e.beat(first)
	equal(e, "requeued while its worker is alive", e.tickAlone().Requeued, 0)
	d.append(turnlog.Entry{Round: round(1)})
	e.Pass(takeover + time.Second)
	e.beat(second)
	equal(e, "requeued when its worker is silent", e.tickAlone().Requeued, 1)
	equal(e, "holder in the log", e.Grants(d.grant.TurnID)[0].WorkerID, first)
}

func staleWriter(e *env) {
	one := e.turn()
	job := Job{one.grant.JobID, one.grant.TurnID, one.grant.GrantID}
	twin := e.load(job, first)
	one.append(turnlog.Entry{Round: round(1)})
	wantErr(e, "a write based on an older journal", twin.Append(e.Context(), turnlog.Entry{Round: round(1)}),
		turnkeeper.ErrJournalMoved)
}

// lostAmongOthers loses a write after another writer added an entry: the journal then has as many
// entries as the first writer expects.
func lostAmongOthers(e *env) {
	one := e.turn()
	twin := e.load(Job{one.grant.JobID, one.grant.TurnID, one.grant.GrantID}, first)
	one.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Starts: []turnlog.CallStart{
		{Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce},
	}})
	e.CutNext(false)
	err := twin.Append(e.Context(), turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Starts: []turnlog.CallStart{
		{Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectOnce},
	}})
	wantErr(e, "the lost write", err, turnkeeper.ErrJournalMoved)
	equal(e, "starts", one.call(key(1, 1)).Starts, 1)
}

func lostBeforeTakeover(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	after := e.again(d)
	after.append(turnlog.Entry{Round: round(2)})
	e.CutNext(false)
	wantErr(e, "the lost start", d.start(key(1, 1), nonce(), 1), turnkeeper.ErrFenced)
	equal(e, "starts", d.call(key(1, 1)).Starts, 0)
	e.CutNext(false)
	wantErr(e, "the lost end", d.end(succeeded("stale")), turnkeeper.ErrFenced)
}

func handedBack(e *env) {
	d := e.planned(turnkeeper.EffectKeyed)
	d.mustStart(key(1, 1), nonce(), 1)
	wantErr(e, "hand back", d.end(turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}), nil)
	log := e.Grants(d.grant.TurnID)
	equal(e, "outcome in the log", log[0].Outcome, "handed_back")
	after := e.next(second)
	equal(e, "turn", after.grant.TurnID, d.grant.TurnID)
	equal(e, "dispatches", after.record.Turn.Dispatches, 2)
	equal(e, "losses", after.record.Turn.Losses, 0)
	equal(e, "rounds", len(after.record.Rounds), 1)
	equal(e, "call", after.record.Rounds[0].Calls[0].State, turnkeeper.CallStarted)
	wantErr(e, "put off", after.end(turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Minute}), nil)
	equal(e, "granted before it is due", e.tick().Granted, 0)
	e.Pass(time.Minute)
	equal(e, "granted when it is due", e.tick().Granted, 1)
	equal(e, "outcome in the log", e.Grants(d.grant.TurnID)[1].Outcome, "deferred")
}

func threeLosses(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectNone)
	d.mustStart(key(1, 1), nonce(), 1)
	e.enqueue("clerk", "", "next in the lane")
	d = e.again(e.again(d))
	e.Pass(LeaseTTL)
	report := e.tick()
	equal(e, "closed", report.Closed, 1)
	equal(e, "granted from the same lane", report.Granted, 1)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "state", turn.State, turnkeeper.TurnDegraded)
	equal(e, "stop reason", turn.StopReason, turnkeeper.StopWorkerLost)
	equal(e, "losses", turn.Losses, 3)
	equal(e, "the started call", d.call(key(1, 1)).State, turnkeeper.CallUnknown)
	equal(e, "the planned call", d.call(key(1, 2)).State, turnkeeper.CallCancelled)
	equal(e, "its text", d.call(key(1, 2)).Shown, agentturn.ShownNotRun)
	equal(e, "the read, which needs no start", d.call(key(1, 3)).State, turnkeeper.CallCancelled)
	equal(e, "its text", d.call(key(1, 3)).Shown, agentturn.ShownPerhaps)
	reply, ok := e.Reply(turn.MessageID)
	if !ok || reply.Outcome != turnkeeper.TurnDegraded {
		e.Errorf("reply %+v", reply)
	}
	equal(e, "message", e.Message(turn.MessageID).State, turnkeeper.MessageDegraded)
	wantErr(e, "a write of the last holder", d.Append(e.Context(), turnlog.Entry{Round: round(2)}),
		turnkeeper.ErrFenced)
}

func unclaimed(e *env) {
	e.enqueue("clerk", "", "x")
	for range 4 { // more often than a message may lose its worker
		equal(e, "granted", e.tick().Granted, 1)
		e.Pass(LeaseTTL)
	}
	d := e.next(first)
	equal(e, "losses", d.record.Turn.Losses, 0)
	equal(e, "dispatches", d.record.Turn.Dispatches, 5)
	equal(e, "outcome in the log", e.Grants(d.grant.TurnID)[0].Outcome, "unclaimed")
}

func silentWorker(e *env) {
	d := e.turn()
	e.Pass(takeover / 2)
	e.beat(second)
	equal(e, "requeued before the worker is silent", e.tickAlone().Requeued, 0)
	e.Pass(takeover/2 + time.Second)
	e.beat(second)
	equal(e, "requeued", e.tickAlone().Requeued, 1)
	equal(e, "outcome in the log", e.Grants(d.grant.TurnID)[0].Outcome, "lost")
	equal(e, "holder in the log", e.Grants(d.grant.TurnID)[0].WorkerID, first)
	wantErr(e, "the silent worker's write", d.Append(e.Context(), turnlog.Entry{Round: round(1)}), turnkeeper.ErrFenced)
}

// lateWorkers checks that a worker that is silent while its process is connected loses its turn, but
// that this loss counts against the message only once the process has ended.
func lateWorkers(e *env) {
	disconnect := e.Present(first)
	const dead = "worker-dead"
	e.beat(second, dead)
	e.enqueue("clerk", "", "do it")
	equal(e, "granted", e.tickAlone().Granted, 1)
	d := e.take(dead)[0]
	for _, next := range []turnkeeper.WorkerID{dead, first} { // two losses with the end of the process
		e.Pass(takeover + time.Second)
		e.beat(second)
		equal(e, "requeued", e.tickAlone().Requeued, 1)
		if next == first {
			e.beat(first)
		}
		equal(e, "taken", len(e.take(next)), 1)
	}
	for range 4 { // more often than a message may lose its worker
		e.Pass(takeover + time.Second)
		e.beat(second)
		report := e.tickAlone()
		equal(e, "requeued", report.Requeued, 1)
		equal(e, "closed", report.Closed, 0)
		equal(e, "taken", len(e.take(first)), 1)
	}
	disconnect()
	equal(e, "closed after the process has ended", e.tickAlone().Closed, 1)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "stop reason", turn.StopReason, turnkeeper.StopWorkerLost)
}

// workerReturns checks that a loss does not count if the worker sends a heartbeat again, as after a network outage.
func workerReturns(e *env) {
	e.turn()
	for range 4 {
		e.Pass(takeover + time.Second)
		e.beat(second)
		report := e.tickAlone()
		equal(e, "requeued", report.Requeued, 1)
		equal(e, "closed", report.Closed, 0)
		e.Pass(time.Second)
		e.beat(first)
		equal(e, "taken", len(e.take(first)), 1)
	}
	for range 2 { // now without a later heartbeat
		e.Pass(takeover + time.Second)
		e.beat(second)
		equal(e, "requeued", e.tickAlone().Requeued, 1)
		e.take(first)
	}
	equal(e, "closed", e.tickAlone().Closed, 1)
}

// databaseOutage checks that silence counts from the end of a database outage.
func databaseOutage(e *env) {
	e.turn()
	e.Pass(takeover + time.Second)
	e.beat(second)
	equal(e, "the worker seems lost", e.countSilence().Lost, true)
	equal(e, "requeued when the database returns", e.tickAlone().Requeued, 0)
	e.Pass(takeover / 2)
	e.beat(second)
	equal(e, "requeued before the worker is silent again", e.tickAlone().Requeued, 0)
	e.Pass(takeover/2 + time.Second)
	e.beat(second)
	equal(e, "requeued", e.tickAlone().Requeued, 1)
}

// countSilence runs a tick that restarts the count of silence, as after a database outage.
func (e *env) countSilence() (sit granting.Snapshot) {
	e.Helper()
	err := e.Scheduler().InTick(e.Context(), func(t scheduler.Tick) (err error) {
		if sit, _, err = t.Snapshot(e.Context(), true); err != nil {
			return err
		}
		return t.CountSilence(e.Context(), sit.Now)
	})
	wantErr(e, "the tick", err, nil)
	return sit
}

// clockAdjusted sets the clock back by less and by more than what counts as a step.
func clockAdjusted(e *env) {
	e.turn()
	e.Pass(-9 * time.Second)
	equal(e, "the grant seems lost", e.countSilence().Lost, false)
	e.Pass(-2 * time.Second)
	equal(e, "the grant of the future seems lost", e.countSilence().Lost, true)
}

// clockBackLease sets the clock back by an hour after a worker died: by the clock, its lease and its
// heartbeat would be valid for another hour.
func clockBackLease(e *env) {
	d := e.turn()
	e.Pass(-time.Hour)
	e.tickUntilDispatched(d.grant.TurnID, 2)
	wantErr(e, "the lost worker's write", d.Append(e.Context(), turnlog.Entry{Round: round(1)}), turnkeeper.ErrFenced)
}

func clockBackMessage(e *env) {
	wantErr(e, "a turn that fails", e.turn().end(failed(true)), nil)
	e.Pass(-time.Hour)
	e.beat(second)
	for range 3 { // the first tick finds the clock step and holds off; a later tick ends the hold-off
		e.beat(second)
		if e.tickAlone().Granted == 1 {
			return
		}
		e.Pass(LeaseTTL)
	}
	e.Error("the message still waits for the old clock time")
}

// tickUntilDispatched runs ticks, through a hold-off if there is one, until the turn was granted n times.
func (e *env) tickUntilDispatched(turn turnkeeper.TurnID, n int) {
	e.Helper()
	for range 3 {
		e.beat(second)
		e.tickAlone()
		if len(e.Grants(turn)) >= n {
			return
		}
		e.Pass(LeaseTTL)
	}
	e.Errorf("turn %d was granted %d times, want %d", turn, len(e.Grants(turn)), n)
}

const hourly = time.Hour

func schedule() turnkeeper.AgentRegistration {
	return registration("clerk", false, turnkeeper.Schedule{Name: "s", Cron: "@every 1h", TimeZone: "UTC",
		Conversation: "main", Message: "look"})
}

func slotsCollapse(e *env) {
	e.Register(schedule())
	equal(e, "slots before the first is known", e.tick().Slots, 0)
	e.Pass(10*hourly + time.Minute)
	equal(e, "slots after ten", e.tick().Slots, 1)
	d := e.take(first)[0]
	equal(e, "trigger", d.record.Message.Trigger, turnkeeper.TriggerSchedule)
	equal(e, "body", d.record.Message.Body, "look")
	equal(e, "slots again", e.tick().Slots, 0)
	e.Pass(hourly)
	equal(e, "slots an hour later", e.tick().Slots, 1)
}

// slotOnce makes two schedulers fire the same slot: the second uses an old read.
func slotOnce(e *env) {
	e.Register(schedule())
	e.tick()
	e.Pass(hourly + time.Minute)
	ctx := e.Context()
	var decision granting.SlotDecision
	occur := func(t scheduler.Tick) error {
		sit, _, err := t.Snapshot(ctx, true)
		if err != nil {
			return err
		}
		if decision.Slot.IsZero() {
			due, err := t.DueSchedules(ctx, 10)
			if err != nil || len(due) != 1 {
				e.Fatalf("%d schedules are due, error %v", len(due), err)
			}
			decision = scheduler.Decide(due[0], sit.Now)
		}
		return t.Fire(ctx, decision)
	}
	wantErr(e, "first", e.Scheduler().InTick(ctx, occur), nil)
	wantErr(e, "again", e.Scheduler().InTick(ctx, occur), nil)
	wantErr(e, "end", e.next(first).end(succeeded("done")), nil)
	equal(e, "granted after the only message", e.tick().Granted, 0)
}

// slotRefused fires a schedule whose conversation name is too long for a message. The message is refused,
// and the tick continues.
func slotRefused(e *env) {
	e.Register(registration("clerk", false, turnkeeper.Schedule{
		Name: "s", Cron: "* * * * *", TimeZone: "UTC", Conversation: strings.Repeat("ж", turnkeeper.MaxKeyLength),
		Message: "Go.",
	}))
	e.tick()
	e.Pass(2 * time.Minute)
	id := e.enqueue("desk", "", "of another agent")
	d := e.next(first)
	equal(e, "granted message", d.record.Message.ID, id)
}

// lostInARound checks that the streamed part of a round is rolled back when the message loses its
// last worker, so followers do not take it for a part of the reply.
func lostInARound(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	d.append(turnlog.Entry{Results: []turnlog.CallResult{result(key(1, 1), "", turnkeeper.CallSucceeded, "x")}})
	for range 2 {
		d = e.again(d)
	}
	d.append(turnlog.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventRoundStart, Round: 2}}})
	e.Pass(LeaseTTL)
	equal(e, "closed", e.tick().Closed, 1)
	all := e.Events(d.grant.TurnID)
	equal(e, "last event", all[len(all)-1].Type, turnkeeper.EventTurnComplete)
	before := all[len(all)-2]
	equal(e, "event for the unfinished round", before.Type, turnkeeper.EventRoundRollback)
	equal(e, "its round", before.Round, 2)
	equal(e, "number of the last event", all[len(all)-1].Seq, int64(len(all)))
}

// changeLanes changes the lanes of agents and changes them back, each time after before has brought
// a message into some state. The next message of the conversation waits for that message only.
func (e *env) changeLanes(before func(*env)) {
	for agent, byConversation := range map[string]bool{"clerk": true, "desk": false} {
		for range 2 {
			e.enqueue(agent, "talk", "first")
			if before != nil {
				before(e)
			}
			e.Register(registration(agent, byConversation))
			e.enqueue(agent, "talk", "second")
			if before == nil {
				equal(e, "granted", e.tick().Granted, 1)
			} else {
				equal(e, "granted beside the old lane", e.tick().Granted, 0)
				e.Pass(2 * time.Second)
				equal(e, "granted beside the old lane", e.tick().Granted, 0)
				e.enqueue(agent, "other", "by itself")
				want := 0
				if byConversation {
					want = 1
				}
				equal(e, agent+" grants to another conversation", e.tick().Granted, want)
				e.Pass(time.Minute)
				e.tick()
			}
			e.answerInOrder("talk", "first", "second")
			byConversation = !byConversation
		}
	}
}

func granted(e *env) { equal(e, "granted", e.tick().Granted, 1) }

// putOff ends the turn with a backoff.
func putOff(e *env) {
	wantErr(e, "put off", e.next(first).end(turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Minute}), nil)
}

// answerInOrder ends all granted turns. Those of the conversation must handle these messages, in this order.
func (e *env) answerInOrder(conversation string, bodies ...string) {
	e.Helper()
	var answered []string
	for range 2 * len(bodies) {
		for _, d := range e.take(first) {
			wantErr(e, "end", d.end(succeeded("done")), nil)
			if d.record.Turn.Conversation == conversation {
				answered = append(answered, d.record.Message.Body)
			}
		}
		e.tick()
	}
	for _, d := range e.take(first) {
		wantErr(e, "end", d.end(succeeded("done")), nil)
	}
	if !slices.Equal(answered, bodies) {
		e.Errorf("answered %q, want %q", answered, bodies)
	}
}

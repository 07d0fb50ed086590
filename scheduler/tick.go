package scheduler

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/granting"
)

// A Report describes what a tick did.
type Report struct {
	Busy         bool // another scheduler holds the lock; nothing was done
	More         bool // there may be more to do at once
	Failed       bool // a step failed, and is tried again soon; the rest was done
	Left         bool // work may be waiting for a turn to end
	Requeued     int  // reclaimed turns of lost workers
	Closed       int  // turns of lost workers that were answered without running
	Calls        int  // lost detached calls that run again or were ended
	Asks         int  // asks that expired
	Spawns       int  // sub-agents that were reported to their parents, given up or cancelled
	Slots        int  // schedule slots that became messages
	Granted      int
	granted      int    // grants to messages
	Held         string // reason of the hold-off; empty: there is none
	PollInterval time.Duration
	Looked       time.Time // when the tick began, by the store's clock
}

// lostBatch, askBatch, slotBatch and spawnBatch limit what one transaction does.
const (
	lostBatch  = 100
	askBatch   = 100
	slotBatch  = 100
	spawnBatch = 100
)

// Tick runs one tick. On an error the Report is zero, and nothing was changed unless the
// outcome of the commit is unknown.
func (s *Scheduler) Tick(ctx context.Context) (Report, error) {
	var report Report
	s.at(ctx, PointBegin)
	began := time.Now()
	s.workLeft = true
	for _, rung := range []<-chan struct{}{s.Freed, s.Wake} { // this tick sees what they announce
		select {
		case <-rung:
		default:
		}
	}
	var pass Tick
	err := s.Store.InTick(ctx, func(t Tick) error {
		report, s.reclaimed, pass = Report{PollInterval: s.PollInterval}, nil, t // InTick may run it again
		s.release()
		return s.pass(ctx, t, &report)
	})
	s.handOver(ctx, pass, err)
	s.observe(report, time.Since(began), err)
	if err != nil {
		s.unavailable, s.apart = true, true
		return Report{}, err
	}
	if !report.Busy {
		s.unavailable, s.apart = false, report.Failed
		s.noteSuccess(ctx)
		if !s.partial {
			s.looked = began
		}
	}
	s.at(ctx, PointDone)
	s.workLeft = report.Left
	s.logReport(report)
	return report, nil
}

// readBackTime is the time for reading back the grants of a tick whose scheduler is stopped.
const readBackTime = 2 * time.Second

// handOver starts the turns that a tick has handed over to this process. If the tick failed, it reads back
// which of them are committed: the answer to the commit may be lost. It never starts another turn.
func (s *Scheduler) handOver(ctx context.Context, t Tick, failed error) {
	if len(s.reserved) == 0 {
		return
	}
	defer s.release()
	var handed []granting.Handed
	if failed == nil {
		handed = t.Handed()
	} else {
		var err error
		if handed, err = s.readBack(ctx); err != nil {
			s.Log.Error("it is not known whether turns were granted to this worker; it gives them back",
				zap.Int("turns", len(s.reserved)), zap.Error(err))
		}
	}
	if len(handed) > 0 {
		s.at(ctx, PointHanded)
		s.Local.Start(handed)
	}
}

func (s *Scheduler) readBack(ctx context.Context) ([]granting.Handed, error) {
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(readBackTime, cancel)
		context.AfterFunc(reading, func() { timer.Stop() })
	})()
	return s.Store.Handed(reading, s.worker, s.reserved)
}

// reserve gives slots of this process to candidates that any worker may take.
func (s *Scheduler) reserve(ready []granting.Candidate) {
	if s.Local == nil {
		return
	}
	s.worker, s.reserved = s.Local.Reserve(len(ready))
	for i, next := 0, 0; i < len(ready) && next < len(s.reserved); i++ {
		if ready[i].WorkerID == "" {
			ready[i].WorkerID, ready[i].Slot = s.worker, s.reserved[next]
			next++
		}
	}
}

// release frees the slots in which no turn was started.
func (s *Scheduler) release() {
	if len(s.reserved) > 0 {
		s.Local.Release(s.reserved)
		s.reserved = nil
	}
}

// A reclaimed is a lease that was taken from a lost worker.
type reclaimed struct {
	agent  string
	closed bool // its turn was ended
	rounds int  // of the turn
}

// observe reports a pass to the Observer, once it is committed or has failed.
func (s *Scheduler) observe(report Report, took time.Duration, err error) {
	if s.Observer == nil {
		return
	}
	s.Observer.Ticked(report.Busy, took, err)
	if err != nil {
		return
	}
	for _, lease := range s.reclaimed {
		s.Observer.WorkerLost(lease.agent, lease.closed, lease.rounds)
	}
}

// pass does the work of a tick in its transaction.
func (s *Scheduler) pass(ctx context.Context, t Tick, report *Report) error {
	asked, answered := time.Now(), s.clock.answered
	sit, locked, err := t.Snapshot(ctx, !s.partial)
	if err != nil {
		return err
	}
	if sit.PollInterval > 0 {
		report.PollInterval = sit.PollInterval
	}
	report.Left, report.Looked = true, sit.Now
	if !s.partial {
		s.lookTook = sit.QueryTime
	}
	if !locked {
		s.clock.observeBusy(sit.Now, asked, time.Now())
		report.Busy = true
		return nil
	}
	s.at(ctx, PointLocked)
	trust, err := s.trust(ctx, t, sit, asked)
	if err != nil {
		return err
	}
	report.Held = trust.reason
	if err := s.countSilence(ctx, t, sit, asked.Sub(answered)); err != nil {
		return err
	}
	s.apart = s.apart || sit.Retry
	if err := s.steps(ctx, t, sit, trust, report); err != nil {
		return err
	}
	report.Left = sit.Queued || sit.Waiting > report.granted || sit.Waiting >= granting.MaxWaiting ||
		report.Slots+report.Asks+report.Calls+report.Requeued+report.Closed > 0
	return s.record(ctx, t, sit, *report)
}

// steps does the steps of a tick for which the store is trusted.
func (s *Scheduler) steps(ctx context.Context, t Tick, sit granting.Snapshot, trust trusted, report *Report) error {
	spawned := func(ctx context.Context, t Tick, sit granting.Snapshot, report *Report) error {
		return s.spawned(ctx, t, sit, trust.time, report)
	}
	if trust.time && sit.Lost {
		if err := s.step(ctx, t, sit, report, "lost turns", s.reclaim); err != nil {
			return err
		}
	}
	// Nobody waits for the sub-agents of a turn that has just ended. They must not be granted.
	sit.Spawns = sit.Spawns || report.Requeued+report.Closed > 0
	for _, step := range []struct {
		name string
		does bool
		work part
	}{
		{"lost calls", trust.time && sit.Calls, s.lostCalls},
		{"schedules", trust.time && sit.DueSchedules && !sit.Paused, s.slots},
		{"asks", trust.time && sit.Asks, s.expired},
		{"sub-agents", trust.state && sit.Spawns, spawned},
		{"lanes", sit.Lanes, moveLanes},
		{"levels", sit.Levels, moveLevels},
		{"held messages", sit.Held && sit.Waiting > 0, moveHeld},
		{stepGrants, trust.state && !sit.Paused, s.grant},
		{"rows set aside", s.apart && sit.Aside, forgetAside},
	} {
		if !step.does {
			continue
		}
		if err := s.step(ctx, t, sit, report, step.name, step.work); err != nil {
			return err
		}
	}
	return nil
}

// moveLanes and moveHeld move messages to the lanes in which they now belong.
func moveLanes(ctx context.Context, t Tick, _ granting.Snapshot, _ *Report) error {
	return t.MoveLanes(ctx)
}

func moveLevels(ctx context.Context, t Tick, _ granting.Snapshot, _ *Report) error {
	_, err := t.MoveLevels(ctx)
	return err
}

func moveHeld(ctx context.Context, t Tick, _ granting.Snapshot, _ *Report) error {
	_, err := t.MoveHeld(ctx)
	return err
}

func forgetAside(ctx context.Context, t Tick, _ granting.Snapshot, _ *Report) error {
	return t.ForgetAside(ctx)
}

// minOutage is the shortest outage of the database after which workers get new time to write
// their heartbeats. A shorter one makes no worker silent.
const minOutage = 2 * time.Second

// countSilence restarts the measurement of the workers' silence if they could not write their
// heartbeats: after a restart or an outage of the database. gap is the time since this
// scheduler's last answer from it.
func (s *Scheduler) countSilence(ctx context.Context, t Tick, sit granting.Snapshot, gap time.Duration) error {
	if !sit.Restarted && (!s.unavailable || gap <= minOutage) {
		return nil
	}
	s.Log.Info("the database was unavailable: counting the silence of workers from now on")
	return t.CountSilence(ctx, sit.Now)
}

// reclaim takes lanes back from lost workers. It queues their turns again, or closes them
// after too many losses.
func (s *Scheduler) reclaim(ctx context.Context, t Tick, _ granting.Snapshot, report *Report) error {
	lost, err := t.Lost(ctx, lostBatch)
	if err != nil {
		return err
	}
	for _, grant := range lost {
		s.at(ctx, PointLost)
		if err := s.reclaimOne(ctx, t, grant, report); err != nil {
			return err
		}
	}
	report.More = report.More || len(lost) == lostBatch
	return nil
}

func (s *Scheduler) reclaimOne(ctx context.Context, t Tick, grant granting.LostGrant, report *Report) error {
	closed := grant.WorkerID != "" && !grant.Alive && grant.Losses+1 >= s.MaxLosses
	end := t.Requeue
	if closed {
		end = t.CloseLost
	}
	done, err := s.each(ctx, t, grant.AsideOf(), func() error { return end(ctx, grant) })
	if !done || err != nil {
		return err
	}
	s.reclaimed = append(s.reclaimed, reclaimed{grant.Lane.Agent(), closed, grant.Rounds})
	if closed {
		report.Closed++
		s.Log.Error("a message has lost its worker too often; answering it without running",
			zap.Int64("turn_id", int64(grant.TurnID)), zap.String("agent", grant.Lane.Agent()),
			zap.Int64("message", int64(grant.MessageID)), zap.Int("losses", grant.Losses+1))
	} else {
		report.Requeued++
		s.Log.Warn("a turn's worker was lost; queueing the turn again", zap.Int64("turn_id", int64(grant.TurnID)),
			zap.String("agent", grant.Lane.Agent()),
			zap.String("worker", string(grant.WorkerID)), zap.Bool("lease_lapsed", grant.Lapsed),
			zap.Bool("worker_present", grant.Alive))
	}
	return nil
}

// spawned settles sub-agents. timely says that the clock is trusted, which is needed for
// overdue sub-agents only.
func (s *Scheduler) spawned(ctx context.Context, t Tick, _ granting.Snapshot, timely bool, report *Report) (err error) {
	s.at(ctx, PointSpawned)
	report.Spawns, err = t.SettleSpawned(ctx, timely, spawnBatch)
	report.More = report.More || report.Spawns >= spawnBatch
	return err
}

// expired closes asks whose time is over.
func (s *Scheduler) expired(ctx context.Context, t Tick, _ granting.Snapshot, report *Report) (err error) {
	s.at(ctx, PointExpired)
	report.Asks, err = t.ExpireAsks(ctx, askBatch)
	report.More = report.More || report.Asks >= askBatch
	return err
}

// slots turns due slots into messages. Several missed slots of a schedule become one message.
func (s *Scheduler) slots(ctx context.Context, t Tick, sit granting.Snapshot, report *Report) error {
	due, err := t.DueSchedules(ctx, slotBatch)
	if err != nil {
		return err
	}
	for _, schedule := range due {
		d := Decide(schedule, sit.Now)
		if d.Error != "" {
			s.Log.Error("disabling a schedule", zap.String("agent", schedule.Agent), zap.String("schedule",
				schedule.Name), zap.String("error", d.Error))
		}
		done, err := s.each(ctx, t, schedule.AsideOf(), func() error { return t.Fire(ctx, d) })
		if err != nil {
			return err
		}
		if done && d.Skipped != "" {
			s.Log.Info("a schedule's slot does not run", zap.String("agent", schedule.Agent), zap.String("schedule",
				schedule.Name),
				zap.Time("slot", d.Slot), zap.String("reason", d.Skipped))
		} else if done && !d.Slot.IsZero() {
			s.at(ctx, PointFired)
			report.Slots++
		}
	}
	report.More = report.More || len(due) == slotBatch
	return nil
}

// grant grants free lanes to the work with the lowest ranks, up to the free slots of the workers.
func (s *Scheduler) grant(ctx context.Context, t Tick, sit granting.Snapshot, report *Report) error {
	limit := s.MaxDispatches
	if sit.MaxDispatches > 0 {
		limit = sit.MaxDispatches
	}
	// The turns reclaimed in this tick free their slots.
	limit = min(limit, sit.FreeSlots+report.Requeued+report.Closed)
	if limit <= 0 {
		return nil
	}
	outage, err := s.outage(ctx, t, sit)
	if err != nil {
		return err
	}
	turns := sit.Queued || report.Requeued > 0 || report.Calls > 0 || report.Spawns > 0 || report.Asks > 0
	wanted := limit + outage.failedLanes()
	ready, err := s.pick(ctx, t, sit, outage.held(), wanted, turns)
	if err != nil {
		return err
	}
	full := len(ready) == wanted
	ready, left := outage.admit(ready, limit)
	report.More = report.More || full || left // other work may have been cut off by limit
	if len(ready) == 0 {
		return nil
	}
	s.reserve(ready)
	s.at(ctx, PointPicked)
	granted, err := s.dispatch(ctx, t, ready)
	if err != nil {
		return err
	}
	s.at(ctx, PointGranted)
	report.Granted = len(granted)
	for _, r := range granted {
		if r.New {
			report.granted++
		}
	}
	return nil
}

// pick returns the work to grant, in order, at most limit: the heads of lanes with the lowest ranks, so that no agent
// exceeds its share of the slots. It asks again without the agents that have their share, until nobody else waits or
// no slot is left. What is left then goes to agents that have their share.
func (s *Scheduler) pick(ctx context.Context, t Tick, sit granting.Snapshot, held []string, limit int,
	turns bool) (picked []granting.Candidate, err error) {
	shares := newShares(sit.Running, sit.FreeSlots+len(sit.Running))
	for _, lost := range s.reclaimed {
		shares.running[lost.agent]--
	}
	for more := true; more && len(picked) < limit; more = more || len(picked) < limit && shares.lift() {
		var ready []granting.Candidate
		if turns {
			if ready, err = t.ReadyTurns(ctx, limit, held, shares.full...); err != nil {
				return nil, err
			}
		}
		messages, err := t.ReadyMessages(ctx, limit, held, shares.full...)
		if err != nil {
			return nil, err
		}
		picked, more = shares.take(picked, inOrder(append(ready, messages...), limit), limit)
	}
	return inOrder(picked, limit), nil
}

// recordInterval is the maximum age of the last recorded tick. A tick without work writes
// nothing before that.
const recordInterval = time.Minute

// record records the tick if the last record is old enough, or of another timeline or of a later time: the next tick
// must not see that step again.
func (s *Scheduler) record(ctx context.Context, t Tick, sit granting.Snapshot, r Report) error {
	idle := r.Granted == 0 && r.Calls == 0 && r.Spawns == 0 && r.Asks == 0 && r.Slots == 0 &&
		r.Requeued == 0 && r.Closed == 0
	since := sit.Now.Sub(sit.LastTickAt)
	if idle && sit.Timeline == sit.SeenTimeline && since >= 0 && since < recordInterval {
		return nil
	}
	if !idle && sit.Timeline == sit.SeenTimeline && since >= 0 && since < recordInterval/60 {
		return nil // a busy scheduler need not write this row at each tick
	}
	return t.Note(ctx, sit.Now, sit.Timeline)
}

func (s *Scheduler) logReport(r Report) {
	if r.Granted+r.Slots+r.Requeued+r.Closed+r.Calls+r.Spawns+r.Asks == 0 {
		return
	}
	s.Log.Debug("scheduler tick", zap.Int("granted", r.Granted), zap.Int("slots", r.Slots),
		zap.Int("requeued", r.Requeued), zap.Int("calls", r.Calls), zap.Int("sub_agents", r.Spawns),
		zap.Int("asks", r.Asks), zap.Int("closed", r.Closed), zap.Bool("more", r.More))
}

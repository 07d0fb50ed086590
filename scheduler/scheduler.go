// Package scheduler decides what runs next. A tick is one transaction under one lock, so ticks
// never overlap, whatever the number of processes. A tick reclaims the turns of lost workers,
// turns due schedule slots into messages, and grants free lanes to the work with the lowest ranks.
//
// The package reaches the database and the queue only through Store and Tick. All times are
// the database's. The package must not import storage or jobs.
package scheduler

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
)

// A Store is the durable state of the scheduler.
type Store interface {
	// InTick runs f in one transaction. It commits if f returns nil, and rolls back otherwise.
	InTick(ctx context.Context, f func(Tick) error) error
	// Handed returns those of the grants that Dispatch has handed over to the worker, and that are
	// committed and in force. Afterwards no other of them can be committed. While the store is
	// unavailable, it retries until ctx ends.
	Handed(ctx context.Context, worker turnkeeper.WorkerID, grants []turnkeeper.GrantID) ([]granting.Handed, error)
	// NextDue returns the time until the first work that was not due at then, a time taken
	// from Situation.Now. It is zero or negative if that work is due already. It may be too
	// short, but not too long.
	NextDue(ctx context.Context, then time.Time) (time.Duration, error)
	// TickFailed records for operators that ticks fail, and why. With nil it records that they no longer do.
	TickFailed(ctx context.Context, failed error) error
}

// A Tick is one pass, in its transaction.
type Tick interface {
	// Snapshot tries to take the scheduler's lock, and returns the state of the work. If locked
	// is false, another scheduler holds the lock, and the tick must change nothing. Unless
	// everything is set, Lost, Slots, Calls, Lanes and NewestGrant may be missing. Spawns may not:
	// a sub-agent that nobody waits for any more must not be granted.
	Snapshot(ctx context.Context, everything bool) (sit granting.Snapshot, locked bool, err error)
	// Note records the tick.
	Note(ctx context.Context, now time.Time, timeline string) error
	// CountSilence makes this and later ticks count the silence of workers from the given
	// time, because before it they could not write their heartbeats.
	CountSilence(ctx context.Context, since time.Time) error
	// Hold makes every scheduler hold off until the given time. A zero time ends the hold-off.
	Hold(ctx context.Context, until time.Time, reason string) error

	// Try runs a part of the tick that is about the subjects. If it fails, it is undone, and failed is its error. If it
	// has one subject, this is then set aside: until its next try, the lists below leave it out. After a success no
	// subject is set aside any more. err means that the tick must end, because the error is not of one row.
	Try(ctx context.Context, subjects []granting.Subject, part func() error) (failed, err error)
	// ForgetAside forgets the rows that are set aside and need no work any more.
	ForgetAside(ctx context.Context) error

	// Lost lists lost grants, oldest first, at most limit.
	Lost(ctx context.Context, limit int) ([]granting.LostGrant, error)
	// Requeue takes the lane from a lost grant and queues its turn again.
	Requeue(ctx context.Context, lost granting.LostGrant) error
	// CloseLost answers the message of a lost grant without running its turn.
	CloseLost(ctx context.Context, lost granting.LostGrant) error

	// LostCalls lists detached calls that get no result unless the scheduler acts, at most limit.
	LostCalls(ctx context.Context, limit int) ([]granting.LostCall, error)
	// RunAgain makes a lost call run again, on any worker.
	RunAgain(ctx context.Context, call granting.LostCall) error
	// EndCall gives a lost call its final result, depending on its failure, and queues its turn.
	EndCall(ctx context.Context, call granting.LostCall) error

	// SettleSpawned reports ended sub-agents to their parents, gives up overdue ones if
	// timely is set, and cancels those that no parent waits for, at most limit of each. It
	// returns the number of sub-agents it handled.
	SettleSpawned(ctx context.Context, timely bool, limit int) (int, error)

	// ExpireAsks closes asks that nobody has answered in time, at most limit, and queues
	// their turns. It returns how many it closed.
	ExpireAsks(ctx context.Context, limit int) (int, error)
	// MoveLevels moves messages that the survival levels of their agents hold out of the lanes that they would block,
	// and back when they hold them no longer. It returns how many changed.
	MoveLevels(ctx context.Context) (int, error)
	// MoveHeld moves messages that a parked turn holds out of the lanes that they would
	// block. It looks at the oldest waiting messages, and returns how many it moved.
	MoveHeld(ctx context.Context) (int, error)

	// MoveLanes moves waiting messages to their lanes after an agent's lane setting has
	// changed.
	MoveLanes(ctx context.Context) error

	// DueSchedules lists schedules whose next slot is due or not computed yet.
	DueSchedules(ctx context.Context, limit int) ([]granting.DueSchedule, error)
	// Fire carries out the decision on a due schedule.
	Fire(ctx context.Context, d granting.SlotDecision) error

	// ReadyTurns and ReadyMessages list what can be granted, lowest rank first, then ID, at most one per lane. For the
	// held agents, they list only what is overdue: it has waited for a service for give_up_after; for the full agents,
	// nothing. Either may be called several times.
	ReadyTurns(ctx context.Context, limit int, held []string, full ...string) ([]granting.Candidate, error)
	ReadyMessages(ctx context.Context, limit int, held []string, full ...string) ([]granting.Candidate, error)
	// Chains lists the agents that use one of the models.
	Chains(ctx context.Context, models []string) ([]modelhealth.Chain, error)
	// Dispatch grants each item of ready its lane, sends it to a worker, and records
	// which models its turn probes. Turns with a slot are handed over instead of sent.
	Dispatch(ctx context.Context, ready []granting.Candidate) error
	// Handed returns the turns that Dispatch has handed over, after InTick has returned nil.
	Handed() []granting.Handed
}

// A Local is the worker of the scheduler's own process. It runs turns without River's queue. Its
// methods may be called by any goroutine.
type Local interface {
	// Reserve reserves free slots for turns, at most n, and returns the worker's id and a new grant id
	// for each slot.
	Reserve(n int) (turnkeeper.WorkerID, []turnkeeper.GrantID)
	// Start starts turns in their reserved slots, and does not wait for them.
	Start(turns []granting.Handed)
	// Release frees the slots among grants that Start was not called for. Their grants may be committed
	// if the database could not be asked; the worker then gives them back.
	Release(grants []turnkeeper.GrantID)
}

// A Config configures a Scheduler. Store is required.
type Config struct {
	Store         Store
	Wake          <-chan struct{} // the doorbell; nil: polls only
	Freed         <-chan struct{} // receives a value when turns end and free their slots; nil: Wake does
	PollInterval  time.Duration   // maximum time between ticks; 0: 5 s
	MaxDispatches int             // maximum grants per tick; 0: 100
	MaxLosses     int             // losses of workers after which a message is answered without running; 0: 3
	LeaseTTL      time.Duration   // duration of a hold-off; 0: 240 s
	Log           *zap.Logger     // nil: no log
	Observer      Observer        // nil: none
	Local         Local           // takes turns while it has free slots; nil: River's queue gets all
	Fault         fault.Hook      // nil in production
}

// Points of a tick at which a fault.Hook is called.
const (
	PointBegin    = "tick.begin"
	PointLocked   = "tick.locked"    // the lock is held
	PointLost     = "tick.lost"      // before a lost turn is reclaimed
	PointLostCall = "tick.lost_call" // before a lost detached call is handled
	PointSpawned  = "tick.spawned"   // before sub-agents are settled
	PointExpired  = "tick.expired"   // before asks are closed
	PointFired    = "tick.fired"     // a slot has become a message
	PointPicked   = "tick.picked"    // before the grants
	PointGranted  = "tick.granted"   // nothing is committed yet
	PointHanded   = "tick.handed"    // turns are committed to the worker of this process, and not started
	PointDone     = "tick.done"      // everything is committed
)

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string {
	return []string{PointBegin, PointLocked, PointLost, PointLostCall, PointSpawned, PointExpired, PointFired,
		PointPicked, PointGranted, PointHanded, PointDone}
}

// An Observer records metrics of a scheduler. It must not block.
type Observer interface {
	// Ticked is called after each tick. busy means that another scheduler held the lock.
	Ticked(busy bool, took time.Duration, err error)
	// WorkerLost is called when a turn's lease was taken from a lost worker. closed means
	// that this ended the turn; rounds is the number of its rounds.
	WorkerLost(agent string, closed bool, rounds int)
}

// A Scheduler runs ticks. Its methods are for one goroutine.
type Scheduler struct {
	Config
	clock       clockWatch
	worker      turnkeeper.WorkerID  // of Local
	reserved    []turnkeeper.GrantID // slots of Local, in the current tick
	reclaimed   []reclaimed          // leases taken from lost workers in the current tick
	workLeft    bool                 // work may be waiting for a turn to end: for its lane, or for a slot
	unavailable bool                 // the last own tick failed
	apart       bool                 // each part of the tick is tried by itself
	failed      failures             // of ticks
	partial     bool                 // the next tick looks only for what can be granted
	looked      time.Time            // when a tick last looked for everything
	lookTook    time.Duration        // that it took the store
}

// New returns a Scheduler.
func New(c Config) *Scheduler {
	if c.PollInterval <= 0 {
		c.PollInterval = 5 * time.Second
	}
	if c.MaxDispatches <= 0 {
		c.MaxDispatches = 100
	}
	if c.MaxLosses <= 0 {
		c.MaxLosses = 3
	}
	if c.LeaseTTL <= 0 {
		c.LeaseTTL = bounds.Default().LeaseTTL
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &Scheduler{Config: c}
}

// Pauses after a failed tick, and after a tick that found the lock held: the other scheduler
// receives the same doorbells.
const (
	afterError = time.Second
	afterBusy  = 100 * time.Millisecond
)

// While doorbells ask for grants all the time, ticks look for lost workers, due slots and other rare work every
// leastLookEvery, or every mostLookEvery if looking for them would take the store more than a lookShare-th of the time.
// It does if another transaction has been open for long, because the store then keeps all rows that were deleted since.
const (
	leastLookEvery = 250 * time.Millisecond
	mostLookEvery  = 5 * time.Second
	lookShare      = 100
)

// untilLook returns how long until a tick must look for everything; zero or less: the next one must.
func (s *Scheduler) untilLook() time.Duration {
	every := min(max(leastLookEvery, lookShare*s.lookTook), mostLookEvery)
	return every - time.Since(s.looked)
}

// Run ticks until ctx ends: on the doorbell, when work is due, and on a slow poll. It logs
// and retries a failed tick.
func (s *Scheduler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		report, err := s.Tick(ctx)
		asked := false // a doorbell or the last tick asks for this one
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.noteFailure(ctx, err)
			s.wait(ctx, afterError)
		case report.Failed:
			s.wait(ctx, afterError)
		case report.Busy:
			s.wait(ctx, afterBusy)
		case report.More:
			asked = true
		default:
			asked = s.waitNext(ctx, report)
		}
		s.partial = asked && s.untilLook() > 0
	}
}

// nextDueDelay is the time that the scheduler waits for a doorbell before it queries what is
// due next. A tick that follows at once would repeat the query.
const nextDueDelay = 20 * time.Millisecond

// waitNext waits for the next tick: for a doorbell, for due work, or for the poll interval. It
// reports whether a doorbell rang.
func (s *Scheduler) waitNext(ctx context.Context, report Report) bool {
	if s.wait(ctx, nextDueDelay) {
		return true
	}
	if s.partial { // rare work may be due already
		return s.wait(ctx, s.untilLook())
	}
	return s.wait(ctx, s.untilNext(ctx, report))
}

// holdPoll is the longest pause between ticks during a hold-off. No doorbell announces the
// workers' next heartbeats, or the end of the hold-off.
const holdPoll = time.Second

func (s *Scheduler) untilNext(ctx context.Context, report Report) time.Duration {
	poll := report.PollInterval - nextDueDelay
	if report.Held != "" {
		poll = min(poll, holdPoll-nextDueDelay)
	}
	due, err := s.Store.NextDue(ctx, report.Looked)
	if err != nil {
		return min(poll, afterError)
	}
	return max(min(poll, due), time.Millisecond)
}

// wait waits for a doorbell, at most d, and reports whether one rang or ctx ended.
func (s *Scheduler) wait(ctx context.Context, d time.Duration) bool {
	freed := s.Freed
	if !s.workLeft {
		freed = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-s.Wake:
		return true
	case <-freed:
		return true
	case <-timer.C:
	}
	select { // a doorbell at the same time counts
	case <-s.Wake:
		return true
	case <-freed:
		return true
	default:
		return false
	}
}

func (s *Scheduler) at(ctx context.Context, label string) {
	if s.Fault != nil {
		s.Fault.At(ctx, label)
	}
}

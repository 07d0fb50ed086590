// Package scheduler decides what runs next. It is one serial loop over the
// whole database, whatever the number of processes that run it: a tick is one
// transaction under one lock, so ticks never overlap. A tick brings back the
// turns of lost workers, turns due schedule slots into messages, and grants
// free lanes to the oldest due work.
//
// The package depends on no database and no queue: it uses them through Store and Tick.
// All times are the database's, as those return them. The package must not import
// storage or jobs.
package scheduler

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/fault"
)

// A Store is the durable state that the scheduler works on.
type Store interface {
	// InTick runs f in one transaction. It commits if f returns nil, and rolls back otherwise.
	InTick(ctx context.Context, f func(Tick) error) error
	// NextDue returns how long until something comes due that was not yet due at then, a time
	// taken from Situation.Now. The result is zero or negative if something has come due since.
	// It may be too short, never too long.
	NextDue(ctx context.Context, then time.Time) (time.Duration, error)
}

// A Tick is one pass, in its transaction.
type Tick interface {
	// Look tries to take the scheduler's lock, and returns the work that is due. If locked is
	// false, another scheduler holds the lock and the tick must change nothing.
	Look(ctx context.Context) (sit turnkeeper.Situation, locked bool, err error)
	// Note records the tick.
	Note(ctx context.Context, now time.Time, timeline string) error
	// CountSilence makes the silence of workers count from the given time on, for this and
	// later ticks: before, they could not write their heartbeats.
	CountSilence(ctx context.Context, since time.Time) error
	// Hold makes every scheduler hold off until the given time. A zero time ends the hold-off.
	Hold(ctx context.Context, until time.Time, reason string) error

	// Lost lists lost grants, oldest first, at most limit.
	Lost(ctx context.Context, limit int) ([]turnkeeper.LostGrant, error)
	// Requeue takes the lane from a lost grant and queues its turn again.
	Requeue(ctx context.Context, lost turnkeeper.LostGrant) error
	// CloseLost answers the message of a lost grant without running its turn.
	CloseLost(ctx context.Context, lost turnkeeper.LostGrant) error

	// LostCalls lists detached calls that will have no result unless the scheduler acts, at most limit.
	LostCalls(ctx context.Context, limit int) ([]turnkeeper.LostCall, error)
	// RunAgain makes a lost call run again, on any worker.
	RunAgain(ctx context.Context, call turnkeeper.LostCall) error
	// EndCall gives a lost call its final result, depending on its trouble, and queues its turn.
	EndCall(ctx context.Context, call turnkeeper.LostCall) error

	// SettleSpawned tells parents about sub-agents that have ended, gives up overdue
	// sub-agents if timely is set, and cancels those that nobody waits for, at most
	// limit of each. It returns how many it handled.
	SettleSpawned(ctx context.Context, timely bool, limit int) (int, error)

	// MoveLanes moves waiting messages out of the lanes that their agents had before.
	MoveLanes(ctx context.Context) error

	// DueSchedules lists schedules whose slot has come or is not known yet.
	DueSchedules(ctx context.Context, limit int) ([]turnkeeper.DueSchedule, error)
	// Occur carries out the decision on a due schedule.
	Occur(ctx context.Context, d turnkeeper.SlotDecision) error

	// ReadyTurns and ReadyMessages list what can be granted, oldest due first, then
	// priority, then ID, at most one per lane. For the held agents, they list only
	// overdue turns, and no messages.
	ReadyTurns(ctx context.Context, limit int, held []string) ([]turnkeeper.Ready, error)
	ReadyMessages(ctx context.Context, limit int, held []string) ([]turnkeeper.Ready, error)
	// Chains lists the agents that use one of the models.
	Chains(ctx context.Context, models []string) ([]turnkeeper.AgentChain, error)
	// Overdue lists the heads of free lanes that have waited for a service as long as
	// they may, of the given agents.
	Overdue(ctx context.Context, limit int, agents []string) ([]turnkeeper.Ready, error)
	// Dispatch grants each item of ready its lane, sends it to a worker, and records
	// which models its turn probes.
	Dispatch(ctx context.Context, ready []turnkeeper.Ready) error
}

// Config says how to schedule.
type Config struct {
	Store         Store
	Wake          <-chan struct{} // the doorbell; nil: polls only
	Freed         <-chan struct{} // rings when turns end, each of which makes room; nil: Wake rings for that too
	PollInterval  time.Duration   // between looks when nothing rings and nothing is due; 0: 5 s
	MaxDispatches int             // grants per tick; 0: 100
	MaxLosses     int             // lost workers after which a message is answered without running, of those that count; 0: 3
	LeaseTTL      time.Duration   // how long the scheduler holds off where it cannot trust time; 0: 240 s
	Log           *zap.Logger     // nil: none
	Observer      Observer        // nil: nobody is told
	Fault         fault.Hook      // nil in production
}

// Points of a tick at which a fault.Hook is called.
const (
	PointBegin    = "tick.begin"
	PointLocked   = "tick.locked"    // the lock is held
	PointLost     = "tick.lost"      // before a lost turn is brought back
	PointLostCall = "tick.lost_call" // before something is done about a lost detached call
	PointSpawned  = "tick.spawned"   // before something is done about sub-agents
	PointOccurred = "tick.occurred"  // a slot has become a message
	PointPicked   = "tick.picked"    // before the grants
	PointGranted  = "tick.granted"   // nothing is committed yet
	PointDone     = "tick.done"      // everything is committed
)

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string {
	return []string{PointBegin, PointLocked, PointLost, PointLostCall, PointSpawned, PointOccurred, PointPicked, PointGranted, PointDone}
}

// An Observer is told of what a scheduler has done, for metrics. It never blocks
// and never fails.
type Observer interface {
	// Ticked is called when a pass is over. busy means that another scheduler was at work.
	Ticked(busy bool, took time.Duration, err error)
	// WorkerLost is called when a lease of a turn of the agent was taken from a lost
	// worker. closed means that this ended the turn; rounds is how many rounds it had.
	WorkerLost(agent string, closed bool, rounds int)
}

// A Scheduler runs ticks. Its methods are for one goroutine.
type Scheduler struct {
	Config
	clock clockWatch
	taken []taken // leases taken from lost workers in the current pass
	left  bool    // work may wait for a turn to end: its lane was taken, or there was no room
	away  bool    // a tick has failed since silence was last known to count
}

// New returns a scheduler.
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
		c.LeaseTTL = turnkeeper.DefaultBounds().LeaseTTL
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &Scheduler{Config: c}
}

// afterError is the pause after a tick that failed. afterBusy is the pause after a tick
// that found another scheduler at work, which hears the same doorbells.
const (
	afterError = time.Second
	afterBusy  = 100 * time.Millisecond
)

// Run ticks until ctx ends: on the doorbell, when something comes due, and on a slow
// poll. A failed tick is logged and retried.
func (s *Scheduler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		report, err := s.Tick(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.Log.Warn("a scheduler tick failed; it is tried again", zap.Error(err))
			s.wait(ctx, afterError)
		case report.Busy:
			s.wait(ctx, afterBusy)
		case report.More:
		default:
			s.rest(ctx, report)
		}
	}
}

// lull is how long the scheduler waits for another notification before it queries what is due next.
// A tick that follows at once would repeat the query, and after grants the machine is
// busy with other things.
const lull = 20 * time.Millisecond

// rest waits for the next tick: until something rings or comes due, or the poll interval is over.
func (s *Scheduler) rest(ctx context.Context, report Report) {
	if s.wait(ctx, lull) {
		return
	}
	s.wait(ctx, s.untilNext(ctx, report))
}

// whileHeld is the longest pause between looks while the scheduler holds off. No
// doorbell rings when the workers' next heartbeats show that they are alive, nor when
// the hold-off ends.
const whileHeld = time.Second

func (s *Scheduler) untilNext(ctx context.Context, report Report) time.Duration {
	poll := report.PollInterval - lull
	if report.Held != "" {
		poll = min(poll, whileHeld-lull)
	}
	due, err := s.Store.NextDue(ctx, report.Looked)
	if err != nil {
		return poll
	}
	return max(min(poll, due), time.Millisecond)
}

// wait waits for a doorbell, at most d, and reports whether to look at once.
func (s *Scheduler) wait(ctx context.Context, d time.Duration) bool {
	freed := s.Freed
	if !s.left {
		freed = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.Wake:
	case <-freed:
	case <-timer.C:
		return false
	}
	return true
}

func (s *Scheduler) at(ctx context.Context, label string) {
	if s.Fault != nil {
		s.Fault.At(ctx, label)
	}
}

package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/lease"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A Worker runs turns for River. It first binds the job's grant to itself, if the turn
// still has that grant. As a scheduler.Local it also runs turns that the scheduler of its own process has
// granted to it.
type Worker struct {
	river.WorkerDefaults[TurnArgs]
	WorkerConfig

	journals *journal.Store
	grants   *grants.Store

	mu      sync.Mutex
	running map[turnkeeper.GrantID]*run // by grant, because a turn may return while its last dispatch is still stopping
	away    map[turnkeeper.GrantID]bool // left without a fault of their messages, until they are given back

	slots    int                 // turns at once; 0: River does not run the worker
	fetching int                 // slots reserved for a fetch of River
	fetched  map[int64]time.Time // jobs that River has fetched and Work has not begun, by the time of the fetch
	waiting  int                 // fetches that wait for a slot
	changed  chan struct{}       // closed when slots may be free, and replaced
	draining bool
	local    sync.WaitGroup // turns of the process's own scheduler
	poll     time.Duration  // cancelPoll, except in tests

	definitions map[string]*agentdef.Definition // parsed, by hash
}

// WorkerConfig configures a Worker.
type WorkerConfig struct {
	DB       *storage.DB
	Runner   *agentturn.Runner
	WorkerID turnkeeper.WorkerID
	Bounds   turnkeeper.Bounds // of the process
	// BoundsFor returns the bounds of an agent's turns. nil: Bounds with the overrides of
	// the agent's definition.
	BoundsFor func(*agentdef.Definition) turnkeeper.Bounds
	Log       *zap.Logger // nil: none
	// Observed reports whether the Runner has an Observer, which needs the previous grant of
	// each dispatch.
	Observed bool
	Fault    fault.Hook
}

// NewWorker returns a worker.
func NewWorker(c WorkerConfig) *Worker {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.BoundsFor == nil {
		c.BoundsFor = func(d *agentdef.Definition) turnkeeper.Bounds { return d.Bounds(c.Bounds) }
	}
	return &Worker{
		WorkerConfig: c, journals: journal.New(c.DB), grants: grants.New(c.DB), running: map[turnkeeper.GrantID]*run{},
		away:    map[turnkeeper.GrantID]bool{},
		fetched: map[int64]time.Time{}, changed: make(chan struct{}), definitions: map[string]*agentdef.Definition{},
		poll: cancelPoll,
	}
}

// Timeout returns the timeout of a job. It is longer than any allowed wall cap, and
// shorter than the lease.
func (w *Worker) Timeout(*river.Job[TurnArgs]) time.Duration {
	return w.Bounds.LeaseTTL - w.Bounds.Margin/2
}

// Stop cancels every running turn with the cause.
func (w *Worker) Stop(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for grant, r := range w.running {
		r.cancel(cause)
		if errors.Is(cause, lease.ErrSilent) {
			w.away[grant] = true
		}
	}
}

// Running returns how many turns run.
func (w *Worker) Running() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.running {
		if r.started {
			n++
		}
	}
	return n
}

// enter records that the grant of a job of River runs here. first is false if it already does.
func (w *Worker) enter(ctx context.Context, job int64,
	grant turnkeeper.GrantID) (_ context.Context, leave func(), first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fetched, job)
	if w.running[grant] != nil {
		w.freed()
		return ctx, nil, false
	}
	r := newRun(ctx)
	r.started = true
	w.running[grant] = r
	return r.ctx, func() { w.leave(grant, r) }, true
}

// Points of a job at which the worker's fault hook is called.
const (
	PointFetched = "work.fetched" // River has fetched the job, or the scheduler has handed over the turn
	PointLoaded  = "work.loaded"  // the turn is loaded
	PointWorked  = "work.done"    // the turn has ended; River does not know yet
)

// FaultPoints returns the labels with which a Worker or CallWorker calls its fault hook, except
// those of the turn.
func FaultPoints() []string {
	return []string{PointFetched, PointLoaded, PointWorked, PointCallFetched}
}

// reloads is the maximum number of times that a turn is reloaded because another writer
// changed its journal.
const reloads = 5

// An assignment is a job's turn and the grant under which a worker shall run it.
type assignment struct {
	TurnArgs
	job    turnkeeper.JobID // 0: it was handed over
	handed *granting.Handed // the turn as the scheduler has handed it over, once; nil: it must be bound and loaded
}

// jobField returns the log's field of River's job, if there is one.
func (a assignment) jobField() zap.Field {
	if a.job == 0 {
		return zap.Skip()
	}
	return zap.Int64("job", int64(a.job))
}

// Work runs the turn of a job. It never asks River for another attempt, because the
// scheduler reclaims turns.
func (w *Worker) Work(ctx context.Context, job *river.Job[TurnArgs]) error {
	ctx, leave, first := w.enter(ctx, job.ID, job.Args.GrantID)
	if !first {
		w.Log.Warn("the turn already runs here; River has handed out its job twice",
			zap.Int64("turn_id", int64(job.Args.TurnID)), zap.Int64("job", job.ID))
		return nil
	}
	defer leave()
	err := w.work(ctx, assignment{TurnArgs: job.Args, job: turnkeeper.JobID(job.ID)})
	if errors.Is(err, turnkeeper.ErrFenced) || errors.Is(err, rivertype.ErrJobCancelledRemotely) {
		return river.JobCancel(err)
	}
	return err
}

func (w *Worker) work(ctx context.Context, a assignment) error {
	log := &jobLog{w.Log.With(zap.Int64("turn_id", int64(a.TurnID)), a.jobField())}
	w.at(ctx, PointFetched)
	defer func() { w.at(ctx, PointWorked) }()
	for n := range reloads {
		err := w.dispatch(ctx, a, n > 0, log)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, turnkeeper.ErrFenced), errors.Is(err, rivertype.ErrJobCancelledRemotely):
			log.Warn("the turn no longer belongs to this worker; stopping it", zap.Error(err))
			return err
		case errors.Is(err, turnkeeper.ErrJournalMoved):
			log.Info("another writer has changed the turn's journal; reloading it", zap.Error(err))
			a.handed = nil
		default:
			log.Error("the turn failed; the scheduler will reclaim it when its lease ends", zap.Error(err))
			return err
		}
	}
	err := fmt.Errorf("other writers kept changing the journal of turn %d", a.TurnID)
	log.Error("the turn failed; the scheduler will reclaim it when its lease ends", zap.Error(err))
	return err
}

// A jobLog is a logger that gets more fields once the job's turn is loaded.
type jobLog struct{ *zap.Logger }

// load returns the turn's record, and when it was read. It binds the grant first, because River may have
// given the job to another worker too; a grant that was handed over is bound. first reports whether no
// worker has run the turn under the grant.
func (w *Worker) load(ctx context.Context, a assignment) (record *turnlog.Record, read time.Time,
	first bool, err error) {
	if a.handed != nil {
		record, err = a.handed.Load(ctx)
		return record, a.handed.Read, true, err
	}
	if first, err = w.grants.BindGrant(ctx, a.TurnID, a.GrantID, w.WorkerID); err != nil {
		return record, read, first, err
	}
	read = time.Now()
	record, err = w.journals.LoadPatiently(ctx, a.TurnID, a.GrantID)
	return record, read, first, err
}

// reading returns the context for reading a turn. It outlives ctx if the turn is cancelled, because it is read to be
// closed, and if the journal moved as ctx ended. Otherwise the worker would keep the turn until its lease is given
// back.
func reading(ctx context.Context, moved bool) (context.Context, context.CancelFunc) {
	closes := func() bool { return moved || errors.Is(context.Cause(ctx), agentturn.ErrCancelled) }
	if ctx.Err() != nil && !closes() {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !closes() {
			cancel(context.Cause(ctx))
			return
		}
		timer := time.AfterFunc(endTime, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}

// dispatch continues the turn from its journal. again: it has done so before.
func (w *Worker) dispatch(ctx context.Context, a assignment, again bool, log *jobLog) error {
	reads, stop := reading(ctx, again && ctx.Err() != nil)
	defer stop()
	record, read, first, unreadable := w.load(reads, a)
	if unreadable != nil && !errors.Is(unreadable, journal.ErrNewerJournal) {
		return unreadable
	}
	w.at(ctx, PointLoaded)
	log.Logger = w.Log.With(append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), a.jobField())...)
	ctx, held, release := lease.Hold(ctx, read, record.Remaining, record.Elapsed)
	defer release()
	writer := w.journals.Writer(record, turnkeeper.Grant{
		TurnID: record.Turn.ID, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: record.Turn.GrantID,
		JobID: a.job, WorkerID: w.WorkerID,
	})
	if unreadable != nil {
		return w.handBack(ctx, record, writer, unreadable)
	}
	definition, err := w.definitionOf(record)
	if err != nil {
		return w.handBack(ctx, record, writer, err)
	}
	work := agentturn.Assignment{Record: record, Definition: definition}
	if err = w.update(reads, &work); err == nil {
		err = w.equipped(reads, work)
	}
	if unfit, ok := errors.AsType[*unfitError](err); ok {
		return w.handBack(ctx, record, writer, unfit)
	}
	if err != nil {
		return err
	}
	w.end(record.Turn.GrantID, record.End)
	work.Finish = w.finishOf(record.Turn.GrantID)
	work.Bounds = w.BoundsFor(work.Definition)
	if first && late(record, work.Bounds) {
		return w.putOff(ctx, record, writer)
	}
	work.Before = w.before(ctx, record.Turn)
	work.WallDeadline, work.LeaseDeadline = held.Start.Add(work.Bounds.MaxDuration), held.Deadline
	_, err = w.Runner.Run(ctx, work, &turnJournal{writer: writer})
	return err
}

// finishOf returns the channel that is closed when the turn that runs under the grant is to finish.
func (w *Worker) finishOf(grant turnkeeper.GrantID) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.running[grant]; r != nil {
		return r.finish
	}
	return nil
}

// beforeTime is the timeout of looking up the previous grant, which only the trace
// needs.
const beforeTime = time.Second

// before returns the previous grant of the turn, if there is an Observer.
func (w *Worker) before(ctx context.Context, turn turnkeeper.Turn) turnkeeper.Dispatch {
	if !w.Observed || turn.Dispatches < 2 {
		return turnkeeper.Dispatch{}
	}
	ctx, stop := context.WithTimeout(ctx, beforeTime)
	defer stop()
	before, err := w.grants.GrantBefore(ctx, turn.ID, turn.GrantID)
	if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) {
		w.Log.Debug("the previous grant was not found", zap.Int64("turn_id", int64(turn.ID)), zap.Error(err))
	}
	return before
}

// keptDefinitions is the maximum number of parsed definitions that a worker caches.
const keptDefinitions = 1000

// definitionOf returns the agent's definition as of the turn's creation, with the limit of the message.
func (w *Worker) definitionOf(record *turnlog.Record) (*agentdef.Definition, error) {
	definition, err := w.parsed(record.Turn.Agent, record.Turn.DefinitionHash, record.Definition)
	return definition.WithAnswerLimit(record.AnswerLimit), err
}

// parsed returns the definition in a file.
func (w *Worker) parsed(agent, hash string, file []byte) (*agentdef.Definition, error) {
	w.mu.Lock()
	known := w.definitions[hash]
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	definition, err := agentdef.ParseRecorded(agent, file)
	if err != nil {
		// It was valid when it was registered, so an older or newer program
		// registered it.
		return nil, fmt.Errorf("the agent's definition cannot be read: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.definitions) >= keptDefinitions {
		clear(w.definitions)
	}
	w.definitions[hash] = definition
	return definition, nil
}

// update gives a continued turn what counts as of now: its agent's budget, which may have been raised because the turn
// was deferred, and the definition that a call must obey that a person allowed. Everything else stays as of the turn's
// creation.
func (w *Worker) update(ctx context.Context, a *agentturn.Assignment) error {
	turn := a.Record.Turn
	if turn.Dispatches < 2 {
		return nil
	}
	current, err := w.DB.CurrentAgent(ctx, turn.Agent)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	a.Retired = current.Retired && a.Record.Lineage.Parent == 0 // it still works as a sub-agent
	newest, err := w.parsed(turn.Agent, current.Hash, current.File)
	if err != nil { // a newer program registered it
		if a.Record.Allowed() {
			return &unfitError{
				fmt.Errorf(
					"a person has allowed a call of the turn, and the agent's newest definition cannot be read: %w",
					err)}
		}
		return nil
	}
	changed := *a.Definition
	changed.Budget = newest.Budget
	a.Definition, a.Newest = &changed, newest
	return nil
}

func (w *Worker) at(ctx context.Context, label string) {
	fault.At(ctx, w.Fault, label)
}

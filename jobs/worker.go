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
	"turnkeeper/internal/turnlog"
	"turnkeeper/lease"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A Worker runs turns for River. It first binds the job's grant to itself, if the turn
// still has that grant.
type Worker struct {
	river.WorkerDefaults[TurnArgs]
	WorkerConfig

	journals *journal.Store
	grants   *grants.Store

	mu      sync.Mutex
	running map[turnkeeper.GrantID]context.CancelCauseFunc // by grant, because a turn may return while its last dispatch is still stopping
	away    map[turnkeeper.GrantID]bool                    // stopped while the database was unavailable, until they are given back

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
		WorkerConfig: c, journals: journal.New(c.DB), grants: grants.New(c.DB), running: map[turnkeeper.GrantID]context.CancelCauseFunc{}, away: map[turnkeeper.GrantID]bool{}, definitions: map[string]*agentdef.Definition{},
	}
}

// Timeout returns River's timeout of a job. It is longer than any allowed wall cap, and
// shorter than the lease.
func (w *Worker) Timeout(*river.Job[TurnArgs]) time.Duration {
	return w.Bounds.LeaseTTL - w.Bounds.Margin/2
}

// Stop cancels every running turn with the cause.
func (w *Worker) Stop(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for grant, cancel := range w.running {
		cancel(cause)
		if errors.Is(cause, lease.ErrSilent) {
			w.away[grant] = true
		}
	}
}

// Running returns how many turns run.
func (w *Worker) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// enter records that a grant runs here. first is false if it already does.
func (w *Worker) enter(ctx context.Context, grant turnkeeper.GrantID) (_ context.Context, leave func(), first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, running := w.running[grant]; running {
		return ctx, nil, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w.running[grant] = cancel
	return ctx, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, grant)
	}, true
}

// Points of a job at which the worker's fault hook is called.
const (
	PointFetched = "work.fetched" // River has fetched the job
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

// Work runs the turn of a job. It never asks River for another attempt, because the
// scheduler reclaims turns.
func (w *Worker) Work(ctx context.Context, job *river.Job[TurnArgs]) error {
	log := &jobLog{w.Log.With(zap.Int64("turn_id", int64(job.Args.TurnID)), zap.Int64("job", job.ID))}
	ctx, leave, first := w.enter(ctx, job.Args.GrantID)
	if !first {
		log.Warn("the turn already runs here; River has handed out its job twice")
		return nil
	}
	defer leave()
	w.at(ctx, PointFetched)
	defer func() { w.at(ctx, PointWorked) }()
	for range reloads {
		err := w.dispatch(ctx, job, log)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, turnkeeper.ErrFenced), errors.Is(err, rivertype.ErrJobCancelledRemotely):
			log.Warn("the turn no longer belongs to this worker; stopping it", zap.Error(err))
			return river.JobCancel(err)
		case errors.Is(err, turnkeeper.ErrJournalMoved):
			log.Info("another writer has changed the turn's journal; reloading it")
		default:
			log.Error("the turn failed; the scheduler will reclaim it when its lease ends", zap.Error(err))
			return err
		}
	}
	return fmt.Errorf("other writers kept changing the journal of turn %d", job.Args.TurnID)
}

// A jobLog is a logger that gets more fields once the job's turn is loaded.
type jobLog struct{ *zap.Logger }

// dispatch binds the grant, because River may have given the job to another worker too,
// and continues the turn from its journal.
func (w *Worker) dispatch(ctx context.Context, job *river.Job[TurnArgs], log *jobLog) error {
	first, err := w.grants.BindGrant(ctx, job.Args.TurnID, job.Args.GrantID, w.WorkerID)
	if err != nil {
		return err
	}
	asked := time.Now()
	record, unreadable := w.journals.LoadPatiently(ctx, job.Args.TurnID, job.Args.GrantID)
	if unreadable != nil && !errors.Is(unreadable, journal.ErrNewerJournal) {
		return unreadable
	}
	w.at(ctx, PointLoaded)
	log.Logger = w.Log.With(append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), zap.Int64("job", job.ID))...)
	ctx, held, release := lease.Hold(ctx, asked, record.Remaining, record.Elapsed)
	defer release()
	writer := w.journals.Writer(record, turnkeeper.Grant{
		TurnID: record.Turn.ID, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: record.Turn.GrantID,
		JobID: turnkeeper.JobID(job.ID), WorkerID: w.WorkerID,
	})
	if unreadable != nil {
		return w.handBack(ctx, record, writer, unreadable)
	}
	definition, err := w.definitionOf(record)
	if err == nil {
		err = w.equipped(ctx, record, definition)
	}
	if err != nil {
		return w.handBack(ctx, record, writer, err)
	}
	if definition, err = w.withBudget(ctx, record.Turn, definition); err != nil {
		return err
	}
	if record.Cancelled {
		w.cancel(record.Turn.GrantID)
	}
	bounds := w.BoundsFor(definition)
	if first && late(record, bounds) {
		return w.putOff(ctx, record, writer)
	}
	_, err = w.Runner.Run(ctx, agentturn.Assignment{
		Record: record, Definition: definition, Bounds: bounds, Before: w.before(ctx, record.Turn),
		WallDeadline: held.Start.Add(bounds.MaxDuration), LeaseDeadline: held.Deadline,
	}, &turnJournal{writer: writer})
	return err
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

// definitionOf returns the agent's definition as of the turn's creation.
func (w *Worker) definitionOf(record turnlog.Record) (*agentdef.Definition, error) {
	hash := record.Turn.DefinitionHash
	w.mu.Lock()
	known := w.definitions[hash]
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	definition, err := agentdef.ParseRecorded(record.Turn.Agent, record.Definition)
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

// withBudget gives a continued turn the current budget of its agent, which may have been
// raised because the turn was deferred. Everything else stays as of the turn's creation.
func (w *Worker) withBudget(ctx context.Context, turn turnkeeper.Turn, d *agentdef.Definition) (*agentdef.Definition, error) {
	if turn.Dispatches < 2 {
		return d, nil
	}
	file, err := w.DB.CurrentDefinition(ctx, turn.Agent)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	changed := *d
	if current, err := agentdef.ParseRecorded(turn.Agent, file); err == nil { // else a newer program registered it, and the old budget stays
		changed.Budget = current.Budget
	}
	return &changed, nil
}

func (w *Worker) at(ctx context.Context, label string) {
	fault.At(ctx, w.Fault, label)
}

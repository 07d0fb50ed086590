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
	"turnkeeper/lease"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A Worker works turns for River. The first thing it does is to bind the job's
// grant to itself, if it is still the turn's.
type Worker struct {
	river.WorkerDefaults[TurnArgs]
	WorkerConfig

	journals *journal.Store
	grants   *grants.Store

	mu      sync.Mutex
	running map[turnkeeper.GrantID]context.CancelCauseFunc // a turn may come back while its last dispatch still stops
	away    map[turnkeeper.GrantID]bool                    // stopped while the database was away; until they are given back

	definitions map[string]*agentdef.Definition // parsed, by hash
}

// WorkerConfig says how to work.
type WorkerConfig struct {
	DB       *storage.DB
	Runner   *agentturn.Runner
	WorkerID turnkeeper.WorkerID
	Bounds   turnkeeper.Bounds // of the process
	// BoundsFor are the bounds of an agent's turns. nil: Bounds with what the
	// agent's definition overrides.
	BoundsFor func(*agentdef.Definition) turnkeeper.Bounds
	Log       *zap.Logger // nil: none
	// Observed says that the Runner has an Observer, which is to be told of the
	// grant before each.
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

// Timeout is River's limit on a job: above every wall cap that is allowed, and
// below the lease.
func (w *Worker) Timeout(*river.Job[TurnArgs]) time.Duration {
	return w.Bounds.LeaseTTL - w.Bounds.Margin/2
}

// Stop ends every turn that runs, with the cause.
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

// Running is how many turns run now.
func (w *Worker) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// enter notes that a grant is being worked; first is false where it is already.
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
	PointFetched = "work.fetched" // River has handed the job out
	PointLoaded  = "work.loaded"  // the turn is read
	PointWorked  = "work.done"    // River is not told yet
)

// FaultPoints are the labels that a Worker, or a CallWorker, calls its fault hook with, besides
// those of the turn.
func FaultPoints() []string {
	return []string{PointFetched, PointLoaded, PointWorked, PointCallFetched}
}

// reloads is how often a turn goes on after its journal moved under it.
const reloads = 5

// Work runs the turn that the job rings for. It never asks River for another
// attempt: what is left of a turn is the scheduler's to bring back.
func (w *Worker) Work(ctx context.Context, job *river.Job[TurnArgs]) error {
	log := &jobLog{w.Log.With(zap.Int64("turn_id", int64(job.Args.TurnID)), zap.Int64("job", job.ID))}
	ctx, leave, first := w.enter(ctx, job.Args.GrantID)
	if !first {
		log.Warn("the turn runs here already; River has given its job out twice")
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
			log.Warn("the turn is no longer this worker's; it stops", zap.Error(err))
			return river.JobCancel(err)
		case errors.Is(err, turnkeeper.ErrJournalMoved):
			log.Info("the turn's journal has moved on; it is read again")
		default:
			log.Error("the turn stops here and is brought back when its lease ends", zap.Error(err))
			return err
		}
	}
	return fmt.Errorf("the journal of turn %d kept moving", job.Args.TurnID)
}

// A jobLog tells more of a job's turn once that is read.
type jobLog struct{ *zap.Logger }

// dispatch goes on with a turn from what its journal says, once the grant is
// this worker's: River may have given the job to another as well.
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

// beforeTime bounds the look for the grant before this one: no turn waits long for
// what only its trace tells.
const beforeTime = time.Second

// before is the grant before this one, where the Observer is to be told of it.
func (w *Worker) before(ctx context.Context, turn turnkeeper.Turn) turnkeeper.Dispatch {
	if !w.Observed || turn.Dispatches < 2 {
		return turnkeeper.Dispatch{}
	}
	ctx, stop := context.WithTimeout(ctx, beforeTime)
	defer stop()
	before, err := w.grants.GrantBefore(ctx, turn.ID, turn.GrantID)
	if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) {
		w.Log.Debug("the grant before this one was not found", zap.Int64("turn_id", int64(turn.ID)), zap.Error(err))
	}
	return before
}

// keptDefinitions bounds the definitions that a worker keeps parsed.
const keptDefinitions = 1000

// definitionOf is the agent as it was when the turn was made.
func (w *Worker) definitionOf(record turnkeeper.Record) (*agentdef.Definition, error) {
	hash := record.Turn.DefinitionHash
	w.mu.Lock()
	known := w.definitions[hash]
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	definition, err := agentdef.ParseRecorded(record.Turn.Agent, record.Definition)
	if err != nil {
		// It was readable when it was registered, so this program is older or
		// newer than the one that did.
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

// withBudget gives a turn that goes on the budget that its agent has now: it may have been
// raised because the turn was put off. All else stays as it was when the turn was made.
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
	if current, err := agentdef.ParseRecorded(turn.Agent, file); err == nil { // else it is a newer program's, and the old budget stands
		changed.Budget = current.Budget
	}
	return &changed, nil
}

func (w *Worker) at(ctx context.Context, label string) {
	fault.At(ctx, w.Fault, label)
}

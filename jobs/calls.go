package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/fault"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A CallWorker works detached calls for River. The first thing it does is to
// claim the call; whoever claims it runs it, and nobody else does.
type CallWorker struct {
	river.WorkerDefaults[CallArgs]
	CallWorkerConfig

	journals *journal.Store
	grants   *grants.Store

	mu       sync.Mutex
	draining bool
	jobs     map[turnkeeper.JobID]bool
	running  map[turnkeeper.ClaimID]*runningCall
}

type runningCall struct {
	turnkeeper.ClaimedCall
	cancel context.CancelCauseFunc
}

// CallWorkerConfig says how to work.
type CallWorkerConfig struct {
	DB       *storage.DB
	Runner   *agentturn.Runner
	WorkerID turnkeeper.WorkerID
	Tools    []string    // that it has, of those that are detached
	Log      *zap.Logger // nil: none
	Fault    fault.Hook
}

// NewCallWorker returns a worker of detached calls.
func NewCallWorker(c CallWorkerConfig) *CallWorker {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &CallWorker{CallWorkerConfig: c, journals: journal.New(c.DB), grants: grants.New(c.DB), jobs: map[turnkeeper.JobID]bool{}, running: map[turnkeeper.ClaimID]*runningCall{}}
}

// Timeout is River's limit on a job: above the longest run.
func (w *CallWorker) Timeout(*river.Job[CallArgs]) time.Duration {
	return turnkeeper.MaxDetached + time.Minute
}

// PointCallFetched is where the worker's fault hook is called when River has handed
// a job out.
const PointCallFetched = "detached.fetched"

// Causes that end a run, beside those of turns.
var (
	errClaimVoid = fmt.Errorf("%w: the call is not awaited from this worker any more", turnkeeper.ErrFenced)
	errHandOn    = errors.New("the worker is shutting down; another runs the call")
)

// lacking is how long a call is left to others by a worker that lacks its tool.
const lacking = 5 * time.Second

// Work runs the call that the job rings for. It never asks River for another
// attempt: what is left of a call is the scheduler's to bring back.
func (w *CallWorker) Work(ctx context.Context, job *river.Job[CallArgs]) error {
	defer w.enter(turnkeeper.JobID(job.ID))()
	w.at(ctx, PointCallFetched)
	ref := job.Args.ref()
	call, err := w.journals.Claim(ctx, ref, w.WorkerID, w.Tools)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return w.leave(ctx, ref)
	}
	if err != nil {
		return river.JobSnooze(lacking)
	}
	ctx, done := w.begin(ctx, call)
	defer done()
	log := w.Log.With(append(agentturn.TurnFields(call.Turn, call.TraceParent), zap.Stringer("call", ref.Key), zap.String("tool", call.Call.Name))...)
	log.Info("detached call begins", zap.Int("attempt", ref.Attempt), zap.Duration("limit", call.Limit))
	state, err := w.Runner.RunDetached(ctx, call, w.journals)
	switch {
	case errors.Is(err, turnkeeper.ErrFenced):
		log.Warn("the detached call is no longer this worker's", zap.Error(err))
		return river.JobCancel(err)
	case err != nil:
		log.Error("the end of a detached call could not be written; it is brought back", zap.Error(err))
		return err
	}
	log.Info("detached call ended", zap.String("state", string(state)))
	return nil
}

// leave says to River what becomes of a job whose call this worker did not get.
func (w *CallWorker) leave(ctx context.Context, ref turnkeeper.CallRef) error {
	open, err := w.journals.CallIsOpen(ctx, ref)
	if err == nil && !open {
		return nil
	}
	return river.JobSnooze(lacking)
}

// enter notes that a job is worked here.
func (w *CallWorker) enter(id turnkeeper.JobID) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[id] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.jobs, id)
	}
}

// begin notes that a claimed call runs here, with a context that is its own.
func (w *CallWorker) begin(ctx context.Context, call turnkeeper.ClaimedCall) (_ context.Context, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	w.running[call.Claim] = &runningCall{call, cancel}
	if w.draining && call.Call.Effect.Repeatable() {
		cancel(errHandOn)
	}
	return ctx, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, call.Claim)
	}
}

// Running is how many detached calls run now.
func (w *CallWorker) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// Stop ends every call that runs, with the cause.
func (w *CallWorker) Stop(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		call.cancel(cause)
	}
}

// HandOn gives the calls that may run again to other workers, now and from now
// on: this one is being shut down. The others get its grace.
func (w *CallWorker) HandOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	for _, call := range w.running {
		if call.Call.Effect.Repeatable() {
			call.cancel(errHandOn)
		}
	}
}

func (w *CallWorker) at(ctx context.Context, label string) {
	fault.At(ctx, w.Fault, label)
}

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
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A CallWorker runs detached calls for River. It first claims the call; only the worker
// with the claim runs it.
type CallWorker struct {
	river.WorkerDefaults[CallArgs]
	CallWorkerConfig

	journals *journal.Store
	grants   *grants.Store

	mu       sync.Mutex
	draining bool
	jobs     map[turnkeeper.JobID]bool
	running  map[turnlog.ClaimID]*runningCall
	poll     time.Duration // watchEvery, except in tests
}

type runningCall struct {
	turnlog.ClaimedCall
	cancel context.CancelCauseFunc
}

// CallWorkerConfig configures a CallWorker.
type CallWorkerConfig struct {
	DB       *storage.DB
	Runner   *agentturn.Runner
	WorkerID turnkeeper.WorkerID
	Tools    []string    // the detached tools that the worker has
	Log      *zap.Logger // nil: none
	Fault    fault.Hook
}

// NewCallWorker returns a worker for detached calls.
func NewCallWorker(c CallWorkerConfig) *CallWorker {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &CallWorker{CallWorkerConfig: c, journals: journal.New(c.DB), grants: grants.New(c.DB),
		jobs: map[turnkeeper.JobID]bool{}, running: map[turnlog.ClaimID]*runningCall{}, poll: watchEvery}
}

// Timeout returns River's timeout of a job. It is longer than any run.
func (w *CallWorker) Timeout(*river.Job[CallArgs]) time.Duration {
	return turnkeeper.MaxDetached + time.Minute
}

// PointCallFetched is the point at which the worker's fault hook is called when River has
// fetched a job.
const PointCallFetched = "detached.fetched"

// Causes that end a run, in addition to those of turns.
var (
	errClaimVoid = fmt.Errorf("%w: the call is no longer awaited from this worker", turnkeeper.ErrFenced)
	errHandOn    = errors.New("the worker is shutting down; another runs the call")
)

// lacking is how long a worker snoozes the job of a call that it could not claim.
const lacking = 5 * time.Second

// Work runs the call of a job. It never asks River for another attempt, because the
// scheduler reclaims calls.
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
	log := w.Log.With(append(agentturn.TurnFields(call.Turn, call.TraceParent), zap.Stringer("call", ref.Key),
		zap.String("tool", call.Call.Name))...)
	log.Info("detached call begins", zap.Int("attempt", ref.Attempt), zap.Duration("limit", call.Limit))
	state, err := w.Runner.RunDetached(ctx, call, w.journals)
	switch {
	case errors.Is(err, turnkeeper.ErrFenced):
		log.Warn("the detached call is no longer this worker's", zap.Error(err))
		return river.JobCancel(err)
	case err != nil:
		log.Error("the end of a detached call could not be written; the scheduler will reclaim it", zap.Error(err))
		return err
	}
	log.Info("detached call ended", zap.String("state", string(state)))
	return nil
}

// leave returns what River does with a job whose call this worker could not claim: nil,
// which completes it, if the call no longer waits for a worker, else a snooze.
func (w *CallWorker) leave(ctx context.Context, ref turnlog.CallRef) error {
	open, err := w.journals.CallIsOpen(ctx, ref)
	if err == nil && !open {
		return nil
	}
	return river.JobSnooze(lacking)
}

// enter records that a job runs here.
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

// begin records that a claimed call runs here, and returns its context.
func (w *CallWorker) begin(ctx context.Context, call turnlog.ClaimedCall) (_ context.Context, done func()) {
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

// Running returns how many detached calls run.
func (w *CallWorker) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// Stop cancels every running call with the cause.
func (w *CallWorker) Stop(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		call.cancel(cause)
	}
}

// Release releases the calls that may run again to other workers, now and later, because
// this worker is shutting down. Calls that may not run again get the shutdown's grace
// time.
func (w *CallWorker) Release() {
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

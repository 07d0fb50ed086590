package jobs

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
)

// A worker's slots are shared by turns that its own scheduler hands over and turns that River fetches. A
// slot is taken by a turn that runs, by one that is reserved for a tick, and by a job that River fetches
// or has fetched. River never fetches more turns than there are free slots: other workers can fetch the
// rest. If it waits for a slot, it gets the next one, so that handed-over turns cannot delay granted ones.

var _ scheduler.Local = (*Worker)(nil)

// A run is a turn that runs here, or that a slot is reserved for.
type run struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	started bool
	finish  chan struct{} // closed when the turn is to finish
	asked   bool          // finish is closed
}

// newRun returns the run of a turn whose context is derived from ctx.
func newRun(ctx context.Context) *run {
	r := &run{finish: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

// askToFinish lets the turn finish. The caller holds the lock of the worker.
func (r *run) askToFinish() {
	if !r.asked {
		r.asked = true
		close(r.finish)
	}
}

// free returns the number of free slots. The caller holds the lock.
func (w *Worker) free() int {
	return w.slots - len(w.running) - w.fetching - len(w.fetched)
}

// freed wakes the fetches that wait for a slot. The caller holds the lock.
func (w *Worker) freed() {
	if w.waiting > 0 {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// Reserve reserves free slots for turns that are about to be granted, at most n. It reserves none once
// Drain was called.
func (w *Worker) Reserve(n int) (turnkeeper.WorkerID, []turnkeeper.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var grants []turnkeeper.GrantID
	for !w.draining && w.waiting == 0 && len(grants) < n && w.free() > 0 {
		grant := turnkeeper.GrantID(uuid.NewString())
		w.running[grant] = newRun(context.Background())
		w.local.Add(1)
		grants = append(grants, grant)
	}
	return w.WorkerID, grants
}

// Start starts turns in their reserved slots.
func (w *Worker) Start(turns []granting.Handed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, turn := range turns {
		r := w.running[turn.GrantID]
		r.started = true
		go w.runHanded(r, turn)
	}
}

func (w *Worker) runHanded(r *run, turn granting.Handed) {
	defer w.local.Done()
	defer w.leave(turn.GrantID, r)
	ctx, cancel := context.WithTimeout(r.ctx, w.Timeout(nil))
	defer cancel()
	defer func() { // as River does
		if value := recover(); value != nil {
			w.Log.Error("a turn panicked; the scheduler will reclaim it", zap.Int64("turn_id", int64(turn.TurnID)),
				zap.String("panic", fmt.Sprint(value)), zap.ByteString("stack", debug.Stack()))
		}
	}()
	_ = w.work(ctx, assignment{TurnArgs: TurnArgs{turn.TurnID, turn.GrantID}, handed: &turn}) // which logs its errors
}

// Release frees the slots of grants whose turns were not started. A grant that is committed all the same
// is given back, and does not count against its message.
func (w *Worker) Release(grants []turnkeeper.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, grant := range grants {
		if r := w.running[grant]; r != nil && !r.started {
			r.cancel(nil)
			delete(w.running, grant)
			w.away[grant] = true
			w.local.Done()
		}
	}
	w.freed()
}

// leave records that a turn no longer runs here.
func (w *Worker) leave(grant turnkeeper.GrantID, r *run) {
	r.cancel(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, grant)
	w.freed()
}

// Drain makes the worker take no more turns from its own scheduler.
func (w *Worker) Drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	w.freed()
}

// Wait returns when all turns from the worker's own scheduler have ended. Drain must be called first.
func (w *Worker) Wait() { w.local.Wait() }

// reserveFetch reserves slots for the jobs of a fetch, at most n. If no slot is free, it waits for one,
// at most fetchPoll, and returns 0 if there is none.
func (w *Worker) reserveFetch(ctx context.Context, n int) int {
	timer := time.NewTimer(fetchPoll)
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for over := false; ; {
		if free := min(n, w.free()); free > 0 {
			w.fetching += free
			return free
		}
		if over || w.draining {
			return 0
		}
		changed := w.changed
		w.waiting++
		w.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		w.mu.Lock()
		w.waiting--
	}
}

// A slotDriver is River's driver, which fetches turns for free slots only. River cannot do that itself: it
// counts its own jobs.
type slotDriver struct {
	deafDriver
	worker *Worker
	gate   gate
}

var _ riverdriver.Driver[pgx.Tx] = slotDriver{}

func (d slotDriver) GetExecutor() riverdriver.Executor {
	return slotExecutor{d.Driver.GetExecutor(), d.worker, d.gate}
}

type slotExecutor struct {
	riverdriver.Executor
	worker *Worker
	gate   gate
}

// A gate lets one fetch run at a time. River fetches for all queues at once when it starts, and each fetch would open a
// connection and plan the statement there.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) fetch(ctx context.Context, e riverdriver.Executor,
	p *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	select {
	case g <- struct{}{}:
		defer func() { <-g }()
		return e.JobGetAvailable(ctx, p)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e slotExecutor) JobGetAvailable(ctx context.Context,
	p *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	w := e.worker
	if p.Queue != Queue && p.Queue != QueueOf(w.WorkerID) {
		return e.gate.fetch(ctx, e.Executor, p)
	}
	reserved := w.reserveFetch(ctx, p.MaxToLock)
	if reserved == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	limited := *p
	limited.MaxToLock = reserved
	result, err := e.gate.fetch(ctx, e.Executor, &limited)
	if err == nil && reserved < p.MaxToLock && len(result.Jobs) == reserved {
		// There may be more jobs. River does not ask again before its next poll, because it got less than it asked for.
		// This rings for all workers; an error leaves it to the poll.
		_ = e.NotifyMany(ctx, &riverdriver.NotifyManyParams{
			Payload: []string{ringOf(p.Queue)}, Topic: insertTopic, Schema: storage.Schema})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetching -= reserved
	if err == nil {
		for _, job := range result.Jobs {
			w.fetched[job.ID] = time.Now()
		}
	}
	w.freed()
	return result, err
}

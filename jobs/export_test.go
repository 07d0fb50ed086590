package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/journal"
)

// NewJournal returns the journal that a worker passes to a dispatch.
func NewJournal(store *journal.Store, record *turnlog.Record, grant turnkeeper.Grant) agentturn.Journal {
	return &turnJournal{writer: store.Writer(record, grant)}
}

// RiverLogger returns the logger that River receives.
func RiverLogger(log *zap.Logger) *slog.Logger { return riverLogger(log) }

// Leave returns what Work returns for a job whose call the worker could not claim.
func (w *CallWorker) Leave(ctx context.Context, ref turnlog.CallRef) error { return w.leave(ctx, ref) }

// Fetching returns the executor with which River fetches for the worker.
func (w *Worker) Fetching(e riverdriver.Executor) riverdriver.Executor {
	return slotExecutor{e, w, newGate()}
}

// PollEvery sets how often the client looks for jobs without a doorbell.
func (c *ClientConfig) PollEvery(poll time.Duration) { c.poll = poll }

// Doorbells returns the listener that River gets in place of another.
func Doorbells(l riverdriver.Listener, queue string) riverdriver.Listener {
	return &doorbells{l, map[string]*doorbell{queue: {}}}
}

// The rate at which a queue's doorbell may ring.
const (
	RingEvery = ringEvery
	RingBurst = ringBurst
)

// PollEvery sets how often the worker looks for requests to end its turns without a doorbell. Call it before
// WatchCancels.
func (w *Worker) PollEvery(poll time.Duration) { w.poll = poll }

// PollEvery sets how often the worker looks for void claims without a doorbell. Call it before Watch.
func (w *CallWorker) PollEvery(poll time.Duration) { w.poll = poll }

// Fetched notes that River fetched a job some time ago.
func (w *Worker) Fetched(job turnkeeper.JobID, ago time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetched[int64(job)] = time.Now().Add(-ago)
}

// Resources describes what the worker holds. An idle one holds nothing.
func (w *Worker) Resources() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d of %d slots free, %d running, %d being fetched, %d fetched, %d fetches wait", w.free(),
		w.slots, len(w.running), w.fetching, len(w.fetched), w.waiting)
}

// Resources describes what the worker holds; empty: nothing.
func (w *CallWorker) Resources() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs)+len(w.running) == 0 {
		return ""
	}
	return fmt.Sprintf("%d jobs, %d running", len(w.jobs), len(w.running))
}

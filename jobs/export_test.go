package jobs

import (
	"context"
	"log/slog"

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

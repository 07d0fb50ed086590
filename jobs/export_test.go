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

// NewJournal is the journal that a worker gives a dispatch.
func NewJournal(store *journal.Store, record turnlog.Record, grant turnkeeper.Grant) agentturn.Journal {
	return &turnJournal{writer: store.Writer(record, grant)}
}

// RiverLogger is what River logs to.
func RiverLogger(log *zap.Logger) *slog.Logger { return riverLogger(log) }

// Leave is what a worker returns for a job whose call it did not get.
func (w *CallWorker) Leave(ctx context.Context, ref turnlog.CallRef) error { return w.leave(ctx, ref) }

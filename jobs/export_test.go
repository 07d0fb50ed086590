package jobs

import (
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

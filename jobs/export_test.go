package jobs

import (
	"log/slog"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/storage"
)

// NewJournal is the journal that a worker gives a dispatch.
func NewJournal(store *storage.Store, record turnkeeper.Record, grant turnkeeper.Grant) agentturn.Journal {
	return &journal{writer: store.Writer(record, grant)}
}

// RiverLogger is what River logs to.
func RiverLogger(log *zap.Logger) *slog.Logger { return riverLogger(log) }

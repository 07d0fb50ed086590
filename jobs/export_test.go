package jobs

import (
	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/storage"
)

// NewJournal is the journal that a worker gives a dispatch.
func NewJournal(store *storage.Store, record turnkeeper.Record, grant turnkeeper.Grant) agentturn.Journal {
	return &journal{writer: store.Writer(record, grant)}
}

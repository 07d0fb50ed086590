package operate

import (
	"context"
	"time"

	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A PurgeScope says which messages a purge removes: closed ones that fit all of
// its fields.
type PurgeScope struct {
	Agent        string        // empty: all
	Conversation string        // empty: all
	OlderThan    time.Duration // closed for so long; 0: any
	Notes        bool          // the notes of Agent too
	Dry          bool          // count only
	Undelivered  bool          // those too whose reply is still to be pushed to a webhook
}

// Purged counts what a purge has removed, or would remove.
type Purged struct {
	Messages, Turns, Outputs, Notes int
}

// purgeBatch is how many messages one transaction of a purge removes.
const purgeBatch = 100

// Purge removes closed messages with all that belongs to them, in every table, in
// batches, each of which is whole or not done. What is open is never touched, nor
// a reply that is still to be delivered, so that it may run beside workers, and be broken off and repeated. With an error
// comes what was removed before it.
func (s *Control) Purge(ctx context.Context, scope PurgeScope) (done Purged, err error) {
	p := dbsqlc.PurgeParams{Agent: scope.Agent, Conversation: scope.Conversation, MaxRows: purgeBatch, Dry: scope.Dry, Undelivered: scope.Undelivered}
	if scope.OlderThan > 0 {
		p.Older = &scope.OlderThan
	}
	for {
		row, err := s.db.Q.Purge(ctx, p)
		if err != nil {
			return done, pg.Translate(err)
		}
		done.Messages += int(row.Messages)
		done.Turns += int(row.Turns)
		done.Outputs += int(row.Outputs)
		if row.Messages == 0 {
			break
		}
		p.After = row.Last
	}
	if !scope.Notes || scope.Agent == "" {
		return done, nil
	}
	notes, err := s.db.Q.CountNotes(ctx, scope.Agent)
	if !scope.Dry && err == nil {
		notes, err = s.db.Q.PurgeNotes(ctx, scope.Agent)
	}
	done.Notes = int(notes)
	return done, pg.Translate(err)
}

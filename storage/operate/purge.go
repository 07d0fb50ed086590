package operate

import (
	"context"
	"time"

	"turnkeeper/internal/pause"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A PurgeScope selects the messages that a purge deletes: closed ones that match all of
// its fields.
type PurgeScope struct {
	Agent        string        // empty: all
	User         string        // empty: all; with Conversation: no user's
	Conversation string        // of Agent and User; empty: all
	OlderThan    time.Duration // closed for at least this long; 0: any
	Notes        bool          // delete all notes of Agent too, and the labels of files that it wrote
	Dry          bool          // count only
	Undelivered  bool          // include messages whose reply a webhook has not received yet
	// Gently pauses after each batch for PurgePause times as long as the batch took, so that turns beside it hardly
	// slow down.
	Gently bool
}

// PurgePause is the pause after a batch of a gentle purge, in durations of the batch.
const PurgePause = 9

// Purged counts what a purge deleted, or would delete.
type Purged struct {
	Messages, Turns, Outputs, Notes int
	// Kept counts messages that could not be deleted. They are set aside: see Reports.Aside.
	Kept int
}

// purgeBatch is how many messages one transaction of a purge deletes.
const purgeBatch = 100

// Purge deletes closed messages with everything that belongs to them, in every table, in batches of one transaction
// each. It never touches open messages, nor, by default, messages with an undelivered reply. So it may run while
// workers run, and may be interrupted and repeated. A message that cannot be deleted stops no other. On an error, it
// also returns what it deleted before.
func (s *Control) Purge(ctx context.Context, scope PurgeScope) (done Purged, err error) {
	p := dbsqlc.PurgeParams{Agent: scope.Agent, UserName: scope.user(), Conversation: scope.Conversation,
		MaxRows: purgeBatch, Dry: scope.Dry, Undelivered: scope.Undelivered}
	if scope.OlderThan > 0 {
		p.Older = &scope.OlderThan
	}
	for {
		began := time.Now()
		row, err := s.db.Q.Purge(ctx, p)
		if err != nil {
			return done, pg.Translate(err)
		}
		done.Messages += int(row.Messages)
		done.Turns += int(row.Turns)
		done.Outputs += int(row.Outputs)
		done.Kept += int(row.Failed)
		if row.Last == 0 {
			break
		}
		p.After = row.Last
		if scope.Gently {
			if err := pause.For(ctx, PurgePause*time.Since(began)); err != nil {
				return done, err
			}
		}
	}
	done.Notes, err = s.purgeNotes(ctx, scope)
	return done, err
}

// user returns the user whose messages are deleted; nil: those of all.
func (p PurgeScope) user() *string {
	if p.User == "" && p.Conversation == "" {
		return nil
	}
	return &p.User
}

// purgeNotes deletes notes: all of an agent, or those that belong to what the scope names, because a note's key has the
// name: to a user, or to a conversation without one. A user's notes belong to all his conversations, and a note has no
// age.
func (s *Control) purgeNotes(ctx context.Context, scope PurgeScope) (int, error) {
	all := scope.Notes && scope.Agent != ""
	if !all && (scope.user() == nil || scope.OlderThan > 0) {
		return 0, nil
	}
	if scope.Dry {
		n, err := s.db.Q.CountNotes(ctx, scope.Agent, all, scope.User, scope.Conversation)
		return int(n), pg.Translate(err)
	}
	n, err := s.db.Q.PurgeNotes(ctx, scope.Agent, all, scope.User, scope.Conversation)
	if err != nil {
		return 0, pg.Translate(err)
	}
	if all {
		err = s.db.Q.PurgeFiles(ctx, scope.Agent)
	}
	return int(n), pg.Translate(err)
}

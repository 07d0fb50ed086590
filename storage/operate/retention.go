package operate

import (
	"context"
	"time"

	"turnkeeper/internal/pause"
	"turnkeeper/internal/retention"
	"turnkeeper/storage/internal/pg"
)

// KeptFor returns for how long outputs and events are kept where no setting says it, from the close of their message;
// 0: for ever, as in databases that are older than this rule.
func (s *Reports) KeptFor(ctx context.Context) (time.Duration, error) {
	kept, err := s.db.Q.KeptFor(ctx)
	return kept, pg.Translate(err)
}

// A StoredParts is what retention could delete.
type StoredParts struct {
	Bytes  int64     // of the journal, the outputs and the log of leases, on disk
	Oldest time.Time // when the oldest turn ended whose events are stored; zero: there is none
}

// StoredParts returns how much is stored of what retention could delete.
func (s *Reports) StoredParts(ctx context.Context) (p StoredParts, err error) {
	row, err := s.db.Q.StoredParts(ctx)
	if p.Bytes = row.Bytes; row.Oldest.Unix() > 0 {
		p.Oldest = row.Oldest
	}
	return p, pg.Translate(err)
}

// Expired counts what Expire deleted.
type Expired struct {
	Turns int // whose outputs, events or leases were deleted
	Kept  int // turns at which it failed; their messages are set aside: see Reports.Aside
}

// Expire deletes a class, one of retention.Parts, of what is stored of messages that were closed for at least a time,
// in batches of one transaction each. It never touches open messages. It pauses after each batch, as a gentle purge
// does. On an error, it also returns what it deleted before.
func (s *Control) Expire(ctx context.Context, class retention.Class, kept time.Duration) (done Expired, err error) {
	for {
		began := time.Now()
		row, err := s.db.Q.Expire(ctx, string(class), kept, purgeBatch)
		if err != nil {
			return done, pg.Translate(err)
		}
		done.Turns += int(row.Done)
		done.Kept += int(row.Failed)
		if row.Done+row.Failed == 0 {
			return done, nil
		}
		if err := pause.For(ctx, PurgePause*time.Since(began)); err != nil {
			return done, err
		}
	}
}

// ForgetPins deletes the pins of survival levels that hold no more.
func (s *Control) ForgetPins(ctx context.Context) error { return pg.Translate(s.db.Q.ForgetPins(ctx)) }

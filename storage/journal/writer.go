package journal

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Writer writes to the journal of one turn under one grant. It belongs
// to one goroutine.
type Writer struct {
	store   *Store
	grant   turnkeeper.Grant
	agent   string
	journal commit.Writer
	lastSeq int64
	paging  map[turnkeeper.CallKey]bool
}

// An Ending is what the caller of Append decides about the end of a dispatch,
// beside the turn's own Outcome.
type Ending struct {
	Message     turnkeeper.MessageState // MessageWaiting: the message stays for another attempt
	Log         string                  // outcome in the grant log: finished, handed_back or deferred
	LaneBackoff time.Duration           // of a failed turn's lane
}

// clean makes text pg.Storable and masks what must not be stored.
func (w *Writer) clean(text string) string { return w.store.db.Clean(text) }

// Writer returns the writer for a turn as record has it, under the grant, which
// BindGrant has bound to its worker: else every write fails with ErrFenced.
func (s *Store) Writer(record turnkeeper.Record, grant turnkeeper.Grant) *Writer {
	w := &Writer{
		store: s, grant: grant, agent: record.Turn.Agent, lastSeq: record.Turn.LastSeq, paging: map[turnkeeper.CallKey]bool{},
		journal: commit.Writer{Grant: grant, Entries: record.Entries, LastWrite: record.LastWrite},
	}
	for _, round := range record.Rounds {
		w.remember(&round)
	}
	return w
}

// Append makes the entry durable, whole or not at all, and only while the
// writer's grant is the turn's newest: else it fails with ErrFenced, and with
// ErrJournalMoved when the journal is not what the entry builds on. It waits
// for a database that is away until ctx ends. A commit that was sent and not
// answered is settled by reading back, so that nil means: written, once.
//
// ending is looked at only when the entry has an Outcome.
func (w *Writer) Append(ctx context.Context, e turnkeeper.Entry, ending Ending) error {
	pool := w.store.db.Pool
	if e.Outcome != nil {
		pool = w.store.db.Finish
	}
	err := w.write(ctx, commit.Write{Entries: 1, Ends: e.Outcome != nil, Attempt: func(ctx context.Context, id string) error {
		p := &pg.Pipeline{}
		if err := w.queue(ctx, p.Queries(), step{id: id}, e, ending); err != nil {
			return err
		}
		return p.Send(ctx, pool, func() { w.store.db.At(ctx, pointSent(e)) })
	}})
	if err == nil {
		w.lastSeq += int64(len(e.Events))
		w.remember(e.Round)
	}
	return err
}

// remember notes which calls are paging calls, which never count as executed.
func (w *Writer) remember(r *turnkeeper.Round) {
	if r == nil {
		return
	}
	for _, call := range r.Calls {
		if call.Paging {
			w.paging[call.Key] = true
		}
	}
}

// Late keeps a result that came after the lease was lost: as the call's result
// while nobody has given a verdict on it, else beside the verdict. What is attached
// to it is stored in any case.
func (w *Writer) Late(ctx context.Context, r turnkeeper.CallResult) error {
	return w.store.keepLate(ctx, w.grant.TurnID, r)
}

// keepLate keeps a late result of the start whose nonce it has. One that answers no
// start changes nothing.
func (s *Store) keepLate(ctx context.Context, turn turnkeeper.TurnID, r turnkeeper.CallResult) error {
	p := dbsqlc.LateResultParams{
		Turn: int64(turn), Round: int32(r.Key.Round), Ordinal: int32(r.Key.Ordinal), Nonce: r.Nonce, //nolint:gosec // few
		State: string(r.State), Shown: s.db.Clean(r.Shown), Preview: s.db.Clean(r.Preview),
	}
	if len(r.Attached) == 0 {
		return pg.Translate(s.db.Q.LateResult(ctx, p))
	}
	started, err := s.db.Q.HasStart(ctx, p.Turn, p.Round, p.Ordinal, r.Nonce)
	if !started {
		return pg.Translate(err)
	}
	both := &pg.Pipeline{}
	err = errors.Join(
		both.Queries().LateResult(ctx, p),
		s.queueOutputs(ctx, both.Queries(), turnkeeper.Grant{TurnID: turn}, []turnkeeper.CallResult{{Key: r.Key, Attached: r.Attached}}),
	)
	if err != nil {
		return err
	}
	return both.Send(ctx, s.db.Pool, func() {})
}

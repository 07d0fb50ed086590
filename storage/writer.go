package storage

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// A TurnWriter writes to the journal of one turn under one grant. It belongs
// to one goroutine.
type TurnWriter struct {
	store   *Store
	grant   turnkeeper.Grant
	agent   string
	entries int64 // writes on record; tells a write that was not answered from one that was not done
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

// clean makes text storable and masks what must not be stored.
func (w *TurnWriter) clean(text string) string { return w.store.clean(text) }

// Writer returns the writer for a turn as record has it, under the grant.
func (s *Store) Writer(record turnkeeper.Record, grant turnkeeper.Grant) *TurnWriter {
	w := &TurnWriter{
		store: s, grant: grant, agent: record.Turn.Agent, entries: record.Entries, lastSeq: record.Turn.LastSeq,
		paging: map[turnkeeper.CallKey]bool{},
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
func (w *TurnWriter) Append(ctx context.Context, e turnkeeper.Entry, ending Ending) error {
	pool := w.store.pool
	if e.Outcome != nil {
		pool = w.store.finish
	}
	err := w.write(ctx, 1, len(e.Events), func(ctx context.Context) error {
		p := &pipeline{}
		if err := w.queue(ctx, p.queries(), 0, e, ending); err != nil {
			return err
		}
		return p.send(ctx, pool, func() { w.store.at(ctx, pointSent(e)) })
	})
	if err == nil {
		w.remember(e.Round)
	}
	return err
}

// remember notes which calls are paging calls, which never count as executed.
func (w *TurnWriter) remember(r *turnkeeper.Round) {
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
// while nobody has given a verdict on it, else beside the verdict.
func (w *TurnWriter) Late(ctx context.Context, r turnkeeper.CallResult) error {
	return translate(w.store.q.LateResult(ctx, dbsqlc.LateResultParams{
		Turn: int64(w.grant.TurnID), Round: int32(r.Key.Round), Ordinal: int32(r.Key.Ordinal), Nonce: r.Nonce, //nolint:gosec // few
		State: string(r.State), Shown: w.clean(r.Shown), Preview: w.clean(r.Preview),
	}))
}

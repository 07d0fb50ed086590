package journal

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Writer writes to the journal of one turn under one grant. It must be used by one
// goroutine only.
type Writer struct {
	store   *Store
	grant   turnkeeper.Grant
	agent   string
	journal commit.Writer
	calls   callStates
	op      *pg.Operation // the current write
}

// clean makes text pg.Storable and masks secrets.
func (w *Writer) clean(text string) string { return w.store.db.Clean(text) }

// RequestParts reads stored parts of requests, as Store.RequestParts does.
func (w *Writer) RequestParts(ctx context.Context, hashes ...string) (map[string]string, error) {
	return w.store.RequestParts(ctx, hashes...)
}

// Writer returns a writer that continues the journal in record under the grant. If
// BindGrant has not bound the grant to its worker, every write fails with ErrFenced.
func (s *Store) Writer(record *turnlog.Record, grant turnkeeper.Grant) *Writer {
	return &Writer{
		store: s, grant: grant, agent: record.Turn.Agent, calls: statesOf(record.Rounds),
		journal: commit.Writer{Grant: grant, Entries: record.Entries},
	}
}

// Append writes the entry in one transaction. It fails with ErrFenced if the turn no
// longer has the writer's grant, and with ErrJournalMoved if another writer has changed
// the journal. While the database is unavailable, it retries until ctx ends. If a commit
// was not answered, it reads back whether the write was done, so that nil means that the
// entry was written exactly once.
//
// ending matters only if the entry has an Outcome.
func (w *Writer) Append(ctx context.Context, e turnlog.Entry, ending turnlog.Consequence) error {
	pool := w.store.db.Pool
	if e.Outcome != nil {
		pool = w.store.db.Finish
	}
	var c *change // of the newest attempt
	events := e.Events
	err := w.write(ctx, commit.Write{Entries: 1, Ends: e.Outcome != nil, Attempt: func(ctx context.Context,
		id string) (err error) {
		e.Events = w.noteWait(events)
		if c == nil || len(e.Events) > len(events) { // each attempt has the same id
			if c, err = w.whole(id, e, ending); err != nil {
				return err
			}
		}
		return w.store.group.write(ctx, pool, c, func() { w.store.db.At(ctx, pointSent(e)) })
	}})
	if err == nil {
		w.calls = c.states
		w.store.parts.add(c.parts)
	}
	return err
}

// Late stores a result that came after the lease was lost. If the call is open and no other worker has the turn, it
// becomes the call's result, else its late result. Its outputs are always stored.
func (w *Writer) Late(ctx context.Context, r turnlog.CallResult) error {
	return w.store.keepLate(ctx, w.grant.TurnID, w.grant.GrantID, r)
}

// keepLate stores a late result of the start with its nonce, which was made under the grant (empty: none). It does
// nothing if there is no such start.
func (s *Store) keepLate(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID,
	r turnlog.CallResult) error {
	p := dbsqlc.LateResultParams{
		GrantID: string(grant), Turn: int64(turn),
		Round:   int32(r.Key.Round),   //nolint:gosec // few
		Ordinal: int32(r.Key.Ordinal), //nolint:gosec // few
		Nonce:   r.Nonce,
		State:   string(r.State), Shown: s.db.Clean(r.Shown), Preview: s.db.Clean(r.Preview),
	}
	if len(r.Attached) == 0 && len(r.Labels) == 0 {
		return pg.Translate(s.db.Q.LateResult(ctx, p))
	}
	started, err := s.db.Q.HasStart(ctx, p.Turn, p.Round, p.Ordinal, r.Nonce)
	if !started {
		return pg.Translate(err)
	}
	both := &pg.Pipeline{}
	err = errors.Join(
		both.Queries().LateResult(ctx, p),
		s.queueOutputs(ctx, both.Queries(), turnkeeper.Grant{TurnID: turn},
			[]turnlog.CallResult{{Key: r.Key, Attached: r.Attached}}),
		queueLabels(ctx, both.Queries(), s.db.Clean, r.LabelRows(turn)),
	)
	if err != nil {
		return err
	}
	return both.Send(ctx, s.db.Pool, func() {})
}

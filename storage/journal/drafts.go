package journal

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// WriteDraft writes a part of a result before the journal names it: until then
// nobody sees it. Parts are written in order. A part that was written before
// changes nothing, and nothing is written once the result is recorded or the
// turn is not run under this grant. It waits for a database that is away until
// ctx ends. Unlike the writer's other methods, several goroutines may call it.
func (w *Writer) WriteDraft(ctx context.Context, part turnkeeper.OutputPart) error {
	var c chunks
	at := place{part.FirstChar, part.FirstByte}
	c.bytes(part.Output, c.text(part.Output, at, w.clean(part.Text)), part.Bytes)
	if len(c.OutputIds) == 0 {
		return nil
	}
	return pg.Patiently(ctx, func() error { return w.sendDraft(ctx, part, c) })
}

func (w *Writer) sendDraft(ctx context.Context, part turnkeeper.OutputPart, c chunks) error {
	p := &pg.Pipeline{}
	q := p.Queries()
	errs := []error{q.WaitForNoDisk(ctx)}
	if part.FirstByte == 0 {
		errs = append(errs, q.BeginDraft(ctx, string(part.Output), int64(w.grant.TurnID), string(w.grant.GrantID)))
	}
	errs = append(errs, q.AddChunks(ctx, dbsqlc.AddChunksParams{
		OutputID: string(part.Output), GrantID: string(w.grant.GrantID),
		FirstChars: c.FirstChars, FirstBytes: c.FirstBytes, Contents: c.Contents, Bytes: c.Bytes,
	}))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.Send(ctx, w.store.db.Pool, func() { w.store.db.At(ctx, PointDraftSent) })
}

// DropDraft removes what was written of a result that is not to be recorded.
// Several goroutines may call it.
func (w *Writer) DropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	return pg.Translate(w.store.db.Q.SweepDrafts(ctx, string(id)))
}

// SweepDrafts removes what workers that were lost have written of results that
// they did not record.
func (s *Store) SweepDrafts(ctx context.Context) error {
	return pg.Translate(s.db.Q.SweepDrafts(ctx, ""))
}

// queueDrafts records that results are whole which were written while they came.
func queueDrafts(ctx context.Context, q *dbsqlc.Queries, grant turnkeeper.Grant, drafted []string) error {
	if len(drafted) == 0 {
		return nil
	}
	return q.FinishDrafts(ctx, string(grant.GrantID), drafted)
}

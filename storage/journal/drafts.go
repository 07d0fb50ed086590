package journal

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// WriteDraft writes a part of a result before the journal names the result, which
// makes it visible. Parts must be written in order. Writing a part again changes
// nothing. Nothing is written once the result is recorded or the turn no longer
// runs under this grant. While the database is unavailable, WriteDraft retries
// until ctx ends. Unlike the writer's other methods, it is safe for concurrent use.
func (w *Writer) WriteDraft(ctx context.Context, part turnlog.OutputPart) error {
	var c chunks
	c.bytes(part.Output, c.text(part.Output, part.FirstChar, w.clean(part.Text)), part.Bytes)
	if len(c.outputs) == 0 {
		return nil
	}
	return w.store.db.Patiently(ctx, func() error { return w.sendDraft(ctx, part, c) })
}

func (w *Writer) sendDraft(ctx context.Context, part turnlog.OutputPart, c chunks) error {
	p := &pg.Pipeline{}
	q := p.Queries()
	errs := []error{q.WaitForNoDisk(ctx)}
	if part.FirstByte == 0 {
		errs = append(errs, q.BeginDraft(ctx, string(part.Output), int64(w.grant.TurnID), string(w.grant.GrantID)))
	}
	errs = append(errs, q.AddChunks(ctx, dbsqlc.AddChunksParams{
		OutputID: string(part.Output), GrantID: string(w.grant.GrantID),
		FirstChars: c.first, Contents: c.contents, Bytes: c.binary,
	}))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.Send(ctx, w.store.db.Pool, func() { w.store.db.At(ctx, PointDraftSent) })
}

// DropDraft deletes the parts of a result that will not be recorded. It is safe for
// concurrent use.
func (w *Writer) DropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	return pg.Translate(w.store.db.Q.SweepDrafts(ctx, string(id)))
}

// SweepDrafts deletes the parts of results that lost workers did not record.
func (s *Store) SweepDrafts(ctx context.Context) error {
	return pg.Translate(s.db.Q.SweepDrafts(ctx, ""))
}

// queueDrafts queues the statement that marks drafts as finished.
func queueDrafts(ctx context.Context, q *dbsqlc.Queries, grant turnkeeper.Grant, drafted []string) error {
	if len(drafted) == 0 {
		return nil
	}
	return q.FinishDrafts(ctx, string(grant.GrantID), drafted)
}

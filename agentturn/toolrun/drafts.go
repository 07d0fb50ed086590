package toolrun

import (
	"context"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Drafts is implemented by a Journal that can store a large result in parts while the tool
// still sends it. The result is recorded with Output.Drafted set. Other journals get every
// result whole. Implementations are safe for concurrent use.
type Drafts interface {
	// WriteDraft writes a part of a result. Parts must be written in order. They are
	// invisible until the journal records the result; otherwise they are removed some
	// time after the dispatch. While the database is unavailable, it retries until ctx
	// ends.
	WriteDraft(ctx context.Context, part turnlog.OutputPart) error
	// DropDraft removes the parts of a result that will not be recorded.
	DropDraft(ctx context.Context, id turnkeeper.OutputID) error
}

// draftBytes is the size of a part. Smaller results are not drafted.
const draftBytes = 4 * outputs.ChunkBytes

// Collect returns a function for tools.ExecuteOptions.Collect that writes large results to
// drafts, under the id.
func Collect(drafts Drafts, limits outputs.Limits, id turnkeeper.OutputID, log *zap.Logger) func(context.Context,
	tools.Result) (tools.Result, error) {
	return func(ctx context.Context, r tools.Result) (tools.Result, error) {
		if r.Body == nil {
			return tools.Collect(ctx, r)
		}
		c := newCollection(drafts, r, limits, id)
		result, err := c.collect(ctx, r)
		if err != nil {
			c.drop(ctx, log)
		}
		return result, err
	}
}

// A collection reads a Body and writes it to drafts if it is large.
type collection struct {
	drafts Drafts
	stream *outputs.Stream
	binary bool
	next   turnlog.OutputPart // position of the next part
	buffer []byte             // not written yet
	limit  int                // size at which the buffer is written
	size   int64              // bytes read from the Body
}

func newCollection(drafts Drafts, r tools.Result, limits outputs.Limits, id turnkeeper.OutputID) *collection {
	raw := outputs.Raw{MediaType: r.MediaType, Incomplete: r.Incomplete, Size: r.RawBytes}
	binary := !tools.IsText(r.MediaType)
	return &collection{
		drafts: drafts, binary: binary, stream: outputs.NewStream(raw, binary, limits),
		next: turnlog.OutputPart{Output: id},
		// A text that may be shown whole is not stored.
		limit: max(draftBytes, 4*limits.MaxChars),
	}
}

// collect reads a Body. It returns a small result with its content, and a large one with
// the properties of its draft.
func (c *collection) collect(ctx context.Context, r tools.Result) (tools.Result, error) {
	more, err := tools.ReadBody(ctx, r.Body, func(piece []byte) error {
		c.size += int64(len(piece))
		c.buffer = c.stream.Append(c.buffer, piece)
		if len(c.buffer) < c.limit {
			return nil
		}
		return c.write(ctx)
	})
	if err != nil {
		return tools.Result{}, err
	}
	var taken outputs.Taken
	c.buffer, taken = c.stream.End(c.buffer, more)
	r.Body = nil
	if !c.drafted() {
		return c.small(r, more), nil
	}
	if err := c.write(ctx); err != nil {
		return tools.Result{}, err
	}
	taken.Output.ID, taken.Output.Drafted = c.next.Output, true
	return tools.Result{IsError: r.IsError, MediaType: r.MediaType, ShowAs: r.ShowAs, Kept: taken}, nil
}

// drafted reports whether a part has been written.
func (c *collection) drafted() bool { return c.next.FirstByte > 0 }

// small returns a result that was not drafted. more reports whether the Body was cut.
func (c *collection) small(r tools.Result, more bool) tools.Result {
	r.Incomplete = r.Incomplete || more
	if !more {
		r.RawBytes = max(r.RawBytes, c.size)
	}
	if c.binary {
		r.Text, r.Bytes = "", append([]byte{}, c.buffer...)
	} else {
		r.Text, r.Bytes = string(c.buffer), nil
	}
	return r
}

// write writes the buffer as a part. Later parts have draftBytes, because the result is
// then too large to be shown whole.
func (c *collection) write(ctx context.Context) error {
	part := c.next
	if c.binary {
		part.Bytes = c.buffer
		c.next.FirstChar += int64(len(c.buffer))
	} else {
		part.Text = string(c.buffer)
		c.next.FirstChar += int64(utf8.RuneCountInString(part.Text))
	}
	c.next.FirstByte += int64(len(c.buffer))
	c.buffer, c.limit = c.buffer[:0], draftBytes
	return c.drafts.WriteDraft(ctx, part)
}

// drop removes the parts of a result that will not be recorded. If that fails, a sweep
// removes them later.
func (c *collection) drop(ctx context.Context, log *zap.Logger) {
	if !c.drafted() {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer stop()
	if err := c.drafts.DropDraft(ctx, c.next.Output); err != nil {
		log.Info("cannot remove the parts of an abandoned result; a sweep will remove them", zap.Error(err))
	}
}

// dropTime is the timeout for removing parts, which outlives the call's context.
const dropTime = 500 * time.Millisecond

package toolrun

import (
	"context"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Drafts is a Journal that takes large results while they come. A result that
// was written so is recorded by an Output that is Drafted. Several goroutines may
// call it at once. A Journal without it is given every result whole.
type Drafts interface {
	// WriteDraft writes a part of a result. Parts come in order. Nobody sees them
	// before the journal names the result; of one that it never does they are
	// removed some time after the dispatch. It waits for a database that is away.
	WriteDraft(ctx context.Context, part turnkeeper.OutputPart) error
	// DropDraft removes the parts of a result that will not be recorded.
	DropDraft(ctx context.Context, id turnkeeper.OutputID) error
}

// draftBytes is how much of a result is held, at most, before it is written, and
// less than which is not written while it comes.
const draftBytes = 4 * turnkeeper.OutputChunkBytes

// Collect returns how the result of a call is collected: what is large is written to
// drafts, under the id, while it comes.
func Collect(drafts Drafts, limits outputs.Limits, id turnkeeper.OutputID, log *zap.Logger) func(context.Context, tools.Result) (tools.Result, error) {
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

// A collection is a Body on its way to the store.
type collection struct {
	drafts Drafts
	stream *outputs.Stream
	binary bool
	at     turnkeeper.OutputPart // where the next one begins
	held   []byte                // taken and not yet written
	hold   int                   // how much may be held
	taken  int64                 // bytes of the Body
}

func newCollection(drafts Drafts, r tools.Result, limits outputs.Limits, id turnkeeper.OutputID) *collection {
	raw := outputs.Raw{MediaType: r.MediaType, Incomplete: r.Incomplete, Size: r.RawBytes}
	binary := !tools.IsText(r.MediaType)
	return &collection{
		drafts: drafts, binary: binary, stream: outputs.NewStream(raw, binary, limits), at: turnkeeper.OutputPart{Output: id},
		// What may be shown whole is not stored, and so is not written early.
		hold: max(draftBytes, 4*limits.MaxChars),
	}
}

// collect reads a Body. A small result is given back as it is; of a large one,
// what is left to be said of it.
func (c *collection) collect(ctx context.Context, r tools.Result) (tools.Result, error) {
	more, err := tools.ReadBody(ctx, r.Body, func(piece []byte) error {
		c.taken += int64(len(piece))
		c.held = c.stream.Append(c.held, piece)
		if len(c.held) < c.hold {
			return nil
		}
		return c.write(ctx)
	})
	if err != nil {
		return tools.Result{}, err
	}
	var taken outputs.Taken
	c.held, taken = c.stream.End(c.held, more)
	r.Body = nil
	if !c.begun() {
		return c.small(r, more), nil
	}
	if err := c.write(ctx); err != nil {
		return tools.Result{}, err
	}
	taken.Output.ID, taken.Output.Drafted = c.at.Output, true
	return tools.Result{IsError: r.IsError, MediaType: r.MediaType, ShowAs: r.ShowAs, Kept: taken}, nil
}

// begun says that something is written.
func (c *collection) begun() bool { return c.at.FirstByte > 0 }

func (c *collection) small(r tools.Result, more bool) tools.Result {
	r.Incomplete = r.Incomplete || more
	if !more {
		r.RawBytes = max(r.RawBytes, c.taken)
	}
	if c.binary {
		r.Text, r.Bytes = "", append([]byte{}, c.held...)
	} else {
		r.Text, r.Bytes = string(c.held), nil
	}
	return r
}

// write writes what is held. What was held to be shown whole, perhaps, is then
// known to be too large for that.
func (c *collection) write(ctx context.Context) error {
	part := c.at
	if c.binary {
		part.Bytes = c.held
		c.at.FirstChar += int64(len(c.held))
	} else {
		part.Text = string(c.held)
		c.at.FirstChar += int64(utf8.RuneCountInString(part.Text))
	}
	c.at.FirstByte += int64(len(c.held))
	c.held, c.hold = c.held[:0], draftBytes
	return c.drafts.WriteDraft(ctx, part)
}

// drop removes what was written of a result that came to nothing. Where that
// fails it is swept up later.
func (c *collection) drop(ctx context.Context, log *zap.Logger) {
	if !c.begun() {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer stop()
	if err := c.drafts.DropDraft(ctx, c.at.Output); err != nil {
		log.Info("parts of a result that came to nothing are left to be swept", zap.Error(err))
	}
}

// dropTime bounds the removal of parts, which outlives the call.
const dropTime = 500 * time.Millisecond

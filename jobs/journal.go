package jobs

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
)

// A turnJournal is the Journal of one dispatch. It adds to the end of a turn what must
// be committed with it: the state of the message, the lane's back-off, and the end of
// the River job.
type turnJournal struct{ writer }

// A writer is what a turnJournal needs of a journal.Writer.
type writer interface {
	Append(ctx context.Context, e turnlog.Entry, ending turnlog.Consequence) error
	Transact(ctx context.Context, start turnlog.CallStart, within time.Duration,
		run func(context.Context) turnlog.CallResult) (turnlog.CallResult, error)
	WriteDraft(ctx context.Context, part turnlog.OutputPart) error
	DropDraft(ctx context.Context, id turnkeeper.OutputID) error
	Arrivals(ctx context.Context) ([]turnlog.CallResult, error)
	NewMessage(ctx context.Context) (turnkeeper.MessageID, error)
	RequestParts(ctx context.Context, hashes ...string) (map[string]string, error)
	Late(ctx context.Context, r turnlog.CallResult) error
}

var (
	_ agentturn.Journal = (*turnJournal)(nil)
	_ toolrun.Drafts    = (*turnJournal)(nil)
)

// endTime is the additional time for the last write of a turn.
const endTime = 10 * time.Second

// stepTime is the additional time for another write that is in flight when its context ends. Without it the write might
// be done after its writer has read that it is not, and the turn would not know what is on record.
const stepTime = 2 * time.Second

func (j *turnJournal) Append(ctx context.Context, e turnlog.Entry) error {
	if e.Outcome == nil {
		if ctx.Err() == nil {
			var cancel context.CancelFunc
			ctx, cancel = outlive(ctx, stepTime)
			defer cancel()
		}
		return j.writer.Append(ctx, e, turnlog.Consequence{})
	}
	ctx, cancel := outlive(ctx, endTime)
	defer cancel()
	return j.writer.Append(ctx, e, turnlog.ConsequenceOf(*e.Outcome))
}

// outlive returns a context that ends later than ctx, by grace.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}

package pgdev

import (
	"context"
	"time"
)

// poll is the pause between two looks at something that gives no signal.
const poll = 20 * time.Millisecond

// pause waits a moment, or says why ctx is done.
func pause(ctx context.Context) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

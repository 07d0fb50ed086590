package commit

import (
	"context"
	"errors"
	"time"

	"turnkeeper/internal/pause"
)

const (
	firstRetry = 50 * time.Millisecond
	slowRetry  = time.Second
)

// Patiently retries f until ctx ends, as long as passes reports that the reason for its
// error is temporary.
func Patiently(ctx context.Context, passes func(error) bool, f func() error) error {
	wait := firstRetry
	for {
		err := f()
		if err == nil || !passes(err) {
			return err
		}
		if pause.For(ctx, wait) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		wait = min(wait*2, slowRetry)
	}
}

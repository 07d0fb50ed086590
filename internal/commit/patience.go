package commit

import (
	"context"
	"errors"
	"time"
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
		if !Pause(ctx, wait) {
			return errors.Join(context.Cause(ctx), err)
		}
		wait = min(wait*2, slowRetry)
	}
}

// Pause waits for d. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

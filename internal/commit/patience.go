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

// Patiently does f again as long as the reason that it failed for passes, which
// passes says of its error, and until ctx ends.
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

// Pause waits for d, or until ctx ends, which it then reports as false.
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

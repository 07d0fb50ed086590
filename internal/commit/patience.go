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

// Patiently retries f until ctx ends, as long as temporary returns true for its error. It waits 50 ms at first and at
// most a second between attempts. Before each of them it calls failed, if that is not nil, with the newest error.
func Patiently(ctx context.Context, temporary func(error) bool, failed func(error), f func() error) error {
	wait := firstRetry
	for {
		err := f()
		if err == nil || !temporary(err) {
			return err
		}
		if failed != nil {
			failed(err)
		}
		if pause.For(ctx, wait) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		wait = min(wait*2, slowRetry)
	}
}

// Package pause sleeps until a time has passed or a context ends.
package pause

import (
	"context"
	"time"
)

// For sleeps for d. If ctx ends first, it returns the cause of ctx.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

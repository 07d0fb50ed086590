package cli

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/storage"
)

// listen subscribes to a doorbell until stop is called. A bell that cannot be
// heard is no error: whoever waits polls as well.
func listen(ctx context.Context, db *app.Database, topic storage.Topic) (rings <-chan struct{}, stop func()) {
	bell, stopBell := hangBell(ctx, db)
	rings, unsubscribe := bell.Subscribe(topic)
	return rings, func() {
		unsubscribe()
		stopBell()
	}
}

// hangBell runs a bell until stop is called.
func hangBell(ctx context.Context, db *app.Database) (bell *storage.Notifier, stop func()) {
	bell = storage.NewNotifier(db.URL, zap.NewNop())
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { bell.Run(ctx) })
	return bell, func() {
		cancel()
		running.Wait()
	}
}

// waitFor waits for a ring, the time, or the end of ctx.
func waitFor(ctx context.Context, rings <-chan struct{}, poll time.Duration) {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-rings:
	case <-timer.C:
	}
}

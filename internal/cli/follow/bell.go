package follow

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/database"
	"turnkeeper/storage"
)

// Listen subscribes to a doorbell until stop is called. A bell that cannot be
// heard is no error: whoever waits polls as well.
func Listen(ctx context.Context, db *database.Database, topic storage.Topic) (rings <-chan struct{}, stop func()) {
	bell, stopBell := HangBell(ctx, db)
	rings, unsubscribe := bell.Subscribe(topic)
	return rings, func() {
		unsubscribe()
		stopBell()
	}
}

// HangBell runs a bell until stop is called.
func HangBell(ctx context.Context, db *database.Database) (bell *storage.Notifier, stop func()) {
	bell = storage.NewNotifier(db.URL, zap.NewNop())
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { bell.Run(ctx) })
	return bell, func() {
		cancel()
		running.Wait()
	}
}

// WaitFor waits for a ring, the time, or the end of ctx.
func WaitFor(ctx context.Context, rings <-chan struct{}, poll time.Duration) {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-rings:
	case <-timer.C:
	}
}

// Patience is how long the database may be away while a reply is waited for.
const Patience = 30 * time.Second

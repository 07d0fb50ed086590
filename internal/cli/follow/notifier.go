package follow

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/database"
	"turnkeeper/storage"
)

// Listen subscribes to a topic until stop is called. A failing notifier is no
// error: callers also poll.
func Listen(ctx context.Context, db *database.Database, topic storage.Topic) (rings <-chan struct{}, stop func()) {
	notifier, stopNotifier := StartNotifier(ctx, db)
	rings, unsubscribe := notifier.Subscribe(topic)
	return rings, func() {
		unsubscribe()
		stopNotifier()
	}
}

// StartNotifier starts a notifier, which runs until stop is called.
func StartNotifier(ctx context.Context, db *database.Database) (notifier *storage.Notifier, stop func()) {
	notifier = storage.NewNotifier(db.URL, zap.NewNop())
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { notifier.Run(ctx) })
	return notifier, func() {
		cancel()
		running.Wait()
	}
}

// WaitFor waits for a notification, poll, or the end of ctx.
func WaitFor(ctx context.Context, rings <-chan struct{}, poll time.Duration) {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-rings:
	case <-timer.C:
	}
}

// Patience is how long a wait for a reply tolerates that the database is unavailable.
const Patience = 30 * time.Second

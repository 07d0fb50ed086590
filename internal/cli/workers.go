package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/storage"
)

func (s *session) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "List worker processes, those that ended in the last hour included", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *storage.Store) ([]turnkeeper.Heartbeat, error) {
				return store.Workers(ctx)
			}
			return list(s, cmd, look, viewWorker, showWorkers, "no workers")
		},
	}
}

// The states of a worker process.
const (
	workerAlive    = "alive"
	workerDraining = "draining"
	workerSilent   = "silent"
	workerStopped  = "stopped"
)

// leastSilence is what a worker without takeover_after, or with a very short
// one, may be silent for and still counts as alive.
const leastSilence = 15 * time.Second

func workerState(h turnkeeper.Heartbeat) string {
	switch {
	case !h.StoppedAt.IsZero():
		return workerStopped
	case h.Silent > max(h.TakeoverAfter, leastSilence):
		return workerSilent
	case h.Slots == 0:
		return workerDraining
	default:
		return workerAlive
	}
}

func showWorkers(s *screen, c clock, workers []turnkeeper.Heartbeat) {
	tones := map[string]tone{workerAlive: good, workerDraining: active, workerSilent: bad, workerStopped: dim}
	t := newTable("WORKER", "STATE", ">SLOTS", "HOST", ">PID", "STARTED", "LAST SIGN OF LIFE", "VERSION")
	for _, w := range workers {
		state := workerState(w)
		t.add(string(w.WorkerID), cell{state, tones[state]}, fmt.Sprint(w.Slots), w.Host, fmt.Sprint(w.PID), c.at(w.StartedAt),
			c.ago(c.now.Add(-w.Silent)), w.Version)
	}
	t.print(s)
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func (s *session) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "List worker processes, those that ended in the last hour included", Args: cobra.NoArgs,
		Long: `List worker processes, those that ended in the last hour included. Each is alive,
serving (it does not have the role worker, and takes no turns), draining (it is told
to stop, and takes no more turns), silent (lost: its turns go to others) or stopped.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.Heartbeat, error) {
				return store.Workers(ctx)
			}
			return list(s, cmd, look, views.OfWorker, showWorkers, "no workers")
		},
	}
}

func showWorkers(s *screen, c clock, workers []turnkeeper.Heartbeat) {
	tones := map[turnkeeper.WorkerState]tone{turnkeeper.WorkerAlive: good, turnkeeper.WorkerServing: good, turnkeeper.WorkerDraining: active, turnkeeper.WorkerSilent: bad, turnkeeper.WorkerStopped: dim}
	t := newTable("WORKER", "STATE", ">SLOTS", "HOST", ">PID", "STARTED", "LAST SIGN OF LIFE", "VERSION")
	for _, w := range workers {
		state := w.State()
		t.add(string(w.WorkerID), cell{string(state), tones[state]}, fmt.Sprint(w.Slots), w.Host, fmt.Sprint(w.PID), c.at(w.StartedAt),
			c.ago(c.now.Add(-w.Silent)), w.Version)
	}
	t.print(s)
}

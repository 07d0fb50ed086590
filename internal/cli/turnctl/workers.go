package turnctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func workersCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "List worker processes, including those that ended in the last hour", Args: cobra.NoArgs,
		Long: `List worker processes, including those that ended in the last hour. Each is alive,
serving (it does not have the role worker, so it takes no turns), draining (it is
shutting down and takes no more turns), silent (no heartbeat for 15 s: other workers
take over its turns after takeover_after) or stopped.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]presence.Heartbeat, error) {
				return store.Workers(ctx)
			}
			return list(s, cmd, look, views.OfWorker, showWorkers, "no workers")
		},
	}
}

func showWorkers(s *term.Screen, c term.Clock, workers []presence.Heartbeat) {
	tones := map[presence.State]term.Tone{presence.Alive: term.Good, presence.Serving: term.Good,
		presence.Draining: term.Active, presence.Silent: term.Bad, presence.Stopped: term.Dim}
	t := term.NewTable("WORKER", "STATE", ">SLOTS", "HOST", ">PID", "STARTED", "LAST HEARTBEAT", "VERSION")
	for _, w := range workers {
		state := w.State()
		t.Add(string(w.WorkerID), term.Cell{Text: string(state), Tone: tones[state]}, fmt.Sprint(w.Slots), w.Host,
			fmt.Sprint(w.PID), c.At(w.StartedAt),
			c.Ago(c.Now.Add(-w.Silent)), w.Version)
	}
	t.Print(s)
}

package turnctl

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func showCommand(s *shell.Session) *cobra.Command {
	var full bool
	var request int
	var turn turnArg
	cmd := &cobra.Command{
		Use: "show ID|latest", Short: "Show a turn in full", Args: shell.ExactArgs(1),
		Long: `Show a turn: its message and reply, how it ended, each model call, each tool call,
and its dispatches. Give its id, or "latest": the newest turn that is not a
sub-agent's (with --agent: the newest of that agent, as a sub-agent too).
"turnctl inbox" lists the newest turn of each message.

--request R prints only the request of round R, rebuilt from the database, byte for
byte as it was sent to the model's endpoint. Its SHA-256 is compared with that of
the sent request: if they differ, it prints an error and the exit code is 1.`,
		Example: `  turnctl show latest
  turnctl show latest --agent clerk
  turnctl show 41 --full
  turnctl show 41 --request 2 > request.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("request") {
				return showRequest(cmd.Context(), s, turn.named(args), request)
			}
			look := func(ctx context.Context, store *operate.Store) (operate.TurnView, error) {
				return findTurn(ctx, store, turn.named(args))
			}
			return read(s, cmd, look, func(v operate.TurnView) any {
				return views.OfWholeTurn(v)
			}, func(v operate.TurnView) {
				(&turnPage{Screen: s.Out, Clock: s.Clock(), full: full, TurnView: v}).print()
			})
		},
	}
	cmd.Flags().BoolVar(&full, "full", false,
		"full arguments and results, as the model was shown them, instead of previews")
	cmd.Flags().IntVar(&request, "request", 0, "only the request of this round, as it was sent")
	turn.addAgent(cmd)
	return cmd
}

func findTurn(ctx context.Context, store *operate.Store, turn turnArg) (operate.TurnView, error) {
	id, err := turn.id(ctx, store)
	if err != nil {
		return operate.TurnView{}, err
	}
	view, err := store.ViewTurn(ctx, id)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return view, noSuchTurn(id)
	}
	return view, err
}

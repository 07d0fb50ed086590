package turnctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func cancelCommand(s *shell.Session) *cobra.Command {
	var message int64
	var reason string
	var turn turnArg
	cmd := &cobra.Command{
		Use: "cancel TURN|latest | --message ID", Short: "Cancel a turn, or a message", Args: shell.AtMostOneArg,
		Long: `Cancel a turn. A turn without a worker is closed at once. A worker that runs the
turn stops the model call and the tools, and closes it. The message is answered
with "This turn was cancelled.". Effects of finished calls remain, and an
interrupted call may or may not have happened: "turnctl explain" lists these.
With --message you can also cancel a message that still waits in the inbox.
Repeating the command does nothing.

` + shell.RefusedHelp,
		Example: `  turnctl cancel 41 --reason "asked by the sender"
  turnctl cancel --message 12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == cmd.Flags().Changed("message") {
				return shell.Misused("give a turn, or --message with the id of a message")
			}
			if cmd.Flags().Changed("message") && turn.agent != "" {
				return shell.Misused("--agent is only for latest, not for --message")
			}
			if cmd.Flags().Changed("message") && message < 1 {
				return shell.Misused("--message is %d: it must be the id of a message", message)
			}
			return cancel(cmd.Context(), s, turn.named(args), turnkeeper.MessageID(message), reason)
		},
	}
	cmd.Flags().Int64Var(&message, "message", 0, "cancel this message, and the turn that handles it")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, for operators: \"turnctl explain\" shows it")
	turn.addAgent(cmd)
	return cmd
}

func cancel(ctx context.Context, s *shell.Session, turn turnArg, message turnkeeper.MessageID, reason string) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		done, err := cancelWhat(ctx, db.Store, turn, message, reason)
		switch {
		case errors.Is(err, turnkeeper.ErrWrongState):
			return shell.Refused(err)
		case err != nil:
			return err
		}
		return s.Print(cancelledView{views.OfCancelled(done), views.OrNull(message)}, func() {
			what, end := fmt.Sprintf("turn %d", done.Turn), "its end"
			if message != 0 {
				what, end = fmt.Sprintf("message %d", message), fmt.Sprintf("the end of its turn %d", done.Turn)
			}
			if done.Closed {
				s.Out.Line("%s is cancelled", what)
				return
			}
			s.Out.Line(`%s was asked to stop; "turnctl events %d --follow" shows %s`, what, done.Turn, end)
		})
	})
}

// cancelledView is the JSON output of cancel.
type cancelledView struct {
	views.Cancelled
	MessageID *turnkeeper.MessageID `json:"message_id,omitempty"` // with --message
}

func cancelWhat(ctx context.Context, store *operate.Store, turn turnArg, message turnkeeper.MessageID, reason string) (operate.Cancelled, error) {
	if message != 0 {
		done, err := store.CancelMessage(ctx, message, reason)
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return done, shell.NotFound(`there is no message %d: "turnctl inbox" lists them`, message)
		}
		return done, err
	}
	id, err := turn.id(ctx, store)
	if err != nil {
		return operate.Cancelled{}, err
	}
	done, err := store.CancelTurn(ctx, id, reason)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return done, noSuchTurn(id)
	}
	return done, err
}

// A turnArg names a turn on the command line.
type turnArg struct {
	name  string // an id, or "latest"
	agent string // restricts "latest" to this agent; empty: all agents
}

// addAgent adds the flag --agent.
func (t *turnArg) addAgent(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.agent, "agent", "", "with latest: the newest turn of this agent")
}

// named returns t with the first argument, if there is one, as its name.
func (t turnArg) named(args []string) turnArg {
	if len(args) > 0 {
		t.name = args[0]
	}
	return t
}

// id returns the turn's id. The turn need not exist.
func (t turnArg) id(ctx context.Context, store *operate.Store) (turnkeeper.TurnID, error) {
	if t.name != "latest" {
		id, err := strconv.ParseInt(t.name, 10, 64)
		switch {
		case err != nil || id < 1:
			return 0, shell.Misused(`%q is not a turn: give an id, or "latest"`, t.name)
		case t.agent != "":
			return 0, shell.Misused("--agent is only for latest, not for turn %d", id)
		}
		return turnkeeper.TurnID(id), nil
	}
	if err := registered(ctx, store, t.agent); err != nil {
		return 0, err
	}
	id, err := store.LatestTurn(ctx, t.agent)
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound) && t.agent != "":
		return 0, shell.NotFound("there is no turn of %s yet", t.agent)
	case errors.Is(err, turnkeeper.ErrNotFound):
		return 0, shell.NotFound("there is no turn yet")
	}
	return id, err
}

func noSuchTurn(id turnkeeper.TurnID) error {
	return shell.NotFound(`there is no turn %d: "turnctl turns" lists them`, id)
}

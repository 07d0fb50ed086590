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
	var of turnOrMessage
	cmd := &cobra.Command{
		Use: "cancel TURN|latest | --message ID", Short: "Cancel a turn, or a message", Args: shell.AtMostOneArg,
		Long: `Cancel a turn. A turn without a worker is closed at once. A worker that runs the
turn stops the model call and the tools, and closes it. The message is answered
with "This turn was cancelled.", followed by what the model had written until then.
Effects of finished calls remain, and an interrupted call may or may not have
happened: "turnctl explain" lists these. "turnctl finish" lets the model answer first.
With --message you can also cancel a message that still waits in the inbox.
Repeating the command does nothing.

` + shell.RefusedHelp,
		Example: `  turnctl cancel 41 --reason "asked by the sender"
  turnctl cancel --message 12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return of.end(cmd, s, args, func(store *operate.Store) enders {
				return enders{store.CancelTurn, store.CancelMessage}
			},
				func(done operate.Ended, what, end string) {
					if done.Closed {
						s.Out.Line("%s is cancelled", what)
						return
					}
					s.Out.Line(`%s was asked to stop; "turnctl events %d --follow" shows %s`, what, done.Turn, end)
				}, func(done operate.Ended) any {
					return cancelledView{views.OfCancelled(done), views.OrNull(turnkeeper.MessageID(of.message))}
				})
		},
	}
	of.addFlags(cmd, "cancel this message, and the turn that handles it")
	return cmd
}

// cancelledView is the JSON output of cancel.
type cancelledView struct {
	views.Cancelled
	MessageID *turnkeeper.MessageID `json:"message_id,omitempty"` // with --message
}

// Enders end turns, and the turns of messages.
type enders struct {
	turn    func(context.Context, turnkeeper.TurnID, string) (operate.Ended, error)
	message func(context.Context, turnkeeper.MessageID, string) (operate.Ended, error)
}

// A turnOrMessage names a turn to end, or a message whose turn is to end, on the command line.
type turnOrMessage struct {
	turn    turnArg
	message int64 // 0: the turn
	reason  string
}

func (t *turnOrMessage) addFlags(cmd *cobra.Command, message string) {
	cmd.Flags().Int64Var(&t.message, "message", 0, message)
	cmd.Flags().StringVar(&t.reason, "reason", "", "the reason, for operators: \"turnctl explain\" shows it")
	t.turn.addAgent(cmd)
}

func (t *turnOrMessage) check(cmd *cobra.Command, args []string) error {
	byMessage := cmd.Flags().Changed("message")
	switch {
	case (len(args) == 1) == byMessage:
		return shell.Misused("give a turn, or --message with the id of a message")
	case byMessage && t.turn.agent != "":
		return shell.Misused("--agent is only for latest, not for --message")
	case byMessage && t.message < 1:
		return shell.Misused("--message is %d: it must be the id of a message", t.message)
	}
	t.turn = t.turn.named(args)
	return nil
}

// end ends the turn with the functions of by. say prints the result: what has ended or will, and what its end is
// called.
func (t *turnOrMessage) end(cmd *cobra.Command, s *shell.Session, args []string, by func(*operate.Store) enders,
	say func(done operate.Ended, what, end string), view func(operate.Ended) any,
) error {
	if err := t.check(cmd, args); err != nil {
		return err
	}
	return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
		done, err := t.endBy(cmd.Context(), db.Store, by(db.Store))
		switch {
		case errors.Is(err, turnkeeper.ErrWrongState):
			return shell.Refused(err)
		case err != nil:
			return err
		}
		what, end := fmt.Sprintf("turn %d", done.Turn), "its end"
		if t.message != 0 {
			what, end = fmt.Sprintf("message %d", t.message), fmt.Sprintf("the end of its turn %d", done.Turn)
		}
		return s.Print(view(done), func() { say(done, what, end) })
	})
}

func (t *turnOrMessage) endBy(ctx context.Context, store *operate.Store, by enders) (operate.Ended, error) {
	if t.message != 0 {
		done, err := by.message(ctx, turnkeeper.MessageID(t.message), t.reason)
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return done, shell.NotFound(`there is no message %d: "turnctl inbox" lists them`, t.message)
		}
		return done, err
	}
	id, err := t.turn.id(ctx, store)
	if err != nil {
		return operate.Ended{}, err
	}
	done, err := by.turn(ctx, id, t.reason)
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

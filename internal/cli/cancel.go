package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
)

func (s *session) cancelCommand() *cobra.Command {
	var message int64
	var reason string
	cmd := &cobra.Command{
		Use: "cancel TURN|latest | --message ID", Short: "Cancel a turn, or a message", Args: atMostOneArg,
		Long: `Cancel a turn. One that nobody runs is closed at once; of one that a worker runs
the worker is told, which stops the model call and the tools, and closes the
turn. Its message is answered with "This turn was cancelled."; what tools have
done stays done, and a call that was cut short may or may not have happened:
"turnctl explain" says which. With --message, a message that still waits in the
inbox is cancelled too. A repeat does nothing more.

` + refusedHelp,
		Example: `  turnctl cancel 41 --reason "asked by the sender"
  turnctl cancel --message 12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == cmd.Flags().Changed("message") {
				return usageError("give a turn, or --message with the id of a message")
			}
			if cmd.Flags().Changed("message") && message < 1 {
				return usageError("--message is %d: it must be the id of a message", message)
			}
			return s.cancel(cmd.Context(), args, turnkeeper.MessageID(message), reason)
		},
	}
	cmd.Flags().Int64Var(&message, "message", 0, "cancel this message, and the turn that handles it")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for operators: \"turnctl explain\" shows it")
	return cmd
}

func (s *session) cancel(ctx context.Context, args []string, message turnkeeper.MessageID, reason string) error {
	return s.withDatabase(ctx, func(_ *config.Config, db *app.Database) error {
		done, err := cancelWhat(ctx, db.Store, args, message, reason)
		switch {
		case errors.Is(err, turnkeeper.ErrWrongState):
			return refused(err)
		case err != nil:
			return err
		}
		return s.print(views.OfCancelled(done), func() {
			if done.Closed {
				s.out.line("turn %d is cancelled", done.Turn)
				return
			}
			s.out.line(`turn %d is told to stop; "turnctl events %d --follow" shows its end`, done.Turn, done.Turn)
		})
	})
}

func cancelWhat(ctx context.Context, store *storage.Store, args []string, message turnkeeper.MessageID, reason string) (storage.Cancelled, error) {
	if len(args) == 0 {
		done, err := store.CancelMessage(ctx, message, reason)
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return done, notFound(`there is no message %d: "turnctl inbox" lists them`, message)
		}
		return done, err
	}
	id, err := turnNamed(ctx, store, args[0])
	if err != nil {
		return storage.Cancelled{}, err
	}
	done, err := store.CancelTurn(ctx, id, reason)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return done, noSuchTurn(id)
	}
	return done, err
}

// turnNamed is the id of a turn that was named by it or as "latest". It need not exist.
func turnNamed(ctx context.Context, store *storage.Store, name string) (turnkeeper.TurnID, error) {
	if name == "latest" {
		id, err := store.LatestTurn(ctx)
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return 0, notFound("there is no turn yet")
		}
		return id, err
	}
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil || id < 1 {
		return 0, usageError(`%q is no turn: give its id, or "latest"`, name)
	}
	return turnkeeper.TurnID(id), nil
}

func noSuchTurn(id turnkeeper.TurnID) error {
	return notFound(`there is no turn %d: "turnctl turns" lists them`, id)
}

// refused ends the program with the code for what is not possible as things stand.
func refused(err error) error { return &codedError{ExitRefused, err} }

const refusedHelp = exitHelp + `
  6  refused: not possible as things stand`

func atMostOneArg(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s takes one argument at most, and was given %d", cmd.Name(), len(args))
	}
	return nil
}

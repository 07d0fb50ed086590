package turnctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func retryCommand(s *shell.Session) *cobra.Command {
	var turn turnArg
	var anyway, failed bool
	var since time.Duration
	var scope operate.FailedScope
	cmd := &cobra.Command{
		Use: "retry MESSAGE | --turn TURN | --failed", Short: "Try a message, or all that failed, again", Args: shell.AtMostOneArg,
		Long: `Try a message again. One that failed for good is put into the inbox once more,
as a new message in the same conversation: a message has one reply, and it has
it. A repeat names the same new message. One that waits for its time, because an
attempt failed or a budget was used up, is due now.

A message whose turn was degraded or cancelled may have had effects already, and
another try may have them again: "turnctl explain" tells which calls ran. It is
tried again with --anyway only. One that was cancelled while it waited in the
inbox has had none.

With --failed all messages that failed for good are put into the inbox once more,
oldest first, but those that were before: all of them, or those that failed within
--since, of one --agent, or by one --error-class (overloaded, auth, bad_output and
others: "turnctl show" names that of a turn).

` + shell.RefusedHelp,
		Example: `  turnctl retry 12
  turnctl retry --turn latest --anyway
  turnctl retry --failed --since 2h --error-class auth`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if failed {
				if len(args) > 0 || cmd.Flags().Changed("turn") || anyway {
					return shell.Misused("--failed goes with --since, --agent and --error-class only")
				}
				if turn.agent != "" {
					scope.Agents = []string{turn.agent}
				}
				return retryFailed(cmd.Context(), s, scope, since)
			}
			if scope.ErrorClass != "" || cmd.Flags().Changed("since") {
				return shell.Misused("--since and --error-class go with --failed")
			}
			if turn.agent != "" && !cmd.Flags().Changed("turn") {
				return shell.Misused("--agent goes with --failed, or with --turn latest")
			}
			if (len(args) == 1) == cmd.Flags().Changed("turn") {
				return shell.Misused("give a message, or --turn with one of its turns")
			}
			return retry(cmd.Context(), s, strings.Join(args, ""), turn, anyway)
		},
	}
	cmd.Flags().StringVar(&turn.name, "turn", "", "the message of this turn: its id, or \"latest\"")
	cmd.Flags().BoolVar(&anyway, "anyway", false, "also where effects may happen twice")
	f := cmd.Flags()
	f.BoolVar(&failed, "failed", false, "all messages that failed for good")
	shell.DurationFlag(f, &since, "since", 0, "with --failed: only those that failed within this time; 0: at any time")
	f.StringVar(&turn.agent, "agent", "", "with --failed: only of this agent; with --turn latest: its newest turn")
	f.StringVar(&scope.ErrorClass, "error-class", "", "with --failed: only those whose last turn failed by this")
	return cmd
}

// retryFailed puts all failed messages of a scope into the inbox again.
func retryFailed(ctx context.Context, s *shell.Session, scope operate.FailedScope, since time.Duration) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		for _, agent := range scope.Agents {
			if err := (&pageFlags{agent: agent}).known(ctx, db.Store); err != nil {
				return err
			}
		}
		if since > 0 {
			facts, err := db.Store.ServerFacts(ctx)
			if err != nil {
				return err
			}
			scope.Since = facts.Now.Add(-since)
		}
		all, err := db.Store.RetryFailed(ctx, scope)
		if err != nil {
			return fmt.Errorf("%d messages were put into the inbox again, then: %w", len(all), err)
		}
		return s.Print(views.OfBulkRetried(all), func() {
			for _, r := range all {
				s.Out.Line("message %d of %s is tried again as message %d", r.Message, r.Agent, r.As)
			}
			if len(all) == 0 {
				s.Err.Line("no such message is left to try again")
			}
		})
	})
}

func retry(ctx context.Context, s *shell.Session, message string, turn turnArg, anyway bool) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		id, err := messageNamed(ctx, db.Store, message, turn)
		if err != nil {
			return err
		}
		done, err := db.Store.Retry(ctx, id, anyway)
		switch {
		case errors.Is(err, turnkeeper.ErrNotFound):
			return shell.NotFound(`there is no message %d: "turnctl inbox" lists them`, id)
		case errors.Is(err, operate.ErrMayRepeatEffects):
			return shell.Refused(fmt.Errorf(`%w; look at "turnctl explain", and give --anyway if that does no harm`, err))
		case errors.Is(err, turnkeeper.ErrWrongState), errors.Is(err, turnkeeper.ErrAgentRetired):
			return shell.Refused(err)
		case err != nil:
			return err
		}
		return s.Print(views.OfRetried(id, done), func() { tellRetried(s, id, done) })
	})
}

func tellRetried(s *shell.Session, id turnkeeper.MessageID, done operate.Retried) {
	switch {
	case done.DueNow:
		s.Out.Line("message %d is due now", id)
	case done.Repeat:
		s.Out.Line("message %d was put into the inbox again before, as message %d", id, done.Message)
	default:
		s.Out.Line("message %d is tried again as message %d", id, done.Message)
	}
}

// messageNamed is a message by its own id or by one of its turns.
func messageNamed(ctx context.Context, store *operate.Store, message string, turn turnArg) (turnkeeper.MessageID, error) {
	if turn.name != "" {
		view, err := findTurn(ctx, store, turn)
		return view.Turn.MessageID, err
	}
	id, err := strconv.ParseInt(message, 10, 64)
	if err != nil || id < 1 {
		return 0, shell.Misused("%q is no message: give its id", message)
	}
	return turnkeeper.MessageID(id), nil
}

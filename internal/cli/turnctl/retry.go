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
	"turnkeeper/internal/cli/term"
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
		Use: "retry MESSAGE | --turn TURN | --failed", Short: "Retry a message, or all failed messages",
		Args: shell.AtMostOneArg,
		Long: `Retry a message. A failed message already has its one reply, so it is enqueued
again as a new message in the same conversation. Repeating the command returns the
same new message. A message that waits because an attempt failed or a budget was
spent becomes due now.

A message whose turn was degraded or cancelled may have had effects, which a retry
may repeat: "turnctl explain" lists the calls that ran. It is retried only with
--anyway. A message that was cancelled while it waited in the inbox had no effects.

With --failed all failed messages that were not retried before are enqueued again,
oldest first: all of them, or those that failed within --since, of one --agent, or
with one --error-class ("turnctl show" prints that of a turn): one of
` + strings.Join(views.ErrorClasses(), ", ") + `.

` + shell.RefusedHelp,
		Example: `  turnctl retry 12
  turnctl retry --turn latest --anyway
  turnctl retry --failed --since 2h --error-class auth`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if failed {
				if len(args) > 0 || cmd.Flags().Changed("turn") || anyway {
					return shell.Misused("--failed goes with --since, --agent and --error-class only")
				}
				if err := shell.OneOf("--error-class", scope.ErrorClass, views.ErrorClasses()); err != nil {
					return err
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
				return shell.Misused("--agent goes only with --failed, or with --turn latest")
			}
			if (len(args) == 1) == cmd.Flags().Changed("turn") {
				return shell.Misused("give a message, or --turn with one of its turns")
			}
			return retry(cmd.Context(), s, strings.Join(args, ""), turn, anyway)
		},
	}
	cmd.Flags().StringVar(&turn.name, "turn", "", "the message of this turn: an id, or \"latest\"")
	cmd.Flags().BoolVar(&anyway, "anyway", false, "also if effects may happen twice")
	f := cmd.Flags()
	f.BoolVar(&failed, "failed", false, "all failed messages that were not retried before")
	shell.DurationFlag(f, &since, "since", 0, "with --failed: only those that failed within this time; 0: at any time")
	f.StringVar(&turn.agent, "agent", "", "with --failed: only of this agent; with --turn latest: its newest turn")
	f.StringVar(&scope.ErrorClass, "error-class", "",
		"with --failed: only those whose last turn failed with this class")
	return cmd
}

// retryFailed enqueues all failed messages of a scope again.
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
			return fmt.Errorf("%s enqueued again, then: %w", term.Plural(len(all), "message"), err)
		}
		return s.Print(views.OfBulkRetried(all), func() {
			for _, r := range all {
				s.Out.Line("message %d of %s is retried as message %d", r.Message, r.Agent, r.As)
			}
			if len(all) == 0 {
				s.Err.Line("no such message to retry")
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
			return shell.Refused(fmt.Errorf(`%w; check with "turnctl explain", and give --anyway if that does no harm`,
				err))
		case errors.Is(err, turnkeeper.ErrWrongState), errors.Is(err, turnkeeper.ErrAgentRetired):
			return shell.Refused(err)
		case err != nil:
			return err
		}
		return s.Print(views.OfRetried(id, done), func() { showRetried(s.Out, id, done) })
	})
}

func showRetried(s *term.Screen, id turnkeeper.MessageID, done operate.Retried) {
	switch {
	case done.DueNow:
		s.Line("message %d is due now", id)
	case done.Repeat:
		s.Line("message %d was retried before, as message %d", id, done.Message)
	default:
		s.Line("message %d is retried as message %d", id, done.Message)
	}
}

// messageNamed returns a message by its id or by one of its turns.
func messageNamed(ctx context.Context, store *operate.Store, message string,
	turn turnArg) (turnkeeper.MessageID, error) {
	if turn.name != "" {
		view, err := findTurn(ctx, store, turn)
		return view.Turn.MessageID, err
	}
	id, err := strconv.ParseInt(message, 10, 64)
	if err != nil || id < 1 {
		return 0, shell.Misused("%q is not a message: give an id", message)
	}
	return turnkeeper.MessageID(id), nil
}

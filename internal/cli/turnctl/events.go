package turnctl

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/cli/follow"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

func eventsCommand(s *shell.Session) *cobra.Command {
	var after int64
	var follow bool
	var turn turnArg
	cmd := &cobra.Command{
		Use: "events TURN|latest", Short: "Print the events of a turn, or follow it live", Args: shell.ExactArgs(1),
		Long: `Print the events of a turn as a transcript: its rounds, the model's text, the
tools with their state and duration, waits, and the end. With --follow it prints
new events until the turn ends. A round that starts again after a worker was lost
is marked, and its earlier text is void: the rest equals the reply. With -o json
each event is an object; with --follow one object per line.

After a broken connection, continue with --after and the last event's number.

` + shell.ExitHelp + `
  5  --follow: the turn failed or was cancelled
  130  stopped by a signal before the turn's end`,
		Example: `  turnctl events latest --follow
  turnctl events 41 --after 120 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if after < 0 {
				return shell.Misused("--after is %d: it must be the number of an event, or 0", after)
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				view, err := findTurn(cmd.Context(), db.Store, turn.named(args))
				if err != nil {
					return err
				}
				if follow {
					return followEvents(cmd.Context(), s, db, view.Turn, after)
				}
				return storedEvents(cmd.Context(), s, db.Store, view.Turn, after)
			})
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "only events with numbers above this one")
	cmd.Flags().BoolVar(&follow, "follow", false, "print new events until the turn ends")
	turn.addAgent(cmd)
	return cmd
}

// eventPage is the number of events per query.
const eventPage = 500

// storedEvents prints the events stored so far.
func storedEvents(ctx context.Context, s *shell.Session, store *operate.Store, turn turnkeeper.Turn,
	after int64) error {
	all := []views.Event{}
	printer := newEventPrinter(s.Out)
	defer printer.end()
	for {
		page, err := store.Events(ctx, turn.ID, after, eventPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			after = e.Seq
			if s.JSON() {
				all = append(all, views.OfEvent(e))
			} else if err := printer.show(e); err != nil {
				return err
			}
		}
		if len(page) < eventPage {
			break
		}
	}
	if s.JSON() {
		return shell.WriteJSON(s.Stdout, all)
	}
	if !turn.State.Terminal() {
		s.Err.Line("%s", s.Err.Paint(term.Dim, "the turn is "+string(turn.State)+"; --follow continues with it"))
	}
	return nil
}

// followEvents prints events as they come, until the last one.
func followEvents(ctx context.Context, s *shell.Session, db *database.Database, turn turnkeeper.Turn,
	after int64) error {
	if turn.State.Terminal() && after >= turn.LastSeq {
		return endCode(turn.State)
	}
	notifier, stop := follow.StartNotifier(ctx, db)
	defer stop()
	printer := newEventPrinter(s.Out)
	defer printer.end()
	answered := s.Now()
	for e, err := range stream.Follow(ctx, follow.EventSource{Store: db.Store, Bell: notifier}, turn.ID, after) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (errors.Is(err, turnkeeper.ErrNotFound) || s.Now().Sub(answered) > follow.Patience):
			return err
		case err != nil:
			continue
		}
		answered = s.Now()
		if s.JSON() {
			err = shell.WriteJSONLine(s.Stdout, views.OfEvent(e))
		} else {
			err = printer.show(e)
		}
		if err != nil {
			return err
		}
		if e.Type.Terminal() {
			return endCode(follow.DataOf[turnevents.TurnEndData](e).State)
		}
	}
	return nil
}

// endCode returns the exit code of a command that waited for the end of a turn.
func endCode(state turnkeeper.TurnState) error {
	if state == turnkeeper.TurnFailed || state == turnkeeper.TurnCancelled {
		return shell.Silent(shell.ExitNotDone)
	}
	return nil
}

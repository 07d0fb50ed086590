package turnctl

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/transcript"
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
		Use: "events TURN|latest", Short: "Print what a turn does, or follow it live", Args: shell.ExactArgs(1),
		Long: `Print the events of a turn as a transcript: its rounds, what the model says, the
tools with their state and time, waits, and the end. With --follow it goes on
while the turn does, and ends with it. A round that begins again after a worker
was lost is marked: what it had said before is void, so that what stands equals
the reply. With -o json each event is an object; with --follow one a line.

A connection that breaks goes on with --after and the last number that was seen.

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
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until the turn has ended")
	turn.addAgent(cmd)
	return cmd
}

// eventPage is how many events are read at a time.
const eventPage = 500

// storedEvents prints what there is now.
func storedEvents(ctx context.Context, s *shell.Session, store *operate.Store, turn turnkeeper.Turn, after int64) error {
	all := []views.Event{}
	paper := newTranscript(s.Out)
	defer paper.end()
	for {
		page, err := store.Events(ctx, turn.ID, after, eventPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			after = e.Seq
			if s.JSON() {
				all = append(all, views.OfEvent(e))
			} else if err := paper.show(e); err != nil {
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
		s.Err.Line("%s", s.Err.Paint(term.Dim, "the turn is "+string(turn.State)+"; --follow goes on with it"))
	}
	return nil
}

// followEvents prints events as they come, to the last one.
func followEvents(ctx context.Context, s *shell.Session, db *database.Database, turn turnkeeper.Turn, after int64) error {
	if turn.State.Terminal() && after >= turn.LastSeq {
		return endCode(turn.State)
	}
	bell, stop := follow.HangBell(ctx, db)
	defer stop()
	paper := newTranscript(s.Out)
	defer paper.end()
	answered := s.Now()
	for e, err := range stream.Follow(ctx, follow.EventSource{Store: db.Store, Bell: bell}, turn.ID, after) {
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
			err = paper.show(e)
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

// endCode is how a command ends that waited for the end of a turn.
func endCode(state turnkeeper.TurnState) error {
	if state == turnkeeper.TurnFailed || state == turnkeeper.TurnCancelled {
		return shell.Silent(shell.ExitNotDone)
	}
	return nil
}

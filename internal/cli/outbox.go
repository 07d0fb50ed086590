package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

func (s *session) outboxCommand() *cobra.Command {
	var flags pageFlags
	var after int64
	var follow, ofSubAgents bool
	cmd := &cobra.Command{
		Use: "outbox", Short: "List replies, newest first, or follow them", Args: cobra.NoArgs,
		Long: `List replies, newest first. With --after, list those after an id in the order
they were written. With --follow, print each reply as it is written, until
stopped; with -o json that is one object a line.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page()
			if err != nil {
				return err
			}
			page.TopOnly = !ofSubAgents
			inOrder := cmd.Flags().Changed("after")
			if after < 0 {
				return usageError("--after is %d: it must be an id, or 0", after)
			}
			if inOrder && flags.before > 0 {
				return usageError("give --before or --after, not both")
			}
			if follow {
				page.Cursor = after
				return s.followOutbox(cmd.Context(), page, inOrder)
			}
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.Reply, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				if inOrder {
					page.Cursor = after
					return store.Replies(ctx, page)
				}
				return store.LatestReplies(ctx, page)
			}
			return list(s, cmd, look, views.OfReply, showReplies, "no replies")
		},
	}
	flags.add(cmd, "")
	cmd.Flags().BoolVar(&ofSubAgents, "sub-agents", true, "also the replies that sub-agents wrote for other agents; =false leaves them out")
	flags.addBefore(cmd)
	cmd.Flags().Int64Var(&after, "after", 0, "only entries with ids above this one, in the order they were written")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what is written from now on, or after --after")
	return cmd
}

// silentReply stands for a reply without a text.
const silentReply = "(no text: on_degraded or on_failed of the agent is silent)"

func showReplies(s *screen, c clock, replies []turnkeeper.Reply) {
	t := newTable(">REPLY", "OUTCOME", "AGENT", "CONVERSATION", ">MESSAGE", ">TURN", "WRITTEN", "BODY")
	for _, r := range replies {
		t.add(fmt.Sprint(r.ID), stateCell(r.Outcome), r.Agent, r.Conversation, fmt.Sprint(r.MessageID), turnAndParent(r),
			c.at(r.CreatedAt), oneLine(cmp.Or(r.Body, silentReply), previewColumns))
	}
	t.print(s)
}

// turnAndParent is the turn of a reply and, of a sub-agent's, the one it is for.
func turnAndParent(r turnkeeper.Reply) string {
	if r.ParentTurn == 0 {
		return fmt.Sprint(r.TurnID)
	}
	return fmt.Sprintf("%d for %d", r.TurnID, r.ParentTurn)
}

// outboxPoll finds replies whose doorbell was lost.
const outboxPoll = 2 * time.Second

// followOutbox prints replies until ctx ends, which is its good end.
func (s *session) followOutbox(ctx context.Context, page operate.Page, fromCursor bool) error {
	return s.withDatabase(ctx, func(_ *config.Config, db *app.Database) error {
		if err := registered(ctx, db.Store, page.Agent); err != nil {
			return unlessEnded(ctx, err)
		}
		if !fromCursor {
			newest, err := db.Store.LatestReplies(ctx, operate.Page{Agent: page.Agent, Limit: 1, TopOnly: page.TopOnly})
			if err != nil {
				return err
			}
			if len(newest) > 0 {
				page.Cursor = int64(newest[0].ID)
			}
		}
		rings, stop := listen(ctx, db, storage.TopicTurns)
		defer stop()
		for ctx.Err() == nil {
			replies, err := db.Store.Replies(ctx, page)
			if err != nil {
				return unlessEnded(ctx, err)
			}
			for _, r := range replies {
				page.Cursor = int64(r.ID)
				if err := s.printReply(r); err != nil {
					return err
				}
			}
			if len(replies) < page.Limit {
				waitFor(ctx, rings, outboxPoll)
			}
		}
		return nil
	})
}

// unlessEnded is the error, unless the end of ctx made it.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (s *session) printReply(r turnkeeper.Reply) error {
	if s.json() {
		return writeJSONLine(s.Stdout, views.OfReply(r))
	}
	s.out.line("%s %s", s.out.in(toneOf(r.Outcome), signOf(r.Outcome)), s.out.in(bold, fmt.Sprintf("reply %d to message %d", r.ID, r.MessageID))+
		s.out.in(dim, fmt.Sprintf("  %s/%s, turn %s, %s", plain(r.Agent), plain(r.Conversation), turnAndParent(r), s.clock().moment(r.CreatedAt))))
	for _, line := range wrap(cmp.Or(r.Body, silentReply), s.out.readable()-2) {
		s.out.line("  %s", line)
	}
	_, err := fmt.Fprintln(s.Stdout)
	return err
}

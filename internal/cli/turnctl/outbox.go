package turnctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/follow"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

func outboxCommand(s *shell.Session) *cobra.Command {
	var flags pageFlags
	var after int64
	var follow, ofSubAgents bool
	cmd := &cobra.Command{
		Use: "outbox", Short: "List replies, newest first, or follow them", Args: cobra.NoArgs,
		Long: `List replies, newest first. With --after, list those after an id, oldest first.
With --follow, print each new reply until stopped; with -o json one object per
line.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page()
			if err != nil {
				return err
			}
			page.TopOnly = !ofSubAgents
			inOrder := cmd.Flags().Changed("after")
			if after < 0 {
				return shell.Misused("--after is %d: it must be an id, or 0", after)
			}
			if inOrder && flags.before > 0 {
				return shell.Misused("give --before or --after, not both")
			}
			if follow {
				page.Cursor = after
				return followOutbox(cmd.Context(), s, page, inOrder)
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
	flags.addUser(cmd)
	cmd.Flags().BoolVar(&ofSubAgents, "sub-agents", true,
		"include the replies of sub-agents to other agents; =false omits them")
	flags.addBefore(cmd)
	cmd.Flags().Int64Var(&after, "after", 0, "only entries with ids above this one, oldest first")
	cmd.Flags().BoolVar(&follow, "follow", false, "print new replies from now on, or from --after on")
	return cmd
}

// silentReply is shown for a reply without a text.
const silentReply = "(no text: on_degraded or on_failed of the agent is silent)"

func showReplies(s *term.Screen, c term.Clock, replies []turnkeeper.Reply) {
	headings := []string{">REPLY", "OUTCOME", "AGENT", "CONVERSATION", ">MESSAGE", ">TURN", "WRITTEN", "LABELS", "BODY"}
	body := len(headings) - 1
	labelled := slices.ContainsFunc(replies, func(r turnkeeper.Reply) bool { return len(r.Labels) > 0 })
	if !labelled { // more room for the texts
		headings = slices.Delete(headings, body-1, body)
	}
	t := term.NewTable(headings...)
	for _, r := range replies {
		cells := []any{fmt.Sprint(r.ID), stateCell(r.Outcome), r.Agent, words.Conversation(r.User, r.Conversation),
			fmt.Sprint(r.MessageID),
			turnAndParent(r), c.At(r.CreatedAt)}
		if labelled {
			cells = append(cells, term.OrDash(strings.Join(r.Labels, ", ")))
		}
		t.Add(append(cells, term.OneLine(cmp.Or(r.Body, silentReply), term.PreviewColumns))...)
	}
	t.Print(s)
}

// turnAndParent returns the turn of a reply and, for a sub-agent's reply, its parent turn.
func turnAndParent(r turnkeeper.Reply) string {
	if r.ParentTurn == 0 {
		return fmt.Sprint(r.TurnID)
	}
	return fmt.Sprintf("%d for %d", r.TurnID, r.ParentTurn)
}

// labelsOf returns the labels of a reply, with a comma before each.
func labelsOf(r turnkeeper.Reply) string {
	text := ""
	for _, label := range r.Labels {
		text += ", " + label
	}
	return text
}

// outboxPoll is the poll interval, in case a notification is lost.
const outboxPoll = 2 * time.Second

// followOutbox prints replies until ctx ends, which is no error.
func followOutbox(ctx context.Context, s *shell.Session, page operate.Page, fromCursor bool) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
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
		rings, stop := follow.Listen(ctx, db, storage.TopicTurns)
		defer stop()
		for ctx.Err() == nil {
			replies, err := db.Store.Replies(ctx, page)
			if err != nil {
				return unlessEnded(ctx, err)
			}
			for _, r := range replies {
				page.Cursor = int64(r.ID)
				if err := printReply(s, r); err != nil {
					return err
				}
			}
			if len(replies) < page.Limit {
				follow.WaitFor(ctx, rings, outboxPoll)
			}
		}
		return nil
	})
}

// unlessEnded returns err, or nil if ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func printReply(s *shell.Session, r turnkeeper.Reply) error {
	if s.JSON() {
		return shell.WriteJSONLine(s.Stdout, views.OfReply(r))
	}
	showReply(s.Out, s.Clock(), r)
	_, err := fmt.Fprintln(s.Stdout)
	return err
}

func showReply(s *term.Screen, c term.Clock, r turnkeeper.Reply) {
	s.Line("%s %s", s.Paint(term.ToneOf(r.Outcome), term.SignOf(r.Outcome)), s.Paint(term.Bold,
		fmt.Sprintf("reply %d to message %d", r.ID, r.MessageID))+
		s.Paint(term.Dim, fmt.Sprintf("  %s/%s, turn %s, %s", term.Plain(r.Agent),
			term.Plain(words.Conversation(r.User, r.Conversation)), turnAndParent(r), c.Moment(r.CreatedAt))+
			labelsOf(r)))
	for _, line := range term.Wrap(cmp.Or(r.Body, silentReply), s.Readable()-2) {
		s.Line("  %s", line)
	}
}

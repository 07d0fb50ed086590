package turnctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func inboxCommand(s *shell.Session) *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use: "inbox", Short: "List messages, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page(messageStates...)
			if err != nil {
				return err
			}
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.Message, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				return store.Messages(ctx, page)
			}
			return list(s, cmd, look, views.OfMessage, showMessages, "no messages")
		},
	}
	flags.add(cmd, strings.Join(messageStates, ", "))
	flags.addBefore(cmd)
	return cmd
}

func showMessages(s *term.Screen, c term.Clock, messages []turnkeeper.Message) {
	t := term.NewTable(">MESSAGE", "STATE", "AGENT", "CONVERSATION", ">PRIORITY", ">ATTEMPTS", ">TURN", "ACCEPTED", "BODY")
	for _, m := range messages {
		turn := "-"
		if m.TurnID != 0 {
			turn = fmt.Sprint(m.TurnID)
		}
		t.Add(fmt.Sprint(m.ID), messageCell(m, c), m.Agent, m.Conversation, fmt.Sprint(m.Priority), fmt.Sprint(m.Attempts),
			turn, c.At(m.AcceptedAt), term.OneLine(m.Body, term.PreviewColumns))
	}
	t.Print(s)
}

// messageCell returns the status of a message.
func messageCell(m turnkeeper.Message, c term.Clock) term.Cell {
	state, note := words.Standing(m, c.Ago)
	cell := stateCell(state)
	if note != "" {
		cell.Text, cell.Tone = cell.Text+", "+note, term.Warned
	}
	return cell
}

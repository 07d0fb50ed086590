package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func (s *session) inboxCommand() *cobra.Command {
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

func showMessages(s *screen, c clock, messages []turnkeeper.Message) {
	t := newTable(">MESSAGE", "STATE", "AGENT", "CONVERSATION", ">PRIORITY", ">ATTEMPTS", ">TURN", "ACCEPTED", "BODY")
	for _, m := range messages {
		turn := "-"
		if m.TurnID != 0 {
			turn = fmt.Sprint(m.TurnID)
		}
		t.add(fmt.Sprint(m.ID), messageCell(m, c), m.Agent, m.Conversation, fmt.Sprint(m.Priority), fmt.Sprint(m.Attempts),
			turn, c.at(m.AcceptedAt), oneLine(m.Body, previewColumns))
	}
	t.print(s)
}

// messageCell is how a message stands.
func messageCell(m turnkeeper.Message, c clock) cell {
	state, note := words.Standing(m, c.ago)
	cell := stateCell(state)
	if note != "" {
		cell.text, cell.tone = cell.text+", "+note, warned
	}
	return cell
}

// previewColumns bounds what a list shows of a body.
const previewColumns = 120

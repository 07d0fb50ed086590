package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
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
			look := func(ctx context.Context, store *storage.Store) ([]turnkeeper.Message, error) {
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
		state := stateCell(m.State)
		if m.State == turnkeeper.MessageWaiting && m.DueAt.After(c.now) && m.DueAt.After(m.AcceptedAt) {
			state = cell{"due " + c.at(m.DueAt), dim}
		} else if len(m.WaitsFor) > 0 {
			state = cell{"waits for " + strings.Join(m.WaitsFor, ", "), warned}
		}
		t.add(fmt.Sprint(m.ID), state, m.Agent, m.Conversation, fmt.Sprint(m.Priority), fmt.Sprint(m.Attempts),
			turn, c.at(m.AcceptedAt), oneLine(m.Body, previewColumns))
	}
	t.print(s)
}

// previewColumns bounds what a list shows of a body.
const previewColumns = 120

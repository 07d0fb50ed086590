package turnctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/views"
	"turnkeeper/internal/views/columns"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

func inboxCommand(s *shell.Session) *cobra.Command {
	return newestCommand(s, "inbox", "messages", messageStates, (*operate.Store).Messages,
		views.OfMessage, showMessages)
}

func showMessages(s *term.Screen, c term.Clock, messages []waiting.Message) {
	t := newColumns(columns.OfMessages, []string{">MESSAGE", "STATE"}, ">TURN", "ACCEPTED", "BODY")
	for _, m := range messages {
		turn := "-"
		if m.TurnID != 0 {
			turn = fmt.Sprint(m.TurnID)
		}
		t.add(m, []any{fmt.Sprint(m.ID), messageCell(m, c)}, turn, c.At(m.AcceptedAt),
			term.OneLine(m.Body, term.PreviewColumns))
	}
	t.Print(s)
}

// messageCell returns the status of a message.
func messageCell(m waiting.Message, c term.Clock) term.Cell {
	state, note := waiting.Standing(m, c.Ago)
	cell := stateCell(state)
	if note != "" {
		cell.Text, cell.Tone = cell.Text+", "+note, term.Warned
	}
	return cell
}

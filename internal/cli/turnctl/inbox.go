package turnctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func inboxCommand(s *shell.Session) *cobra.Command {
	return newestCommand(s, "inbox", "messages", messageStates, (*operate.Store).Messages,
		views.OfMessage, showMessages)
}

func showMessages(s *term.Screen, c term.Clock, messages []waiting.Message) {
	t := term.NewTable(">MESSAGE", "STATE", "AGENT", "CONVERSATION", ">PRIORITY", ">ATTEMPTS", ">TURN",
		"ACCEPTED", "BODY")
	for _, m := range messages {
		turn := "-"
		if m.TurnID != 0 {
			turn = fmt.Sprint(m.TurnID)
		}
		t.Add(fmt.Sprint(m.ID), messageCell(m, c), m.Agent, words.Conversation(m.User, m.Conversation),
			fmt.Sprint(m.Priority), fmt.Sprint(m.Attempts),
			turn, c.At(m.AcceptedAt), term.OneLine(m.Body, term.PreviewColumns))
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

package turnctl

import (
	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func finishCommand(s *shell.Session) *cobra.Command {
	var of turnOrMessage
	cmd := &cobra.Command{
		Use: "finish TURN|latest | --message ID", Short: "Let a turn answer with what it has", Args: shell.AtMostOneArg,
		Long: `Make a turn answer with what it has. It calls the model once more: the
round is announced to it as the last one, and it can call no tools. A running
model call and running calls with an effect end first. Calls that only read are
stopped, and no other call starts. Asks of the turn are withdrawn, and the
calls that they were about do not run. Its sub-agents finish in the same way.
The turn ends with the stop reason "finished". "turnctl cancel" stops it at once.
A message that still waits in the inbox has nothing to finish with: cancel it.
Repeating the command does nothing.

` + shell.RefusedHelp,
		Example: `  turnctl finish 41 --reason "good enough"
  turnctl finish --message 12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return of.end(cmd, s, args, func(store *operate.Store) enders {
				return enders{store.FinishTurn, store.FinishMessage}
			},
				func(done operate.Ended, what, end string) {
					if done.Closed {
						s.Out.Line("%s has finished", what)
						return
					}
					s.Out.Line(`%s was asked to finish; "turnctl events %d --follow" shows %s`, what, done.Turn, end)
				}, func(done operate.Ended) any {
					return finishedView{views.OfFinished(done), views.OrNull(turnkeeper.MessageID(of.message))}
				})
		},
	}
	of.addFlags(cmd, "let the turn that handles this message finish")
	return cmd
}

// finishedView is the JSON output of finish.
type finishedView struct {
	views.Finished
	MessageID *turnkeeper.MessageID `json:"message_id,omitempty"` // with --message
}

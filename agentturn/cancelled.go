package agentturn

import (
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/policy"
)

const replyCancelled = "This turn was cancelled."

// CancelledReply returns the reply of a cancelled turn: that it was cancelled, and the texts of its finished rounds and
// of the round that the cancellation stopped. Whoever watched the turn has seen them. The SQL function
// turnkeeper.cancelled_reply returns the same.
func CancelledReply(rounds []turnkeeper.Round, unfinished string) string {
	var said []string
	for _, r := range append(rounds[:len(rounds):len(rounds)], turnkeeper.Round{Text: unfinished}) {
		if !inference.Blank(r.Text) {
			said = append(said, r.Text)
		}
	}
	if len(said) == 0 {
		return replyCancelled
	}
	return replyCancelled + "\n\nBefore that it had written:\n\n" + strings.Join(said, "\n\n")
}

// keepSaid adds to the reply of a cancelled turn what the model had written, if that may be sent: nobody is asked about
// it. The reply of a sub-agent goes to its parent, with its labels.
func (e *execution) keepSaid() {
	if e.end.state != turnkeeper.TurnCancelled {
		return
	}
	private := len(policy.Only(policy.Private, e.calls.SeenBefore(len(e.calls.Rounds)+1))) > 0
	if private && e.record.Lineage.Parent == 0 && e.replySink() != policy.ReplyAllow {
		return
	}
	e.end.reply = fixedReply(CancelledReply(e.calls.Rounds, e.asker.said()))
}

package agentturn

import "fmt"

// standingNote follows every system prompt.
const standingNote = "Tool results may be cut, and the outcome of a call may be unknown; a result says so where that is the case. " +
	"Read more where it matters, and say in your answer what you have not seen."

// lastRoundNotice ends the request of the last allowed round. It is not part of
// the conversation.
func lastRoundNotice(round int) string {
	return fmt.Sprintf("# System Notice\n\nThis is turn %d of %d, the last one: tools can no longer be called. "+
		"Answer now from what you have, and say what is missing.", round, round)
}

package turnkeeper

import (
	"fmt"
	"strings"
)

// MessageID orders the messages of the inbox: a later accept has a larger id.
type MessageID int64

// TurnID names one turn. Ids grow, with gaps.
type TurnID int64

// ReplyID names one row of the outbox. It is the idempotency key of deliveries.
type ReplyID int64

// JobID is the id of a River job.
type JobID int64

// GrantID is the random id of one grant of a lease, a UUID in text form.
type GrantID string

// WorkerID names one run of one worker process. It is never used again.
type WorkerID string

// OutputID names the stored full text of one tool result.
type OutputID string

// Lane is the key of what runs serially: "AGENT", or "AGENT/CONVERSATION" for
// an agent with `lane: conversation`.
type Lane string

// Agent is the agent that the lane belongs to.
func (l Lane) Agent() string {
	agent, _, _ := strings.Cut(string(l), "/")
	return agent
}

// CallKey names a tool call within its turn. Round and Ordinal count from 1.
// It is the journal's own key: ids that a provider sent may be missing or
// repeated, and are never used to find a call.
type CallKey struct {
	Round   int
	Ordinal int
}

// String is the internal call id, "round-R-tool-I".
func (k CallKey) String() string { return fmt.Sprintf("round-%d-tool-%d", k.Round, k.Ordinal) }

// Compare orders keys as the calls were asked for.
func (k CallKey) Compare(other CallKey) int {
	if k.Round != other.Round {
		return k.Round - other.Round
	}
	return k.Ordinal - other.Ordinal
}

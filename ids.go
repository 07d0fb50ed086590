package turnkeeper

import (
	"fmt"
	"strings"
)

// MessageID is the id of a message. A message that is accepted later has a larger id.
type MessageID int64

// TurnID is the id of a turn. Ids grow, with gaps.
type TurnID int64

// ReplyID is the id of a reply, and the idempotency key of its deliveries.
type ReplyID int64

// JobID is the id of a River job; 0: none.
type JobID int64

// GrantID is the random id of one grant of a lease: a UUID as text.
type GrantID string

// WorkerID is the id of one run of a worker process. It is never reused.
type WorkerID string

// OutputID is the id of a stored tool result.
type OutputID string

// Lane is the name of a lane, whose turns run one at a time: "AGENT", or for an agent with
// `lane: conversation` that of ConversationKey.Lane. A turn that waits outside its lane has one of its own.
type Lane string

// Agent returns the agent of the lane.
func (l Lane) Agent() string {
	if end := strings.IndexAny(string(l), "/@#"); end >= 0 {
		return string(l[:end])
	}
	return string(l)
}

// CallKey identifies a tool call within its turn. Round and Ordinal count from 1.
// The ids that providers send are not used for this: they may be missing or
// repeated.
type CallKey struct {
	Round   int
	Ordinal int
}

// String returns the internal call id, "round-R-tool-I".
func (k CallKey) String() string { return fmt.Sprintf("round-%d-tool-%d", k.Round, k.Ordinal) }

// Compare orders keys by round and ordinal.
func (k CallKey) Compare(other CallKey) int {
	if k.Round != other.Round {
		return k.Round - other.Round
	}
	return k.Ordinal - other.Ordinal
}

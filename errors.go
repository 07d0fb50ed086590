package turnkeeper

import (
	"errors"
	"fmt"
)

// Conditions that callers branch on. Storage and jobs return errors that match
// them by errors.Is.
var (
	// ErrEmptyMessage refuses a message without a body.
	ErrEmptyMessage = errors.New("message cannot be empty")

	// ErrInvalidMessage refuses a message that is too long, is not UTF-8 or
	// has an impossible field. The error says which.
	ErrInvalidMessage = errors.New("invalid message")

	// ErrUnknownAgent refuses a message to an agent nobody has registered.
	ErrUnknownAgent = errors.New("unknown agent")

	// ErrAgentRetired refuses a message to an agent that was retired.
	ErrAgentRetired = errors.New("the agent is retired")

	// ErrKeyConflict refuses a message whose idempotency key was used with
	// another body, conversation or agent.
	ErrKeyConflict = errors.New("idempotency key was already used for a different message")

	// ErrNotFound says that no row has the id asked for.
	ErrNotFound = errors.New("not found")

	// ErrFenced refuses a write under a grant that is no longer the turn's.
	// Whoever gets it has lost the lease: it stops, and writes nothing but a
	// late result.
	ErrFenced = errors.New("the lease is no longer held")

	// ErrJournalMoved says that the journal no longer is what the writer read:
	// a late result of an earlier holder came between. Load it again and go on
	// from what it says.
	ErrJournalMoved = errors.New("the journal has moved on")

	// ErrWrongState refuses what an operator asked for, because of where the turn
	// or the message stands. The error says where.
	ErrWrongState = errors.New("not possible as things stand")

	// ErrBadMove refuses a change of state that the state machine does not
	// know.
	ErrBadMove = errors.New("state change refused")
)

// A moveError is a refused change of state. It matches ErrBadMove.
type moveError struct {
	What     string // "turn" or "tool call"
	From, To string
}

func (e *moveError) Error() string {
	return fmt.Sprintf("%s cannot go from %s to %s", e.What, e.From, e.To)
}

// Is makes every moveError match ErrBadMove.
func (e *moveError) Is(target error) bool { return target == ErrBadMove }

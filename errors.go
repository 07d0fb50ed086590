package turnkeeper

import (
	"errors"
	"fmt"
)

// Errors that callers check with errors.Is.
var (
	// ErrEmptyMessage refuses a message without a body.
	ErrEmptyMessage = errors.New("message cannot be empty")

	// ErrInvalidMessage refuses a message that is too long, is not UTF-8 or
	// has an invalid field. The error names it.
	ErrInvalidMessage = errors.New("invalid message")

	// ErrUnknownAgent refuses a message to an agent that no worker registered.
	ErrUnknownAgent = errors.New("unknown agent")

	// ErrAgentRetired refuses a message to a retired agent.
	ErrAgentRetired = errors.New("the agent is retired")

	// ErrKeyConflict refuses a message whose idempotency key was used for
	// another body, conversation or agent.
	ErrKeyConflict = errors.New("idempotency key was already used for a different message")

	// ErrNotFound reports that no row has the id.
	ErrNotFound = errors.New("not found")

	// ErrFenced refuses a write under a grant that is no longer the turn's. The
	// caller has lost the lease: it stops, and may only write a late result.
	ErrFenced = errors.New("the lease is no longer held")

	// ErrJournalMoved reports that the journal changed since the writer read it,
	// by a late result that came just before the turn was granted. Load it again and continue from it.
	ErrJournalMoved = errors.New("the journal has moved on")

	// ErrWrongState refuses an operation in the current state of the turn or the
	// message. The error names the state.
	ErrWrongState = errors.New("not possible as things stand")

	// ErrBadMove refuses a change of state that the state machine does not allow.
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

// Is matches ErrBadMove.
func (e *moveError) Is(target error) bool { return target == ErrBadMove }

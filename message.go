package turnkeeper

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Defaults and limits of a message.
const (
	DefaultConversation    = "main"
	DefaultMaxMessageBytes = 64 << 10
	MaxNameLength          = 63
	MaxKeyLength           = 200
	MinPriority            = -1000
	MaxPriority            = 1000
	LargestMessage         = 16 << 20 // the upper bound of max_message_bytes, in bytes
)

// Trigger is what started a turn.
type Trigger string

// The triggers.
const (
	TriggerMessage  Trigger = "message"  // a message in the inbox
	TriggerSchedule Trigger = "schedule" // a slot of a schedule
)

// MessageState is the state of a message.
type MessageState string

// The states of a message. A message that waits for a retry is waiting.
const (
	MessageWaiting   MessageState = "waiting"
	MessageRunning   MessageState = "running"   // it has an open turn
	MessageSucceeded MessageState = "succeeded" // its turn has; these and the following are the outcome of its turn
	MessageDegraded  MessageState = "degraded"
	MessageFailed    MessageState = "failed" // its last attempt failed, and its reply says so
	MessageCancelled MessageState = "cancelled"
)

// A Submission is a message before it is accepted.
type Submission struct {
	Agent        string
	User         string // whose conversation it is; empty: no user's. See ConversationKey
	Conversation string // empty: DefaultConversation
	Body         string
	Key          string // idempotency key; empty: none
	// each point counts as a second of waiting: see Message.Rank; above max_sender_priority (0) only for operators
	Priority    int
	TraceParent string // W3C trace context of the sender; empty: none

	// DueAt is the earliest time to run the message, rounded up to a second. Zero or past:
	// at once. At most 3,660 days ahead.
	DueAt time.Time
}

// ConversationKey returns the key of the conversation that the message is for.
func (s Submission) ConversationKey() ConversationKey {
	return ConversationKey{Agent: s.Agent, User: s.User, Name: cmp.Or(s.Conversation, DefaultConversation)}
}

// A Message is a row of the inbox.
type Message struct {
	ID           MessageID
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Lane         Lane
	Body         string
	Key          string
	Priority     int
	Trigger      Trigger
	Schedule     string    // name of the schedule; empty for TriggerMessage
	Slot         time.Time // the slot of the schedule; zero for TriggerMessage
	State        MessageState
	Attempts     int       // turns started for it
	DueAt        time.Time // it runs no earlier; whole seconds
	AcceptedAt   time.Time
	ClosedAt     time.Time // zero while open
	TurnID       TurnID    // its newest turn; 0 before the first
	Outcome      TurnState // of the turn that closed it; empty while open
	LastError    string    // error of the newest failed attempt, for operators
	Faults       int       // failed attempts that count
	WaitsFor     []string  // models that it waits for, all down; nil: none
	TraceParent  string
	SentBy       string // role:NAME, token:ID, schedule:NAME, or turn:ID for one to a sub-agent
}

// ToSubAgent reports whether another agent sent the message.
func (m Message) ToSubAgent() bool { return strings.HasPrefix(m.SentBy, "turn:") }

// ConversationKey returns the key of the message's conversation.
func (m Message) ConversationKey() ConversationKey {
	return ConversationKey{Agent: m.Agent, User: m.User, Name: m.Conversation}
}

// Rank returns the message's place in its lane: its due time less one second for each point of its priority. The
// lower rank goes first, then the lower ID. It is the same rule as the function rank_of in SQL.
func (m Message) Rank() time.Time { return m.DueAt.Add(-time.Duration(m.Priority) * time.Second) }

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// CheckAgentName returns an error if an agent's name is invalid.
func CheckAgentName(name string) error {
	if name == "" {
		return fmt.Errorf("the agent's name is missing")
	}
	if len(name) > MaxNameLength || !nameForm.MatchString(name) {
		return fmt.Errorf("agent name %q: use at most %d of a-z, 0-9, _ and -, starting with a letter or digit", name,
			MaxNameLength)
	}
	return nil
}

// Check returns an error if the submission is invalid. It matches ErrEmptyMessage or
// ErrInvalidMessage. maxBytes is the maximum size of the body; 0: DefaultMaxMessageBytes.
func (s Submission) Check(maxBytes int) error {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxMessageBytes
	}
	if strings.TrimSpace(s.Body) == "" {
		return ErrEmptyMessage
	}
	if err := CheckAgentName(s.Agent); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	if len(s.Body) > maxBytes {
		return fmt.Errorf("%w: the body has %d bytes, the limit is %d", ErrInvalidMessage, len(s.Body), maxBytes)
	}
	for _, field := range []struct{ name, text string }{
		{"body", s.Body}, {"user's name", s.User}, {"conversation", s.Conversation}, {"idempotency key", s.Key},
	} {
		if err := checkText(field.name, field.text); err != nil {
			return err
		}
	}
	if err := s.ConversationKey().CheckUser(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	if len(s.Conversation) > MaxKeyLength {
		return fmt.Errorf("%w: the conversation's name is longer than %d bytes", ErrInvalidMessage, MaxKeyLength)
	}
	if len(s.Key) > MaxKeyLength {
		return fmt.Errorf("%w: the idempotency key is longer than %d bytes", ErrInvalidMessage, MaxKeyLength)
	}
	if s.Priority < MinPriority || s.Priority > MaxPriority {
		return fmt.Errorf("%w: priority %d is outside %d to %d", ErrInvalidMessage, s.Priority,
			MinPriority, MaxPriority)
	}
	return nil
}

// maxDelay is the maximum time from the acceptance of a message until it is due.
const maxDelay = 3660 * 24 * time.Hour

// DueFrom returns when the message is due if it is accepted at now, in whole seconds. An error
// matches ErrInvalidMessage.
func (s Submission) DueFrom(now time.Time) (time.Time, error) {
	switch {
	case s.DueAt.After(now.Add(maxDelay)):
		return time.Time{}, fmt.Errorf("%w: its time is more than ten years ahead", ErrInvalidMessage)
	case s.DueAt.After(now):
		return s.DueAt.Add(time.Second - time.Microsecond).Truncate(time.Second), nil
	}
	return now.Truncate(time.Second), nil
}

func checkText(name, text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: the %s is not valid UTF-8", ErrInvalidMessage, name)
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return fmt.Errorf("%w: the %s has a NUL character at byte %d", ErrInvalidMessage, name, i)
	}
	return nil
}

package turnkeeper

import (
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
)

// Trigger says what started a turn.
type Trigger string

// The triggers.
const (
	TriggerMessage  Trigger = "message"  // somebody put a message into the inbox
	TriggerSchedule Trigger = "schedule" // a slot of the agent's schedule was due
)

// MessageState is where a message of the inbox stands.
type MessageState string

// The states of a message. A message that waits for a retry is waiting; its
// lane says until when.
const (
	MessageWaiting   MessageState = "waiting"
	MessageRunning   MessageState = "running"  // it has an open turn
	MessageAnswered  MessageState = "answered" // its turn succeeded or was degraded
	MessageFailed    MessageState = "failed"   // every attempt failed; the reply says so
	MessageCancelled MessageState = "cancelled"
)

// A Submission is a message before it is accepted.
type Submission struct {
	Agent        string
	Conversation string // empty: DefaultConversation
	Body         string
	Key          string // idempotency key; empty: none
	Priority     int    // higher goes first among messages due in the same second
	TraceParent  string // W3C trace context of the sender; empty: none

	// DueAt is when the message may be run at the earliest, to the next whole second;
	// zero or past: at once. It may be ten years ahead.
	DueAt time.Time
}

// A Message is a row of the inbox.
type Message struct {
	ID           MessageID
	Agent        string
	Conversation string
	Lane         Lane
	Body         string
	Key          string
	Priority     int
	Trigger      Trigger
	Schedule     string    // name of the schedule; empty for TriggerMessage
	Slot         time.Time // the slot it stands for; zero for TriggerMessage
	State        MessageState
	Attempts     int       // turns begun for it
	DueAt        time.Time // not picked before; whole seconds
	AcceptedAt   time.Time
	ClosedAt     time.Time // zero while open
	TurnID       TurnID    // its newest turn; 0 before the first
	Outcome      TurnState // of the turn that closed it; empty: it is open
	LastError    string    // why its newest attempt failed, for operators
	Faults       int       // turns that failed by what counts against it
	WaitsFor     []string  // models, all of them down, that it waits for; nil: none
	TraceParent  string
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// CheckAgentName says what is wrong with an agent's name, or nil.
func CheckAgentName(name string) error {
	if name == "" {
		return fmt.Errorf("the agent's name is missing")
	}
	if len(name) > MaxNameLength || !nameForm.MatchString(name) {
		return fmt.Errorf("agent name %q: use at most %d of a-z, 0-9, _ and -, starting with a letter or digit", name, MaxNameLength)
	}
	return nil
}

// Check says what is wrong with the submission, or nil. maxBytes bounds the
// body; 0 means DefaultMaxMessageBytes. The errors match ErrEmptyMessage or
// ErrInvalidMessage.
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
		{"body", s.Body}, {"conversation", s.Conversation}, {"idempotency key", s.Key},
	} {
		if err := checkText(field.name, field.text); err != nil {
			return err
		}
	}
	if len(s.Conversation) > MaxKeyLength {
		return fmt.Errorf("%w: the conversation's name is longer than %d bytes", ErrInvalidMessage, MaxKeyLength)
	}
	if len(s.Key) > MaxKeyLength {
		return fmt.Errorf("%w: the idempotency key is longer than %d bytes", ErrInvalidMessage, MaxKeyLength)
	}
	if s.Priority < MinPriority || s.Priority > MaxPriority {
		return fmt.Errorf("%w: priority %d is outside %d to %d", ErrInvalidMessage, s.Priority, MinPriority, MaxPriority)
	}
	return nil
}

// MaxDelay is how far ahead a message may be due.
const MaxDelay = 3660 * 24 * time.Hour

// DueFrom returns when a message is due that is accepted at now, in whole seconds, or an error
// that matches ErrInvalidMessage.
func (s Submission) DueFrom(now time.Time) (time.Time, error) {
	switch {
	case s.DueAt.After(now.Add(MaxDelay)):
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

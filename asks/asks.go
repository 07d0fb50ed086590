// Package asks describes questions that a turn puts to a person: the approval of a tool call, or a question of the model.
// A turn that waits for the answer is a row in the database; it holds no lease, no slot and no connection.
package asks

import (
	"errors"
	"fmt"
	"time"

	"turnkeeper"
)

// An ID is the number of an ask.
type ID int64

// WebhookID returns the id of the deliveries of the ask to webhooks.
func (id ID) WebhookID() string { return fmt.Sprintf("ask_%d", id) }

// A Kind is what an ask is about.
type Kind string

// The kinds.
const (
	KindApprove  Kind = "approve"  // may this call run with these arguments?
	KindQuestion Kind = "question" // the model asks with the tool ask_person
	KindInput    Kind = "input"    // a tool's server asks for input
	KindSettle   Kind = "settle"   // did this call of unknown outcome happen?
	KindBudget   Kind = "budget"   // may the turn go on although its budget is used up?
)

// A State is the state of an ask. Only Open changes.
type State string

// The states.
const (
	Open      State = "open"
	Approved  State = "approved"
	Denied    State = "denied"
	Answered  State = "answered"
	Expired   State = "expired"   // nobody answered in time, which denies
	Withdrawn State = "withdrawn" // its turn ended before anybody answered
)

// Takes returns the state that a positive answer gives an ask of the kind: Approved or Answered.
func (k Kind) Takes() State {
	if k == KindApprove || k == KindBudget {
		return Approved
	}
	return Answered
}

// Decides reports whether a person can give an ask of the kind this state.
func (k Kind) Decides(s State) bool { return s == k.Takes() || s == Denied && k != KindSettle }

// The answers of a KindSettle ask, as JSON.
const (
	Happened     = `"happened"`
	DidNotHappen = `"did_not_happen"` // the call may run again
	Unknown      = `"unknown"`
)

// A Question is an ask that a turn opens.
type Question struct {
	Call      turnkeeper.CallKey // of KindBudget: the round that it would be in, and ordinal 0
	Kind      Kind
	N         int // KindSettle: the start that it is about; else the number of the ask of its kind about the call, from 1
	Tool      string
	Arguments string // JSON: those that will run, with handles replaced by their texts
	Rule      string // that asked; empty: none
	Reason    string // one sentence; empty: none
	Schema    string // JSON Schema of the answer or, of KindApprove, of edited arguments; empty: the ask takes none
	Resume    string // KindInput: what the tool needs to go on with the answer; not for people
	Terms
}

// Terms are an agent's settings of its asks. They are the same for all asks of an entry of the journal.
type Terms struct {
	Audience []string // who may answer; empty: anybody who may answer asks
	Hold     bool     // the conversation's later messages wait for the answer
	Timeout  time.Duration
}

// An Ask is one question to a person.
type Ask struct {
	Question
	ID        ID
	Turn      turnkeeper.TurnID
	State     State
	Hash      string // hex SHA-256 of Tool, a NUL and Arguments
	OpenedAt  time.Time
	ExpiresAt time.Time
	Seen      bool // the turn has taken note of the answer
	Used      bool // KindInput: the call went on with the answer, or with the lack of one

	// The answer. ClosedAt is zero and the rest empty while the ask is open.
	ClosedAt   time.Time
	AnsweredBy string
	Channel    string // http, page, turnctl, sql
	Comment    string
	Answer     string // JSON
	Edited     string // JSON: arguments that the person put in place of Arguments; empty: none
	EditedHash string // likewise, as Hash
}

// Closed reports whether the ask has its final state.
func (a Ask) Closed() bool { return a.State != Open }

// RunArguments returns the arguments with which an approved call runs.
func (a Ask) RunArguments() string {
	if a.Edited != "" {
		return a.Edited
	}
	return a.Arguments
}

// RunHash returns the hash of RunArguments.
func (a Ask) RunHash() string {
	if a.Edited != "" {
		return a.EditedHash
	}
	return a.Hash
}

// An Answer is what a person says.
type Answer struct {
	Decision State  // Approved, Denied or Answered
	By       string // who answers
	Channel  string
	Comment  string // for the model; may be empty
	Answer   string // JSON; with Answered
	Edited   string // JSON; with Approved: run the call with these arguments. Empty: unchanged
	Hash     string // of the ask that the person saw; empty: not compared
}

// Errors of answering.
var (
	// ErrClosed means that the ask has another answer, has expired, or was withdrawn.
	ErrClosed = errors.New("the ask is closed")
	// ErrInvalid means that the ask does not take this answer.
	ErrInvalid = errors.New("invalid answer")
	// ErrNotApproved means that a call was about to start without the approval that it needs.
	ErrNotApproved = errors.New("the call is not approved")
)

// DefaultTimeout is how long an ask is open unless the agent says otherwise.
const DefaultTimeout = 72 * time.Hour

// MaxComment is the maximum length of a comment in bytes, and MaxAnswer that of an answer.
const (
	MaxComment = 4000
	MaxAnswer  = 64 << 10
)

// Package asks defines asks: questions that a turn puts to a person, such as the approval of a tool call or a question
// of the model. A turn that waits for the answer is a row in the database. It holds no lease, no slot and no
// connection.
package asks

import (
	"errors"
	"fmt"
	"time"

	"turnkeeper"
)

// An ID is the number of an ask.
type ID int64

// WebhookID returns the webhook-id under which webhooks get the ask.
func (id ID) WebhookID() string { return fmt.Sprintf("ask_%d", id) }

// A Kind is the kind of an ask.
type Kind string

// The kinds.
const (
	KindApprove  Kind = "approve"  // may this call run with these arguments?
	KindQuestion Kind = "question" // the model asks with the tool ask_person
	KindInput    Kind = "input"    // a tool's server asks for input
	KindSettle   Kind = "settle"   // did this call of unknown outcome happen?
	KindBudget   Kind = "budget"   // may the turn continue although its budget is used up?
	KindReply    Kind = "reply"    // may this reply, which may hold private content, be sent?
)

// A State is the state of an ask. All states but Open are final.
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

// Takes returns the state after a positive answer: Approved or Answered.
func (k Kind) Takes() State {
	if k == KindApprove || k == KindBudget || k == KindReply {
		return Approved
	}
	return Answered
}

// Decides reports whether a person's answer can put an ask of this kind into the state.
func (k Kind) Decides(s State) bool { return s == k.Takes() || s == Denied && k != KindSettle }

// Check returns an error that is ErrInvalid if a person cannot give an ask of the kind this state.
func (k Kind) Check(s State) error {
	if k.Decides(s) {
		return nil
	}
	takes := string(k.Takes())
	if k != KindSettle {
		takes += " or denied"
	}
	return fmt.Errorf("%w: an ask of kind %s can be %s, not %s", ErrInvalid, k, takes, s)
}

// The answers to a KindSettle ask, as JSON.
const (
	Happened     = `"happened"`
	DidNotHappen = `"did_not_happen"` // the call may run again
	Unknown      = `"unknown"`
)

// A Question is an ask that a turn opens.
type Question struct {
	Call      turnkeeper.CallKey // KindBudget: the next round, and ordinal 0; KindReply: the last round, and ordinal 0
	Kind      Kind
	N         int    // KindSettle: the number of the start; else counts the asks of this kind about the call, from 1
	Tool      string // KindReply: "reply"
	Arguments string // JSON, as the tool will get them: handles are replaced by the text of their results
	Rule      string // the rule that asked; empty: none
	Reason    string // one sentence; empty: none
	Schema    string // JSON Schema of the answer (KindApprove: of edited arguments); empty: the ask takes none
	Resume    string // KindInput: the state that the tool needs to continue; not shown to people
	Terms
}

// Terms are an agent's settings for its asks. All asks of one journal entry have the same terms.
type Terms struct {
	Audience []string // who may answer; empty: anybody who may answer asks
	Hold     bool     // later messages of the conversation wait for the answer
	Timeout  time.Duration
}

// An Ask is a question to a person, with its state and answer.
type Ask struct {
	Question
	ID        ID
	Turn      turnkeeper.TurnID
	State     State
	Hash      string // hex SHA-256 of Tool, a NUL and Arguments
	OpenedAt  time.Time
	ExpiresAt time.Time
	Seen      bool // the turn has recorded that it saw the answer
	Used      bool // KindInput: the call continued, with or without an answer

	// The answer. ClosedAt is zero and the rest empty while the ask is open.
	ClosedAt   time.Time
	AnsweredBy string
	Channel    string // http, page, turnctl, sql
	Comment    string
	Answer     string // JSON
	Edited     string // JSON: arguments that replace Arguments; empty: none
	EditedHash string // of Edited, computed like Hash
}

// Closed reports whether the state is final.
func (a Ask) Closed() bool { return a.State != Open }

// Allows reports whether a person has allowed the call to start: by an approval, or because its last start did not
// happen.
func (a Ask) Allows() bool {
	return a.Kind == KindApprove && a.State == Approved || a.Kind == KindSettle && a.Answer == DidNotHappen
}

// RunHash returns the hash of the arguments with which an approved call runs: Edited, else Arguments.
func (a Ask) RunHash() string {
	if a.Edited != "" {
		return a.EditedHash
	}
	return a.Hash
}

// An Answer is a person's answer to an ask.
type Answer struct {
	Decision State  // Approved, Denied or Answered
	By       string // the person who answers
	Channel  string
	Comment  string // for the model; may be empty
	Answer   string // JSON; only with Answered
	Edited   string // JSON; only with Approved: run the call with these arguments. Empty: unchanged
	Hash     string // the hash of the ask that the person saw; empty: not compared
}

// Errors of answering.
var (
	// ErrClosed is returned if the ask has another answer, has expired, or was withdrawn.
	ErrClosed = errors.New("the ask is closed")
	// ErrInvalid is returned if the answer is invalid for the ask.
	ErrInvalid = errors.New("invalid answer")
	// ErrNotApproved is returned if a call would start without the approval that it needs.
	ErrNotApproved = errors.New("the call is not approved")
)

// DefaultTimeout is the timeout of asks whose agent sets none.
const DefaultTimeout = 72 * time.Hour

// The maximum lengths of a comment and an answer, in bytes.
const (
	MaxComment = 4000
	MaxAnswer  = 64 << 10
)

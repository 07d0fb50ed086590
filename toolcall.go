package turnkeeper

import (
	"slices"
	"time"
)

// Effect says what running a tool a second time would do.
type Effect string

// The effects. The zero value counts as EffectOnce.
const (
	EffectNone  Effect = "none"  // reads only: may run again, and beside others
	EffectKeyed Effect = "keyed" // may run again with the same idempotency key
	EffectOnce  Effect = "once"  // is never started twice
)

// Repeatable says that a started call may be started again.
func (e Effect) Repeatable() bool { return e == EffectNone || e == EffectKeyed }

// CallState is where a tool call stands.
type CallState string

// The states of a tool call.
const (
	CallPlanned   CallState = "planned"
	CallStarted   CallState = "started"
	CallRunning   CallState = "running" // gone to the background
	CallSucceeded CallState = "succeeded"
	CallFailed    CallState = "failed"
	CallSkipped   CallState = "skipped" // answered without running: dedupe, cool-down, repeated
	CallDenied    CallState = "denied"  // not allowed, over a cap, bad arguments or no time
	CallUnknown   CallState = "unknown" // started by a lost worker; nobody knows what happened
	CallCancelled CallState = "cancelled"
)

// Every move a call can make. planned → succeeded and planned → failed are for
// calls of effect none, which need no start on record, and for calls that were
// answered with an error because nothing could run. running → started is a call
// of a lost worker that is run again.
var callMoves = map[CallState][]CallState{
	CallPlanned: {CallStarted, CallSucceeded, CallFailed, CallSkipped, CallDenied, CallCancelled},
	CallStarted: {CallStarted, CallRunning, CallSucceeded, CallFailed, CallUnknown, CallCancelled},
	CallRunning: {CallStarted, CallSucceeded, CallFailed, CallUnknown, CallCancelled},
}

// Answered says that the call has a result to show the model.
func (s CallState) Answered() bool {
	return s != CallPlanned && s != CallStarted && s != CallRunning
}

// Executed says that the call ran, or may have.
func (s CallState) Executed() bool {
	return s == CallStarted || s == CallRunning || s == CallSucceeded || s == CallFailed || s == CallUnknown || s == CallCancelled
}

// MoveTo checks the move from s to next. A refused move is an error that matches ErrBadMove.
func (s CallState) MoveTo(next CallState) error {
	if slices.Contains(callMoves[s], next) {
		return nil
	}
	return &moveError{What: "tool call", From: string(s), To: string(next)}
}

// The tools by which a model reads more of stored results, and waits for those
// that are not there yet.
const (
	ToolGetContinuation   = "get_continuation"
	ToolGetToolOutput     = "get_tool_output"
	ToolWaitForToolOutput = "wait_for_tool_output"
)

// A ToolCall is one call that a model asked for.
type ToolCall struct {
	Key        CallKey
	WireID     string // the id answered to the provider; unique in the turn
	ProviderID string // the id as the provider sent it; may be empty or repeated
	Name       string
	Arguments  string // canonical JSON object, as validated; what is hashed and run
	RawArgs    string // as the provider sent them, where that differs; else empty
	ArgsHash   string // hex SHA-256 of Name, a NUL and Arguments
	Effect     Effect
	Paging     bool // reads stored outputs; not counted as executed
	State      CallState
	Starts     int    // how often it was started
	Nonce      string // of its newest start; empty: never started
	StartedAt  time.Time
	EndedAt    time.Time
	Duration   time.Duration // how long it ran; 0: it did not, or nobody knows
	Usage      Usage         // of model calls that were made for it; as a rule there are none
	Shown      string        // what the model is shown as its result
	Preview    string        // at most 220 characters of it, for summaries
	OutputID   OutputID
	Awaited    bool   // it runs outside of the turn's dispatches, and its result arrives
	LateResult string // a result that came after the verdict unknown; changes nothing
}

// An Output is the full text of a tool result.
type Output struct {
	ID          OutputID
	TurnID      TurnID
	Call        CallKey
	MediaType   string
	Text        string // cleaned text; empty for binary
	Bytes       []byte // binary; nil for text
	SizeBytes   int64  // of the stored content
	RawBytes    int64  // as the tool produced it
	Chars       int64  // Unicode characters of Text
	Tokens      int64  // estimate
	SHA256      string // hex, of the stored content
	Retrieved   int64
	CreatedAt   time.Time
	Incomplete  bool // cut at the size limit
	Description string
	// Drafted says that the content was written before, in parts (OutputPart), and
	// that Text is empty; Bytes is then only nil or not.
	Drafted bool
}

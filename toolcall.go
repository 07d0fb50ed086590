package turnkeeper

import (
	"slices"
	"time"
)

// Effect is what a second run of a tool would do.
type Effect string

// The effects. The zero value counts as EffectOnce.
const (
	EffectNone  Effect = "none"  // reads only: may run again, and concurrently
	EffectKeyed Effect = "keyed" // may run again with the same idempotency key
	EffectOnce  Effect = "once"  // is never started twice
)

// Repeatable reports whether a started call may be started again.
func (e Effect) Repeatable() bool { return e == EffectNone || e == EffectKeyed }

// CallState is the state of a tool call.
type CallState string

// The states of a tool call.
const (
	CallPlanned   CallState = "planned"
	CallStarted   CallState = "started"
	CallRunning   CallState = "running" // moved to the background, or awaited
	CallSucceeded CallState = "succeeded"
	CallFailed    CallState = "failed"
	CallSkipped   CallState = "skipped" // answered without running: repeated, or in cooldown
	CallDenied    CallState = "denied"  // not allowed, over a limit, invalid arguments, or no time
	CallUnknown   CallState = "unknown" // started by a lost worker; the outcome is unknown
	CallCancelled CallState = "cancelled"
)

// callMoves are all allowed moves. planned → succeeded and planned → failed are for
// calls with effect none, which need no recorded start, and for errors before a
// start. running → started is a repeated call of a lost worker.
var callMoves = map[CallState][]CallState{
	CallPlanned: {CallStarted, CallSucceeded, CallFailed, CallSkipped, CallDenied, CallCancelled},
	CallStarted: {CallStarted, CallRunning, CallSucceeded, CallFailed, CallUnknown, CallCancelled},
	CallRunning: {CallStarted, CallSucceeded, CallFailed, CallUnknown, CallCancelled},
}

// Answered reports whether the call has a result for the model.
func (s CallState) Answered() bool {
	return s != CallPlanned && s != CallStarted && s != CallRunning
}

// Executed reports whether the call ran, or may have run.
func (s CallState) Executed() bool {
	return s == CallStarted || s == CallRunning || s == CallSucceeded || s == CallFailed || s == CallUnknown ||
		s == CallCancelled
}

// MoveTo checks the move from s to next. A refused move is an error that matches ErrBadMove.
func (s CallState) MoveTo(next CallState) error {
	if slices.Contains(callMoves[s], next) {
		return nil
	}
	return &moveError{What: "tool call", From: string(s), To: string(next)}
}

// The tools with which a model reads stored results and waits for background calls.
const (
	ToolGetContinuation   = "get_continuation"
	ToolGetToolOutput     = "get_tool_output"
	ToolWaitForToolOutput = "wait_for_tool_output"
)

// A ToolCall is one call that a model asked for.
type ToolCall struct {
	Key        CallKey
	WireID     string // the id that is sent back to the provider; unique in the turn
	ProviderID string // the id as the provider sent it; may be empty or repeated
	Name       string
	Arguments  string // canonical JSON object, as planned and validated
	RawArgs    string // as the provider sent them; empty: equal to Arguments
	// canonical, of the newest start: after a person's edit, and with texts for handles; empty: equal to Arguments
	RunArgs    string
	ArgsHash   string // hex SHA-256 of Name, a NUL and the arguments of the newest start, or as planned
	Effect     Effect
	Paging     bool // reads a stored result; does not count as executed
	State      CallState
	Starts     int    // number of starts
	Nonce      string // of the newest start; empty: never started
	StartedAt  time.Time
	EndedAt    time.Time
	Duration   time.Duration // how long it ran; 0: it did not run, or unknown
	Usage      Usage         // of model calls made for this call; usually zero
	Shown      string        // the result as the model sees it
	Preview    string        // at most 220 characters of Shown, for summaries
	OutputID   OutputID
	Awaited    bool   // it is detached or a sub-agent's: its result comes from outside the turn
	LateResult string // a result that arrived after CallUnknown was recorded; changes nothing
}

// AsRun returns the arguments with which the call ran, or would run. Texts for handles are shortened in it if all of it
// would have more than 256 KiB.
func (c ToolCall) AsRun() string {
	if c.RunArgs != "" {
		return c.RunArgs
	}
	return c.Arguments
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
	Incomplete  bool // cut at MaxOutputBytes
	Description string
	ExpiredAt   time.Time // when retention deleted its content; zero: it is stored
	// Drafted reports that the content was written before in parts, so Text is empty.
	// Bytes then only distinguishes text (nil) from binary.
	Drafted bool
}

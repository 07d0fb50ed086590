package turnkeeper

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Reply is the one outbox row that a message ends with.
type Reply struct {
	ID           ReplyID
	MessageID    MessageID
	TurnID       TurnID
	Agent        string
	Conversation string
	Outcome      TurnState // succeeded, degraded, failed or cancelled
	Body         string    // empty: the agent replies to such an outcome without a text
	StopReason   StopReason
	ErrorClass   string      // of the error that ended the turn; empty: none
	Calls        []ReplyCall // of the turn, in the order they were asked for
	CreatedAt    time.Time
	ParentTurn   TurnID // that a sub-agent wrote it for; 0: it is no sub-agent's
}

// A ReplyCall is what became of a tool call, without what its tool returned.
type ReplyCall struct {
	Key      CallKey
	Ordinal  int // in the turn, from 1
	Name     string
	Effect   Effect
	State    CallState
	Duration time.Duration // negative: it did not run, or nobody knows how long
	Problem  string        // empty: there is none
}

// The problems of calls that do not depend on what was said of them. The function
// turnkeeper.call_problem of the database has the same.
const (
	ProblemFailed    = "the tool failed"
	ProblemInDoubt   = "it may or may not have happened"
	ProblemNotRun    = "not run"
	problemRefused   = "refused"
	ProblemCancelled = "cancelled before it ended"
)

const maxProblem = 200 // characters

var timedOut = regexp.MustCompile(`^tool error: '[^']*' (timed out after [0-9.]+ s)`)

// Problem says in plain words why a call did not succeed; empty: it did, or was not
// needed. What its tool returned is not in it.
func (c ToolCall) Problem() string {
	switch c.State {
	case CallSucceeded, CallSkipped:
		return ""
	case CallFailed:
		if found := timedOut.FindStringSubmatch(c.Preview); found != nil {
			return found[1]
		}
		return ProblemFailed
	case CallDenied:
		return refusalOf(c.Shown)
	case CallCancelled:
		if !c.InDoubt() {
			return ProblemCancelled
		}
	case CallPlanned:
		return ProblemNotRun
	default:
	}
	return ProblemInDoubt
}

// refusalOf is the reason of a refused call: the first line of what the model was told.
func refusalOf(shown string) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(shown, "denied: "), "\n")
	switch {
	case line == "" || strings.HasPrefix(line, "{"):
		return problemRefused
	case utf8.RuneCountInString(line) > maxProblem:
		return string([]rune(line)[:maxProblem])
	}
	return line
}

// InDoubt says that nobody knows whether a call happened: its worker was lost, or it
// was stopped while it ran.
func (c ToolCall) InDoubt() bool {
	return c.State == CallUnknown || c.State == CallCancelled && c.Effect != EffectNone && c.Nonce != ""
}

// AnyInDoubt says that one of the calls is in doubt.
func AnyInDoubt(calls []ToolCall) bool { return slices.ContainsFunc(calls, ToolCall.InDoubt) }

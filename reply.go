package turnkeeper

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// A Reply is the one reply to a message.
type Reply struct {
	ID           ReplyID
	MessageID    MessageID
	TurnID       TurnID
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Outcome      TurnState // succeeded, degraded, failed or cancelled
	Body         string    // empty: the agent sends no text for this outcome
	StopReason   StopReason
	ErrorClass   string      // of the error that ended the turn; empty: none
	Calls        []ReplyCall // of the turn, in the order the model asked for them
	Labels       []string    // of what the turn knew, sorted: "private", "untrusted"
	CreatedAt    time.Time
	ParentTurn   TurnID // the turn that called the sub-agent which wrote it; 0: not by a sub-agent
}

// WebhookID returns the id of the reply in webhook requests, equal for all attempts.
func (id ReplyID) WebhookID() string { return fmt.Sprintf("reply_%d", id) }

// A ReplyCall is the outcome of a tool call, without its result.
type ReplyCall struct {
	Key      CallKey
	Ordinal  int // number of the call in the turn, from 1
	Name     string
	Effect   Effect
	State    CallState
	Duration time.Duration // negative: it did not run, or the duration is unknown
	Problem  string        // empty: none
}

// The texts of ToolCall.Problem that depend only on the state. The SQL function
// turnkeeper.call_problem has the same.
const (
	problemFailed    = "the tool failed"
	problemInDoubt   = "it may or may not have happened"
	problemNotRun    = "not run"
	problemRefused   = "refused"
	problemCancelled = "cancelled before it ended"
)

const maxProblem = 200 // characters

var timedOut = regexp.MustCompile(`^tool error: '[^']*' (timed out after [0-9.]+ s)`)

// Problem returns in plain words why a call did not succeed, or "" if it did or was not
// needed. It contains nothing of the tool's result.
func (c ToolCall) Problem() string {
	switch c.State {
	case CallSucceeded, CallSkipped:
		return ""
	case CallFailed:
		if found := timedOut.FindStringSubmatch(c.Preview); found != nil {
			return found[1]
		}
		return problemFailed
	case CallDenied:
		return refusalOf(c.Shown)
	case CallCancelled:
		if !c.InDoubt() {
			return problemCancelled
		}
	case CallPlanned:
		return problemNotRun
	default:
	}
	return problemInDoubt
}

// refusalOf returns the reason of a refused call: the first line of the text for the model.
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

// InDoubt reports whether the outcome of a call is unknown: its worker was lost, or it was
// cancelled while it ran.
func (c ToolCall) InDoubt() bool {
	return c.State == CallUnknown || c.State == CallCancelled && c.Effect != EffectNone && c.Nonce != ""
}

package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// Turn is one turn in detail.
type Turn struct {
	operate.TurnView
	Attempts []waiting.Turn       // all turns of the message
	As, Of   turnkeeper.MessageID // the message's retry, and the message it is a retry of; 0: none
	Asks     []operate.Ask        // of the turn, newest first
	Now      time.Time
}

func (Turn) file() string    { return "turn" }
func (p Turn) title() string { return fmt.Sprintf("Turn %d", p.Turn.ID) }
func (Turn) section() string { return "/turns" }

// Open reports whether the turn is open.
func (p Turn) Open() bool { return !p.Turn.State.Terminal() }

// Deleted returns a sentence for each class of what was stored of the turn that retention has deleted.
func (p Turn) Deleted() []string { return words.Expired(p.Turn, p.Outputs, rfc3339) }

func rfc3339(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Finishing reports whether the turn was asked to finish.
func (p Turn) Finishing() bool { return p.End != nil && p.End.How == turnlog.EndFinish }

// WaitsFor returns the reasons why the turn waits, as sentences.
func (p Turn) WaitsFor(now time.Time) []string { return sentences(p.WithWaits().Waits, now) }

// CanRetry reports whether to offer a retry of the message; the store decides.
func (p Turn) CanRetry() bool {
	return !p.Open() && p.As == 0 && p.Turn.State != turnkeeper.TurnSucceeded &&
		(p.Message.TurnID == p.Turn.ID || p.Message.State == turnkeeper.MessageWaiting)
}

// Risky reports whether a retry may repeat effects.
func (p Turn) Risky() bool {
	return p.Turn.State == turnkeeper.TurnDegraded || p.Turn.State == turnkeeper.TurnCancelled && p.Turn.Dispatches > 0
}

// MayHaveActed reports whether a call may have had an effect.
func (p Turn) MayHaveActed() bool {
	return slices.ContainsFunc(p.Rounds, func(r turnkeeper.Round) bool {
		return slices.ContainsFunc(r.Calls, p.Turn.MayHaveActed)
	})
}

// Took returns the duration of the turn so far.
func (p Turn) Took() time.Duration {
	if p.Open() {
		return max(p.Now.Sub(p.Turn.CreatedAt), 0)
	}
	return p.Turn.Duration()
}

// Spent returns the total time of model calls and of tool calls.
func (p Turn) Spent() (s struct{ Models, Tools time.Duration }) {
	for _, r := range p.Rounds {
		s.Models += r.Latency
		for _, c := range r.Calls {
			s.Tools += c.Duration
		}
	}
	return s
}

// Retries returns the number of retried model calls.
func (p Turn) Retries() (n int) {
	for _, r := range p.Rounds {
		n += max(r.Attempts-1, 0)
	}
	return n
}

// FailedFor returns the failed model calls of a round.
func (p Turn) FailedFor(round int) (failed []turnlog.FailedAttempt) {
	for _, f := range p.Failed {
		if f.Round == round {
			failed = append(failed, f)
		}
	}
	return failed
}

// FailedAfter returns the failed model calls of a round without an answer.
func (p Turn) FailedAfter() (failed []turnlog.FailedAttempt) {
	for _, f := range p.Failed {
		if f.Round > len(p.Rounds) {
			failed = append(failed, f)
		}
	}
	return failed
}

// IsReply reports whether a round's text is the reply.
func (p Turn) IsReply(r turnkeeper.Round) bool {
	return p.Reply != nil && r.Text != "" && r.Text == p.Reply.Body
}

// Background reports whether a call ran in the background.
func (Turn) Background(c turnkeeper.ToolCall) bool { return prompt.WentOn(c) }

// Holder returns the worker of a dispatch. An open one may not name it yet: then it is the turn's.
func (p Turn) Holder(d turnkeeper.Dispatch) turnkeeper.WorkerID {
	if d.EndedAt.IsZero() {
		return cmp.Or(d.WorkerID, p.Turn.WorkerID)
	}
	return d.WorkerID
}

// OutputOf returns the stored result of a call; nil: none.
func (p Turn) OutputOf(c turnkeeper.ToolCall) *turnkeeper.Output {
	for i := range p.Outputs {
		if p.Outputs[i].ID == c.OutputID {
			return &p.Outputs[i]
		}
	}
	return nil
}

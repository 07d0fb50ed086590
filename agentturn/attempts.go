package agentturn

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"turnkeeper/agentturn/prompt"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// keptChars is how much is kept of what a failed model call has streamed: of its text, and
// of its reasoning.
const keptChars = 8000

// An overheard is what a model call has streamed so far.
type overheard struct {
	text, reasoning, calls strings.Builder
}

// hear notes a piece of an answer.
func (o *overheard) hear(d inference.Delta) {
	switch d.Kind {
	case inference.DeltaThinking:
		o.reasoning.WriteString(d.Text)
	case inference.DeltaTool:
		if d.Name != "" {
			fmt.Fprintf(&o.calls, "\n[call of %s] ", transcript.CleanName(d.Name))
		}
		o.calls.WriteString(d.Text)
	default:
		o.text.WriteString(d.Text)
	}
}

// kept is what is kept of it: text, and below it the calls that were begun.
func (o *overheard) kept() (text, reasoning string) {
	text = strings.TrimPrefix(o.text.String()+o.calls.String(), "\n")
	return prompt.Ends(outputs.Clean(text), keptChars), prompt.Ends(outputs.Clean(o.reasoning.String()), keptChars)
}

// A textCounter counts the tokens of texts.
type textCounter interface{ CountText(text string) int }

// failedUsage is what a failed model call took. What its provider did not report is
// estimated: the request, and what had been streamed. A call that did not reach a model,
// or was refused by its server, took nothing.
func failedUsage(err error, request int64, heard *overheard, counter textCounter) turnkeeper.Usage {
	var used turnkeeper.Usage
	said := int64(counter.CountText(heard.text.String()) + counter.CountText(heard.reasoning.String()) + counter.CountText(heard.calls.String()))
	if failure, ok := errors.AsType[*inference.Error](err); ok {
		used = failure.Usage
		if said == 0 && used.Total() == 0 && failure.Unworked() {
			return used
		}
	}
	if used.InputTokens == 0 {
		used.InputTokens, used.Estimated = request, true
	}
	if used.OutputTokens < said {
		used.OutputTokens, used.Estimated = said, true
	}
	return used
}

// failed keeps a model call that gave no answer to a round, with the next write.
func (a *attempt) failed(err error, heard *overheard, used turnkeeper.Usage, took time.Duration) {
	class := "interrupted" // by the end of the turn, or of its dispatch
	if failure, ok := errors.AsType[*inference.Error](err); ok {
		class = string(failure.Class)
	}
	text, reasoning := heard.kept()
	a.t.pending.Failed = append(a.t.pending.Failed, turnkeeper.FailedAttempt{
		Round: a.number, Attempt: a.sends, Provider: outputs.Clean(a.model.Provider), Model: outputs.Clean(a.model.Model.Name), Class: class,
		Error: firstChars(outputs.Clean(err.Error()), maxOperatorErrors), Text: text, Reasoning: reasoning, Latency: took, Usage: used,
	})
}

// keepBeside keeps what model calls beside the rounds took, where no round followed to
// count it.
func (t *execution) keepBeside() {
	if t.models.beside == (turnkeeper.Usage{}) {
		return
	}
	t.pending.Failed = append(t.pending.Failed, turnkeeper.FailedAttempt{
		Round: len(t.rounds) + 1, Class: "interrupted", Error: "older turns were summarised for a round that has no answer", Usage: t.models.beside,
	})
	t.models.beside = turnkeeper.Usage{}
}

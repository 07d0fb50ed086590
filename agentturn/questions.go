package agentturn

import (
	"fmt"
	"sync/atomic"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
)

// MaxQuestions is the maximum number of questions that all tools of a turn may ask together: models (tools.Call.Sample)
// and people (tools.InputRequest). Each call has its own limits too.
const MaxQuestions = 50

// questions counts the questions of a turn's tools. Calls in the background ask concurrently.
type questions struct{ asked atomic.Int64 }

// newQuestions counts the questions on record: each input that a person was asked for, and one for each call that has
// asked models.
func newQuestions(r *turnlog.Record) *questions {
	q := &questions{}
	for _, a := range r.Asks {
		if a.Kind == asks.KindInput {
			q.asked.Add(1)
		}
	}
	for _, call := range prompt.CallsOf(r.Rounds) {
		if !call.Paging && call.Usage != (turnkeeper.Usage{}) {
			q.asked.Add(1)
		}
	}
	return q
}

// take counts a question, or returns why it is refused.
func (q *questions) take() error {
	if q.asked.Add(1) > MaxQuestions {
		return &samplingError{
			fmt.Sprintf("the tools of this turn have asked models and people %d times, which is the limit of a turn",
				MaxQuestions)}
	}
	return nil
}

package agentturn

import (
	"testing"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
)

// TestWhichQuestionsAreOnRecord checks which asks and calls of earlier dispatches count.
func TestWhichQuestionsAreOnRecord(t *testing.T) {
	of := func(id asks.ID, kind asks.Kind, n int, state asks.State) asks.Ask {
		return asks.Ask{ID: id, Question: asks.Question{Call: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Kind: kind,
			N: n}, State: state}
	}
	r := &turnlog.Record{Asks: []asks.Ask{
		of(1, asks.KindInput, 1, asks.Answered), of(2, asks.KindInput, 2, asks.Open), of(3, asks.KindApprove, 1,
			asks.Approved),
		of(4, asks.KindQuestion, 1, asks.Answered),
	}}
	used := turnkeeper.Usage{InputTokens: 1}
	r.Rounds = []turnkeeper.Round{{Calls: []turnkeeper.ToolCall{{Usage: used}, {}, {Paging: true, Usage: used},
		{Paging: true}, {Usage: used}}}}
	if got := newQuestions(r).asked.Load(); got != 4 { // two inputs, and two calls that have asked models
		t.Errorf("%d questions", got)
	}
}

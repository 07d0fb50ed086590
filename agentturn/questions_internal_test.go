package agentturn

import (
	"testing"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
)

// TestWhichQuestionsOnRecordCount checks how many questions a turn has left after what is on its record.
func TestWhichQuestionsOnRecordCount(t *testing.T) {
	used := turnkeeper.Usage{InputTokens: 10, OutputTokens: 5}
	ask := func(kind asks.Kind) []asks.Ask {
		return []asks.Ask{{Question: asks.Question{Call: key(1, 1), Kind: kind}, State: asks.Answered}}
	}
	for name, c := range map[string]struct {
		asked []asks.Ask
		calls []turnkeeper.ToolCall
		count int
	}{
		"nothing":                       {},
		"input":                         {asked: ask(asks.KindInput), count: 1},
		"an approval":                   {asked: ask(asks.KindApprove)},
		"a question of the model":       {asked: ask(asks.KindQuestion)},
		"the outcome of a call":         {asked: ask(asks.KindSettle)},
		"a budget":                      {asked: ask(asks.KindBudget)},
		"a reply":                       {asked: ask(asks.KindReply)},
		"a call that asked no model":    {calls: []turnkeeper.ToolCall{{}}},
		"a call that asked a model":     {calls: []turnkeeper.ToolCall{{Usage: used}}, count: 1},
		"a search in a stored result":   {calls: []turnkeeper.ToolCall{{Usage: used, Paging: true}}},
		"calls and input, all together": {ask(asks.KindInput), []turnkeeper.ToolCall{{Usage: used}, {Usage: used}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuestions(&turnlog.Record{Asks: c.asked, Rounds: []turnkeeper.Round{{Calls: c.calls}}})
			left := 0
			for q.take() == nil {
				left++
			}
			if left != MaxQuestions-c.count {
				t.Errorf("%d questions are left, want %d", left, MaxQuestions-c.count)
			}
		})
	}
}

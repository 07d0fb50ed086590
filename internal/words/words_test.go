package words_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/words"
)

func TestStopReason(t *testing.T) {
	t.Parallel()
	for losses, want := range map[int]string{
		0: "its worker handed it back during a call that must not be repeated",
		1: "its worker was lost during a call that must not be repeated",
		3: "it lost 3 workers",
	} {
		if got := words.StopReason(turnkeeper.Turn{StopReason: turnkeeper.StopWorkerLost,
			Losses: losses}); got != want {
			t.Errorf("%d losses: %q", losses, got)
		}
	}
	if got := words.StopReason(turnkeeper.Turn{StopReason: "later"}); got != "later" {
		t.Errorf("an unknown reason: %q", got)
	}
}

func TestUnderWay(t *testing.T) {
	t.Parallel()
	calls := []turnkeeper.OpenCall{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}
	for want, u := range map[string]turnkeeper.UnderWay{
		"asks a model for round 2":              {Round: 2},
		"round 2 streams, ~1,200 tokens so far": {Round: 2, OutputTokens: 1200},
		"round 1 streams, ~1 token so far":      {Round: 1, OutputTokens: 1},
		"runs a":                                {Round: 1, Calls: calls[:1]},
		"runs a, b, c, 2 more":                  {Round: 1, Calls: calls},
	} {
		if got := words.UnderWay(u); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"it ended": "it ended.", "it ended.": "it ended.", "it ended.. ": "it ended.",
		"it goes on ...": "it goes on ...", "cut…": "cut…",
	} {
		if got := words.Sentence(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

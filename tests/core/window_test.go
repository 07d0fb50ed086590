package core_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A shownWindow is the context window of requests in the output of "turnctl show".
type shownWindow struct {
	RoundLog []struct {
		Request struct {
			Window   int    `json:"window_tokens"`
			System   int    `json:"system_prompt_tokens"`
			Tools    int    `json:"tool_definition_tokens"`
			History  int    `json:"history_tokens"`
			Turn     int    `json:"turn_tokens"`
			Estimate int    `json:"estimated_tokens"`
			Room     int    `json:"room_tokens"`
			Reported *int64 `json:"reported_tokens"`
			Cut      bool   `json:"silently_cut"`
			Start    *struct {
				Omitted   int  `json:"earlier_turns_not_shown"`
				Compacted *int `json:"compacted_to_tokens"`
			} `json:"epoch_start"`
		} `json:"request"`
	} `json:"rounds"`
}

// counted returns an answer that reports this number of input tokens.
func counted(text string, tokens int) inferencetest.Reply {
	return inferencetest.JSON(http.StatusOK, map[string]any{
		"id": "c", "object": "chat.completion", "model": "scripted",
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": text}}},
		"usage": map[string]any{"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5},
	})
}

// A server refuses a request as too long, or silently truncates it. The turn adapts, and the window is shown
// and logged.
func TestAServerWithASmallerWindow(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "context_window: 100000", "summarise: false")
	long := strings.Repeat("A long story. ", 2000)
	e.Model.Add(
		counted("Heard.", 9000),
		inferencetest.Fault(400, "context_length_exceeded",
			"This model's maximum context length is 16000 tokens. However, your messages resulted in 18000 tokens."),
		counted("Heard again.", 9200),
		counted("Heard a part.", 8000),
	)
	w := e.StartWorker()
	e.TurnOf(e.Enqueue("clerk", long))
	second := e.TurnOf(e.Enqueue("clerk", "Another story. "+long))
	e.WantEnd(second, "succeeded", "none", 1)
	third := e.TurnOf(e.Enqueue("clerk", "A third. "+long))
	e.WantRequests(4)

	cutDown := env.Turnctl[shownWindow](e, "show", fmt.Sprint(second.ID)).RoundLog[0].Request
	if start := cutDown.Start; start == nil || start.Compacted == nil || start.Omitted != 1 ||
		cutDown.Estimate > *start.Compacted ||
		cutDown.Reported == nil || *cutDown.Reported != 9200 || cutDown.Cut {
		t.Errorf("the turn that was refused: %+v", cutDown)
	}
	cut := env.Turnctl[shownWindow](e, "show", fmt.Sprint(third.ID)).RoundLog[0].Request
	if !cut.Cut || cut.Start != nil && cut.Start.Compacted != nil || cut.Window != 100000 || cut.Tools < 200 ||
		cut.System < 50 ||
		cut.Turn < 8000 || cut.History < 8000 ||
		cut.Room != 100000-4096-5000 {
		t.Errorf("the turn that was cut: %+v", cut)
	}
	for turn, says := range map[int64]string{second.ID: "the provider had refused a longer request",
		third.ID: "the provider seems to have truncated this request"} {
		if page := e.Turnctl("show", fmt.Sprint(turn)).Stdout; !strings.Contains(page, says) {
			t.Errorf("turn %d is shown without %q:\n%s", turn, says, page)
		}
	}
	w.Await("the provider refused the request as too long; sending a smaller one")
	w.Await("the provider seems to have truncated the request")
	for _, turn := range []int64{second.ID, third.ID} {
		sent := e.Model.Requests()[turn].Body // the first took one request, the second two
		if got := rebuiltRequest(e, turn, 1); got.Code != 0 || got.Stdout != string(sent) {
			t.Errorf("the request of turn %d: exit code %d\n%s", turn, got.Code, got.Stderr)
		}
	}
}

package journal_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// severalAnswers are the entries of a turn with three answers. A call of the first goes to the background and ends
// before the second has come.
func severalAnswers(nonce string) []turnlog.Entry {
	answer := func(number int, effects ...turnkeeper.Effect) *turnkeeper.Round {
		r := storagetest.Round(number, effects...)
		r.Text, r.Reasoning = "I look <at> \"this\" & that\u2028\t.", "hm\\u0000"
		r.Raw = []byte(`{"content":"I <look>\u2028 \\u0000","more" : [1,  2]}`)
		r.Recipe = &turnkeeper.Recipe{Version: 2, Provider: "script", Model: "m", Notice: "Round <n> & \"more\"."}
		r.Usage = turnkeeper.Usage{InputTokens: int64(100 * number), OutputTokens: 20, CachedTokens: 30,
			CacheWriteTokens: 5, ReasoningTokens: 4, Estimated: number == 2}
		r.Latency = time.Duration(number) * time.Second
		return r
	}
	first := answer(1, turnkeeper.EffectNone, turnkeeper.EffectNone)
	first.Calls[1].RawArgs, first.Calls[1].ProviderID, first.Calls[1].Arguments = "{ }", "call_1", `{"a":"<\u2028>"}`
	second := answer(2, turnkeeper.EffectNone)
	second.Raw, second.Recipe, second.Charged = nil, nil, false
	slow := storagetest.Result(storagetest.Key(1, 2), nonce, turnkeeper.CallRunning, "it runs")
	slow.OutputID = "out-1"
	done := storagetest.Result(storagetest.Key(1, 2), nonce, turnkeeper.CallSucceeded, "it runs")
	done.Preview, done.Duration, done.Usage = "it has ended", time.Second, turnkeeper.Usage{InputTokens: 7}
	return []turnlog.Entry{
		{Round: first, Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
			Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2), nonce, 1, turnkeeper.EffectNone)}},
		{Events: storagetest.Events(turnkeeper.EventToolResult), Results: []turnlog.CallResult{
			storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallFailed, "no"), slow,
		}},
		{Round: second, Results: []turnlog.CallResult{done}},
		{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(2, 1), "", turnkeeper.CallSucceeded, "yes")},
			Failed: []turnlog.FailedAttempt{{Round: 3, Attempt: 1, Class: "overloaded", Error: "full"}}},
		{Round: answer(3), Events: storagetest.Events(turnkeeper.EventRoundStop)},
	}
}

// TestOneWriteOfSeveralEntries writes the same entries one by one, in one write, and in two of every kind. What can be
// read of the turn is the same, for the next worker and as history, apart from times and the number of writes.
func TestOneWriteOfSeveralEntries(t *testing.T) {
	h := newEnv(t)
	written := func(sizes ...int) (*turnlog.Record, []turnkeeper.Event, turnlog.Past) {
		d := h.Turn("what is it?")
		rest := severalAnswers(string(d.Grant.GrantID))
		for _, n := range sizes {
			e := rest[n-1]
			e.Earlier = rest[:n-1]
			d.Write(t, e)
			rest = rest[n:]
		}
		record := h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, "worker-1").Record
		if int(record.Entries) != len(sizes) {
			t.Errorf("%d writes have %d rows", len(sizes), record.Entries)
		}
		events, err := h.Events(t.Context(), d.Grant.TurnID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if n := storagetest.One[int](h, "select count(*) from turnkeeper.failed_attempts where turn_id = $1",
			d.Grant.TurnID); n != 1 {
			t.Errorf("%v: %d failed attempts", sizes, n)
		}
		d.Finish(t, "done")
		next := h.Turn("next")
		past := next.Record.History[len(next.Record.History)-1]
		next.Finish(t, "done")
		return record, events, past
	}
	record, events, past := written(1, 1, 1, 1, 1)
	if len(record.Rounds) != 3 || len(past.Rounds) != 3 || len(events) != 4 {
		t.Fatalf("%d rounds, %d of the past, %d events", len(record.Rounds), len(past.Rounds), len(events))
	}
	same := cmp.Options{
		cmpopts.IgnoreFields(turnkeeper.Round{}, "EndedAt"),
		cmpopts.IgnoreFields(turnkeeper.ToolCall{}, "StartedAt", "EndedAt", "Nonce"),
		cmpopts.IgnoreFields(turnkeeper.Event{}, "At", "TurnID"),
		cmpopts.IgnoreFields(turnlog.Past{}, "TurnID"),
	}
	for _, sizes := range [][]int{{5}, {1, 4}, {2, 3}, {3, 2}, {4, 1}, {1, 2, 2}} {
		r, e, p := written(sizes...)
		if diff := cmp.Diff(record.Rounds, r.Rounds, same); diff != "" {
			t.Errorf("%v: rounds (-one by one +together):\n%s", sizes, diff)
		}
		if diff := cmp.Diff(events, e, same); diff != "" {
			t.Errorf("%v: events (-one by one +together):\n%s", sizes, diff)
		}
		if diff := cmp.Diff(past, p, same); diff != "" {
			t.Errorf("%v: history (-one by one +together):\n%s", sizes, diff)
		}
		totals := func(t turnkeeper.Turn) []any {
			return []any{t.InferenceRounds, t.ChargedRounds, t.ExecutedCalls, t.Usage, t.LastSeq}
		}
		if diff := cmp.Diff(totals(record.Turn), totals(r.Turn)); diff != "" {
			t.Errorf("%v: totals (-one by one +together):\n%s", sizes, diff)
		}
	}
	promises, err := h.Check(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range promises {
		if len(p.Broken) > 0 {
			t.Errorf("%s: %v", p.Text, p.Broken)
		}
	}
}

package journal_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

func TestAFullTurnIsReadBackAsItWasWritten(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("what is it?")
	if d.Record.Entries != 0 || d.Record.NextBlock != 1 || d.Record.OpenRound != 0 || len(d.Record.Rounds) != 0 {
		t.Errorf("a new turn is loaded as %+v", d.Record)
	}
	if d.Record.Remaining <= 0 || d.Record.Remaining > storagetest.TTL || d.Record.Elapsed < 0 || d.Record.Elapsed+
		d.Record.Remaining > storagetest.TTL+time.Millisecond {
		t.Errorf("remaining %v, elapsed %v of a lease of %v", d.Record.Remaining, d.Record.Elapsed, storagetest.TTL)
	}
	first := storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectOnce, turnkeeper.EffectKeyed,
		turnkeeper.EffectNone)
	first.Text, first.Reasoning, first.Raw = "I look.", "hm", []byte(`{"role":"assistant", "content":"I look."}`)
	first.Latency = 1500 * time.Millisecond
	first.Usage = turnkeeper.Usage{InputTokens: 100, OutputTokens: 20, CachedTokens: 30, CacheWriteTokens: 5,
		ReasoningTokens: 4}
	first.Calls[3].State, first.Calls[3].Shown, first.Calls[3].Preview = turnkeeper.CallDenied, "no", "no"
	first.Calls[0].RawArgs, first.Calls[0].ProviderID = "{ }", "call_1"
	d.Write(t, turnlog.Entry{Round: first, Events: storagetest.Events(turnkeeper.EventTurnStart,
		turnkeeper.EventRoundStart, turnkeeper.EventBlockStart)})
	full := &turnkeeper.Output{
		ID: "out-1", MediaType: "text/plain", Text: "long text", SizeBytes: 9, RawBytes: 10, Chars: 9, Tokens: 3,
		SHA256: "abc", Incomplete: true, Description: "d",
	}
	read := storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, "long…")
	read.Output, read.Duration = full, 250*time.Millisecond
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{read},
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2), "n2", 1, turnkeeper.EffectOnce)}})
	d.Write(t, turnlog.Entry{
		Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 2), "n2", turnkeeper.CallFailed,
			"tool error")},
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 3), "n3", 1, turnkeeper.EffectKeyed)},
	})
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 3), "n3",
		turnkeeper.CallSucceeded, "ok")}})
	second := storagetest.Round(2)
	second.Charged, second.Usage = false, turnkeeper.Usage{InputTokens: 1, OutputTokens: 2, Estimated: true}
	d.Write(t, turnlog.Entry{Round: second})

	again := h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, "worker-1").Record
	want := []turnkeeper.Round{*first, *second}
	want[0].Calls = append([]turnkeeper.ToolCall(nil), first.Calls...)
	for i, c := range []turnkeeper.ToolCall{
		{State: turnkeeper.CallSucceeded, Shown: "long…", Preview: "long…", OutputID: "out-1",
			Duration: 250 * time.Millisecond},
		{State: turnkeeper.CallFailed, Shown: "tool error", Preview: "tool error", Nonce: "n2", Starts: 1},
		{State: turnkeeper.CallSucceeded, Shown: "ok", Preview: "ok", Nonce: "n3", Starts: 1},
	} {
		to := &want[0].Calls[i]
		to.State, to.Shown, to.Preview, to.OutputID, to.Duration, to.Nonce, to.Starts = c.State, c.Shown, c.Preview,
			c.OutputID, c.Duration, c.Nonce, c.Starts
	}
	times := cmp.Options{
		cmpopts.IgnoreFields(turnkeeper.Round{}, "EndedAt"), cmpopts.IgnoreFields(turnkeeper.ToolCall{},
			"StartedAt", "EndedAt"),
	}
	if diff := cmp.Diff(want, again.Rounds, times); diff != "" {
		t.Errorf("the journal (-want +got):\n%s", diff)
	}
	turn := again.Turn
	if turn.InferenceRounds != 2 || turn.ChargedRounds != 1 || turn.ExecutedCalls != 3 || again.Entries != 5 ||
		turn.LastSeq != 3 || again.NextBlock != 1 {
		t.Errorf("rounds %d, charged %d, executed %d, entries %d, last event %d", turn.InferenceRounds,
			turn.ChargedRounds, turn.ExecutedCalls, again.Entries, turn.LastSeq)
	}
	usage := turnkeeper.Usage{InputTokens: 101, OutputTokens: 22, CachedTokens: 30, CacheWriteTokens: 5,
		ReasoningTokens: 4, Estimated: true}
	if diff := cmp.Diff(usage, turn.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	stored, err := h.Output(t.Context(), "out-1")
	if err != nil {
		t.Fatal(err)
	}
	full.TurnID, full.Call = d.Grant.TurnID, storagetest.Key(1, 1)
	if diff := cmp.Diff(*full, stored, cmpopts.IgnoreFields(turnkeeper.Output{}, "CreatedAt")); diff != "" {
		t.Errorf("the output (-want +got):\n%s", diff)
	}
}

func TestPagingAndUnstartedCallsAreNotCountedAsExecuted(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	keyed := turnkeeper.EffectKeyed
	r := storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectNone, turnkeeper.EffectNone, keyed, keyed, keyed)
	r.Calls[0].Paging, r.Calls[3].Paging, r.Calls[5].Paging = true, true, true
	d.Write(t, turnlog.Entry{Round: r})
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{
		storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, "page"),
		storagetest.Result(storagetest.Key(1, 2), "", turnkeeper.CallSkipped, "skipped"),
		storagetest.Result(storagetest.Key(1, 3), "", turnkeeper.CallFailed, "failed"),
	}, Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 4), "page", 1, keyed),
		storagetest.Start(storagetest.Key(1, 5), "first", 1, keyed)}})
	// The next worker recognizes paging calls that it did not plan, and a second start does not
	// count as a second call.
	d = h.Again(d, "worker-2")
	d.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{
		storagetest.Start(storagetest.Key(1, 4), "page again", 2, keyed), storagetest.Start(storagetest.Key(1, 5),
			"second", 2, keyed), storagetest.Start(storagetest.Key(1, 6), "page too", 1, keyed),
	}})
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 5), "second",
		turnkeeper.CallSucceeded, "ok")}})
	if n := storagetest.One[int](h, "select executed_calls from turnkeeper.turns_now"); n != 2 {
		t.Errorf("%d executed calls, want the failed one and the one that was started twice", n)
	}
}

func TestFence(t *testing.T) {
	h := newEnv(t)
	entry := turnlog.Entry{Round: storagetest.Round(1)}
	d := h.Turn("x")
	forged := func(change func(*turnkeeper.Grant)) error {
		g := d.Grant
		change(&g)
		return h.Writer(d.Record, g).Append(t.Context(), entry, turnlog.Consequence{})
	}
	cases := map[string]func() error{
		"an older token": func() error { return forged(func(g *turnkeeper.Grant) { g.Token-- }) },
		"a newer token":  func() error { return forged(func(g *turnkeeper.Grant) { g.Token++ }) },
		"another grant": func() error {
			return forged(func(g *turnkeeper.Grant) { g.GrantID = "00000000-0000-4000-8000-000000000000" })
		},
		"another turn": func() error { return forged(func(g *turnkeeper.Grant) { g.TurnID = 9999 }) },
	}
	for name, f := range cases {
		if err := f(); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	entry = turnlog.Entry{Round: storagetest.Round(2)}
	h.Lose(d)
	stale := func(when string) {
		t.Helper()
		if err := d.Append(t.Context(), entry, turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("a step %s: %v", when, err)
		}
		if err := d.Append(t.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("stale")},
			storagetest.Answered); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("a reply %s: %v", when, err)
		}
		_, err := d.Transact(t.Context(), storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce),
			time.Minute, nil)
		if !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("a transactional call %s: %v", when, err)
		}
		if _, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("a load %s: %v", when, err)
		}
	}
	stale("after the loss")
	next := h.Dispatch("worker-2")[0]
	stale("after the next grant")
	next.Finish(t, "good")
	stale("after the end")
	if err := next.Append(t.Context(), entry, turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("a step of a closed turn: %v", err)
	}
	reply, err := h.ReplyTo(t.Context(), d.Record.Message.ID)
	if err != nil || reply.Body != "good" {
		t.Errorf("reply %q, error %v", reply.Body, err)
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.rounds"); n != 1 {
		t.Errorf("%d rounds, want that of the first writer", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), storagetest.Patience)
	defer cancel()
	for what, turn := range map[string]turnkeeper.TurnID{"no turn": 9999, "a closed turn": d.Grant.TurnID} {
		if _, err := h.LoadPatiently(ctx, turn, d.Grant.GrantID); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("a patient load of %s: %v", what, err)
		}
	}
}

func TestEntriesThatBuildOnAnotherJournal(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	twin := h.Writer(d.Record, d.Grant) // a second writer with the same grant and position
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	if err := twin.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)},
		turnlog.Consequence{}); !errors.Is(err,
		turnkeeper.ErrJournalMoved) {
		t.Errorf("an entry on an older journal: %v", err)
	}
	if err := twin.Append(t.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("twin")},
		storagetest.Answered); !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Errorf("an end on an older journal: %v", err)
	}
	if err := d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{}); !errors.Is(err,
		turnkeeper.ErrJournalMoved) {
		t.Errorf("a round twice: %v", err)
	}
	d.Write(t, turnlog.Entry{Round: storagetest.Round(2)})
}

// TestACallIsStoredBriefly checks that the row of an answer does not repeat what follows from the rest of it.
func TestACallIsStoredBriefly(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	round := storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectNone)
	round.Calls[0].ProviderID, round.Calls[0].ArgsHash = round.Calls[0].WireID, arguments.Hash("tool", "{}")
	round.Calls[1].ProviderID = "other"
	d.Write(t, turnlog.Entry{Round: round})
	got := storagetest.One[string](h.DB, "select calls::text from turnkeeper.journal where calls is not null")
	want := `[{"ordinal":1,"wire_id":"round-1-tool-1","name":"tool","arguments":"{}","effect":"none","state":"planned"},` +
		`{"ordinal":2,"wire_id":"round-1-tool-2","provider_id":"other","name":"tool","arguments":"{}","args_hash":"hash",` +
		`"effect":"none","state":"planned"}]`
	if got != want {
		t.Error(got)
	}
}

func TestStarts(t *testing.T) {
	cases := map[string]struct {
		effect  turnkeeper.Effect
		attempt int
		nonce   string
		refused string // part of the error; empty: no error
	}{
		"once, the same attempt again":  {turnkeeper.EffectOnce, 1, "b", turnkeeper.ErrJournalMoved.Error()},
		"once, a second attempt":        {turnkeeper.EffectOnce, 2, "b", "call_starts_check"},
		"none, a second attempt":        {turnkeeper.EffectNone, 2, "b", ""},
		"keyed, a second attempt":       {turnkeeper.EffectKeyed, 2, "b", ""},
		"keyed, the same attempt again": {turnkeeper.EffectKeyed, 1, "b", turnkeeper.ErrJournalMoved.Error()},
		"keyed, an attempt left out":    {turnkeeper.EffectKeyed, 3, "b", turnkeeper.ErrJournalMoved.Error()},
		"keyed, with the first's nonce": {turnkeeper.EffectKeyed, 2, "a", turnkeeper.ErrJournalMoved.Error()},
	}
	h := newEnv(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := h.Turn("x")
			nonce := name // unique among all turns
			d.Write(t, turnlog.Entry{
				Round:  storagetest.Round(1, c.effect),
				Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), nonce+"a", 1, c.effect)},
			})
			next := h.Again(d, "worker-2")
			err := next.Append(t.Context(), turnlog.Entry{
				Events: storagetest.Events(turnkeeper.EventToolStarted),
				Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), nonce+c.nonce,
					c.attempt, c.effect)},
			}, turnlog.Consequence{})
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("error %v, want %q", err, c.refused)
			}
			wantStarts := int64(1)
			if c.refused == "" {
				wantStarts = 2
			}
			if n := storagetest.One[int64](h, "select count(*) from turnkeeper.call_starts where turn_id = $1",
				d.Grant.TurnID); n != wantStarts {
				t.Errorf("%d starts on record, want %d", n, wantStarts)
			}
			if n := storagetest.One[int64](h, "select count(*) from turnkeeper.turn_events where turn_id = $1",
				d.Grant.TurnID); n != wantStarts-1 {
				t.Errorf("%d events on record: a refused entry is refused whole", n)
			}
			if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)); call.State != turnkeeper.CallStarted ||
				int64(call.Starts) != wantStarts {
				t.Errorf("the call is %s with %d starts", call.State, call.Starts)
			}
			next.Cancel(t)
		})
	}
}

func TestUnknownCallCannotBeStartedOrAnswered(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	if err := d.Append(t.Context(), turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1),
		"n", 1, turnkeeper.EffectOnce)}}, turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Errorf("start: %v", err)
	}
	if err := d.Append(t.Context(), turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1,
		1), "", turnkeeper.CallSucceeded, "x")}}, turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Errorf("result: %v", err)
	}
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
}

func TestResultsNeedTheNonceOfTheNewestStart(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{
		Round:  storagetest.Round(1, turnkeeper.EffectKeyed, turnkeeper.EffectNone),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "first", 1, turnkeeper.EffectKeyed)},
	})
	next := h.Again(d, "worker-2")
	next.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "second", 2,
		turnkeeper.EffectKeyed)}})
	for _, nonce := range []string{"first", "", "third"} {
		err := next.Append(t.Context(), turnlog.Entry{Results: []turnlog.CallResult{
			storagetest.Result(storagetest.Key(1, 1), nonce, turnkeeper.CallSucceeded, nonce)}}, turnlog.Consequence{})
		if !errors.Is(err, turnkeeper.ErrJournalMoved) {
			t.Errorf("a result with nonce %q: %v", nonce, err)
		}
	}
	twice := storagetest.Result(storagetest.Key(1, 1), "second", turnkeeper.CallSucceeded, "ok")
	if err := next.Append(t.Context(), turnlog.Entry{Results: []turnlog.CallResult{twice, twice}},
		turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Errorf("a result twice in one entry: %v", err)
	}
	next.Write(t, turnlog.Entry{Results: []turnlog.CallResult{twice}})
	if err := next.Append(t.Context(), turnlog.Entry{Results: []turnlog.CallResult{twice}},
		turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Errorf("a result again: %v", err)
	}
	if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)); call.Shown != "ok" || call.Nonce != "second" {
		t.Errorf("the call shows %q of start %q", call.Shown, call.Nonce)
	}
}

func TestLateResults(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectOnce),
		Starts: []turnlog.CallStart{
			storagetest.Start(storagetest.Key(1, 1), "n1", 1, turnkeeper.EffectOnce),
			storagetest.Start(storagetest.Key(1, 2), "n2", 1, turnkeeper.EffectOnce),
			storagetest.Start(storagetest.Key(1, 3), "n3", 1, turnkeeper.EffectOnce),
		},
	})
	late := func(k turnkeeper.CallKey, nonce, shown string) {
		t.Helper()
		if err := d.Late(t.Context(), storagetest.Result(k, nonce, turnkeeper.CallSucceeded, shown)); err != nil {
			t.Fatal(err)
		}
	}
	// A late result is the result while no worker has the turn. An entry with a verdict on that call is
	// refused completely.
	h.Lose(d)
	late(storagetest.Key(1, 1), "n1", "it happened")
	next := h.Dispatch("worker-2")[0]
	verdict := func(k turnkeeper.CallKey) turnlog.CallResult {
		return turnlog.CallResult{Key: k, State: turnkeeper.CallUnknown, Shown: "unknown", Preview: "unknown"}
	}
	err := next.Append(t.Context(), turnlog.Entry{Verdicts: []turnlog.CallResult{verdict(storagetest.Key(1, 1)),
		verdict(storagetest.Key(1, 2))}}, turnlog.Consequence{})
	if !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Fatalf("a verdict on a call that has its result: %v", err)
	}
	if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 2)); call.State != turnkeeper.CallStarted {
		t.Errorf("the refused entry moved a call to %s", call.State)
	}
	// While another worker has the turn, the first late result is stored in addition to that worker's verdict.
	late(storagetest.Key(1, 2), "n2", "it happened too")
	next.Write(t, turnlog.Entry{Verdicts: []turnlog.CallResult{verdict(storagetest.Key(1, 2))}})
	late(storagetest.Key(1, 2), "n2", "it happened twice")
	// A late result that matches no start of the call changes nothing.
	late(storagetest.Key(1, 3), "n1", "somebody else's")
	late(storagetest.Key(1, 3), "", "nobody's")

	type seen struct {
		State       turnkeeper.CallState
		Shown, Late string
	}
	var got []seen
	for i := range 3 {
		c := h.Call(d.Grant.TurnID, storagetest.Key(1, i+1))
		got = append(got, seen{c.State, c.Shown, c.LateResult})
	}
	want := []seen{
		{turnkeeper.CallSucceeded, "it happened", ""},
		{turnkeeper.CallUnknown, "unknown", "it happened too"},
		{turnkeeper.CallStarted, "", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	next.Write(t, turnlog.Entry{Verdicts: []turnlog.CallResult{verdict(storagetest.Key(1, 3))}, Outcome: nil})
	if err := next.Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopNone, Reply: "done"}},
		storagetest.Answered); err != nil {
		t.Fatal(err)
	}
	late(storagetest.Key(1, 3), "n3", "after the end")
	if c := h.Call(d.Grant.TurnID, storagetest.Key(1, 3)); c.State != turnkeeper.CallUnknown ||
		c.LateResult != "after the end" {
		t.Errorf("after the end of the turn: %s, late %q", c.State, c.LateResult)
	}
}

func TestLateResultOfAnOlderStart(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{
		Round:  storagetest.Round(1, turnkeeper.EffectKeyed),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "old", 1, turnkeeper.EffectKeyed)},
	})
	next := h.Again(d, "worker-2")
	next.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "new", 2,
		turnkeeper.EffectKeyed)}})
	if err := d.Late(t.Context(), storagetest.Result(storagetest.Key(1, 1), "old", turnkeeper.CallSucceeded,
		"old")); err != nil {
		t.Fatal(err)
	}
	next.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "new",
		turnkeeper.CallSucceeded, "new")}})
	if c := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)); c.Shown != "new" || c.LateResult != "old" {
		t.Errorf("shows %q, late %q", c.Shown, c.LateResult)
	}
}

func TestEventsAreNumberedWithoutGaps(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
	d.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventRoundStop)})
	if err := d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1),
		Events: storagetest.Events(turnkeeper.EventNotice)}, turnlog.Consequence{}); err == nil {
		t.Fatal("a round twice")
	}
	d.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventNotice)})
	next := h.Again(d, "worker-2")
	next.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnResumed)})
	if err := d.Append(t.Context(), turnlog.Entry{Events: storagetest.Events(turnkeeper.EventNotice)},
		turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrFenced) {
		t.Fatalf("an event of a stale writer: %v", err)
	}
	e := turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnComplete), Outcome: storagetest.Succeeded("done")}
	if err := next.Append(t.Context(), e, storagetest.Answered); err != nil {
		t.Fatal(err)
	}
	got, err := h.Events(t.Context(), d.Grant.TurnID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	want := []turnkeeper.EventType{
		turnkeeper.EventTurnStart, turnkeeper.EventRoundStart, turnkeeper.EventRoundStop,
		turnkeeper.EventNotice, turnkeeper.EventTurnResumed, turnkeeper.EventTurnComplete,
	}
	for i, e := range got {
		if e.Seq != int64(i+1) || i >= len(want) || e.Type != want[i] || string(e.Data) != `{"n":1}` {
			t.Errorf("event %d is %d %s %s", i+1, e.Seq, e.Type, e.Data)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
	if rest, err := h.Events(t.Context(), d.Grant.TurnID, 3, 1); err != nil || len(rest) != 1 || rest[0].Seq != 4 {
		t.Errorf("after 3: %v, error %v", rest, err)
	}
}

func TestStreamPositionForTheNextWorker(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	at := func(typ turnkeeper.EventType, round, block int) turnkeeper.Event {
		return turnkeeper.Event{Type: typ, Round: round, Block: block}
	}
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{
		at(turnkeeper.EventTurnStart, 0, 0), at(turnkeeper.EventRoundStart, 1, 0), at(turnkeeper.EventBlockStart, 1, 1),
		at(turnkeeper.EventBlockStart, 1, 2),
	}})
	d = h.Again(d, "worker-2")
	if d.Record.OpenRound != 1 || d.Record.NextBlock != 3 {
		t.Errorf("open round %d, next block %d; want 1 and 3", d.Record.OpenRound, d.Record.NextBlock)
	}
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{at(turnkeeper.EventRoundRollback, 1, 0)}})
	d = h.Again(d, "worker-3")
	if d.Record.OpenRound != 0 || d.Record.NextBlock != 3 {
		t.Errorf("after the rollback: open round %d, next block %d; want 0 and 3", d.Record.OpenRound,
			d.Record.NextBlock)
	}
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{at(turnkeeper.EventRoundStart, 1, 0)},
		Round: storagetest.Round(1)})
	d = h.Again(d, "worker-4")
	if d.Record.OpenRound != 0 || len(d.Record.Rounds) != 1 {
		t.Errorf("after the answer: open round %d, %d rounds", d.Record.OpenRound, len(d.Record.Rounds))
	}
}

func TestHistoryOfAConversation(t *testing.T) {
	h := newEnv(t)
	for _, body := range []string{"one", "two"} {
		d := h.Turn(body)
		first := storagetest.Round(1, turnkeeper.EffectNone)
		first.Recipe = &turnkeeper.Recipe{Version: 1, Model: body}
		d.Write(t, turnlog.Entry{Round: first})
		d.Write(t, turnlog.Entry{Round: storagetest.Round(2),
			Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "",
				turnkeeper.CallSucceeded, body)}})
		d.Finish(t, "re: "+body)
	}
	h.Turn("cancelled").Cancel(t)
	h.Submit("clerk", "elsewhere", "other conversation")
	h.Dispatch("w")[0].Finish(t, "elsewhere")
	d := h.Turn("three")
	var got []string
	for _, p := range d.Record.History {
		got = append(got, p.Body, p.Reply)
		if p.State == turnkeeper.TurnCancelled {
			continue
		}
		if len(p.Rounds) != 2 || len(p.Rounds[0].Calls) != 1 || p.Rounds[0].Calls[0].Shown != p.Body ||
			len(p.Rounds[1].Calls) != 0 {
			t.Errorf("rounds of %q: %+v", p.Body, p.Rounds)
		}
		if r := p.Rounds[0].Recipe; r == nil || r.Model != p.Body {
			t.Errorf("recipe of %q: %+v", p.Body, r)
		}
	}
	if diff := cmp.Diff([]string{"one", "re: one", "two", "re: two", "cancelled", "cancelled"}, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	again, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID) // from what the store keeps of the past
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Record.History, again.History); diff != "" {
		t.Errorf("history, loaded again (-first +again):\n%s", diff)
	}
}

func TestRecentCalls(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	r := storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectNone, turnkeeper.EffectNone,
		turnkeeper.EffectNone, turnkeeper.EffectNone)
	r.Calls[3].ArgsHash = "other"
	plan := turnlog.Entry{Round: r}
	for n, nonce := range []string{"a", "b", "c", "d"} { // the fifth call has no start, so it is not found
		plan.Starts = append(plan.Starts, storagetest.Start(storagetest.Key(1, n+1), nonce, 1, turnkeeper.EffectNone))
	}
	d.Write(t, plan)
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{
		storagetest.Result(storagetest.Key(1, 1), "a", turnkeeper.CallSucceeded, "a"),
		storagetest.Result(storagetest.Key(1, 3), "c", turnkeeper.CallCancelled, "c"),
		storagetest.Result(storagetest.Key(1, 4), "d", turnkeeper.CallSucceeded, "d"),
		storagetest.Result(storagetest.Key(1, 5), "", turnkeeper.CallSucceeded, "e"),
	}})
	// Calls with the same numbers, of a later round and of another agent.
	later := storagetest.Round(2, turnkeeper.EffectNone)
	later.Calls[0].ArgsHash = "other"
	d.Write(t, turnlog.Entry{Round: later})
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(2, 1), "",
		turnkeeper.CallSucceeded, "x")}})
	other := h.TurnOf("desk", "worker-1")
	other.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectNone)})
	other.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "",
		turnkeeper.CallSucceeded, "x")}})
	for agent, name := range map[string]string{"desk": "tool", "clerk": "another"} {
		if got, err := h.RecentCalls(t.Context(), agent, name, "hash", time.Minute); err != nil || len(got) != 0 {
			t.Errorf("recent calls of %s by %s: %+v, error %v", name, agent, got, err)
		}
	}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 2), "b",
		turnkeeper.CallFailed, "b")}})
	got, err := h.RecentCalls(t.Context(), "clerk", "tool", "hash", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Succeeded || !got[1].Succeeded || got[0].Ago > got[1].Ago || got[1].Ago > time.Minute {
		t.Errorf("recent calls: %+v", got)
	}
	// A call that was started twice is one call.
	h.Exec(
		`insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash)
		select turn_id, round, ordinal, 2, effect, 1, token, 'again', worker_id, agent, name, args_hash from turnkeeper.call_starts where nonce = 'b'`)
	if got, err := h.RecentCalls(t.Context(), "clerk", "tool", "hash", time.Minute); err != nil || len(got) != 2 {
		t.Errorf("after a restart: %+v, error %v", got, err)
	}
	h.Exec("update turnkeeper.journal set at = at - interval '2 minutes'")
	h.Exec("update turnkeeper.call_starts set started_at = started_at - interval '2 minutes'")
	if got, err := h.RecentCalls(t.Context(), "clerk", "tool", "hash", time.Minute); err != nil || len(got) != 0 {
		t.Errorf("after the window: %+v, error %v", got, err)
	}
}

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// twoTurns returns two turns of the desk with two rounds of two calls each. The first call of each
// round is started.
func twoTurns(t *testing.T) (h *env, it, other scene) {
	h = newEnv(t)
	h.Submit("desk", "it", "x")
	h.Submit("desk", "other", "x")
	all := h.Dispatch("worker-1")
	it, other = scene{h, all[0]}, scene{h, all[1]}
	it.calls()
	other.calls()
	return h, it, other
}

// TestALateResultIsOfItsStart delivers late results with the start of another call. They are
// dropped.
func TestALateResultIsOfItsStart(t *testing.T) {
	for _, judged := range []bool{false, true} {
		t.Run(fmt.Sprintf("judged %t", judged), func(t *testing.T) { aLateResult(t, judged) })
	}
}

func aLateResult(t *testing.T, judged bool) {
	h, it, other := twoTurns(t)
	if judged {
		for _, s := range []scene{it, other} {
			s.Write(t, turnlog.Entry{Verdicts: []turnlog.CallResult{
				{Key: storagetest.Key(1, 1), State: turnkeeper.CallUnknown, Shown: "?"}, {Key: storagetest.Key(2, 1),
					State: turnkeeper.CallUnknown, Shown: "?"},
			}})
		}
	}
	before := h.Rows()
	for name, r := range map[string]turnlog.CallResult{
		"of another turn": storagetest.Result(storagetest.Key(1, 1), other.nonce(1, 1),
			turnkeeper.CallSucceeded, "late"),
		"of another round": storagetest.Result(storagetest.Key(1, 1), it.nonce(2, 1), turnkeeper.CallSucceeded, "late"),
		"of another call":  storagetest.Result(storagetest.Key(1, 2), it.nonce(1, 1), turnkeeper.CallSucceeded, "late"),
		"of no start":      storagetest.Result(storagetest.Key(1, 1), "N-1", turnkeeper.CallSucceeded, "late"),
		"of no call":       storagetest.Result(storagetest.Key(3, 1), it.nonce(1, 1), turnkeeper.CallSucceeded, "late"),
	} {
		if err := it.Late(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, row := range storagetest.Changed(before, h.Rows()) {
			t.Errorf("judged: %t; the start is %s, and it changed %s", judged, name, row)
		}
	}
	want := turnkeeper.CallSucceeded
	if judged {
		want = turnkeeper.CallUnknown
	}
	for _, text := range []string{"late", "later"} { // the first is kept
		if err := it.Late(t.Context(), storagetest.Result(storagetest.Key(1, 1), it.nonce(1, 1),
			turnkeeper.CallSucceeded, text)); err != nil {
			t.Fatal(err)
		}
	}
	if call := h.Call(it.Grant.TurnID, storagetest.Key(1, 1)); call.State != want || judged &&
		call.LateResult != "late" || !judged && call.Shown != "late" {
		t.Errorf("judged: %t; the call is %+v", judged, call)
	}
}

// TestALateResultInTheBackground delivers late results. That of a background call does not change
// the text that the model was shown. That of a detached call is dropped. A turn that has ended
// stores it as the call's late result only.
func TestALateResultInTheBackground(t *testing.T) {
	h, it, other := twoTurns(t)
	for _, s := range []scene{it, other} {
		s.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1),
			turnkeeper.CallRunning, "handle")}})
	}
	if err := it.Late(t.Context(), storagetest.Result(storagetest.Key(1, 1), it.nonce(1, 1), turnkeeper.CallSucceeded,
		"late")); err != nil {
		t.Fatal(err)
	}
	if call := h.Call(it.Grant.TurnID, storagetest.Key(1, 1)); call.State != turnkeeper.CallSucceeded ||
		call.Shown != "handle" || call.Preview != "late" {
		t.Errorf("in the background: %+v", call)
	}
	h.Exec("insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce) values ($1, 1, 1, $2)",
		other.Grant.TurnID, other.nonce(1, 1))
	if err := other.Late(t.Context(), storagetest.Result(storagetest.Key(1, 1), other.nonce(1, 1),
		turnkeeper.CallSucceeded, "late")); err != nil {
		t.Fatal(err)
	}
	if call := h.Call(other.Grant.TurnID, storagetest.Key(1, 1)); call.State != turnkeeper.CallRunning {
		t.Errorf("detached: %+v", call)
	}
	h.Exec(
		"update turnkeeper.turns set state = 'degraded', stop_reason = 'none', ended_at = clock_timestamp() where id = $1", other.Grant.TurnID)
	if err := other.Late(t.Context(), storagetest.Result(storagetest.Key(2, 1), other.nonce(2, 1),
		turnkeeper.CallSucceeded, "late")); err != nil {
		t.Fatal(err)
	}
	if call := h.Call(other.Grant.TurnID, storagetest.Key(2, 1)); call.State != turnkeeper.CallStarted ||
		call.LateResult != "late" {
		t.Errorf("of a turn that has ended: %+v", call)
	}
}

// TestWhoseLateResultCounts delivers late results of started calls. They are the calls' results only if no other grant
// has the turn, if the turn does not wait, and if the calls are not awaited.
func TestWhoseLateResultCounts(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		change string
		counts bool
	}{
		"its own grant":  {"", true},
		"a queued turn":  {"update turnkeeper.turns set state = 'queued', grant_id = null where id = $1", true},
		"another grant":  {"update turnkeeper.turns set grant_id = gen_random_uuid() where id = $1", false},
		"a waiting turn": {"update turnkeeper.turns set state = 'waiting', grant_id = null where id = $1", false},
		"an ended turn": {
			"update turnkeeper.turns set state = 'failed', stop_reason = 'none', ended_at = clock_timestamp() where id = $1", false},
		"an awaited call": {
			"insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce) values ($1, 1, 1, 'n')", false},
		"others awaited": {
			"insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce) values ($1, 1, 2, 'n'), ($1, 2, 1, 'm'), ($1 + 1, 1, 1, 'o')", true},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, _ := twoTurns(t)
			h.T = t
			if c.change != "" {
				h.Exec(c.change, it.Grant.TurnID)
			}
			if err := it.Late(t.Context(), storagetest.Result(storagetest.Key(1, 1), it.nonce(1, 1),
				turnkeeper.CallSucceeded, "late")); err != nil {
				t.Fatal(err)
			}
			call := h.Call(it.Grant.TurnID, storagetest.Key(1, 1))
			if c.counts && (call.State != turnkeeper.CallSucceeded || call.Shown != "late" || call.LateResult != "") ||
				!c.counts && (call.State != turnkeeper.CallStarted || call.Shown != "" || call.LateResult != "late") {
				t.Errorf("the call is %+v", call)
			}
		})
	}
}

// TestWhichLateResultCounts delivers late results of several calls of a turn, and of two starts of one call.
func TestWhichLateResultCounts(t *testing.T) {
	h, it, other := twoTurns(t)
	second := storagetest.Key(1, 2)
	for attempt, nonce := range []string{"first", "newest"} {
		it.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(second, nonce, attempt+1,
			turnkeeper.EffectKeyed)}})
	}
	late := func(k turnkeeper.CallKey, nonce string) {
		t.Helper()
		if err := it.Late(t.Context(), storagetest.Result(k, nonce, turnkeeper.CallSucceeded, "late")); err != nil {
			t.Error(err)
		}
	}
	late(second, "first")
	if call := h.Call(it.Grant.TurnID, second); call.State != turnkeeper.CallStarted || call.LateResult != "late" {
		t.Errorf("of an earlier start: %+v", call)
	}
	for k, nonce := range map[turnkeeper.CallKey]string{second: "newest", storagetest.Key(2, 1): it.nonce(2, 1)} {
		late(k, nonce)
		if call := h.Call(it.Grant.TurnID, k); call.State != turnkeeper.CallSucceeded {
			t.Errorf("of call %s: %+v", k, call)
		}
	}
	first := func(context.Context, *storagetest.DB) error { late(storagetest.Key(1, 1), it.nonce(1, 1)); return nil }
	for _, turn := range []scene{other, it} {
		const lock = "select from turnkeeper.turns where id = $1 for no key update"
		waits := h.WaitsBehind(func() {}, first, lock, turn.Grant.TurnID)
		if waits != (turn.Grant.TurnID == it.Grant.TurnID) {
			t.Errorf("the late result waits for turn %d: %v", turn.Grant.TurnID, waits)
		}
	}
}

// TestStartsAndAnswersThatAreRefused writes starts and answers that do not fit their call in one
// condition.
func TestStartsAndAnswersThatAreRefused(t *testing.T) {
	h, it, other := twoTurns(t)
	skipped := storagetest.Result(storagetest.Key(2, 2), "", turnkeeper.CallSkipped, "skipped")
	it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{skipped}})
	before := h.Rows()
	starts := func(s ...turnlog.CallStart) turnlog.Entry { return turnlog.Entry{Starts: s} }
	results := func(r ...turnlog.CallResult) turnlog.Entry { return turnlog.Entry{Results: r} }
	for name, e := range map[string]turnlog.Entry{
		"a start of a started call": starts(storagetest.Start(storagetest.Key(1, 1), "a", 1,
			turnkeeper.EffectOnce)),
		"a second start of effect once": starts(storagetest.Start(storagetest.Key(1, 1), "b", 2,
			turnkeeper.EffectOnce)),
		"a start that leaves one out": starts(storagetest.Start(storagetest.Key(1, 2), "c", 2,
			turnkeeper.EffectKeyed)),
		"a start of a skipped call": starts(storagetest.Start(storagetest.Key(2, 2), "d", 1,
			turnkeeper.EffectOnce)),
		"a start of no call": starts(storagetest.Start(storagetest.Key(3, 1), "e", 1,
			turnkeeper.EffectOnce)),
		"a start beside one of no call": starts(storagetest.Start(storagetest.Key(1, 2), "f", 1,
			turnkeeper.EffectOnce), storagetest.Start(storagetest.Key(1, 3), "g", 1, turnkeeper.EffectOnce)),
		"an answer to another turn's start": results(storagetest.Result(storagetest.Key(1, 1), other.nonce(1, 1),
			turnkeeper.CallSucceeded, "x")),
		"an answer to another start": results(storagetest.Result(storagetest.Key(1, 1), it.nonce(2, 1),
			turnkeeper.CallSucceeded, "x")),
		"an answer without a start": results(storagetest.Result(storagetest.Key(1, 1), "",
			turnkeeper.CallSucceeded, "x")),
		"an answer to an answered call": results(skipped),
		"an answer to no call": results(storagetest.Result(storagetest.Key(1, 3), it.nonce(1, 1),
			turnkeeper.CallSucceeded, "x")),
	} {
		// A constraint of the table refuses a second start of effect once.
		err := it.Append(t.Context(), e, turnlog.Consequence{})
		if !errors.Is(err, turnkeeper.ErrJournalMoved) && (err == nil || name != "a second start of effect once") {
			t.Errorf("%s: %v, want ErrJournalMoved", name, err)
		}
		for _, row := range storagetest.Changed(before, h.Rows()) {
			t.Errorf("%s changed %s", name, row)
		}
	}
}

// TestACallInTheBackground runs a background call from its start to its end, and starts another one
// again after its worker was lost.
func TestACallInTheBackground(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectKeyed, turnkeeper.EffectKeyed), Starts: []turnlog.CallStart{
			storagetest.Start(storagetest.Key(1, 1), "a", 1, turnkeeper.EffectKeyed),
			storagetest.Start(storagetest.Key(1, 2), "b", 1, turnkeeper.EffectKeyed),
		},
	})
	running := []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "a", turnkeeper.CallRunning, "handle"),
		storagetest.Result(storagetest.Key(1, 2), "b", turnkeeper.CallRunning, "handle")}
	for i := range running {
		running[i].Duration = 5 * time.Millisecond
	}
	d.Write(t, turnlog.Entry{Results: running})
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.calls where ended_at is not null or duration_ms is not null"); n != 0 {
		t.Errorf("%d running calls have an end", n)
	}
	done := storagetest.Result(storagetest.Key(1, 1), "a", turnkeeper.CallSucceeded, "done")
	done.Duration = 7 * time.Millisecond
	done.Usage = turnkeeper.Usage{InputTokens: 11, OutputTokens: 3}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{done}})
	if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)); call.State != turnkeeper.CallSucceeded ||
		call.Duration != 7*time.Millisecond || call.Usage != done.Usage {
		t.Errorf("the call that ended is %+v", call)
	}
	d = h.Again(d, "worker-2")
	d.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2), "c", 2,
		turnkeeper.EffectKeyed)}})
	if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 2)); call.State != turnkeeper.CallStarted || call.Starts != 2 {
		t.Errorf("the call that runs again is %+v", call)
	}
}

// TestWhatALostTurnLeaves checks the calls of a turn that the scheduler closes. A second turn in the
// same state must not change.
func TestWhatALostTurnLeaves(t *testing.T) {
	h, it, _ := twoTurns(t)
	it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(2, 1), it.nonce(2, 1),
		turnkeeper.CallRunning, "handle")}})
	it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(2, 2), "",
		turnkeeper.CallSkipped, "skipped")}})
	it.Write(t, turnlog.Entry{Round: storagetest.Round(3, turnkeeper.EffectNone)})
	before := h.Rows()
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		return tick.SettleCalls(ctx, it.Grant.TurnID, "may have happened", "may have run", "was not run", "")
	})
	for k, want := range map[turnkeeper.CallKey]turnkeeper.ToolCall{
		storagetest.Key(1, 1): {State: turnkeeper.CallUnknown, Shown: "may have happened",
			Preview: "may have happened"},
		storagetest.Key(1, 2): {State: turnkeeper.CallCancelled, Shown: "was not run", Preview: "was not run"},
		storagetest.Key(2, 1): {State: turnkeeper.CallUnknown, Shown: "may have happened",
			Preview: "may have happened"},
		storagetest.Key(2, 2): {State: turnkeeper.CallSkipped, Shown: "skipped", Preview: "skipped"},
		storagetest.Key(3, 1): {State: turnkeeper.CallCancelled, Shown: "may have run", Preview: "may have run"},
	} {
		if c := h.Call(it.Grant.TurnID, k); c.State != want.State || c.Shown != want.Shown ||
			c.Preview != want.Preview {
			t.Errorf("call %s is %s, shown %q, preview %q", k, c.State, c.Shown, c.Preview)
		}
	}
	if rows := storagetest.Changed(before, h.Rows()); len(rows) != 5 { // the calls and the write with their results
		t.Errorf("changed %v", rows)
	}
}

// TestWhatACancelledTurnLeaves checks the calls of a turn that is cancelled while no worker runs it.
func TestWhatACancelledTurnLeaves(t *testing.T) {
	h, it, _ := twoTurns(t)
	it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(2, 1), it.nonce(2, 1),
		turnkeeper.CallRunning, "handle")}})
	it.Write(t, turnlog.Entry{
		Round:  storagetest.Round(3, turnkeeper.EffectOnce),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(3, 1), "third", 1, turnkeeper.EffectOnce)},
	})
	it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(3, 1), "third",
		turnkeeper.CallSucceeded, "ok")}})
	h.Lose(it.Dispatch)
	if _, err := h.CancelTurn(t.Context(), it.Grant.TurnID, "enough"); err != nil {
		t.Fatal(err)
	}
	calls := map[turnkeeper.CallKey]turnkeeper.ToolCall{}
	for _, k := range []turnkeeper.CallKey{storagetest.Key(1, 1), storagetest.Key(1, 2), storagetest.Key(2, 1),
		storagetest.Key(2, 2), storagetest.Key(3, 1)} {
		calls[k] = h.Call(it.Grant.TurnID, k)
	}
	unknown, notRun := calls[storagetest.Key(1, 1)], calls[storagetest.Key(1, 2)]
	if unknown.State != turnkeeper.CallUnknown || notRun.State != turnkeeper.CallCancelled ||
		unknown.Shown == notRun.Shown || unknown.Preview == notRun.Preview ||
		unknown.Shown == "" || notRun.Shown == "" || unknown.Preview == "" || notRun.Preview == "" {
		t.Errorf("the started call is %+v, the planned one %+v", unknown, notRun)
	}
	if c := calls[storagetest.Key(2, 1)]; c.State != turnkeeper.CallUnknown {
		t.Errorf("the call in the background is %+v", c)
	}
	if c := calls[storagetest.Key(2, 2)]; c.State != turnkeeper.CallCancelled || c.Shown != notRun.Shown ||
		c.Preview != notRun.Preview {
		t.Errorf("the other planned call is %+v", c)
	}
	if c := calls[storagetest.Key(3, 1)]; c.State != turnkeeper.CallSucceeded || c.Shown != "ok" || c.Preview != "ok" {
		t.Errorf("the call that had ended is %+v", c)
	}
}

// TestATurnWithoutOpenCallsIsSettled checks that nothing is written for it.
func TestATurnWithoutOpenCallsIsSettled(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
	before := h.Rows()
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		return tick.SettleCalls(ctx, d.Grant.TurnID, "unknown", "perhaps", "not run", "")
	})
	for _, row := range storagetest.Changed(before, h.Rows()) {
		t.Errorf("changed %s", row)
	}
}

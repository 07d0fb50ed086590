package storesuite

import (
	"fmt"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

var backgroundProperties = []property{
	{"a call moves to the background", background},
	{"a call in the background is started again or judged", backgroundLost},
	{"a turn that lost its workers keeps the handles that were shown", handlesOfLost},
	{"a cancelled turn keeps the handles that were shown", handlesOfCancelled},
}

// toBackground moves a call to the background, and starts it first if a start is given.
func (d *dispatch) toBackground(k turnkeeper.CallKey, n string, later turnkeeper.OutputID,
	start ...turnlog.CallStart) error {
	r := result(k, n, turnkeeper.CallRunning, "a handle")
	r.OutputID = later
	return d.Append(d.env.Context(), turnlog.Entry{Starts: start, Results: []turnlog.CallResult{r}})
}

func background(e *env) {
	d := e.planned(turnkeeper.EffectNone, turnkeeper.EffectOnce)
	n := nonce()
	if err := d.toBackground(key(1, 2), "", "x"); err == nil {
		e.Error("a call that was never started moved to the background")
	}
	read := turnlog.CallStart{Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectNone}
	wantErr(e, "a read moves to the background", d.toBackground(key(1, 1), read.Nonce, "first", read), nil)
	d.mustStart(key(1, 2), n, 1)
	wantErr(e, "a nonce without a start", d.toBackground(key(1, 2), "not its nonce", "second"),
		turnkeeper.ErrJournalMoved)
	wantErr(e, "an effect moves to the background", d.toBackground(key(1, 2), n, "second"), nil)
	call := d.call(key(1, 2))
	equal(e, "state", call.State, turnkeeper.CallRunning)
	equal(e, "shown", call.Shown, "a handle")
	equal(e, "output", call.OutputID, "second")
	equal(e, "no end time", call.EndedAt.IsZero(), true)
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "executed calls", turn.ExecutedCalls, 2)

	wantErr(e, "the end", d.answer(key(1, 2), n, turnkeeper.CallSucceeded, "a handle"), nil)
	call = d.call(key(1, 2))
	equal(e, "state at the end", call.State, turnkeeper.CallSucceeded)
	equal(e, "output at the end", call.OutputID, "second")
	equal(e, "no end time after the end", call.EndedAt.IsZero(), false)
	wantErr(e, "back to the background", d.toBackground(key(1, 2), n, "second"), turnkeeper.ErrJournalMoved)
}

func backgroundLost(e *env) {
	d := e.planned(turnkeeper.EffectKeyed, turnkeeper.EffectOnce)
	keyed, once := nonce(), nonce()
	d.mustStart(key(1, 1), keyed, 1)
	d.mustStart(key(1, 2), once, 1)
	wantErr(e, "keyed moves to the background", d.toBackground(key(1, 1), keyed, "first"), nil)
	wantErr(e, "once moves to the background", d.toBackground(key(1, 2), once, "second"), nil)

	after := e.again(d)
	again := turnlog.CallStart{Key: key(1, 1), Nonce: nonce(), Attempt: 2, Effect: turnkeeper.EffectKeyed}
	wantErr(e, "keyed again", after.toBackground(key(1, 1), again.Nonce, "first", again), nil)
	equal(e, "starts", d.call(key(1, 1)).Starts, 2)
	if err := after.start(key(1, 2), nonce(), 2); err == nil {
		e.Error("a call of effect once was started again from the background")
	}
	wantErr(e, "a late result of keyed", d.Late(e.Context(), result(key(1, 1), keyed, turnkeeper.CallSucceeded, "old")),
		nil)
	equal(e, "keyed after it", d.call(key(1, 1)).State, turnkeeper.CallRunning)
	wantErr(e, "the verdict on once", after.verdict(key(1, 2)), nil)
	wantErr(e, "a late result of once", d.Late(e.Context(), with(result(key(1, 2), once, turnkeeper.CallSucceeded,
		"it came"), "dot")), nil)
	d.wantAttached("dot")
	wantErr(e, "a late result without a start", d.Late(e.Context(),
		with(result(key(1, 2), nonce(), turnkeeper.CallSucceeded, "it came"), "stray")), nil)
	d.wantMissing("stray")
	call := d.call(key(1, 2))
	equal(e, "once", call.State, turnkeeper.CallUnknown)
	equal(e, "late result", call.LateResult, "it came")
	wantErr(e, "the end of keyed", after.answer(key(1, 1), again.Nonce, turnkeeper.CallSucceeded, "young"), nil)
}

func handlesOfLost(e *env) {
	handlesStay(e, func(d *dispatch) {
		for range 4 { // three losses, and the end
			e.Pass(LeaseTTL)
			e.tick()
			e.take(second)
		}
		equal(e, "turn", d.turnState(), turnkeeper.TurnDegraded)
	})
}

func handlesOfCancelled(e *env) {
	handlesStay(e, func(d *dispatch) {
		e.cancel(d.grant.TurnID, false)
		e.Pass(LeaseTTL)
		e.tick()
		equal(e, "turn", d.turnState(), turnkeeper.TurnCancelled)
	})
}

// handlesStay checks that the end of a turn without a worker keeps the handles that the model was shown, because later
// requests repeat the ones that contain them. A call that was not shown yet gets the text of its end.
func handlesStay(e *env, end func(d *dispatch)) {
	e.Helper()
	d := e.planned(turnkeeper.EffectKeyed, turnkeeper.EffectOnce, turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	for i, effect := range []turnkeeper.Effect{turnkeeper.EffectKeyed, turnkeeper.EffectOnce} {
		start := turnlog.CallStart{Key: key(1, i+1), Nonce: nonce(), Attempt: 1, Effect: effect}
		output := turnkeeper.OutputID(fmt.Sprint("output", i))
		wantErr(e, "to the background", d.toBackground(start.Key, start.Nonce, output, start), nil)
	}
	start, result := d.spawnOf(key(1, 3), "desk", "look it up")
	result.Shown, result.OutputID = "a handle", "reply"
	d.append(turnlog.Entry{Starts: []turnlog.CallStart{start}, Results: []turnlog.CallResult{result},
		Events: events(turnkeeper.EventToolStarted)})
	d.spawn(key(1, 4), "desk", "look it up too")
	end(d)
	for i := range 3 {
		call := d.call(key(1, i+1))
		equal(e, "the call is answered", call.State.Answered(), true)
		equal(e, "shown of "+call.Key.String(), call.Shown, "a handle")
		equal(e, "the preview says how it ended", call.Preview != "a handle" && call.Preview != "", true)
	}
	call := d.call(key(1, 4))
	equal(e, "a call without a handle", call.State, turnkeeper.CallCancelled)
	equal(e, "its text", call.Shown, call.Preview)
}

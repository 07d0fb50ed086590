package storesuite

import "turnkeeper"

// goOn sends a call to the background, with a start where it has none yet.
func (d *dispatch) goOn(k turnkeeper.CallKey, n string, later turnkeeper.OutputID, start ...turnkeeper.CallStart) error {
	r := result(k, n, turnkeeper.CallRunning, "a handle")
	r.OutputID = later
	return d.Append(d.h.Context(), turnkeeper.Entry{Starts: start, Results: []turnkeeper.CallResult{r}})
}

func background(h *house) {
	d := h.planned(turnkeeper.EffectNone, turnkeeper.EffectOnce)
	n := nonce()
	if err := d.goOn(key(1, 2), "", "x"); err == nil {
		h.Error("a call went to the background that was never started")
	}
	read := turnkeeper.CallStart{Key: key(1, 1), Nonce: nonce(), Attempt: 1, Effect: turnkeeper.EffectNone}
	isIt(h, "a read that goes on", d.goOn(key(1, 1), read.Nonce, "first", read), nil)
	d.mustStart(key(1, 2), n, 1)
	isIt(h, "of no start", d.goOn(key(1, 2), "not its nonce", "second"), turnkeeper.ErrJournalMoved)
	isIt(h, "an effect that goes on", d.goOn(key(1, 2), n, "second"), nil)
	call := d.call(key(1, 2))
	equal(h, "state", call.State, turnkeeper.CallRunning)
	equal(h, "shown", call.Shown, "a handle")
	equal(h, "output", call.OutputID, "second")
	equal(h, "it has no end", call.EndedAt.IsZero(), true)
	turn, _ := h.Turn(d.grant.TurnID)
	equal(h, "executed calls", turn.ExecutedCalls, 2)

	isIt(h, "its end", d.answer(key(1, 2), n, turnkeeper.CallSucceeded, "a handle"), nil)
	call = d.call(key(1, 2))
	equal(h, "state at its end", call.State, turnkeeper.CallSucceeded)
	equal(h, "output at its end", call.OutputID, "second")
	equal(h, "it has an end", call.EndedAt.IsZero(), false)
	isIt(h, "back to the background", d.goOn(key(1, 2), n, "second"), turnkeeper.ErrJournalMoved)
}

func backgroundLost(h *house) {
	d := h.planned(turnkeeper.EffectKeyed, turnkeeper.EffectOnce)
	keyed, once := nonce(), nonce()
	d.mustStart(key(1, 1), keyed, 1)
	d.mustStart(key(1, 2), once, 1)
	isIt(h, "keyed goes on", d.goOn(key(1, 1), keyed, "first"), nil)
	isIt(h, "once goes on", d.goOn(key(1, 2), once, "second"), nil)

	after := h.again(d)
	again := turnkeeper.CallStart{Key: key(1, 1), Nonce: nonce(), Attempt: 2, Effect: turnkeeper.EffectKeyed}
	isIt(h, "keyed again", after.goOn(key(1, 1), again.Nonce, "first", again), nil)
	equal(h, "starts", d.call(key(1, 1)).Starts, 2)
	if err := after.start(key(1, 2), nonce(), 2); err == nil {
		h.Error("a call of effect once was started again from the background")
	}
	isIt(h, "a late result of keyed", d.Late(h.Context(), result(key(1, 1), keyed, turnkeeper.CallSucceeded, "old")), nil)
	equal(h, "keyed after it", d.call(key(1, 1)).State, turnkeeper.CallRunning)
	isIt(h, "the verdict on once", after.verdict(key(1, 2)), nil)
	isIt(h, "a late result of once", d.Late(h.Context(), with(result(key(1, 2), once, turnkeeper.CallSucceeded, "it came"), "dot")), nil)
	d.attached("dot")
	isIt(h, "a late result of nobody", d.Late(h.Context(), with(result(key(1, 2), nonce(), turnkeeper.CallSucceeded, "it came"), "stray")), nil)
	d.unseen("stray")
	call := d.call(key(1, 2))
	equal(h, "once", call.State, turnkeeper.CallUnknown)
	equal(h, "beside it", call.LateResult, "it came")
	isIt(h, "the end of keyed", after.answer(key(1, 1), again.Nonce, turnkeeper.CallSucceeded, "young"), nil)
}

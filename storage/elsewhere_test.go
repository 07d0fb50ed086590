package storage_test

import (
	"fmt"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// waits is a turn of the desk that waits for a detached call of effect once.
func (h *house) waits(conversation string) *dispatch {
	h.t.Helper()
	d := h.detached(conversation, turnkeeper.EffectOnce)
	d.wait(h.t)
	return d
}

// detached is a turn of the desk with a call that is open elsewhere.
func (h *house) detached(conversation string, effect turnkeeper.Effect) *dispatch {
	h.t.Helper()
	h.enqueue("desk", conversation, "take your time")
	d := h.dispatch("worker-1")[0]
	d.append(h.t, turnkeeper.Entry{
		Round: round(1, effect), Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnkeeper.CallStart{{
			Key: key(1, 1), Nonce: fmt.Sprint("n", d.grant.TurnID), Attempt: 1, Effect: effect, Detached: time.Hour,
		}},
		Results: []turnkeeper.CallResult{{
			Key: key(1, 1), Nonce: fmt.Sprint("n", d.grant.TurnID), State: turnkeeper.CallRunning, Shown: "handle",
			OutputID: turnkeeper.OutputID(fmt.Sprint("output-", d.grant.TurnID)),
		}},
	})
	return d
}

func (d *dispatch) wait(t testing.TB) {
	t.Helper()
	err := d.Append(t.Context(), turnkeeper.Entry{
		Outcome: &turnkeeper.Outcome{State: turnkeeper.TurnWaiting}, Events: events(turnkeeper.EventTurnWaiting),
	}, storage.Ending{Log: "waiting"})
	if err != nil {
		t.Fatal(err)
	}
}

// A result whose output has an id that is taken has not arrived by that.
func TestArrivalIsNotTakenForDoneByItsOutput(t *testing.T) {
	h := newHouse(t)
	d := h.waits("a")
	ref := turnkeeper.CallRef{TurnID: d.grant.TurnID, Key: key(1, 1), Attempt: 1}
	c, err := h.Claim(t.Context(), ref, "worker-2", []string{round(1, turnkeeper.EffectOnce).Calls[0].Name})
	if err != nil {
		t.Fatal(err)
	}
	h.exec(`insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description)
		values ('taken', $1, 1, 1, 'text/plain', 'x', 1, 1, 1, 1, '', false, '')`, d.grant.TurnID)
	r := turnkeeper.CallResult{Key: key(1, 1), Nonce: c.Call.Nonce, State: turnkeeper.CallSucceeded, Output: &turnkeeper.Output{ID: "taken", Text: "paid"}}
	if err := h.Arrive(t.Context(), c, r); err == nil {
		t.Error("it has arrived")
	}
	if n := one[int](h, "select count(*) from turnkeeper.awaited_calls where arrived_at is not null"); n != 0 {
		t.Error("it is on record")
	}
	r.Output.ID = "free"
	for range 2 { // the second as if the first had had no answer
		if err := h.Arrive(t.Context(), c, r); err != nil {
			t.Error(err)
		}
	}
	if output := one[string](h, "select output_id from turnkeeper.awaited_calls where arrived_at is not null"); output != "free" {
		t.Errorf("output %s", output)
	}
}

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

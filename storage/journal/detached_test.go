package journal_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// A conflict of the ID of a result's output is an error, and does not mean that the result has
// arrived already.
func TestArrivalIsNotTakenForDoneByItsOutput(t *testing.T) {
	h := newEnv(t)
	d := h.Waiting("a")
	ref := turnlog.CallRef{TurnID: d.Grant.TurnID, Key: storagetest.Key(1, 1), Attempt: 1}
	c, err := h.Claim(t.Context(), ref, "worker-2", []string{storagetest.Round(1, turnkeeper.EffectOnce).Calls[0].Name})
	if err != nil {
		t.Fatal(err)
	}
	h.Exec(
		`insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description)
		values ('taken', $1, 1, 1, 'text/plain', 'x', 1, 1, 1, 1, '', false, '')`, d.Grant.TurnID)
	r := turnlog.CallResult{Key: storagetest.Key(1, 1), Nonce: c.Call.Nonce, State: turnkeeper.CallSucceeded,
		Output: &turnkeeper.Output{ID: "taken", Text: "paid"}}
	if err := h.Arrive(t.Context(), c, r); err == nil {
		t.Error("it has arrived")
	}
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.awaited_calls where arrived_at is not null"); n != 0 {
		t.Error("it is on record")
	}
	r.Output.ID = "free"
	for range 2 { // the second delivery repeats the first, as after a lost answer
		if err := h.Arrive(t.Context(), c, r); err != nil {
			t.Error(err)
		}
	}
	if output := storagetest.One[string](h,
		"select output_id from turnkeeper.awaited_calls where arrived_at is not null"); output != "free" {
		t.Errorf("output %s", output)
	}
}

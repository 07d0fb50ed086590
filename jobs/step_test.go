package jobs_test

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/storage/storagetest"
)

// TestAWriteOutlivesItsContext cancels a turn while the start of a call is being written. The turn learns that it is on
// record.
func TestAWriteOutlivesItsContext(t *testing.T) {
	h := storagetest.WithAgents(t)
	d := h.Turn("x")
	entry := turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectOnce),
		Starts: []turnlog.CallStart{{Key: storagetest.Key(1, 1), Nonce: "n", Attempt: 1,
			Effect: turnkeeper.EffectOnce}},
	}
	journal := jobs.NewJournal(h.Journals, d.Record, d.Grant)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	write := func(context.Context, *storagetest.DB) error { return journal.Append(ctx, entry) }
	if !h.WaitsBehind(cancel, write, "select from turnkeeper.turns where id = $1 for update", d.Grant.TurnID) {
		t.Error("the write did not wait")
	}
	if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)); call.State != turnkeeper.CallStarted {
		t.Errorf("the call is %s", call.State)
	}
}

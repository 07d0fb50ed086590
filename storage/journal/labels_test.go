package journal_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// TestWhatATurnReadsOfLabels stores a label of every kind with each of several ids, and checks which a turn gets: those
// of its call 1.1, and those of its message, of an earlier turn, and of its own beginning.
func TestWhatATurnReadsOfLabels(t *testing.T) {
	h := newEnv(t)
	// so that no message has the id of a turn
	h.Exec("select setval(pg_get_serial_sequence('turnkeeper.messages', 'id'), 20)")
	h.Submit("clerk", "c", "x")
	h.Dispatch("w")[0].Finish(t, "done")
	h.Submit("clerk", "c", "x")
	d := h.Dispatch("w")[0]
	turn, message, earlier := int64(d.Grant.TurnID), int64(d.Record.Message.ID), int64(d.Record.History[0].TurnID)
	for _, kind := range []string{"call", "turn", "message", "reply", "summary", "note"} {
		for _, id := range []int64{turn, message, earlier, 7, 0} {
			if id == 0 && kind != "note" { // only a note has no id
				continue
			}
			known := kind == "call" && id == turn || kind == "turn" && (id == turn || id == earlier) ||
				kind == "message" && id == message
			h.Exec("delete from turnkeeper.labels")
			h.Exec(
				"insert into turnkeeper.labels (kind, id, round, ordinal, label, source) values ($1, $2, $3, $3, 'private', 'a file')",
				kind, id, map[bool]int{true: 1}[kind == "call"])
			record, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(record.Labels.Before) + len(record.Labels.Calls); (n == 1) != known {
				t.Errorf("%s %d (turn %d, message %d, earlier turn %d): %d labels", kind, id, turn, message, earlier, n)
			}
			got := len(record.Labels.Calls[turnkeeper.CallKey{Round: 1, Ordinal: 1}])
			if (got == 1) != (kind == "call" && id == turn) {
				t.Errorf("%s %d: %d labels of the call", kind, id, got)
			}
		}
	}
	h.Exec("delete from turnkeeper.labels")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectNone)})
}

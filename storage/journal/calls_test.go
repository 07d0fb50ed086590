package journal_test

import (
	"errors"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// TestEntriesAboutNoCall writes entries about calls that the journal does not have, and a round that does not follow.
func TestEntriesAboutNoCall(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	before := h.Rows()
	refused := func(name string, e turnlog.Entry) {
		t.Helper()
		if err := d.Append(t.Context(), e, turnlog.Consequence{}); !errors.Is(err, turnkeeper.ErrJournalMoved) {
			t.Errorf("%s: %v, want ErrJournalMoved", name, err)
		}
	}
	for _, k := range []turnkeeper.CallKey{{Round: 0, Ordinal: 1}, {Round: 1, Ordinal: 0}, {Round: 1, Ordinal: 2},
		{Round: 2, Ordinal: 1}} {
		refused("a start of call "+k.String(), turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(k, "n", 1,
			turnkeeper.EffectOnce)}})
		refused("a result of call "+k.String(), turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(k, "",
			turnkeeper.CallDenied, "no")}})
	}
	for _, n := range []int{1, 3} {
		refused("a round", turnlog.Entry{Round: storagetest.Round(n)})
	}
	for _, row := range storagetest.Changed(before, h.Rows()) {
		t.Errorf("a refused entry changed %s", row)
	}
}

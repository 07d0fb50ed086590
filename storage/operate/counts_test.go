package operate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

func TestFiguresCountEndsByState(t *testing.T) {
	h := newEnv(t)
	h.Turn("succeeds").Finish(t, "done")
	for _, o := range []turnlog.Outcome{
		{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds, Reply: "so far"},
		{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopBudget, Reply: "so far"},
	} {
		if err := h.Turn(string(o.StopReason)).Append(t.Context(), turnlog.Entry{Outcome: &o},
			storagetest.Answered); err != nil {
			t.Fatal(err)
		}
	}
	h.Turn("runs")
	got, err := h.Totals(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want := operate.Totals{Running: 1, Ended: 3, Succeeded: 1, Degraded: 2}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(operate.Totals{}, "Now", "Tokens"),
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

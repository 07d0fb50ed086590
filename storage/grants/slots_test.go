package grants_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// Ten slots that pass while the agent cannot run, because its turn waits for the next day's budget,
// make one run.
func TestSlotsThatComeWhileTheLaneIsHeldCollapse(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", false, turnkeeper.Schedule{Name: "often", Cron: "*/10 * * * *", TimeZone: "UTC",
		Conversation: "main", Message: "Snapshot."})
	slot := time.Now().Add(-3 * time.Hour).Truncate(10 * time.Minute).UTC()
	occur := func() {
		h.due(func(granting.DueSchedule) granting.SlotDecision {
			d := granting.SlotDecision{Slot: slot, NextDue: slot.Add(10 * time.Minute)}
			slot = d.NextDue
			return d
		})
	}
	occur()
	d := h.Dispatch("worker-1")[0]
	deferred := turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: 2 * time.Hour, ErrorClass: "budget",
		Error: "the budget is used up"}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &deferred},
		turnlog.Consequence{Log: "deferred"}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		occur()
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages where state = 'waiting'"); n > 1 {
		t.Errorf("%d messages of the schedule wait behind the deferred one, want 1", n)
	}
}

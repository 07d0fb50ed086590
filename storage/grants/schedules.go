package grants

import (
	"context"

	"turnkeeper/internal/granting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// DueSchedules lists the schedules whose next slot is due or not known.
func (t *Tick) DueSchedules(ctx context.Context, limit int) ([]granting.DueSchedule, error) {
	rows, err := t.q.DueSchedules(ctx, int32(limit)) //nolint:gosec // small
	return dbrow.Map(rows, func(r dbsqlc.DueSchedulesRow) granting.DueSchedule {
		return granting.DueSchedule{
			Agent: r.Agent, Name: r.Name, Cron: r.Cron, TimeZone: r.TimeZone, Conversation: r.Conversation,
			Message: r.Message,
			NextDue: dbrow.OrZero(r.NextDue), LastSlot: dbrow.OrZero(r.LastSlot), Level: r.Level,
		}
	}), pg.Translate(err)
}

// Fire writes the message of a due slot, at most once, or records that it does not run, and advances the schedule.
func (t *Tick) Fire(ctx context.Context, d granting.SlotDecision) error {
	s := d.Schedule
	p := dbsqlc.AdvanceScheduleParams{Agent: s.Agent, Name: s.Name, NextDue: dbrow.OrNullTime(d.NextDue),
		LastError: dbrow.OrNull(d.Error)}
	switch {
	case d.Skipped != "":
		p.SkippedSlot, p.SkippedWhy = dbrow.OrNullTime(d.Slot), dbrow.OrNull(d.Skipped)
	case !d.Slot.IsZero():
		p.LastSlot = dbrow.OrNullTime(d.Slot)
		t.ahead = nil // outdated: a message is added
		err := t.q.Fire(ctx, dbsqlc.FireParams{
			Agent: s.Agent, Conversation: s.Conversation, Body: s.Message, Schedule: s.Name, Slot: d.Slot,
		})
		if err != nil {
			return pg.Translate(err)
		}
	}
	return pg.Translate(t.q.AdvanceSchedule(ctx, p))
}

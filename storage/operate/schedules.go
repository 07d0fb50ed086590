package operate

import (
	"context"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Schedules lists all schedules by agent and name.
func (s *Views) Schedules(ctx context.Context) ([]turnkeeper.Schedule, error) {
	rows, err := s.db.Q.ListSchedules(ctx)
	return dbrow.Map(rows, func(row dbsqlc.ListSchedulesRow) turnkeeper.Schedule {
		r := row.TurnkeeperSchedule
		return turnkeeper.Schedule{
			AgentRetired: row.AgentRetired,
			Agent:        r.Agent, Name: r.Name, Cron: r.Cron, CronOverride: dbrow.OrZero(r.CronOverride),
			TimeZone:     r.TimeZone,
			Conversation: r.Conversation, Message: r.Message, Active: r.Active, PausedAt: dbrow.OrZero(r.PausedAt),
			PausedReason: dbrow.OrZero(r.PausedReason),
			NextDue:      dbrow.OrZero(r.NextDue), LastSlot: dbrow.OrZero(r.LastSlot),
			LastError:   dbrow.OrZero(r.LastError),
			SkippedSlot: dbrow.OrZero(r.SkippedSlot), SkippedWhy: dbrow.OrZero(r.SkippedWhy), Skipped: int(r.Skipped),
		}
	}), pg.Translate(err)
}

// OverrideSchedule replaces the cron expression of a schedule, also across restarts and
// changes of the agent's file. An empty cron restores the file's.
func (s *Control) OverrideSchedule(ctx context.Context, agent, name, cron string) error {
	n, err := s.db.Q.OverrideSchedule(ctx, dbrow.OrNull(cron), agent, name)
	return s.ringIfChanged(ctx, n, err)
}

// PauseSchedule pauses a schedule, or resumes it from its next slot. reason may be empty.
func (s *Control) PauseSchedule(ctx context.Context, agent, name string, paused bool, reason string) error {
	n, err := s.db.Q.PauseSchedule(ctx, paused, s.db.Clean(reason), agent, name)
	return s.ringIfChanged(ctx, n, err)
}

// RunSchedule puts the message of a schedule into the inbox now, in addition to its slots, even if
// the schedule is paused. waiting reports that a message of the schedule already waits; RunSchedule
// returns that one. It fails with ErrNotFound if there is no such schedule, with ErrWrongState if the
// agent's file no longer has it, and with ErrAgentRetired.
func (s *Control) RunSchedule(ctx context.Context, agent,
	name string) (id turnkeeper.MessageID, waiting bool, err error) {
	row, err := s.db.Q.RunSchedule(ctx, agent, name)
	if err == nil && row.Message == 0 {
		return 0, false, turnkeeper.ErrNotFound
	}
	return turnkeeper.MessageID(row.Message), row.Waiting, pg.Translate(err)
}

func (s *Control) ringIfChanged(ctx context.Context, rows int64, err error) error {
	if err != nil {
		return pg.Translate(err)
	}
	if rows == 0 {
		return turnkeeper.ErrNotFound
	}
	return pg.Translate(s.db.Q.RingInbox(ctx))
}

package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/pause"
	"turnkeeper/storage/internal/dbsqlc"
)

// RegisterAgents makes agents known, so that messages to them are accepted and
// their schedules come due. It ends the back-off of their lanes, and the wait of turns that a budget put off, and has models
// that are down tried at once: whoever starts a worker or changes an agent may have mended what failed. Agents that are not
// named stay: another worker may serve them. Every process may do it; the last
// one wins.
//
// A scheduler that was stopped within its tick holds a schedule's row until the
// server ends its session, after half a minute: RegisterAgents tries again as
// often as that takes.
func (s *Store) RegisterAgents(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	for tries := 1; ; tries++ {
		err := s.registerAll(ctx, agents)
		if !lockRefused(err) || tries == registerTries || pause.For(ctx, registerPause) != nil {
			return err
		}
		s.log.Warn("another session keeps the agents' rows; registering them is tried again", zap.Int("tries", tries))
	}
}

// registerTries, each as long as the lock timeout, outlast a stopped session.
const (
	registerTries = 6
	registerPause = 50 * time.Millisecond
)

func (s *Store) registerAll(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	return translate(pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		models := []string{}
		for _, a := range agents {
			if err := register(ctx, q, a); err != nil {
				return err
			}
			models = append(models, a.Models...)
		}
		if _, err := q.TryModels(ctx, models); err != nil { // after all lanes, as the ends of turns do
			return err
		}
		return q.RingInbox(ctx)
	}))
}

func register(ctx context.Context, q *dbsqlc.Queries, a turnkeeper.AgentRegistration) error {
	if err := q.SaveDefinition(ctx, a.DefinitionHash, a.Name, string(a.Definition)); err != nil {
		return err
	}
	err := q.SaveAgent(ctx, dbsqlc.SaveAgentParams{
		Name: a.Name, DefinitionHash: a.DefinitionHash, Description: a.Description, LanePerConversation: a.LanePerConversation,
		Models: append([]string{}, a.Models...), GiveUpAfter: a.GiveUpAfter,
	})
	if err != nil {
		return err
	}
	if err := q.EndBackoff(ctx, a.Name); err != nil {
		return err
	}
	if err := q.EndDeferrals(ctx, a.Name); err != nil {
		return err
	}
	kept := []string{}
	for _, sched := range a.Schedules {
		kept = append(kept, sched.Name)
		err := q.SaveSchedule(ctx, dbsqlc.SaveScheduleParams{
			Agent: a.Name, Name: sched.Name, Cron: sched.Cron, TimeZone: sched.TimeZone,
			Conversation: sched.Conversation, Message: sched.Message,
		})
		if err != nil {
			return err
		}
	}
	return q.RetireSchedules(ctx, a.Name, kept)
}

// CurrentDefinition is the file of an agent as it was registered last. It fails with
// turnkeeper.ErrNotFound for an agent that is not known.
func (s *Store) CurrentDefinition(ctx context.Context, agent string) ([]byte, error) {
	content, err := s.q.CurrentDefinition(ctx, agent)
	return []byte(content), translate(err)
}

// Agents lists the registered agents by name, without their schedules and
// definitions.
func (s *Store) Agents(ctx context.Context) ([]turnkeeper.AgentRegistration, error) {
	rows, err := s.q.ListAgents(ctx)
	return mapRows(rows, func(r dbsqlc.ListAgentsRow) turnkeeper.AgentRegistration {
		return turnkeeper.AgentRegistration{
			Name: r.Name, Description: r.Description, DefinitionHash: r.DefinitionHash, LanePerConversation: r.LanePerConversation,
			RetiredAt: orZero(r.RetiredAt), LeftWaiting: int(r.LeftWaiting), PausedSchedules: r.Paused,
		}
	}), translate(err)
}

// RetireAgent has an agent take no new messages and run no schedules, until RestoreAgent;
// registering it again does not change that. What runs goes on, and messages that wait are kept.
// An unknown agent fails with ErrNotFound; a repeat does nothing.
func (s *Store) RetireAgent(ctx context.Context, name string) error {
	return found(s.q.RetireAgent(ctx, name))
}

// RestoreAgent undoes RetireAgent: messages that wait are handled, and schedules go on from their
// next slots. An unknown agent fails with ErrNotFound.
func (s *Store) RestoreAgent(ctx context.Context, name string) error {
	return translate(pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		if err := q.SkipMissedSlots(ctx, name); err != nil {
			return err
		}
		if err := found(q.RestoreAgent(ctx, name)); err != nil {
			return err
		}
		return q.RingInbox(ctx)
	}))
}

// CancelWaiting cancels the messages of an agent that wait, each as CancelMessage does, and returns
// how many there were. One that begins to be handled meanwhile is left alone.
func (s *Store) CancelWaiting(ctx context.Context, agent, reason string) (cancelled int, err error) {
	for after := int64(0); ; {
		ids, err := s.q.WaitingOf(ctx, agent, after, maxLimit)
		if err != nil || len(ids) == 0 {
			return cancelled, translate(err)
		}
		for _, after = range ids {
			row, err := s.q.CancelMessage(ctx, after, reason)
			if err != nil {
				return cancelled, heldUp(err)
			}
			if row.State == string(turnkeeper.MessageCancelled) {
				cancelled++
			}
		}
	}
}

// Schedules lists all schedules by agent and name.
func (s *Store) Schedules(ctx context.Context) ([]turnkeeper.Schedule, error) {
	rows, err := s.q.ListSchedules(ctx)
	return mapRows(rows, func(row dbsqlc.ListSchedulesRow) turnkeeper.Schedule {
		r := row.TurnkeeperSchedule
		return turnkeeper.Schedule{
			AgentRetired: row.AgentRetired,
			Agent:        r.Agent, Name: r.Name, Cron: r.Cron, CronOverride: orZero(r.CronOverride), TimeZone: r.TimeZone,
			Conversation: r.Conversation, Message: r.Message, Active: r.Active, PausedAt: orZero(r.PausedAt), PausedReason: orZero(r.PausedReason),
			NextDue: orZero(r.NextDue), LastSlot: orZero(r.LastSlot), LastError: orZero(r.LastError),
		}
	}), translate(err)
}

// OverrideSchedule changes when a schedule comes due; it lasts over restarts
// and over changes of the agent's file. An empty cron goes back to the file's.
func (s *Store) OverrideSchedule(ctx context.Context, agent, name, cron string) error {
	n, err := s.q.OverrideSchedule(ctx, orNull(cron), agent, name)
	return s.ringIfChanged(ctx, n, err)
}

// PauseSchedule stops one schedule, or lets it go on from its next slot. reason is why it is
// stopped; empty: nobody said.
func (s *Store) PauseSchedule(ctx context.Context, agent, name string, paused bool, reason string) error {
	n, err := s.q.PauseSchedule(ctx, paused, s.clean(reason), agent, name)
	return s.ringIfChanged(ctx, n, err)
}

// RunSchedule puts the message of a schedule into the inbox now, beside its slots, whether it is
// paused or not. waiting: a message of the schedule waits already, and is the run. A schedule
// that does not exist, or that its agent's file has no more, is ErrNotFound.
func (s *Store) RunSchedule(ctx context.Context, agent, name string) (id turnkeeper.MessageID, waiting bool, err error) {
	row, err := s.q.RunSchedule(ctx, agent, name)
	if err == nil && row.Message == 0 {
		return 0, false, turnkeeper.ErrNotFound
	}
	return turnkeeper.MessageID(row.Message), row.Waiting, translate(err)
}

// RingInbox makes every scheduler of this database look again.
func (s *Store) RingInbox(ctx context.Context) error { return translate(s.q.RingInbox(ctx)) }

func (s *Store) ringIfChanged(ctx context.Context, rows int64, err error) error {
	if err != nil {
		return translate(err)
	}
	if rows == 0 {
		return turnkeeper.ErrNotFound
	}
	return translate(s.q.RingInbox(ctx))
}

// SchedulerSettings are what operators changed of the scheduler.
type SchedulerSettings struct {
	PausedAt      time.Time // zero: not paused
	PausedReason  string
	PollInterval  time.Duration // 0: as configured
	MaxDispatches int           // 0: as configured
	LastTickAt    time.Time     // on record
	HoldUntil     time.Time     // zero: no hold-off
	HoldReason    string
}

// SchedulerSettings reads what operators changed of the scheduler.
func (s *Store) SchedulerSettings(ctx context.Context) (SchedulerSettings, error) {
	row, err := s.q.Settings(ctx)
	return SchedulerSettings{
		PausedAt: orZero(row.PausedAt), PausedReason: orZero(row.PausedReason), PollInterval: orZero(row.PollInterval),
		MaxDispatches: int(orZero(row.MaxDispatchesPerTick)), LastTickAt: orZero(row.LastTickAt),
		HoldUntil: orZero(row.HoldUntil), HoldReason: orZero(row.HoldReason),
	}, translate(err)
}

// PauseScheduler stops all schedulers of this database from granting; what
// runs goes on. It lasts until ResumeScheduler.
func (s *Store) PauseScheduler(ctx context.Context, reason string) error {
	return translate(s.q.Pause(ctx, reason))
}

// ResumeScheduler undoes PauseScheduler.
func (s *Store) ResumeScheduler(ctx context.Context) error {
	if err := s.q.Resume(ctx); err != nil {
		return translate(err)
	}
	return translate(s.q.RingInbox(ctx))
}

// EndHold ends a hold-off of the schedulers of this database, and keeps them from beginning
// one because of what has happened so far. It is safe only if the database has lost no
// commit, or if no worker runs that had turns before.
func (s *Store) EndHold(ctx context.Context) error {
	return translate(pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		if err := q.AcceptDatabase(ctx); err != nil {
			return err
		}
		return errors.Join(q.EndHold(ctx), q.TryAllModels(ctx), q.RingInbox(ctx))
	}))
}

// SetScheduler changes the scheduler's poll interval and grants a tick while it
// runs; 0 leaves a value as it is.
func (s *Store) SetScheduler(ctx context.Context, poll time.Duration, maxDispatches int) error {
	var p *time.Duration
	var n *int32
	if poll > 0 {
		p = &poll
	}
	if maxDispatches > 0 {
		m := int32(min(maxDispatches, 10_000))
		n = &m
	}
	if err := s.q.SetIntervals(ctx, p, n); err != nil {
		return translate(err)
	}
	return translate(s.q.RingInbox(ctx))
}

// SetMaxMessageBytes sets the limit on the body of a message, for every way in.
func (s *Store) SetMaxMessageBytes(ctx context.Context, n int) error {
	return translate(s.q.SetMaxMessageBytes(ctx, int32(min(n, maxPostgresText)))) //nolint:gosec // bounded
}

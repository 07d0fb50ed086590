package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/pause"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// RegisterAgents stores definitions and schedules of agents, so that messages to them
// are accepted and their schedules fire. It also ends the back-off of their lanes,
// makes turns deferred by a budget due, and makes the scheduler probe models that are
// down: whoever starts a worker or changes an agent may have fixed the cause. Other
// agents are kept, because another worker may serve them. Any process may call it; the
// last call wins.
//
// A scheduler process that was stopped in a tick holds the row of a schedule until the
// server ends its session, after half a minute. RegisterAgents retries for that long.
//
// It registers all or none. RegisterEach registers those that it can.
func (s *DB) RegisterAgents(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	for tries := 1; ; tries++ {
		err := s.registerAll(ctx, agents)
		if !pg.LockRefused(err) || tries == registerTries || pause.For(ctx, registerPause) != nil {
			return err
		}
		s.core.Log.Warn("agents' rows are locked by another session; registering them is retried",
			zap.Int("tries", tries))
	}
}

// RegisterEach registers agents like RegisterAgents. If the rows of some of them refuse to be written, it sets these
// aside, keeps their last versions, registers the others, and returns the names of those that failed: see AgentsToTry.
func (s *DB) RegisterEach(ctx context.Context, agents []turnkeeper.AgentRegistration) (failed []string, err error) {
	err = s.RegisterAgents(ctx, agents)
	if err == nil {
		return nil, s.notAside(ctx, agents)
	}
	if !pg.BelongsToRow(err) {
		return nil, err
	}
	for i := range agents {
		one := agents[i : i+1]
		err := s.RegisterAgents(ctx, one)
		switch {
		case err == nil:
			err = s.notAside(ctx, one)
		case pg.BelongsToRow(err):
			failed = append(failed, one[0].Name)
			err = s.core.PutAside(ctx, s.core.Q, string(granting.AsideAgent), one[0].Name, err)
		}
		if err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// notAside records that agents are set aside no longer. A failure is logged alone: they are registered.
func (s *DB) notAside(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	kinds, names := []string{}, []string{}
	for _, a := range agents {
		kinds, names = append(kinds, string(granting.AsideAgent)), append(names, a.Name)
	}
	err := pg.Translate(s.core.Q.ForgetAside(ctx, kinds, names))
	if pg.BelongsToRow(err) {
		s.core.Log.Error("could not delete from set_aside that agents could not be registered; they are now",
			zap.Error(err))
		return nil
	}
	return err
}

// AgentsToTry returns those of the agents that could not be registered whose next try is due.
func (s *DB) AgentsToTry(ctx context.Context, names []string) ([]string, error) {
	due, err := s.core.Q.AgentsToTry(ctx, names)
	return due, pg.Translate(err)
}

// registerTries times the lock timeout is longer than a stopped session lasts.
const (
	registerTries = 6
	registerPause = 50 * time.Millisecond
)

func (s *DB) registerAll(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	return pg.Translate(pgx.BeginFunc(ctx, s.core.Pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		names := []string{}
		for _, a := range agents {
			if err := register(ctx, q, a); err != nil {
				return err
			}
			names = append(names, a.Name)
		}
		if err := q.TryModelsOfAgents(ctx, names); err != nil { // after all lanes, as the ends of turns do
			return err
		}
		return q.RingInbox(ctx)
	}))
}

func register(ctx context.Context, q *dbsqlc.Queries, a turnkeeper.AgentRegistration) error {
	if err := q.SaveDefinition(ctx, a.DefinitionHash, string(a.Definition)); err != nil {
		return err
	}
	levels := a.Levels
	if levels == nil {
		levels = []byte("{}")
	}
	err := q.SaveAgent(ctx, dbsqlc.SaveAgentParams{
		Name: a.Name, DefinitionHash: a.DefinitionHash, Description: a.Description,
		LanePerConversation: a.LanePerConversation,
		Models:              append([]string{}, a.Models...), GiveUpAfter: a.GiveUpAfter,
		MaxRunning: int32(a.MaxRunning), //nolint:gosec // at most 1000
		DayTokens:  a.DayTokens, DayCalls: a.DayCalls, Levels: levels,
	})
	if err != nil {
		return err
	}
	if err := q.NoteLevel(ctx, a.Name); err != nil {
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

// A CurrentAgent is an agent as it was last registered.
type CurrentAgent struct {
	Hash    string // of File
	File    []byte
	Retired bool
}

// CurrentAgent returns an agent as it was last registered. It fails with turnkeeper.ErrNotFound for
// an unknown agent.
func (s *DB) CurrentAgent(ctx context.Context, agent string) (CurrentAgent, error) {
	row, err := s.core.Q.CurrentDefinition(ctx, agent)
	return CurrentAgent{row.Hash, []byte(row.Content), row.Retired}, pg.Translate(err)
}

// RingInbox wakes every scheduler of this database.
func (s *DB) RingInbox(ctx context.Context) error { return pg.Translate(s.core.Q.RingInbox(ctx)) }

// SetMaxMessageBytes sets the maximum size of a message's body, however it is sent.
func (s *DB) SetMaxMessageBytes(ctx context.Context, n int) error {
	most := int32(min(n, turnkeeper.LargestMessage)) //nolint:gosec // bounded
	return pg.Translate(s.core.Q.SetMaxMessageBytes(ctx, most))
}

// SetMaxSenderPriority sets the highest priority of messages whose sender may not operate.
func (s *DB) SetMaxSenderPriority(ctx context.Context, n int) error {
	return pg.Translate(s.core.Q.SetMaxSenderPriority(ctx, int32(n))) //nolint:gosec // the table has bounds
}

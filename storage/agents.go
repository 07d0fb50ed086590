package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/pause"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
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
func (s *DB) RegisterAgents(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	for tries := 1; ; tries++ {
		err := s.registerAll(ctx, agents)
		if !pg.LockRefused(err) || tries == registerTries || pause.For(ctx, registerPause) != nil {
			return err
		}
		s.core.Log.Warn("another session keeps the agents' rows; registering them is tried again", zap.Int("tries", tries))
	}
}

// registerTries, each as long as the lock timeout, outlast a stopped session.
const (
	registerTries = 6
	registerPause = 50 * time.Millisecond
)

func (s *DB) registerAll(ctx context.Context, agents []turnkeeper.AgentRegistration) error {
	return pg.Translate(pgx.BeginFunc(ctx, s.core.Pool, func(tx pgx.Tx) error {
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
	if err := q.SaveDefinition(ctx, a.DefinitionHash, string(a.Definition)); err != nil {
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
func (s *DB) CurrentDefinition(ctx context.Context, agent string) ([]byte, error) {
	content, err := s.core.Q.CurrentDefinition(ctx, agent)
	return []byte(content), pg.Translate(err)
}

// RingInbox makes every scheduler of this database look again.
func (s *DB) RingInbox(ctx context.Context) error { return pg.Translate(s.core.Q.RingInbox(ctx)) }

// SetMaxMessageBytes sets the limit on the body of a message, for every way in.
func (s *DB) SetMaxMessageBytes(ctx context.Context, n int) error {
	return pg.Translate(s.core.Q.SetMaxMessageBytes(ctx, int32(min(n, maxPostgresText)))) //nolint:gosec // bounded
}

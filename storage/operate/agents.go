package operate

import (
	"context"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Agents lists the registered agents by name, without their schedules and
// definitions.
func (s *Views) Agents(ctx context.Context) ([]turnkeeper.AgentRegistration, error) {
	rows, err := s.db.Q.ListAgents(ctx)
	return dbrow.Map(rows, func(r dbsqlc.ListAgentsRow) turnkeeper.AgentRegistration {
		return turnkeeper.AgentRegistration{
			Name: r.Name, Description: r.Description, DefinitionHash: r.DefinitionHash, Models: r.Models,
			LanePerConversation: r.LanePerConversation,
			RetiredAt:           dbrow.OrZero(r.RetiredAt), LeftWaiting: int(r.LeftWaiting), PausedSchedules: r.Paused,
		}
	}), pg.Translate(err)
}

// RetireAgent makes an agent refuse new messages and run no schedules until RestoreAgent;
// registering it again does not change that. Running turns continue, and waiting messages are
// kept. It fails with ErrNotFound for an unknown agent, and may fail with ErrTickGoesOn. A repeat does nothing.
func (s *Control) RetireAgent(ctx context.Context, name string) error {
	if err := found(s.db.Q.RetireAgent(ctx, name)); err != nil {
		return err
	}
	return afterTick(ctx, s.db)
}

// RestoreAgent undoes RetireAgent: waiting messages are handled, and schedules continue with their
// next slots. It fails with ErrNotFound for an unknown agent.
func (s *Control) RestoreAgent(ctx context.Context, name string) error {
	return pg.Translate(pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
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

// CancelWaiting cancels the waiting messages of an agent, each as CancelMessage does, and returns
// their number. It skips messages that start to run in the meantime.
func (s *Control) CancelWaiting(ctx context.Context, agent, reason string) (cancelled int, err error) {
	for after := int64(0); ; {
		ids, err := s.db.Q.WaitingOf(ctx, agent, after, maxLimit)
		if err != nil || len(ids) == 0 {
			return cancelled, pg.Translate(err)
		}
		for _, after = range ids {
			row, err := s.db.Q.CancelMessage(ctx, after, reason)
			if err != nil {
				return cancelled, heldUp(err)
			}
			if row.State == string(turnkeeper.MessageCancelled) {
				cancelled++
			}
		}
	}
}

func found(rows int64, err error) error {
	if err == nil && rows == 0 {
		return turnkeeper.ErrNotFound
	}
	return pg.Translate(err)
}

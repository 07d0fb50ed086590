package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A DaySpend is what an agent with a budget has spent on the current day (UTC), and how many of its
// turns the budget defers.
type DaySpend struct {
	Agent      string
	Definition []byte // as registered
	Tokens     int64
	Calls      int64
	PutOff     int       // deferred turns
	Until      time.Time // when the first of them is due; without any, when the next day begins
}

// DaySpend lists the spend of agents with a budget, by agent. It leaves out agents that spent
// nothing today and have no deferred turn.
func (s *Reports) DaySpend(ctx context.Context) ([]DaySpend, error) {
	rows, err := s.db.Q.DaySpend(ctx)
	return dbrow.Map(rows, func(r dbsqlc.DaySpendRow) DaySpend {
		return DaySpend{
			Agent: r.Name, Definition: []byte(r.Definition), Tokens: r.Tokens, Calls: r.Calls, PutOff: int(r.PutOff),
			Until: r.Until,
		}
	}), pg.Translate(err)
}

// A LongWait is the message of an agent that has waited longest.
type LongWait struct {
	Agent    string
	Message  turnkeeper.MessageID
	DueAt    time.Time
	Messages int // of the agent that have waited too long; counted up to 10,000
}

// LongWaits lists, for each agent with messages that have been due for longer than dueFor, the message that has waited
// longest. A message whose turn the workers have handed back counts at once. The longest wait comes first.
func (s *Reports) LongWaits(ctx context.Context, dueFor time.Duration) ([]LongWait, error) {
	rows, err := s.db.Q.LongWaits(ctx, dueFor)
	return dbrow.Map(rows, func(r dbsqlc.LongWaitsRow) LongWait {
		return LongWait{Agent: r.Agent, Message: turnkeeper.MessageID(r.MessageID), DueAt: r.DueAt,
			Messages: int(r.Messages)}
	}), pg.Translate(err)
}

// A LossyTurn is a turn that lost workers.
type LossyTurn struct {
	Turn    turnkeeper.TurnID
	Message turnkeeper.MessageID
	Agent   string
	Losses  int
	State   turnkeeper.TurnState
	EndedAt time.Time // zero: it is open
	GivenUp bool      // it was ended without being run again
	Tools   []string  // tools whose calls may have been running when a worker was lost, sorted
}

// LossyTurns lists turns that are open and lost a worker, or that ended within the given time and lost several
// workers or were given up. It looks at the newest 5,000 turns, and returns at most ten, newest first.
func (s *Reports) LossyTurns(ctx context.Context, endedWithin time.Duration) ([]LossyTurn, error) {
	rows, err := s.db.Q.LossyTurns(ctx, endedWithin)
	return dbrow.Map(rows, func(r dbsqlc.LossyTurnsRow) LossyTurn {
		return LossyTurn{
			Turn: turnkeeper.TurnID(r.ID), Message: turnkeeper.MessageID(r.MessageID), Agent: r.Agent,
			Losses: int(r.Losses),
			State:  turnkeeper.TurnState(r.State), EndedAt: dbrow.OrZero(r.EndedAt), Tools: r.Tools,
			GivenUp: r.ErrorClass == string(turnkeeper.StopWorkerLost),
		}
	}), pg.Translate(err)
}

package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A DaySpend is what an agent with a budget has spent of the current day (UTC), and the turns that
// a budget puts off.
type DaySpend struct {
	Agent      string
	Definition []byte // as registered
	Tokens     int64
	Calls      int64
	PutOff     int       // turns
	Until      time.Time // the first of them goes on then; with none, the next day's budget is open
}

// DaySpend lists what agents with a budget have spent, by agent. Agents that spent nothing today,
// and have no turn that is put off, are left out.
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

// LongWaits lists, for each agent with messages that have been due for longer than dueFor, the one that
// has waited longest; the longest wait first.
func (s *Reports) LongWaits(ctx context.Context, dueFor time.Duration) ([]LongWait, error) {
	rows, err := s.db.Q.LongWaits(ctx, dueFor)
	return dbrow.Map(rows, func(r dbsqlc.LongWaitsRow) LongWait {
		return LongWait{Agent: r.Agent, Message: turnkeeper.MessageID(r.MessageID), DueAt: r.DueAt, Messages: int(r.Messages)}
	}), pg.Translate(err)
}

// A LossyTurn is a turn that lost its workers.
type LossyTurn struct {
	Turn    turnkeeper.TurnID
	Message turnkeeper.MessageID
	Agent   string
	Losses  int
	State   turnkeeper.TurnState
	EndedAt time.Time // zero: it is open
	GivenUp bool      // it was answered without being run again
	Tools   []string  // whose calls may have been running when a worker was lost, sorted
}

// LossyTurns lists those of the newest 5,000 turns, newest first and at most ten, that are open and lost a
// worker, or that ended within the time and lost several, or were given up for it.
func (s *Reports) LossyTurns(ctx context.Context, endedWithin time.Duration) ([]LossyTurn, error) {
	rows, err := s.db.Q.LossyTurns(ctx, endedWithin)
	return dbrow.Map(rows, func(r dbsqlc.LossyTurnsRow) LossyTurn {
		return LossyTurn{
			Turn: turnkeeper.TurnID(r.ID), Message: turnkeeper.MessageID(r.MessageID), Agent: r.Agent, Losses: int(r.Losses),
			State: turnkeeper.TurnState(r.State), EndedAt: dbrow.OrZero(r.EndedAt), Tools: r.Tools, GivenUp: r.ErrorClass == string(turnkeeper.StopWorkerLost),
		}
	}), pg.Translate(err)
}

package storage

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
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
func (s *Store) DaySpend(ctx context.Context) ([]DaySpend, error) {
	rows, err := s.q.DaySpend(ctx)
	return mapRows(rows, func(r dbsqlc.DaySpendRow) DaySpend {
		return DaySpend{
			Agent: r.Name, Definition: []byte(r.Definition), Tokens: r.Tokens, Calls: r.Calls, PutOff: int(r.PutOff),
			Until: r.Until,
		}
	}), translate(err)
}

// A LongWait is the message of an agent that has waited longest, and what its lane does meanwhile.
type LongWait struct {
	Agent     string
	Lane      turnkeeper.Lane
	Message   turnkeeper.MessageID
	DueAt     time.Time
	Messages  int    // of the agent that have waited too long; counted up to 10,000
	LastError string // of the message's newest attempt

	NotBefore time.Time // the lane's back-off; zero: none
	Failures  int       // failed turns of the lane in a row

	Turn       turnkeeper.TurnID // the lane's open turn; 0: none
	TurnState  turnkeeper.TurnState
	Granted    bool // the turn has a lease
	GrantedAt  time.Time
	WorkerID   turnkeeper.WorkerID
	TurnDueAt  time.Time // the turn is put off until then; zero: it is not
	ErrorClass string    // why it is put off
}

// LongWaits lists, for each agent with messages that have been due for longer than dueFor, the one that
// has waited longest; the longest wait first.
func (s *Store) LongWaits(ctx context.Context, dueFor time.Duration) ([]LongWait, error) {
	rows, err := s.q.LongWaits(ctx, dueFor)
	return mapRows(rows, func(r dbsqlc.LongWaitsRow) LongWait {
		return LongWait{
			Agent: r.Agent, Lane: turnkeeper.Lane(r.Lane), Message: turnkeeper.MessageID(r.MessageID), DueAt: r.DueAt,
			Messages: int(r.Messages), LastError: orZero(r.LastError), NotBefore: orZero(r.NotBefore), Failures: int(r.Failures),
			Turn: turnkeeper.TurnID(r.TurnID), TurnState: turnkeeper.TurnState(r.TurnState), Granted: r.Granted,
			GrantedAt: orZero(r.GrantedAt), WorkerID: turnkeeper.WorkerID(r.WorkerID), TurnDueAt: orZero(r.TurnDueAt), ErrorClass: r.ErrorClass,
		}
	}), translate(err)
}

// A LossyTurn is a turn that lost its workers.
type LossyTurn struct {
	Turn    turnkeeper.TurnID
	Message turnkeeper.MessageID
	Agent   string
	Losses  int
	State   turnkeeper.TurnState
	EndedAt time.Time // zero: it is open
	Tools   []string  // whose calls may have been running when a worker was lost, sorted
}

// LossyTurns lists those of the newest 5,000 turns, newest first and at most ten, that are open and lost a
// worker, or that ended within the time and lost several, or were given up for it.
func (s *Store) LossyTurns(ctx context.Context, endedWithin time.Duration) ([]LossyTurn, error) {
	rows, err := s.q.LossyTurns(ctx, endedWithin)
	return mapRows(rows, func(r dbsqlc.LossyTurnsRow) LossyTurn {
		return LossyTurn{
			Turn: turnkeeper.TurnID(r.ID), Message: turnkeeper.MessageID(r.MessageID), Agent: r.Agent, Losses: int(r.Losses),
			State: turnkeeper.TurnState(r.State), EndedAt: orZero(r.EndedAt), Tools: r.Tools,
		}
	}), translate(err)
}

package operate

import (
	"context"
	"encoding/json"
	"errors"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// An AskStore reads and answers asks.
type AskStore struct{ db *pg.DB }

// An Ask is an ask with its turn.
type Ask struct {
	asks.Ask
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Message      turnkeeper.MessageID
	TurnState    turnkeeper.TurnState
	Path         []AskStep // the turns of its tree above its own turn, from the root, and itself

	// What has become of the call that a person allowed. Only AskStore.Ask sets it.
	CallState turnkeeper.CallState // empty: the ask allows no call
	NotRun    string               // why the call did not start; empty: it started, or may still start
}

// An AskStep is a turn on the path from the root of a tree of agents to the turn that asks.
type AskStep struct {
	Turn  turnkeeper.TurnID
	Agent string
	Call  turnkeeper.CallKey // that gave the work to the next one; zero: it is the turn that asks
}

// An AskFilter selects asks. Zero fields select all.
type AskFilter struct {
	State  asks.State
	Agent  string
	User   string
	Turn   turnkeeper.TurnID
	Before asks.ID // only lower ids
	Limit  int     // 0: 25
}

// ListAsks lists asks, newest first.
func (s *AskStore) ListAsks(ctx context.Context, f AskFilter) ([]Ask, error) {
	if f.Limit == 0 {
		f.Limit = 25
	}
	limit := int32(f.Limit) //nolint:gosec // at most 100
	switch {
	case f.Turn != 0:
		rows, err := s.db.Q.ListAsksOfTurn(ctx, dbsqlc.ListAsksOfTurnParams{
			Turn: int64(f.Turn), State: string(f.State), Agent: f.Agent, UserName: f.User, Before: int64(f.Before),
			MaxRows: limit,
		})
		return dbrow.Map(rows, func(r dbsqlc.ListAsksOfTurnRow) Ask { return askOf(dbsqlc.AskByIDRow(r)) }),
			pg.Translate(err)
	case f.State == asks.Open:
		rows, err := s.db.Q.ListOpenAsks(ctx, f.Agent, f.User, int64(f.Before), limit)
		return dbrow.Map(rows, func(r dbsqlc.ListOpenAsksRow) Ask { return askOf(dbsqlc.AskByIDRow(r)) }),
			pg.Translate(err)
	}
	rows, err := s.db.Q.ListAsks(ctx, dbsqlc.ListAsksParams{
		State: string(f.State), Agent: f.Agent, UserName: f.User, Before: int64(f.Before), MaxRows: limit,
	})
	return dbrow.Map(rows, func(r dbsqlc.ListAsksRow) Ask { return askOf(dbsqlc.AskByIDRow(r)) }), pg.Translate(err)
}

// Ask returns an ask. It fails with turnkeeper.ErrNotFound if it does not exist.
func (s *AskStore) Ask(ctx context.Context, id asks.ID) (Ask, error) {
	row, err := s.db.Q.AskByID(ctx, int64(id))
	if err != nil {
		return Ask{}, pg.Translate(err)
	}
	ask := askOf(row)
	if !ask.Allows() {
		return ask, nil
	}
	call, err := s.db.Q.CallOfAsk(ctx, int64(id))
	if err = pg.Translate(err); err != nil {
		if errors.Is(err, turnkeeper.ErrNotFound) { // the journal was purged
			err = nil
		}
		return ask, err
	}
	ask.CallState = turnkeeper.CallState(call.State)
	again := ask.Kind == asks.KindSettle && int(call.Starts) > ask.N
	if ask.CallState == turnkeeper.CallDenied || ask.CallState == turnkeeper.CallFailed &&
		ask.Kind == asks.KindSettle && !again {
		ask.NotRun = call.Preview
	}
	return ask, nil
}

// AnswerAsk answers an ask, and resumes its turn. A repeat of the same answer by the same person does nothing. It fails
// with asks.ErrClosed if the ask has another answer, has expired or was withdrawn, with asks.ErrInvalid if the answer
// is invalid for the ask, and with turnkeeper.ErrNotFound. It returns the state of the ask.
func (s *AskStore) AnswerAsk(ctx context.Context, id asks.ID, a asks.Answer) (asks.State, error) {
	state, err := s.db.Q.AnswerAsk(ctx, dbsqlc.AnswerAskParams{
		ID: int64(id), Decision: string(a.Decision), AnsweredBy: s.db.Clean(a.By), Channel: a.Channel,
		Comment: dbrow.OrNull(s.db.Clean(a.Comment)),
		Answer:  dbrow.OrNull(s.db.Clean(a.Answer)), Edited: dbrow.OrNull(s.db.Clean(a.Edited)),
		Hash: dbrow.OrNull(s.db.Clean(a.Hash)),
	})
	return asks.State(state), pg.Translate(err)
}

// AskSender returns the token that sent the message of the root of the ask's tree; 0: none, or not sent over the HTTP
// API.
func (s *AskStore) AskSender(ctx context.Context, id asks.ID) (token int64, err error) {
	token, err = s.db.Q.AskSender(ctx, int64(id))
	return token, pg.Translate(err)
}

// CountOpenAsks counts the open asks of some agents, up to limit; nil: of all agents.
func (s *AskStore) CountOpenAsks(ctx context.Context, agents []string, limit int) (int, error) {
	n, err := s.db.Q.CountOpenAsks(ctx, agents, int32(limit)) //nolint:gosec // a constant of the caller
	return int(n), pg.Translate(err)
}

func askOf(r dbsqlc.AskByIDRow) Ask {
	var steps []struct {
		Turn           turnkeeper.TurnID
		Agent          string
		Round, Ordinal int
	}
	_ = json.Unmarshal(r.Path, &steps) // the database makes it
	ask := Ask{
		Ask: dbrow.Ask(r.TurnkeeperAsk), Agent: r.Agent, User: r.UserName, Conversation: r.Conversation,
		Message:   turnkeeper.MessageID(r.MessageID),
		TurnState: turnkeeper.TurnState(r.TurnState),
	}
	for _, step := range steps {
		ask.Path = append(ask.Path, AskStep{step.Turn, step.Agent, turnkeeper.CallKey{Round: step.Round,
			Ordinal: step.Ordinal}})
	}
	return ask
}

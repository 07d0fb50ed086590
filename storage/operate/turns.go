package operate

import (
	"cmp"
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A TurnView is a turn with all its details.
type TurnView struct {
	Turn       turnkeeper.Turn
	Message    waiting.Message
	Reply      *turnkeeper.Reply // nil: none
	Rounds     []turnkeeper.Round
	Failed     []turnlog.FailedAttempt // model calls without an answer, in order
	Dispatches []turnkeeper.Dispatch
	Outputs    []turnkeeper.Output    // without their content
	Refused    []turnlog.RefusedWrite // writes that had to wait for the database, in order
	Awaited    []AwaitedCall
	End        *RequestedEnd    // nil: none is requested
	Tree       *Tree            // of sub-agents; nil: the turn is not a sub-agent's and has none
	Waited     []waiting.Parked // the waits that it began, by its events, in order
}

// WithWaits returns the turn with what it waits for.
func (v TurnView) WithWaits() waiting.Turn {
	t := waiting.Turn{Turn: v.Turn}
	if !v.Turn.State.Terminal() {
		t.Waits = v.Message.Waits
	}
	return t
}

// Turns lists turns, newest first.
func (s *Views) Turns(ctx context.Context, p Page) ([]waiting.Turn, error) {
	rows, err := s.db.Q.ListTurns(ctx, dbsqlc.ListTurnsParams{
		Agent: p.Agent, UserName: p.User, State: p.State, Before: p.Cursor, MaxRows: p.limit(),
	})
	if err != nil {
		return nil, pg.Translate(err)
	}
	turns := dbrow.Map(rows, dbrow.Turn)
	return s.withTurnWaits(ctx, turns)
}

// LatestTurn returns the id of the newest turn of an agent. If agent is empty, it is the newest turn of all agents that
// is not a sub-agent's. It fails with ErrNotFound if there is none.
func (s *Views) LatestTurn(ctx context.Context, agent string) (turnkeeper.TurnID, error) {
	id, err := s.db.Q.LatestTurn(ctx, agent)
	return turnkeeper.TurnID(id), pg.Translate(err)
}

// TurnsOf lists the turns of a message, in order.
func (s *Views) TurnsOf(ctx context.Context, id turnkeeper.MessageID) ([]waiting.Turn, error) {
	rows, err := s.db.Q.TurnsOfMessage(ctx, int64(id))
	if err != nil {
		return nil, pg.Translate(err)
	}
	turns := dbrow.Map(rows, dbrow.Turn)
	return s.withTurnWaits(ctx, turns)
}

// ViewTurn reads a turn with all its details, or fails with ErrNotFound.
func (s *Views) ViewTurn(ctx context.Context, id turnkeeper.TurnID) (TurnView, error) {
	row, err := s.db.Q.TurnByID(ctx, int64(id))
	if err != nil {
		return TurnView{}, pg.Translate(err)
	}
	turns := []turnkeeper.Turn{dbrow.Turn(row.TurnkeeperTurnsNow)}
	if turns[0].WorkerID == "" {
		turns[0].WorkerID = turnkeeper.WorkerID(row.TakenBy)
	}
	if err := s.withHolders(ctx, turns); err != nil {
		return TurnView{}, err
	}
	v := TurnView{Turn: turns[0]}
	if v.Message, err = s.WaitingMessage(ctx, v.Turn.MessageID); err != nil {
		return TurnView{}, err
	}
	switch reply, err := s.ReplyTo(ctx, v.Turn.MessageID); {
	case err == nil && reply.TurnID == id:
		v.Reply = &reply
	case err != nil && !errors.Is(err, turnkeeper.ErrNotFound):
		return TurnView{}, err
	}
	if v.Rounds, err = s.roundsOf(ctx, id); pg.BelongsToRow(err) {
		noteUnreadable(&v.Turn, err)
	} else if err != nil {
		return TurnView{}, err
	}
	failed, err := s.db.Q.FailedAttemptsOfTurn(ctx, int64(id))
	if err != nil {
		return TurnView{}, pg.Translate(err)
	}
	v.Failed = dbrow.Map(failed, dbrow.FailedAttempt)
	grants, err := s.db.Q.GrantsOfTurn(ctx, int64(id))
	if err != nil {
		return TurnView{}, pg.Translate(err)
	}
	v.Dispatches = dbrow.Map(grants, func(r dbsqlc.GrantsOfTurnRow) turnkeeper.Dispatch {
		d := dbrow.Dispatch(r.TurnkeeperLeaseLog)
		d.WorkerID = cmp.Or(d.WorkerID, turnkeeper.WorkerID(r.TakenBy))
		return d
	})
	if v.Refused, err = s.refusedOf(ctx, id); err != nil {
		return TurnView{}, err
	}
	if v.Awaited, err = s.awaitedOf(ctx, id); pg.BelongsToRow(err) {
		noteUnreadable(&v.Turn, err)
	} else if err != nil {
		return TurnView{}, err
	}
	if v.End, err = s.requestedEndOf(ctx, id); err != nil {
		return TurnView{}, err
	}
	if v.Tree, err = s.treeOf(ctx, v.Turn); err != nil {
		return TurnView{}, err
	}
	waited, err := s.db.Q.WaitsOfTurn(ctx, int64(id))
	if err != nil {
		return TurnView{}, pg.Translate(err)
	}
	v.Waited = dbrow.Map(waited, func(r dbsqlc.WaitsOfTurnRow) waiting.Parked {
		return waiting.Parked{At: r.At, Reasons: dbrow.Map(r.Reasons, func(reason string) waiting.Reason {
			return waiting.Reason(reason)
		})}
	})
	outputs, err := s.db.Q.OutputsOfTurn(ctx, int64(id))
	v.Outputs = dbrow.Map(outputs, func(r dbsqlc.OutputsOfTurnRow) turnkeeper.Output {
		return turnkeeper.Output{
			ID: turnkeeper.OutputID(r.ID), TurnID: id, Call: turnkeeper.CallKey{Round: int(r.Round),
				Ordinal: int(r.Ordinal)},
			MediaType: r.MediaType, SizeBytes: r.SizeBytes, Chars: r.Chars, Tokens: r.Tokens, SHA256: r.Sha256,
			Incomplete: r.Incomplete, Retrieved: r.Retrieved, ExpiredAt: dbrow.OrZero(r.ExpiredAt),
		}
	})
	return v, pg.Translate(err)
}

// refusedOf returns the writes of a turn that had to wait for the database.
func (s *Views) refusedOf(ctx context.Context, id turnkeeper.TurnID) ([]turnlog.RefusedWrite, error) {
	rows, err := s.db.Q.RefusedWrites(ctx, int64(id))
	var all []turnlog.RefusedWrite
	for _, r := range rows {
		if w, ok := turnlog.ReadRefusedWrite(r.Data, r.At); ok {
			all = append(all, w)
		}
	}
	return all, pg.Translate(err)
}

func (s *Views) roundsOf(ctx context.Context, id turnkeeper.TurnID) ([]turnkeeper.Round, error) {
	ids := []int64{int64(id)}
	answers, err := s.db.Q.RoundsOfTurns(ctx, ids)
	if err != nil {
		return nil, pg.Translate(err)
	}
	calls, err := s.db.Q.CallsOfTurns(ctx, ids)
	return dbrow.Rounds(answers, calls), pg.Translate(err)
}

// Events reads the events of a turn after a number, in order, at most limit or 10,000.
func (s *Views) Events(ctx context.Context, turn turnkeeper.TurnID, after int64,
	limit int) ([]turnkeeper.Event, error) {
	rows, err := s.db.Q.EventsAfter(ctx, int64(turn), after, int32(min(limit, 10_000))) //nolint:gosec // bounded
	return dbrow.Map(rows, func(r dbsqlc.EventsAfterRow) turnkeeper.Event { return dbrow.Event(turn, r) }),
		pg.Translate(err)
}

// WhoseTurn returns the key of a turn's conversation, or fails with ErrNotFound.
func (s *Views) WhoseTurn(ctx context.Context, id turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	row, err := s.db.Q.WhoseTurn(ctx, int64(id))
	return turnkeeper.ConversationKey{Agent: row.Agent, User: row.UserName, Name: row.Conversation}, pg.Translate(err)
}

// Definition returns an agent's definition by its hash, or fails with ErrNotFound.
func (s *Views) Definition(ctx context.Context, hash string) ([]byte, error) {
	content, err := s.db.Q.DefinitionByHash(ctx, hash)
	return []byte(content), pg.Translate(err)
}

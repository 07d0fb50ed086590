package storage

import (
	"cmp"
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// A TurnView is a turn with everything an operator asks about it.
type TurnView struct {
	Turn       turnkeeper.Turn
	Message    turnkeeper.Message
	Reply      *turnkeeper.Reply // nil: none
	Rounds     []turnkeeper.Round
	Failed     []turnkeeper.FailedAttempt // model calls without an answer, in order
	Dispatches []turnkeeper.Dispatch
	Outputs    []turnkeeper.Output // without their content
	Awaited    []turnkeeper.AwaitedCall
	Cancel     *Cancellation // nil: nobody asked for one
	Tree       *Tree         // of agents, that the turn is in; nil: it works for nobody, and nobody for it
}

// Turns lists turns, newest first.
func (s *Store) Turns(ctx context.Context, p Page) ([]turnkeeper.Turn, error) {
	rows, err := s.q.ListTurns(ctx, p.Agent, p.State, p.Cursor, p.limit())
	if err != nil {
		return nil, translate(err)
	}
	turns := mapRows(rows, turnOf)
	return turns, s.withHolders(ctx, turns)
}

// LatestTurn is the id of an agent's newest turn, or ErrNotFound. Of all agents where the name is empty.
func (s *Store) LatestTurn(ctx context.Context, agent string) (turnkeeper.TurnID, error) {
	id, err := s.q.LatestTurn(ctx, agent)
	return turnkeeper.TurnID(id), translate(err)
}

// TurnsOf lists the turns of a message, in order.
func (s *Store) TurnsOf(ctx context.Context, id turnkeeper.MessageID) ([]turnkeeper.Turn, error) {
	rows, err := s.q.TurnsOfMessage(ctx, int64(id))
	if err != nil {
		return nil, translate(err)
	}
	turns := mapRows(rows, turnOf)
	return turns, s.withHolders(ctx, turns)
}

// HandedOnSince says since when a turn is handed from worker to worker, with nothing
// else between; zero: it was not handed back last.
func (s *Store) HandedOnSince(ctx context.Context, turn turnkeeper.TurnID) (time.Time, error) {
	since, err := s.q.HandedOnSince(ctx, int64(turn))
	if err != nil || since.Unix() == 0 {
		return time.Time{}, translate(err)
	}
	return since, nil
}

// GrantBefore is the grant of a turn before another; ErrNotFound: there was none.
func (s *Store) GrantBefore(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID) (turnkeeper.Dispatch, error) {
	row, err := s.q.GrantBefore(ctx, string(grant), int64(turn))
	return dispatchOf(row), translate(err)
}

// ViewTurn reads a turn whole, or fails with ErrNotFound.
func (s *Store) ViewTurn(ctx context.Context, id turnkeeper.TurnID) (TurnView, error) {
	row, err := s.q.TurnByID(ctx, int64(id))
	if err != nil {
		return TurnView{}, translate(err)
	}
	turns := []turnkeeper.Turn{turnOf(row.TurnkeeperTurn)}
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
	if v.Rounds, err = s.roundsOf(ctx, id); err != nil {
		return TurnView{}, err
	}
	failed, err := s.q.FailedAttemptsOfTurn(ctx, int64(id))
	if err != nil {
		return TurnView{}, translate(err)
	}
	v.Failed = mapRows(failed, failedOf)
	grants, err := s.q.GrantsOfTurn(ctx, int64(id))
	if err != nil {
		return TurnView{}, translate(err)
	}
	v.Dispatches = mapRows(grants, func(r dbsqlc.GrantsOfTurnRow) turnkeeper.Dispatch {
		d := dispatchOf(r.TurnkeeperLeaseLog)
		if d.EndedAt.IsZero() { // it is the turn's own
			d.WorkerID = v.Turn.WorkerID
		}
		d.WorkerID = cmp.Or(d.WorkerID, turnkeeper.WorkerID(r.TakenBy))
		return d
	})
	if v.Awaited, err = s.awaitedOf(ctx, id); err != nil {
		return TurnView{}, err
	}
	if v.Cancel, err = s.cancellationOf(ctx, id); err != nil {
		return TurnView{}, err
	}
	if v.Tree, err = s.treeOf(ctx, v.Turn); err != nil {
		return TurnView{}, err
	}
	outputs, err := s.q.OutputsOfTurn(ctx, int64(id))
	v.Outputs = mapRows(outputs, func(r dbsqlc.OutputsOfTurnRow) turnkeeper.Output {
		return turnkeeper.Output{
			ID: turnkeeper.OutputID(r.ID), TurnID: id, Call: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
			MediaType: r.MediaType, SizeBytes: r.SizeBytes, Chars: r.Chars, Tokens: r.Tokens, SHA256: r.Sha256,
			Incomplete: r.Incomplete, Retrieved: r.Retrieved,
		}
	})
	return v, translate(err)
}

func (s *Store) roundsOf(ctx context.Context, id turnkeeper.TurnID) ([]turnkeeper.Round, error) {
	ids := []int64{int64(id)}
	answers, err := s.q.RoundsOfTurns(ctx, ids)
	if err != nil {
		return nil, translate(err)
	}
	calls, err := s.q.CallsOfTurns(ctx, ids)
	return rounds(answers, calls), translate(err)
}

// A LaneView is a lane, its lease and what waits in it.
type LaneView struct {
	Lease     turnkeeper.Lease
	TurnState turnkeeper.TurnState // of its open turn; empty: there is none
	OpenTurn  turnkeeper.TurnID    // which may wait without the lease; 0: there is none
	Remaining time.Duration        // of the lease
	Waiting   int                  // messages; counted up to 10,000
	Silence   *turnkeeper.Silence  // of the worker that holds it; nil: it gives signs of life, or nobody holds the lane
}

// Lanes lists lanes, held ones first. The cursor is how many are passed over.
func (s *Store) Lanes(ctx context.Context, p Page) ([]LaneView, error) {
	rows, err := s.q.ListLanes(ctx, p.Agent, int32(min(p.Cursor, maxSkip)), p.limit()) //nolint:gosec // bounded
	return mapRows(rows, func(r dbsqlc.ListLanesRow) LaneView {
		v := LaneView{
			Lease: turnkeeper.Lease{
				Lane: turnkeeper.Lane(r.Lane), Token: r.Token, GrantID: turnkeeper.GrantID(orZero(r.GrantID)),
				TurnID: turnkeeper.TurnID(orZero(r.TurnID)), WorkerID: turnkeeper.WorkerID(r.Holder), GrantedAt: orZero(r.GrantedAt),
				Until: orZero(r.LeaseUntil), Failures: int(r.Failures), NotBefore: orZero(r.NotBefore),
			},
			TurnState: turnkeeper.TurnState(r.TurnState), OpenTurn: turnkeeper.TurnID(r.OpenTurn), Remaining: time.Duration(r.RemainingMs) * time.Millisecond, Waiting: int(r.Waiting),
		}
		if v.Lease.Held() {
			v.Silence = silenceOf(orZero(r.BeatAt), r.StoppedAt, r.SilentMs, r.TakeoverAfter, v.Lease.Until)
		}
		return v
	}), translate(err)
}

// maxSkip bounds what a list passes over.
const maxSkip = 1 << 30

// Events reads a turn's stream after a number, in order, at most limit.
func (s *Store) Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	rows, err := s.q.EventsAfter(ctx, int64(turn), after, int32(min(limit, 10_000))) //nolint:gosec // bounded
	return mapRows(rows, eventOf), translate(err)
}

// Output reads a stored tool result with all its content, or fails with
// ErrNotFound.
func (s *Store) Output(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	o, chunked, err := s.outputRow(ctx, id)
	if err == nil && chunked {
		err = s.wholeOutput(ctx, &o)
	}
	return o, err
}

// FindOutput is Output for who may need a part of the content only, or none: what
// lies in chunks is left there, with Text empty, and Bytes empty for binary
// content and nil for text.
func (s *Store) FindOutput(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	o, _, err := s.outputRow(ctx, id)
	return o, err
}

func (s *Store) outputRow(ctx context.Context, id turnkeeper.OutputID) (o turnkeeper.Output, chunked bool, err error) {
	r, err := s.q.OutputByID(ctx, string(id))
	o = turnkeeper.Output{
		ID: turnkeeper.OutputID(r.ID), TurnID: turnkeeper.TurnID(r.TurnID),
		Call:      turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
		MediaType: r.MediaType, Text: orZero(r.Content), Bytes: r.Bytes, SizeBytes: r.SizeBytes, RawBytes: r.RawBytes,
		Chars: r.Chars, Tokens: r.Tokens, SHA256: r.Sha256, Incomplete: r.Incomplete, Description: r.Description,
		Retrieved: r.Retrieved, CreatedAt: r.CreatedAt,
	}
	return o, r.Chunked, translate(err)
}

// RecentCalls lists ended calls of an agent with this name and arguments hash
// that ended within the window, newest first, at most 20.
func (s *Store) RecentCalls(ctx context.Context, agent, name, argsHash string, within time.Duration) ([]turnkeeper.PastCall, error) {
	rows, err := s.q.RecentCalls(ctx, agent, name, argsHash, within)
	return mapRows(rows, func(r dbsqlc.RecentCallsRow) turnkeeper.PastCall {
		return turnkeeper.PastCall{Succeeded: r.State == string(turnkeeper.CallSucceeded), Ago: max(micros(r.AgoUs), 0)}
	}), translate(err)
}

// ServerFacts are what matters of the server's settings.
type ServerFacts struct {
	Version, FSync, SynchronousCommit, FullPageWrites, Encoding string
	MaxConnections                                              int
	InRecovery                                                  bool
	Now                                                         time.Time
}

// ServerFacts asks the server for its settings.
func (s *Store) ServerFacts(ctx context.Context) (ServerFacts, error) {
	r, err := s.q.ServerFacts(ctx)
	return ServerFacts{
		Version: r.Version, FSync: r.Fsync, SynchronousCommit: r.SynchronousCommit, FullPageWrites: r.FullPageWrites,
		Encoding: r.Encoding, MaxConnections: int(r.MaxConnections), InRecovery: r.InRecovery, Now: r.Now,
	}, translate(err)
}

// AgentOfTurn is the name of the agent whose turn it is, or ErrNotFound.
func (s *Store) AgentOfTurn(ctx context.Context, id turnkeeper.TurnID) (string, error) {
	agent, err := s.q.AgentOfTurn(ctx, int64(id))
	return agent, translate(err)
}

// Definition is an agent's definition by its hash, as it was recorded, or
// ErrNotFound.
func (s *Store) Definition(ctx context.Context, hash string) ([]byte, error) {
	content, err := s.q.DefinitionByHash(ctx, hash)
	return []byte(content), translate(err)
}

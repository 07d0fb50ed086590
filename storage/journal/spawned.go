package journal

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// NewMessage allocates the id of a message that a call of the turn will write. While the
// database is unavailable, it retries until ctx ends.
func (w *Writer) NewMessage(ctx context.Context) (id turnkeeper.MessageID, err error) {
	err = w.store.db.Patiently(ctx, func() error {
		n, err := w.store.db.Q.NextMessageID(ctx)
		id = turnkeeper.MessageID(n)
		return pg.Translate(err)
	})
	return id, err
}

// queueSpawns queues the statement that starts the sub-agents of the calls among starts.
// All sub-agents of one entry are in one tree.
func (w *Writer) queueSpawns(ctx context.Context, q *dbsqlc.Queries, starts []turnlog.CallStart) error {
	p := dbsqlc.SpawnAgentsParams{Turn: int64(w.grant.TurnID)}
	var hung []int64
	var parents []string
	for _, s := range starts {
		if s.Spawn == nil {
			continue
		}
		p.Rounds = append(p.Rounds, int32(s.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(s.Key.Ordinal)) //nolint:gosec // few
		p.Nonces = append(p.Nonces, s.Nonce)
		p.Messages = append(p.Messages, int64(s.Spawn.Message))
		p.Names = append(p.Names, s.Spawn.Agent)
		p.Tasks = append(p.Tasks, w.clean(s.Spawn.Task))
		limits := s.Spawn.Limits
		p.Root, p.Agents, p.Within = int64(s.Spawn.Root), s.Spawn.Agents[:len(s.Spawn.Agents)-1], s.Spawn.Within
		p.MaxDepth, p.MaxAgents = int32(limits.MaxDepth), int32(limits.MaxAgents) //nolint:gosec // settings bound them
		p.Tokens, p.Calls = limits.Tokens, limits.Calls
		if s.Spawn.TraceParent != "" {
			hung, parents = append(hung, int64(s.Spawn.Message)), append(parents, s.Spawn.TraceParent)
		}
	}
	if len(p.Rounds) == 0 {
		return nil
	}
	if err := q.SpawnAgents(ctx, p); err != nil || len(hung) == 0 {
		return err
	}
	return q.HangSpawned(ctx, hung, parents)
}

// spawnEnds adds the outcomes of sub-agents to the results of their calls.
func (w *Writer) spawnEnds(ctx context.Context, arrived []turnlog.CallResult) error {
	rows, err := w.store.db.Q.SpawnedBy(ctx, int64(w.grant.TurnID))
	if err != nil {
		return err
	}
	for i := range arrived {
		for _, r := range rows {
			if arrived[i].Key != (turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}) {
				continue
			}
			arrived[i].Spawned = &turnlog.SpawnEnd{
				Agent: r.Agent, Message: turnkeeper.MessageID(r.MessageID), Turn: turnkeeper.TurnID(r.Child),
				Failure: turnlog.SpawnFailure(r.Failure), Outcome: turnkeeper.TurnState(r.Outcome),
				Stop:  turnkeeper.StopReason(r.Stop),
				Reply: r.Reply, Open: r.Open, Replied: r.Replied, Calls: dbrow.ReplyCalls(r.Calls),
			}
		}
	}
	return w.labelReplies(ctx, arrived)
}

package storage

import (
	"cmp"
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// NewMessage takes an id for a message that a call of the turn will write. It waits
// for a database that is away until ctx ends.
func (w *TurnWriter) NewMessage(ctx context.Context) (id turnkeeper.MessageID, err error) {
	err = patiently(ctx, func() error {
		n, err := w.store.q.NextMessageID(ctx)
		id = turnkeeper.MessageID(n)
		return translate(err)
	})
	return id, err
}

// queueSpawns gives the work of calls to other agents. Those of one entry are of
// one tree.
func (w *TurnWriter) queueSpawns(ctx context.Context, q *dbsqlc.Queries, starts []turnkeeper.CallStart) error {
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

// spawnEnds adds to arrivals what the sub-agents among them have come to.
func (w *TurnWriter) spawnEnds(ctx context.Context, arrived []turnkeeper.CallResult) error {
	rows, err := w.store.q.SpawnedBy(ctx, int64(w.grant.TurnID))
	if err != nil {
		return err
	}
	for i := range arrived {
		for _, r := range rows {
			if arrived[i].Key != (turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}) {
				continue
			}
			arrived[i].Spawned = &turnkeeper.SpawnEnd{
				Agent: r.Agent, Message: turnkeeper.MessageID(r.MessageID), Turn: turnkeeper.TurnID(r.Child),
				Trouble: turnkeeper.SpawnTrouble(r.Trouble), Outcome: turnkeeper.TurnState(r.Outcome), Stop: turnkeeper.StopReason(r.Stop),
				Reply: r.Reply, Open: r.Open, Replied: r.Replied, Calls: replyCallsOf(r.Calls),
			}
		}
	}
	return nil
}

// SettleSpawned does what is to be done about sub-agents: it tells parents of those
// that have ended, gives up those that are overdue, where the clock can be trusted,
// and cancels those that nobody waits for. It returns how many it did something
// about.
func (t *Tick) SettleSpawned(ctx context.Context, timely bool, limit int) (int, error) {
	t.ahead = nil                                          // what waits may be closed now
	n, err := t.q.SettleSpawned(ctx, timely, int32(limit)) //nolint:gosec // small
	return int(n), translate(err)
}

// lineageOf says who spawned the turn of a message; the zero value: nobody did.
func (s *Store) lineageOf(ctx context.Context, message turnkeeper.MessageID) (turnkeeper.Lineage, error) {
	id := int64(message)
	r, err := s.q.LineageOf(ctx, &id)
	if err = translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return turnkeeper.Lineage{}, nil
	}
	return turnkeeper.Lineage{
		Root: turnkeeper.TurnID(r.Root), Parent: turnkeeper.TurnID(r.Parent), Agents: r.Agents,
		Call:   turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
		Limits: turnkeeper.TreeLimits{MaxDepth: int(r.MaxDepth), MaxAgents: int(r.MaxAgents), Tokens: r.Tokens, Calls: r.Calls},
	}, err
}

// shownSubAgents bounds a list of sub-agents.
const shownSubAgents = 1000

// A Tree is a turn and all that work for it, at whatever depth.
type Tree struct {
	Lineage    turnkeeper.Lineage // of the turn that was asked for
	Root       turnkeeper.TurnID
	Agent      string               // of the root
	State      turnkeeper.TurnState // of the root; empty: its records are gone
	Limits     turnkeeper.TreeLimits
	Usage      turnkeeper.Usage // of the root and the newest turn of each sub-agent
	UsedTokens int64            // of the budget, where there is one
	UsedCalls  int64
	SubAgents  []turnkeeper.SubAgent // in the order they were spawned, at most 1000
}

// treeOf is the tree that a turn is in; nil: it works for nobody, and nobody works
// for it.
func (s *Store) treeOf(ctx context.Context, turn turnkeeper.Turn) (*Tree, error) {
	lineage, err := s.lineageOf(ctx, turn.MessageID)
	if err != nil {
		return nil, err
	}
	tree := &Tree{Lineage: lineage, Root: cmp.Or(lineage.Root, turn.ID)}
	row, err := s.q.AgentTree(ctx, int64(tree.Root))
	switch err = translate(err); {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	tree.Agent, tree.State = row.Agent, turnkeeper.TurnState(row.State)
	tree.Limits = turnkeeper.TreeLimits{MaxDepth: int(row.MaxDepth), MaxAgents: int(row.MaxAgents), Tokens: row.Tokens, Calls: row.Calls}
	tree.UsedTokens, tree.UsedCalls = row.UsedTokens, row.UsedCalls
	rows, err := s.q.SubAgents(ctx, int64(tree.Root), shownSubAgents)
	tree.SubAgents = mapRows(rows, subAgentOf)
	tree.Usage = turnkeeper.Usage{InputTokens: row.InputTokens, OutputTokens: row.OutputTokens}
	for _, a := range tree.SubAgents {
		tree.Usage = tree.Usage.Add(a.Usage)
	}
	return tree, translate(err)
}

func subAgentOf(r dbsqlc.SubAgentsRow) turnkeeper.SubAgent {
	return turnkeeper.SubAgent{
		Parent: turnkeeper.TurnID(r.TurnID), Call: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, Agent: r.Agent,
		Message: turnkeeper.MessageID(r.MessageID), Trouble: turnkeeper.SpawnTrouble(r.Trouble), State: turnkeeper.MessageState(r.MessageState),
		Turn: turnkeeper.TurnID(r.Child), TurnState: turnkeeper.TurnState(r.ChildState), Depth: int(r.Depth),
		Usage: turnkeeper.Usage{InputTokens: r.InputTokens, OutputTokens: r.OutputTokens},
		Since: r.SpawnedAt, Until: r.Deadline, EndedAt: orZero(r.EndedAt), Dropped: r.Dropped,
	}
}

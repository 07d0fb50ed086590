package operate

import (
	"cmp"
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// An AwaitedCall is an open detached call, as operators see it.
type AwaitedCall struct {
	Key       turnkeeper.CallKey
	Name      string
	Since     time.Time
	Until     time.Time // then it is CallOverdue or CallUnwanted
	Attempt   int
	WorkerID  turnkeeper.WorkerID // its worker; empty: it waits for one
	ClaimedAt time.Time
	ArrivedAt time.Time // zero: it has no result yet
}

func (s *Views) awaitedOf(ctx context.Context, id turnkeeper.TurnID) ([]AwaitedCall, error) {
	rows, err := s.db.Q.AwaitedOfTurn(ctx, int64(id))
	return dbrow.Map(rows, func(r dbsqlc.AwaitedOfTurnRow) AwaitedCall {
		return AwaitedCall{
			Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, Name: r.Name, Since: r.OpenedAt,
			Until:   dbrow.OrZero(r.Deadline),
			Attempt: int(dbrow.OrZero(r.Attempt)), WorkerID: turnkeeper.WorkerID(r.WorkerID),
			ClaimedAt: dbrow.OrZero(r.ClaimedAt), ArrivedAt: dbrow.OrZero(r.ArrivedAt),
		}
	}), pg.Translate(err)
}

// shownSubAgents is the maximum length of a list of sub-agents.
const shownSubAgents = 1000

// A Tree is a turn and all its sub-agents, at any depth.
type Tree struct {
	Lineage    turnlog.Lineage // of the requested turn
	Root       turnkeeper.TurnID
	Agent      string               // of the root
	State      turnkeeper.TurnState // of the root; empty: its records were purged
	Limits     turnlog.TreeLimits
	Usage      turnkeeper.Usage // of the root and the newest turn of each sub-agent
	UsedTokens int64            // of the tree's budget, if it has one
	UsedCalls  int64
	SubAgents  []turnlog.SubAgent // in the order they were spawned, at most 1000
}

// treeOf reads the tree of a turn, or returns nil if the turn is not a sub-agent's and has
// no sub-agents.
func (s *Views) treeOf(ctx context.Context, turn turnkeeper.Turn) (*Tree, error) {
	lineage, err := dbrow.Lineage(ctx, s.db.Q, turn.MessageID)
	if err != nil {
		return nil, err
	}
	tree := &Tree{Lineage: lineage, Root: cmp.Or(lineage.Root, turn.ID)}
	row, err := s.db.Q.AgentTree(ctx, int64(tree.Root))
	switch err = pg.Translate(err); {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	tree.Agent, tree.State = row.Agent, turnkeeper.TurnState(row.State)
	tree.Limits = turnlog.TreeLimits{MaxDepth: int(row.MaxDepth), MaxAgents: int(row.MaxAgents), Tokens: row.Tokens,
		Calls: row.Calls}
	tree.UsedTokens, tree.UsedCalls = row.UsedTokens, row.UsedCalls
	rows, err := s.db.Q.SubAgents(ctx, int64(tree.Root), shownSubAgents)
	tree.SubAgents = dbrow.Map(rows, subAgentOf)
	tree.Usage = turnkeeper.Usage{InputTokens: row.InputTokens, OutputTokens: row.OutputTokens}
	for _, a := range tree.SubAgents {
		tree.Usage = tree.Usage.Add(a.Usage)
	}
	return tree, pg.Translate(err)
}

func subAgentOf(r dbsqlc.SubAgentsRow) turnlog.SubAgent {
	return turnlog.SubAgent{
		Parent: turnkeeper.TurnID(r.TurnID), Call: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
		Agent:   r.Agent,
		Message: turnkeeper.MessageID(r.MessageID), Failure: turnlog.SpawnFailure(r.Failure),
		State: turnkeeper.MessageState(r.MessageState),
		Turn:  turnkeeper.TurnID(r.Child), TurnState: turnkeeper.TurnState(r.ChildState), Depth: int(r.Depth),
		Usage: turnkeeper.Usage{InputTokens: r.InputTokens, OutputTokens: r.OutputTokens},
		Since: r.SpawnedAt, Until: r.Deadline, EndedAt: dbrow.OrZero(r.EndedAt), Dropped: r.Dropped,
	}
}

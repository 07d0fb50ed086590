package journal

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// hasAsks reports whether an entry changes asks or gates.
func hasAsks(e turnlog.Entry) bool {
	return len(e.Gates)+len(e.Asks)+len(e.Seen)+len(e.Inputs)+len(e.Withdrawn) > 0
}

// queueAsks queues the changes of an entry to asks and gates. The fence has checked the entry's starts against earlier
// gates and asks. If the entry itself has gates or asks, the starts are checked again.
func (w *Writer) queueAsks(ctx context.Context, q *dbsqlc.Queries, e turnlog.Entry) error {
	turn := int64(w.grant.TurnID)
	var failed []error
	if len(e.Gates) > 0 {
		rounds, ordinals := keysOf(e.Gates)
		failed = append(failed, q.GateCalls(ctx, turn, rounds, ordinals))
	}
	if len(e.Asks) > 0 {
		failed = append(failed, q.OpenAsks(ctx, w.openAsks(turn, e.Asks)))
	}
	if len(e.Seen) > 0 {
		failed = append(failed, q.SeeAsks(ctx, turn, askIDs(e.Seen)))
	}
	if len(e.Inputs) > 0 {
		failed = append(failed, q.UseInputs(ctx, turn, askIDs(e.Inputs)))
	}
	if len(e.Withdrawn) > 0 {
		rounds, ordinals := keysOf(e.Withdrawn)
		failed = append(failed, q.WithdrawAsks(ctx, turn, rounds, ordinals))
	}
	if len(e.Gates)+len(e.Asks) > 0 && len(e.Starts) > 0 {
		failed = append(failed, q.CheckApprovals(ctx, checkOf(turn, e.Starts)))
	}
	return errors.Join(failed...)
}

func checkOf(turn int64, starts []turnlog.CallStart) dbsqlc.CheckApprovalsParams {
	p := dbsqlc.CheckApprovalsParams{Turn: turn}
	for _, s := range starts {
		p.Rounds = append(p.Rounds, int32(s.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(s.Key.Ordinal)) //nolint:gosec // few
		p.Attempts = append(p.Attempts, int32(s.Attempt))     //nolint:gosec // few
		p.Asks, p.Hashes = append(p.Asks, int64(s.Ask)), append(p.Hashes, s.Hash)
	}
	return p
}

func (w *Writer) openAsks(turn int64, questions []asks.Question) dbsqlc.OpenAsksParams {
	terms := questions[0].Terms
	p := dbsqlc.OpenAsksParams{Turn: turn, Audience: dbrow.OrEmpty(terms.Audience), Hold: terms.Hold,
		Timeout: terms.Timeout}
	for _, a := range questions {
		p.Rounds = append(p.Rounds, int32(a.Call.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(a.Call.Ordinal)) //nolint:gosec // few
		p.Kinds = append(p.Kinds, string(a.Kind))
		p.Ns = append(p.Ns, int32(a.N)) //nolint:gosec // few
		p.Tools = append(p.Tools, w.clean(a.Tool))
		p.Arguments = append(p.Arguments, w.clean(a.Arguments))
		p.Rules = append(p.Rules, w.clean(a.Rule))
		p.Reasons = append(p.Reasons, w.clean(a.Reason))
		p.Schemas = append(p.Schemas, w.clean(a.Schema))
		p.Resumes = append(p.Resumes, a.Resume)
	}
	return p
}

func keysOf(keys []turnkeeper.CallKey) (rounds, ordinals []int32) {
	for _, key := range keys {
		rounds, ordinals = append(rounds, int32(key.Round)), append(ordinals, int32(key.Ordinal)) //nolint:gosec // few
	}
	return rounds, ordinals
}

func askIDs(ids []asks.ID) []int64 {
	return dbrow.Map(ids, func(id asks.ID) int64 { return int64(id) })
}

// loadAsks reads the asks of a turn, and the calls that need an approval.
func (s *Store) loadAsks(ctx context.Context, record *turnlog.Record) error {
	rows, err := s.db.Q.AsksOfTurn(ctx, int64(record.Turn.ID))
	if err != nil {
		return pg.Translate(err)
	}
	gates, err := s.db.Q.GatesOfTurn(ctx, int64(record.Turn.ID))
	if err != nil {
		return pg.Translate(err)
	}
	record.Asks = dbrow.Map(rows, dbrow.Ask)
	record.Gates = dbrow.Map(gates, func(g dbsqlc.GatesOfTurnRow) turnkeeper.CallKey {
		return turnkeeper.CallKey{Round: int(g.Round), Ordinal: int(g.Ordinal)}
	})
	return nil
}

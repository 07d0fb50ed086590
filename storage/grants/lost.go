package grants

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
	"turnkeeper/storage/journal"
)

// Lost lists and locks grants whose lease has expired or whose worker is silent, oldest
// first.
func (t *Tick) Lost(ctx context.Context, limit int) ([]granting.LostGrant, error) {
	rows, err := t.q.LostGrants(ctx, int32(limit)) //nolint:gosec // small
	if err != nil || len(rows) == 0 {
		return nil, pg.Translate(err)
	}
	lost := dbrow.Map(rows, func(r dbsqlc.LostGrantsRow) granting.LostGrant {
		return granting.LostGrant{
			Lane: turnkeeper.Lane(r.Lane), TurnID: turnkeeper.TurnID(r.TurnID), GrantID: turnkeeper.GrantID(r.GrantID),
			JobID: turnkeeper.JobID(r.JobID), MessageID: turnkeeper.MessageID(r.MessageID),
			WorkerID: turnkeeper.WorkerID(r.WorkerID),
			Trigger:  turnkeeper.Trigger(r.Trigger), GrantedAt: r.GrantedAt, Lapsed: r.Lapsed,
			Dispatches: int(r.Dispatches), Rounds: int(r.InferenceRounds),
		}
	})
	return lost, pg.Translate(t.countLosses(ctx, lost))
}

// countLosses sets Alive and Losses of lost grants.
func (t *Tick) countLosses(ctx context.Context, lost []granting.LostGrant) error {
	rows, err := t.q.Losses(ctx, dbrow.Map(lost, func(l granting.LostGrant) int64 { return int64(l.TurnID) }),
		dbrow.Map(lost, func(l granting.LostGrant) string { return string(l.WorkerID) }))
	of := map[turnkeeper.TurnID]*granting.LostGrant{}
	for i := range lost {
		of[lost[i].TurnID] = &lost[i]
	}
	for _, r := range rows {
		counts := granting.Loss{
			GrantedAt: r.GrantedAt, Until: r.LeaseUntil, LostAt: r.LostAt, BeatAt: dbrow.OrZero(r.BeatAt),
			StoppedAt: dbrow.OrZero(r.StoppedAt), SilenceFrom: dbrow.OrZero(r.SilenceFrom),
			Present: r.Present, Now: r.Now,
		}.Counts()
		switch l := of[turnkeeper.TurnID(r.TurnID)]; {
		case r.Held:
			l.Alive = !counts
		case counts:
			l.Losses++
		}
	}
	return err
}

// Requeue ends a lost grant, frees its lane, and queues its turn.
func (t *Tick) Requeue(ctx context.Context, lost granting.LostGrant) error {
	t.ahead = nil // its lane is free now
	return t.endLost(ctx, lost, nil, turnlog.Outcome{State: turnkeeper.TurnQueued}, lost.Consequence(true))
}

// endLost ends a lost grant. It stops at the first statement that fails: the later ones would fail because of it.
func (t *Tick) endLost(ctx context.Context, lost granting.LostGrant, events []turnkeeper.Event, o turnlog.Outcome,
	e turnlog.Consequence) error {
	if err := t.q.NoteTaker(ctx, string(lost.WorkerID), int64(lost.TurnID)); err != nil {
		return pg.Translate(err)
	}
	if len(events) > 0 {
		if err := t.store.journals.AddEvents(ctx, t.q, lost.TurnID, events); err != nil {
			return pg.Translate(err)
		}
	}
	if err := t.store.journals.EndOne(ctx, t.q, lost.TurnID, lost.GrantID, o, e); err != nil {
		return pg.Translate(err)
	}
	return pg.Translate(t.q.CloseJobs(ctx, []int64{int64(lost.JobID)}))
}

// CancelAsked reports whether a turn has a request to cancel it.
func (t *Tick) CancelAsked(ctx context.Context, turn turnkeeper.TurnID) (bool, error) {
	asked, err := t.q.CancelAsked(ctx, int64(turn))
	return asked, pg.Translate(err)
}

// RingHolders notifies all workers, with the commit, that grants were taken away: see TakenGrants.
func (t *Tick) RingHolders(ctx context.Context) error { return t.last.Queries().RingCancels(ctx) }

// Rounds reads the journal of a turn, for its summary. It fails with ErrNewerJournal if
// only a newer program can read it; the tick may continue then.
func (t *Tick) Rounds(ctx context.Context, turn turnkeeper.TurnID) ([]turnkeeper.Round, error) {
	ids := []int64{int64(turn)}
	answers, err := t.q.RoundsOfTurns(ctx, ids)
	if err != nil {
		return nil, pg.Translate(err)
	}
	calls, err := t.q.CallsOfTurns(ctx, ids)
	if err != nil {
		return nil, pg.Translate(err)
	}
	return dbrow.Rounds(answers, calls), journal.Readable(answers, calls)
}

// OpenRound returns the round of a turn that has started to stream but is not in the journal, or 0
// if there is none. rounds is the number of rounds in the journal.
func (t *Tick) OpenRound(ctx context.Context, turn turnkeeper.TurnID, rounds int) (int, error) {
	position, err := t.q.StreamPosition(ctx, int64(turn))
	return journal.OpenRound(position, rounds), pg.Translate(err)
}

// Definition returns the name and file of a turn's agent as of the turn's creation.
func (t *Tick) Definition(ctx context.Context, turn turnkeeper.TurnID) (agent string, file []byte, err error) {
	row, err := t.q.DefinitionOfTurn(ctx, int64(turn))
	return row.Agent, []byte(row.Content), pg.Translate(err)
}

// SettleCalls gives every open call of a turn its final result. The texts are for a
// started call, a planned call without an effect (which runs without a start on
// record), any other planned call, and a call whose sub-agent has not replied.
func (t *Tick) SettleCalls(ctx context.Context, turn turnkeeper.TurnID, unknown, perhaps, notRun, ended string) error {
	return pg.Translate(t.q.SettleCalls(ctx, dbsqlc.SettleCallsParams{Turn: int64(turn), Unknown: unknown,
		Perhaps: perhaps, NotRun: notRun, Spawned: ended}))
}

// Close ends a turn that lost its workers too often, without running it again.
func (t *Tick) Close(ctx context.Context, lost granting.LostGrant, o turnlog.Outcome, events []turnkeeper.Event) error {
	t.ahead = nil // its lane is free now
	return t.endLost(ctx, lost, events, o, lost.Consequence(false))
}

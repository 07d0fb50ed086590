package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A Dispatcher is the scheduler's Store. It grants leases and inserts the jobs of turns that are not
// handed over, in one transaction.
type Dispatcher struct {
	Grants *grants.Store
	TTL    time.Duration // of a lease
}

var _ scheduler.Store = (*Dispatcher)(nil)

// InTick runs f in one transaction.
func (d *Dispatcher) InTick(ctx context.Context, f func(scheduler.Tick) error) error {
	return d.Grants.InTick(ctx, func(t *grants.Tick) error {
		return f(&tick{Tick: t, dispatcher: d})
	})
}

// Handed returns those of the grants that a tick has handed over to the worker.
func (d *Dispatcher) Handed(ctx context.Context, worker turnkeeper.WorkerID,
	grants []turnkeeper.GrantID) ([]granting.Handed, error) {
	return d.Grants.Handed(ctx, worker, grants)
}

// NextDue returns how long until something becomes due that was not due at then.
func (d *Dispatcher) NextDue(ctx context.Context, then time.Time) (time.Duration, error) {
	return d.Grants.NextDue(ctx, then)
}

// A tick is one pass of the scheduler, over Postgres and River.
type tick struct {
	*grants.Tick
	dispatcher *Dispatcher
}

// Dispatch grants each of ready its lane, and inserts its job unless it is handed over. The statement
// that grants also writes the job's row, instead of River's client, which saves two round trips. A test
// compares the row with River's own.
func (t *tick) Dispatch(ctx context.Context, ready []granting.Candidate) error {
	ids := make([]turnkeeper.GrantID, len(ready))
	for i, r := range ready {
		if ids[i] = r.Slot; r.Slot == "" {
			ids[i] = turnkeeper.GrantID(uuid.NewString())
		}
	}
	return t.Grant(ctx, ready, ids, grants.Job{Kind: TurnArgs{}.Kind(), Queue: Queue, QueueOf: QueueOf},
		t.dispatcher.TTL)
}

// Requeue ends a lost grant and frees its lane. It notifies a holder that is alive
// after all, whose next write would fail anyway.
func (t *tick) Requeue(ctx context.Context, lost granting.LostGrant) error {
	if err := t.RingHolders(ctx); err != nil {
		return err
	}
	return t.Tick.Requeue(ctx, lost)
}

// TickFailed records that ticks fail, or, with nil, that they no longer do.
func (d *Dispatcher) TickFailed(ctx context.Context, failed error) error {
	return d.Grants.TickFailed(ctx, failed)
}

// EndCall records the result of a lost detached call.
func (t *tick) EndCall(ctx context.Context, call granting.LostCall) error {
	return t.Tick.EndCall(ctx, call, agentturn.LostCall(call))
}

// CloseLost ends a turn that lost its worker too often, with a reply, without running it
// again. If only a newer program can read its journal, it queues the turn instead, for a
// newer scheduler to close or a newer worker to run. A turn with a request to cancel is closed by that: see end_many.
func (t *tick) CloseLost(ctx context.Context, lost granting.LostGrant) error {
	switch asked, err := t.CancelAsked(ctx, lost.TurnID); {
	case err != nil:
		return err
	case asked:
		return t.Requeue(ctx, lost)
	}
	switch _, err := t.Rounds(ctx, lost.TurnID); {
	case errors.Is(err, journal.ErrNewerJournal):
		return t.Requeue(ctx, lost)
	case err != nil:
		return err
	}
	if err := t.RingHolders(ctx); err != nil {
		return err
	}
	if err := t.SettleCalls(ctx, lost.TurnID, agentturn.ShownUnknown, agentturn.ShownPerhaps, agentturn.ShownNotRun,
		agentturn.ShownReplyUnawaited); err != nil {
		return err
	}
	rounds, err := t.Rounds(ctx, lost.TurnID)
	if err != nil {
		return err
	}
	open, err := t.OpenRound(ctx, lost.TurnID, len(rounds))
	if err != nil {
		return err
	}
	agent, definition, err := t.Definition(ctx, lost.TurnID)
	if err != nil {
		return err
	}
	outcome, events := agentturn.Lost(lost, agent, definition, rounds, open)
	return t.Close(ctx, lost, outcome, events)
}

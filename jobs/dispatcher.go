package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/scheduler"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// A Dispatcher is the scheduler's Store: it grants leases and inserts the jobs
// that tell workers of them, in one transaction.
type Dispatcher struct {
	Grants *grants.Store
	Client *Client
	TTL    time.Duration // of a lease
}

var _ scheduler.Store = (*Dispatcher)(nil)

// InTick runs f in one transaction.
func (d *Dispatcher) InTick(ctx context.Context, f func(scheduler.Tick) error) error {
	return d.Grants.InTick(ctx, func(t *grants.Tick) error {
		return f(&tick{Tick: t, dispatcher: d})
	})
}

// NextDue returns how long until something comes due that was not due then.
func (d *Dispatcher) NextDue(ctx context.Context, then time.Time) (time.Duration, error) {
	return d.Grants.NextDue(ctx, then)
}

// A tick is a pass of the scheduler over the database and River.
type tick struct {
	*grants.Tick
	dispatcher *Dispatcher
}

// Dispatch grants each of ready its lane and inserts its job. The row is written
// by the statement that grants, not by River's client: one round trip instead of
// three on the way of every message. A test holds it against River's own.
func (t *tick) Dispatch(ctx context.Context, ready []turnkeeper.Ready) error {
	ids := make([]turnkeeper.GrantID, len(ready))
	for i := range ready {
		ids[i] = turnkeeper.GrantID(uuid.NewString())
	}
	return t.Grant(ctx, ready, ids, grants.Job{Kind: TurnArgs{}.Kind(), Queue: Queue, QueueOf: QueueOf}, t.dispatcher.TTL)
}

// Requeue takes the lane from a lost grant. A holder that lives after all is
// told by River, and would fail its next write anyway.
func (t *tick) Requeue(ctx context.Context, lost turnkeeper.LostGrant) error {
	t.tellHolder(ctx, lost)
	return t.Tick.Requeue(ctx, lost)
}

func (t *tick) tellHolder(ctx context.Context, lost turnkeeper.LostGrant) {
	// A row that River has removed already is no reason to keep the lane; a
	// broken transaction shows at the next statement.
	_, _ = t.dispatcher.Client.JobCancelTx(ctx, t.Tx(), int64(lost.JobID))
}

// EndCall gives a lost detached call the result that its trouble means.
func (t *tick) EndCall(ctx context.Context, call turnkeeper.LostCall) error {
	return t.Tick.EndCall(ctx, call, agentturn.LostCall(call))
}

// CloseLost answers a message whose turn has lost its worker too often, without
// running it again. One whose journal is too new to be told is queued again
// instead: a newer scheduler will close it, or a newer worker end it.
func (t *tick) CloseLost(ctx context.Context, lost turnkeeper.LostGrant) error {
	if _, err := t.Rounds(ctx, lost.TurnID); errors.Is(err, journal.ErrNewerJournal) {
		return t.Requeue(ctx, lost)
	}
	t.tellHolder(ctx, lost)
	if err := t.SettleCalls(ctx, lost.TurnID, agentturn.ShownUnknown, agentturn.ShownPerhaps, agentturn.ShownNotRun, agentturn.ShownReplyUnawaited); err != nil {
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

// Package memorytest makes the store in memory pass internal/storesuite.
package memorytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/storesuite"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/scheduler"
)

// Open returns an empty store. When the test ends, it checks the store's invariants.
func Open(t *testing.T) storesuite.Store {
	d := &door{t: t}
	d.store = memory.New(memory.Options{Now: func() time.Time {
		return time.Now().Add(d.skew)
	}, LeaseTTL: storesuite.LeaseTTL})
	d.conn = d.store.Connect(nil)
	t.Cleanup(func() {
		if len(d.cuts) > 0 {
			t.Error("a request was to be cut, and none came")
		}
		for _, v := range d.store.Check(time.Hour) {
			t.Error(v)
		}
	})
	return d
}

// A door implements storesuite.Store with a store in memory. Its clock can be moved forward, and its
// requests can be dropped.
type door struct {
	t       *testing.T
	store   *memory.Store
	conn    *memory.Conn
	skew    time.Duration
	cuts    []bool
	effects []string
}

func (d *door) Scheduler() scheduler.Store { return d.conn }

func (d *door) Register(a turnkeeper.AgentRegistration) {
	if err := d.conn.RegisterAgents(d.t.Context(), []turnkeeper.AgentRegistration{a}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Enqueue(ctx context.Context, m turnkeeper.Submission) (turnkeeper.MessageID, error) {
	return d.conn.Enqueue(ctx, m)
}

func (d *door) Beat(h presence.Heartbeat) {
	if err := d.conn.Beat(d.t.Context(), h); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Present(worker turnkeeper.WorkerID) (gone func()) {
	conn := d.store.Connect(nil)
	conn.Present(worker)
	return conn.Break
}

func (d *door) Fetch(worker turnkeeper.WorkerID) []storesuite.Job {
	taken, err := d.conn.Fetch(d.t.Context(), worker, 1000)
	if err != nil {
		d.t.Fatal(err)
	}
	var all []storesuite.Job
	for _, job := range taken {
		all = append(all, storesuite.Job(job))
	}
	return all
}

func (d *door) FetchCalls(worker turnkeeper.WorkerID) (refs []turnlog.CallRef) {
	taken, err := d.conn.FetchCalls(d.t.Context(), worker, 1000)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, job := range taken {
		refs = append(refs, job.Ref)
	}
	return refs
}

func (d *door) Claim(ctx context.Context, ref turnlog.CallRef, worker turnkeeper.WorkerID,
	tools []string) (turnlog.ClaimedCall, error) {
	return d.conn.Claim(ctx, ref, worker, tools)
}

func (d *door) Arrive(ctx context.Context, c turnlog.ClaimedCall, r turnlog.CallResult) error {
	return d.store.Connect(d).Arrive(ctx, c, r)
}

func (d *door) Release(ctx context.Context, c turnlog.ClaimedCall) error {
	return d.conn.Release(ctx, c)
}

func (d *door) ClaimsHeld(ctx context.Context, claims []turnlog.ClaimID) ([]turnlog.ClaimID, error) {
	return d.conn.ClaimsHeld(ctx, claims)
}

func (d *door) ForgetFetch(job turnkeeper.JobID) { d.store.Forget(job) }

func (d *door) BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID,
	worker turnkeeper.WorkerID) (bool, error) {
	return d.conn.BindGrant(ctx, turn, grant, worker)
}

func (d *door) Load(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID) (*turnlog.Record, error) {
	return d.conn.Load(ctx, turn, grant)
}

func (d *door) Journal(record *turnlog.Record, grant turnkeeper.Grant) agentturn.Journal {
	return d.store.Connect(d).Journal(record, grant)
}

func (d *door) EndTurn(ctx context.Context, id turnkeeper.TurnID, how turnlog.WantedEnd) (bool, error) {
	if how == turnlog.EndFinish {
		return d.conn.FinishTurn(ctx, id)
	}
	return d.conn.CancelTurn(ctx, id)
}

func (d *door) CancelMessage(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.TurnID, bool, error) {
	return d.conn.CancelMessage(ctx, id)
}

func (d *door) Extractions() extract.Cache { return d.conn }

// Carry implements memory.Wire for the journals. It drops the requests, or their answers, that
// CutNext selected.
func (d *door) Carry(_ context.Context, request string, do func() error) error {
	if len(d.cuts) == 0 {
		return do()
	}
	done := d.cuts[0]
	d.cuts = d.cuts[1:]
	if done {
		_ = do()
	}
	return fmt.Errorf("%w: %s was cut", memory.ErrAway, request)
}

func (d *door) CutNext(done bool) { d.cuts = append(d.cuts, done) }

func (d *door) Effect(ctx context.Context, name string) {
	if !memory.OnCommit(ctx, func() { d.effects = append(d.effects, name) }) {
		d.t.Error("there is no transaction")
	}
}

func (d *door) Outputs() toolrun.Outputs { return d.conn }

func (d keeper) Sweep() {
	if err := d.conn.SweepDrafts(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Effects() []string { return d.effects }
func (d *door) Retire(agent string, retired bool) {
	change := d.conn.RestoreAgent
	if retired {
		change = d.conn.RetireAgent
	}
	if err := change(d.t.Context(), agent); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Fail(row granting.Subject, fails bool) { memory.Fail(d.t, d.store, row, fails) }

func (d *door) Pass(p time.Duration) { d.skew += p }

func (d keeper) Rows() (messages []turnkeeper.MessageID, turns []turnkeeper.TurnID) {
	for _, m := range d.store.Messages() {
		messages = append(messages, m.ID)
	}
	return messages, d.store.Turns()
}

func (d *door) Message(id turnkeeper.MessageID) turnkeeper.Message {
	m, ok := d.store.Message(id)
	if !ok {
		d.t.Fatalf("there is no message %d", id)
	}
	return m
}

func (d *door) FindMessage(_ context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error) {
	m, ok := d.store.Message(id)
	if !ok {
		return m, turnkeeper.ErrNotFound
	}
	return m, nil
}

func (d *door) Blockers(id turnkeeper.MessageID) []waiting.Reason {
	return memory.Blockers(d.store, id)
}

func (d *door) Reply(id turnkeeper.MessageID) (turnkeeper.Reply, bool) { return d.store.ReplyTo(id) }

func (d *door) Turn(id turnkeeper.TurnID) (turnkeeper.Turn, []turnkeeper.Round) {
	turn, rounds, _, ok := d.store.Turn(id)
	if !ok {
		d.t.Fatalf("there is no turn %d", id)
	}
	return turn, rounds
}

func (d *door) Events(id turnkeeper.TurnID) []turnkeeper.Event {
	_, _, events, _ := d.store.Turn(id)
	return events
}

func (d *door) Grants(id turnkeeper.TurnID) []turnkeeper.Dispatch {
	var all []turnkeeper.Dispatch
	for _, g := range d.store.Grants() {
		if g.TurnID == id {
			all = append(all, g)
		}
	}
	return all
}

func (d *door) RequestParts(ctx context.Context, hashes ...string) (map[string]string, error) {
	return d.conn.RequestParts(ctx, hashes...)
}

func (d *door) Asks(turn turnkeeper.TurnID) []asks.Ask {
	all, err := d.conn.Asks(d.t.Context(), turn)
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

func (d *door) RecentCalls(ctx context.Context, agent, name, argsHash string,
	within time.Duration) ([]turnlog.PastCall, error) {
	return d.conn.RecentCalls(ctx, agent, name, argsHash, within)
}

func (d *door) AnswerAsk(ctx context.Context, id asks.ID, a asks.Answer) (asks.State, error) {
	return d.conn.AnswerAsk(ctx, id, a)
}

func (d *door) Budget() agentturn.Budget { return memory.Budget{Conn: d.conn} }

func (d *door) PinLevel(agent string, level survival.Level) {
	if err := d.conn.PinLevel(d.t.Context(), agent, level); err != nil {
		d.t.Fatal(err)
	}
}

// A keeper implements storesuite.Keeper.
type keeper struct{ *door }

func (d *door) Keeper() storesuite.Keeper { return keeper{d} }

func (d keeper) Expire(class retention.Class, kept time.Duration) int {
	turns, err := memory.Keeper{Conn: d.conn}.Expire(d.t.Context(), class, kept)
	if err != nil {
		d.t.Fatal(err)
	}
	return turns
}

func (d *door) Schedule(agent, name string) turnkeeper.Schedule { return d.store.Schedule(agent, name) }

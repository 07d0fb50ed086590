package storage_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// A house is a store with two agents: clerk, and desk with a lane for each
// conversation.
type house struct {
	*storage.Store
	t   testing.TB
	url string
}

// newHouse makes a house of the test's own. The test then runs beside others.
func newHouse(t testing.TB) *house {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	url := storagetest.URL(t)
	h := &house{storagetest.Open(t, url), t, url}
	h.register("clerk", false)
	h.register("desk", true)
	return h
}

func (h *house) register(agent string, perConversation bool, schedules ...turnkeeper.Schedule) {
	h.t.Helper()
	err := h.RegisterAgents(h.t.Context(), []turnkeeper.AgentRegistration{registration(agent, perConversation, schedules...)})
	if err != nil {
		h.t.Fatal(err)
	}
}

func registration(agent string, perConversation bool, schedules ...turnkeeper.Schedule) turnkeeper.AgentRegistration {
	source := "You are " + agent + "."
	sum := sha256.Sum256([]byte(source))
	return turnkeeper.AgentRegistration{
		Name: agent, Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]),
		LanePerConversation: perConversation, Schedules: schedules,
	}
}

func (h *house) enqueue(agent, conversation, body string) turnkeeper.MessageID {
	h.t.Helper()
	id, err := h.Enqueue(h.t.Context(), turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// exec runs SQL, and one reads the single value of a query.
func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.Pool().Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
}

// now is the database's time.
func (h *house) now() time.Time { return one[time.Time](h, "select clock_timestamp()") }

func one[T any](h *house, sql string, args ...any) T {
	h.t.Helper()
	rows, _ := h.Pool().Query(h.t.Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// inTick runs f in a tick that has looked.
func (h *house) inTick(f func(ctx context.Context, tick *storage.Tick) error) {
	h.t.Helper()
	ctx := h.t.Context()
	err := h.InTick(ctx, func(tick *storage.Tick) error {
		if _, _, err := tick.Look(ctx); err != nil {
			return err
		}
		return f(ctx, tick)
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

const ttl = 240 * time.Second

// patience bounds every wait for an event: far above what any takes.
const patience = time.Minute

// A dispatch is a granted turn as its worker has it.
type dispatch struct {
	*storage.TurnWriter
	record turnkeeper.Record
	grant  turnkeeper.Grant
}

// dispatch grants whatever is ready to a worker, as the scheduler does, and
// returns what the worker then has, in the order of the grants.
func (h *house) dispatch(worker turnkeeper.WorkerID) []*dispatch {
	h.t.Helper()
	var grants []turnkeeper.GrantID
	h.inTick(func(ctx context.Context, tick *storage.Tick) error {
		if err := tick.MoveLanes(ctx); err != nil {
			return err
		}
		ready, err := tick.ReadyTurns(ctx, 100, nil)
		if err != nil {
			return err
		}
		messages, err := tick.ReadyMessages(ctx, 100, nil)
		if err != nil {
			return err
		}
		ready = slices.Concat(ready, messages)
		if len(ready) == 0 {
			return nil
		}
		for range ready {
			grants = append(grants, turnkeeper.GrantID(uuid.NewString()))
		}
		return tick.Grant(ctx, ready, grants, turnJob, ttl)
	})
	var all []*dispatch
	for _, id := range grants {
		turn := one[turnkeeper.TurnID](h, "select turn_id from turnkeeper.lease_log where grant_id = $1", id)
		job := one[turnkeeper.JobID](h, "select job_id from turnkeeper.lease_log where grant_id = $1", id)
		h.fetchJob(job, worker)
		all = append(all, h.take(turn, id, job, worker))
	}
	return all
}

var turnJob = storage.Job{Kind: "AgentTurn", Queue: "turns"}

// fetchJob makes a River job one that a worker has fetched; an empty worker has
// not.
func (h *house) fetchJob(id turnkeeper.JobID, worker turnkeeper.WorkerID) {
	if worker != "" {
		h.exec(`update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = $2
			where id = $1`, id, []string{string(worker)})
	}
}

// take binds a grant to a worker that there is, and loads the turn.
func (h *house) take(turn turnkeeper.TurnID, grant turnkeeper.GrantID, job turnkeeper.JobID, worker turnkeeper.WorkerID) *dispatch {
	h.t.Helper()
	if worker != "" {
		if _, err := h.BindGrant(h.t.Context(), turn, grant, worker); err != nil {
			h.t.Fatal(err)
		}
	}
	record, err := h.Load(h.t.Context(), turn, grant)
	if err != nil {
		h.t.Fatal(err)
	}
	g := turnkeeper.Grant{
		TurnID: turn, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: grant, JobID: job, WorkerID: worker,
	}
	return &dispatch{h.Writer(record, g), record, g}
}

// turn enqueues a message for the clerk and dispatches it.
func (h *house) turn(body string) *dispatch {
	h.t.Helper()
	h.enqueue("clerk", "", body)
	all := h.dispatch("worker-1")
	if len(all) != 1 {
		h.t.Fatalf("dispatched %d turns, want 1", len(all))
	}
	return all[0]
}

// lose takes the lane from a dispatch, as the scheduler does from a lost worker,
// and opens its turn.
func (h *house) lose(d *dispatch) {
	h.t.Helper()
	h.exec("update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id = $1", d.grant.GrantID)
	h.inTick(func(ctx context.Context, tick *storage.Tick) error {
		lost, err := tick.Lost(ctx, 100)
		if err != nil {
			return err
		}
		for _, l := range lost {
			if l.GrantID == d.grant.GrantID {
				return tick.Requeue(ctx, l)
			}
		}
		return fmt.Errorf("grant %s is not lost: %+v", d.grant.GrantID, lost)
	})
}

// again loses a dispatch and dispatches its turn to another worker.
func (h *house) again(d *dispatch, worker turnkeeper.WorkerID) *dispatch {
	h.t.Helper()
	h.lose(d)
	all := h.dispatch(worker)
	if len(all) != 1 || all[0].grant.TurnID != d.grant.TurnID {
		h.t.Fatalf("dispatched %d turns, want the lost one", len(all))
	}
	return all[0]
}

func (d *dispatch) append(t testing.TB, e turnkeeper.Entry) {
	t.Helper()
	if err := d.Append(t.Context(), e, storage.Ending{}); err != nil {
		t.Fatal(err)
	}
}

// finish ends a dispatch well.
func (d *dispatch) finish(t testing.TB, reply string) {
	t.Helper()
	err := d.Append(t.Context(), turnkeeper.Entry{Outcome: succeeded(reply)}, answered)
	if err != nil {
		t.Fatal(err)
	}
}

func succeeded(reply string) *turnkeeper.Outcome {
	return &turnkeeper.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: reply}
}

var answered = storage.Ending{Message: turnkeeper.MessageAnswered, Log: "finished"}

// round is an answer of the model that asks for calls of these effects.
func round(number int, effects ...turnkeeper.Effect) *turnkeeper.Round {
	r := &turnkeeper.Round{Number: number, Charged: true, Provider: "script", Model: "m", Attempts: 1, FinishReason: "tool_calls"}
	for i, effect := range effects {
		key := turnkeeper.CallKey{Round: number, Ordinal: i + 1}
		r.Calls = append(r.Calls, turnkeeper.ToolCall{
			Key: key, WireID: key.String(), Name: "tool", Arguments: "{}", ArgsHash: "hash", Effect: effect, State: turnkeeper.CallPlanned,
		})
	}
	return r
}

func key(round, ordinal int) turnkeeper.CallKey {
	return turnkeeper.CallKey{Round: round, Ordinal: ordinal}
}

func start(k turnkeeper.CallKey, nonce string, attempt int, effect turnkeeper.Effect) turnkeeper.CallStart {
	return turnkeeper.CallStart{Key: k, Nonce: nonce, Attempt: attempt, Effect: effect}
}

func result(k turnkeeper.CallKey, nonce string, state turnkeeper.CallState, shown string) turnkeeper.CallResult {
	return turnkeeper.CallResult{Key: k, Nonce: nonce, State: state, Shown: shown, Preview: shown}
}

func events(types ...turnkeeper.EventType) []turnkeeper.Event {
	var all []turnkeeper.Event
	for _, e := range types {
		all = append(all, turnkeeper.Event{Type: e, Data: []byte(`{"n":1}`)})
	}
	return all
}

// call reads a call of a turn as it stands.
func (h *house) call(turn turnkeeper.TurnID, k turnkeeper.CallKey) turnkeeper.ToolCall {
	h.t.Helper()
	view, err := h.ViewTurn(h.t.Context(), turn)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range view.Rounds {
		for _, c := range r.Calls {
			if c.Key == k {
				return c
			}
		}
	}
	h.t.Fatalf("turn %d has no call %s", turn, k)
	return turnkeeper.ToolCall{}
}

package storagetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

// WithAgents opens a database of Reused with two agents: clerk, and desk, which has a lane for each conversation. It
// marks the test as parallel.
func WithAgents(t testing.TB) *DB {
	t.Helper()
	parallel(t)
	return withAgents(Reused(t, ""))
}

// NewWithAgents is WithAgents with a new database. It is for tests of what statements read and how large tables are,
// because rows that other tests deleted still take space.
func NewWithAgents(t testing.TB) *DB {
	t.Helper()
	parallel(t)
	return withAgents(New(t))
}

func parallel(t testing.TB) {
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
}

func withAgents(db *DB) *DB {
	db.T.Helper()
	db.Register("clerk", false)
	db.Register("desk", true)
	return db
}

// Register registers an agent without a file.
func (db *DB) Register(agent string, perConversation bool, schedules ...turnkeeper.Schedule) {
	db.T.Helper()
	err := db.RegisterAgents(db.T.Context(), []turnkeeper.AgentRegistration{Registration(agent, perConversation,
		schedules...)})
	if err != nil {
		db.T.Fatal(err)
	}
}

// Registration returns the registration of an agent without a file.
func Registration(agent string, perConversation bool, schedules ...turnkeeper.Schedule) turnkeeper.AgentRegistration {
	source := "You are " + agent + "."
	sum := sha256.Sum256([]byte(source))
	return turnkeeper.AgentRegistration{
		Name: agent, Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]),
		LanePerConversation: perConversation, Schedules: schedules,
	}
}

// Time returns the time of the database's clock.
func (db *DB) Time() time.Time { return One[time.Time](db, "select clock_timestamp()") }

// Tick runs f in a tick, after the tick has read its snapshot.
func (db *DB) Tick(f func(ctx context.Context, tick *grants.Tick) error) {
	db.T.Helper()
	ctx := db.T.Context()
	err := db.InTick(ctx, func(tick *grants.Tick) error {
		if _, _, err := tick.Snapshot(ctx, true); err != nil {
			return err
		}
		return f(ctx, tick)
	})
	if err != nil {
		db.T.Fatal(err)
	}
}

// TTL is the time of a lease.
const TTL = 240 * time.Second

// A Dispatch is a granted turn, as its worker loaded it.
type Dispatch struct {
	*journal.Writer
	Record *turnlog.Record
	Grant  turnkeeper.Grant
}

// Dispatch grants everything that is ready, as the scheduler does, lets the worker take it, and
// returns the dispatches in the order of the grants.
func (db *DB) Dispatch(worker turnkeeper.WorkerID) []*Dispatch {
	db.T.Helper()
	var ids []turnkeeper.GrantID
	db.Tick(func(ctx context.Context, tick *grants.Tick) error {
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
			ids = append(ids, turnkeeper.GrantID(uuid.NewString()))
		}
		return tick.Grant(ctx, ready, ids, TurnJob, TTL)
	})
	var all []*Dispatch
	for _, id := range ids {
		turn := One[turnkeeper.TurnID](db, "select turn_id from turnkeeper.leases where grant_id = $1", id)
		job := One[turnkeeper.JobID](db,
			"select t.job_id from turnkeeper.leases l join turnkeeper.turns t on t.id = l.turn_id where l.grant_id = $1", id)
		db.FetchJob(job, worker)
		all = append(all, db.Take(turn, id, job, worker))
	}
	return all
}

// TurnJob is the kind and queue of the job of a turn.
var TurnJob = grants.Job{Kind: "AgentTurn", Queue: "turns"}

// FetchJob marks a River job as fetched by a worker. It does nothing if worker is empty.
func (db *DB) FetchJob(id turnkeeper.JobID, worker turnkeeper.WorkerID) {
	if worker != "" {
		db.Exec(`update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = $2
			where id = $1`, id, []string{string(worker)})
	}
}

// Take binds a grant to a worker, unless worker is empty, and loads the turn.
func (db *DB) Take(turn turnkeeper.TurnID, grant turnkeeper.GrantID, job turnkeeper.JobID,
	worker turnkeeper.WorkerID) *Dispatch {
	db.T.Helper()
	if worker != "" {
		if _, err := db.BindGrant(db.T.Context(), turn, grant, worker); err != nil {
			db.T.Fatal(err)
		}
	}
	record, err := db.Load(db.T.Context(), turn, grant)
	if err != nil {
		db.T.Fatal(err)
	}
	g := turnkeeper.Grant{
		TurnID: turn, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: grant, JobID: job, WorkerID: worker,
	}
	return &Dispatch{db.Writer(record, g), record, g}
}

// Turn enqueues a message for clerk and dispatches it to worker-1.
func (db *DB) Turn(body string) *Dispatch {
	db.T.Helper()
	db.Submit("clerk", "", body)
	all := db.Dispatch("worker-1")
	if len(all) != 1 {
		db.T.Fatalf("dispatched %d turns, want 1", len(all))
	}
	return all[0]
}

// Lose ends the lease of a dispatch and reclaims its turn, as the scheduler does if the worker is lost.
func (db *DB) Lose(lost *Dispatch) {
	db.T.Helper()
	db.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id = $1", lost.Grant.GrantID)
	db.Tick(func(ctx context.Context, tick *grants.Tick) error {
		all, err := tick.Lost(ctx, 100)
		if err != nil {
			return err
		}
		for _, l := range all {
			if l.GrantID == lost.Grant.GrantID {
				return tick.Requeue(ctx, l)
			}
		}
		return fmt.Errorf("grant %s is not lost: %+v", lost.Grant.GrantID, all)
	})
}

// Again loses a dispatch and dispatches its turn to the worker.
func (db *DB) Again(lost *Dispatch, worker turnkeeper.WorkerID) *Dispatch {
	db.T.Helper()
	db.Lose(lost)
	all := db.Dispatch(worker)
	if len(all) != 1 || all[0].Grant.TurnID != lost.Grant.TurnID {
		db.T.Fatalf("dispatched %d turns, want the lost one", len(all))
	}
	return all[0]
}

// Write appends an entry.
func (d *Dispatch) Write(t testing.TB, e turnlog.Entry) {
	t.Helper()
	if err := d.Append(t.Context(), e, turnlog.Consequence{}); err != nil {
		t.Fatal(err)
	}
}

// Finish ends a dispatch with a reply.
func (d *Dispatch) Finish(t testing.TB, reply string) {
	t.Helper()
	err := d.Append(t.Context(), turnlog.Entry{Outcome: Succeeded(reply)}, Answered)
	if err != nil {
		t.Fatal(err)
	}
}

// Succeeded returns the outcome of a turn that succeeded.
func Succeeded(reply string) *turnlog.Outcome {
	return &turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: reply}
}

// Answered is the ending of a turn that answered its message.
var Answered = turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "finished"}

// Round returns a round with planned calls of these effects.
func Round(number int, effects ...turnkeeper.Effect) *turnkeeper.Round {
	r := &turnkeeper.Round{Number: number, Charged: true, Provider: "script", Model: "m", Attempts: 1,
		FinishReason: "tool_calls"}
	for i, effect := range effects {
		key := turnkeeper.CallKey{Round: number, Ordinal: i + 1}
		r.Calls = append(r.Calls, turnkeeper.ToolCall{
			Key: key, WireID: key.String(), Name: "tool", Arguments: "{}", ArgsHash: "hash", Effect: effect,
			State: turnkeeper.CallPlanned,
		})
	}
	return r
}

// Key returns the key of a call.
func Key(round, ordinal int) turnkeeper.CallKey {
	return turnkeeper.CallKey{Round: round, Ordinal: ordinal}
}

// Start returns the start of a call.
func Start(k turnkeeper.CallKey, nonce string, attempt int, effect turnkeeper.Effect) turnlog.CallStart {
	return turnlog.CallStart{Key: k, Nonce: nonce, Attempt: attempt, Effect: effect}
}

// Result returns the result of a call.
func Result(k turnkeeper.CallKey, nonce string, state turnkeeper.CallState, shown string) turnlog.CallResult {
	return turnlog.CallResult{Key: k, Nonce: nonce, State: state, Shown: shown, Preview: shown}
}

// Events returns an event of each type.
func Events(types ...turnkeeper.EventType) []turnkeeper.Event {
	var all []turnkeeper.Event
	for _, e := range types {
		all = append(all, turnkeeper.Event{Type: e, Data: []byte(`{"n":1}`)})
	}
	return all
}

// Call returns the current state of a call.
func (db *DB) Call(turn turnkeeper.TurnID, k turnkeeper.CallKey) turnkeeper.ToolCall {
	db.T.Helper()
	view, err := db.ViewTurn(db.T.Context(), turn)
	if err != nil {
		db.T.Fatal(err)
	}
	for _, r := range view.Rounds {
		for _, c := range r.Calls {
			if c.Key == k {
				return c
			}
		}
	}
	db.T.Fatalf("turn %d has no call %s", turn, k)
	return turnkeeper.ToolCall{}
}

// Waiting returns a dispatch of desk that has ended because its turn waits for a detached call of effect once.
func (db *DB) Waiting(conversation string) *Dispatch {
	db.T.Helper()
	d := db.Detached(conversation, turnkeeper.EffectOnce)
	d.Wait(db.T)
	return d
}

// Detached returns a dispatch of desk with a detached call.
func (db *DB) Detached(conversation string, effect turnkeeper.Effect) *Dispatch {
	db.T.Helper()
	db.Submit("desk", conversation, "take your time")
	d := db.Dispatch("worker-1")[0]
	d.Write(db.T, turnlog.Entry{
		Round: Round(1, effect), Events: Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnlog.CallStart{{
			Key: Key(1, 1), Nonce: fmt.Sprint("n", d.Grant.TurnID), Attempt: 1, Effect: effect, Detached: time.Hour,
		}},
		Results: []turnlog.CallResult{{
			Key: Key(1, 1), Nonce: fmt.Sprint("n", d.Grant.TurnID), State: turnkeeper.CallRunning, Shown: "handle",
			OutputID: turnkeeper.OutputID(fmt.Sprint("output-", d.Grant.TurnID)),
		}},
	})
	return d
}

// Wait ends a dispatch because its turn waits for detached calls.
func (d *Dispatch) Wait(t testing.TB) {
	t.Helper()
	err := d.Append(t.Context(), turnlog.Entry{
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting}, Events: Events(turnkeeper.EventTurnWaiting),
	}, turnlog.Consequence{Log: "waiting"})
	if err != nil {
		t.Fatal(err)
	}
}

// Cancel ends a dispatch as cancelled, with all its open calls.
func (d *Dispatch) Cancel(t testing.TB) {
	t.Helper()
	err := d.Append(t.Context(), turnlog.Entry{
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled,
			Reply: "cancelled"},
	}, turnlog.Consequence{Message: turnkeeper.MessageCancelled, Log: "finished"})
	if err != nil {
		t.Fatal(err)
	}
}

// HeartBeat writes a heartbeat of a worker.
func (db *DB) HeartBeat(id turnkeeper.WorkerID, slots int, takeover time.Duration) {
	db.T.Helper()
	err := db.Beat(db.T.Context(), presence.Heartbeat{WorkerID: id, Host: "here", PID: 1, Version: "v", Slots: slots,
		TakeoverAfter: takeover})
	if err != nil {
		db.T.Fatal(err)
	}
}

// Silence sets a worker's last heartbeat to d ago.
func (db *DB) Silence(id turnkeeper.WorkerID, d time.Duration) {
	db.T.Helper()
	db.Exec("update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() - $2::interval where worker_id = $1",
		id, d)
}

package storesuite

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

// An env is a store with two agents: clerk, and desk with a lane for each
// conversation.
type env struct {
	Store
	*testing.T
}

func newEnv(t *testing.T, d Store) *env {
	e := &env{d, t}
	e.Register(registration("clerk", false))
	e.Register(registration("desk", true))
	return e
}

func registration(agent string, perConversation bool, schedules ...turnkeeper.Schedule) turnkeeper.AgentRegistration {
	source := "---\ndescription: d\n---\nYou are " + agent + ".\n"
	sum := sha256.Sum256([]byte(source))
	return turnkeeper.AgentRegistration{
		Name: agent, Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]),
		LanePerConversation: perConversation, Schedules: schedules,
	}
}

func (e *env) enqueue(agent, conversation, body string) turnkeeper.MessageID {
	e.Helper()
	id, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		e.Fatal(err)
	}
	return id
}

const (
	first  turnkeeper.WorkerID = "worker-1"
	second turnkeeper.WorkerID = "worker-2"
)

func (e *env) beat(workers ...turnkeeper.WorkerID) {
	for _, id := range workers {
		e.Beat(presence.Heartbeat{WorkerID: id, Host: "h", Version: "v", Slots: 10, TakeoverAfter: takeover})
	}
}

// tick sends both workers' heartbeats and runs one tick of a new scheduler.
func (e *env) tick() scheduler.Report {
	e.Helper()
	e.beat(first, second)
	return e.tickAlone()
}

// tickAlone is tick without heartbeats.
func (e *env) tickAlone() scheduler.Report {
	e.Helper()
	report, err := scheduler.New(scheduler.Config{Store: e.Scheduler()}).Tick(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return report
}

// A dispatch is a granted turn, as its worker loaded it.
type dispatch struct {
	agentturn.Journal
	env    *env
	record *turnlog.Record
	grant  turnkeeper.Grant
}

// take fetches and loads every granted turn.
func (e *env) take(worker turnkeeper.WorkerID) []*dispatch {
	e.Helper()
	var all []*dispatch
	for _, job := range e.Fetch(worker) {
		all = append(all, e.load(job, worker))
	}
	return all
}

// load binds the grant of a job and loads its turn.
func (e *env) load(job Job, worker turnkeeper.WorkerID) *dispatch {
	e.Helper()
	if _, err := e.BindGrant(e.Context(), job.TurnID, job.GrantID, worker); err != nil {
		e.Fatal(err)
	}
	return e.read(job, worker)
}

// read loads the turn of a job without binding the grant.
func (e *env) read(job Job, worker turnkeeper.WorkerID) *dispatch {
	e.Helper()
	record, err := e.Load(e.Context(), job.TurnID, job.GrantID)
	if err != nil {
		e.Fatal(err)
	}
	turn := record.Turn
	grant := turnkeeper.Grant{
		TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: job.GrantID, JobID: job.ID, WorkerID: worker,
	}
	return &dispatch{e.Journal(record, grant), e, record, grant}
}

// turn sends a message to clerk and dispatches it to the first worker.
func (e *env) turn() *dispatch {
	e.Helper()
	e.enqueue("clerk", "", "do it")
	return e.next(first)
}

// next runs a tick and takes the only granted turn.
func (e *env) next(worker turnkeeper.WorkerID) *dispatch {
	e.Helper()
	e.tick()
	all := e.take(worker)
	if len(all) != 1 {
		e.Fatalf("%d turns were granted, want 1", len(all))
	}
	return all[0]
}

// again lets the lease of a dispatch expire and dispatches the turn to the second worker.
func (e *env) again(d *dispatch) *dispatch {
	e.Helper()
	e.Pass(LeaseTTL)
	after := e.next(second)
	if after.grant.TurnID != d.grant.TurnID {
		e.Fatalf("turn %d was granted, want the lost %d", after.grant.TurnID, d.grant.TurnID)
	}
	return after
}

func (d *dispatch) append(entry turnlog.Entry) {
	d.env.Helper()
	if err := d.Append(d.env.Context(), entry); err != nil {
		d.env.Fatal(err)
	}
}

// planned returns a dispatch with one round of planned calls of these effects.
func (e *env) planned(effects ...turnkeeper.Effect) *dispatch {
	e.Helper()
	d := e.turn()
	d.append(turnlog.Entry{Round: round(1, effects...), Events: events(turnkeeper.EventTurnStart,
		turnkeeper.EventRoundStart)})
	return d
}

func (d *dispatch) start(k turnkeeper.CallKey, nonce string, attempt int) error {
	call := d.call(k)
	return d.Append(d.env.Context(), turnlog.Entry{Starts: []turnlog.CallStart{
		{Key: k, Nonce: nonce, Attempt: attempt, Effect: call.Effect},
	}})
}

func (d *dispatch) mustStart(k turnkeeper.CallKey, nonce string, attempt int) {
	d.env.Helper()
	if err := d.start(k, nonce, attempt); err != nil {
		d.env.Fatal(err)
	}
}

func (d *dispatch) answer(k turnkeeper.CallKey, nonce string, state turnkeeper.CallState, shown string) error {
	return d.Append(d.env.Context(), turnlog.Entry{Results: []turnlog.CallResult{result(k, nonce, state, shown)}})
}

func (d *dispatch) call(k turnkeeper.CallKey) turnkeeper.ToolCall {
	d.env.Helper()
	_, rounds := d.env.Turn(d.grant.TurnID)
	for _, r := range rounds {
		for _, c := range r.Calls {
			if c.Key == k {
				return c
			}
		}
	}
	d.env.Fatalf("call %s not found", k)
	return turnkeeper.ToolCall{}
}

func (d *dispatch) end(o turnlog.Outcome) error {
	return d.Append(d.env.Context(), turnlog.Entry{Outcome: &o})
}

func succeeded(reply string) turnlog.Outcome {
	return turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: reply}
}

func round(number int, effects ...turnkeeper.Effect) *turnkeeper.Round {
	r := &turnkeeper.Round{Number: number, Charged: true, Provider: "script", Model: "m", Attempts: 1,
		FinishReason: "tool_calls"}
	for i, effect := range effects {
		k := key(number, i+1)
		r.Calls = append(r.Calls, turnkeeper.ToolCall{
			Key: k, WireID: k.String(), Name: "tool", Arguments: "{}", ArgsHash: "hash", Effect: effect,
			State: turnkeeper.CallPlanned,
		})
	}
	return r
}

func key(round, ordinal int) turnkeeper.CallKey {
	return turnkeeper.CallKey{Round: round, Ordinal: ordinal}
}

func result(k turnkeeper.CallKey, nonce string, state turnkeeper.CallState, shown string) turnlog.CallResult {
	return turnlog.CallResult{Key: k, Nonce: nonce, State: state, Shown: shown, Preview: shown}
}

func events(types ...turnkeeper.EventType) []turnkeeper.Event {
	var all []turnkeeper.Event
	for _, eventType := range types {
		all = append(all, turnkeeper.Event{Type: eventType, Data: []byte(`{"n":1}`)})
	}
	return all
}

func nonce() string { return rand.Text() }

func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: %v, want %v", what, got, want)
	}
}

func wantErr(e *env, what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func (d *dispatch) transact(k turnkeeper.CallKey, nonce string,
	run func(context.Context) turnlog.CallResult) (turnlog.CallResult, error) {
	return d.Transact(d.env.Context(), turnlog.CallStart{Key: k, Nonce: nonce, Attempt: 1,
		Effect: turnkeeper.EffectOnce}, time.Minute, run)
}

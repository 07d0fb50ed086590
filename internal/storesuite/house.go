package storesuite

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/scheduler"
)

// A house is a store with two agents: clerk, and desk with a lane for each
// conversation; and with two workers.
type house struct {
	Door
	*testing.T
}

func newHouse(t *testing.T, d Door) *house {
	h := &house{d, t}
	h.Register(registration("clerk", false))
	h.Register(registration("desk", true))
	return h
}

func registration(agent string, perConversation bool, schedules ...turnkeeper.Schedule) turnkeeper.AgentRegistration {
	source := "---\ndescription: d\n---\nYou are " + agent + ".\n"
	sum := sha256.Sum256([]byte(source))
	return turnkeeper.AgentRegistration{
		Name: agent, Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]),
		LanePerConversation: perConversation, Schedules: schedules,
	}
}

func (h *house) enqueue(agent, conversation, body string) turnkeeper.MessageID {
	h.Helper()
	id, err := h.Enqueue(h.Context(), turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		h.Fatal(err)
	}
	return id
}

const (
	first  turnkeeper.WorkerID = "worker-1"
	second turnkeeper.WorkerID = "worker-2"
)

func (h *house) beat(workers ...turnkeeper.WorkerID) {
	for _, id := range workers {
		h.Beat(turnkeeper.Heartbeat{WorkerID: id, Host: "h", Version: "v", Slots: 10, TakeoverAfter: takeover})
	}
}

// tick runs one tick of a scheduler that has just come up, with all workers
// alive.
func (h *house) tick() scheduler.Report {
	h.Helper()
	h.beat(first, second)
	return h.tickAlone()
}

func (h *house) tickAlone() scheduler.Report {
	h.Helper()
	report, err := scheduler.New(scheduler.Config{Store: h.Scheduler()}).Tick(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return report
}

// A dispatch is a granted turn as its worker has it.
type dispatch struct {
	agentturn.Journal
	h      *house
	record turnkeeper.Record
	grant  turnkeeper.Grant
}

// take takes what was granted, and loads it.
func (h *house) take(worker turnkeeper.WorkerID) []*dispatch {
	h.Helper()
	var all []*dispatch
	for _, job := range h.Fetch(worker) {
		all = append(all, h.load(job, worker))
	}
	return all
}

// load begins to work a job: it binds the grant, and loads the turn.
func (h *house) load(job Job, worker turnkeeper.WorkerID) *dispatch {
	h.Helper()
	if _, err := h.BindGrant(h.Context(), job.TurnID, job.GrantID, worker); err != nil {
		h.Fatal(err)
	}
	return h.read(job, worker)
}

// read is load for whoever has not bound the grant.
func (h *house) read(job Job, worker turnkeeper.WorkerID) *dispatch {
	h.Helper()
	record, err := h.Load(h.Context(), job.TurnID, job.GrantID)
	if err != nil {
		h.Fatal(err)
	}
	turn := record.Turn
	grant := turnkeeper.Grant{
		TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: job.GrantID, JobID: job.ID, WorkerID: worker,
	}
	return &dispatch{h.Journal(record, grant), h, record, grant}
}

// turn has the clerk's next turn granted to the first worker.
func (h *house) turn() *dispatch {
	h.Helper()
	h.enqueue("clerk", "", "do it")
	return h.next(first)
}

// next ticks, and takes the one grant there is then.
func (h *house) next(worker turnkeeper.WorkerID) *dispatch {
	h.Helper()
	h.tick()
	all := h.take(worker)
	if len(all) != 1 {
		h.Fatalf("%d turns were granted, want 1", len(all))
	}
	return all[0]
}

// again loses a dispatch to the second worker.
func (h *house) again(d *dispatch) *dispatch {
	h.Helper()
	h.Pass(LeaseTTL)
	after := h.next(second)
	if after.grant.TurnID != d.grant.TurnID {
		h.Fatalf("turn %d was granted, want the lost %d", after.grant.TurnID, d.grant.TurnID)
	}
	return after
}

func (d *dispatch) append(e turnkeeper.Entry) {
	d.h.Helper()
	if err := d.Append(d.h.Context(), e); err != nil {
		d.h.Fatal(err)
	}
}

// planned is a turn with one round of calls of these effects, and started those
// of them that are not of effect none.
func (h *house) planned(effects ...turnkeeper.Effect) *dispatch {
	h.Helper()
	d := h.turn()
	d.append(turnkeeper.Entry{Round: round(1, effects...), Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
	return d
}

func (d *dispatch) start(k turnkeeper.CallKey, nonce string, attempt int) error {
	call := d.call(k)
	return d.Append(d.h.Context(), turnkeeper.Entry{Starts: []turnkeeper.CallStart{
		{Key: k, Nonce: nonce, Attempt: attempt, Effect: call.Effect},
	}})
}

func (d *dispatch) mustStart(k turnkeeper.CallKey, nonce string, attempt int) {
	d.h.Helper()
	if err := d.start(k, nonce, attempt); err != nil {
		d.h.Fatal(err)
	}
}

func (d *dispatch) answer(k turnkeeper.CallKey, nonce string, state turnkeeper.CallState, shown string) error {
	return d.Append(d.h.Context(), turnkeeper.Entry{Results: []turnkeeper.CallResult{result(k, nonce, state, shown)}})
}

func (d *dispatch) call(k turnkeeper.CallKey) turnkeeper.ToolCall {
	d.h.Helper()
	_, rounds := d.h.Turn(d.grant.TurnID)
	for _, r := range rounds {
		for _, c := range r.Calls {
			if c.Key == k {
				return c
			}
		}
	}
	d.h.Fatalf("there is no call %s", k)
	return turnkeeper.ToolCall{}
}

func (d *dispatch) end(o turnkeeper.Outcome) error {
	return d.Append(d.h.Context(), turnkeeper.Entry{Outcome: &o})
}

func succeeded(reply string) turnkeeper.Outcome {
	return turnkeeper.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: reply}
}

func round(number int, effects ...turnkeeper.Effect) *turnkeeper.Round {
	r := &turnkeeper.Round{Number: number, Charged: true, Provider: "script", Model: "m", Attempts: 1, FinishReason: "tool_calls"}
	for i, effect := range effects {
		k := key(number, i+1)
		r.Calls = append(r.Calls, turnkeeper.ToolCall{
			Key: k, WireID: k.String(), Name: "tool", Arguments: "{}", ArgsHash: "hash", Effect: effect, State: turnkeeper.CallPlanned,
		})
	}
	return r
}

func key(round, ordinal int) turnkeeper.CallKey {
	return turnkeeper.CallKey{Round: round, Ordinal: ordinal}
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

func nonce() string { return rand.Text() }

func equal[T comparable](h *house, what string, got, want T) {
	h.Helper()
	if got != want {
		h.Errorf("%s: %v, want %v", what, got, want)
	}
}

func isIt(h *house, what string, err, want error) {
	h.Helper()
	if !is(err, want) {
		h.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func (d *dispatch) transact(k turnkeeper.CallKey, nonce string, run func(context.Context) turnkeeper.CallResult) (turnkeeper.CallResult, error) {
	return d.Transact(d.h.Context(), turnkeeper.CallStart{Key: k, Nonce: nonce, Attempt: 1, Effect: turnkeeper.EffectOnce}, time.Minute, run)
}

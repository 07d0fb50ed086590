package agentturn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/turnevents"
	askings "turnkeeper/asks"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

// A store is a memory.Store with one message to the agent "tester". It records what the
// turn writes, and lets a test override parts of the record other than the turn.
type store struct {
	mem  *memory.Store
	conn *memory.Conn

	// These apply at the first dispatch, which accepts the message.
	earlier int // number of earlier turns, of another agent
	body    string
	trigger turnkeeper.Trigger
	ahead   time.Duration // how far the store's clock is ahead of the worker's

	// These override the stored values, unless zero.
	faults  int
	history []turnlog.Past
	summary turnlog.Summary
	waited  time.Duration // time since the message was accepted
	lineage turnlog.Lineage
	purged  bool // replies of sub-agents have been removed

	mu        sync.Mutex // guards the fields below
	message   turnkeeper.MessageID
	workers   int
	entries   []turnlog.Entry // all entries written, those of transactions included
	writes    []string        // kinds of the entries
	within    []time.Duration // of transactions
	arrived   []turnkeeper.Output
	lateCalls []turnlog.CallResult
	effects   []string // effects of committed transactional tools
}

// turnID is the id of the turn, unless a test sets store.earlier.
const turnID = 7

func newStore() *store {
	s := &store{earlier: turnID - 1, body: "do it", trigger: turnkeeper.TriggerMessage}
	s.mem = memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(s.ahead) }})
	s.conn = s.mem.Connect(nil)
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// accept accepts the message.
func (s *store) accept() {
	ctx := context.Background()
	var agents []turnkeeper.AgentRegistration
	for _, name := range []string{"earlier", "tester", "scout", "critic"} {
		agents = append(agents, turnkeeper.AgentRegistration{Name: name, DefinitionHash: name})
	}
	agents[1].Schedules = []turnkeeper.Schedule{{Name: "daily", Conversation: turnkeeper.DefaultConversation,
		Message: s.body}}
	if err := s.conn.RegisterAgents(ctx, agents); err != nil {
		panic(err)
	}
	for range s.earlier {
		id := must(s.conn.Enqueue(ctx, turnkeeper.Submission{Agent: "earlier", Body: "before"}))
		if _, _, err := s.conn.CancelMessage(ctx, id); err != nil {
			panic(err)
		}
	}
	if s.trigger == turnkeeper.TriggerMessage {
		s.message = must(s.conn.Enqueue(ctx, turnkeeper.Submission{Agent: "tester", Body: s.body}))
		return
	}
	s.tick(func(t scheduler.Tick) error {
		due := granting.DueSchedule{Agent: "tester", Name: "daily", Conversation: turnkeeper.DefaultConversation,
			Message: s.body}
		return t.Fire(ctx, granting.SlotDecision{Schedule: due, Slot: time.Now()})
	})
	s.message = turnkeeper.MessageID(s.earlier + 1)
}

func (s *store) tick(f func(scheduler.Tick) error) {
	err := s.conn.InTick(context.Background(), func(t scheduler.Tick) error {
		if _, _, err := t.Snapshot(context.Background(), true); err != nil {
			return err
		}
		return f(t)
	})
	if err != nil {
		panic(err)
	}
}

// dispatch grants the turn to a new worker. A worker that has it counts as lost.
func (s *store) dispatch() (*turnlog.Record, *journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.message == 0 {
		s.accept()
	}
	return s.load(s.grant(s.message))
}

// grant grants the turn of a message to a new worker.
func (s *store) grant(id turnkeeper.MessageID) turnkeeper.Grant {
	ctx := context.Background()
	m, _ := s.mem.Message(id)
	turn, _, _, _ := s.mem.Turn(m.TurnID)
	ready := granting.Candidate{
		TurnID: turn.ID, MessageID: id, Agent: m.Agent, Conversation: m.Conversation, Lane: m.Lane, Trigger: m.Trigger,
		Attempt: m.Attempts, DefinitionHash: m.Agent,
	}
	if m.State == turnkeeper.MessageWaiting {
		ready.New, ready.TurnID, ready.Attempt = true, 0, m.Attempts+1
	}
	s.tick(func(t scheduler.Tick) error {
		if turn.State == turnkeeper.TurnRunning {
			lost := granting.LostGrant{Lane: turn.Lane, TurnID: turn.ID, GrantID: turn.GrantID, JobID: turn.JobID,
				MessageID: id, WorkerID: turn.WorkerID}
			if err := t.Requeue(ctx, lost); err != nil {
				return err
			}
		}
		return t.Dispatch(ctx, []granting.Candidate{ready})
	})
	m, _ = s.mem.Message(id)
	turn, _, _, _ = s.mem.Turn(m.TurnID)
	s.workers++
	worker := turnkeeper.WorkerID(fmt.Sprint("worker-", s.workers))
	must(s.conn.BindGrant(ctx, turn.ID, turn.GrantID, worker))
	return turnkeeper.Grant{TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: turn.GrantID,
		JobID: turn.JobID, WorkerID: worker}
}

// load reads the turn for the holder of a grant.
func (s *store) load(g turnkeeper.Grant) (*turnlog.Record, *journal) {
	record := must(s.conn.Load(context.Background(), g.TurnID, g.GrantID))
	return s.changed(record), &journal{Journal: s.conn.Journal(record, g), s: s, grant: g}
}

// record returns the turn's record, without the check of a grant.
func (s *store) record() *turnlog.Record {
	s.mu.Lock()
	message, _ := s.mem.Message(s.message)
	s.mu.Unlock()
	turn, rounds, _, _ := s.mem.Turn(message.TurnID)
	return s.changed(&turnlog.Record{Turn: turn, Message: message, Rounds: rounds})
}

func (s *store) changed(r *turnlog.Record) *turnlog.Record {
	if s.faults != 0 {
		r.Message.Faults = s.faults
	}
	if s.waited != 0 {
		r.Waited = s.waited
	}
	if r.Summary.Text == "" {
		r.Summary = s.summary
	}
	r.History, r.Lineage = s.history, s.lineage
	return r
}

func (s *store) turn() turnkeeper.Turn      { return s.record().Turn }
func (s *store) rounds() []turnkeeper.Round { return s.record().Rounds }
func (s *store) events() []turnkeeper.Event {
	_, _, events, _ := s.mem.Turn(s.turn().ID)
	return events
}
func (s *store) calls() []turnkeeper.ToolCall { return callsOf(s.rounds()) }

func callsOf(rounds []turnkeeper.Round) (calls []turnkeeper.ToolCall) {
	for _, round := range rounds {
		calls = append(calls, round.Calls...)
	}
	return calls
}

func (s *store) call(key turnkeeper.CallKey) turnkeeper.ToolCall {
	return s.rounds()[key.Round-1].Calls[key.Ordinal-1]
}

// outputs returns the outputs stored with results, in order.
func (s *store) outputs() (all []turnkeeper.Output) {
	for _, e := range s.entries {
		for _, r := range e.Results {
			if r.Output != nil {
				all = append(all, *r.Output)
			}
			all = append(all, r.Attached...)
		}
	}
	all = append(all, s.arrived...)
	for i, o := range all {
		all[i].Retrieved = must(s.conn.DescribeOutput(context.Background(), s.turn().ID, o.ID)).Retrieved
	}
	return all
}

func (s *store) outcomes() (all []turnlog.Outcome) {
	for _, e := range s.entries {
		if e.Outcome != nil {
			all = append(all, *e.Outcome)
		}
	}
	return all
}

func (s *store) failed() (all []turnlog.FailedAttempt) {
	for _, e := range s.entries {
		all = append(all, e.Failed...)
	}
	return all
}

func (s *store) spawned() (all []turnlog.Spawn) {
	for _, e := range s.entries {
		for _, start := range e.Starts {
			if start.Spawn != nil {
				all = append(all, *start.Spawn)
			}
		}
	}
	return all
}

// arrive ends a detached call as another worker that ran it would.
func (s *store) arrive(key turnkeeper.CallKey, state turnkeeper.CallState, text string) {
	s.deliver(s.claim(key), state, text)
}

// claim claims a detached call as another worker.
func (s *store) claim(key turnkeeper.CallKey) turnlog.ClaimedCall {
	ref := turnlog.CallRef{TurnID: s.turn().ID, Key: key, Attempt: 1}
	return must(s.conn.Claim(context.Background(), ref, "another", []string{s.call(key).Name}))
}

// deliver ends a claimed call.
func (s *store) deliver(claimed turnlog.ClaimedCall, state turnkeeper.CallState, text string) {
	ctx, call, key := context.Background(), claimed.Call, claimed.Call.Key
	out := turnkeeper.Output{ID: call.OutputID, TurnID: s.turn().ID, Call: key, Text: text, Chars: int64(len(text))}
	if err := s.conn.Arrive(ctx, claimed, turnlog.CallResult{Key: key, State: state, Preview: text,
		Output: &out}); err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = append(s.arrived, out)
}

// child returns the message to the sub-agent of a call. ok is false if there is none.
func (s *store) child(key turnkeeper.CallKey) (child turnkeeper.Message, ok bool) {
	conversation := turnlog.SpawnConversation(s.turn().ID, key)
	for _, m := range s.mem.Messages() {
		if m.Conversation == conversation {
			child, ok = m, true
		}
	}
	return child, ok
}

// reply ends the turn of a call's sub-agent.
func (s *store) reply(key turnkeeper.CallKey, end turnlog.Outcome) {
	child, _ := s.child(key)
	s.mu.Lock()
	g := s.grant(child.ID)
	s.mu.Unlock()
	record := must(s.conn.Load(context.Background(), g.TurnID, g.GrantID))
	if err := s.conn.Journal(record, g).Append(context.Background(), turnlog.Entry{Outcome: &end}); err != nil {
		panic(err)
	}
}

// overdue ends the wait for a call's sub-agent while the sub-agent runs.
func (s *store) overdue(key turnkeeper.CallKey) {
	child, _ := s.child(key)
	s.grant(child.ID)
	time.Sleep(bounds.Default().SubAgentTimeout)
	s.tick(func(t scheduler.Tick) error {
		_, err := t.SettleSpawned(context.Background(), true, 10)
		return err
	})
}

// violations returns the rules that the turn's journal breaks.
func (s *store) violations() (all []string) {
	for _, v := range s.mem.Check(24 * time.Hour) {
		all = append(all, v.String())
	}
	for _, e := range s.entries {
		all = append(all, misplanned(e.Round)...)
	}
	record, open, blocks, terminal := s.record(), 0, map[int]bool{}, false
	for _, e := range s.events() {
		switch terminal = e.Type.Terminal(); e.Type {
		case turnkeeper.EventRoundStart:
			open = e.Round
		case turnkeeper.EventRoundRollback:
			open = 0
		case turnkeeper.EventBlockStart, turnkeeper.EventToolResult:
			if blocks[e.Block] && e.Block != 0 {
				all = append(all, fmt.Sprintf("block %d is used twice", e.Block))
			}
			blocks[e.Block] = true
		default:
		}
	}
	reply, _ := s.mem.ReplyTo(s.message)
	all = append(all, misplacedEvents(record.Turn, record.Rounds, s.asked(), s.events(), reply.Body)...)
	all = append(all, s.misaskedEvents(s.asked())...)
	if !record.Turn.State.Terminal() {
		return all
	}
	if open > len(record.Rounds) || !terminal {
		all = append(all, fmt.Sprintf("the turn ends with open round %d, with a terminal event: %v", open, terminal))
	}
	used := turnkeeper.Usage{}
	for _, failed := range s.failed() {
		used = used.Add(failed.Usage)
	}
	for _, round := range record.Rounds {
		used = used.Add(round.Usage)
	}
	for _, call := range callsOf(record.Rounds) {
		used = used.Add(call.Usage)
		if call.Shown == "" && call.State != turnkeeper.CallSucceeded {
			all = append(all, fmt.Sprintf("%s is left %s, without a result", call.Key, call.State))
		}
	}
	if used != record.Turn.Usage {
		all = append(all, fmt.Sprintf("the turn took %+v, its parts %+v", record.Turn.Usage, used))
	}
	return all
}

// misaskedEvents returns the asks whose opening or answer the events do not show exactly once.
func (s *store) misaskedEvents(all []askings.Ask) (faults []string) {
	opened, closed, unseen := map[string]int{}, map[string]int{}, map[string]int{}
	for _, a := range all {
		name := turnevents.NameOfAsk(a)
		opened[name]++
		switch {
		case a.Seen:
			closed[name]++
		case a.Closed(): // by the turn itself, or since it last ran
			unseen[name]++
		}
	}
	for _, e := range s.events() {
		var data turnevents.AskData
		if json.Unmarshal(e.Data, &data) != nil {
			continue
		}
		switch e.Type {
		case turnkeeper.EventAskOpened:
			opened[data.Ask]--
		case turnkeeper.EventAskClosed:
			closed[data.Ask]--
		default:
		}
	}
	for name := range opened {
		if opened[name] != 0 || closed[name] > 0 || closed[name] < -unseen[name] {
			faults = append(faults, fmt.Sprintf("%s: %d openings and %d answers have no event, or too many", name,
				opened[name], closed[name]))
		}
	}
	return faults
}

// misplanned returns the faults in the calls of a new round.
func misplanned(r *turnkeeper.Round) (all []string) {
	if r == nil {
		return nil
	}
	for i, call := range r.Calls {
		denied := call.State == turnkeeper.CallDenied || call.State == turnkeeper.CallSkipped
		if (call.Key != turnkeeper.CallKey{Round: r.Number, Ordinal: i + 1}) || !denied &&
			call.State != turnkeeper.CallPlanned || denied != (call.Shown != "") {
			all = append(all, fmt.Sprintf("call %d of round %d is %s, in state %s with result %q", i+1, r.Number,
				call.Key, call.State, call.Shown))
		}
	}
	return all
}

// A journal is the journal of one grant, and records what is written.
type journal struct {
	*memory.Journal
	s     *store
	grant turnkeeper.Grant
	// before may refuse an entry of a write; nil: none is refused.
	before func(turnlog.Entry) error
}

var _ agentturn.Journal = (*journal)(nil)

func (j *journal) Append(ctx context.Context, e turnlog.Entry) error {
	var kinds []string
	for _, part := range e.Sequence() {
		if j.before != nil {
			if err := j.before(part); err != nil {
				return err
			}
		}
		kinds = append(kinds, kindsOf(part))
	}
	err := j.Journal.Append(ctx, e)
	if err == nil {
		j.s.wrote(strings.Join(kinds, ", "), e.Sequence()...)
	}
	return err
}

func (j *journal) Transact(ctx context.Context, start turnlog.CallStart, within time.Duration,
	run func(context.Context) turnlog.CallResult) (turnlog.CallResult, error) {
	j.s.within = append(j.s.within, within)
	result, err := j.Journal.Transact(ctx, start, within, run)
	if err == nil {
		j.s.wrote("transaction", turnlog.Entry{Starts: []turnlog.CallStart{start},
			Results: []turnlog.CallResult{result}})
	}
	return result, err
}

func (s *store) wrote(kind string, entries ...turnlog.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.writes = append(s.entries, entries...), append(s.writes, kind)
}

func kindsOf(e turnlog.Entry) string {
	kinds := ""
	for _, part := range []struct {
		there bool
		kind  string
	}{
		{len(e.Verdicts) > 0, "verdict"}, {e.Round != nil, "answer"}, {len(e.Starts) > 0, "start"},
		{len(e.Results) > 0, "results"}, {e.Outcome != nil, "outcome"},
	} {
		if part.there && kinds != "" {
			kinds += "+"
		}
		if part.there {
			kinds += part.kind
		}
	}
	if kinds == "" {
		return "events"
	}
	return kinds
}

func (j *journal) Arrivals(ctx context.Context) ([]turnlog.CallResult, error) {
	results, err := j.Journal.Arrivals(ctx)
	for _, r := range results {
		if j.s.purged && r.Spawned != nil {
			r.Spawned.Reply, r.Spawned.Replied = "", false
		}
	}
	return results, err
}

func (j *journal) Late(ctx context.Context, result turnlog.CallResult) error {
	j.s.mu.Lock()
	j.s.lateCalls = append(j.s.lateCalls, result)
	j.s.mu.Unlock()
	return j.Journal.Late(ctx, result)
}

// notes records the effect of a transactional tool if the transaction commits.
func (s *store) notes(ctx context.Context, effect string) error {
	if !memory.OnCommit(ctx, func() { s.effects = append(s.effects, effect) }) {
		return errors.New("there is no transaction")
	}
	return nil
}

package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
)

// A store holds a turn in memory. It enforces the rules of the journal: the fence, unique
// starts, nonces, one outcome. Anything that a database would refuse as impossible becomes a
// violation, which fails the test.
type store struct {
	mu         sync.Mutex
	turn       turnkeeper.Turn
	message    turnkeeper.Message
	history    []turnkeeper.Past
	summary    turnkeeper.Summary
	older      int
	waited     time.Duration // since the message was accepted
	rounds     []turnkeeper.Round
	outputs    []turnkeeper.Output
	events     []turnkeeper.Event
	nonces     map[string]turnkeeper.CallKey
	arrived    map[turnkeeper.CallKey]turnkeeper.CallResult // of detached calls, not in the journal yet
	lineage    turnkeeper.Lineage
	messages   turnkeeper.MessageID // newest id for a sub-agent
	spawned    []turnkeeper.Spawn
	effects    []string // of transactional tools, committed
	entries    []turnkeeper.Entry
	writes     []string // kinds of writes, including transactions
	outcomes   []turnkeeper.Outcome
	failed     []turnkeeper.FailedAttempt
	lateCalls  []turnkeeper.CallResult
	violations []string
	grant      int
	openRound  int // has a round_start, and neither an answer nor a rollback
}

func newStore() *store {
	return &store{
		turn: turnkeeper.Turn{
			ID: 7, MessageID: 3, Attempt: 1, Agent: "tester", Conversation: "main", Lane: "tester",
			Trigger: turnkeeper.TriggerMessage, State: turnkeeper.TurnQueued, CreatedAt: time.UnixMicro(1_700_000_000_000_000),
		},
		message: turnkeeper.Message{ID: 3, Agent: "tester", Body: "do it"},
		nonces:  map[string]turnkeeper.CallKey{},
		arrived: map[turnkeeper.CallKey]turnkeeper.CallResult{},
	}
}

// dispatch grants the turn to a new worker, which fences all earlier ones.
func (s *store) dispatch() (turnkeeper.Record, *memJournal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant++
	s.turn.State = turnkeeper.TurnRunning
	s.turn.Dispatches++
	return s.record(), &memJournal{s: s, grant: s.grant}
}

// reload loads the record again under the same grant.
func (s *store) reload() turnkeeper.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record()
}

func (s *store) record() turnkeeper.Record {
	next := 1
	for _, e := range s.events {
		next = max(next, e.Block+1)
	}
	s.turn.LastSeq = int64(len(s.events))
	return turnkeeper.Record{
		Turn: s.turn, Message: s.message, Rounds: cloneRounds(s.rounds), History: s.history, Summary: s.summary, Older: s.older, Waited: s.waited,
		Lineage: s.lineage, NextBlock: next, OpenRound: s.openRound, Remaining: 240 * time.Second, Entries: int64(len(s.entries)),
	}
}

func cloneRounds(rounds []turnkeeper.Round) []turnkeeper.Round {
	rounds = slices.Clone(rounds)
	for i := range rounds {
		rounds[i].Calls = slices.Clone(rounds[i].Calls)
	}
	return rounds
}

func (s *store) calls() []turnkeeper.ToolCall {
	var calls []turnkeeper.ToolCall
	for _, round := range s.rounds {
		calls = append(calls, round.Calls...)
	}
	return calls
}

func (s *store) violated(format string, args ...any) error {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
	return errors.New(s.violations[len(s.violations)-1])
}

// A memJournal is the Journal of one grant.
type memJournal struct {
	s     *store
	grant int
	// before, if not nil, can refuse an entry.
	before func(turnkeeper.Entry) error
}

var _ agentturn.Journal = (*memJournal)(nil)

func (j *memJournal) fence() error {
	if j.grant != j.s.grant || j.s.turn.State != turnkeeper.TurnRunning {
		return turnkeeper.ErrFenced
	}
	return nil
}

func (j *memJournal) Append(ctx context.Context, e turnkeeper.Entry) error {
	if ctx.Err() != nil && e.Outcome == nil {
		return context.Cause(ctx)
	}
	if j.before != nil {
		if err := j.before(e); err != nil {
			return err
		}
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if err := j.fence(); err != nil {
		return err
	}
	return j.s.atomically(func() error { return j.s.apply(e) })
}

// atomically rolls back the changes of f if it fails.
func (s *store) atomically(f func() error) error {
	rounds, events, nonces := cloneRounds(s.rounds), slices.Clone(s.events), maps.Clone(s.nonces)
	turn, open, entries, writes := s.turn, s.openRound, len(s.entries), len(s.writes)
	outputs, outcomes, spawned, failed := len(s.outputs), len(s.outcomes), len(s.spawned), len(s.failed)
	err := f()
	if err != nil {
		s.rounds, s.events, s.nonces, s.turn, s.openRound = rounds, events, nonces, turn, open
		s.entries, s.writes = s.entries[:entries], s.writes[:writes]
		s.outputs, s.outcomes, s.spawned = s.outputs[:outputs], s.outcomes[:outcomes], s.spawned[:spawned]
		s.failed = s.failed[:failed]
	}
	return err
}

func (s *store) apply(e turnkeeper.Entry) error {
	s.entries = append(s.entries, e)
	s.writes = append(s.writes, kindsOf(e))
	for _, verdict := range e.Verdicts {
		call := s.call(verdict.Key)
		if call == nil || call.State != turnkeeper.CallStarted && call.State != turnkeeper.CallRunning {
			return turnkeeper.ErrJournalMoved
		}
		if verdict.State != turnkeeper.CallUnknown {
			return s.violated("verdict %s on %s", verdict.State, verdict.Key)
		}
		call.State, call.Shown, call.Preview = verdict.State, verdict.Shown, verdict.Preview
	}
	if e.Round != nil {
		if err := s.addRound(*e.Round); err != nil {
			return err
		}
	}
	for _, failed := range e.Failed {
		s.failed, s.turn.Usage = append(s.failed, failed), s.turn.Usage.Add(failed.Usage)
	}
	for _, start := range e.Starts {
		if err := s.start(start); err != nil {
			return err
		}
	}
	for _, result := range e.Results {
		if err := s.answer(result); err != nil {
			return err
		}
	}
	for _, event := range e.Events {
		if err := s.addEvent(event); err != nil {
			return err
		}
	}
	if e.Outcome != nil {
		return s.close(*e.Outcome)
	}
	return nil
}

func kindsOf(e turnkeeper.Entry) string {
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

func (s *store) call(key turnkeeper.CallKey) *turnkeeper.ToolCall {
	for i := range s.rounds {
		for j := range s.rounds[i].Calls {
			if s.rounds[i].Calls[j].Key == key {
				return &s.rounds[i].Calls[j]
			}
		}
	}
	return nil
}

func (s *store) addRound(round turnkeeper.Round) error {
	if round.Number != len(s.rounds)+1 {
		return s.violated("round %d follows %d", round.Number, len(s.rounds))
	}
	ids := map[string]bool{}
	for _, call := range s.calls() {
		ids[call.WireID] = true
	}
	for i, call := range round.Calls {
		switch {
		case call.Key != turnkeeper.CallKey{Round: round.Number, Ordinal: i + 1}:
			return s.violated("call %d of round %d has key %s", i+1, round.Number, call.Key)
		case call.WireID == "" || ids[call.WireID]:
			return s.violated("call %s has wire id %q again", call.Key, call.WireID)
		case call.State == turnkeeper.CallPlanned && call.Shown == "":
		case (call.State == turnkeeper.CallDenied || call.State == turnkeeper.CallSkipped) && call.Shown != "":
		default:
			return s.violated("call %s is planned in state %s with result %q", call.Key, call.State, call.Shown)
		}
		ids[call.WireID] = true
	}
	round.Calls = slices.Clone(round.Calls)
	s.rounds = append(s.rounds, round)
	if s.openRound == round.Number {
		s.openRound = 0
	}
	return nil
}

func (s *store) start(start turnkeeper.CallStart) error {
	call := s.call(start.Key)
	if call == nil {
		return s.violated("start of %s, which is not planned", start.Key)
	}
	if _, used := s.nonces[start.Nonce]; used || start.Nonce == "" {
		return s.violated("nonce %q of %s is not fresh", start.Nonce, start.Key)
	}
	if call.State.Answered() ||
		start.Attempt != call.Starts+1 || start.Effect != call.Effect ||
		!start.Effect.Repeatable() && start.Attempt != 1 {
		return fmt.Errorf("%w: start of %s", turnkeeper.ErrJournalMoved, start.Key)
	}
	s.nonces[start.Nonce] = start.Key
	call.State, call.Nonce, call.Starts = turnkeeper.CallStarted, start.Nonce, start.Attempt
	call.Elsewhere = start.Detached > 0 || start.Spawn != nil
	if start.Spawn != nil {
		s.spawned = append(s.spawned, *start.Spawn)
	}
	return nil
}

func (s *store) answer(result turnkeeper.CallResult) error {
	call := s.call(result.Key)
	if call == nil || call.State.Answered() || call.Nonce != result.Nonce {
		return fmt.Errorf("%w: result of %s", turnkeeper.ErrJournalMoved, result.Key)
	}
	if err := call.State.MoveTo(result.State); err != nil {
		return s.violated("%s: %s", result.Key, err)
	}
	call.State, call.Shown, call.Preview = result.State, result.Shown, result.Preview
	if result.OutputID != "" {
		call.OutputID = result.OutputID
	}
	if result.State == turnkeeper.CallRunning {
		return nil
	}
	if !result.State.Answered() {
		return s.violated("%s is answered with state %s", result.Key, result.State)
	}
	call.Duration, call.EndedAt = result.Duration, time.Now()
	call.Usage, s.turn.Usage = result.Usage, s.turn.Usage.Add(result.Usage)
	delete(s.arrived, call.Key)
	if result.Output != nil {
		call.OutputID = result.Output.ID
		s.outputs = append(s.outputs, *result.Output)
	}
	s.outputs = append(s.outputs, result.Attached...)
	return nil
}

func (s *store) addEvent(event turnkeeper.Event) error {
	if n := len(s.events); n > 0 && s.events[n-1].Type.Terminal() {
		return s.violated("event %s after the terminal one", event.Type)
	}
	for _, e := range s.events {
		taken := event.Type == turnkeeper.EventBlockStart || event.Type == turnkeeper.EventToolResult
		if taken && e.Block == event.Block && event.Block != 0 {
			return s.violated("block %d is used twice", event.Block)
		}
	}
	event.Seq = int64(len(s.events) + 1)
	s.events = append(s.events, event)
	switch event.Type {
	case turnkeeper.EventRoundStart:
		if event.Round > len(s.rounds) {
			s.openRound = event.Round
		}
	case turnkeeper.EventRoundRollback:
		s.openRound = 0
	}
	return nil
}

func (s *store) close(o turnkeeper.Outcome) error {
	if o.State == turnkeeper.TurnWaiting && len(s.arrived) > 0 {
		o.State = turnkeeper.TurnQueued
	}
	if err := s.turn.State.MoveTo(o.State); err != nil {
		return s.violated("%s", err)
	}
	if s.openRound != 0 {
		return s.violated("the turn ends with open round %d", s.openRound)
	}
	if o.State.Terminal() {
		for _, call := range s.calls() {
			if !call.State.Answered() || call.Shown == "" && call.State != turnkeeper.CallSucceeded {
				return s.violated("%s is left %s, with result %q", call.Key, call.State, call.Shown)
			}
		}
		if n := len(s.events); n == 0 || !s.events[n-1].Type.Terminal() {
			return s.violated("the turn ends without a terminal event")
		}
	}
	s.turn.State = o.State
	s.outcomes = append(s.outcomes, o)
	return nil
}

type txKey struct{}

// A tx collects the writes of a transactional tool.
type tx struct{ effects []string }

func (j *memJournal) Transact(ctx context.Context, start turnkeeper.CallStart, _ time.Duration, run func(context.Context) turnkeeper.CallResult) (result turnkeeper.CallResult, err error) {
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	j.s.mu.Lock()
	err = j.fence()
	j.s.mu.Unlock()
	if err != nil {
		return result, err
	}
	own := &tx{}
	result = run(context.WithValue(ctx, txKey{}, own))
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if err := j.fence(); err != nil {
		return result, err
	}
	return result, j.s.atomically(func() error {
		if err := j.s.start(start); err != nil {
			return err
		}
		if err := j.s.answer(result); err != nil {
			return err
		}
		if result.State != turnkeeper.CallFailed {
			j.s.effects = append(j.s.effects, own.effects...)
		}
		j.s.writes = append(j.s.writes, "transaction")
		return nil
	})
}

// arrive delivers the result of a detached call.
func (s *store) arrive(key turnkeeper.CallKey, state turnkeeper.CallState, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.call(key)
	s.outputs = append(s.outputs, turnkeeper.Output{ID: call.OutputID, TurnID: s.turn.ID, Call: key, Text: text, Chars: int64(len(text))})
	s.arrived[key] = turnkeeper.CallResult{Key: key, Nonce: call.Nonce, State: state, Preview: text, OutputID: call.OutputID}
	if s.turn.State == turnkeeper.TurnWaiting {
		s.turn.State = turnkeeper.TurnQueued
	}
}

// reply delivers the end of a call's sub-agent.
func (s *store) reply(key turnkeeper.CallKey, end turnkeeper.SpawnEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived[key] = turnkeeper.CallResult{
		Key: key, Nonce: s.call(key).Nonce, State: end.State(), Preview: "the agent " + end.Agent, Spawned: &end, Duration: time.Second,
	}
	if s.turn.State == turnkeeper.TurnWaiting {
		s.turn.State = turnkeeper.TurnQueued
	}
}

func (j *memJournal) NewMessage(context.Context) (turnkeeper.MessageID, error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.s.messages++
	return 100 + j.s.messages, nil
}

func (j *memJournal) Arrivals(context.Context) ([]turnkeeper.CallResult, error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return slices.Collect(maps.Values(j.s.arrived)), nil
}

func (j *memJournal) Late(_ context.Context, result turnkeeper.CallResult) error {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.s.lateCalls = append(j.s.lateCalls, result)
	call := j.s.call(result.Key)
	switch {
	case call == nil:
	case call.State == turnkeeper.CallRunning && call.Nonce == result.Nonce && !j.s.turn.State.Terminal():
		call.State, call.Preview = result.State, result.Preview
	case call.State == turnkeeper.CallStarted && call.Nonce == result.Nonce && !j.s.turn.State.Terminal():
		call.State, call.Shown, call.Preview = result.State, result.Shown, result.Preview
	case j.s.nonces[result.Nonce] == result.Key && call.LateResult == "":
		call.LateResult = result.Shown
	}
	return nil
}

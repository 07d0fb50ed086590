package memory

import (
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
)

// A state is the content of the tables.
type state struct {
	agents      map[string]*turnkeeper.AgentRegistration
	definitions map[string][]byte
	parts       map[string]string                                // of requests, by hash
	summaries   map[turnkeeper.ConversationKey][]turnlog.Summary // in order
	schedules   map[scheduleKey]*turnkeeper.Schedule

	messages []*turnkeeper.Message // by id, from 1; nil: an id that was never used
	keys     map[messageKey]turnkeeper.MessageID
	slots    map[slotKey]turnkeeper.MessageID
	replies  []turnkeeper.Reply
	spawned  []*spawnRow
	labels   labelRows

	turns   []*turnRow // by id, from 1
	leases  map[turnkeeper.Lane]*leaseRow
	grants  []*grantRow   // the grant log
	granted int           // grants so far, with those that have expired: the token of the newest
	jobs    []*jobRow     // by id, from 1
	calls   []*callJobRow // jobs of detached calls, by id, from 1
	workers map[turnkeeper.WorkerID]*presence.Heartbeat
	present map[turnkeeper.WorkerID]*Conn // worker processes that are connected
	writes  []writeRow
	drafts  map[turnkeeper.OutputID]*draft

	models models
	levels levels

	extractions map[turnlog.ExtractionKey][]byte
	ends        wantedEnds
	aside       asideRows
	moved       []string // state changes that a table would refuse, for Check
	overtaken   []string // grants of messages that were not the first of their lane, for Check

	// Indexes.
	waiting    map[turnkeeper.Lane][]*turnkeeper.Message
	queueRanks map[turnkeeper.MessageID]time.Time // of messages that wait again after a failure
	open       map[turnkeeper.Lane]*turnRow
	held       map[turnkeeper.Lane]*leaseRow

	timeline, seenTimeline string
	silenceFrom            time.Time // the silence of workers counts from here
	lastTickAt, holdUntil  time.Time
	holdReason             string
}

type (
	scheduleKey struct{ agent, name string }
	messageKey  struct{ agent, user, key string }
	slotKey     struct {
		agent, schedule string
		slot            int64
	}
)

// A turnRow is a turn with its journal.
type turnRow struct {
	turnkeeper.Turn
	writes   []string // their ids; empty: a write of nobody who reads it back
	rounds   []turnkeeper.Round
	starts   []startRow
	events   []turnkeeper.Event
	verdicts []turnkeeper.CallKey // calls with the verdict unknown
	outputs  []turnkeeper.Output
	awaited  []awaitedRow
	asks     []asks.Ask
	gates    []turnkeeper.CallKey // calls that may start only with an approval
	home     turnkeeper.Lane      // while the turn is parked: the lane that it goes back to
	holds    bool                 // likewise: later messages of its conversation wait
	waitsFor []string             // models that a waiting turn waits for, until DueAt at most
	held     *tx                  // holds the row's lock; nil: it is free
}

// entries returns the number of writes.
func (t *turnRow) entries() int64 { return int64(len(t.writes)) }

type startRow struct {
	key   turnkeeper.CallKey
	nonce string
	ask   asks.ID // that it used up; 0: none
	hash  string  // of the arguments, if they needed an approval
}

type leaseRow struct {
	granting.Lease
	jobID    turnkeeper.JobID
	waitsFor []string // models whose failure pauses the lane
}

type grantRow struct {
	turnkeeper.Dispatch
	began, ended int64 // numbers of commits; ended 0: it is open
}

// A writeRow is one write to a journal, for Check.
type writeRow struct {
	turn   turnkeeper.TurnID
	grant  turnkeeper.GrantID
	commit int64
}

type jobRow struct {
	Job
	state       string // available, running, completed or cancelled
	attemptedBy turnkeeper.WorkerID
}

func newState() state {
	agents := map[string]*turnkeeper.AgentRegistration{}
	return state{
		agents: agents, levels: newLevels(agents), models: newModels(), definitions: map[string][]byte{},
		parts: map[string]string{}, summaries: map[turnkeeper.ConversationKey][]turnlog.Summary{},
		schedules: map[scheduleKey]*turnkeeper.Schedule{},
		keys:      map[messageKey]turnkeeper.MessageID{}, slots: map[slotKey]turnkeeper.MessageID{},
		leases: map[turnkeeper.Lane]*leaseRow{}, workers: map[turnkeeper.WorkerID]*presence.Heartbeat{},
		present: map[turnkeeper.WorkerID]*Conn{},
		waiting: map[turnkeeper.Lane][]*turnkeeper.Message{}, queueRanks: map[turnkeeper.MessageID]time.Time{},
		open: map[turnkeeper.Lane]*turnRow{}, held: map[turnkeeper.Lane]*leaseRow{},
		drafts: map[turnkeeper.OutputID]*draft{}, extractions: map[turnlog.ExtractionKey][]byte{},
		ends:     map[turnkeeper.TurnID]turnlog.WantedEnd{},
		aside:    map[granting.Subject]asideRow{},
		timeline: "00000001",
	}
}

func (s *state) turn(id turnkeeper.TurnID) *turnRow {
	if id < 1 || int(id) > len(s.turns) {
		return nil
	}
	return s.turns[id-1]
}

func (s *state) message(id turnkeeper.MessageID) *turnkeeper.Message {
	if id < 1 || int(id) > len(s.messages) {
		return nil
	}
	return s.messages[id-1]
}

func (s *state) job(id turnkeeper.JobID) *jobRow {
	if id < 1 || int(id) > len(s.jobs) {
		return nil
	}
	return s.jobs[id-1]
}

func (s *state) grant(id turnkeeper.GrantID) *grantRow {
	for i := len(s.grants) - 1; i >= 0; i-- { // it is one of the newest
		if s.grants[i].GrantID == id {
			return s.grants[i]
		}
	}
	return nil
}

// draft returns a copy of a turn that can be written to and thrown away.
func (t *turnRow) draft() *turnRow {
	d := *t
	d.rounds = cloneRounds(t.rounds)
	d.outputs = slices.Clone(t.outputs)
	d.starts, d.events, d.writes = slices.Clip(t.starts), slices.Clip(t.events), slices.Clip(t.writes)
	d.verdicts, d.awaited = slices.Clip(t.verdicts), slices.Clone(t.awaited)
	d.asks, d.gates = slices.Clone(t.asks), slices.Clip(t.gates)
	return &d
}

func cloneRounds(rounds []turnkeeper.Round) []turnkeeper.Round {
	rounds = slices.Clone(rounds)
	for i := range rounds {
		rounds[i].Calls = slices.Clone(rounds[i].Calls)
	}
	return rounds
}

func (t *turnRow) call(key turnkeeper.CallKey) *turnkeeper.ToolCall {
	if key.Round < 1 || key.Round > len(t.rounds) {
		return nil
	}
	calls := t.rounds[key.Round-1].Calls
	if key.Ordinal < 1 || key.Ordinal > len(calls) {
		return nil
	}
	return &calls[key.Ordinal-1]
}

// setTurn replaces a turn with its written draft.
func (s *state) setTurn(d *turnRow) {
	if was := s.turns[d.ID-1]; was != nil && was.Lane != d.Lane { // it was parked, or goes back
		if open := s.open[was.Lane]; open != nil && open.ID == d.ID {
			delete(s.open, was.Lane)
		}
	}
	s.turns[d.ID-1] = d
	s.dropSpawned(d)
	if d.State.Terminal() {
		if open := s.open[d.Lane]; open != nil && open.ID == d.ID {
			delete(s.open, d.Lane)
		}
		return
	}
	s.open[d.Lane] = d
}

func (s *state) setWaiting(m *turnkeeper.Message) {
	s.waiting[m.Lane] = append(s.waiting[m.Lane], m)
}

func (s *state) unsetWaiting(m *turnkeeper.Message) {
	left := slices.DeleteFunc(s.waiting[m.Lane], func(w *turnkeeper.Message) bool { return w == m })
	if len(left) == 0 {
		delete(s.waiting, m.Lane)
		return
	}
	s.waiting[m.Lane] = left
}

func lanesOf[T any](m map[turnkeeper.Lane]T) []turnkeeper.Lane {
	return slices.Sorted(maps.Keys(m))
}

package turnlog

import (
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/survival"
	"turnkeeper/policy"
)

// An Entry is one write to the journal of a turn. It is written whole or not at
// all, and only while the writer holds the turn's grant. The store applies the
// fields in their order.
type Entry struct {
	// Earlier are entries of the same write, oldest first, that come before this one: an entry has at most one Round.
	// They have neither Earlier entries nor an Outcome.
	Earlier []Entry

	// Verdicts are started calls of a lost worker with an unknown outcome. They
	// go to CallUnknown. If one of them is no longer started, the whole entry
	// fails with ErrJournalMoved.
	Verdicts []CallResult

	// Round is an answer of the model with its calls, each in state CallPlanned
	// or already answered (denied, skipped). nil: none.
	Round *turnkeeper.Round

	// Parts are the request parts that the recipe of Round names. Parts that are
	// already stored do not change.
	Parts []RequestPart

	// Summary summarises the beginning of the conversation. nil: none. It needs a
	// Round.
	Summary *Summary

	// Labels are those of the turn from its beginning, in the first entry of a dispatch.
	Labels []policy.Mark

	// Gates are planned calls that may start only with an approval.
	Gates []turnkeeper.CallKey

	// Asks are questions to a person.
	Asks []asks.Question

	// Seen are closed asks whose answer the turn has taken note of.
	Seen []asks.ID

	// Inputs are closed asks of kind input with whose answers, or the lack of them, calls go on
	// once this write is durable. Each is used once.
	Inputs []asks.ID

	// Withdrawn are calls whose open asks are closed, because they were answered otherwise.
	Withdrawn []turnkeeper.CallKey

	// Starts are calls that run once this write is durable. Each needs a new
	// nonce. If the journal's unique key refuses a start, the whole entry fails
	// with ErrJournalMoved.
	Starts []CallStart

	// Results answer calls, or move them to the background with CallRunning. A
	// result of a started call needs the nonce of that start.
	Results []CallResult

	// Failed are model calls without an answer. Their usage is added to the turn's.
	Failed []FailedAttempt

	// Events continue the turn's stream, in order. The writer sets Seq.
	Events []turnkeeper.Event

	// Answered are models that answered a request of the turn, Probed those that answered a request
	// of the worker's own, Refused those that refused the turn's request, and ModelFailures models that
	// failed, each sorted by name. They change the health of the models.
	Answered, Probed, Refused []string
	ModelFailures             []modelhealth.Failure

	// Outcome ends this dispatch. nil: the turn continues.
	Outcome *Outcome
}

// Sequence returns the entries of the write in their order: the earlier ones, and last e without them.
func (e Entry) Sequence() []Entry {
	last := e
	last.Earlier = nil
	return append(slices.Clip(e.Earlier), last)
}

// A CallStart records that a call is about to run.
type CallStart struct {
	Key     turnkeeper.CallKey
	Nonce   string            // random id of this start
	Attempt int               // 1 for the first start; more only for repeatable effects, and with Ask
	Effect  turnkeeper.Effect // as planned; the journal compares it with the call's

	// Ask is the approval that the start uses up. Of a later start of a call of effect once, it is
	// the ask by which a person has said that the last start did not happen. 0: none.
	Ask asks.ID
	// Hash is the hash of the approved text of the arguments, if the call needs an
	// approval: see tools.Hash. The journal compares it with what was approved.
	Hash string

	// RunArgs are the arguments that will run, if they are not as planned: see turnkeeper.ToolCall. ArgsHash is their
	// hash. Both are empty if the call runs as planned.
	RunArgs, ArgsHash string

	// Detached is the maximum duration of one run of a detached call, which runs
	// in its own job on any worker. 0: the call runs in the turn.
	Detached time.Duration

	// Spawn is the message to a sub-agent, written with the start. Its reply becomes
	// the result. nil: none.
	Spawn *Spawn
}

// SetArguments sets what the start records about the arguments of its call.
func (s CallStart) SetArguments(call *turnkeeper.ToolCall) {
	switch {
	case s.ArgsHash != "":
		call.RunArgs, call.ArgsHash = s.RunArgs, s.ArgsHash
	case call.RunArgs != "": // of an earlier start
		call.RunArgs, call.ArgsHash = "", arguments.Hash(call.Name, call.Arguments)
	}
}

// A CallResult is the result of a call.
type CallResult struct {
	Key     turnkeeper.CallKey
	Nonce   string // of its start; empty for a call without a start
	State   turnkeeper.CallState
	Shown   string
	Preview string
	Output  *turnkeeper.Output // nil: nothing to store but Shown
	// Attached are further outputs of the result, stored with it.
	Attached []turnkeeper.Output
	// Labels are those of the result. From its round on the turn has them too.
	Labels []policy.Mark
	// OutputID names an output that another write stores: of a background call, or
	// of a detached one. Empty: the id of Output, or none.
	OutputID turnkeeper.OutputID
	Ran      bool // the tool ran; not stored, but logged when the lease is lost
	// Duration is how long the tool ran, by the worker's monotonic clock. 0: it
	// did not run.
	Duration time.Duration
	// Usage is the usage of model calls made for this call. It is added to the
	// turn's. Zero for verdicts.
	Usage turnkeeper.Usage
	// Spawned is how the sub-agent of the call ended. The turn makes the result from
	// it. nil: the result is complete.
	Spawned *SpawnEnd
}

// An Outcome ends a dispatch of a turn. Its State says how:
//
//   - succeeded, degraded, cancelled: the message is closed with Reply.
//   - failed: Retry decides whether the message stays for another attempt
//     (after Backoff) or is closed with Reply.
//   - waiting: the turn waits, without lease and slot, for detached calls and for
//     people. If a result or an answer has come that it has not taken note of, or
//     nothing is open, it is queued instead. With Backoff it waits for the models of
//     WaitsFor, at most that long.
//   - queued: the turn is granted again after Backoff. It was handed back at
//     shutdown or deferred by a budget.
type Outcome struct {
	State         turnkeeper.TurnState
	StopReason    turnkeeper.StopReason
	Reply         string // empty: no reply (only for scheduled turns, retries and hand-backs), unless Silent
	Silent        bool   // the reply has no text
	InnerDialogue string
	ErrorClass    string
	Error         string // for operators
	Retry         bool
	Counted       bool     // failed: the attempt counts
	WaitsFor      []string // failed, Retry, or waiting: models whose next answer ends the backoff
	Backoff       time.Duration
}

// A WantedEnd is how somebody wants a turn to end. Empty: nobody has asked for an end.
type WantedEnd string

// The ends that can be requested.
const (
	EndCancel WantedEnd = "cancel" // at once
	EndFinish WantedEnd = "finish" // with an answer from what it has: the next model call is the last
)

// A Record is a turn as loaded from the journal: everything that a worker needs
// to continue it.
type Record struct {
	Turn       turnkeeper.Turn
	Message    turnkeeper.Message
	Definition []byte // the agent file at the time the turn was created
	// tokens that the message's sender allows for each answer; 0: as many as the agent
	AnswerLimit int
	Rounds      []turnkeeper.Round    // in order, with their calls
	History     []Past                // earlier turns of the conversation, oldest first
	LastRun     *Past                 // the previous run of the turn's schedule in its conversation; nil: none
	Summary     Summary               // the newest summary of the conversation; zero: none
	Older       int                   // turns of the conversation before History, counted up to CountedTurns
	Level       survival.Level        // of the agent; empty: it does not matter, as the agent's file names no levels
	Down        []modelhealth.Health  // models that are down
	Suspects    []modelhealth.Suspect // models that have failed the message in a way that it may have caused
	Waited      time.Duration         // for services that failed, by the database's clock; 0: none has failed
	Entries     int64                 // writes to the journal so far
	Failures    int                   // failed turns of the lane in a row
	NextBlock   int                   // first unused block number
	OpenRound   int                   // the round with streamed events but no answer; 0: none
	Asks        []asks.Ask            // of the turn, by id
	Gates       []turnkeeper.CallKey  // calls that may start only with an approval
	Labels      Labels                // of the turn and of what it knows
	Lineage     Lineage               // of a sub-agent's turn
	End         WantedEnd             // that was requested
	ReadySince  time.Time             // when the turn became ready for a grant
	Remaining   time.Duration         // of the lease, by the database's clock when the record was read
	Elapsed     time.Duration         // since the grant, by the database's clock
}

// Allowed reports whether a person has allowed a call that has not ended.
func (r *Record) Allowed() bool {
	return slices.ContainsFunc(r.Asks, func(a asks.Ask) bool {
		return a.Allows() && r.open(a.Call)
	})
}

// Decided reports whether a person has decided about a call that has not ended, or did not in time.
func (r *Record) Decided() bool {
	return slices.ContainsFunc(r.Asks, func(a asks.Ask) bool { return a.Closed() && r.open(a.Call) })
}

// open reports whether the call has no result.
func (r *Record) open(key turnkeeper.CallKey) bool {
	return slices.ContainsFunc(r.Rounds, func(round turnkeeper.Round) bool {
		return slices.ContainsFunc(round.Calls, func(c turnkeeper.ToolCall) bool {
			return c.Key == key && !c.State.Answered()
		})
	})
}

// Limits of what is read of a conversation.
const (
	// PastTurns is the maximum number of earlier turns in a Record. Building the request decides which of them the
	// model sees.
	PastTurns = 80
	// CountedTurns is the maximum of Record.Older.
	CountedTurns = 1000
)

// A Past is an earlier turn of the conversation, for the model's history: a turn
// that was answered, that was cancelled after it began, that failed and closed its
// message, or that ran a tool with an effect.
type Past struct {
	TurnID     turnkeeper.TurnID
	Body       string             // the message
	Rounds     []turnkeeper.Round // what a history shows, with recipes
	Reply      string             // empty: none
	Silent     bool               // it sent no reply; Reply is the text of the model
	State      turnkeeper.TurnState
	ErrorClass string // of the error that ended it; empty: none
}

package turnkeeper

import "time"

// An Entry is what one write adds to the journal of a turn. Everything in it
// becomes durable together or nothing does, and only while the writer still
// holds the turn's grant.
//
// Parts are applied in the order of the fields.
type Entry struct {
	// Verdicts are started calls of a lost worker whose outcome nobody knows.
	// They go to CallUnknown. If one of them is no longer started, the whole
	// entry is refused with ErrJournalMoved.
	Verdicts []CallResult

	// Round is an answer of the model with the calls it planned, all in state
	// CallPlanned or already answered (denied, skipped). nil: none.
	Round *Round

	// Parts are what the recipe of Round names and may not be stored yet. One
	// that is stored already stays as it is.
	Parts []RequestPart

	// Summary is of the beginning of the conversation, made in this turn. nil:
	// none. It is written with Round only.
	Summary *Summary

	// Starts are calls that will run once this write is durable. Each needs a
	// fresh nonce; a start that is refused by the journal's unique key refuses
	// the whole entry with ErrJournalMoved.
	Starts []CallStart

	// Results answer calls, or say with CallRunning that they go on in the
	// background. A result for a call that was started is accepted only with
	// the nonce of that start.
	Results []CallResult

	// Failed are model calls for a round that gave no answer to it. What they took is
	// added to the turn's usage.
	Failed []FailedAttempt

	// Events continue the turn's stream, in order. Seq is set by the writer.
	Events []Event

	// Answered are models that have answered, and ModelFailures those that could not be
	// used, each in order of their names. They change the models' health, last of all.
	Answered      []string
	ModelFailures []ModelFailure

	// Outcome ends this dispatch. nil: the turn goes on.
	Outcome *Outcome
}

// A CallStart records that a call is about to run.
type CallStart struct {
	Key     CallKey
	Nonce   string // random; tells this start from every other
	Attempt int    // 1 for the first start; more only for repeatable effects
	Effect  Effect // as planned; the journal holds the start against the call's own

	// Detached is how long one run of a detached call may take: it runs in a job
	// of its own, wherever there is room, and its result arrives. 0: it runs in
	// the turn.
	Detached time.Duration

	// Spawn is the message to a sub-agent that is written with the start; its reply
	// arrives. nil: none.
	Spawn *Spawn
}

// A CallResult is what a call ended with.
type CallResult struct {
	Key     CallKey
	Nonce   string // of the start it answers; empty for a call without a start
	State   CallState
	Shown   string
	Preview string
	Output  *Output // nil: nothing to store beside Shown
	// Attached are outputs that came with the result, and are stored with it.
	Attached []Output
	// OutputID names an output that is stored apart, before or later: that of a
	// call that goes on in the background, or whose result arrives. Empty: that of
	// Output, or none.
	OutputID OutputID
	Ran      bool // the tool ran; not kept, but a lost lease makes it worth telling
	// Duration is how long the tool ran, by the worker's monotonic clock;
	// 0 for a call that did not run.
	Duration time.Duration
	// Usage is what model calls took that were made for the call. It is added to
	// the turn's. Not for verdicts.
	Usage Usage
	// Spawned is what a sub-agent has come to whose reply arrives: the turn makes the
	// result of it. nil: the result is here.
	Spawned *SpawnEnd
}

// An Outcome ends a dispatch of a turn. Its State says how:
//
//   - succeeded, degraded, cancelled: the message is closed with Reply.
//   - failed: Retry decides whether the message stays for another attempt
//     (after Backoff) or is closed with Reply.
//   - waiting: the turn waits, without lease and slot, for calls that are open
//     elsewhere. When one of them has arrived by then, or none is open, it is
//     queued instead.
//   - queued: the turn goes back and is granted again, not before Backoff from
//     now: it was handed back at shutdown or deferred by a budget.
type Outcome struct {
	State         TurnState
	StopReason    StopReason
	Reply         string // empty: no outbox row (only for scheduled turns, retries, and hand-backs), unless Silent
	Silent        bool   // the outbox row has no text
	InnerDialogue string
	ErrorClass    string
	Error         string // for operators
	Retry         bool
	Counted       bool     // failed: this attempt counts against the message
	WaitsFor      []string // failed, Retry: models whose next answer ends the lane's pause
	Backoff       time.Duration
}

// A Record is a turn as its journal has it: all that a worker needs to go on
// with it.
type Record struct {
	Turn       Turn
	Message    Message
	Definition []byte        // the definition file as it was when the turn was made
	Rounds     []Round       // in order, with their calls
	History    []Past        // earlier turns of the conversation, oldest first
	LastRun    *Past         // the run before of the turn's schedule, in its conversation; nil: there is none, or the turn is of no schedule
	Summary    Summary       // of the beginning of the conversation, the newest; zero: none
	Older      int           // turns of the conversation before History, counted up to 1000
	Down       []ModelHealth // models that are down
	Waited     time.Duration // since the message was accepted, and due; by the database's clock
	Entries    int64         // writes to the journal so far
	LastWrite  string        // id of the last of them; empty: there is none, or it has none
	Failures   int           // failed turns of the lane in a row
	NextBlock  int           // first unused block number
	OpenRound  int           // round that has streamed events but no answer; 0: none
	Lineage    Lineage       // who spawned the turn
	Cancelled  bool          // somebody asked for the turn's cancellation
	ReadySince time.Time     // the turn could be granted since then: it was made, or what it waited for has come
	Remaining  time.Duration // of the lease when the record was read, by the database's clock
	Elapsed    time.Duration // since the grant, by the database's clock
}

// A Past is an earlier turn of the conversation, as history for the model: one
// that was answered, one that was cancelled after it was begun, or one that failed
// and closed its message, or in which a tool with an effect has run.
type Past struct {
	TurnID     TurnID
	Body       string // the message
	Rounds     []Round
	Reply      string // what was answered; empty: nothing
	Silent     bool   // it wrote no reply: Reply is what the model said in it
	State      TurnState
	ErrorClass string // class of the error that ended it; empty: none
}

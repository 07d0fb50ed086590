package turnkeeper

import "time"

// WaitReason says what an open message waits for.
type WaitReason string

// The reasons. A message may have several at once.
const (
	WaitUnknownAgent WaitReason = "unknown_agent"       // no worker has registered its agent
	WaitRetired      WaitReason = "agent_retired"       // its agent is retired
	WaitNotDue       WaitReason = "not_due"             // its time has not come
	WaitEarlier      WaitReason = "earlier_message"     // other messages of its lane go first
	WaitLaneHeld     WaitReason = "lane_held"           // another turn is open in its lane
	WaitBackoff      WaitReason = "lane_backoff"        // its lane pauses after a failed turn
	WaitCalls        WaitReason = "calls_elsewhere"     // its turn waits for calls that run elsewhere
	WaitBudget       WaitReason = "budget_spent"        // its turn is put off until the budget opens again
	WaitDeferred     WaitReason = "deferred"            // its turn is put off for another reason
	WaitNotTaken     WaitReason = "not_taken_up"        // its turn is granted, and no worker has begun it
	WaitSilent       WaitReason = "worker_silent"       // the worker of its turn gives no sign of life
	WaitPaused       WaitReason = "scheduler_paused"    // somebody has paused the scheduler
	WaitHoldOff      WaitReason = "scheduler_holds_off" // the scheduler does not trust the clock
	WaitScheduler    WaitReason = "scheduler_silent"    // no scheduler has ticked for a while
	WaitNoWorker     WaitReason = "no_worker"           // no live worker takes turns
	WaitNoSlot       WaitReason = "no_free_slot"        // every live worker has as many turns as it takes
	WaitModel        WaitReason = "model_down"          // no model of its agent can be asked; one Wait for each
	WaitTick         WaitReason = "next_tick"           // nothing: the scheduler grants it when it looks next
)

// A Wait is one thing that an open message waits for. Fields that do not go with the
// reason are zero.
type Wait struct {
	Reason  WaitReason
	Since   time.Time     // zero: not known
	Until   time.Time     // when it ends at the latest; zero: not known
	Agent   string        // WaitUnknownAgent, WaitRetired
	Lane    Lane          // WaitEarlier, WaitLaneHeld, WaitBackoff
	Message MessageID     // WaitEarlier: the first that goes before
	Turn    TurnID        // that is open in the lane
	State   TurnState     // of that turn
	Worker  WorkerID      // of that turn; empty: none has begun it
	Stopped bool          // WaitSilent: the worker has said that it stops
	Silent  time.Duration // WaitSilent: since the worker's last sign of life
	Model   string        // WaitModel
	Count   int           // WaitEarlier: messages, up to 100; WaitBackoff: failures in a row; WaitCalls: calls; WaitNoSlot: slots
	Why     string        // an error, or the reason that somebody gave
}

// A WaitingMessage is a message with all that it waits for.
type WaitingMessage struct {
	Message
	Waits []Wait // nil: nothing, or not asked for
}

// A Silence is that of a worker that a turn runs on.
type Silence struct {
	For     time.Duration // since its last sign of life
	Stopped bool          // it has said that it stops
	Until   time.Time     // when the turn goes to another worker, by the scheduler's next look after that
}

// SilentAfter is how long a worker may send no heartbeat before all views call it silent: longer
// than any pause between two heartbeats.
const SilentAfter = 15 * time.Second

// An UnderWay is what a running turn does at the moment.
type UnderWay struct {
	Round        int       // that a model is asked for, or whose calls run
	Since        time.Time // of the round's first text; of the grant, where no text has come. Zero: calls run
	OutputTokens int64     // of the answer so far, estimated from its text
	Calls        []OpenCall
}

// An OpenCall is a tool call that is not answered.
type OpenCall struct {
	Key       CallKey
	Name      string
	State     CallState // planned: it waits for those before it, or is a read that runs
	StartedAt time.Time // zero: no start is on record
}

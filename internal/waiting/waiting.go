// Package waiting holds the reasons why an open message waits. It does no I/O.
package waiting

import (
	"time"

	"turnkeeper"
)

// WaitReason says what an open message waits for.
type Reason string

// The reasons. A message may have several at once.
const (
	UnknownAgent      Reason = "unknown_agent"       // no worker has registered its agent
	AgentRetired      Reason = "agent_retired"       // its agent is retired
	NotDue            Reason = "not_due"             // its time has not come
	EarlierMessage    Reason = "earlier_message"     // other messages of its lane go first
	LaneHeld          Reason = "lane_held"           // another turn is open in its lane
	LaneBackoff       Reason = "lane_backoff"        // its lane pauses after a failed turn
	DetachedCalls     Reason = "detached_calls"      // its turn waits for calls that run elsewhere
	BudgetSpent       Reason = "budget_spent"        // its turn is put off until the budget opens again
	Deferred          Reason = "deferred"            // its turn is put off for another reason
	NotTakenUp        Reason = "not_taken_up"        // its turn is granted, and no worker has begun it
	WorkerSilent      Reason = "worker_silent"       // the worker of its turn gives no sign of life
	SchedulerPaused   Reason = "scheduler_paused"    // somebody has paused the scheduler
	SchedulerHoldsOff Reason = "scheduler_holds_off" // the scheduler does not trust the clock
	SchedulerSilent   Reason = "scheduler_silent"    // no scheduler has ticked for a while
	NoWorker          Reason = "no_worker"           // no live worker takes turns
	NoFreeSlot        Reason = "no_free_slot"        // every live worker has as many turns as it takes
	ModelDown         Reason = "model_down"          // no model of its agent can be asked; one Wait for each
	NextTick          Reason = "next_tick"           // nothing: the scheduler grants it when it looks next
)

// A Wait is one thing that an open message waits for. Fields that do not go with the
// reason are zero.
type Wait struct {
	Reason  Reason
	Since   time.Time            // zero: not known
	Until   time.Time            // when it ends at the latest; zero: not known
	Agent   string               // WaitUnknownAgent, WaitRetired
	Lane    turnkeeper.Lane      // WaitEarlier, WaitLaneHeld, WaitBackoff
	Message turnkeeper.MessageID // WaitEarlier: the first that goes before
	Turn    turnkeeper.TurnID    // that is open in the lane
	State   turnkeeper.TurnState // of that turn
	Worker  turnkeeper.WorkerID  // of that turn; empty: none has begun it
	Stopped bool                 // WaitSilent: the worker has said that it stops
	Silent  time.Duration        // WaitSilent: since the worker's last sign of life
	Model   string               // WaitModel
	Count   int                  // WaitEarlier: messages, up to 100; WaitBackoff: failures in a row; WaitCalls: calls; WaitNoSlot: slots
	Why     string               // an error, or the reason that somebody gave
}

// A WaitingMessage is a message with all that it waits for.
type Message struct {
	turnkeeper.Message
	Waits []Wait // nil: nothing, or not asked for
}

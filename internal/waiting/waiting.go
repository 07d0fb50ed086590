// Package waiting holds the reasons why an open message waits. It does no I/O.
package waiting

import (
	"time"

	"turnkeeper"
)

// Reason says what an open message waits for.
type Reason string

// The reasons. A message may have several at once.
const (
	UnknownAgent      Reason = "unknown_agent"       // no worker registered its agent
	AgentRetired      Reason = "agent_retired"       // its agent is retired
	NotDue            Reason = "not_due"             // its time has not come
	EarlierMessage    Reason = "earlier_message"     // messages of its lane are ahead of it
	LaneHeld          Reason = "lane_held"           // another turn is open in its lane
	LaneBackoff       Reason = "lane_backoff"        // its lane pauses after a failed turn
	DetachedCalls     Reason = "detached_calls"      // its turn waits for detached calls
	Person            Reason = "person"              // its turn waits for a person to answer its asks
	BudgetSpent       Reason = "budget_spent"        // its turn is deferred until the budget is available again
	Deferred          Reason = "deferred"            // its turn is deferred for another reason
	NotTakenUp        Reason = "not_taken_up"        // its turn is granted, and no worker has started it
	WorkerSilent      Reason = "worker_silent"       // the worker of its turn sends no heartbeat
	SchedulerPaused   Reason = "scheduler_paused"    // an operator paused the scheduler
	SchedulerHoldsOff Reason = "scheduler_holds_off" // the scheduler does not trust the clock
	SchedulerSilent   Reason = "scheduler_silent"    // no scheduler has ticked recently
	NoWorker          Reason = "no_worker"           // no live worker takes turns
	NoFreeSlot        Reason = "no_free_slot"        // all slots of live workers are taken
	ModelDown         Reason = "model_down"          // all models of its agent are down; one Wait for each
	NextTick          Reason = "next_tick"           // the next tick grants it
)

// A Wait is one reason why an open message waits. Fields that do not apply to the reason are zero.
type Wait struct {
	Reason  Reason
	Since   time.Time            // zero: unknown
	Until   time.Time            // the latest end; zero: unknown
	Agent   string               // UnknownAgent, AgentRetired
	Lane    turnkeeper.Lane      // EarlierMessage, LaneHeld, LaneBackoff
	Message turnkeeper.MessageID // EarlierMessage: the first message ahead
	Turn    turnkeeper.TurnID    // the open turn of the lane
	State   turnkeeper.TurnState // of that turn
	Worker  turnkeeper.WorkerID  // of that turn; empty: none has started it
	Stopped bool                 // WorkerSilent: the worker reported its stop
	Silent  time.Duration        // WorkerSilent: since the worker's last heartbeat
	Model   string               // ModelDown
	Count   int                  // EarlierMessage: messages, up to 100; LaneBackoff: failures in a row; DetachedCalls: calls; Person: asks; NoFreeSlot: slots
	Asks    int                  // LaneHeld: open asks of the turn
	Why     string               // an error, or the reason an operator gave
}

// A Message is a message with the reasons why it waits.
type Message struct {
	turnkeeper.Message
	Waits []Wait // nil: none, or not requested
}

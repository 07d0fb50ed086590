// Package waiting holds the reasons why an open message waits, and all that is said of each: see Rows. It does no I/O.
package waiting

import (
	"time"

	"turnkeeper"
)

// Reason says what an open message waits for. Each is a row of Rows.
type Reason string

// The reasons. A message may have several at once.
const (
	UnknownAgent      Reason = "unknown_agent"
	AgentRetired      Reason = "agent_retired"
	NotDue            Reason = "not_due"
	EarlierMessage    Reason = "earlier_message"
	EarlierTurn       Reason = "earlier_turn"
	LaneHeld          Reason = "lane_held"
	ConversationHeld  Reason = "conversation_held"
	LanesChanged      Reason = "lanes_changed"
	LaneBackoff       Reason = "lane_backoff"
	DetachedCalls     Reason = "detached_calls"
	SubAgents         Reason = "sub_agents"
	Person            Reason = "person"
	BudgetSpent       Reason = "budget_spent"
	NewerWorker       Reason = "newer_worker"
	Deferred          Reason = "deferred"
	SurvivalLevel     Reason = "survival_level"
	NotTakenUp        Reason = "not_taken_up"
	WorkerSilent      Reason = "worker_silent"
	AgentFull         Reason = "agent_full"
	ModelDown         Reason = "model_down"
	SetAside          Reason = "set_aside" // it, or its turn, failed in a tick and is left out until its next try
	SchedulerPaused   Reason = "scheduler_paused"
	SchedulerHoldsOff Reason = "scheduler_holds_off"
	SchedulerSilent   Reason = "scheduler_silent"
	NoWorker          Reason = "no_worker"
	NoFreeSlot        Reason = "no_free_slot"
	NextTick          Reason = "next_tick"
)

// A Wait is one reason why an open message waits. Fields that do not apply to the reason are zero: see Row.Fields.
type Wait struct {
	Reason  Reason
	Since   time.Time            // zero: unknown
	Until   time.Time            // the latest end; zero: unknown
	Agent   string               // of the message, or the sub-agent
	Lane    turnkeeper.Lane      // where it waits, or where the turn in its way is
	Message turnkeeper.MessageID // the first message ahead
	Turn    turnkeeper.TurnID    // its own turn, or the one in its way
	State   turnkeeper.TurnState // of that turn
	Worker  turnkeeper.WorkerID  // of that turn; empty: none has started it
	Stopped bool                 // the worker reported its stop
	Silent  time.Duration        // since the worker's last heartbeat
	Model   string
	// of messages ahead, up to 100, of failures in a row, calls, asks, turns or slots; or the least priority
	Count int
	Why   string // an error, the reason that an operator gave, or a survival level
}

// A Message is a message with the reasons why it waits.
type Message struct {
	turnkeeper.Message
	Waits []Wait              // nil: none, or not requested
	Turns []turnkeeper.TurnID // all its turns, in order; nil: none, or not requested
}

// A Turn is a turn with the reasons why it, or its message, waits.
type Turn struct {
	turnkeeper.Turn
	Waits []Wait // nil: it is closed, or nothing holds it up
}

// A Tally counts the turns that wait for one reason. A turn with several reasons counts for each.
type Tally struct {
	Reason Reason
	Turns  int
	Since  time.Time // when the longest of these waits began
	Until  time.Time // when the first of them ends at the latest; zero: none has an end
}

// A Parked is a wait that a turn began.
type Parked struct {
	At      time.Time
	Reasons []Reason
}

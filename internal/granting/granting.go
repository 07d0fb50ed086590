// Package granting holds what the scheduler reads and decides: the snapshot at the start of a tick, the
// candidates for a grant, due schedules, and grants and calls that lost their worker. The scheduler, the
// stores and the jobs share it. It does no I/O.
package granting

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
)

// A Snapshot is what the scheduler reads at the start of a tick.
type Snapshot struct {
	Now           time.Time     // the database's clock
	QueryTime     time.Duration // that the database needed for it
	Paused        bool
	PollInterval  time.Duration // set by an operator; 0: not set
	MaxDispatches int           // set by an operator; 0: not set

	Timeline     string    // the database's timeline now
	SeenTimeline string    // its timeline at the last recorded tick; empty: no tick is recorded
	LastTickAt   time.Time // the last recorded tick; zero: none
	HoldUntil    time.Time // zero: the scheduler does not hold off
	HoldReason   string
	Restarted    bool      // the server process is not the one of the last recorded tick
	NewestGrant  time.Time // the newest grant among held leases; zero: no lease is held

	Lost         bool // some grants may be lost
	DueSchedules bool // some schedules are due
	Calls        bool // some detached calls may be lost
	Spawns       bool // some calls of sub-agents need an update
	Queued       bool // some open turns wait for a lease
	Asks         bool // some asks have expired
	Held         bool // parked turns hold the messages of their conversations
	Levels       bool // survival levels hold messages, or may hold some
	Lanes        bool // the lane setting of an agent changed, so messages may wait in old lanes
	FreeSlots    int  // of live workers; negative: they have more turns than slots

	Running []string // the agent of each held lease

	Waiting int // due messages in the inbox, counted up to MaxWaiting

	Aside bool // rows are set aside: see Subject
	Retry bool // some of them are to be tried again

	Down []modelhealth.Health // models that are down
}

// MaxWaiting is the maximum number of waiting messages that a Snapshot counts.
const MaxWaiting = 101

// A Subject is a row that a part of a tick is about. If that part fails, the row is set aside: it is left out until its
// next try, and the rest of the tick is done.
type Subject struct {
	Kind SubjectKind
	ID   string // see the SubjectKinds
}

// A SubjectKind is the kind of a row that is set aside.
type SubjectKind string

// The kinds.
const (
	AsideMessage SubjectKind = "message" // its id: it cannot be granted, or moved to its lane
	AsideTurn    SubjectKind = "turn"    // its id: it cannot be granted, taken from a lost worker, or closed
	// TURN/ROUND/ORDINAL: a lost detached call that cannot be ended or run again
	AsideCall     SubjectKind = "call"
	AsideAsk      SubjectKind = "ask"       // its id: it cannot be closed when it expires
	AsideSubAgent SubjectKind = "sub_agent" // TURN/ROUND/ORDINAL of its call: it cannot be reported or cancelled
	AsideSchedule SubjectKind = "schedule"  // AGENT/NAME: its slot cannot become a message
	AsideAgent    SubjectKind = "agent"     // its name: a worker cannot register it
	AsideDelivery SubjectKind = "delivery"  // its id: a webhook's delivery that cannot be claimed or read
	AsidePurge    SubjectKind = "purge"     // id of a message that cannot be deleted
	AsideStep     SubjectKind = "step"      // a part of each tick, by its name; it is tried again at once
	AsideTick     SubjectKind = "tick"      // no id: the tick itself; it is tried again at once
)

// SubjectKinds lists the kinds.
var SubjectKinds = []SubjectKind{
	AsideMessage, AsideTurn, AsideCall, AsideAsk, AsideSubAgent, AsideSchedule, AsideAgent, AsideDelivery, AsidePurge,
	AsideStep, AsideTick,
}

// An Aside is a row that is set aside.
type Aside struct {
	Subject
	Since    time.Time // the first failure in a row
	Failures int       // in a row
	LastAt   time.Time // the newest failure
	NextTry  time.Time
	Code     string // SQLSTATE of the newest failure; empty: it was not the database's
	Error    string // of the newest failure
}

// AsideOf returns the Subject of a grant.
func (c Candidate) AsideOf() Subject {
	if c.New {
		return Subject{AsideMessage, strconv.FormatInt(int64(c.MessageID), 10)}
	}
	return Subject{AsideTurn, strconv.FormatInt(int64(c.TurnID), 10)}
}

// AsideOf returns the Subject of a lost grant.
func (l LostGrant) AsideOf() Subject {
	return Subject{AsideTurn, strconv.FormatInt(int64(l.TurnID), 10)}
}

// AsideOf returns the Subject of a lost call.
func (l LostCall) AsideOf() Subject {
	return Subject{AsideCall, fmt.Sprintf("%d/%d/%d", l.Ref.TurnID, l.Ref.Key.Round, l.Ref.Key.Ordinal)}
}

// ConversationKey returns the key of the schedule's conversation, which is no user's.
func (d DueSchedule) ConversationKey() turnkeeper.ConversationKey {
	return turnkeeper.ConversationKey{Agent: d.Agent, Name: d.Conversation}
}

// AsideOf returns the Subject of a due schedule.
func (d DueSchedule) AsideOf() Subject { return Subject{AsideSchedule, d.Agent + "/" + d.Name} }

// A LostGrant is a grant whose lease has expired or whose worker is silent.
type LostGrant struct {
	Lane       turnkeeper.Lane
	TurnID     turnkeeper.TurnID
	GrantID    turnkeeper.GrantID
	JobID      turnkeeper.JobID // 0: it was handed over
	MessageID  turnkeeper.MessageID
	WorkerID   turnkeeper.WorkerID // empty: no worker took the job
	Trigger    turnkeeper.Trigger
	GrantedAt  time.Time
	Lapsed     bool // the lease has expired; false: its worker is silent
	Alive      bool // the worker's process is alive but late: the loss does not count, see Loss
	Losses     int  // earlier losses of the message that count
	Dispatches int
	Rounds     int // answered rounds
}

// Consequence returns the consequence of the lost dispatch: its turn runs again, or is closed because it lost its
// workers too often. A grant that no worker took does not count as a loss.
func (l LostGrant) Consequence(again bool) turnlog.Consequence {
	switch {
	case !again:
		return turnlog.Consequence{Log: "lost", Message: turnkeeper.MessageDegraded, Lost: true}
	case l.WorkerID == "":
		return turnlog.Consequence{Log: "unclaimed"}
	}
	return turnlog.Consequence{Log: "lost", Lost: true}
}

// A DueSchedule is a schedule whose next slot is due or not known yet.
type DueSchedule struct {
	Agent        string
	Name         string
	Cron         string
	TimeZone     string
	Conversation string
	Message      string
	NextDue      time.Time // zero: not known yet
	LastSlot     time.Time // zero: none yet
	Level        string    // the agent's survival level, at which its schedules do not run; empty: they do
}

// A SlotDecision is what the scheduler does with a due schedule.
type SlotDecision struct {
	Schedule DueSchedule
	Slot     time.Time // the slot that becomes a message; zero: none
	Skipped  string    // why the slot does not run; empty: it does
	NextDue  time.Time // zero: never again
	Error    string    // why the schedule is invalid; empty: it is valid
}

// A Candidate is a possible grant: an open turn without a lease, or the first message of a free lane, for
// which the grant creates a turn.
type Candidate struct {
	New            bool
	TurnID         turnkeeper.TurnID // 0 if New
	MessageID      turnkeeper.MessageID
	Agent          string
	User           string // whose conversation it is; empty: no user's
	Conversation   string
	Lane           turnkeeper.Lane
	Trigger        turnkeeper.Trigger
	Attempt        int
	DefinitionHash string
	Rank           time.Time           // among the heads of lanes: the lower one is granted first
	MaxRunning     int                 // of its agent's turns at once; 0: see shares in package scheduler
	WorkerID       turnkeeper.WorkerID // the only worker that may take it; empty: any
	Overdue        bool                // it has waited for a service as long as its agent allows
	Probes         []string            // models that are down, and that its turn probes
	// Slot is the grant of a slot that WorkerID, the worker of the scheduler's own process, has reserved
	// for the turn: the grant is bound to it at once. Empty: River's queue gives the turn to a worker.
	Slot turnkeeper.GrantID
}

// A Handed is a committed grant that the scheduler hands over to the worker of its own process.
type Handed struct {
	TurnID  turnkeeper.TurnID
	GrantID turnkeeper.GrantID
	Read    time.Time // when the record was read, or before, by the process's clock
	// Load returns the turn's record as of the grant. It reads the parts that were not read with the
	// grant, and retries while the database is unavailable, until its context ends.
	Load func(context.Context) (*turnlog.Record, error)
}

package turnkeeper

import (
	"cmp"
	"slices"
	"time"
)

// A Situation is what the scheduler reads at the start of a tick.
type Situation struct {
	Now           time.Time // the database's clock
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

	Lost   bool // some grants may be lost
	Slots  bool // some schedules are due
	Calls  bool // some detached calls may be lost
	Spawns bool // some calls of sub-agents need an update
	Queued bool // some open turns wait for a lease
	Lanes  bool // the lane setting of an agent changed, so messages may wait in old lanes
	Room   int  // free slots of live workers

	Waiting int // due messages in the inbox, counted up to MaxWaiting

	Down []ModelHealth // models that are down
}

// MaxWaiting is the maximum number of waiting messages that a Situation counts.
const MaxWaiting = 101

// A LostGrant is a grant whose lease has expired or whose worker is silent.
type LostGrant struct {
	Lane       Lane
	TurnID     TurnID
	GrantID    GrantID
	JobID      JobID
	MessageID  MessageID
	WorkerID   WorkerID // empty: no worker took the job
	Trigger    Trigger
	GrantedAt  time.Time
	Lapsed     bool // the lease has expired; false: its worker is silent
	Alive      bool // the worker's process is alive but late: the loss does not count
	Losses     int  // earlier losses of the message that count
	Dispatches int
	Rounds     int // answered rounds
	LastSeq    int64
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
}

// A SlotDecision is what the scheduler does with a due schedule.
type SlotDecision struct {
	Schedule DueSchedule
	Slot     time.Time // the slot that becomes a message; zero: none
	NextDue  time.Time // zero: never again
	Error    string    // why the schedule is invalid; empty: it is valid
}

// A Ready is a candidate for a grant: an open turn without a lease, or the first message of a free lane, for
// which the grant creates a turn.
type Ready struct {
	New            bool
	TurnID         TurnID // 0 if New
	MessageID      MessageID
	Agent          string
	Conversation   string
	Lane           Lane
	Trigger        Trigger
	Attempt        int
	DefinitionHash string
	DueAt          time.Time
	Priority       int
	WorkerID       WorkerID // the only worker that may take it; empty: any
	Overdue        bool     // it has waited for a service as long as its agent allows
	Probes         []string // models that are down, and that its turn probes
}

// A Dispatch is one grant of a turn, from the grant log.
type Dispatch struct {
	Lane      Lane      `json:"lane"`
	Token     int64     `json:"token"`
	GrantID   GrantID   `json:"grant_id"`
	TurnID    TurnID    `json:"turn_id"`
	JobID     JobID     `json:"job_id"`
	WorkerID  WorkerID  `json:"worker_id,omitempty"`
	GrantedAt time.Time `json:"granted_at"`
	Until     time.Time `json:"lease_until"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Outcome   string    `json:"outcome,omitempty"` // finished, lost, handed_back, deferred or unclaimed; empty: it has not ended
}

// A Heartbeat is the newest sign of life of a worker process, from the database.
type Heartbeat struct {
	WorkerID      WorkerID
	Host          string
	PID           int
	Version       string
	Roles         []string      // its roles in the settings
	Slots         int           // maximum number of turns at once; 0: it drains, or is no worker of turns
	TakeoverAfter time.Duration // silence after which others take over its turns; 0: only when the lease ends
	StartedAt     time.Time
	BeatAt        time.Time
	StoppedAt     time.Time // when it reported its stop; zero: it did not
	Silent        time.Duration
}

// RoleWorker is the role of processes that take turns.
const RoleWorker = "worker"

// WorkerState is the state of a worker process.
type WorkerState string

// The states of a worker process.
const (
	WorkerAlive    WorkerState = "alive"   // it takes turns
	WorkerServing  WorkerState = "serving" // it is alive, and takes no turns as it lacks RoleWorker
	WorkerDraining WorkerState = "draining"
	WorkerSilent   WorkerState = "silent"
	WorkerStopped  WorkerState = "stopped"
)

// State returns the state of the process. It is silent after SilentAfter, whatever its TakeoverAfter: that is
// when other workers take over its turns, and until when the scheduler counts its slots.
func (h Heartbeat) State() WorkerState {
	switch {
	case !h.StoppedAt.IsZero():
		return WorkerStopped
	case h.Silent > SilentAfter:
		return WorkerSilent
	case h.Slots == 0 && len(h.Roles) > 0 && !slices.Contains(h.Roles, RoleWorker):
		return WorkerServing
	case h.Slots == 0:
		return WorkerDraining
	default:
		return WorkerAlive
	}
}

// An AgentRegistration is an agent in the database. It lets the inbox accept messages and the scheduler run
// schedules without the agent's file.
type AgentRegistration struct {
	Name                string
	Description         string
	DefinitionHash      string
	Definition          []byte
	LanePerConversation bool
	Models              []string      // the models its turns ask, in order; nil: unknown
	GiveUpAfter         time.Duration // how long its messages may wait for a failing service; 0: no time
	Schedules           []Schedule

	RetiredAt       time.Time // zero: it is not retired; a registration does not change it
	LeftWaiting     int       // waiting messages of a retired agent
	PausedSchedules []string  // names of its paused schedules; only in views for operators
}

// A Schedule sends messages to an agent at set times.
type Schedule struct {
	Agent        string
	Name         string
	Cron         string
	CronOverride string // set by an operator; empty: none
	TimeZone     string
	Conversation string
	Message      string
	Active       bool      // still in the agent's file
	AgentRetired bool      // a schedule of a retired agent does not run
	PausedAt     time.Time // zero: it is not paused
	PausedReason string    // empty: none was given
	NextDue      time.Time
	LastSlot     time.Time
	LastError    string
}

// InForce returns the cron expression that applies: CronOverride, or Cron.
func (s Schedule) InForce() string { return cmp.Or(s.CronOverride, s.Cron) }

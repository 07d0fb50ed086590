package turnkeeper

import (
	"cmp"
	"slices"
	"time"
)

// A Situation is what the scheduler sees at the start of a tick.
type Situation struct {
	Now           time.Time // the database's clock
	Paused        bool
	PollInterval  time.Duration // set by an operator; 0: not set
	MaxDispatches int           // set by an operator; 0: not set

	Timeline     string    // of the database now
	SeenTimeline string    // at the last tick on record; empty: never
	LastTickAt   time.Time // on record; zero: never
	HoldUntil    time.Time // zero: no hold-off
	HoldReason   string
	Restarted    bool      // another server process answers than at the last tick on record
	NewestGrant  time.Time // when the newest lease that is held was granted; zero or long ago: none is

	Lost   bool // grants look lost
	Slots  bool // schedules are due
	Calls  bool // detached calls look lost
	Spawns bool // something is to be done about sub-agents
	Queued bool // open turns wait for a lease
	Lanes  bool // the lanes of agents were changed: messages may wait in old ones
	Room   int  // turns that live workers can take beyond those granted

	Waiting int // messages in the inbox that are due; MaxWaiting: so many, or more

	Down []ModelHealth // models that are down
}

// MaxWaiting is as far as a Situation counts the messages that wait.
const MaxWaiting = 101

// A LostGrant is a grant whose lease has lapsed or whose worker is silent.
type LostGrant struct {
	Lane       Lane
	TurnID     TurnID
	GrantID    GrantID
	JobID      JobID
	MessageID  MessageID
	WorkerID   WorkerID // empty: no worker ever took the job
	Trigger    Trigger
	GrantedAt  time.Time
	Lapsed     bool // the lease is over; else its worker is silent
	Alive      bool // the worker's process is there, only late: the loss does not count against the message
	Losses     int  // of the message, before this one, that count against it
	Dispatches int
	Rounds     int // answered so far
	LastSeq    int64
}

// A DueSchedule is a schedule whose next slot has come, or is not known yet.
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

// A SlotDecision is what the scheduler does about a due schedule.
type SlotDecision struct {
	Schedule DueSchedule
	Slot     time.Time // becomes a message; zero: none
	NextDue  time.Time // zero: the schedule never comes due again
	Error    string    // why the schedule cannot be read; empty: it can
}

// A Ready is a turn that can be granted: an open one without a lease, or the
// head of a free lane, for which a turn is made.
type Ready struct {
	New            bool
	TurnID         TurnID // New: 0, for it is made by the grant
	MessageID      MessageID
	Agent          string
	Conversation   string
	Lane           Lane
	Trigger        Trigger
	Attempt        int
	DefinitionHash string
	DueAt          time.Time
	Priority       int
	WorkerID       WorkerID // the only worker to offer it to; empty: whoever comes first
	Overdue        bool     // it has waited for a service for as long as it may
	Probes         []string // models that are down and that its turn tries
}

// A Dispatch is one grant of a turn, as the grant log has it.
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
	Outcome   string    `json:"outcome,omitempty"` // finished, lost, handed_back, deferred, unclaimed; empty: goes on
}

// A Heartbeat is a worker process as the database knows it.
type Heartbeat struct {
	WorkerID      WorkerID
	Host          string
	PID           int
	Version       string
	Roles         []string      // what it does
	Slots         int           // turns it takes at once; 0: it is draining, or does not have the role worker
	TakeoverAfter time.Duration // silence after which its turns are taken; 0: only at the lease's end
	StartedAt     time.Time
	BeatAt        time.Time
	StoppedAt     time.Time // zero: it has not said that it stops
	Silent        time.Duration
}

// RoleWorker is the role of processes that take turns.
const RoleWorker = "worker"

// WorkerState is how a worker process stands.
type WorkerState string

// The states of a worker process.
const (
	WorkerAlive    WorkerState = "alive"   // and takes turns
	WorkerServing  WorkerState = "serving" // and does not have the role worker: it takes no turns
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

// An AgentRegistration is what the database keeps of an agent, so that messages
// to it are accepted and its schedules come due.
type AgentRegistration struct {
	Name                string
	Description         string
	DefinitionHash      string
	Definition          []byte
	LanePerConversation bool
	Models              []string      // that its turns ask, in order; nil: not known
	GiveUpAfter         time.Duration // how long its messages wait for a service that fails; 0: not at all
	Schedules           []Schedule

	RetiredAt       time.Time // zero: it is not retired; registering an agent does not change it
	LeftWaiting     int       // messages that wait, if it is retired
	PausedSchedules []string  // names of its schedules that somebody paused; only for operators
}

// A Schedule starts turns of an agent.
type Schedule struct {
	Agent        string
	Name         string
	Cron         string
	CronOverride string // as an operator changed it; empty: not changed
	TimeZone     string
	Conversation string
	Message      string
	Active       bool      // still in the agent's file
	AgentRetired bool      // it does not run while its agent is retired
	PausedAt     time.Time // zero: it is not paused
	PausedReason string    // empty: nobody said
	NextDue      time.Time
	LastSlot     time.Time
	LastError    string
}

// InForce is the cron expression by which it comes due.
func (s Schedule) InForce() string { return cmp.Or(s.CronOverride, s.Cron) }

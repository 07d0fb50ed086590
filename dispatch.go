package turnkeeper

import (
	"cmp"

	"time"
)

// A Dispatch is one grant of a turn, from the grant log.
type Dispatch struct {
	Lane      Lane      `json:"lane"`
	Token     int64     `json:"token"`
	GrantID   GrantID   `json:"grant_id"`
	TurnID    TurnID    `json:"turn_id"`
	JobID     JobID     `json:"job_id,omitzero"` // 0: the scheduler handed the turn over without a job
	WorkerID  WorkerID  `json:"worker_id,omitempty"`
	GrantedAt time.Time `json:"granted_at"`
	Until     time.Time `json:"lease_until"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// finished, waiting, handed_back, deferred, lost or unclaimed; empty: it has not ended
	Outcome string `json:"outcome,omitempty"`
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
	MaxRunning          int           // of its turns at once; 0: three quarters of all slots while other agents wait
	DayTokens, DayCalls int64         // its budget of a day; 0: no limit
	Levels              []byte        // JSON of what happens at its survival levels; nil: nothing
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
	LastSlot     time.Time // the newest slot that became a message
	SkippedSlot  time.Time // the newest slot that did not run; zero: none since LastSlot
	SkippedWhy   string    // why it did not
	Skipped      int       // slots that did not run since LastSlot
	LastError    string
}

// InForce returns the cron expression that applies: CronOverride, or Cron.
func (s Schedule) InForce() string { return cmp.Or(s.CronOverride, s.Cron) }

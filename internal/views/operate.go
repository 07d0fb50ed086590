package views

import (
	"cmp"
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A Lane is what runs serially, with who holds it and what waits in it.
type Lane struct {
	Lane        turnkeeper.Lane      `json:"lane"`
	Held        bool                 `json:"held"`
	TurnID      *turnkeeper.TurnID   `json:"turn_id" doc:"its open turn, which may wait without the lease"`
	TurnState   turnkeeper.TurnState `json:"turn_state" schema:"orEmpty" doc:"of its open turn; empty: there is none"`
	WorkerID    turnkeeper.WorkerID  `json:"worker_id"`
	Token       int64                `json:"token"`
	GrantID     turnkeeper.GrantID   `json:"grant_id"`
	GrantedAt   *time.Time           `json:"granted_at"`
	Until       *time.Time           `json:"lease_until"`
	RemainingMs int64                `json:"lease_remaining_ms"`
	Failures    int                  `json:"failures"`
	NotBefore   *time.Time           `json:"not_before"`
	Waiting     int                  `json:"waiting_messages"`
	Silence     *Silence             `json:"worker_silence" doc:"null: its holder gives signs of life, or nobody holds it"`
}

// OfLane shows a lane.
func OfLane(v operate.LaneView) Lane {
	l := v.Lease
	return Lane{
		Lane: l.Lane, Held: l.Held(), TurnID: OrNull(cmp.Or(v.OpenTurn, l.TurnID)), TurnState: v.TurnState, WorkerID: l.WorkerID, Token: l.Token,
		GrantID: l.GrantID, GrantedAt: OrNull(l.GrantedAt), Until: OrNull(l.Until), RemainingMs: Millis(v.Remaining),
		Failures: l.Failures, NotBefore: OrNull(l.NotBefore), Waiting: v.Waiting, Silence: OfSilence(v.Silence),
	}
}

// A Schedule starts turns of an agent.
type Schedule struct {
	Agent        string     `json:"agent"`
	Name         string     `json:"name"`
	Cron         string     `json:"cron" doc:"in force"`
	FileCron     string     `json:"cron_of_file"`
	TimeZone     string     `json:"time_zone"`
	Conversation string     `json:"conversation"`
	Message      string     `json:"message"`
	Active       bool       `json:"active"`
	PausedAt     *time.Time `json:"paused_at"`
	PausedReason string     `json:"paused_reason"`
	NextDue      *time.Time `json:"next_due" doc:"null: it is paused, has ended, or that is not computed yet"`
	LastSlot     *time.Time `json:"last_slot"`
	LastError    string     `json:"last_error"`
	AgentRetired bool       `json:"agent_retired" doc:"it does not run while its agent is retired"`
}

// OfSchedule shows a schedule.
func OfSchedule(s turnkeeper.Schedule) Schedule {
	next := s.NextDue
	if !s.Active || !s.PausedAt.IsZero() {
		next = time.Time{} // it was due before it was paused
	}
	return Schedule{
		Agent: s.Agent, Name: s.Name, Cron: s.InForce(), FileCron: s.Cron, TimeZone: s.TimeZone, Conversation: s.Conversation,
		Message: s.Message, Active: s.Active, PausedAt: OrNull(s.PausedAt), PausedReason: s.PausedReason, NextDue: OrNull(next), LastSlot: OrNull(s.LastSlot),
		LastError: s.LastError, AgentRetired: s.AgentRetired,
	}
}

// A ScheduleRun is the run of a schedule that somebody asked for.
type ScheduleRun struct {
	MessageID turnkeeper.MessageID `json:"message_id"`
	Waiting   bool                 `json:"waiting" doc:"the message waited already"`
}

// A Scheduler is how the scheduler stands.
type Scheduler struct {
	PausedAt       *time.Time `json:"paused_at"`
	PausedReason   string     `json:"paused_reason"`
	PollIntervalMs *int64     `json:"poll_interval_ms" doc:"null: as configured"`
	MaxDispatches  *int       `json:"max_dispatches_per_tick" doc:"null: as configured"`
	LastTickAt     *time.Time `json:"last_tick_at"`
	HoldUntil      *time.Time `json:"hold_until"`
	HoldReason     string     `json:"hold_reason"`
}

// OfScheduler shows the scheduler.
func OfScheduler(s operate.SchedulerSettings) Scheduler {
	return Scheduler{
		OrNull(s.PausedAt), s.PausedReason, OrNull(Millis(s.PollInterval)), OrNull(s.MaxDispatches), OrNull(s.LastTickAt),
		OrNull(s.HoldUntil), s.HoldReason,
	}
}

// A Worker is a worker process.
type Worker struct {
	WorkerID   turnkeeper.WorkerID    `json:"worker_id"`
	State      turnkeeper.WorkerState `json:"state"` // alive, serving, draining, silent, stopped
	Roles      []string               `json:"roles" doc:"api, scheduler, webhooks, worker"`
	Host       string                 `json:"host"`
	PID        int                    `json:"pid"`
	Version    string                 `json:"version"`
	Slots      int                    `json:"slots" doc:"turns that it takes at once; 0: it takes none"`
	TakeoverMs int64                  `json:"takeover_after_ms" doc:"how long it may be silent; 0: until its leases end"`
	StartedAt  time.Time              `json:"started_at"`
	BeatAt     time.Time              `json:"last_heartbeat_at"`
	SilentMs   int64                  `json:"silent_ms"`
	StoppedAt  *time.Time             `json:"stopped_at"`
}

// OfWorker shows a worker process.
func OfWorker(h turnkeeper.Heartbeat) Worker {
	return Worker{
		h.WorkerID, h.State(), append([]string{}, h.Roles...), h.Host, h.PID, h.Version, h.Slots, Millis(h.TakeoverAfter), h.StartedAt, h.BeatAt,
		Millis(h.Silent), OrNull(h.StoppedAt),
	}
}

// An Agent is one that messages are accepted for.
type Agent struct {
	Name           string     `json:"name"`
	Description    string     `json:"description"`
	Lane           string     `json:"lane" schema:"ref=LaneKind"` // agent or conversation
	DefinitionHash string     `json:"definition_hash"`
	RetiredAt      *time.Time `json:"retired_at" doc:"since when it takes no new messages; null: it takes them"`
	LeftWaiting    int        `json:"left_waiting" doc:"messages that wait, if it is retired"`
	Paused         []string   `json:"paused_schedules" doc:"by name"`
}

// OfAgent shows an agent.
func OfAgent(a turnkeeper.AgentRegistration) Agent {
	lane := "agent"
	if a.LanePerConversation {
		lane = "conversation"
	}
	return Agent{a.Name, a.Description, lane, a.DefinitionHash, OrNull(a.RetiredAt), a.LeftWaiting, append([]string{}, a.PausedSchedules...)}
}

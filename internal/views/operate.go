package views

import (
	"cmp"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/storage/operate"
)

// A Lane is a lane with its lease and the number of waiting messages.
type Lane struct {
	Lane        turnkeeper.Lane      `json:"lane"`
	Held        bool                 `json:"held"`
	TurnID      *turnkeeper.TurnID   `json:"turn_id" doc:"open turn of the lane, which may wait without holding the lease"`
	TurnState   turnkeeper.TurnState `json:"turn_state" schema:"orEmpty" doc:"state of the open turn; empty: no open turn"`
	WorkerID    turnkeeper.WorkerID  `json:"worker_id"`
	Token       int64                `json:"token" doc:"of the newest grant; 0: nothing runs there, and nothing has failed"`
	GrantID     turnkeeper.GrantID   `json:"grant_id"`
	GrantedAt   *time.Time           `json:"granted_at"`
	Until       *time.Time           `json:"lease_until"`
	RemainingMs int64                `json:"lease_remaining_ms"`
	Failures    int                  `json:"failures"`
	NotBefore   *time.Time           `json:"not_before"`
	Waiting     int                  `json:"waiting_messages"`
	Silence     *Silence             `json:"worker_silence" doc:"null: the lane is free, or its worker sends heartbeats"`
	Waits       []Wait               `json:"waits" doc:"why its open turn waits or, without one, its first waiting message"`
	Outside     []Wait               `json:"waits_outside" doc:"why the first turn waits that left the lane for that time, and goes back to it"`
}

// OfLane returns the view of a lane.
func OfLane(v operate.LaneView) Lane {
	l := v.Lease
	return Lane{
		Lane: l.Lane, Held: l.Held(), TurnID: OrNull(cmp.Or(v.OpenTurn, l.TurnID)), TurnState: v.TurnState,
		WorkerID: l.WorkerID, Token: l.Token,
		GrantID: l.GrantID, GrantedAt: OrNull(l.GrantedAt), Until: OrNull(l.Until), RemainingMs: Millis(v.Remaining),
		Failures: l.Failures, NotBefore: OrNull(l.NotBefore), Waiting: v.Waiting, Silence: OfSilence(v.Silence),
		Waits: All(v.Waits, OfWait), Outside: All(v.Outside, OfWait),
	}
}

// A Schedule starts turns of an agent.
type Schedule struct {
	Agent        string     `json:"agent"`
	Name         string     `json:"name"`
	Cron         string     `json:"cron" doc:"in effect; may differ from cron_of_file"`
	FileCron     string     `json:"cron_of_file"`
	TimeZone     string     `json:"time_zone"`
	Conversation string     `json:"conversation"`
	Message      string     `json:"message"`
	Active       bool       `json:"active"`
	PausedAt     *time.Time `json:"paused_at"`
	PausedReason string     `json:"paused_reason"`
	NextDue      *time.Time `json:"next_due" doc:"null: paused, ended, or not computed yet"`
	LastSlot     *time.Time `json:"last_slot" doc:"the newest slot that became a message"`
	SkippedSlot  *time.Time `json:"skipped_slot" doc:"the newest slot that did not run; null: none since last_slot"`
	SkippedWhy   string     `json:"skipped_why" doc:"why it did not"`
	Skipped      int        `json:"skipped" doc:"slots that did not run since last_slot"`
	LastError    string     `json:"last_error"`
	AgentRetired bool       `json:"agent_retired" doc:"a retired agent's schedules do not run"`
}

// OfSchedule returns the view of a schedule.
func OfSchedule(s turnkeeper.Schedule) Schedule {
	next := s.NextDue
	if !s.Active || !s.PausedAt.IsZero() {
		next = time.Time{} // stored before the pause
	}
	return Schedule{
		Agent: s.Agent, Name: s.Name, Cron: s.InForce(), FileCron: s.Cron, TimeZone: s.TimeZone,
		Conversation: s.Conversation,
		Message:      s.Message, Active: s.Active, PausedAt: OrNull(s.PausedAt), PausedReason: s.PausedReason,
		NextDue: OrNull(next), LastSlot: OrNull(s.LastSlot),
		LastError: s.LastError, SkippedSlot: OrNull(s.SkippedSlot), SkippedWhy: s.SkippedWhy, Skipped: s.Skipped,
		AgentRetired: s.AgentRetired,
	}
}

// A ScheduleRun is the result of running a schedule on request.
type ScheduleRun struct {
	MessageID turnkeeper.MessageID `json:"message_id"`
	Waiting   bool                 `json:"waiting" doc:"the message was already waiting"`
}

// A Scheduler is the state of the scheduler.
type Scheduler struct {
	PausedAt       *time.Time `json:"paused_at"`
	PausedReason   string     `json:"paused_reason"`
	PollIntervalMs *int64     `json:"poll_interval_ms" doc:"null: as configured"`
	MaxDispatches  *int       `json:"max_dispatches_per_tick" doc:"null: as configured"`
	LastTickAt     *time.Time `json:"last_tick_at"`
	HoldUntil      *time.Time `json:"hold_until"`
	HoldReason     string     `json:"hold_reason"`
}

// OfScheduler returns the view of the scheduler.
func OfScheduler(s operate.SchedulerSettings) Scheduler {
	return Scheduler{
		OrNull(s.PausedAt), s.PausedReason, OrNull(Millis(s.PollInterval)), OrNull(s.MaxDispatches),
		OrNull(s.LastTickAt),
		OrNull(s.HoldUntil), s.HoldReason,
	}
}

// A Worker is a worker process.
type Worker struct {
	WorkerID   turnkeeper.WorkerID `json:"worker_id"`
	State      presence.State      `json:"state"` // alive, serving, draining, silent, stopped
	Roles      []string            `json:"roles" doc:"api, scheduler, webhooks, worker"`
	Host       string              `json:"host"`
	PID        int                 `json:"pid"`
	Version    string              `json:"version"`
	Slots      int                 `json:"slots" doc:"maximum number of concurrent turns; 0: runs no turns"`
	TakeoverMs int64               `json:"takeover_after_ms" doc:"silence after which its turns are taken over; 0: only when their leases end"`
	StartedAt  time.Time           `json:"started_at"`
	BeatAt     time.Time           `json:"last_heartbeat_at"`
	SilentMs   int64               `json:"silent_ms"`
	StoppedAt  *time.Time          `json:"stopped_at"`
}

// OfWorker returns the view of a worker process.
func OfWorker(h presence.Heartbeat) Worker {
	return Worker{
		h.WorkerID, h.State(), append([]string{}, h.Roles...), h.Host, h.PID, h.Version, h.Slots,
		Millis(h.TakeoverAfter), h.StartedAt, h.BeatAt,
		Millis(h.Silent), OrNull(h.StoppedAt),
	}
}

// An Agent is a registered agent.
type Agent struct {
	Name           string     `json:"name"`
	Description    string     `json:"description"`
	Lane           string     `json:"lane" schema:"ref=LaneKind"` // agent or conversation
	DefinitionHash string     `json:"definition_hash"`
	Models         []string   `json:"models" doc:"that its turns ask, in order"`
	RetiredAt      *time.Time `json:"retired_at" doc:"no new messages are accepted since then; null: not retired"`
	LeftWaiting    int        `json:"left_waiting" doc:"waiting messages of a retired agent"`
	Paused         []string   `json:"paused_schedules" doc:"names of paused schedules"`
}

// OfAgent returns the view of an agent.
func OfAgent(a turnkeeper.AgentRegistration) Agent {
	lane := "agent"
	if a.LanePerConversation {
		lane = "conversation"
	}
	return Agent{
		Name: a.Name, Description: a.Description, Lane: lane, DefinitionHash: a.DefinitionHash,
		Models: append([]string{}, a.Models...), RetiredAt: OrNull(a.RetiredAt),
		LeftWaiting: a.LeftWaiting, Paused: append([]string{}, a.PausedSchedules...),
	}
}

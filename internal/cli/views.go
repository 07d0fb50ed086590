package cli

import (
	"cmp"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/storage"
)

// The types of this file are what programs read. Fields keep their names and
// meanings; new ones may be added. Durations end in _ms, what does not exist
// (yet) is null.

type usageView struct {
	InputTokens     int64 `json:"input_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"`
	TotalTokens     int64 `json:"total_tokens"`
	Estimated       bool  `json:"estimated"`
}

func viewUsage(u turnkeeper.Usage) usageView {
	return usageView{u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, u.Total(), u.Estimated}
}

type turnView struct {
	ID             turnkeeper.TurnID      `json:"id"`
	MessageID      turnkeeper.MessageID   `json:"message_id"`
	Attempt        int                    `json:"attempt"`
	Agent          string                 `json:"agent"`
	Conversation   string                 `json:"conversation"`
	Lane           turnkeeper.Lane        `json:"lane"`
	Trigger        turnkeeper.Trigger     `json:"trigger"`
	State          turnkeeper.TurnState   `json:"state"`
	StopReason     *turnkeeper.StopReason `json:"continuation_stop_reason"`
	Rounds         int                    `json:"inference_round_count"`
	Charged        int                    `json:"charged_round_count"`
	Calls          int                    `json:"executed_tool_call_count"`
	Dispatches     int                    `json:"dispatch_count"`
	Losses         int                    `json:"lost_worker_count"`
	DurationMs     *int64                 `json:"turn_duration_ms"` // from the first grant to the end
	Tokens         usageView              `json:"tokens"`
	ErrorClass     string                 `json:"error_class"`
	Error          string                 `json:"error"`
	InnerDialogue  string                 `json:"inner_dialogue"`
	WorkerID       turnkeeper.WorkerID    `json:"worker_id"`
	JobID          *turnkeeper.JobID      `json:"job_id"`
	Token          int64                  `json:"token"`
	DefinitionHash string                 `json:"definition_hash"`
	LastEvent      int64                  `json:"last_event_seq"`
	CreatedAt      time.Time              `json:"created_at"`
	DueAt          *time.Time             `json:"due_at"`
	GrantedAt      *time.Time             `json:"granted_at"`
	LeaseUntil     *time.Time             `json:"lease_until"`
	EndedAt        *time.Time             `json:"ended_at"`
}

func viewTurn(t turnkeeper.Turn) turnView {
	v := turnView{
		ID: t.ID, MessageID: t.MessageID, Attempt: t.Attempt, Agent: t.Agent, Conversation: t.Conversation, Lane: t.Lane,
		Trigger: t.Trigger, State: t.State, StopReason: orNull(t.StopReason), Rounds: t.InferenceRounds, Charged: t.ChargedRounds,
		Calls: t.ExecutedCalls, Dispatches: t.Dispatches, Losses: t.Losses, Tokens: viewUsage(t.Usage),
		ErrorClass: t.ErrorClass, Error: t.Error, InnerDialogue: t.InnerDialogue, WorkerID: t.WorkerID, JobID: orNull(t.JobID),
		Token: t.Token, DefinitionHash: t.DefinitionHash, LastEvent: t.LastSeq, CreatedAt: t.CreatedAt, DueAt: orNull(t.DueAt),
		GrantedAt: orNull(t.GrantedAt), LeaseUntil: orNull(t.LeaseUntil), EndedAt: orNull(t.EndedAt),
	}
	if !t.EndedAt.IsZero() {
		ms := millis(turnDuration(t))
		v.DurationMs = &ms
	}
	return v
}

// turnDuration is from the first grant, with which a turn is made, to the end.
func turnDuration(t turnkeeper.Turn) time.Duration { return max(t.EndedAt.Sub(t.CreatedAt), 0) }

type messageView struct {
	ID           turnkeeper.MessageID    `json:"id"`
	State        turnkeeper.MessageState `json:"state"`
	Agent        string                  `json:"agent"`
	Conversation string                  `json:"conversation"`
	Lane         turnkeeper.Lane         `json:"lane"`
	Body         string                  `json:"body"`
	Key          string                  `json:"idempotency_key"`
	Priority     int                     `json:"priority"`
	Trigger      turnkeeper.Trigger      `json:"trigger"`
	Schedule     string                  `json:"schedule"`
	Slot         *time.Time              `json:"slot"`
	Attempts     int                     `json:"attempts"`
	TurnID       *turnkeeper.TurnID      `json:"turn_id"`
	LastError    string                  `json:"last_error"`
	TraceParent  string                  `json:"trace_parent"`
	AcceptedAt   time.Time               `json:"accepted_at"`
	DueAt        time.Time               `json:"due_at"`
	ClosedAt     *time.Time              `json:"closed_at"`
}

func viewMessage(m turnkeeper.Message) messageView {
	return messageView{
		ID: m.ID, State: m.State, Agent: m.Agent, Conversation: m.Conversation, Lane: m.Lane, Body: m.Body, Key: m.Key,
		Priority: m.Priority, Trigger: m.Trigger, Schedule: m.Schedule, Slot: orNull(m.Slot), Attempts: m.Attempts,
		TurnID: orNull(m.TurnID), LastError: m.LastError, TraceParent: m.TraceParent, AcceptedAt: m.AcceptedAt,
		DueAt: m.DueAt, ClosedAt: orNull(m.ClosedAt),
	}
}

type replyView struct {
	ID           turnkeeper.ReplyID   `json:"id"`
	MessageID    turnkeeper.MessageID `json:"message_id"`
	TurnID       turnkeeper.TurnID    `json:"turn_id"`
	Agent        string               `json:"agent"`
	Conversation string               `json:"conversation"`
	Outcome      turnkeeper.TurnState `json:"outcome"`
	Body         string               `json:"body"`
	CreatedAt    time.Time            `json:"created_at"`
}

func viewReply(r turnkeeper.Reply) replyView { return replyView(r) }

type dispatchView struct {
	Token     int64               `json:"token"`
	GrantID   turnkeeper.GrantID  `json:"grant_id"`
	JobID     turnkeeper.JobID    `json:"job_id"`
	WorkerID  turnkeeper.WorkerID `json:"worker_id"`
	GrantedAt time.Time           `json:"granted_at"`
	Until     time.Time           `json:"lease_until"`
	EndedAt   *time.Time          `json:"ended_at"`
	Outcome   *string             `json:"outcome"`
}

func viewDispatch(d turnkeeper.Dispatch) dispatchView {
	return dispatchView{d.Token, d.GrantID, d.JobID, d.WorkerID, d.GrantedAt, d.Until, orNull(d.EndedAt), orNull(d.Outcome)}
}

type roundView struct {
	Round        int        `json:"round"`
	Charged      bool       `json:"charged"`
	Provider     string     `json:"provider"`
	Model        string     `json:"model"`
	Attempts     int        `json:"attempts"`
	LatencyMs    int64      `json:"latency_ms"`
	FinishReason string     `json:"finish_reason"`
	Usage        usageView  `json:"usage"`
	Text         string     `json:"text"`
	Reasoning    string     `json:"reasoning"`
	EndedAt      time.Time  `json:"ended_at"`
	ToolCalls    []callView `json:"tool_calls"`

	Request *requestView `json:"request"` // null: an older release wrote the round
}

func viewRound(r turnkeeper.Round) roundView {
	return roundView{
		Round: r.Number, Charged: r.Charged, Provider: r.Provider, Model: r.Model, Attempts: r.Attempts,
		LatencyMs: millis(r.Latency), FinishReason: r.FinishReason, Usage: viewUsage(r.Usage), Text: r.Text,
		Reasoning: r.Reasoning, EndedAt: r.EndedAt, ToolCalls: viewAll(r.Calls, viewCall),
		Request: viewRequest(r.Recipe),
	}
}

type callView struct {
	ID         string               `json:"id"` // round-R-tool-I
	WireID     string               `json:"tool_call_id"`
	ProviderID string               `json:"provider_tool_call_id"`
	Name       string               `json:"name"`
	Arguments  string               `json:"arguments"`
	RawArgs    string               `json:"raw_arguments"`
	Effect     turnkeeper.Effect    `json:"effect"`
	State      turnkeeper.CallState `json:"state"`
	Paging     bool                 `json:"paging"`
	Background bool                 `json:"background"` // it went on while the turn did
	Detached   bool                 `json:"detached"`   // it ran in a job of its own
	Starts     int                  `json:"starts"`
	StartedAt  *time.Time           `json:"started_at"`
	EndedAt    *time.Time           `json:"ended_at"`
	DurationMs int64                `json:"duration_ms"`
	Preview    string               `json:"preview"`
	Shown      string               `json:"result"`
	OutputID   *turnkeeper.OutputID `json:"output_id"`
	LateResult string               `json:"late_result"`
	Usage      *usageView           `json:"usage"` // of model calls made for it; null: there were none
}

func viewCall(c turnkeeper.ToolCall) callView {
	v := callView{
		ID: c.Key.String(), WireID: c.WireID, ProviderID: c.ProviderID, Name: c.Name, Arguments: c.Arguments, RawArgs: c.RawArgs,
		Effect: c.Effect, State: c.State, Paging: c.Paging,
		Background: agentturn.WentOn(c), Detached: c.Elsewhere, Starts: c.Starts, StartedAt: orNull(c.StartedAt), EndedAt: orNull(c.EndedAt),
		DurationMs: millis(c.Duration), Preview: c.Preview, Shown: c.Shown, OutputID: orNull(c.OutputID), LateResult: c.LateResult,
	}
	if c.Usage != (turnkeeper.Usage{}) {
		usage := viewUsage(c.Usage)
		v.Usage = &usage
	}
	return v
}

type outputView struct {
	ID         turnkeeper.OutputID `json:"id"`
	Call       string              `json:"tool_call"` // round-R-tool-I
	MediaType  string              `json:"media_type"`
	SizeBytes  int64               `json:"size_bytes"`
	Chars      int64               `json:"chars"`
	Tokens     int64               `json:"tokens"`
	SHA256     string              `json:"sha256"`
	Incomplete bool                `json:"incomplete"`
	Retrieved  int64               `json:"retrieved"`
}

func viewOutput(o turnkeeper.Output) outputView {
	return outputView{o.ID, o.Call.String(), o.MediaType, o.SizeBytes, o.Chars, o.Tokens, o.SHA256, o.Incomplete, o.Retrieved}
}

// An elsewhereView is a call that is open elsewhere.
type elsewhereView struct {
	Call      string              `json:"call"` // round-R-tool-I
	Name      string              `json:"name"`
	Since     time.Time           `json:"since"`
	Until     *time.Time          `json:"until"` // then it counts as failed
	Attempt   int                 `json:"attempt"`
	WorkerID  turnkeeper.WorkerID `json:"worker_id"` // that runs it; empty: it waits for one
	ClaimedAt *time.Time          `json:"claimed_at"`
	ArrivedAt *time.Time          `json:"arrived_at"` // of its result, which the turn has not taken in yet
}

func viewElsewhere(a turnkeeper.AwaitedCall) elsewhereView {
	return elsewhereView{
		a.Key.String(), a.Name, a.Since, orNull(a.Until), a.Attempt, a.WorkerID, orNull(a.ClaimedAt), orNull(a.ArrivedAt),
	}
}

// wholeTurnView is what "turnctl show" tells.
type wholeTurnView struct {
	turnView
	Message     messageView     `json:"message"`
	Reply       *replyView      `json:"reply"`
	DispatchLog []dispatchView  `json:"dispatches"`
	RoundLog    []roundView     `json:"rounds"`
	Outputs     []outputView    `json:"outputs"`
	Awaited     []elsewhereView `json:"waits_for"`

	Cancellation *cancellationView `json:"cancellation"` // null: nobody asked for one
}

type cancellationView struct {
	Reason  string    `json:"reason"`
	AskedAt time.Time `json:"asked_at"`
}

func viewWholeTurn(v storage.TurnView) wholeTurnView {
	whole := wholeTurnView{
		turnView: viewTurn(v.Turn), Message: viewMessage(v.Message), DispatchLog: viewAll(v.Dispatches, viewDispatch),
		RoundLog: viewAll(v.Rounds, viewRound), Outputs: viewAll(v.Outputs, viewOutput),
		Awaited: viewAll(v.Awaited, viewElsewhere),
	}
	if v.Reply != nil {
		reply := viewReply(*v.Reply)
		whole.Reply = &reply
	}
	if c := v.Cancel; c != nil {
		whole.Cancellation = &cancellationView{c.Reason, c.AskedAt}
	}
	return whole
}

type laneView struct {
	Lane        turnkeeper.Lane      `json:"lane"`
	Held        bool                 `json:"held"`
	TurnID      *turnkeeper.TurnID   `json:"turn_id"` // its open turn, which may wait without the lease
	TurnState   turnkeeper.TurnState `json:"turn_state"`
	WorkerID    turnkeeper.WorkerID  `json:"worker_id"`
	Token       int64                `json:"token"`
	GrantID     turnkeeper.GrantID   `json:"grant_id"`
	GrantedAt   *time.Time           `json:"granted_at"`
	Until       *time.Time           `json:"lease_until"`
	RemainingMs int64                `json:"lease_remaining_ms"`
	Failures    int                  `json:"failures"`
	NotBefore   *time.Time           `json:"not_before"`
	Waiting     int                  `json:"waiting_messages"`
}

func viewLane(v storage.LaneView) laneView {
	l := v.Lease
	return laneView{
		Lane: l.Lane, Held: l.Held(), TurnID: orNull(cmp.Or(v.OpenTurn, l.TurnID)), TurnState: v.TurnState, WorkerID: l.WorkerID, Token: l.Token,
		GrantID: l.GrantID, GrantedAt: orNull(l.GrantedAt), Until: orNull(l.Until), RemainingMs: millis(v.Remaining),
		Failures: l.Failures, NotBefore: orNull(l.NotBefore), Waiting: v.Waiting,
	}
}

type scheduleView struct {
	Agent        string     `json:"agent"`
	Name         string     `json:"name"`
	Cron         string     `json:"cron"` // in force
	FileCron     string     `json:"cron_of_file"`
	TimeZone     string     `json:"time_zone"`
	Conversation string     `json:"conversation"`
	Message      string     `json:"message"`
	Active       bool       `json:"active"`
	PausedAt     *time.Time `json:"paused_at"`
	NextDue      *time.Time `json:"next_due"`
	LastSlot     *time.Time `json:"last_slot"`
	LastError    string     `json:"last_error"`
}

func viewSchedule(s turnkeeper.Schedule) scheduleView {
	return scheduleView{
		Agent: s.Agent, Name: s.Name, Cron: cronOf(s), FileCron: s.Cron, TimeZone: s.TimeZone, Conversation: s.Conversation,
		Message: s.Message, Active: s.Active, PausedAt: orNull(s.PausedAt), NextDue: orNull(s.NextDue), LastSlot: orNull(s.LastSlot),
		LastError: s.LastError,
	}
}

// cronOf is the schedule in force.
func cronOf(s turnkeeper.Schedule) string {
	if s.CronOverride != "" {
		return s.CronOverride
	}
	return s.Cron
}

type schedulerView struct {
	PausedAt       *time.Time `json:"paused_at"`
	PausedReason   string     `json:"paused_reason"`
	PollIntervalMs *int64     `json:"poll_interval_ms"`        // null: as configured
	MaxDispatches  *int       `json:"max_dispatches_per_tick"` // null: as configured
	LastTickAt     *time.Time `json:"last_tick_at"`
	HoldUntil      *time.Time `json:"hold_until"`
	HoldReason     string     `json:"hold_reason"`
}

func viewScheduler(s storage.SchedulerSettings) schedulerView {
	return schedulerView{
		orNull(s.PausedAt), s.PausedReason, orNull(millis(s.PollInterval)), orNull(s.MaxDispatches), orNull(s.LastTickAt),
		orNull(s.HoldUntil), s.HoldReason,
	}
}

type workerView struct {
	WorkerID   turnkeeper.WorkerID `json:"worker_id"`
	State      string              `json:"state"` // alive, draining, silent, stopped
	Host       string              `json:"host"`
	PID        int                 `json:"pid"`
	Version    string              `json:"version"`
	Slots      int                 `json:"slots"`
	TakeoverMs int64               `json:"takeover_after_ms"`
	StartedAt  time.Time           `json:"started_at"`
	BeatAt     time.Time           `json:"last_heartbeat_at"`
	SilentMs   int64               `json:"silent_ms"`
	StoppedAt  *time.Time          `json:"stopped_at"`
}

func viewWorker(h turnkeeper.Heartbeat) workerView {
	return workerView{
		h.WorkerID, workerState(h), h.Host, h.PID, h.Version, h.Slots, millis(h.TakeoverAfter), h.StartedAt, h.BeatAt,
		millis(h.Silent), orNull(h.StoppedAt),
	}
}

type agentView struct {
	Name           string `json:"name"`
	Description    string `json:"description"`
	Lane           string `json:"lane"` // agent or conversation
	DefinitionHash string `json:"definition_hash"`
}

func viewAgent(a turnkeeper.AgentRegistration) agentView {
	lane := "agent"
	if a.LanePerConversation {
		lane = "conversation"
	}
	return agentView{a.Name, a.Description, lane, a.DefinitionHash}
}

type migrationView struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	Newer   bool   `json:"newer"` // this program does not know it

	OldestProgram int `json:"oldest_program"`
}

func viewMigration(m storage.Migration) migrationView { return migrationView(m) }

// viewAll never gives null: a list without entries is [].
func viewAll[N, V any](nouns []N, view func(N) V) []V {
	views := make([]V, len(nouns))
	for i, noun := range nouns {
		views[i] = view(noun)
	}
	return views
}

package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// A Usage is the token usage of model calls.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CachedTokens     int64 `json:"cached_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`
	ReasoningTokens  int64 `json:"reasoning_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	Estimated        bool  `json:"estimated"`
}

// OfUsage returns the view of a usage.
func OfUsage(u turnkeeper.Usage) Usage {
	return Usage{u.InputTokens, u.OutputTokens, u.CachedTokens, u.CacheWriteTokens, u.ReasoningTokens,
		u.Total(), u.Estimated}
}

// A Turn is one handling of a message.
type Turn struct {
	ID             turnkeeper.TurnID      `json:"id"`
	MessageID      turnkeeper.MessageID   `json:"message_id"`
	Attempt        int                    `json:"attempt"`
	Agent          string                 `json:"agent"`
	User           string                 `json:"user" doc:"whose conversation it is; empty: no user's"`
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
	DurationMs     *int64                 `json:"turn_duration_ms" doc:"from the first grant to the end of the turn"`
	Tokens         Usage                  `json:"tokens"`
	ErrorClass     string                 `json:"error_class"`
	Error          string                 `json:"error"`
	InnerDialogue  string                 `json:"inner_dialogue"`
	WorkerID       turnkeeper.WorkerID    `json:"worker_id"`
	JobID          *turnkeeper.JobID      `json:"job_id" doc:"of River; null: its newest grant was handed over without one"`
	Token          int64                  `json:"token"`
	DefinitionHash string                 `json:"definition_hash"`
	LastEvent      int64                  `json:"last_event_seq"`
	CreatedAt      time.Time              `json:"created_at"`
	DueAt          *time.Time             `json:"due_at"`
	GrantedAt      *time.Time             `json:"granted_at"`
	LeaseUntil     *time.Time             `json:"lease_until"`
	EndedAt        *time.Time             `json:"ended_at"`
	UnderWay       *UnderWay              `json:"under_way" doc:"the current round, not counted yet; null: the turn does not run"`
	Silence        *Silence               `json:"worker_silence" doc:"null: no worker, or its worker sends heartbeats"`
	Waits          []Wait                 `json:"waits" doc:"why the turn, or its message, waits; empty: it is closed, or nothing holds it up"`
}

// An UnderWay is the current round of a running turn, which is not counted yet.
type UnderWay struct {
	Round        int        `json:"round" doc:"number of the round whose model call or tool calls run"`
	Since        *time.Time `json:"since" doc:"time of the model's first text, or of the grant; null: tool calls run"`
	OutputTokens int64      `json:"output_tokens" doc:"estimated tokens of the answer so far"`
	Calls        []OpenCall `json:"tool_calls"`
	Refused      *Refusal   `json:"refused_write" doc:"the write to the journal that the worker repeats because the database refuses it, as of its last heartbeat; null: none"`
}

// A Refusal is an operation that a worker repeats because the database refuses it.
type Refusal struct {
	ForMs    int64  `json:"refused_for_ms"`
	Attempts int    `json:"attempts"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message" doc:"of the newest refusal"`
}

// A RefusedWrite is a write to the journal that had to wait for the database.
type RefusedWrite struct {
	WaitedMs int64     `json:"waited_ms"`
	SQLState string    `json:"sqlstate" doc:"of the newest refusal; empty: the database could not be reached"`
	EndedAt  time.Time `json:"ended_at"`
}

func ofRefusedWrite(w turnlog.RefusedWrite) RefusedWrite {
	return RefusedWrite{Millis(w.For), w.SQLState, w.EndedAt}
}

func ofRefused(u *turnkeeper.UnderWay) *Refusal {
	if u.RefusedFor == 0 {
		return nil
	}
	return &Refusal{Millis(u.RefusedFor), u.RefusedTimes, u.RefusedCode, u.RefusedWith}
}

// An OpenCall is a tool call without a result.
type OpenCall struct {
	ID        string               `json:"id" doc:"round-R-tool-I"`
	Name      string               `json:"name"`
	State     turnkeeper.CallState `json:"state"`
	StartedAt *time.Time           `json:"started_at" doc:"null: no start is recorded"`
}

// A Silence says how long the worker of a turn has sent no heartbeat.
type Silence struct {
	SilentMs   int64     `json:"silent_ms"`
	Stopped    bool      `json:"stopped" doc:"the worker has announced its stop"`
	TakeoverAt time.Time `json:"taken_over_at" doc:"the turn goes to another worker at this time"`
}

// OfUnderWay returns the view of a running turn's current round; nil for nil.
func OfUnderWay(u *turnkeeper.UnderWay) *UnderWay {
	if u == nil {
		return nil
	}
	return &UnderWay{u.Round, OrNull(u.Since), u.OutputTokens, All(u.Calls, func(c turnkeeper.OpenCall) OpenCall {
		return OpenCall{c.Key.String(), c.Name, c.State, OrNull(c.StartedAt)}
	}), ofRefused(u)}
}

// OfSilence returns the view of a worker's silence; nil for nil.
func OfSilence(s *turnkeeper.Silence) *Silence {
	if s == nil {
		return nil
	}
	return &Silence{Millis(s.For), s.Stopped, s.Until}
}

// OfTurn returns the view of a turn.
func OfTurn(t waiting.Turn) Turn {
	v := Turn{
		ID: t.ID, MessageID: t.MessageID, Attempt: t.Attempt, Agent: t.Agent, User: t.User,
		Conversation: t.Conversation, Lane: t.Lane,
		Trigger: t.Trigger, State: t.State, StopReason: OrNull(t.StopReason), Rounds: t.InferenceRounds,
		Charged: t.ChargedRounds,
		Calls:   t.ExecutedCalls, Dispatches: t.Dispatches, Losses: t.Losses, Tokens: OfUsage(t.Usage),
		ErrorClass: t.ErrorClass, Error: t.Error, InnerDialogue: t.InnerDialogue, WorkerID: t.WorkerID,
		JobID: OrNull(t.JobID),
		Token: t.Token, DefinitionHash: t.DefinitionHash, LastEvent: t.LastSeq, CreatedAt: t.CreatedAt,
		DueAt:     OrNull(t.DueAt),
		GrantedAt: OrNull(t.GrantedAt), LeaseUntil: OrNull(t.LeaseUntil), EndedAt: OrNull(t.EndedAt),
		UnderWay: OfUnderWay(t.UnderWay), Silence: OfSilence(t.Silence), Waits: All(t.Waits, OfWait),
	}
	if !t.EndedAt.IsZero() {
		ms := Millis(t.Duration())
		v.DurationMs = &ms
	}
	return v
}

// A Dispatch is one grant of a turn to a worker.
type Dispatch struct {
	Token     int64               `json:"token"`
	GrantID   turnkeeper.GrantID  `json:"grant_id"`
	JobID     *turnkeeper.JobID   `json:"job_id" doc:"of River; null: it was handed over without one"`
	WorkerID  turnkeeper.WorkerID `json:"worker_id"`
	GrantedAt time.Time           `json:"granted_at"`
	Until     time.Time           `json:"lease_until"`
	EndedAt   *time.Time          `json:"ended_at"`
	Outcome   *string             `json:"outcome" schema:"ref=DispatchOutcome"`
}

// OfDispatch returns the view of a dispatch.
func OfDispatch(d turnkeeper.Dispatch) Dispatch {
	return Dispatch{d.Token, d.GrantID, OrNull(d.JobID), d.WorkerID, d.GrantedAt, d.Until, OrNull(d.EndedAt),
		OrNull(d.Outcome)}
}

// An AwaitedCall is an open detached call.
type AwaitedCall struct {
	Call      string              `json:"call" doc:"round-R-tool-I"`
	Name      string              `json:"name"`
	Since     time.Time           `json:"since"`
	Until     *time.Time          `json:"until" doc:"deadline, after which the call counts as failed"`
	Attempt   int                 `json:"attempt"`
	WorkerID  turnkeeper.WorkerID `json:"worker_id" doc:"worker that runs the call; empty: not claimed"`
	ClaimedAt *time.Time          `json:"claimed_at"`
	ArrivedAt *time.Time          `json:"arrived_at" doc:"time of its result, which the turn has not read yet"`
}

// OfAwaitedCall returns the view of an open detached call.
func OfAwaitedCall(a operate.AwaitedCall) AwaitedCall {
	return AwaitedCall{
		a.Key.String(), a.Name, a.Since, OrNull(a.Until), a.Attempt, a.WorkerID, OrNull(a.ClaimedAt),
		OrNull(a.ArrivedAt),
	}
}

// A WholeTurn is a turn with all its details.
type WholeTurn struct {
	Turn
	Message     Message       `json:"message"`
	Reply       *Reply        `json:"reply"`
	TraceID     string        `json:"trace_id" doc:"trace of the message's sender, or the turn's own"`
	DispatchLog []Dispatch    `json:"dispatches"`
	RoundLog    []Round       `json:"rounds"`
	Outputs     []Output      `json:"outputs"`
	Awaited     []AwaitedCall `json:"waits_for"`

	Failed []FailedAttempt `json:"failed_attempts" doc:"model calls without an answer, in order; tokens includes their usage"`

	Refused []RefusedWrite `json:"refused_writes" doc:"writes to the journal that had to wait a second or longer for the database, in order"`

	EventsExpiredAt *time.Time `json:"events_expired_at" doc:"when retention deleted its events but the last; null: they are stored"`
	LeasesExpiredAt *time.Time `json:"leases_expired_at" doc:"when retention deleted its ended dispatches; null: they are stored"`

	RequestedEnd *RequestedEnd `json:"requested_end" doc:"null: nobody has asked for an end"`
	Tree         *AgentTree    `json:"tree" doc:"null: no sub-agent takes part"`
}

// A RequestedEnd is a request to end a turn.
type RequestedEnd struct {
	How     turnlog.WantedEnd `json:"how"`
	TurnID  turnkeeper.TurnID `json:"turn_id" doc:"that it names: this turn, an earlier one of its message, or, of a sub-agent, one above it"`
	Reason  string            `json:"reason"`
	AskedAt time.Time         `json:"asked_at"`
}

// OfWholeTurn returns the view of a turn with all its details.
func OfWholeTurn(v operate.TurnView) WholeTurn {
	whole := WholeTurn{
		Turn: OfTurn(v.WithWaits()), Message: OfMessage(v.Message), TraceID: traceparent.Of(v.Turn,
			v.Message.TraceParent).String(),
		DispatchLog: All(v.Dispatches, OfDispatch),
		RoundLog:    All(v.Rounds, OfRound), Outputs: All(v.Outputs, OfOutput),
		Awaited: All(v.Awaited, OfAwaitedCall), Failed: All(v.Failed, OfFailedAttempt),
		Refused: All(v.Refused, ofRefusedWrite), EventsExpiredAt: OrNull(v.Turn.EventsExpiredAt),
		LeasesExpiredAt: OrNull(v.Turn.LeasesExpiredAt),
	}
	if v.Reply != nil {
		reply := OfReply(*v.Reply)
		whole.Reply = &reply
	}
	if r := v.End; r != nil {
		whole.RequestedEnd = &RequestedEnd{r.How, r.Turn, r.Reason, r.AskedAt}
	}
	if v.Tree != nil {
		tree := OfAgentTree(*v.Tree)
		whole.Tree = &tree
	}
	return whole
}

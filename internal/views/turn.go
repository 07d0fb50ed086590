package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A Usage is what model calls took, in tokens.
type Usage struct {
	InputTokens     int64 `json:"input_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"`
	TotalTokens     int64 `json:"total_tokens"`
	Estimated       bool  `json:"estimated"`
}

// OfUsage shows what model calls took.
func OfUsage(u turnkeeper.Usage) Usage {
	return Usage{u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, u.Total(), u.Estimated}
}

// A Turn is one handling of a message.
type Turn struct {
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
	DurationMs     *int64                 `json:"turn_duration_ms" doc:"from the first grant to the end"`
	Tokens         Usage                  `json:"tokens"`
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
	UnderWay       *UnderWay              `json:"under_way" doc:"what it does now, which is not counted yet; null: it does not run"`
	Silence        *Silence               `json:"worker_silence" doc:"null: its worker gives signs of life, or it has none"`
}

// An UnderWay is what a running turn does at the moment, and is not counted yet.
type UnderWay struct {
	Round        int        `json:"round" doc:"that a model is asked for, or whose calls run"`
	Since        *time.Time `json:"since" doc:"of its first text, or of the grant; null: calls run"`
	OutputTokens int64      `json:"output_tokens" doc:"of the answer so far, estimated"`
	Calls        []OpenCall `json:"tool_calls"`
}

// An OpenCall is a tool call that is not answered.
type OpenCall struct {
	ID        string               `json:"id" doc:"round-R-tool-I"`
	Name      string               `json:"name"`
	State     turnkeeper.CallState `json:"state"`
	StartedAt *time.Time           `json:"started_at" doc:"null: no start is on record"`
}

// A Silence is that of the worker that a turn runs on.
type Silence struct {
	SilentMs   int64     `json:"silent_ms"`
	Stopped    bool      `json:"stopped" doc:"the worker has said that it stops"`
	TakeoverAt time.Time `json:"taken_over_at" doc:"the turn goes to another worker then"`
}

// OfUnderWay shows what a running turn does; nil: it does not run.
func OfUnderWay(u *turnkeeper.UnderWay) *UnderWay {
	if u == nil {
		return nil
	}
	return &UnderWay{u.Round, OrNull(u.Since), u.OutputTokens, All(u.Calls, func(c turnkeeper.OpenCall) OpenCall {
		return OpenCall{c.Key.String(), c.Name, c.State, OrNull(c.StartedAt)}
	})}
}

// OfSilence shows the silence of a worker; nil: it gives signs of life.
func OfSilence(s *turnkeeper.Silence) *Silence {
	if s == nil {
		return nil
	}
	return &Silence{Millis(s.For), s.Stopped, s.Until}
}

// OfTurn shows a turn.
func OfTurn(t turnkeeper.Turn) Turn {
	v := Turn{
		ID: t.ID, MessageID: t.MessageID, Attempt: t.Attempt, Agent: t.Agent, Conversation: t.Conversation, Lane: t.Lane,
		Trigger: t.Trigger, State: t.State, StopReason: OrNull(t.StopReason), Rounds: t.InferenceRounds, Charged: t.ChargedRounds,
		Calls: t.ExecutedCalls, Dispatches: t.Dispatches, Losses: t.Losses, Tokens: OfUsage(t.Usage),
		ErrorClass: t.ErrorClass, Error: t.Error, InnerDialogue: t.InnerDialogue, WorkerID: t.WorkerID, JobID: OrNull(t.JobID),
		Token: t.Token, DefinitionHash: t.DefinitionHash, LastEvent: t.LastSeq, CreatedAt: t.CreatedAt, DueAt: OrNull(t.DueAt),
		GrantedAt: OrNull(t.GrantedAt), LeaseUntil: OrNull(t.LeaseUntil), EndedAt: OrNull(t.EndedAt),
		UnderWay: OfUnderWay(t.UnderWay), Silence: OfSilence(t.Silence),
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
	JobID     turnkeeper.JobID    `json:"job_id"`
	WorkerID  turnkeeper.WorkerID `json:"worker_id"`
	GrantedAt time.Time           `json:"granted_at"`
	Until     time.Time           `json:"lease_until"`
	EndedAt   *time.Time          `json:"ended_at"`
	Outcome   *string             `json:"outcome" schema:"ref=DispatchOutcome"`
}

// OfDispatch shows a dispatch.
func OfDispatch(d turnkeeper.Dispatch) Dispatch {
	return Dispatch{d.Token, d.GrantID, d.JobID, d.WorkerID, d.GrantedAt, d.Until, OrNull(d.EndedAt), OrNull(d.Outcome)}
}

// An AwaitedCall is a detached call that is open.
type AwaitedCall struct {
	Call      string              `json:"call" doc:"round-R-tool-I"`
	Name      string              `json:"name"`
	Since     time.Time           `json:"since"`
	Until     *time.Time          `json:"until" doc:"then it counts as failed"`
	Attempt   int                 `json:"attempt"`
	WorkerID  turnkeeper.WorkerID `json:"worker_id" doc:"that runs it; empty: it waits for one"`
	ClaimedAt *time.Time          `json:"claimed_at"`
	ArrivedAt *time.Time          `json:"arrived_at" doc:"of its result, which the turn has not taken in yet"`
}

// OfAwaitedCall shows a detached call that is open.
func OfAwaitedCall(a turnkeeper.AwaitedCall) AwaitedCall {
	return AwaitedCall{
		a.Key.String(), a.Name, a.Since, OrNull(a.Until), a.Attempt, a.WorkerID, OrNull(a.ClaimedAt), OrNull(a.ArrivedAt),
	}
}

// A WholeTurn is all about one turn.
type WholeTurn struct {
	Turn
	Message     Message       `json:"message"`
	Reply       *Reply        `json:"reply"`
	TraceID     string        `json:"trace_id" doc:"of the message's sender, or its own"`
	DispatchLog []Dispatch    `json:"dispatches"`
	RoundLog    []Round       `json:"rounds"`
	Outputs     []Output      `json:"outputs"`
	Awaited     []AwaitedCall `json:"waits_for"`

	Failed []FailedAttempt `json:"failed_attempts" doc:"in order; they are part of its tokens"`

	Cancellation *Cancellation `json:"cancellation" doc:"null: nobody asked for one"`
	Tree         *AgentTree    `json:"tree" doc:"null: it works for no agent, and none for it"`
}

// A Cancellation is somebody's request that a turn be cancelled.
type Cancellation struct {
	Reason  string    `json:"reason"`
	AskedAt time.Time `json:"asked_at"`
}

// OfWholeTurn shows all about a turn.
func OfWholeTurn(v operate.TurnView) WholeTurn {
	whole := WholeTurn{
		Turn: OfTurn(v.Turn), Message: OfMessage(v.Message), TraceID: turnkeeper.TraceOf(v.Turn, v.Message.TraceParent).String(),
		DispatchLog: All(v.Dispatches, OfDispatch),
		RoundLog:    All(v.Rounds, OfRound), Outputs: All(v.Outputs, OfOutput),
		Awaited: All(v.Awaited, OfAwaitedCall), Failed: All(v.Failed, OfFailedAttempt),
	}
	if v.Reply != nil {
		reply := OfReply(*v.Reply)
		whole.Reply = &reply
	}
	if c := v.Cancel; c != nil {
		whole.Cancellation = &Cancellation{c.Reason, c.AskedAt}
	}
	if v.Tree != nil {
		tree := OfAgentTree(*v.Tree)
		whole.Tree = &tree
	}
	return whole
}

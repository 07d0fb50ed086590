package turnkeeper

import (
	"slices"
	"time"
)

// TurnState is where a turn stands.
type TurnState string

// The states of a turn. The last four are terminal.
const (
	TurnQueued    TurnState = "queued"
	TurnRunning   TurnState = "running"
	TurnWaiting   TurnState = "waiting" // holds no lease and no slot
	TurnSucceeded TurnState = "succeeded"
	TurnDegraded  TurnState = "degraded" // answered, but not as asked
	TurnFailed    TurnState = "failed"   // no tool had started; the message stays
	TurnCancelled TurnState = "cancelled"
)

// Every move a turn can make. running → queued is a turn whose worker was lost,
// was shut down, or whose budget defers it.
var turnMoves = map[TurnState][]TurnState{
	TurnQueued:  {TurnRunning, TurnDegraded, TurnCancelled},
	TurnRunning: {TurnQueued, TurnWaiting, TurnSucceeded, TurnDegraded, TurnFailed, TurnCancelled},
	TurnWaiting: {TurnQueued, TurnCancelled},
}

// Terminal says that the turn is over.
func (s TurnState) Terminal() bool {
	return s == TurnSucceeded || s == TurnDegraded || s == TurnFailed || s == TurnCancelled
}

// MoveTo checks the move from s to next. A refused move is an error that matches ErrBadMove.
func (s TurnState) MoveTo(next TurnState) error {
	if slices.Contains(turnMoves[s], next) {
		return nil
	}
	return &moveError{What: "turn", From: string(s), To: string(next)}
}

// StopReason says what ended the loop of a turn.
type StopReason string

// The stop reasons.
const (
	StopNone           StopReason = "none" // the model had nothing more to ask
	StopMaxRounds      StopReason = "max_rounds"
	StopMaxDuration    StopReason = "max_duration"
	StopMaxToolCalls   StopReason = "max_tool_calls"
	StopInferenceError StopReason = "inference_error"
	StopBudget         StopReason = "budget"
	StopCancelled      StopReason = "cancelled"
	StopWorkerLost     StopReason = "worker_lost"
)

// A Turn is one handling of a message.
type Turn struct {
	ID             TurnID
	MessageID      MessageID
	Attempt        int // 1 for the first turn of its message
	Agent          string
	Conversation   string
	Lane           Lane
	Trigger        Trigger
	DefinitionHash string
	State          TurnState

	Token      int64 // fencing token of its newest grant
	GrantID    GrantID
	JobID      JobID
	WorkerID   WorkerID // that its newest grant is bound to; empty: none has begun to work under it
	Dispatches int      // grants so far
	Losses     int      // dispatches that ended with a lost worker

	CreatedAt  time.Time
	DueAt      time.Time // a deferred turn is not granted before; zero: at once
	GrantedAt  time.Time
	LeaseUntil time.Time
	EndedAt    time.Time // zero while open

	InferenceRounds int // model calls answered, paging rounds included
	ChargedRounds   int // those that count against max_rounds
	ExecutedCalls   int // tool calls run, paging calls excluded
	Usage           Usage

	StopReason    StopReason // empty while open
	ErrorClass    string     // class of the error that ended or deferred it; empty: none
	Error         string     // what happened, for operators
	InnerDialogue string     // what the model said in a scheduled turn without a reply
	LastSeq       int64      // number of its newest event

	Silence  *Silence  // of its worker; nil: the worker gives signs of life, or was not asked for
	UnderWay *UnderWay // nil: it does not run, or was not asked for
}

// Duration is from the first grant, with which a turn is made, to its end; 0 for
// a turn that is open.
func (t Turn) Duration() time.Duration { return max(t.EndedAt.Sub(t.CreatedAt), 0) }

// MayHaveRun says of a call of the turn that it was cancelled without a start on record, and may have been
// running all the same when a worker was lost: a call without an effect needs no start.
func (t Turn) MayHaveRun(c ToolCall) bool {
	return t.Losses > 0 && c.State == CallCancelled && c.Starts == 0 && c.Effect == EffectNone
}

// MayHaveActed says that a call of the turn may have changed something outside.
func (t Turn) MayHaveActed(c ToolCall) bool {
	return c.Effect != EffectNone && c.Starts > 0 || t.MayHaveRun(c)
}

// Usage counts what model calls took. Estimated says that at least one of the
// figures was estimated because the provider reported none.
type Usage struct {
	InputTokens     int64 `json:"input_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens,omitempty"`
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
	Estimated       bool  `json:"estimated,omitempty"`
}

// Add is the sum of both.
func (u Usage) Add(other Usage) Usage {
	return Usage{
		InputTokens:     u.InputTokens + other.InputTokens,
		OutputTokens:    u.OutputTokens + other.OutputTokens,
		CachedTokens:    u.CachedTokens + other.CachedTokens,
		ReasoningTokens: u.ReasoningTokens + other.ReasoningTokens,
		Estimated:       u.Estimated || other.Estimated,
	}
}

// Total is input plus output tokens.
func (u Usage) Total() int64 { return u.InputTokens + u.OutputTokens }

// A Round is one answered model call of a turn, with the calls it asked for.
type Round struct {
	Number       int // from 1
	Charged      bool
	Provider     string
	Model        string
	Attempts     int // model calls made for it, retries and fallbacks included
	Latency      time.Duration
	FinishReason string // the provider's own
	Usage        Usage
	Text         string
	Reasoning    string // never shown to a user
	Raw          []byte // the provider's message, JSON, for replay to the same provider; nil: none
	EndedAt      time.Time
	Calls        []ToolCall // in the order asked
	Recipe       *Recipe    // how its request was made; nil: an older program wrote the round
}

// A Lease is the exclusive right to run a lane's turn.
type Lease struct {
	Lane      Lane
	Token     int64 // only grows
	GrantID   GrantID
	TurnID    TurnID
	WorkerID  WorkerID
	GrantedAt time.Time
	Until     time.Time
	Failures  int       // failed turns in a row
	NotBefore time.Time // back-off; zero: none
}

// Held says that somebody holds the lease.
func (l Lease) Held() bool { return l.GrantID != "" }

// A Grant is what a worker needs to prove that a turn is its own.
type Grant struct {
	TurnID   TurnID
	Lane     Lane
	Token    int64
	GrantID  GrantID
	JobID    JobID
	WorkerID WorkerID
}

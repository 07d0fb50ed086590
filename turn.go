package turnkeeper

import (
	"slices"
	"time"
)

// TurnState is the state of a turn.
type TurnState string

// The states of a turn. The last four are terminal.
const (
	TurnQueued    TurnState = "queued"
	TurnRunning   TurnState = "running"
	TurnWaiting   TurnState = "waiting" // holds no lease and no slot
	TurnSucceeded TurnState = "succeeded"
	TurnDegraded  TurnState = "degraded" // it has a reply, but did not end as planned
	TurnFailed    TurnState = "failed"   // it failed before any effect
	TurnCancelled TurnState = "cancelled"
)

// turnMoves are all allowed moves. running → queued is a turn whose worker was lost
// or shut down, or that its budget defers.
var turnMoves = map[TurnState][]TurnState{
	TurnQueued:  {TurnRunning, TurnDegraded, TurnCancelled},
	TurnRunning: {TurnQueued, TurnWaiting, TurnSucceeded, TurnDegraded, TurnFailed, TurnCancelled},
	TurnWaiting: {TurnQueued, TurnCancelled},
}

// Terminal reports whether the turn has ended.
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

// StopReason is why a turn ended.
type StopReason string

// The stop reasons.
const (
	StopNone           StopReason = "none" // the model had finished
	StopMaxRounds      StopReason = "max_rounds"
	StopMaxDuration    StopReason = "max_duration"
	StopMaxToolCalls   StopReason = "max_tool_calls"
	StopInferenceError StopReason = "inference_error"
	StopBudget         StopReason = "budget"
	StopCancelled      StopReason = "cancelled"
	StopWorkerLost     StopReason = "worker_lost"
	StopFinished       StopReason = "finished" // an operator wanted it to answer with what it had
	StopWithheld       StopReason = "withheld" // the reply may hold private content: see reply_sink
)

// A Turn is one attempt to answer a message.
type Turn struct {
	ID             TurnID
	MessageID      MessageID
	Attempt        int // 1 for the first turn of its message
	Agent          string
	User           string // whose conversation it is; empty: no user's
	Conversation   string
	Lane           Lane
	Trigger        Trigger
	DefinitionHash string
	State          TurnState

	Token      int64 // fencing token of its newest grant
	GrantID    GrantID
	JobID      JobID
	WorkerID   WorkerID // the worker bound to its newest grant; empty: none yet
	Dispatches int      // number of grants
	Losses     int      // dispatches that ended with a lost worker

	CreatedAt  time.Time
	DueAt      time.Time // a deferred turn is granted no earlier; zero: not deferred
	GrantedAt  time.Time
	LeaseUntil time.Time
	EndedAt    time.Time // zero while open

	InferenceRounds int // answered model calls, including paging rounds
	ChargedRounds   int // rounds that count against max_rounds
	ExecutedCalls   int // executed tool calls, without paging calls
	Usage           Usage

	StopReason    StopReason // empty while open
	ErrorClass    string     // class of the error that ended or deferred it; empty: none
	Error         string     // the error, for operators
	InnerDialogue string     // text of the model in a scheduled turn without a reply
	LastSeq       int64      // number of the newest event

	// When retention deleted its events but the last one, and its ended dispatches; zero: it has not.
	EventsExpiredAt, LeasesExpiredAt time.Time

	Silence  *Silence  // of its worker; nil: the worker is alive, or not requested
	UnderWay *UnderWay // nil: it is not running, or not requested
}

// ConversationKey returns the key of the turn's conversation.
func (t Turn) ConversationKey() ConversationKey {
	return ConversationKey{Agent: t.Agent, User: t.User, Name: t.Conversation}
}

// Duration returns the time from the first grant, which creates the turn, to the end; 0 while
// the turn is open.
func (t Turn) Duration() time.Duration { return max(t.EndedAt.Sub(t.CreatedAt), 0) }

// MayHaveRun reports whether a call of the turn without a recorded start may have been running when a
// worker was lost. Only calls without an effect need no recorded start.
func (t Turn) MayHaveRun(c ToolCall) bool {
	return t.Losses > 0 && c.State == CallCancelled && c.Starts == 0 && c.Effect == EffectNone
}

// MayHaveActed reports whether a call of the turn may have had an effect.
func (t Turn) MayHaveActed(c ToolCall) bool {
	return c.Effect != EffectNone && c.Starts > 0 || t.MayHaveRun(c)
}

// Usage counts the tokens of model calls. Estimated reports that at least one count
// is an estimate, because the provider reported none.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"` // all of them, also those of the next two
	OutputTokens     int64 `json:"output_tokens"`
	CachedTokens     int64 `json:"cached_tokens,omitempty"`      // read from the provider's cache
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"` // written to it, if the provider says so
	ReasoningTokens  int64 `json:"reasoning_tokens,omitempty"`
	Estimated        bool  `json:"estimated,omitempty"`
}

// Add returns the sum.
func (u Usage) Add(other Usage) Usage {
	return Usage{
		InputTokens:      u.InputTokens + other.InputTokens,
		OutputTokens:     u.OutputTokens + other.OutputTokens,
		CachedTokens:     u.CachedTokens + other.CachedTokens,
		CacheWriteTokens: u.CacheWriteTokens + other.CacheWriteTokens,
		ReasoningTokens:  u.ReasoningTokens + other.ReasoningTokens,
		Estimated:        u.Estimated || other.Estimated,
	}
}

// Total returns input plus output tokens.
func (u Usage) Total() int64 { return u.InputTokens + u.OutputTokens }

// A Round is one answered model call of a turn, with its tool calls.
type Round struct {
	Number       int // from 1
	Charged      bool
	Provider     string
	Model        string
	Attempts     int // model calls for this round, including retries and fallbacks
	Latency      time.Duration
	FinishReason string // as the provider sent it
	Usage        Usage
	Text         string
	Reasoning    string // never shown to a user
	Raw          []byte // the provider's message as JSON, sent back to the same provider; nil: none
	EndedAt      time.Time
	Calls        []ToolCall // in the order the model asked for them
	Recipe       *Recipe    // how its request was built; nil: not recorded
}

// A Grant proves that a worker holds a turn.
type Grant struct {
	TurnID   TurnID
	Lane     Lane
	Token    int64
	GrantID  GrantID
	JobID    JobID
	WorkerID WorkerID
}

package agentturn

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// An Observer records traces and metrics of turns. A method is called when an operation
// begins, and returns the operation's context and a function that is called once, at its
// end. If the process dies, that function is not called. An Observer must not block, and
// is safe for concurrent use.
type Observer interface {
	// Dispatch begins one dispatch of a turn.
	Dispatch(ctx context.Context, d DispatchBegin) (context.Context, func(DispatchEnd))
	// Round begins a round, or continues one that an earlier dispatch began. The rounds
	// of a dispatch do not overlap.
	Round(ctx context.Context, r RoundBegin) (context.Context, func(RoundEnd))
	// ModelCall begins one attempt at a model call. Several may run at once.
	ModelCall(ctx context.Context, m ModelBegin) (context.Context, func(ModelEnd))
	// ToolCall begins a run of a tool. Several may run at once, and a background run may
	// outlive its round.
	ToolCall(ctx context.Context, t ToolBegin) (context.Context, func(ToolEnd))
	// SubAgent reports a call of a sub-agent once it has ended.
	SubAgent(ctx context.Context, s SubAgentEnd)
	// Traced reports whether the span of ctx is sampled. The spans below it then should
	// be too.
	Traced(ctx context.Context) bool
}

// A DispatchBegin describes the beginning of a dispatch.
type DispatchBegin struct {
	Record *turnlog.Record
	Before turnkeeper.Dispatch // the dispatch before this one; zero: none, or unknown
}

// A DispatchEnd describes the end of a dispatch.
type DispatchEnd struct {
	Outcome turnlog.Outcome    // as written; zero if Err is set
	Err     error              // why no outcome was written
	Rounds  []turnkeeper.Round // all rounds of the turn so far, with their calls
	// Continued is the time since the model's first answer in this turn, in any
	// dispatch. 0: there is none.
	Continued time.Duration
}

// A RoundBegin describes the beginning of a round.
type RoundBegin struct {
	Number  int
	Resumed bool // the answer came in an earlier dispatch
}

// A RoundEnd describes the end of a round. Round is nil if the model gave no answer.
type RoundEnd struct{ Round *turnkeeper.Round }

// A ModelPurpose is the purpose of a model call.
type ModelPurpose string

// The purposes.
const (
	PurposeRound   ModelPurpose = "round"   // the next step of the turn
	PurposeSummary ModelPurpose = "summary" // of older conversation
	PurposeExtract ModelPurpose = "extract" // search in a stored result
	PurposeSample  ModelPurpose = "sample"  // question of a tool
	PurposeProbe   ModelPurpose = "probe"   // the worker's own, to a model that may be down
)

// A ModelBegin describes a request to a model. Provider and Model are the configured
// names, never those of a response.
type ModelBegin struct {
	Purpose  ModelPurpose
	Agent    string
	Provider string
	Model    string
	Attempt  int // of the round, from 1; 0: not a call of a round
	Request  inference.Request
}

// A ModelEnd describes the result of a request. If the provider reported no usage, the
// response's is estimated.
type ModelEnd struct {
	Response inference.Response
	Err      error
}

// A ToolBegin describes a call that is about to run. A detached call runs outside a
// dispatch: Turn and TraceParent are then set.
type ToolBegin struct {
	Call        turnkeeper.ToolCall
	Agent       string
	Detached    bool
	Turn        turnkeeper.Turn
	TraceParent string
}

// A ToolEnd describes the end of a run of a tool.
type ToolEnd struct {
	State  turnkeeper.CallState
	Error  string // why it did not succeed, in one word; empty if it did
	Result string // text of the result, before it is shortened
	// Unused says that the run began while an answer streamed that was not used then: its result was thrown away, and
	// the call runs again if another answer asks for it. It does not count.
	Unused bool
	// of a run that began while its answer streamed
	WireID   string        // the provider's id of the call; ToolBegin had none
	Duration time.Duration // 0: until now
}

// A SubAgentEnd describes a call of a sub-agent that has ended. Its span has the id of
// traceparent.CallSpan.
type SubAgentEnd struct {
	Call        turnkeeper.ToolCall
	Turn        turnkeeper.Turn   // of the caller
	TraceParent string            // of the caller's message
	Agent       string            // the sub-agent; empty: unknown
	Child       turnkeeper.TurnID // the sub-agent's turn; 0: unknown
	Began       time.Time         // zero: unknown
	Duration    time.Duration
	State       turnkeeper.CallState
	Error       string // why there is no reply, in one word; empty if there is one
}

// unobserved is the Observer of a Config without one.
type unobserved struct{}

func (unobserved) Dispatch(ctx context.Context, _ DispatchBegin) (context.Context, func(DispatchEnd)) {
	return ctx, func(DispatchEnd) {}
}

func (unobserved) Round(ctx context.Context, _ RoundBegin) (context.Context, func(RoundEnd)) {
	return ctx, func(RoundEnd) {}
}

func (unobserved) ModelCall(ctx context.Context, _ ModelBegin) (context.Context, func(ModelEnd)) {
	return ctx, func(ModelEnd) {}
}

func (unobserved) ToolCall(ctx context.Context, _ ToolBegin) (context.Context, func(ToolEnd)) {
	return ctx, func(ToolEnd) {}
}

func (unobserved) SubAgent(context.Context, SubAgentEnd) {}

func (unobserved) Traced(context.Context) bool { return false }

func toolEnd(e tools.RunResult, effect turnkeeper.Effect) ToolEnd {
	end := ToolEnd{State: stateOf(e.Outcome, effect), Result: e.Result.Text}
	if e.Outcome != tools.Succeeded {
		end.Error = string(e.Outcome)
	}
	return end
}

// An openRound is the current round of a dispatch. The zero value means none.
type openRound struct {
	number int
	ctx    context.Context // of the states of the round
	end    func(RoundEnd)
}

// enter ends the current round and begins another. rounds are those of the turn.
func (r *openRound) enter(ctx context.Context, o Observer, rounds []turnkeeper.Round, number int,
	resumed bool) context.Context {
	r.leave(rounds)
	ctx, end := o.Round(ctx, RoundBegin{Number: number, Resumed: resumed})
	*r = openRound{number, ctx, end}
	return ctx
}

// leave ends the current round, if there is one.
func (r *openRound) leave(rounds []turnkeeper.Round) {
	if r.end == nil {
		return
	}
	var end RoundEnd
	if r.number <= len(rounds) {
		end.Round = &rounds[r.number-1]
	}
	r.end(end)
	*r = openRound{}
}

// within returns the context of the current round, or ctx if there is none.
func (r *openRound) within(ctx context.Context) context.Context {
	if r.ctx != nil {
		return r.ctx
	}
	return ctx
}

// ended returns the DispatchEnd of an execution.
func ended(outcome turnlog.Outcome, err error, rounds []turnkeeper.Round) DispatchEnd {
	end := DispatchEnd{Outcome: outcome, Err: err, Rounds: rounds}
	if len(rounds) > 0 {
		end.Continued = max(0, time.Since(rounds[0].EndedAt))
	}
	return end
}

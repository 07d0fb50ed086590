package agentturn

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/tools"
)

// An Observer is told of what turns do while they do it, for traces and metrics.
// Each method is called when something begins and returns a function that is
// called once, at its end; a process that dies calls none. The context that a
// method returns is that of what has begun, so that what happens within can be
// told from what happens beside it. An Observer never blocks and never fails, and
// is safe for concurrent use.
type Observer interface {
	// Dispatch begins one dispatch of a turn.
	Dispatch(ctx context.Context, d DispatchBegin) (context.Context, func(DispatchEnd))
	// Round begins a round, or goes on with one that an earlier dispatch began.
	// The rounds of a dispatch do not overlap.
	Round(ctx context.Context, r RoundBegin) (context.Context, func(RoundEnd))
	// ModelCall begins one attempt at a model call. Several may run at once.
	ModelCall(ctx context.Context, m ModelBegin) (context.Context, func(ModelEnd))
	// ToolCall begins a run of a tool. Several may run at once, and a run in the
	// background may outlive its round.
	ToolCall(ctx context.Context, t ToolBegin) (context.Context, func(ToolEnd))
	// SubAgent tells of a call that gave work to another agent, once it has ended,
	// and begins nothing: what lies between is the other agent's turn.
	SubAgent(ctx context.Context, s SubAgentEnd)
	// Traced says that what happens in ctx is kept, and so what hangs below it is to
	// be as well.
	Traced(ctx context.Context) bool
}

// A DispatchBegin says whose turn goes on.
type DispatchBegin struct {
	Record turnkeeper.Record
	Before turnkeeper.Dispatch // the grant before this one; zero: none, or not known
}

// A DispatchEnd says how a dispatch ended.
type DispatchEnd struct {
	Outcome turnkeeper.Outcome // as written; zero with Err
	Err     error              // no outcome was written
	Rounds  []turnkeeper.Round // of the turn so far, with their calls
	// Continued is how long it is since the first answer of the model in this
	// turn, in whichever dispatch that was.
	Continued time.Duration
}

// A RoundBegin names a round.
type RoundBegin struct {
	Number  int
	Resumed bool // its answer is of an earlier dispatch
}

// A RoundEnd says what a round came to. Round is nil where the model gave no
// answer.
type RoundEnd struct{ Round *turnkeeper.Round }

// A ModelPurpose says what a model is asked for.
type ModelPurpose string

// The purposes.
const (
	PurposeRound   ModelPurpose = "round"   // the next step of the turn
	PurposeSummary ModelPurpose = "summary" // of older conversation
	PurposeExtract ModelPurpose = "extract" // a search in a stored result
	PurposeSample  ModelPurpose = "sample"  // a question of a tool
)

// A ModelBegin is a request on its way to a model.
type ModelBegin struct {
	Purpose  ModelPurpose
	Agent    string
	Provider string // as configured, as is Model: never what somebody answered
	Model    string
	Attempt  int // in its round, from 1; 0: not a round's
	Request  inference.Request
}

// A ModelEnd says what came of a request. Usage.Estimated of the response says
// that the provider reported none.
type ModelEnd struct {
	Response inference.Response
	Err      error
}

// A ToolBegin is a call about to run. Detached says that it runs in a job of its
// own: then Turn and TraceParent say whose it is, and no dispatch is told of.
type ToolBegin struct {
	Call        turnkeeper.ToolCall
	Agent       string
	Detached    bool
	Turn        turnkeeper.Turn
	TraceParent string
}

// A ToolEnd says what a run ended with. Error says why it did not succeed, in one
// word; empty: it did.
type ToolEnd struct {
	State  turnkeeper.CallState
	Error  string
	Result string // what it gave, as text, before bounds
}

// A SubAgentEnd is a call that gave work to another agent, with what it has come to.
// Its place in the trace is that of turnkeeper.CallSpan.
type SubAgentEnd struct {
	Call        turnkeeper.ToolCall
	Turn        turnkeeper.Turn
	TraceParent string // of the turn's message
	Agent       string // that works; empty: not known
	Child       turnkeeper.TurnID
	Began       time.Time // zero: not known
	Took        time.Duration
	State       turnkeeper.CallState
	Error       string // why there is no reply, in one word; empty: there is
}

// unobserved is the Observer where there is none.
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

func toolEnd(e tools.Ending, effect turnkeeper.Effect) ToolEnd {
	end := ToolEnd{State: stateOf(e.Outcome, effect), Result: e.Result.Text}
	if e.Outcome != tools.Succeeded {
		end.Error = string(e.Outcome)
	}
	return end
}

// An openRound is the round that a dispatch is in. The zero value: none.
type openRound struct {
	number int
	ctx    context.Context // of the states of the round
	end    func(RoundEnd)
}

// enter ends the round that is open and begins another. rounds are those of the turn.
func (r *openRound) enter(ctx context.Context, o Observer, rounds []turnkeeper.Round, number int, resumed bool) context.Context {
	r.leave(rounds)
	ctx, end := o.Round(ctx, RoundBegin{Number: number, Resumed: resumed})
	*r = openRound{number, ctx, end}
	return ctx
}

// leave ends the round that is open, if there is one.
func (r *openRound) leave(rounds []turnkeeper.Round) {
	if r.end == nil {
		return
	}
	var came RoundEnd
	if r.number <= len(rounds) {
		came.Round = &rounds[r.number-1]
	}
	r.end(came)
	*r = openRound{}
}

// within returns ctx within the round that is open. ctx must be the execution's, or that
// of the round itself.
func (r *openRound) within(ctx context.Context) context.Context {
	if r.ctx != nil {
		return r.ctx
	}
	return ctx
}

// ended returns what there is to tell of the end of an execution.
func ended(outcome turnkeeper.Outcome, err error, rounds []turnkeeper.Round) DispatchEnd {
	end := DispatchEnd{Outcome: outcome, Err: err, Rounds: rounds}
	if len(rounds) > 0 {
		end.Continued = max(0, time.Since(rounds[0].EndedAt))
	}
	return end
}

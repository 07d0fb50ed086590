package agentturn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A CallBox takes the results of detached calls. Implementations are safe for
// concurrent use. While the database is unavailable, they wait until ctx ends.
type CallBox interface {
	// Arrive delivers the result of a claimed call, and resumes its turn if the turn
	// waits. It returns turnkeeper.ErrFenced if the claim is void; the result is then
	// stored beside the call's own result.
	Arrive(ctx context.Context, c turnlog.ClaimedCall, r turnlog.CallResult) error
	// Release gives a claimed call back, to be run again from its beginning. It returns
	// turnkeeper.ErrFenced if the claim is void.
	Release(ctx context.Context, c turnlog.ClaimedCall) error
}

// The timeouts for writing the end of a run: the usual one, which allows for an
// unavailable database, and the one after the run was cut short.
const (
	arriveTime    = 10 * time.Minute
	arriveCutTime = 10 * time.Second
)

// RunDetached runs a claimed call within its time limit, and delivers its result. If
// ctx ends first, a call that may run again is handed on, and a call of effect once
// ends as cancelled. If the cause is turnkeeper.ErrFenced, the claim is void and
// nothing is written. RunDetached returns the state that was written; on an error, none
// was.
func (r *Runner) RunDetached(ctx context.Context, c turnlog.ClaimedCall, box CallBox) (turnkeeper.CallState, error) {
	r.at(ctx, pointDetachedClaimed)
	memory := r.cfg.ResultMemory.Account()
	defer memory.Close()
	result, cut := r.runDetached(membudget.With(ctx, memory.Lease()), c)
	r.at(ctx, pointDetachedRan)
	limit := arriveTime
	if ctx.Err() != nil {
		limit = arriveCutTime
	}
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer stop()
	var err error
	switch cause := context.Cause(ctx); {
	case !cut:
		err = box.Arrive(ending, c, result)
	case errors.Is(cause, turnkeeper.ErrFenced):
		return "", cause
	case c.Call.Effect.Repeatable():
		err = box.Release(ending, c)
	default:
		result = cutDetached(c, result.Duration)
		err = box.Arrive(ending, c, result)
	}
	if err != nil {
		return "", err
	}
	r.at(ctx, pointDetachedArrived)
	return result.State, nil
}

// runDetached runs a claimed call. cut reports whether the run ended because ctx did.
func (r *Runner) runDetached(ctx context.Context, c turnlog.ClaimedCall) (result turnlog.CallResult, cut bool) {
	log := r.cfg.Log.With(append(TurnFields(c.Turn, c.TraceParent), zap.String("tool", c.Call.Name),
		zap.Stringer("call", c.Call.Key))...)
	tool, ok := r.cfg.Tools.Get(c.Call.Name)
	if !ok { // should not happen: calls are claimed by name
		return detachedResult(c, tools.Result{Text: "tool error: this worker does not have '" + c.Call.Name + "'",
			IsError: true}, turnkeeper.CallFailed), false
	}
	options := tools.ExecuteOptions{Timeout: c.Left, Limit: c.Limit, Log: log}
	if c.Left <= 0 {
		options.Timeout = -1
	}
	options.Abandoned = func() {
		log.Warn("a tool did not return at its timeout and still runs in this process",
			zap.Int64("left_behind", r.leftBehind.Add(1)))
	}
	options.Late = func(late tools.RunResult) {
		log.Warn("a tool returned after its timeout",
			zap.String("outcome", string(late.Outcome)), zap.Int64("left_behind", r.leftBehind.Add(-1)))
	}
	ctx, end := r.cfg.Observer.ToolCall(ctx, ToolBegin{
		Call: c.Call, Agent: c.Turn.Agent, Detached: true, Turn: c.Turn, TraceParent: c.TraceParent,
	})
	started := time.Now()
	res := tools.Execute(ctx, tool, tools.Call{
		TurnID: c.Turn.ID, Agent: c.Turn.Agent, User: c.Turn.User, Conversation: c.Turn.Conversation, Key: c.Call.Key,
		Arguments: []byte(c.Call.AsRun()), IdempotencyKey: idempotencyKey(c.Turn, c.Call.Key),
	}, options)
	end(toolEnd(res, c.Call.Effect))
	state := turnkeeper.CallFailed
	switch res.Outcome {
	case tools.Succeeded:
		state = turnkeeper.CallSucceeded
	case tools.Cancelled:
		state = turnkeeper.CallCancelled
	case tools.InDoubt:
		if !c.Call.Effect.Repeatable() {
			state = turnkeeper.CallUnknown
		}
	}
	result = detachedResult(c, res.Result, state)
	result.Duration, result.Ran = time.Since(started), true
	return result, res.Outcome == tools.Cancelled
}

// detachedResult returns the bounded and cleaned result of a detached call. Its labels are those that the tool
// returned: the others are recorded since its start.
func detachedResult(c turnlog.ClaimedCall, raw tools.Result, state turnkeeper.CallState) turnlog.CallResult {
	raw, attached := attach(c.Turn.ID, c.Call.Key, raw, bounds.Default().MaxToolResultChars)
	taken := outputs.Take(
		outputs.Raw{Text: raw.Text, Bytes: raw.Bytes, MediaType: raw.MediaType, Incomplete: raw.Incomplete,
			Size: raw.RawBytes},
		outputs.Limits{},
	)
	taken.Output.ID, taken.Output.TurnID, taken.Output.Call = c.Call.OutputID, c.Turn.ID, c.Call.Key
	return turnlog.CallResult{Key: c.Call.Key, State: state, Preview: taken.Preview, Output: &taken.Output,
		Attached: attached, Labels: raw.Labels}
}

// cutDetached returns the result of a call of effect once whose run was cut short by
// the end of its worker. The call is not run again.
func cutDetached(c turnlog.ClaimedCall, took time.Duration) turnlog.CallResult {
	text := "cancelled: the worker that ran this call had to stop" + calls.ShownMaybe
	result := detachedResult(c, tools.Result{Text: text}, turnkeeper.CallCancelled)
	result.Duration, result.Ran = took, true
	return result
}

// LostCall returns the result of a detached call that will have no other.
func LostCall(c granting.LostCall) turnlog.CallResult {
	text := ""
	switch {
	case c.Failure == granting.CallOverdue:
		text = fmt.Sprintf("tool error: '%s' timed out after %s s", c.Name,
			strconv.FormatFloat(c.Limit.Seconds(), 'f', -1, 64))
	case c.Failure == granting.CallUnclaimed:
		text = fmt.Sprintf("tool error: '%s' did not start within %s: no worker had the tool and a free slot", c.Name,
			turnkeeper.MaxDetachedWait)
	case c.Effect.Repeatable():
		text = fmt.Sprintf("tool error: '%s' lost its worker %d times; it is not run again", c.Name, c.Losses+1)
	default: // the tool may reconcile the call, so no output is stored
		return turnlog.CallResult{Key: c.Ref.Key, State: turnkeeper.CallUnknown,
			Preview: outputs.Preview(prompt.ShownUnknown), OutputID: c.OutputID}
	}
	return detachedResult(turnlog.ClaimedCall{
		Turn: turnkeeper.Turn{ID: c.Ref.TurnID}, Call: turnkeeper.ToolCall{Key: c.Ref.Key, OutputID: c.OutputID},
	}, tools.Result{Text: text}, turnkeeper.CallFailed)
}

package agentturn

import (
	"context"
	"slices"
	"strings"

	"go.uber.org/zap"

	"turnkeeper"
)

// decide says how the turn goes on when every call of the newest round is
// answered.
func (t *turn) decide(context.Context) (state, error) {
	last := t.rounds[len(t.rounds)-1]
	switch {
	case len(last.Calls) == 0:
		t.end = t.answered(last)
	case anyRefused(last.Calls, shownNoTime):
		t.end = t.capped(turnkeeper.StopMaxDuration)
	case anyRefused(last.Calls, overLimit):
		t.end = t.capped(turnkeeper.StopMaxToolCalls)
	case !t.bounds.Continuation:
		t.log.Warn("tool continuation disabled, completing turn", zap.Int("calls", len(last.Calls)))
		t.end = t.summarised()
	case t.roundsUsedUp():
		t.logCap("max tool rounds reached, completing turn")
		t.end = t.summarised()
	default:
		t.log.Info("tool continuation started",
			zap.Int("round", last.Number+1), zap.Int("calls", len(last.Calls)))
		return t.ask, nil
	}
	return nil, nil
}

// anyRefused says that a call was not run, for the reason that its result
// begins with: the journal knows no other.
func anyRefused(calls []turnkeeper.ToolCall, reason string) bool {
	return slices.ContainsFunc(calls, func(c turnkeeper.ToolCall) bool {
		return (c.State == turnkeeper.CallDenied || c.State == turnkeeper.CallFailed) && strings.HasPrefix(c.Shown, reason)
	})
}

// answered is the end of a turn whose model had nothing more to ask. Where the
// outcome of a call is in doubt it is no plain success.
func (t *turn) answered(last turnkeeper.Round) *ending {
	e := &ending{state: turnkeeper.TurnSucceeded, stop: turnkeeper.StopNone, reply: says(last.Text), said: last.Number}
	if slices.ContainsFunc(t.calls(), inDoubt) {
		e.state, e.stop = turnkeeper.TurnDegraded, turnkeeper.StopWorkerLost
	}
	if strings.TrimSpace(last.Text) == "" { // written by a provider that calls this an answer
		return t.degraded(turnkeeper.StopInferenceError)
	}
	return e
}

// inDoubt says that nobody knows whether a call happened: its worker was lost,
// or was shut down while it ran.
func inDoubt(call turnkeeper.ToolCall) bool {
	return call.State == turnkeeper.CallUnknown ||
		call.State == turnkeeper.CallCancelled && call.Effect != turnkeeper.EffectNone && call.Nonce != ""
}

// capped is the end by a bound.
func (t *turn) capped(stop turnkeeper.StopReason) *ending {
	switch stop {
	case turnkeeper.StopMaxToolCalls:
		t.logCap("max tool calls reached, completing turn")
	case turnkeeper.StopMaxDuration:
		t.logCap("max turn duration reached, completing turn")
	}
	return t.degraded(stop)
}

// degraded is an end whose reply is the model's last text, if there is one,
// else the summary.
func (t *turn) degraded(stop turnkeeper.StopReason) *ending {
	return &ending{state: turnkeeper.TurnDegraded, stop: stop, reply: DegradedReply}
}

// summarised is the end by max_rounds. What a model says beside tool calls is
// no answer, so the summary is the reply.
func (t *turn) summarised() *ending {
	return &ending{state: turnkeeper.TurnDegraded, stop: turnkeeper.StopMaxRounds, reply: summaryOf}
}

func (t *turn) logCap(message string) {
	executed := 0
	for _, call := range t.calls() {
		if call.State.Executed() && !call.Paging {
			executed++
		}
	}
	t.log.Info(message,
		zap.Int("rounds", len(t.rounds)), zap.Int("charged_rounds", t.charged()), zap.Int("max_rounds", t.bounds.MaxRounds),
		zap.Int("executed_calls", executed), zap.Int("max_tool_calls", t.bounds.MaxToolCalls),
		zap.Duration("max_duration", t.bounds.MaxDuration))
}

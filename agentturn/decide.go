package agentturn

import (
	"context"
	"slices"
	"strings"
	"turnkeeper/agentturn/prompt"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
)

// decide says how the turn goes on when every call of the newest round is
// answered.
func (t *execution) decide(ctx context.Context) (state, error) {
	if err := t.takeArrivals(ctx); err != nil {
		return nil, err
	}
	t.collect()
	if waits, err := t.awaitReplies(ctx); waits || err != nil {
		if waits {
			t.end = t.waiting()
		}
		return nil, err
	}
	last := t.rounds[len(t.rounds)-1]
	end, outlast := t.endAfter(last)
	if end == nil {
		return t.goOnFrom(ctx, last)
	}
	if len(last.Calls) == 0 && len(t.background) > 0 { // the answer is not lost with the worker
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.awaitJobs(ctx, len(last.Calls) > 0); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(t.rounds.detached(), outlast) {
		end = t.waiting
	} else if len(last.Calls) == 0 && len(unseenEffects(t.rounds)) > 0 && !t.rounds.usedUp(t.bounds) {
		t.log.Info("a call with an effect has ended after the answer; the model is asked once more", zap.Int("round", last.Number+1))
		return t.ask, nil
	}
	t.end = end()
	return nil, nil
}

// endAfter makes the turn's end, if the newest round is its last; else it is nil.
// outlast picks the calls open elsewhere that the end waits for: a summary tells
// of all of them, and an answer does not cut an effect in two.
func (t *execution) endAfter(last turnkeeper.Round) (end func() *ending, outlast func(*turnkeeper.ToolCall) bool) {
	switch {
	case len(last.Calls) == 0:
		return func() *ending { return t.endings().answered(last) }, hasEffect
	case anyRefused(last.Calls, prompt.ShownNoTime):
		return func() *ending { return t.endings().capped(turnkeeper.StopMaxDuration) }, noCall
	case !t.bounds.Continuation && !t.rounds.overLimit():
		return func() *ending { return t.endings().single(last) }, anyCall
	case !t.bounds.Continuation, t.rounds.usedUp(t.bounds), announcedLast(last):
		return func() *ending { return t.endings().capped(t.rounds.lastStop()) }, anyCall
	default:
		return nil, nil
	}
}

func noCall(*turnkeeper.ToolCall) bool  { return false }
func anyCall(*turnkeeper.ToolCall) bool { return true }

// hasEffect picks what would be in doubt if it were stopped on its way. A
// sub-agent's own turn keeps the record of what it has done.
func hasEffect(call *turnkeeper.ToolCall) bool {
	return call.Effect != turnkeeper.EffectNone && !isSpawn(*call)
}

// goOnFrom calls the model again as soon as it has something new to see. For what
// runs here the turn stands still; for what is open elsewhere alone it waits, and
// holds nothing.
func (t *execution) goOnFrom(ctx context.Context, last turnkeeper.Round) (state, error) {
	for nextMove(t.rounds, t.dirty) == moveWait {
		if len(t.background) == 0 {
			t.end = t.waiting()
			return nil, nil
		}
		if err := t.awaitJob(ctx); err != nil {
			return nil, err
		}
		if err := t.takeArrivals(ctx); err != nil {
			return nil, err
		}
	}
	t.log.Info("tool continuation started",
		zap.Int("round", last.Number+1), zap.Int("calls", len(last.Calls)))
	return t.ask, nil
}

// anyRefused says that a call was not run, for the reason that its result
// begins with: the journal knows no other.
func anyRefused(calls []turnkeeper.ToolCall, reason string) bool {
	return slices.ContainsFunc(calls, func(c turnkeeper.ToolCall) bool {
		return (c.State == turnkeeper.CallDenied || c.State == turnkeeper.CallFailed) && strings.HasPrefix(c.Shown, reason)
	})
}

// isRefusal says that a text begins as the results do by which anyRefused knows calls.
func isRefusal(text string) bool {
	return strings.HasPrefix(text, prompt.ShownNoTime) || strings.HasPrefix(text, overLimit)
}

// answered is the end of a turn whose model had nothing more to ask. Where the
// outcome of a call is in doubt it is no plain success.
func (t *endings) answered(last turnkeeper.Round) *ending {
	switch {
	case inference.Blank(last.Text): // written by a provider that calls this an answer
		return t.degraded(turnkeeper.StopInferenceError)
	case turnkeeper.AnyInDoubt(t.rounds.all()):
		return t.degraded(turnkeeper.StopWorkerLost)
	case slices.ContainsFunc(unseenEffects(t.rounds), func(c turnkeeper.ToolCall) bool { return c.State != turnkeeper.CallSucceeded }):
		t.logCap("a call with an effect failed after the last answer, completing turn")
		return t.degraded(turnkeeper.StopMaxRounds)
	case t.rounds.overLimit():
		return t.capped(turnkeeper.StopMaxToolCalls)
	case inference.Filtered(last.FinishReason):
		return t.filtered()
	}
	return succeeded(func([]turnkeeper.Round) reply { return reply{text: last.Text, said: last.Number} })
}

func succeeded(answer func([]turnkeeper.Round) reply) *ending {
	return &ending{state: turnkeeper.TurnSucceeded, stop: turnkeeper.StopNone, reply: answer}
}

// single is the end of a turn that may have one round: its text is the answer, else the
// summary. That is how the agent is meant to work, and no fault.
func (t *endings) single(only turnkeeper.Round) *ending {
	t.log.Warn("tool continuation disabled, completing turn", zap.Int("calls", len(only.Calls)))
	if turnkeeper.AnyInDoubt(t.rounds.all()) {
		return t.degraded(turnkeeper.StopWorkerLost)
	}
	if inference.Filtered(only.FinishReason) {
		return t.filtered()
	}
	if !inference.Blank(only.Text) {
		return succeeded(func([]turnkeeper.Round) reply { return reply{text: only.Text, said: only.Number} })
	}
	return succeeded(func(rounds []turnkeeper.Round) reply {
		return reply{text: summaryReply(prompt.CallsOf(rounds), turnkeeper.StopNone, t.def.Replies.SummaryOutput)}
	})
}

// filtered is the end of a turn whose answer the provider's content filter cut.
func (t *endings) filtered() *ending {
	t.log.Warn("the provider's content filter stopped the answer, completing turn", zap.Int("rounds", len(t.rounds)))
	end := t.degraded(turnkeeper.StopInferenceError)
	end.outcome.ErrorClass = string(inference.ClassRefused)
	end.outcome.Error = "the provider's content filter stopped the answer"
	return end
}

// capped is the end by a bound.
func (t *endings) capped(stop turnkeeper.StopReason) *ending {
	switch stop {
	case turnkeeper.StopMaxRounds:
		t.logCap("max tool rounds reached, completing turn")
	case turnkeeper.StopMaxToolCalls:
		t.logCap("max tool calls reached, completing turn")
	case turnkeeper.StopMaxDuration:
		t.logCap("max turn duration reached, completing turn")
	}
	return t.degraded(stop)
}

// degraded is an end whose reply is the model's answer, if it gave one, else what the
// agent has in its place.
func (t *endings) degraded(stop turnkeeper.StopReason) *ending {
	return &ending{state: turnkeeper.TurnDegraded, stop: stop, reply: func(rounds []turnkeeper.Round) reply {
		return degradedReply(rounds, stop, t.def.Replies)
	}}
}

func (t *endings) logCap(message string) {
	t.log.Warn(message,
		zap.Int("rounds", len(t.rounds)), zap.Int("charged_rounds", prompt.Charged(t.rounds)), zap.Int("max_rounds", t.bounds.MaxRounds),
		zap.Int("executed_calls", t.rounds.executed()), zap.Int("max_tool_calls", t.bounds.MaxToolCalls),
		zap.Duration("max_duration", t.bounds.MaxDuration))
}

package agentturn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

// endings makes the ending of an execution from the state of its turn.
type endings struct {
	*task
	calls    *calls.List
	executed bool // a tool has started, in any execution
}

func (e *execution) endings() *endings {
	executed := e.calls.Any(func(c *calls.Call) bool { return c.Cut != nil || c.State.Executed() })
	return &endings{e.task, e.calls, executed}
}

// endAfter returns the function that makes the turn's end, or nil if the newest round is
// not the last. outlast selects the detached calls that the end waits for: all calls if
// the reply may be a summary, and those with an effect if it is an answer.
func (t *endings) endAfter(last turnkeeper.Round) (end func() *ending, outlast func(*calls.Call) bool) {
	switch {
	case len(last.Calls) == 0:
		return func() *ending { return t.answered(last) }, (*calls.Call).InDoubtIfStopped
	case anyRefused(last.Calls, prompt.ShownNoTime):
		return func() *ending { return t.capped(turnkeeper.StopMaxDuration) }, noCall
	case !t.bounds.Continuation && !t.calls.OverLimit():
		return func() *ending { return t.single(last) }, anyCall
	case !t.bounds.Continuation, t.calls.UsedUp(), wasFinal(last):
		return func() *ending { return t.capped(t.lastStop()) }, anyCall
	default:
		return nil, nil
	}
}

// endingOf returns the ending of a turn whose loop was stopped by an error.
func (t *endings) endingOf(ctx context.Context, err error) *ending {
	if ctx.Err() != nil {
		return t.stopped(context.Cause(ctx))
	}
	if blocked, ok := errors.AsType[*blockedError](err); ok {
		return t.blocked(blocked)
	}
	if silent, ok := errors.AsType[*silentError](err); ok {
		t.log.Warn("the model gave no answer in its last round", zap.Error(silent.err))
		if silent.finish {
			return t.capped(turnkeeper.StopFinished)
		}
		return t.capped(t.lastStop())
	}
	if failure, ok := errors.AsType[*inference.Error](err); ok && failure.Code == inference.CodeMarkup {
		return t.unparsed(failure)
	}
	return t.failed(err)
}

// unparsed returns the ending of a turn whose model writes tool calls as text, also after a hint. Another turn would
// end likewise.
func (t *endings) unparsed(failure *inference.Error) *ending {
	t.log.Warn("the model writes tool calls as text, completing turn", zap.String("error", failure.Error()))
	end := t.degraded(turnkeeper.StopInferenceError)
	end.outcome.ErrorClass, end.outcome.Error = string(failure.Class), failure.Error()
	return end
}

// stopped returns the ending of a turn whose context has ended.
func (t *endings) stopped(cause error) *ending {
	switch {
	case errors.Is(cause, errWallTime):
		return t.outOfTime()
	case errors.Is(cause, ErrCancelled):
		return &ending{state: turnkeeper.TurnCancelled, stop: turnkeeper.StopCancelled,
			reply: fixedReply(replyCancelled)}
	default:
		return &ending{state: turnkeeper.TurnQueued, outcome: turnlog.Outcome{Error: cause.Error()}}
	}
}

// failed returns the ending of a turn after a failed model call, a request that could not
// be built, or a panic.
func (t *endings) failed(err error) *ending {
	class := classOf(err)
	f := t.failure(faultIn(err))
	o := turnlog.Outcome{ErrorClass: class, Error: err.Error()}
	if service, ok := errors.AsType[*serviceError](err); ok {
		f.Pause, o.WaitsFor = service.pause, service.waitsFor
	}
	return t.byVerdict(f, turnkeeper.StopInferenceError, o)
}

// failure returns the Failure of the turn, without the pause of a service.
func (t *endings) failure(fault Fault) Failure {
	return Failure{
		Fault: fault, Ran: t.executed, Effects: t.calls.Effected(),
		Counted: t.record.Message.Faults, MaxAttempts: t.bounds.MaxAttempts, Attempts: t.record.Message.Attempts,
		Keep: t.answeredByPerson() || t.finishing(), Waited: t.waited(), GiveUpAfter: t.bounds.GiveUpAfter,
	}
}

// waited returns how long the message has waited for services until now: not at all if none had failed before this
// dispatch.
func (t *endings) waited() time.Duration {
	if t.record.Waited <= 0 {
		return 0
	}
	return t.record.Waited + time.Since(t.clock.began)
}

// answeredByPerson reports whether a person has answered an ask of the turn.
func (t *endings) answeredByPerson() bool {
	return slices.ContainsFunc(t.record.Asks, func(a asks.Ask) bool {
		return a.State == asks.Approved || a.State == asks.Denied || a.State == asks.Answered
	})
}

// byVerdict returns the ending that the verdict on a failure gives.
func (t *endings) byVerdict(f Failure, stop turnkeeper.StopReason, o turnlog.Outcome) *ending {
	v := f.Verdict()
	if v.Degraded {
		t.log.Warn("turn degraded by an error", zap.String("class", o.ErrorClass), zap.String("error", o.Error))
		e := t.degraded(stop)
		o.WaitsFor = nil
		e.outcome = o
		return e
	}
	o.Retry, o.Counted, o.Backoff = v.Retry, v.Counted, v.Backoff
	if v.Wait {
		t.log.Warn("the turn waits for a model", zap.String("class", o.ErrorClass), zap.Duration("backoff", o.Backoff),
			zap.String("error", o.Error))
		return &ending{state: turnkeeper.TurnWaiting, outcome: o}
	}
	e := &ending{state: turnkeeper.TurnFailed, stop: stop, outcome: o}
	if !o.Retry {
		e.outcome.WaitsFor = nil
		e.reply = func([]turnkeeper.Round) reply { return failedReply(o.ErrorClass, t.def.Replies) }
	}
	t.log.Warn("turn failed", zap.String("class", o.ErrorClass), zap.Bool("retry", o.Retry),
		zap.Bool("counted", o.Counted),
		zap.Duration("backoff", o.Backoff), zap.String("error", o.Error))
	return e
}

// outOfTime returns the ending of a turn that reached max_duration. If no tool has run,
// there is nothing to report, and the message is retried a limited number of times.
func (t *endings) outOfTime() *ending {
	if t.executed {
		return t.capped(turnkeeper.StopMaxDuration)
	}
	t.logCap("max turn duration reached, completing turn")
	return t.byVerdict(t.failure(FaultTime), turnkeeper.StopMaxDuration, turnlog.Outcome{
		ErrorClass: string(turnkeeper.StopMaxDuration), Error: "max_duration was over before the model answered",
	})
}

// The classes of errors that are not a model's.
const (
	classInternal = "internal"
	classBudget   = "budget"
	classMessage  = "message" // the models fail at the message, and answer others
)

// faultIn returns the Fault of an error that stopped the loop.
func faultIn(err error) Fault {
	if _, ok := errors.AsType[*serviceError](err); ok {
		return FaultService
	}
	e, ok := errors.AsType[*inference.Error](err)
	switch {
	case !ok:
		return FaultInside
	case e.Class == inference.ClassBadOutput:
		return FaultAnswer
	default:
		return FaultMessage
	}
}

func classOf(err error) string {
	if e, ok := errors.AsType[*serviceError](err); ok {
		return e.class
	}
	if _, ok := errors.AsType[*guiltyError](err); ok {
		return classMessage
	}
	if e, ok := errors.AsType[*inference.Error](err); ok {
		return string(e.Class)
	}
	return classInternal
}

// A blockedError is the error of a model call that the budget did not allow.
type blockedError struct{ Reservation }

func (e *blockedError) Error() string { return cmp.Or(e.Reason, "the budget is used up") }

// blocked returns the ending of a turn whose model call the budget did not allow. The turn waits for the next day, with
// its journal, if that day's budget allows the call and no tool with an effect has started.
func (t *endings) blocked(b *blockedError) *ending {
	o := turnlog.Outcome{ErrorClass: classBudget, Error: b.Error()}
	t.log.Warn("model call blocked by the budget", zap.String("scope", b.Scope), zap.String("reason", b.Reason))
	if b.Scope != "day" || b.Never || t.calls.Effected() || t.finishing() {
		return t.byVerdict(t.failure(FaultBound), turnkeeper.StopBudget, o)
	}
	o.Backoff = b.Retry
	if o.Backoff <= 0 {
		o.Backoff = defaultDeferral
	}
	return &ending{state: turnkeeper.TurnQueued, outcome: o}
}

// defaultDeferral is the deferral by a budget that gives no time.
const defaultDeferral = time.Minute

// A silentError means that the model gave no usable answer in the announced last round.
type silentError struct {
	err    error
	finish bool // the round was the last one because the turn was to finish
}

func (e *silentError) Error() string { return e.err.Error() }
func (e *silentError) Unwrap() error { return e.err }

// anyRefused reports whether a call was not run for the reason that its result begins
// with. The journal does not record the reason elsewhere.
func anyRefused(all []turnkeeper.ToolCall, reason string) bool {
	return slices.ContainsFunc(all, func(c turnkeeper.ToolCall) bool { return calls.IsRefused(c, reason) })
}

// isRefusal reports whether a text begins with a reason that anyRefused is called with.
func isRefusal(text string) bool {
	return strings.HasPrefix(text, prompt.ShownNoTime) || strings.HasPrefix(text, calls.OverLimit)
}

// answered returns the ending of a turn whose model answered without calls.
func (t *endings) answered(last turnkeeper.Round) *ending {
	switch {
	case inference.Blank(last.Text): // not an answer, although the provider accepted it
		return t.degraded(turnkeeper.StopInferenceError)
	case slices.ContainsFunc(t.calls.All(), turnkeeper.ToolCall.InDoubt):
		return t.degraded(turnkeeper.StopWorkerLost)
	case slices.ContainsFunc(unreportedEffects(t.calls.Rounds), func(c turnkeeper.ToolCall) bool {
		return c.State != turnkeeper.CallSucceeded
	}):
		t.logCap("a call with an effect failed after the last answer, completing turn")
		return t.degraded(turnkeeper.StopMaxRounds)
	case t.calls.OverLimit():
		return t.capped(turnkeeper.StopMaxToolCalls)
	case inference.FinishOf(last.FinishReason) == inference.FinishFiltered:
		return t.filtered()
	}
	end := succeeded(func([]turnkeeper.Round) reply { return reply{text: last.Text, said: last.Number} })
	if wasFinal(last) && t.finishing() {
		end.stop = turnkeeper.StopFinished
	}
	return end
}

func succeeded(answer func([]turnkeeper.Round) reply) *ending {
	return &ending{state: turnkeeper.TurnSucceeded, stop: turnkeeper.StopNone, reply: answer}
}

// single returns the ending of a turn with `continuation: false` after its only round. The
// reply is the round's text, or else the summary. The turn succeeds, because this is the
// agent's setting.
func (t *endings) single(only turnkeeper.Round) *ending {
	t.log.Warn("tool continuation disabled, completing turn", zap.Int("calls", len(only.Calls)))
	if slices.ContainsFunc(t.calls.All(), turnkeeper.ToolCall.InDoubt) {
		return t.degraded(turnkeeper.StopWorkerLost)
	}
	if inference.FinishOf(only.FinishReason) == inference.FinishFiltered {
		return t.filtered()
	}
	if !inference.Blank(only.Text) {
		return succeeded(func([]turnkeeper.Round) reply { return reply{text: only.Text, said: only.Number} })
	}
	return succeeded(func(rounds []turnkeeper.Round) reply {
		return reply{text: summaryReply(prompt.CallsOf(rounds), turnkeeper.StopNone, t.def.Replies.SummaryOutput)}
	})
}

// filtered returns the ending of a turn whose answer the provider's content filter stopped.
func (t *endings) filtered() *ending {
	t.log.Warn("the provider's content filter stopped the answer, completing turn",
		zap.Int("rounds", len(t.calls.Rounds)))
	end := t.degraded(turnkeeper.StopInferenceError)
	end.outcome.ErrorClass = string(inference.ClassRefused)
	end.outcome.Error = "the provider's content filter stopped the answer"
	return end
}

// capped returns the ending of a turn that reached a bound.
func (t *endings) capped(stop turnkeeper.StopReason) *ending {
	switch stop {
	case turnkeeper.StopMaxRounds:
		t.logCap("max tool rounds reached, completing turn")
	case turnkeeper.StopMaxToolCalls:
		t.logCap("max tool calls reached, completing turn")
	case turnkeeper.StopMaxDuration:
		t.logCap("max turn duration reached, completing turn")
	case turnkeeper.StopFinished:
		t.logCap("the turn was asked to finish, completing turn")
	}
	return t.degraded(stop)
}

// degraded returns an ending whose reply is degradedReply.
func (t *endings) degraded(stop turnkeeper.StopReason) *ending {
	return &ending{state: turnkeeper.TurnDegraded, stop: stop, reply: func(rounds []turnkeeper.Round) reply {
		return degradedReply(rounds, stop, t.def.Replies)
	}}
}

func (t *endings) logCap(message string) {
	t.log.Warn(message,
		zap.Int("rounds", len(t.calls.Rounds)), zap.Int("charged_rounds", prompt.Charged(t.calls.Rounds)),
		zap.Int("max_rounds", t.bounds.MaxRounds),
		zap.Int("executed_calls", t.calls.Executed()), zap.Int("max_tool_calls", t.bounds.MaxToolCalls),
		zap.Duration("max_duration", t.bounds.MaxDuration))
}

// An ending describes how an execution ends.
type ending struct {
	state   turnkeeper.TurnState
	stop    turnkeeper.StopReason
	reply   func([]turnkeeper.Round) reply // called when every call is answered; nil: no reply
	outcome turnlog.Outcome                // error, retry and back-off
}

// Texts for calls and turns that were stopped, and the limit of an error text.
const (
	shownNeverBegan   = "not run: the turn was stopped before this call began."
	maxOperatorErrors = 4000 // characters
)

// logEnd logs the written outcome of this dispatch.
func (t *endings) logEnd(o turnlog.Outcome) {
	switch {
	case o.State == turnkeeper.TurnWaiting && len(o.WaitsFor) > 0: // byVerdict has logged it
	case o.State == turnkeeper.TurnWaiting:
		t.log.Info("turn waits", zap.Int("calls", len(t.calls.Detached())))
	case !o.State.Terminal() && o.Backoff > 0:
		t.log.Info("turn deferred", zap.Duration("backoff", o.Backoff), zap.String("reason", o.Error))
	case !o.State.Terminal():
		t.log.Info("turn handed back", zap.String("reason", o.Error))
	default:
		fields := []zap.Field{
			zap.String("state", string(o.State)), zap.String("continuation_stop_reason", string(o.StopReason)),
			zap.Int("inference_round_count", len(t.calls.Rounds)), zap.Int("calls", len(t.calls.All())),
			zap.Int64("turn_duration_ms", t.duration().Milliseconds()),
		}
		if o.Error != "" {
			fields = append(fields, zap.String("error", o.Error))
		}
		t.log.Info("turn ended", fields...)
	}
}

// duration returns the time from the first grant until now, waits and lost workers included. It uses the database's
// clock for the time before this execution.
func (t *endings) duration() time.Duration {
	turn := t.record.Turn
	return max(turn.GrantedAt.Sub(turn.CreatedAt), 0) + t.record.Elapsed + time.Since(t.clock.began)
}

func endEvent(s turnkeeper.TurnState) turnkeeper.EventType {
	if s == turnkeeper.TurnSucceeded || s == turnkeeper.TurnDegraded {
		return turnkeeper.EventTurnComplete
	}
	return turnkeeper.EventTurnError
}

// outcome returns the outcome of an ending. The reply of a scheduled turn contains only the
// model's answer, and is empty if that is the agent's phrase for nothing to report. The
// model's other texts go into the inner dialogue.
func (t *endings) outcome(e ending) turnlog.Outcome {
	o := e.outcome
	o.State, o.StopReason = e.state, e.stop
	var r reply
	if e.reply != nil {
		r = e.reply(t.calls.Rounds)
	}
	o.Error = firstChars(outputs.Clean(o.Error), maxOperatorErrors)
	if !e.state.Terminal() {
		return o
	}
	r = t.sent(r)
	if t.scheduled() {
		o.InnerDialogue = otherTexts(t.calls.Rounds, r.said)
	}
	o.Reply, o.Silent = r.text, r.silent
	return o
}

// sent returns what is sent of a reply: in a scheduled turn only the model's answer, unless it says that there is
// nothing to report.
func (t *endings) sent(r reply) reply {
	if t.scheduled() && !r.notice && (r.said == 0 || t.def.Quiet(t.calls.Rounds[r.said-1].Text)) {
		return reply{}
	}
	return r
}

// otherTexts returns the model's texts of all rounds except the one of the reply.
func otherTexts(rounds []turnkeeper.Round, reply int) string {
	var said []string
	for _, round := range rounds {
		if round.Number != reply && strings.TrimSpace(round.Text) != "" {
			said = append(said, round.Text)
		}
	}
	return strings.Join(said, "\n\n")
}

func firstChars(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n]) + "…"
}

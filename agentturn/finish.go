package agentturn

import (
	"context"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// An ending is how a dispatch ends.
type ending struct {
	state   turnkeeper.TurnState
	stop    turnkeeper.StopReason
	reply   func([]turnkeeper.Round) string // made when every call is answered; nil: none
	said    int                             // round whose text the reply is; 0: none
	outcome turnkeeper.Outcome              // what else is known: error, retry, back-off
}

// Results of calls that the end of a turn, or of a dispatch, cuts short.
const (
	shownNotRun       = "cancelled: the turn ended before this call was run."
	shownNotBegun     = "not run: the turn was stopped before this call began."
	shownMaybe        = ". It may or may not have happened."
	replyCancelled    = "This turn was cancelled."
	maxOperatorErrors = 4000 // characters
)

// finish writes the outcome, with everything that is still owed.
func (t *turn) finish(ctx context.Context, e ending) (turnkeeper.Outcome, error) {
	t.dropStarts() // before anything is told of what ends now
	t.stopJobs(errOver)
	switch e.state {
	case turnkeeper.TurnWaiting: // nothing is open here
	case turnkeeper.TurnQueued:
		t.handBack()
	default:
		t.closeElsewhere(ctx)
		t.closeCalls()
	}
	t.abandonStream("the turn ended")
	t.keepBeside()
	outcome := t.outcome(e)
	if e.state.Terminal() {
		t.event(endEvent(e.state), 0, 0, TurnEndData{
			State: outcome.State, StopReason: outcome.StopReason, Rounds: len(t.rounds), Calls: len(t.calls()),
			Reply: outcome.Reply, Retry: outcome.Retry,
		})
	}
	t.next.Outcome = &outcome
	if err := t.commit(ctx); err != nil {
		t.next.Outcome = nil
		return turnkeeper.Outcome{}, err
	}
	t.logEnd(outcome)
	return outcome, nil
}

// logEnd says how this dispatch ended, once that is written.
func (t *turn) logEnd(o turnkeeper.Outcome) {
	switch {
	case o.State == turnkeeper.TurnWaiting:
		t.log.Info("turn waits", zap.Int("calls", len(t.elsewhere())))
	case !o.State.Terminal() && o.Backoff > 0:
		t.log.Info("turn put off", zap.Duration("backoff", o.Backoff), zap.String("reason", o.Error))
	case !o.State.Terminal():
		t.log.Info("turn handed back", zap.String("reason", o.Error))
	default:
		fields := []zap.Field{
			zap.String("state", string(o.State)), zap.String("stop_reason", string(o.StopReason)),
			zap.Int("rounds", len(t.rounds)), zap.Int("calls", len(t.calls())),
		}
		if o.Error != "" {
			fields = append(fields, zap.String("error", o.Error))
		}
		t.log.Info("turn ended", fields...)
	}
}

func endEvent(s turnkeeper.TurnState) turnkeeper.EventType {
	if s == turnkeeper.TurnSucceeded || s == turnkeeper.TurnDegraded {
		return turnkeeper.EventTurnComplete
	}
	return turnkeeper.EventTurnError
}

// closeCalls answers every open call: no call is open under a closed turn.
func (t *turn) closeCalls() {
	for _, call := range t.open() {
		switch result, cut := t.interrupted[call.Key]; {
		case cut:
			t.answer(call, t.doubted(call, result))
		case call.State == turnkeeper.CallPlanned:
			t.answer(call, textResult(call, turnkeeper.CallCancelled, shownNotRun))
		default: // a panic came between start and result, or there was no time to settle it
			t.giveVerdict(call)
		}
	}
}

// handBack leaves open what the next dispatch can run again or look up, and
// answers what it could not: a call of effect once that was cut short.
func (t *turn) handBack() {
	for _, call := range t.open() {
		result, cut := t.interrupted[call.Key]
		tool, _ := t.offered.Get(call.Name)
		if _, canTell := tool.(tools.Reconciler); !cut || canTell || call.Effect.Repeatable() {
			continue
		}
		t.answer(call, t.doubted(call, result))
	}
}

// doubted adds to the result of an effect that was cut short what that means.
func (t *turn) doubted(call *turnkeeper.ToolCall, result turnkeeper.CallResult) turnkeeper.CallResult {
	switch {
	case !result.Ran || call.Effect == turnkeeper.EffectNone:
	case WentOn(*call):
		result.Preview = outputs.Preview(result.Preview + shownMaybe)
	default:
		result.Shown += shownMaybe
		result.Preview = outputs.Preview(result.Shown)
	}
	return result
}

// outcome makes the outcome of an ending, with the rules for scheduled turns:
// only what the model says as its answer goes to the outbox, and not where that
// is its agent's word for nothing. Whatever else it said is kept for operators.
func (t *turn) outcome(e ending) turnkeeper.Outcome {
	o := e.outcome
	o.State, o.StopReason = e.state, e.stop
	if e.reply != nil {
		o.Reply = e.reply(t.rounds)
	}
	o.Error = firstChars(outputs.Clean(o.Error), maxOperatorErrors)
	if !e.state.Terminal() {
		return o
	}
	if t.scheduled() {
		if e.said == 0 || t.def.Quiet(o.Reply) {
			o.Reply, e.said = "", 0
		}
		o.InnerDialogue = t.saidBeside(e.said)
	}
	return o
}

// saidBeside is what the model said in all rounds but the one of the reply.
func (t *turn) saidBeside(reply int) string {
	var said []string
	for _, round := range t.rounds {
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

// says is the reply of a fixed text.
func says(text string) func([]turnkeeper.Round) string {
	return func([]turnkeeper.Round) string { return text }
}

func summaryOf(rounds []turnkeeper.Round) string { return Summary(callsOf(rounds)) }

package agentturn

import (
	"context"
	"strings"
	"time"
	"turnkeeper/agentturn/prompt"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// An ending is how a dispatch ends.
type ending struct {
	state   turnkeeper.TurnState
	stop    turnkeeper.StopReason
	reply   func([]turnkeeper.Round) reply // called once every call is answered; nil: no reply
	outcome turnkeeper.Outcome             // what else is known: error, retry, back-off
}

// Results of calls that are cut short by the end of a turn or of a dispatch.
const (
	shownNotBegun     = "not run: the turn was stopped before this call began."
	shownMaybe        = ". It may or may not have happened."
	replyCancelled    = "This turn was cancelled."
	maxOperatorErrors = 4000 // characters
)

// finish writes the outcome together with everything not yet written.
func (t *execution) finish(ctx context.Context, e ending) (turnkeeper.Outcome, error) {
	if t.pending.dropStarts() { // before the events of the end are added
		t.events.Rewind()
	}
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
	outcome := t.endings().outcome(e)
	if e.state.Terminal() {
		t.events.Event(endEvent(e.state), 0, 0, transcript.TurnEndData{
			State: outcome.State, StopReason: outcome.StopReason, Rounds: len(t.rounds), Calls: len(t.rounds.all()),
			Reply: outcome.Reply, Retry: outcome.Retry,
		})
	}
	t.pending.Outcome = &outcome
	if err := t.commit(ctx); err != nil {
		t.pending.Outcome = nil
		return turnkeeper.Outcome{}, err
	}
	t.endings().logEnd(outcome)
	return outcome, nil
}

// logEnd logs how this dispatch ended, once that is written.
func (t *endings) logEnd(o turnkeeper.Outcome) {
	switch {
	case o.State == turnkeeper.TurnWaiting:
		t.log.Info("turn waits", zap.Int("calls", len(t.rounds.detached())))
	case !o.State.Terminal() && o.Backoff > 0:
		t.log.Info("turn put off", zap.Duration("backoff", o.Backoff), zap.String("reason", o.Error))
	case !o.State.Terminal():
		t.log.Info("turn handed back", zap.String("reason", o.Error))
	default:
		fields := []zap.Field{
			zap.String("state", string(o.State)), zap.String("continuation_stop_reason", string(o.StopReason)),
			zap.Int("inference_round_count", len(t.rounds)), zap.Int("calls", len(t.rounds.all())),
			zap.Int64("turn_duration_ms", t.duration().Milliseconds()),
		}
		if o.Error != "" {
			fields = append(fields, zap.String("error", o.Error))
		}
		t.log.Info("turn ended", fields...)
	}
}

// duration returns the time from the first grant until now. The part before this dispatch
// is by the database's clock.
func (t *task) duration() time.Duration {
	turn := t.record.Turn
	return max(turn.GrantedAt.Sub(turn.CreatedAt), 0) + t.record.Elapsed + time.Since(t.loaded)
}

func endEvent(s turnkeeper.TurnState) turnkeeper.EventType {
	if s == turnkeeper.TurnSucceeded || s == turnkeeper.TurnDegraded {
		return turnkeeper.EventTurnComplete
	}
	return turnkeeper.EventTurnError
}

// closeCalls answers every open call: a closed turn must have none.
func (t *execution) closeCalls() {
	for _, call := range t.rounds.open() {
		switch result, cut := t.interrupted[call.Key]; {
		case cut:
			t.answer(call, t.doubted(call, result))
		case call.State == turnkeeper.CallPlanned:
			t.answer(call, textResult(call, turnkeeper.CallCancelled, prompt.ShownNotRun))
		default: // a panic came between start and result, or there was no time to settle it
			t.giveVerdict(call)
		}
	}
}

// handBack leaves calls open that the next dispatch can run again or look up. It
// answers the others: calls of effect once that were cut short.
func (t *execution) handBack() {
	for _, call := range t.rounds.open() {
		result, cut := t.interrupted[call.Key]
		tool, _ := t.offered.Get(call.Name)
		if _, canTell := tool.(tools.Reconciler); !cut || canTell || call.Effect.Repeatable() {
			continue
		}
		t.answer(call, t.doubted(call, result))
	}
}

// doubted adds a note to the result of an effect that was cut short: it may or may not have happened.
func (t *execution) doubted(call *turnkeeper.ToolCall, result turnkeeper.CallResult) turnkeeper.CallResult {
	switch {
	case !result.Ran || call.Effect == turnkeeper.EffectNone:
	case prompt.WentOn(*call):
		result.Preview = outputs.Preview(result.Preview + shownMaybe)
	default:
		result.Shown += shownMaybe
		result.Preview = outputs.Preview(result.Shown)
	}
	return result
}

// outcome makes the outcome of an ending. For a scheduled turn, only the model's answer
// goes into the outbox, and only if it is not the agent's word for having nothing to
// tell. Everything else the model said is kept for operators.
func (t *endings) outcome(e ending) turnkeeper.Outcome {
	o := e.outcome
	o.State, o.StopReason = e.state, e.stop
	var r reply
	if e.reply != nil {
		r = e.reply(t.rounds)
	}
	o.Error = firstChars(outputs.Clean(o.Error), maxOperatorErrors)
	if !e.state.Terminal() {
		return o
	}
	if t.scheduled() {
		if r.said == 0 || t.def.Quiet(t.rounds[r.said-1].Text) {
			r = reply{}
		}
		o.InnerDialogue = saidBeside(t.rounds, r.said)
	}
	o.Reply, o.Silent = r.text, r.silent
	return o
}

// saidBeside returns what the model said in all rounds except the one of the reply.
func saidBeside(rounds []turnkeeper.Round, reply int) string {
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

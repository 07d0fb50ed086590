package agentturn

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/asks"
	"turnkeeper/policy"
)

// see records that the turn has seen the answers given since its last execution.
func (e *execution) see() {
	for _, a := range e.calls.Asks.That(calls.IsUnseen) {
		e.pending.Seen = append(e.pending.Seen, a.ID)
		e.events.Event(turnkeeper.EventAskClosed, a.Call.Round, 0, turnevents.OfAsk(a))
	}
}

// extensions counts the approvals to continue after the budget was used up.
func extensions(all []asks.Ask) (n int64) {
	for _, a := range all {
		if a.Kind == asks.KindBudget && a.State == asks.Approved {
			n++
		}
	}
	return n
}

// put adds an ask to the next write.
func (s *turnState) put(q asks.Question) {
	q.Terms = s.def.Terms()
	ask := asks.Ask{Question: q, Turn: s.record.Turn.ID, State: asks.Open}
	s.calls.Open(ask)
	s.events.Event(turnkeeper.EventAskOpened, q.Call.Round, 0, turnevents.OfAsk(ask))
	s.pending.Asks = append(s.pending.Asks, q)
	s.log.Info("asking a person", zap.Stringer("call", q.Call), zap.String("kind", string(q.Kind)),
		zap.String("tool", q.Tool), zap.String("reason", q.Reason))
}

// withdraw withdraws the open asks about a call that was answered without them.
func (s *turnState) withdraw(call *calls.Call) {
	gone := s.calls.Withdraw(call)
	if len(gone) == 0 {
		return
	}
	for _, a := range gone {
		s.events.Event(turnkeeper.EventAskClosed, call.Key.Round, 0, turnevents.OfAsk(a))
	}
	s.pending.Asks = slices.DeleteFunc(s.pending.Asks, func(q asks.Question) bool { return q.Call == call.Key })
	s.pending.Withdrawn = append(s.pending.Withdrawn, call.Key)
}

// putAll adds an ask about a call, and those for the approval of later calls of its answer that will need one, so that
// a person sees them together.
func (e *execution) putAll(ctx context.Context, call *calls.Call, q asks.Question) {
	e.put(q)
	if q.Kind != asks.KindApprove {
		return
	}
	hashes := []string{call.ArgsHash}
	for _, next := range e.calls.Unanswered() {
		switch {
		case next.State != turnkeeper.CallPlanned || next.Key == call.Key || next.Asks.Approval() != nil:
		case next.ChangesNothing() || next.Handles || slices.Contains(hashes, next.ArgsHash):
			// its arguments may still change, or it may be answered with the result of an equal call
		default:
			if d := e.rules.rule(ctx, next); d.Verdict == policy.Ask {
				e.put(next.Question(asks.KindApprove, 1, d))
			}
		}
		hashes = append(hashes, next.ArgsHash)
	}
}

// waitForPerson suspends the turn, once nothing runs in the background. It takes the results that have arrived, because
// a turn that has not taken one cannot wait: it would be granted again and again until the person answers.
func (e *execution) waitForPerson(ctx context.Context) error {
	if len(e.calls.Runs()) == 0 {
		if err := e.executor.takeCompleted(ctx); err != nil {
			return err
		}
		e.end = e.waiting()
		return nil
	}
	if err := e.commit(ctx); err != nil { // shows the ask
		return err
	}
	return e.executor.awaitRun(ctx)
}

// askToGoOn asks whether the turn may continue although its budget is used up. asked is false if a person declined, or
// nobody answered in time.
func (e *execution) askToGoOn(ctx context.Context, blocked *blockedError) (asked bool, err error) {
	key := turnkeeper.CallKey{Round: len(e.calls.Rounds) + 1}
	earlier := e.calls.AsksAbout(key.Round, asks.KindBudget)
	for _, ask := range earlier {
		if ask.State == asks.Denied || ask.State == asks.Expired {
			return false, nil
		}
	}
	if err := e.executor.awaitRuns(ctx, true); err != nil {
		return false, err
	}
	e.put(asks.Question{Call: key, Kind: asks.KindBudget, N: len(earlier) + 1, Arguments: "{}",
		Reason: blocked.Error()})
	e.end = e.waiting()
	return true, nil
}

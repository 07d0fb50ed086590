package agentturn

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// see records that the turn has seen the answers given since its last execution.
func (l *ledger) see() {
	for _, a := range l.calls.UnseenAsks() {
		l.pending.Seen = append(l.pending.Seen, a.ID)
		l.events.Event(turnkeeper.EventAskClosed, a.Call.Round, 0, transcript.OfAsk(a))
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
func (l *ledger) put(q asks.Question) {
	q.Terms = l.def.Terms()
	ask := asks.Ask{Question: q, Turn: l.record.Turn.ID, State: asks.Open}
	l.calls.Open(ask)
	l.events.Event(turnkeeper.EventAskOpened, q.Call.Round, 0, transcript.OfAsk(ask))
	l.pending.Asks = append(l.pending.Asks, q)
	l.log.Info("asking a person", zap.Stringer("call", q.Call), zap.String("kind", string(q.Kind)), zap.String("tool", q.Tool), zap.String("reason", q.Reason))
}

// withdraw withdraws the open asks about a call that was answered without them.
func (l *ledger) withdraw(call *calls.Call) {
	gone := l.calls.Withdraw(call)
	if len(gone) == 0 {
		return
	}
	for _, a := range gone {
		l.events.Event(turnkeeper.EventAskClosed, call.Key.Round, 0, transcript.OfAsk(a))
	}
	l.pending.Asks = slices.DeleteFunc(l.pending.Asks, func(q asks.Question) bool { return q.Call == call.Key })
	l.pending.Withdrawn = append(l.pending.Withdrawn, call.Key)
}

// ruling returns the decision of the rules about a call. Its handles must be resolved.
func (l *ledger) ruling(ctx context.Context, call *calls.Call) policy.Decision {
	if call.Ruling != nil {
		return *call.Ruling
	}
	if call.Spec.Paging || call.Name == turnkeeper.ToolAskPerson { // they change nothing
		return policy.Decision{Verdict: policy.Allow}
	}
	d := l.decideCall(ctx, call)
	if call.Gate && d.Verdict == policy.Allow {
		d = policy.Decision{Verdict: policy.Ask, Reason: "the rules at the time of the plan asked; they have changed since"}
	}
	call.Ruling = &d
	return d
}

// decideCall returns the decision of the rules about a call with the arguments with which it would run now. Of the agent's newest
// definition only what it denies counts.
func (l *ledger) decideCall(ctx context.Context, call *calls.Call) policy.Decision {
	about := policy.Call{
		Tool: call.Name, Arguments: call.Args(), Effect: call.Effect, Agent: l.record.Turn.Agent,
		User: l.record.Turn.User, Conversation: l.record.Turn.Conversation, Trigger: l.record.Turn.Trigger,
		Labels: l.calls.LabelsOf(call),
	}
	d := policy.Strictest(l.decideByRules(l.def, call.Spec, about), l.decideByTool(ctx, call))
	if l.newest != nil {
		if now := l.decideByRules(l.newest, call.Spec, about); now.Verdict == policy.Deny {
			d = policy.Strictest(d, now)
		}
	}
	return policy.Strictest(d, call.Spec.Flow.Decide(about))
}

// decideByRules returns the strictest decision of the rules of a definition for a call. The agent's rule for the tool replaces
// the tool's own rule and the agent's rule for all tools. The rule of the settings always applies.
func (t *task) decideByRules(def *agentdef.Definition, spec tools.Spec, call policy.Call) policy.Decision {
	general := t.cfg.Rules.Decide(t.cfg.Approve, call)
	if rule := def.Approve[call.Tool]; rule != "" {
		return policy.Strictest(t.cfg.Rules.Decide(rule, call), general)
	}
	d := policy.Strictest(t.cfg.Rules.Decide(spec.Approve, call), t.cfg.Rules.Decide(def.Approve[policy.AllTools], call))
	return policy.Strictest(d, general)
}

// decideByTool returns the decision of a tools.Approver. Other tools allow the call.
func (l *ledger) decideByTool(ctx context.Context, call *calls.Call) (d policy.Decision) {
	approver, ok := call.Tool.(tools.Approver)
	if !ok {
		return d
	}
	err := l.guard(func() (err error) {
		d, err = approver.Approve(ctx, l.toolCall(call, nil, &toolrun.Meter{}))
		return err
	})
	if err != nil {
		return policy.Decision{Verdict: policy.Ask, Rule: d.Rule, Reason: "the tool could not decide: " + err.Error()}
	}
	return d
}

// gatesOf returns the planned calls that certainly need an approval. Calls with handles are decided after their handles are
// resolved.
func (l *ledger) gatesOf(ctx context.Context, made []*calls.Call) (keys []turnkeeper.CallKey) {
	for _, call := range made {
		if call.State != turnkeeper.CallPlanned {
			continue
		}
		always := cmp.Or(l.def.Approve[call.Name], call.Spec.Approve) == policy.Always
		if always || !call.Handles && l.ruling(ctx, call).Verdict == policy.Ask {
			call.Gate = true
			keys = append(keys, call.Key)
		}
	}
	return keys
}

// mayAsk reports whether a call cannot run without a person, or cannot run at all.
func (l *ledger) mayAsk(ctx context.Context, call *calls.Call) bool {
	return call.Name == turnkeeper.ToolAskPerson || call.Approval() != nil || l.ruling(ctx, call).Verdict != policy.Allow
}

// pass reports whether a call may start. If not, it answers the call or waits for a person. Its handles must be resolved.
func (e *execution) pass(ctx context.Context, call *calls.Call) (cleared bool, err error) {
	if call.AwaitsInput() {
		return e.passInput(ctx, call)
	}
	ask := call.Approval()
	if call.State == turnkeeper.CallStarted && !call.Effect.Repeatable() {
		cleared, err := e.settle(ctx, call)
		return cleared && e.mayStart(ctx, call), err
	}
	if ask == nil {
		if call.State != turnkeeper.CallPlanned {
			return true, nil
		}
		if call.Ruling == nil && !call.Spec.Paging {
			e.agree(call, calls.Rule)
		}
		switch d := e.ruling(ctx, call); d.Verdict {
		case policy.Deny:
			e.agree(call, calls.Answer, calls.ShownRefused(d))
			e.answer(call, call.Result(turnkeeper.CallDenied, calls.ShownRefused(d)))
			return false, nil
		case policy.Ask:
			e.agree(call, calls.Ask, d.Reason+string(call.Spec.Parameters))
			e.askAbout(ctx, call, d)
			return false, e.waitForPerson(ctx)
		default:
			return true, nil
		}
	}
	switch ask.State {
	case asks.Open:
		e.agree(call, calls.Wait)
		return false, e.waitForPerson(ctx)
	case asks.Approved:
		return e.useApproval(call, ask) && e.mayStart(ctx, call), nil
	default:
		e.agree(call, calls.Answer, calls.ShownNotApproved(ask))
		e.answer(call, call.Result(turnkeeper.CallDenied, calls.ShownNotApproved(ask)))
		return false, nil
	}
}

// useApproval sets the arguments of a call to the approved ones. If the call cannot run with them, it answers the call and
// returns false.
func (l *ledger) useApproval(call *calls.Call, ask *asks.Ask) (ok bool) {
	if ask.Edited != "" {
		if fault := l.offered.CheckAsWritten(call.Name, ask.Edited); fault != "" {
			l.agreeIn(l.shadow, call, calls.Answer, turnlog.Denied+turnlog.RefusedEdit+": "+fault)
			l.answer(call, call.Result(turnkeeper.CallDenied, turnlog.Denied+turnlog.RefusedEdit+": "+fault))
			return false
		}
		call.UseEdited()
	}
	if call.RunHash() == ask.RunHash() {
		return true
	}
	if call.State == turnkeeper.CallPlanned {
		l.agreeIn(l.shadow, call, calls.Answer, "denied: the arguments of this call are no longer those that were approved. Nothing was run.")
		l.answer(call, call.Result(turnkeeper.CallDenied, "denied: the arguments of this call are no longer those that were approved. Nothing was run."))
	} else {
		l.agreeIn(l.shadow, call, calls.Doubt)
		l.markUnknown(call)
	}
	return false
}

// askAbout asks for the approval of a call, and of later calls of its answer that will need one, so that a person sees
// them together.
func (l *ledger) askAbout(ctx context.Context, call *calls.Call, d policy.Decision) {
	l.put(call.Question(asks.KindApprove, 1, d))
	hashes := []string{call.ArgsHash}
	for _, next := range l.calls.Unanswered() {
		switch {
		case next.State != turnkeeper.CallPlanned || next.Key == call.Key || next.Approval() != nil:
		case next.Paging || next.Name == turnkeeper.ToolAskPerson || next.Handles || slices.Contains(hashes, next.ArgsHash):
			// its arguments may still change, or it may be answered with the result of an equal call
		default:
			if d := l.ruling(ctx, next); d.Verdict == policy.Ask {
				l.put(next.Question(asks.KindApprove, 1, d))
			}
		}
		hashes = append(hashes, next.ArgsHash)
	}
}

// waitForPerson suspends the turn, once nothing runs in the background. It takes the results that have arrived, because a turn that
// has not taken one cannot wait: it would be granted again and again until the person answers.
func (e *execution) waitForPerson(ctx context.Context) error {
	if len(e.calls.Runs()) == 0 {
		if err := e.takeCompleted(ctx); err != nil {
			return err
		}
		e.end = e.waiting()
		return nil
	}
	if err := e.commit(ctx); err != nil { // shows the ask
		return err
	}
	return e.awaitRun(ctx)
}

const settleSchema = `{"enum":["happened","did_not_happen","unknown"],"description":"Whether the call happened. After did_not_happen it runs again."}`

// A settleStep is what becomes of a started call of effect once without a result.
type settleStep string

const (
	settleAsk      settleStep = "ask"   // a person
	settleAwait    settleStep = "await" // the answer of a person who was asked
	settleHappened settleStep = "happened"
	settleStart    settleStep = "start" // again
	settleUnknown  settleStep = "unknown"
)

// settleStepOf decides by the ask about the newest start of a call, nil if there is none. settles reports whether a person is to
// decide, and hash is that of the arguments with which the call would run.
func settleStepOf(ask *asks.Ask, settles bool, hash string) settleStep {
	switch {
	case ask == nil && settles:
		return settleAsk
	case ask == nil:
		return settleUnknown
	case !ask.Closed():
		return settleAwait
	case ask.Answer == asks.Happened:
		return settleHappened
	case ask.Answer == asks.DidNotHappen && ask.Hash == hash:
		return settleStart
	default:
		return settleUnknown
	}
}

// settle decides about a started call of effect once without a result. If the agent's on_unknown is ask, a person decides.
// cleared is true if the call did not happen and may start again.
func (e *execution) settle(ctx context.Context, call *calls.Call) (cleared bool, err error) {
	ask := call.Settlement()
	call.UseEdited()
	switch settleStepOf(ask, e.def.Settles(), call.RunHash()) {
	case settleAsk:
		q := call.Question(asks.KindSettle, call.Starts, policy.Decision{
			Reason: cmp.Or(call.Doubt, "the worker that ran this call was lost, and its outcome is unknown"),
		})
		q.Schema = settleSchema
		e.agree(call, calls.Ask, q.Reason+q.Schema)
		e.put(q)
		return false, e.waitForPerson(ctx)
	case settleAwait:
		e.agree(call, calls.Wait)
		return false, e.waitForPerson(ctx)
	case settleHappened:
		result := call.Result(turnkeeper.CallSucceeded, calls.WithComment("A person says that this call happened. Its result was lost.", ask))
		result.Ran = true
		e.agree(call, calls.Answer, result.Shown)
		e.answer(call, result)
	case settleStart:
		return true, nil
	default:
		e.agree(call, calls.Doubt)
		e.markUnknown(call)
	}
	return false, nil
}

// personArguments are the arguments of ToolAskPerson.
type personArguments struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

// askPerson puts the model's question to a person. If there is an answer already, it becomes the call's result.
func (e *execution) askPerson(ctx context.Context, call *calls.Call) error {
	ask := call.Ask(asks.KindQuestion, 1)
	switch {
	case ask == nil:
		var args personArguments
		if err := json.Unmarshal(call.Args(), &args); err != nil { // cannot happen: they are checked
			return err
		}
		q := call.Question(asks.KindQuestion, 1, policy.Decision{Reason: args.Question})
		schema := map[string]any{"type": "string"}
		if len(args.Options) > 0 {
			schema["enum"] = args.Options
		}
		q.Schema = string(prompt.Canonical(schema))
		e.agree(call, calls.Ask, q.Reason+q.Schema)
		e.put(q)
		return e.waitForPerson(ctx)
	case ask.State == asks.Open:
		e.agree(call, calls.Wait)
		return e.waitForPerson(ctx)
	case ask.State == asks.Answered:
		text := ask.Answer
		var plain string
		if json.Unmarshal([]byte(text), &plain) == nil {
			text = plain
		}
		e.agree(call, calls.Take, calls.WithComment(text, ask))
		result := e.callResult(call, tools.Result{Text: calls.WithComment(text, ask)}, call.OutputID)
		result.State, result.Ran = turnkeeper.CallSucceeded, true
		e.answer(call, result)
	case ask.State == asks.Denied:
		e.agree(call, calls.Answer, calls.WithComment("no answer: a person declined to answer this question.", ask))
		e.answer(call, call.Result(turnkeeper.CallDenied, calls.WithComment("no answer: a person declined to answer this question.", ask)))
	default:
		e.agree(call, calls.Answer, "no answer: nobody answered this question in time.")
		e.answer(call, call.Result(turnkeeper.CallDenied, "no answer: nobody answered this question in time."))
	}
	return nil
}

// askToGoOn asks whether the turn may continue although its budget is used up. asked is false if a person declined, or nobody
// answered in time.
func (e *execution) askToGoOn(ctx context.Context, blocked *blockedError) (asked bool, err error) {
	key := turnkeeper.CallKey{Round: len(e.calls.Rounds) + 1}
	earlier := e.calls.AsksAbout(key.Round, asks.KindBudget)
	for _, ask := range earlier {
		if ask.State == asks.Denied || ask.State == asks.Expired {
			return false, nil
		}
	}
	if err := e.awaitRuns(ctx, true); err != nil {
		return false, err
	}
	e.put(asks.Question{Call: key, Kind: asks.KindBudget, N: len(earlier) + 1, Arguments: "{}", Reason: blocked.Error()})
	e.end = e.waiting()
	return true, nil
}

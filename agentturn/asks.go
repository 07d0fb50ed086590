package agentturn

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/asks"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// people holds the asks of a turn: those of its record, and those that it has opened since. Answers arrive with the
// record of the next dispatch.
type people struct {
	asks      []asks.Ask
	gates     map[turnkeeper.CallKey]bool // calls that may start only with an approval
	decisions map[turnkeeper.CallKey]policy.Decision
	doubts    map[turnkeeper.CallKey]string // why the outcome of a call is unknown
}

func newPeople(r *turnlog.Record) people {
	p := people{
		asks: slices.Clone(r.Asks), gates: map[turnkeeper.CallKey]bool{}, decisions: map[turnkeeper.CallKey]policy.Decision{},
		doubts: map[turnkeeper.CallKey]string{},
	}
	for _, key := range r.Gates {
		p.gates[key] = true
	}
	return p
}

// of returns the nth ask of a kind about a call, or nil.
func (p *people) of(key turnkeeper.CallKey, kind asks.Kind, n int) *asks.Ask {
	i := slices.IndexFunc(p.asks, func(a asks.Ask) bool { return a.Call == key && a.Kind == kind && a.N == n })
	if i < 0 {
		return nil
	}
	return &p.asks[i]
}

// approval returns the ask for the approval of a call, or nil.
func (p *people) approval(key turnkeeper.CallKey) *asks.Ask { return p.of(key, asks.KindApprove, 1) }

// settlement returns the ask about the newest start of a call, or nil.
func (p *people) settlement(call *turnkeeper.ToolCall) *asks.Ask {
	return p.of(call.Key, asks.KindSettle, call.Starts)
}

// open returns the open asks.
func (p *people) open() []asks.Ask {
	return slices.DeleteFunc(slices.Clone(p.asks), asks.Ask.Closed)
}

// unseen returns the closed asks that the turn has not recorded as seen.
func (p *people) unseen() []asks.Ask {
	return slices.DeleteFunc(slices.Clone(p.asks), func(a asks.Ask) bool { return !a.Closed() || a.Seen })
}

// see records that the turn has seen the answers given since its last execution.
func (l approvals) see() {
	for _, a := range l.people.unseen() {
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

// rulings decide about the calls of a turn by rules.
type rulings struct{ *ledger }

// approvals connect the calls of a turn with their asks.
type approvals struct{ *ledger }

// A gate holds an execution at calls that need a person.
type gate struct{ *execution }

// put adds an ask to the next write.
func (l *ledger) put(q asks.Question) {
	q.Terms = l.def.Terms()
	ask := asks.Ask{Question: q, Turn: l.record.Turn.ID, State: asks.Open}
	l.people.asks = append(l.people.asks, ask)
	l.events.Event(turnkeeper.EventAskOpened, q.Call.Round, 0, transcript.OfAsk(ask))
	l.pending.Asks = append(l.pending.Asks, q)
	l.log.Info("asking a person", zap.Stringer("call", q.Call), zap.String("kind", string(q.Kind)), zap.String("tool", q.Tool), zap.String("reason", q.Reason))
}

// withdraw withdraws the open asks about a call that was answered without them.
func (l *ledger) withdraw(key turnkeeper.CallKey) {
	open := func(a asks.Ask) bool { return a.Call == key && !a.Closed() }
	if !slices.ContainsFunc(l.people.asks, open) {
		return
	}
	for _, a := range l.people.asks {
		if open(a) {
			a.State = asks.Withdrawn
			l.events.Event(turnkeeper.EventAskClosed, key.Round, 0, transcript.OfAsk(a))
		}
	}
	l.people.asks = slices.DeleteFunc(l.people.asks, open)
	l.pending.Asks = slices.DeleteFunc(l.pending.Asks, func(q asks.Question) bool { return q.Call == key })
	l.pending.Withdrawn = append(l.pending.Withdrawn, key)
}

// ruling returns the decision of the rules about a call. Its handles must be resolved.
func (l rulings) ruling(ctx context.Context, call *turnkeeper.ToolCall) policy.Decision {
	if d, known := l.people.decisions[call.Key]; known {
		return d
	}
	if spec, _ := l.offered.Spec(call.Name); spec.Paging || call.Name == turnkeeper.ToolAskPerson { // they change nothing
		return policy.Decision{Verdict: policy.Allow}
	}
	d := l.decide(ctx, call)
	if l.people.gates[call.Key] && d.Verdict == policy.Allow {
		d = policy.Decision{Verdict: policy.Ask, Reason: "the rules at the time of the plan asked; they have changed since"}
	}
	l.people.decisions[call.Key] = d
	return d
}

// decide returns the decision of the rules about a call with the arguments with which it would run now. Of the agent's newest
// definition only what it denies counts.
func (l rulings) decide(ctx context.Context, call *turnkeeper.ToolCall) policy.Decision {
	spec, _ := l.offered.Spec(call.Name)
	about := policy.Call{
		Tool: call.Name, Arguments: l.argumentsOf(call), Effect: call.Effect, Agent: l.record.Turn.Agent,
		User: l.record.Turn.User, Conversation: l.record.Turn.Conversation, Trigger: l.record.Turn.Trigger,
		Labels: flows(l).marksOf(call),
	}
	d := policy.Strictest(l.decideByRules(l.def, spec, about), l.decideByTool(ctx, call))
	if l.newest != nil {
		if now := l.decideByRules(l.newest, spec, about); now.Verdict == policy.Deny {
			d = policy.Strictest(d, now)
		}
	}
	return policy.Strictest(d, spec.Flow.Decide(about))
}

// decideByRules returns the strictest decision of the rules of a definition for a call. The agent's rule for the tool replaces
// the tool's own rule and the agent's rule for all tools. The rule of the settings always applies.
func (l rulings) decideByRules(def *agentdef.Definition, spec tools.Spec, call policy.Call) policy.Decision {
	general := l.cfg.Rules.Decide(l.cfg.Approve, call)
	if rule := def.Approve[call.Tool]; rule != "" {
		return policy.Strictest(l.cfg.Rules.Decide(rule, call), general)
	}
	d := policy.Strictest(l.cfg.Rules.Decide(spec.Approve, call), l.cfg.Rules.Decide(def.Approve[policy.AllTools], call))
	return policy.Strictest(d, general)
}

// decideByTool returns the decision of a tools.Approver. Other tools allow the call.
func (l rulings) decideByTool(ctx context.Context, call *turnkeeper.ToolCall) (d policy.Decision) {
	tool, _ := l.offered.Get(call.Name)
	approver, ok := tool.(tools.Approver)
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
func (l rulings) gatesOf(ctx context.Context, calls []turnkeeper.ToolCall) (keys []turnkeeper.CallKey) {
	for i := range calls {
		call := &calls[i]
		if call.State != turnkeeper.CallPlanned {
			continue
		}
		spec, _ := l.offered.Spec(call.Name)
		always := cmp.Or(l.def.Approve[call.Name], spec.Approve) == policy.Always
		if always || !l.offered.HasHandles(call) && l.ruling(ctx, call).Verdict == policy.Ask {
			l.people.gates[call.Key] = true
			keys = append(keys, call.Key)
		}
	}
	return keys
}

// mayAsk reports whether a call cannot run without a person, or cannot run at all.
func (l rulings) mayAsk(ctx context.Context, call *turnkeeper.ToolCall) bool {
	return call.Name == turnkeeper.ToolAskPerson || l.people.approval(call.Key) != nil || l.ruling(ctx, call).Verdict != policy.Allow
}

// newStart returns the start of a call, with the ask whose approval it uses.
func (l approvals) newStart(call *turnkeeper.ToolCall) turnlog.CallStart {
	start := startOf(call)
	start.RunArgs, start.ArgsHash = l.asRun(call)
	ask := l.people.approval(call.Key)
	if ask != nil || l.people.gates[call.Key] {
		start.Hash = l.runHash(call)
	}
	if ask != nil && start.Attempt == 1 {
		start.Ask = ask.ID
	}
	if ask := l.people.settlement(call); ask != nil {
		start.Ask, start.Hash = ask.ID, l.runHash(call)
	}
	return start
}

// approved returns the arguments with which a call would run now: the text of the person who changed them, else as they are.
func (l approvals) approved(call *turnkeeper.ToolCall) string {
	if ask := l.people.approval(call.Key); ask != nil && ask.Edited != "" {
		return ask.Edited
	}
	return string(l.argumentsOf(call))
}

// runHash returns the hash of approved.
func (l approvals) runHash(call *turnkeeper.ToolCall) string {
	return tools.Hash(call.Name, l.approved(call))
}

// pass reports whether a call may start. If not, it answers the call or waits for a person. Its handles must be resolved.
func (e gate) pass(ctx context.Context, call *turnkeeper.ToolCall) (cleared bool, err error) {
	if e.people.awaitsInput(call) {
		return e.passInput(ctx, call)
	}
	ask := e.people.approval(call.Key)
	if call.State == turnkeeper.CallStarted && !call.Effect.Repeatable() {
		cleared, err := e.settle(ctx, call)
		return cleared && (approvals{e.ledger}).mayStart(ctx, call), err
	}
	if ask == nil {
		if call.State != turnkeeper.CallPlanned {
			return true, nil
		}
		switch d := (rulings{e.ledger}).ruling(ctx, call); d.Verdict {
		case policy.Deny:
			e.answer(call, textResult(call, turnkeeper.CallDenied, shownRefused(d)))
			return false, nil
		case policy.Ask:
			approvals{e.ledger}.askAbout(ctx, call, d)
			return false, e.waitForPerson(ctx)
		default:
			return true, nil
		}
	}
	switch ask.State {
	case asks.Open:
		return false, e.waitForPerson(ctx)
	case asks.Approved:
		l := approvals{e.ledger}
		return l.useApproval(call, ask) && l.mayStart(ctx, call), nil
	default:
		e.answer(call, textResult(call, turnkeeper.CallDenied, shownNotApproved(ask)))
		return false, nil
	}
}

// useApproval sets the arguments of a call to the approved ones. If the call cannot run with them, it answers the call and
// returns false.
func (l approvals) useApproval(call *turnkeeper.ToolCall, ask *asks.Ask) (ok bool) {
	if ask.Edited != "" {
		if fault := l.offered.CheckAsWritten(call.Name, ask.Edited); fault != "" {
			l.answer(call, textResult(call, turnkeeper.CallDenied, turnlog.Denied+turnlog.RefusedEdit+": "+fault))
			return false
		}
		l.useEdited(call)
	}
	if l.runHash(call) == ask.RunHash() {
		return true
	}
	if call.State == turnkeeper.CallPlanned {
		l.answer(call, textResult(call, turnkeeper.CallDenied, "denied: the arguments of this call are no longer those that were approved. Nothing was run."))
	} else {
		l.markUnknown(call)
	}
	return false
}

// askAbout asks for the approval of a call, and of later calls of its answer that will need one, so that a person sees
// them together.
func (l approvals) askAbout(ctx context.Context, call *turnkeeper.ToolCall, d policy.Decision) {
	l.put(l.question(call, asks.KindApprove, 1, d))
	hashes := []string{call.ArgsHash}
	for _, next := range l.rounds.open() {
		switch {
		case next.State != turnkeeper.CallPlanned || next.Key == call.Key || l.people.approval(next.Key) != nil:
		case next.Paging || next.Name == turnkeeper.ToolAskPerson || l.offered.HasHandles(next) || slices.Contains(hashes, next.ArgsHash):
			// its arguments may still change, or it may be answered with the result of an equal call
		default:
			if d := rulings(l).ruling(ctx, next); d.Verdict == policy.Ask {
				l.put(l.question(next, asks.KindApprove, 1, d))
			}
		}
		hashes = append(hashes, next.ArgsHash)
	}
}

func (l approvals) question(call *turnkeeper.ToolCall, kind asks.Kind, n int, d policy.Decision) asks.Question {
	q := asks.Question{Call: call.Key, Kind: kind, N: n, Tool: call.Name, Arguments: l.approved(call), Rule: d.Rule, Reason: d.Reason}
	if spec, ok := l.offered.Spec(call.Name); ok && kind == asks.KindApprove {
		q.Schema = string(spec.Parameters)
	}
	return q
}

// waitForPerson suspends the turn, once nothing runs in the background. It takes the results that have arrived, because a turn that
// has not taken one cannot wait: it would be granted again and again until the person answers.
func (e *execution) waitForPerson(ctx context.Context) error {
	if len(e.background) == 0 {
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

// useEdited gives a started call the arguments with which it ran, if a person has changed them.
func (l approvals) useEdited(call *turnkeeper.ToolCall) {
	if ask := l.people.approval(call.Key); ask != nil && ask.Edited != "" {
		l.resolved = resolvedCall{call.Key, json.RawMessage(canonical(ask.Edited))}
	}
}

// canonical returns the canonical text of arguments that a person changed, and that are valid.
func canonical(edited string) string {
	args, _ := arguments.Parse(edited)
	return args.Canonical()
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
func (e gate) settle(ctx context.Context, call *turnkeeper.ToolCall) (cleared bool, err error) {
	ask := e.people.settlement(call)
	approvals{e.ledger}.useEdited(call)
	switch settleStepOf(ask, e.def.Settles(), approvals{e.ledger}.runHash(call)) {
	case settleAsk:
		q := approvals{e.ledger}.question(call, asks.KindSettle, call.Starts, policy.Decision{
			Reason: cmp.Or(e.people.doubts[call.Key], "the worker that ran this call was lost, and its outcome is unknown"),
		})
		q.Schema = settleSchema
		e.put(q)
		return false, e.waitForPerson(ctx)
	case settleAwait:
		return false, e.waitForPerson(ctx)
	case settleHappened:
		result := textResult(call, turnkeeper.CallSucceeded, withComment("A person says that this call happened. Its result was lost.", ask))
		result.Ran = true
		e.answer(call, result)
	case settleStart:
		return true, nil
	default:
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
func (e gate) askPerson(ctx context.Context, call *turnkeeper.ToolCall) error {
	ask := e.people.of(call.Key, asks.KindQuestion, 1)
	switch {
	case ask == nil:
		var args personArguments
		if err := json.Unmarshal(e.argumentsOf(call), &args); err != nil { // cannot happen: they are checked
			return err
		}
		q := approvals{e.ledger}.question(call, asks.KindQuestion, 1, policy.Decision{Reason: args.Question})
		schema := map[string]any{"type": "string"}
		if len(args.Options) > 0 {
			schema["enum"] = args.Options
		}
		q.Schema = string(prompt.Canonical(schema))
		e.put(q)
		return e.waitForPerson(ctx)
	case ask.State == asks.Open:
		return e.waitForPerson(ctx)
	case ask.State == asks.Answered:
		text := ask.Answer
		var plain string
		if json.Unmarshal([]byte(text), &plain) == nil {
			text = plain
		}
		result := e.callResult(call, tools.Result{Text: withComment(text, ask)}, call.OutputID)
		result.State, result.Ran = turnkeeper.CallSucceeded, true
		e.answer(call, result)
	case ask.State == asks.Denied:
		e.answer(call, textResult(call, turnkeeper.CallDenied, withComment("no answer: a person declined to answer this question.", ask)))
	default:
		e.answer(call, textResult(call, turnkeeper.CallDenied, "no answer: nobody answered this question in time."))
	}
	return nil
}

// askToGoOn asks whether the turn may continue although its budget is used up. asked is false if a person declined, or nobody
// answered in time.
func (e gate) askToGoOn(ctx context.Context, blocked *blockedError) (asked bool, err error) {
	key := turnkeeper.CallKey{Round: len(e.rounds) + 1}
	n := 1
	for ask := e.people.of(key, asks.KindBudget, n); ask != nil; ask = e.people.of(key, asks.KindBudget, n) {
		if ask.State == asks.Denied || ask.State == asks.Expired {
			return false, nil
		}
		n++
	}
	if err := e.awaitRuns(ctx, true); err != nil {
		return false, err
	}
	e.put(asks.Question{Call: key, Kind: asks.KindBudget, N: n, Arguments: "{}", Reason: blocked.Error()})
	e.end = e.waiting()
	return true, nil
}

// told adds notes to a result that tell the model about approvals and input.
func (l *ledger) told(call *turnkeeper.ToolCall, result turnlog.CallResult) turnlog.CallResult {
	note := approvals{l}.approvalNote(call)
	if input := l.inputNote(call); input != "" {
		note = strings.TrimPrefix(note+"\n\n"+input, "\n\n")
	}
	switch {
	case note == "" || result.State == turnkeeper.CallDenied:
	case result.State == turnkeeper.CallRunning:
		result.Shown += "\n\n" + note
	case result.Ran && !prompt.WentOn(*call):
		result.Shown = note + "\n\n" + result.Shown
	}
	return result
}

// unknownNote tells the model with which arguments a call of unknown outcome ran, if a person changed them; empty: as it planned.
func (l approvals) unknownNote(call *turnkeeper.ToolCall) string {
	if ask := l.people.approval(call.Key); ask == nil || ask.Edited == "" {
		return ""
	}
	return "\n\n" + l.approvalNote(call)
}

// ShownEdited is the end of the text about a call that ran with other arguments than planned, because a person changed them.
func ShownEdited(arguments string) string {
	return "\n\n[A person changed the arguments of this call before it ran. It ran with: " + arguments + "]"
}

func (l approvals) approvalNote(call *turnkeeper.ToolCall) string {
	ask := l.people.approval(call.Key)
	switch {
	case ask == nil || ask.State != asks.Approved:
		return ""
	case ask.Edited != "":
		return withComment(strings.TrimLeft(ShownEdited(canonical(ask.Edited)), "\n"), ask)
	case ask.Comment != "":
		return "[Comment of the person who approved this call: " + ask.Comment + "]"
	default:
		return ""
	}
}

func shownRefused(d policy.Decision) string {
	return "denied by a rule: " + cmp.Or(d.Reason, "this call is not allowed") + ". Nothing was run."
}

func shownNotApproved(ask *asks.Ask) string {
	if ask.State != asks.Denied {
		return turnlog.Denied + turnlog.RefusedExpired + ". Nothing was run."
	}
	return withComment(turnlog.Denied+turnlog.RefusedByPerson+". Nothing was run.", ask)
}

func withComment(text string, ask *asks.Ask) string {
	if ask.Comment == "" {
		return text
	}
	return fmt.Sprintf("%s\nComment: %s", text, ask.Comment)
}

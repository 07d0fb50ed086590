package agentturn

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A ledger is a turn as an execution has it in memory: its calls, and what is decided and
// not yet written. It makes no call and writes nothing. It belongs to one goroutine.
type ledger struct {
	*task
	rounds   calls                         // of the turn so far, with what pending has not made durable yet
	pending  pending                       // decided and not yet durable
	events   *transcript.Transcript        // likewise
	progress *toolrun.Progress             // of the calls that run
	resolved resolvedCall                  // the arguments of the call that is run next, where these had handles
	sizes    map[turnkeeper.OutputID]int64 // of stored outputs, in tokens

	// interrupted are calls that were stopped while they ran, with what to
	// record of them should the turn end.
	interrupted map[turnkeeper.CallKey]turnkeeper.CallResult
	dirty       bool                                            // a call has ended that no request has told of
	subAgents   map[turnkeeper.CallKey]*transcript.SubAgentData // that have ended, for the watchers
}

// answer gives a call its result, in memory and with the next write.
func (t *ledger) answer(call *turnkeeper.ToolCall, result turnkeeper.CallResult) {
	t.apply(call, result)
	t.pending.answer(result)
}

// apply gives a call its result in memory, and tells the watchers.
func (t *ledger) apply(call *turnkeeper.ToolCall, result turnkeeper.CallResult) {
	t.progressEvents()
	t.forget(call)
	known := call.State == turnkeeper.CallRunning && prompt.WentOn(*call) // the round went on without it
	call.State, call.Shown, call.Preview = result.State, result.Shown, result.Preview
	call.OutputID = cmp.Or(result.OutputID, call.OutputID)
	if result.State == turnkeeper.CallRunning {
		t.events.Event(turnkeeper.EventNotice, call.Key.Round, 0, transcript.NoticeData{Text: call.Name + " goes on in the background"})
		t.roundOver(call.Key.Round)
		return
	}
	t.dirty = true
	call.Duration, call.Usage, call.EndedAt = result.Duration, result.Usage, time.Now()
	if result.Output != nil {
		call.OutputID = result.Output.ID
	}
	delete(t.interrupted, call.Key)
	t.resultEvent(*call)
	if !known {
		t.roundOver(call.Key.Round)
	}
}

// roundOver tells the watchers that every call of a round is answered, be it with
// a handle.
func (t *ledger) roundOver(number int) {
	i := slices.IndexFunc(t.rounds, func(r turnkeeper.Round) bool { return r.Number == number })
	round := t.rounds[i]
	if slices.ContainsFunc(round.Calls, func(c turnkeeper.ToolCall) bool {
		return !c.State.Answered() && (c.State != turnkeeper.CallRunning || awaitsReply(c))
	}) {
		return
	}
	t.events.Event(turnkeeper.EventRoundStop, number, 0, transcript.RoundStopData{
		FinishReason: round.FinishReason, Model: round.Model, Calls: len(round.Calls), Usage: round.Usage,
	})
}

func (t *ledger) resultEvent(call turnkeeper.ToolCall) {
	t.events.Event(turnkeeper.EventToolResult, call.Key.Round, t.events.Block(), transcript.ToolData{
		Call: call.Key.String(), Name: call.Name, State: call.State,
		Preview: call.Preview, Millis: call.Duration.Milliseconds(), SubAgent: t.subAgents[call.Key],
	})
}

// textResult answers a call that did not run, or whose tool has nothing to say
// about it.
func textResult(call *turnkeeper.ToolCall, state turnkeeper.CallState, text string) turnkeeper.CallResult {
	return turnkeeper.CallResult{
		Key: call.Key, Nonce: call.Nonce, State: state, Shown: text, Preview: outputs.Preview(text),
	}
}

// closeCalls answers every open call: a closed turn must have none.
func (t *ledger) closeCalls() {
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
func (t *ledger) handBack() {
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
func (t *ledger) doubted(call *turnkeeper.ToolCall, result turnkeeper.CallResult) turnkeeper.CallResult {
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

// giveVerdict records that nobody knows what became of a started call.
func (t *ledger) giveVerdict(call *turnkeeper.ToolCall) {
	verdict := endLater(*call, turnkeeper.CallResult{
		Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallUnknown,
		Shown: prompt.ShownUnknown, Preview: outputs.Preview(prompt.ShownUnknown), Ran: !call.Paging,
	})
	t.apply(call, verdict)
	t.pending.Verdicts = append(t.pending.Verdicts, verdict)
	t.log.Warn("outcome of tool call unknown", zap.Stringer("call", call.Key), zap.String("tool", call.Name))
}

// announce begins, or takes up, the turn's stream.
func (t *ledger) announce() {
	turn := t.record.Turn
	if turn.LastSeq == 0 {
		data := transcript.TurnStartData{Trigger: turn.Trigger, Agent: turn.Agent, Message: turn.MessageID, Attempt: turn.Attempt}
		if l := t.record.Lineage; l.Parent != 0 {
			data.Parent = &transcript.ParentData{Turn: l.Parent, Call: l.Call.String(), Root: l.Root}
		}
		t.events.Event(turnkeeper.EventTurnStart, 0, 0, data)
		return
	}
	if t.record.OpenRound != 0 {
		t.events.Event(turnkeeper.EventRoundRollback, t.record.OpenRound, 0, transcript.RollbackData{Reason: string(turnkeeper.StopWorkerLost)})
	}
	t.events.Event(turnkeeper.EventTurnResumed, 0, 0, transcript.TurnResumedData{Dispatch: turn.Dispatches})
}

// forget lets go of the values of an answered call.
func (t *ledger) forget(call *turnkeeper.ToolCall) {
	if t.resolved.key == call.Key {
		t.resolved = resolvedCall{}
	}
}

// refuse answers a call that cannot be run for its handles. One that a lost
// worker had started keeps its doubt.
func (t *ledger) refuse(call *turnkeeper.ToolCall, refused string, err error) error {
	switch {
	case err != nil:
		return err
	case call.State == turnkeeper.CallPlanned:
		t.answer(call, textResult(call, turnkeeper.CallDenied, refused))
	default:
		t.giveVerdict(call)
	}
	return nil
}

// neverBegan notes that a call whose start is on record certainly did not run. A call
// that may be started again is left to the next dispatch, if there is one.
func (t *ledger) neverBegan(call *turnkeeper.ToolCall) {
	if call.Effect.Repeatable() {
		t.interrupted[call.Key] = textResult(call, turnkeeper.CallCancelled, shownNeverBegan)
	} else {
		t.answer(call, textResult(call, turnkeeper.CallFailed, shownNeverBegan))
	}
}

func (t *ledger) startEvent(call *turnkeeper.ToolCall) {
	t.events.Event(turnkeeper.EventToolStarted, call.Key.Round, 0, transcript.ToolData{
		Call: call.Key.String(), Name: call.Name, State: turnkeeper.CallStarted,
	})
}

// progressEvents makes events of what calls told, with the next write.
func (t *ledger) progressEvents() {
	for _, note := range t.progress.Take() {
		if !t.rounds.call(note.Call).State.Answered() {
			t.events.Event(turnkeeper.EventNotice, note.Call.Round, 0, note.Data)
		}
	}
}

// inline shows in place of a handle what it stands for: a late result is kept
// without its output. Binary content stays an output, and is told of.
func (t *ledger) inline(r *turnkeeper.CallResult) {
	o := r.Output
	switch {
	case o == nil:
	case o.Drafted:
		r.Shown = r.Preview
	case o.Bytes != nil:
		late := *o
		late.ID = outputs.NewID() // a later run of the call may store its own under the handle
		r.Attached = append(slices.Clip(r.Attached), late)
		r.Shown = attachedLine("the result", late)
	default:
		r.Shown = outputs.Take(outputs.Raw{Text: o.Text, MediaType: o.MediaType}, outputs.Limits{MaxChars: t.offered.MaxChars(t.rounds.call(r.Key).Name)}).Shown
	}
}

// later takes what a call in the background gave. Where the model can no longer
// retrieve it, it is shown after all.
func (t *ledger) later(call *turnkeeper.ToolCall, raw tools.Result) turnkeeper.CallResult {
	if !t.offered.Retrieves() {
		return t.take(call, raw, call.OutputID)
	}
	raw, attached := t.attach(call, raw)
	taken, _ := t.taken(raw, outputs.Limits{MaxChars: t.offered.MaxChars(call.Name)})
	taken.Output.ID, taken.Output.TurnID, taken.Output.Call = call.OutputID, t.record.Turn.ID, call.Key
	t.sizes[call.OutputID] = taken.Output.Tokens
	return turnkeeper.CallResult{Key: call.Key, Shown: call.Shown, Preview: taken.Preview, Output: &taken.Output, Attached: attached}
}

// keep keeps what a run ended with. One that was cut short by the end of the
// turn's context waits for what the turn makes of that.
func (t *ledger) keep(call *turnkeeper.ToolCall, done *toolrun.Run, nonce string) {
	result := t.take(call, done.Result.Result, done.ID)
	result.Nonce, result.Duration, result.Ran, result.State = nonce, done.Result.Took, !call.Paging, stateOf(done.Result.Outcome, call.Effect)
	result.Usage = done.Result.Used
	if result.State == turnkeeper.CallCancelled {
		t.interrupted[call.Key] = result
		return
	}
	t.answer(call, result)
}

// add appends a round in memory, and puts it into the next write.
func (t *ledger) add(round turnkeeper.Round) {
	written := round
	written.Calls = slices.Clone(round.Calls)
	t.pending.Round = &written
	t.rounds = append(t.rounds, round)
	for _, call := range round.Calls {
		if call.State.Answered() {
			t.resultEvent(call)
		}
	}
	t.roundOver(round.Number)
}

// answerMissing answers a call whose tool the agent no longer has.
func (t *ledger) answerMissing(call *turnkeeper.ToolCall) {
	if call.State != turnkeeper.CallPlanned { // its worker was lost, and it cannot be run again
		t.giveVerdict(call)
		return
	}
	t.answer(call, textResult(call, turnkeeper.CallDenied,
		"tool not found: "+call.Name+"\nIt was taken away after the call was planned. Nothing was run."))
}

// denyRest answers all open calls: the lease is too short for the first of them, so the
// turn goes on to its reply. Calls that a lost worker had started get a verdict instead
// of a denial.
func (t *ledger) denyRest(open []*turnkeeper.ToolCall) {
	t.log.Warn("not enough time left in this turn", zap.Stringer("call", open[0].Key),
		zap.String("tool", open[0].Name), zap.Duration("lease_left", time.Until(t.lease)), zap.Duration("margin", t.bounds.Margin))
	for _, call := range open {
		if call.State == turnkeeper.CallPlanned {
			t.answer(call, textResult(call, turnkeeper.CallDenied, prompt.ShownNoTime))
		} else {
			t.giveVerdict(call)
		}
	}
}

package agentturn

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A turnState is the in-memory state of a turn: its calls, and the decisions that are not yet
// written. It writes them to the journal, and runs no tool. Only the execution's goroutine uses it.
type turnState struct {
	*task
	journal Journal
	calls   *calls.List         // with those that are not yet written
	rules   *rules              // about its calls
	tooling *tooling            // runs them
	pending pending             // the entry that is not yet written
	events  *turnevents.Builder // includes events that are not yet written
	dirty   bool                // a call has ended that no request has reported
	// of model calls beside the rounds, and of runs that asked for input; it is added to the next round
	sideUsage turnkeeper.Usage
}

func newTurnState(t *task, all *calls.List, runs *tooling, journal Journal, a Assignment) *turnState {
	return &turnState{
		task: t, journal: journal, calls: all, tooling: runs, dirty: dirtyIn(t.record.Rounds),
		events: turnevents.New(t.record.Turn.ID, t.record.NextBlock),
		rules:  &rules{task: t, newest: a.Newest, retired: a.Retired, calls: all, toolCall: runs.asRuled},
	}
}

// commit writes the pending entry, if there is one. Every error is a *journalError.
func (s *turnState) commit(ctx context.Context) error {
	if s.pending.Outcome == nil {
		s.progressEvents()
	}
	s.pending.Events = s.events.Unwritten()
	if s.pending.empty() && !s.pending.news() {
		return nil
	}
	writes := writesOf(s.pending.Entry)
	for _, write := range writes {
		s.at(ctx, write+".before")
	}
	if err := s.journal.Append(ctx, s.pending.Entry); err != nil {
		return &journalError{err}
	}
	for _, start := range s.pending.Starts {
		call := s.calls.Call(start.Key)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, time.Now()
		start.SetArguments(call.ToolCall)
		if call.State == turnkeeper.CallPlanned {
			call.State = turnkeeper.CallStarted
		}
	}
	s.pending.held.release()
	s.pending = pending{}
	s.events.Written()
	for _, write := range writes {
		s.at(ctx, write+".after")
	}
	return nil
}

// A journalError is an error of the journal.
type journalError struct{ err error }

func (e *journalError) Error() string { return "cannot write the turn's journal: " + e.err.Error() }
func (e *journalError) Unwrap() error { return e.err }

// answer records a call's result in memory and in the next write.
func (s *turnState) answer(call *calls.Call, result turnlog.CallResult) {
	result = call.WithNotes(result)
	if result.State != turnkeeper.CallRunning {
		s.withdraw(call)
	}
	s.apply(call, result)
	s.pending.answer(result)
}

// apply records a call's result in memory and adds its events.
func (s *turnState) apply(call *calls.Call, result turnlog.CallResult) {
	s.progressEvents()
	call.Label(result.Labels)
	call.Release()
	inBackground := call.State == turnkeeper.CallRunning && call.WentOn() // its round may have stopped already
	call.State, call.Shown, call.Preview = result.State, result.Shown, result.Preview
	call.OutputID = cmp.Or(result.OutputID, call.OutputID)
	if result.State == turnkeeper.CallRunning {
		s.events.Event(turnkeeper.EventNotice, call.Key.Round, 0,
			turnevents.NoticeData{Text: call.Name + " goes on in the background"})
		s.stopRound(call.Key.Round)
		return
	}
	s.dirty = true
	call.Duration, call.Usage, call.EndedAt = result.Duration, result.Usage, time.Now()
	if result.Output != nil {
		call.OutputID = result.Output.ID
	}
	call.Cut = nil
	s.resultEvent(call)
	if !inBackground {
		s.stopRound(call.Key.Round)
	}
}

// stopRound adds the round_stop event if every call of the round is answered. A handle
// counts as an answer.
func (s *turnState) stopRound(number int) {
	i := slices.IndexFunc(s.calls.Rounds, func(r turnkeeper.Round) bool { return r.Number == number })
	round := s.calls.Rounds[i]
	if s.calls.Any(func(c *calls.Call) bool {
		return c.Key.Round == number && !c.State.Answered() && (c.State != turnkeeper.CallRunning || c.AwaitsReply())
	}) {
		return
	}
	s.events.Event(turnkeeper.EventRoundStop, number, 0, turnevents.RoundStopData{
		FinishReason: round.FinishReason, Model: round.Model, Calls: len(round.Calls), Usage: round.Usage,
	})
}

func (s *turnState) resultEvent(call *calls.Call) {
	s.events.Event(turnkeeper.EventToolResult, call.Key.Round, s.events.Block(), turnevents.ToolData{
		Call: call.Key.String(), Name: call.Name, Unknown: !call.Known(), State: call.State,
		Preview: call.Preview, Millis: call.Duration.Milliseconds(), SubAgent: call.Sub,
	})
}

// endCall answers a call as a step says, and reports whether it did.
func (s *turnState) endCall(call *calls.Call, step calls.Step) (answered bool) {
	switch step.Do {
	case calls.Answer:
		s.answer(call, step.Result)
	case calls.Take:
		result := s.tooling.callResult(call, tools.Result{Text: step.Text}, call.OutputID)
		result.State, result.Ran = turnkeeper.CallSucceeded, true
		s.answer(call, result)
	case calls.Doubt:
		s.markUnknown(call)
	default:
		return false
	}
	return true
}

// endCalls answers the calls as they end in a phase that executes none, and reports whether there was one that does not
// go on.
func (s *turnState) endCalls(phase calls.Phase, open []*calls.Call) (any bool) {
	for _, call := range open {
		any = s.endCall(call, call.Next(calls.Turn{Phase: phase})) || any
	}
	return any
}

// writeSideUsage adds the usage beside the rounds to the last write, if no round followed that includes it.
func (s *turnState) writeSideUsage() {
	if s.sideUsage == (turnkeeper.Usage{}) {
		return
	}
	s.pending.Failed = append(s.pending.Failed, turnlog.FailedAttempt{
		Round: len(s.calls.Rounds) + 1, Class: "interrupted",
		Error: "older turns were summarised for a round that has no answer", Usage: s.sideUsage,
	})
}

// markUnknown records that the outcome of a started call is unknown.
func (s *turnState) markUnknown(call *calls.Call) {
	verdict := call.Unknown()
	s.apply(call, verdict)
	s.pending.Verdicts = append(s.pending.Verdicts, verdict)
	s.withdraw(call)
	s.log.Warn("outcome of tool call unknown", zap.Stringer("call", call.Key), zap.String("tool", call.Name))
}

// openStream adds the turn_start event, or those of a turn that continues.
func (s *turnState) openStream() {
	turn := s.record.Turn
	if turn.LastSeq == 0 {
		data := turnevents.TurnStartData{Trigger: turn.Trigger, Agent: turn.Agent, Message: turn.MessageID,
			Attempt: turn.Attempt}
		if lineage := s.record.Lineage; lineage.Parent != 0 {
			data.Parent = &turnevents.ParentData{Turn: lineage.Parent, Call: lineage.Call.String(), Root: lineage.Root}
		}
		s.events.Event(turnkeeper.EventTurnStart, 0, 0, data)
		return
	}
	if s.record.OpenRound != 0 {
		s.events.Event(turnkeeper.EventRoundRollback, s.record.OpenRound, 0,
			turnevents.RollbackData{Reason: string(turnkeeper.StopWorkerLost)})
	}
	s.events.Event(turnkeeper.EventTurnResumed, 0, 0, turnevents.TurnResumedData{Dispatch: turn.Dispatches})
}

// didNotRun records that a call did not run although its start is in the journal. A call
// that may run again is left to the next dispatch, if there is one.
func (s *turnState) didNotRun(call *calls.Call) {
	shown := shownNeverBegan
	if call.Asks.Input() != nil {
		shown = shownInputNotUsed
	}
	if call.Effect.Repeatable() {
		cut := call.Result(turnkeeper.CallCancelled, shown)
		call.Cut = &cut
	} else {
		s.answer(call, call.Result(turnkeeper.CallFailed, shown))
	}
}

func (s *turnState) startEvent(call *calls.Call) {
	s.events.Event(turnkeeper.EventToolStarted, call.Key.Round, 0, turnevents.ToolData{
		Call: call.Key.String(), Name: call.Name, State: turnkeeper.CallStarted,
	})
}

// progressEvents adds an event for each progress note of a running call.
func (s *turnState) progressEvents() {
	for _, note := range s.tooling.progress.Take() {
		if !s.calls.Call(note.Call).State.Answered() {
			s.events.Event(turnkeeper.EventNotice, note.Call.Round, 0, note.Data)
		}
	}
}

// inline replaces the handle in a late result by the text, because a late result is stored
// without its output. Binary content becomes an attached output, which the text names.
func (w *tooling) inline(r *turnlog.CallResult) {
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
		r.Shown = outputs.Take(outputs.Raw{Text: o.Text, MediaType: o.MediaType},
			outputs.Limits{MaxChars: w.task.offered.MaxChars(w.calls.Call(r.Key).Spec)}).Shown
	}
}

// backgroundResult prepares the result of a background call. The text is shown only if the model
// can no longer retrieve it by its handle.
func (w *tooling) backgroundResult(call *calls.Call, raw tools.Result) turnlog.CallResult {
	if !w.task.offered.Retrieves() {
		return w.callResult(call, raw, call.OutputID)
	}
	// also where the model reads it by its handle
	if note := call.ApprovalNote(); note != "" && raw.Bytes == nil && raw.Kept == nil {
		raw.Text = note + "\n\n" + raw.Text
	}
	raw, attached := w.attach(call, raw)
	taken, _ := w.prepareOutput(raw, outputs.Limits{MaxChars: w.task.offered.MaxChars(call.Spec)})
	taken.Output.ID, taken.Output.TurnID, taken.Output.Call = call.OutputID, w.task.record.Turn.ID, call.Key
	w.sizes[call.OutputID] = taken.Output.Tokens
	return turnlog.CallResult{Key: call.Key, Shown: call.Shown, Preview: taken.Preview, Output: &taken.Output,
		Attached: attached, Labels: w.calls.ResultLabels(call, raw.Labels)}
}

// recordRun records the result of a run. If the end of the turn's context cut the run short,
// the result is only noted: how the dispatch ends decides what is recorded.
func (s *turnState) recordRun(call *calls.Call, done *toolrun.Run, nonce string) {
	s.pending.held = append(s.pending.held, done.Result.Memory)
	result := s.tooling.callResult(call, done.Result.Result, done.ID)
	result.Nonce, result.Duration, result.Ran, result.State = nonce, done.Result.Took, !call.Paging,
		stateOf(done.Result.Outcome, call.Effect)
	result.Usage = done.Result.Used
	if result.State == turnkeeper.CallUnknown && s.def.Settles() && !call.WentOn() { // settle asks a person
		call.Doubt = result.Preview
		return
	}
	if result.State == turnkeeper.CallCancelled {
		call.Cut = &result
		return
	}
	s.answer(call, result)
}

// add appends a round in memory and to the next write.
func (s *turnState) add(round turnkeeper.Round, made []*calls.Call) {
	written := round
	written.Calls = slices.Clone(round.Calls)
	s.pending.Round = &written
	s.calls.Add(round, made)
	for _, call := range made {
		if call.State.Answered() {
			s.resultEvent(call)
		}
	}
	s.stopRound(round.Number)
}

// age returns the time since a background or detached call began, or 0 if unknown.
func (s *turnState) age(call turnkeeper.ToolCall) time.Duration {
	if run := s.calls.Call(call.Key).Run; run != nil {
		return time.Since(run.Since)
	}
	if call.Awaited && !call.StartedAt.IsZero() {
		return max(time.Since(call.StartedAt), 0)
	}
	return 0
}

// denyRest answers all open calls, because the lease is too short for the first of them:
// the turn goes on to its reply. The outcome of calls that a lost worker had started is
// unknown.
func (s *turnState) denyRest(open []*calls.Call) {
	s.log.Warn("not enough time left in this turn", zap.Stringer("call", open[0].Key),
		zap.String("tool", open[0].Name), zap.Duration("lease_left", time.Until(s.clock.lease)),
		zap.Duration("margin", s.clock.margin))
	s.endCalls(calls.OutOfTime, open)
}

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
)

// A turnState is the in-memory state of a turn: its calls, and the decisions that are not yet
// written. It writes them to the journal. It asks no model and runs no tool. Only the execution's goroutine uses it.
type turnState struct {
	*task
	journal  Journal
	calls    *calls.List         // with those that are not yet written
	rules    *rules              // about its calls
	progress *toolrun.Progress   // of its running calls
	pending  pending             // the next write
	events   *turnevents.Builder // includes events that are not yet written
	dirty    bool                // a call has ended that no request has reported
	// usage of side calls (summaries, probes) and of runs that asked for input; the next round includes it
	sideUsage turnkeeper.Usage
}

// commit writes what is pending, if anything is. Every error is a *journalError.
func (s *turnState) commit(ctx context.Context) error {
	if s.pending.Outcome == nil {
		s.progressEvents()
	}
	s.pending.Events = s.events.Unwritten()
	if s.pending.empty() && !s.pending.news() {
		return nil
	}
	entries := s.pending.Sequence()
	writes := writesOf(entries)
	for _, write := range writes {
		s.at(ctx, write+".before")
	}
	if err := s.journal.Append(ctx, s.pending.Entry); err != nil {
		return &journalError{err}
	}
	for _, entry := range entries {
		for _, start := range entry.Starts {
			call := s.calls.Call(start.Key)
			call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, time.Now()
			start.SetArguments(call.ToolCall)
			if call.State == turnkeeper.CallPlanned {
				call.State = turnkeeper.CallStarted
			}
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

// writeSideUsage adds the usage of side calls to the last write, unless a round has included it.
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

func (s *turnState) startEvent(call *calls.Call) {
	s.events.Event(turnkeeper.EventToolStarted, call.Key.Round, 0, turnevents.ToolData{
		Call: call.Key.String(), Name: call.Name, State: turnkeeper.CallStarted,
	})
}

// progressEvents adds an event for each progress note of a running call.
func (s *turnState) progressEvents() {
	for _, note := range s.progress.Take() {
		if !s.calls.Call(note.Call).State.Answered() {
			s.events.Event(turnkeeper.EventNotice, note.Call.Round, 0, note.Data)
		}
	}
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

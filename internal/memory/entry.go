package memory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// entry writes an entry to a draft of its turn, after the earlier ones of its write. rings may be nil if the entry has
// no outcome.
func (j *Journal) entry(t *turnRow, e turnlog.Entry, rings *[]Bell) error {
	lastSeq := j.lastSeq
	for _, part := range e.Sequence() {
		j.remember(part.Round)
		if err := j.fields(t, part, lastSeq, rings); err != nil {
			return err
		}
		lastSeq += int64(len(part.Events))
	}
	return nil
}

// fields writes the fields of an entry in their order. lastSeq is the number of the last event before it.
func (j *Journal) fields(t *turnRow, e turnlog.Entry, lastSeq int64, rings *[]Bell) error {
	t.ExecutedCalls += j.executed(e)
	if !j.s.bugs.has(BugVerdictForgotten) {
		if err := j.answer(t, e.Verdicts); err != nil {
			return err
		}
	}
	if err := j.addRound(t, e.Round); err != nil {
		return err
	}
	for _, failed := range e.Failed {
		t.Usage = t.Usage.Add(failed.Usage)
	}
	if err := j.writeAsks(t, e); err != nil {
		return err
	}
	for _, start := range e.Starts {
		if err := j.start(t, start); err != nil {
			return err
		}
	}
	if rings != nil && slices.ContainsFunc(e.Starts, func(s turnlog.CallStart) bool { return s.Detached > 0 }) {
		*rings = append(*rings, Bell{Topic: TopicJobs})
	}
	if err := j.answer(t, e.Results); err != nil {
		return err
	}
	if err := j.addEvents(t, lastSeq, e.Events); err != nil {
		return err
	}
	j.s.state.labels.add(j.s.bugs, e.LabelRows(t.ID))
	if e.Outcome == nil {
		j.s.noteModels(t, e, rings)
		return nil
	}
	if err := j.s.endDispatch(t, j.grant.GrantID, endWriteOf(*e.Outcome), rings); err != nil {
		return err
	}
	noteFault(&j.s.state, t, *e.Outcome, j.s.now())
	j.s.noteModels(t, e, rings)
	return nil
}

// executed returns the number of calls that the entry adds to the executed calls: first starts, and
// results of calls that need no recorded start.
func (j *Journal) executed(e turnlog.Entry) (n int) {
	for _, start := range e.Starts {
		if start.Attempt == 1 && !j.paging[start.Key] {
			n++
		}
	}
	for _, r := range e.Results {
		ran := r.State == turnkeeper.CallSucceeded || r.State == turnkeeper.CallFailed
		if r.Nonce == "" && ran && !j.paging[r.Key] {
			n++
		}
	}
	return n
}

func (j *Journal) addRound(t *turnRow, r *turnkeeper.Round) error {
	if r == nil {
		return nil
	}
	t.InferenceRounds++
	if r.Charged {
		t.ChargedRounds++
	}
	t.Usage = t.Usage.Add(r.Usage)
	if r.Number != len(t.rounds)+1 {
		return fmt.Errorf("%w: round %d follows %d", errKeyTaken, r.Number, len(t.rounds))
	}
	taken := map[string]bool{}
	for _, round := range t.rounds {
		for _, call := range round.Calls {
			taken[call.WireID] = true
		}
	}
	round := *r
	round.Calls = slices.Clone(r.Calls)
	now := j.s.now()
	round.EndedAt = now
	for i := range round.Calls {
		call := &round.Calls[i]
		if taken[call.WireID] || call.WireID == "" {
			return fmt.Errorf("%w: wire id %q", errKeyTaken, call.WireID)
		}
		taken[call.WireID] = true
		if call.Effect == "" {
			call.Effect = turnkeeper.EffectOnce
		}
		if call.State.Answered() {
			call.EndedAt = now
		}
	}
	t.rounds = append(t.rounds, round)
	return nil
}

// keepShared stores what an entry that was written shares with other turns: its summary, and the parts of its request.
func (j *Journal) keepShared(t *turnRow, e turnlog.Entry) {
	if e.Summary != nil {
		key := t.ConversationKey()
		j.s.state.summaries[key] = append(j.s.state.summaries[key], *e.Summary)
	}
	for _, part := range e.Parts {
		if _, known := j.s.state.parts[part.SHA256]; !known && e.Round != nil {
			j.s.state.parts[part.SHA256] = part.Content
		}
	}
}

var errOnceAgain = errors.New("a call of effect once was started before; its key is taken")

// start records the start of a call. Repeatable calls may be started again.
func (j *Journal) start(t *turnRow, start turnlog.CallStart) error {
	call := t.call(start.Key)
	free := j.s.bugs.has(BugStartTwice) || j.s.bugs.has(BugJournalByAttempt) || j.s.bugs.has(BugLostAnswerRedone)
	switch {
	case call == nil, !free && call.Starts != start.Attempt-1, call.State.Answered():
		return fmt.Errorf("%w: call %s was started before", turnkeeper.ErrJournalMoved, start.Key)
	case !free && !call.Effect.Repeatable() && start.Attempt != 1 && start.Ask == 0:
		return errOnceAgain
	}
	if err := j.checkApproval(t, start); err != nil {
		return err
	}
	for _, known := range t.starts {
		if known.nonce == start.Nonce && !free {
			return fmt.Errorf("%w: nonce of %s", errKeyTaken, start.Key)
		}
	}
	t.starts = append(t.starts, startRow{start.Key, start.Nonce, start.Ask, start.Hash})
	call.State, call.Nonce, call.Starts, call.StartedAt = turnkeeper.CallStarted, start.Nonce, start.Attempt, j.s.now()
	start.SetArguments(call)
	if start.Spawn != nil {
		t.awaitReply(call)
	}
	if start.Detached > 0 {
		j.s.detach(t, call, start.Detached)
	}
	return nil
}

// answer records the results of calls. The result of a started call must come from its
// newest start; a verdict need not.
func (j *Journal) answer(t *turnRow, results []turnlog.CallResult) error {
	for _, r := range results {
		call := t.call(r.Key)
		if call == nil || call.State.Answered() || call.Nonce != r.Nonce && r.State != turnkeeper.CallUnknown {
			return fmt.Errorf("%w: call %s was answered before", turnkeeper.ErrJournalMoved, r.Key)
		}
		if err := call.State.MoveTo(r.State); err != nil {
			return err
		}
		if r.State == turnkeeper.CallUnknown {
			t.verdicts = append(t.verdicts, r.Key)
		}
		call.State, call.Shown, call.Preview = r.State, r.Shown, r.Preview
		call.OutputID = cmp.Or(r.OutputID, call.OutputID)
		if r.State == turnkeeper.CallRunning {
			continue
		}
		call.Duration, call.EndedAt = r.Duration, j.s.now()
		t.closeAwaited(call.Key)
		if r.Usage != (turnkeeper.Usage{}) {
			call.Usage, t.Usage = r.Usage, t.Usage.Add(r.Usage)
		}
		if r.Output != nil {
			out, err := j.whole(*r.Output)
			if err != nil {
				return err
			}
			call.OutputID = out.ID
			t.outputs = append(t.outputs, out)
		}
		for _, o := range r.Attached {
			out, err := j.whole(o)
			if err != nil {
				return err
			}
			t.outputs = append(t.outputs, out)
		}
	}
	return nil
}

// addEvents appends events after the one with the number last.
func (j *Journal) addEvents(t *turnRow, last int64, events []turnkeeper.Event) error {
	for i, e := range events {
		e.TurnID, e.Seq, e.At = t.ID, last+int64(i)+1, j.s.now()
		if e.Seq != int64(len(t.events))+1 && !j.s.bugs.has(BugNumbersLost) {
			return fmt.Errorf("%w: event %d", errKeyTaken, e.Seq)
		}
		t.events = append(t.events, e)
	}
	t.LastSeq += int64(len(events))
	return nil
}

package storesuite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

var labelProperties = []property{
	{"the labels of a result are those of its turn, and of later turns of the conversation", labelsOfResults},
	{"a reply has the labels of all attempts of its message", labelsOfAttempts},
	{"a summary has labels", labelsOfSummary},
	{"a message to a sub-agent has labels, and its reply those of the sub-agent's turn", labelsOfSpawn},
	{"each of two sub-agents has its own labels", labelsOfTwoSpawns},
	{"a run of a schedule has the labels of the previous run", labelsOfSchedule},
	{"labels are written with their entry, or not at all", labelsAtomic},
	{"a late result has labels", labelsLate},
	{"the result of a detached call has labels, whoever takes it", labelsOfDetached},
	{"a transactional call writes its labels", labelsTransact},
	{"another conversation has no labels", labelsApart},
	{"a message that is a labelled reply to its user has the labels of the reply", labelsOfRepeats},
}

var (
	untrusted = policy.Mark{Label: policy.Untrusted, Source: "a page"}
	private   = policy.Mark{Label: policy.Private, Source: "a file"}
)

func labelled(r turnlog.CallResult, marks ...policy.Mark) turnlog.CallResult {
	r.Labels = marks
	return r
}

// wantBefore checks the labels that a turn has from its beginning.
func (d *dispatch) wantBefore(what string, want ...policy.Mark) {
	d.env.Helper()
	got := d.record.Labels.Before
	equal(d.env, "number of labels "+what, len(got), len(want))
	for _, m := range want {
		equal(d.env, "the label "+string(m.Label)+" "+what, len(policy.Only(m.Label, got)), 1)
		for _, known := range policy.Only(m.Label, got) {
			equal(d.env, "the source of the label "+what, known.Source, m.Source)
		}
	}
}

func labelsOfResults(e *env) {
	d := e.planned(turnkeeper.EffectNone, turnkeeper.EffectNone)
	d.wantBefore("of the first turn")
	d.append(turnlog.Entry{Results: []turnlog.CallResult{
		labelled(result(key(1, 1), "", turnkeeper.CallSucceeded, "page"), untrusted),
		result(key(1, 2), "", turnkeeper.CallSucceeded, "clock"),
	}})
	d = e.again(d)
	d.wantBefore("of the turn under another worker")
	calls := d.record.Labels.Calls
	equal(e, "labelled calls", len(calls), 1)
	equal(e, "labels of the call", len(calls[key(1, 1)]), 1)
	equal(e, "the label", calls[key(1, 1)][0], untrusted)
	d.append(turnlog.Entry{Labels: []policy.Mark{private}})
	d = e.again(d)
	d.wantBefore("that the turn wrote", private)
	e.finish(d, succeeded("done"))
	reply, _ := e.Reply(d.record.Message.ID)
	equal(e, "labels of the reply", strings.Join(reply.Labels, " "), "private untrusted")
	d = e.turn()
	d.wantBefore("of the next turn", untrusted, private)
	d.append(turnlog.Entry{Labels: d.record.Labels.Before, Round: round(1)})
	e.finish(d, succeeded("done"))
	e.turn().wantBefore("of the turn after that", untrusted, private)
}

// The second attempt need not see what the first has seen. Its reply may be written from what the first has kept.
func labelsOfAttempts(e *env) {
	d := e.turn()
	d.append(turnlog.Entry{Labels: []policy.Mark{private}, Round: round(1)})
	e.finish(d, turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "unavailable", Retry: true})
	e.Pass(3 * time.Minute)
	d = e.next(first)
	equal(e, "attempt", d.record.Turn.Attempt, 2)
	d.append(turnlog.Entry{Labels: []policy.Mark{untrusted}, Round: round(1)})
	e.finish(d, succeeded("done"))
	reply, _ := e.Reply(d.record.Message.ID)
	equal(e, "labels of the reply", strings.Join(reply.Labels, " "), "private untrusted")
}

func labelsOfSummary(e *env) {
	before := e.turn()
	before.append(turnlog.Entry{Round: round(1)})
	e.finish(before, succeeded("done"))
	d := e.turn()
	d.append(turnlog.Entry{Round: round(1), Summary: &turnlog.Summary{UpTo: before.grant.TurnID, Text: "a summary",
		Labels: []policy.Mark{private}}})
	e.finish(d, succeeded("done"))
	next := e.turn()
	next.wantBefore("of a turn that sees the summary", private)
	e.finish(next, succeeded("done"))
	e.enqueue("clerk", "other", "do it")
	e.next(first).wantBefore("of a turn of another conversation")
}

func labelsOfSpawn(e *env) {
	parent := e.planned(turnkeeper.EffectOnce)
	start, handle := parent.spawnOf(key(1, 1), "desk", "find it")
	start.Spawn.Labels = []policy.Mark{private}
	parent.append(turnlog.Entry{Starts: []turnlog.CallStart{start}, Results: []turnlog.CallResult{handle}})
	parent.wait()
	child := e.next(first)
	child.wantBefore("of the sub-agent's turn", private)
	child.append(turnlog.Entry{Labels: child.record.Labels.Before, Round: round(1, turnkeeper.EffectNone)})
	outcome := succeeded("found")
	child.append(turnlog.Entry{
		Results: []turnlog.CallResult{labelled(result(key(1, 1), "", turnkeeper.CallSucceeded, "page"), untrusted)},
		Outcome: &outcome,
	})
	parent = e.next(second)
	arrived, err := parent.Arrivals(e.Context())
	if err != nil || len(arrived) != 1 || arrived[0].Spawned == nil {
		e.Fatalf("arrived: %+v, %v", arrived, err)
	}
	marks := arrived[0].Spawned.Labels
	equal(e, "labels of the reply", len(marks), 2)
	equal(e, "private", len(policy.Only(policy.Private, marks)), 1)
	equal(e, "untrusted", len(policy.Only(policy.Untrusted, marks)), 1)
}

// The first sub-agent's message has a label, and its turn gets another. The message has the id of the second one's
// turn.
func labelsOfTwoSpawns(e *env) {
	parent := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	e.enqueue("clerk", "", "later")
	var starts []turnlog.CallStart
	var handles []turnlog.CallResult
	for n, marks := range [][]policy.Mark{{private}, nil} {
		start, handle := parent.spawnOf(key(1, n+1), "desk", "find it")
		start.Spawn.Labels = marks
		starts, handles = append(starts, start), append(handles, handle)
	}
	parent.append(turnlog.Entry{Starts: starts, Results: handles})
	parent.wait()
	e.tick()
	for _, child := range e.take(second) {
		first := child.record.Message.ID == starts[0].Spawn.Message
		if first {
			child.wantBefore("of the first sub-agent's turn", private)
			child.append(turnlog.Entry{Labels: []policy.Mark{private, untrusted}})
		} else {
			child.wantBefore("of the second sub-agent's turn")
		}
		e.finish(child, succeeded("found"))
	}
	arrived, err := e.next(second).Arrivals(e.Context())
	if err != nil || len(arrived) != 2 || arrived[0].Spawned == nil || arrived[1].Spawned == nil {
		e.Fatalf("arrived: %+v, %v", arrived, err)
	}
	for _, reply := range arrived {
		equal(e, "labels of the reply to "+reply.Key.String(), len(reply.Spawned.Labels),
			map[int]int{1: 2, 2: 0}[reply.Key.Ordinal])
	}
}

// labelsOfDetached delivers a labelled result to a turn that runs and then loses its worker.
func labelsOfDetached(e *env) {
	d := e.detached(turnkeeper.EffectOnce)
	c := e.claim(second)
	wantErr(e, "arrival", e.Arrive(e.Context(), c, labelled(completed(c, "done"), untrusted)), nil)
	d = e.again(d)
	equal(e, "labels of the call", len(d.record.Labels.Calls[key(1, 1)]), 1)
	marks := d.takeResult(turnkeeper.CallSucceeded).Labels
	if len(marks) != 1 || marks[0] != untrusted {
		e.Errorf("the labels of the result are %v", marks)
	}
	e.finish(d, succeeded("done"))
	e.turn().wantBefore("of the next turn", untrusted)
}

func labelsOfSchedule(e *env) {
	e.Register(schedule())
	e.tick()
	for n := range 2 {
		e.Pass(hourly + time.Minute)
		d := e.next(first)
		d.wantBefore(fmt.Sprintf("of run %d", n+1), []policy.Mark{private}[:n]...)
		d.append(turnlog.Entry{Labels: []policy.Mark{private}})
		e.finish(d, turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone})
		for range 41 * (1 - n) { // then the history has no room for the run
			e.finish(e.turn(), succeeded("done"))
		}
	}
}

func labelsAtomic(e *env) {
	old := e.planned(turnkeeper.EffectNone)
	d := e.again(old)
	page := turnlog.Entry{Labels: []policy.Mark{private},
		Results: []turnlog.CallResult{labelled(result(key(1, 1), "", turnkeeper.CallSucceeded, "page"), untrusted)}}
	wantErr(e, "an old grant's labels", old.Append(e.Context(), page), turnkeeper.ErrFenced)
	page.Results = append(page.Results, result(key(1, 7), "", turnkeeper.CallSucceeded, "no such call"))
	if err := d.Append(e.Context(), page); err == nil {
		e.Error("an entry with a result of no call was written")
	}
	d = e.again(d)
	d.wantBefore("of entries that were not written")
	equal(e, "labelled calls", len(d.record.Labels.Calls), 0)
}

func labelsLate(e *env) {
	old := e.planned(turnkeeper.EffectKeyed)
	n := nonce()
	old.mustStart(key(1, 1), n, 1)
	wantErr(e, "late", old.Late(e.Context(), labelled(result(key(1, 1), n, turnkeeper.CallSucceeded, "page"),
		untrusted)), nil)
	d := e.again(old)
	equal(e, "state", d.call(key(1, 1)).State, turnkeeper.CallSucceeded)
	equal(e, "labels of the late result", len(d.record.Labels.Calls[key(1, 1)]), 1)
}

func labelsTransact(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	n := nonce()
	_, err := d.transact(key(1, 1), n, func(context.Context) turnlog.CallResult {
		return labelled(result(key(1, 1), n, turnkeeper.CallSucceeded, "page"), untrusted)
	})
	wantErr(e, "transact", err, nil)
	equal(e, "labels of the result", len(e.again(d).record.Labels.Calls[key(1, 1)]), 1)
}

func labelsOfRepeats(e *env) {
	d := e.turn()
	d.append(turnlog.Entry{Labels: []policy.Mark{private}})
	e.finish(d, succeeded("the code\n is 17"))
	e.enqueue("clerk", "elsewhere", "do it") // another labelled reply of the same user
	d = e.next(first)
	d.append(turnlog.Entry{Labels: []policy.Mark{untrusted}})
	e.finish(d, succeeded("a page says so"))
	for _, other := range []struct {
		user, body string
		want       []policy.Mark
	}{
		{"", "the code is\t17", []policy.Mark{private}}, {"", "a page says so", []policy.Mark{untrusted}},
		{"", "the code is 18", nil}, {"eve", "the code\n is 17", nil},
	} {
		if _, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", User: other.user,
			Conversation: "other", Body: other.body}); err != nil {
			e.Fatal(err)
		}
		d := e.next(first)
		d.wantBefore(fmt.Sprintf("of %q", other.body), other.want...)
		e.finish(d, succeeded("done"))
	}
}

func labelsApart(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	d.append(turnlog.Entry{Results: []turnlog.CallResult{labelled(result(key(1, 1), "", turnkeeper.CallSucceeded,
		"page"), untrusted)}})
	e.finish(d, succeeded("done"))
	e.enqueue("clerk", "other", "do it")
	other := e.next(first)
	other.wantBefore("of another conversation")
	e.finish(other, succeeded("done"))
	reply, _ := e.Reply(other.record.Message.ID)
	equal(e, "labels of the reply in another conversation", len(reply.Labels), 0)
}

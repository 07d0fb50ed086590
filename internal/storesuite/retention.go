package storesuite

import (
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

var retentionProperties = []property{
	{"each class expires at its age", classesExpire},
	{"nothing of an open message expires", openStays},
	{"later turns see the history of what has expired", historyStays},
	{"a lane whose lease has expired goes on with higher tokens", expiredLane},
}

const keep = time.Hour

// storedTurn runs a turn of desk with an output, events and a label, and ends it.
func storedTurn(e *env) *dispatch {
	e.Helper()
	e.enqueue("desk", "c", "do it")
	d := e.next(first)
	d.store()
	d.close()
	return d
}

// store writes a round with an output, events and a label.
func (d *dispatch) store() {
	d.env.Helper()
	private := []policy.Mark{{Label: policy.Private, Source: "a file"}}
	d.append(turnlog.Entry{Round: round(1, turnkeeper.EffectNone), Labels: private,
		Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
	r := result(key(1, 1), "", turnkeeper.CallSucceeded, "shown")
	r.Output, r.Labels = output(d.output(), longText), private
	d.append(turnlog.Entry{Results: []turnlog.CallResult{r}, Events: events(turnkeeper.EventToolResult)})
}

func (d *dispatch) output() turnkeeper.OutputID {
	return turnkeeper.OutputID(fmt.Sprint("output of turn ", d.grant.TurnID))
}

// close ends the turn with its last event.
func (d *dispatch) close() {
	d.env.Helper()
	o := succeeded("done")
	d.append(turnlog.Entry{Outcome: &o, Events: events(turnkeeper.EventRoundStop, turnkeeper.EventTurnComplete)})
}

// has says which classes of the turn are stored.
func (d *dispatch) has(class retention.Class) bool {
	d.env.Helper()
	switch class {
	case retention.Outputs:
		o, err := d.env.Outputs().DescribeOutput(d.env.Context(), d.grant.TurnID, d.output())
		wantErr(d.env, "describe the output", err, nil)
		equal(d.env, "size", o.SizeBytes, int64(len(longText)))
		text, err := d.env.Outputs().ReadOutput(d.env.Context(), d.grant.TurnID, d.output(), 0, 3)
		if !o.ExpiredAt.IsZero() {
			wantErr(d.env, "read the expired output", err, turnkeeper.ErrNotFound)
		}
		return o.ExpiredAt.IsZero() && err == nil && text == "aé日"
	case retention.Events:
		turn, _ := d.env.Turn(d.grant.TurnID)
		return turn.EventsExpiredAt.IsZero() && int64(len(d.env.Events(d.grant.TurnID))) == turn.LastSeq
	default:
		turn, _ := d.env.Turn(d.grant.TurnID)
		return turn.LeasesExpiredAt.IsZero() && len(d.env.Grants(d.grant.TurnID)) > 0
	}
}

// classesExpire expires each class a second before, and a second after, its age, and no other class with it.
func classesExpire(e *env) {
	d := storedTurn(e)
	e.Pass(keep - 10*time.Second)
	for _, class := range retention.Parts {
		equal(e, string(class)+" of turns that expire before their age", e.Keeper().Expire(class, keep), 0)
		equal(e, string(class)+" stored before their age", d.has(class), true)
	}
	e.Pass(10 * time.Second)
	for i, class := range retention.Parts {
		equal(e, string(class)+" of turns that expire", e.Keeper().Expire(class, keep), 1)
		for j, other := range retention.Parts {
			equal(e, string(other)+" stored after "+string(class)+" expired", d.has(other), j > i)
		}
		equal(e, string(class)+" of turns that expire again", e.Keeper().Expire(class, keep), 0)
	}
	all := e.Events(d.grant.TurnID)
	equal(e, "events left", len(all), 2)
	equal(e, "the first", all[0].Type, turnevents.EventsExpired)
	equal(e, "what has expired", string(all[0].Data), `{"first":1,"last":4}`)
	equal(e, "its number", all[0].Seq, 4)
	equal(e, "the last", all[1].Type, turnkeeper.EventTurnComplete)
	equal(e, "the number of the last", all[1].Seq, 5)
}

// openStays expires what is stored of a turn that runs, and of a failed turn whose message waits again.
func openStays(e *env) {
	e.enqueue("desk", "c", "do it")
	runs := e.next(second)
	runs.store()
	d := e.turn()
	d.append(turnlog.Entry{Events: events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
	wantErr(e, "end", d.end(turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Retry: true, Backoff: time.Hour}), nil)
	for _, class := range retention.Parts {
		equal(e, string(class)+" of turns that expire", e.Keeper().Expire(class, 0), 0)
	}
	equal(e, "events of the failed turn", len(e.Events(d.grant.TurnID)), 2)
	equal(e, "grants of the failed turn", len(e.Grants(d.grant.TurnID)), 1)
	for _, class := range retention.Parts {
		equal(e, string(class)+" of the running turn stored", runs.has(class), true)
	}
	runs.close()
	for _, class := range retention.Parts {
		equal(e, string(class)+" of turns that expire after the end", e.Keeper().Expire(class, 0), 1)
	}
}

// historyStays runs a turn after everything of the one before has expired.
func historyStays(e *env) {
	storedTurn(e)
	before := laterTurn(e)
	e.Pass(2 * keep)
	for _, class := range retention.Parts {
		equal(e, string(class)+" of turns that expire", e.Keeper().Expire(class, keep) > 0, true)
	}
	after := laterTurn(e)
	equal(e, "turns in the history", len(after.History), len(before.History)+1)
	equal(e, "the call's result", after.History[0].Rounds[0].Calls[0].Shown, before.History[0].Rounds[0].Calls[0].Shown)
	equal(e, "labels", len(after.Labels.Before), len(before.Labels.Before))
}

// laterTurn runs another turn of the conversation, and returns its record.
func laterTurn(e *env) *turnlog.Record {
	e.Helper()
	e.enqueue("desk", "c", "and then?")
	d := e.next(first)
	d.append(turnlog.Entry{Events: events(turnkeeper.EventTurnStart)})
	d.append(turnlog.Entry{Labels: d.record.Labels.Before, Round: round(1)})
	d.close()
	return d.record
}

func expiredLane(e *env) {
	d := storedTurn(e)
	e.Pass(2 * keep)
	equal(e, "turns whose leases expire", e.Keeper().Expire(retention.Leases, keep), 1)
	again := storedTurn(e)
	if again.grant.Token <= d.grant.Token {
		e.Errorf("token %d was granted after %d", again.grant.Token, d.grant.Token)
	}
	equal(e, "grants of the later turn", len(e.Grants(again.grant.TurnID)), 1)
}

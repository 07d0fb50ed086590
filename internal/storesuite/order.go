package storesuite

import (
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

var orderProperties = []property{
	{"a message that failed is not overtaken in its lane", failedKeepsItsPlace},
	{"a lane that failed counts from its next try", failedLaneWaits},
	{"priority counts as waiting time", priorityIsARank},
	{"a message that is not due delays no other", notDueDelaysNobody},
	{"a turn that comes back waits for the turns of its agent's new lane", comesBackToAnOldLane},
	{"a turn that waits for a person in an old lane stops only its conversation", asksInAnOldLane},
	{"a turn that comes back to an old lane does so in the order of ranks", comesBackInOrder},
	{"a turn that comes back waits for no message that it holds", comesBackBeforeWhatItHolds},
	{"an agent leaves slots to others", leavesSlots},
	{"no more turns than max_running run", maxRunning},
}

// only returns the only grant of a tick for which the first worker has one free slot.
func only(e *env) *dispatch {
	e.Helper()
	all := withSlots(e, 1)
	if len(all) != 1 {
		e.Fatalf("%d turns were granted, want 1", len(all))
	}
	return all[0]
}

// withSlots returns the grants of a tick for which the only worker has some slots.
func withSlots(e *env, slots int) []*dispatch {
	e.Helper()
	e.Beat(presence.Heartbeat{WorkerID: first, Host: "h", Version: "v", Slots: slots, TakeoverAfter: takeover})
	e.tickAlone()
	return e.take(first)
}

func failedKeepsItsPlace(e *env) {
	older := e.turn()
	younger := e.enqueue("clerk", "", "later")
	wantErr(e, "end", older.end(failedFor(scheduler.Backoff(2))), nil)
	e.Pass(scheduler.Backoff(1))
	equal(e, "granted during the back-off", e.tick().Granted, 0)
	e.Pass(scheduler.Backoff(2))
	again := e.next(first)
	equal(e, "granted after it", again.record.Message.ID, older.record.Message.ID)
	wantErr(e, "end", again.end(succeeded("done")), nil)
	equal(e, "granted last", e.next(first).record.Message.ID, younger)
}

func failedLaneWaits(e *env) {
	e.enqueue("desk", "a", "fails")
	fails := only(e)
	wantErr(e, "end", fails.end(failedFor(30*time.Second)), nil)
	healthy := e.enqueue("desk", "b", "works")
	e.Pass(40 * time.Second)
	first := only(e)
	equal(e, "granted first", first.record.Message.ID, healthy)
	wantErr(e, "end", first.end(succeeded("done")), nil)
	equal(e, "granted second", only(e).record.Message.ID, fails.record.Message.ID)
}

func priorityIsARank(e *env) {
	send := func(conversation string, priority int) turnkeeper.MessageID {
		id, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "desk", Conversation: conversation, Body: "x",
			Priority: priority})
		wantErr(e, "enqueue", err, nil)
		return id
	}
	old := send("old", 0)
	e.Pass(10 * time.Second)
	low, urgent := send("low", 5), send("urgent", 60)
	for i, want := range []turnkeeper.MessageID{urgent, old, low} {
		d := only(e)
		equal(e, fmt.Sprint("granted as number ", i+1), d.record.Message.ID, want)
		wantErr(e, "end", d.end(succeeded("done")), nil)
	}
}

func notDueDelaysNobody(e *env) {
	now := e.Message(e.enqueue("desk", "", "what is the time?")).AcceptedAt
	later, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "later", Priority: 1000,
		DueAt: now.Add(time.Minute)})
	wantErr(e, "enqueue", err, nil)
	id := e.enqueue("clerk", "", "now")
	for _, d := range withSlots(e, 10) {
		if d.record.Message.Agent == "clerk" {
			equal(e, "granted", d.record.Message.ID, id)
			wantErr(e, "end", d.end(succeeded("done")), nil)
		}
	}
	e.Pass(2 * time.Minute)
	e.enqueue("clerk", "", "after it")
	equal(e, "granted once it is due", e.next(first).record.Message.ID, later)
}

// comesBackToAnOldLane makes an agent one lane while a turn of a conversation's lane waits for a person.
func comesBackToAnOldLane(e *env) {
	asking := asksIn(e, "a", false)
	asking.wait()
	e.Register(registration("desk", false))
	e.enqueue("desk", "b", "runs meanwhile")
	d := e.next(first)
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	equal(e, "granted while the new lane is held", e.tick().Granted, 0)
	e.finish(d, succeeded("done"))
	equal(e, "granted then", e.next(first).grant.TurnID, asking.grant.TurnID)
}

// asksIn starts a turn of desk that waits for a person in its conversation's lane.
func asksIn(e *env, conversation string, hold bool) *dispatch {
	e.Helper()
	e.enqueue("desk", conversation, "asks")
	asking := e.next(first)
	ask := question(key(1, 1), asks.KindApprove)
	ask.Hold, ask.Timeout = hold, 24*time.Hour
	asking.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Asks: []asks.Question{ask}})
	return asking
}

// asksInAnOldLane makes an agent one lane while a turn waits for a person, and before another one does.
func asksInAnOldLane(e *env) {
	asked := asksIn(e, "a", true)
	asked.wait()
	asking := asksIn(e, "b", true)
	e.Register(registration("desk", false))
	other := e.enqueue("desk", "c", "of another")
	equal(e, "granted while a turn runs in an old lane", e.tick().Granted, 0)
	asking.wait()
	later := e.enqueue("desk", "a", "of the same")
	d := e.next(first)
	equal(e, "granted while both ask", d.record.Message.ID, other)
	e.answerAsk(e.onlyAsk(asked.grant.TurnID).ID, approved())
	equal(e, "granted while the new lane is held", e.tick().Granted, 0)
	e.finish(d, succeeded("done"))
	e.Pass(2 * time.Hour) // the lanes count as changed as long as a turn is to go back to an old one
	e.beat(first)
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	for _, want := range []*dispatch{asked, asking} {
		d = e.next(first)
		equal(e, "granted after the answer", d.grant.TurnID, want.grant.TurnID)
		equal(e, "granted meanwhile", e.tick().Granted, 0)
		e.conclude(d)
	}
	equal(e, "granted last", e.next(first).record.Message.ID, later)
}

// comesBackInOrder sends messages to an agent's new lane before and after a turn goes back to the old one.
func comesBackInOrder(e *env) {
	asking := asksIn(e, "a", true)
	asking.wait()
	e.Register(registration("desk", false))
	equal(e, "granted while it asks", e.tick().Granted, 0)
	urgent, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "desk", Conversation: "b", Body: "urgent",
		Priority: 60})
	wantErr(e, "enqueue", err, nil)
	e.enqueue("desk", "c", "later")
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	equal(e, "granted", e.tick().Granted, 1)
	d := e.take(first)[0]
	equal(e, "granted first", d.record.Message.ID, urgent)
	e.finish(d, succeeded("done"))
	equal(e, "granted after it", e.tick().Granted, 1)
	equal(e, "granted then", e.take(first)[0].grant.TurnID, asking.grant.TurnID)
}

// comesBackBeforeWhatItHolds sends a message with a lower rank to a conversation that a turn holds.
func comesBackBeforeWhatItHolds(e *env) {
	asking := e.asksFor()
	asking.wait()
	held, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", Body: "urgent", Priority: 60})
	wantErr(e, "enqueue", err, nil)
	other := e.enqueue("clerk", "other", "hello")
	d := e.next(first)
	equal(e, "granted while it asks", d.record.Message.ID, other)
	e.finish(d, succeeded("hi"))
	e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
	d = e.next(first)
	equal(e, "granted after the answer", d.grant.TurnID, asking.grant.TurnID)
	e.conclude(d)
	equal(e, "granted then", e.next(first).record.Message.ID, held)
}

func leavesSlots(e *env) {
	for i := range 20 {
		e.enqueue("desk", fmt.Sprint(i), "x")
	}
	e.Pass(time.Minute)
	e.enqueue("clerk", "", "waits as well")
	granted := map[string]int{}
	all := withSlots(e, 8)
	for _, d := range all {
		granted[d.record.Turn.Agent]++
	}
	equal(e, "granted of the agent with one message", granted["clerk"], 1)
	equal(e, "granted in all", len(all), 8)
	for _, d := range all {
		if d.record.Turn.Agent == "clerk" {
			wantErr(e, "end", d.end(succeeded("done")), nil)
		}
	}
	e.enqueue("clerk", "", "waits as well")
	d := withSlots(e, 8)
	equal(e, "granted of a full agent beside another", len(d), 1)
	equal(e, "agent", d[0].record.Turn.Agent, "clerk")
}

func maxRunning(e *env) {
	r := registration("desk", true)
	r.MaxRunning = 2
	e.Register(r)
	for i := range 5 {
		e.enqueue("desk", fmt.Sprint(i), "x")
	}
	all := withSlots(e, 10)
	equal(e, "granted", len(all), 2)
	equal(e, "granted while they run", len(withSlots(e, 10)), 0)
	wantErr(e, "end", all[0].end(succeeded("done")), nil)
	equal(e, "granted after an end", len(withSlots(e, 10)), 1)
}

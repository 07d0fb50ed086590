package storesuite

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// spawnProperties are the properties of sub-agents.
var spawnProperties = []property{
	{"a spawn is its start and one message", spawnIsOneMessage},
	{"a lost answer of a spawn is settled", spawnLostAnswer},
	{"a sub-agent's reply wakes its parent", replyWakesParent},
	{"a sub-agent's reply does not conflict with its parent's writes", replyWhileRunning},
	{"a turn does not wait for a sub-agent that replied", replyBeforeTheWait},
	{"a sub-agent's end waits for no lock of its parent", replyWhileParentIsHeld},
	{"a sub-agent that fails finally has one reply", subAgentFails},
	{"a cancelled sub-agent ends its call", subAgentCancelled},
	{"a sub-agent that loses its workers ends its call", subAgentLost},
	{"sub-agents end with their parent", cancelTree},
	{"a cancellation goes down the tree", cancelWaitingTree},
	{"a sub-agent that nobody waits for is not granted", droppedNotGranted},
	{"a refused spawn is the result of its call", spawnRefused},
	{"an overdue sub-agent is cancelled", spawnOverdue},
	{"a turn that loses its workers spawns once, and its sub-agent ends with it", lostParent},
}

// traceParent is the trace parent of every sub-agent.
const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var treeLimits = turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 2}

// spawnOf returns the start and the first result of a call that spawns an agent.
func (d *dispatch) spawnOf(k turnkeeper.CallKey, agent, task string) (turnlog.CallStart, turnlog.CallResult) {
	d.env.Helper()
	message, err := d.NewMessage(d.env.Context())
	if err != nil {
		d.env.Fatal(err)
	}
	n, turn := nonce(), d.record.Turn
	root := d.record.Lineage.Root
	if root == 0 {
		root = turn.ID
	}
	start := turnlog.CallStart{Key: k, Nonce: n, Attempt: 1, Effect: turnkeeper.EffectOnce, Spawn: &turnlog.Spawn{
		Message: message, Agent: agent, Task: task, Root: root, Limits: treeLimits, Within: time.Hour,
		Agents: append(d.record.Lineage.Within(turn.Agent), agent), TraceParent: traceParent,
	}}
	return start, turnlog.CallResult{Key: k, Nonce: n, State: turnkeeper.CallRunning, Shown: "not yet"}
}

func (d *dispatch) spawn(k turnkeeper.CallKey, agent, task string) turnkeeper.MessageID {
	d.env.Helper()
	start, result := d.spawnOf(k, agent, task)
	d.append(turnlog.Entry{
		Starts: []turnlog.CallStart{start}, Results: []turnlog.CallResult{result},
		Events: events(turnkeeper.EventToolStarted),
	})
	equal(d.env, "state of the call", d.call(k).State, turnkeeper.CallRunning)
	equal(d.env, "the call is detached", d.call(k).Awaited, true)
	return start.Spawn.Message
}

// spawned returns a dispatch of clerk whose first call spawned desk. The other calls are planned.
func (e *env) spawned(more ...turnkeeper.Effect) (d *dispatch, message turnkeeper.MessageID) {
	e.Helper()
	d = e.planned(append(more, turnkeeper.EffectOnce)...)
	return d, d.spawn(key(1, 1), "desk", "look it up")
}

func (e *env) exists(id turnkeeper.MessageID) bool {
	e.Helper()
	message, err := e.FindMessage(e.Context(), id)
	return err == nil && message.ID == id
}

// childTurn dispatches the turn of a sub-agent to the second worker.
func (e *env) childTurn(message turnkeeper.MessageID) *dispatch {
	e.Helper()
	d := e.next(second)
	equal(e, "message of the turn", d.record.Message.ID, message)
	return d
}

// spawnEnd appends the only result of a sub-agent to the journal.
func (d *dispatch) spawnEnd() turnlog.SpawnEnd {
	d.env.Helper()
	completed, err := d.Arrivals(d.env.Context())
	if err != nil || len(completed) != 1 || completed[0].Spawned == nil {
		d.env.Fatalf("completed calls %+v, want one sub-agent; error %v", completed, err)
	}
	end := *completed[0].Spawned
	equal(d.env, "state of the result", completed[0].State, end.State())
	completed[0].Shown = end.Reply
	d.append(turnlog.Entry{Results: completed, Events: events(turnkeeper.EventToolResult)})
	left, err := d.Arrivals(d.env.Context())
	if err != nil || len(left) != 0 {
		d.env.Errorf("%d results left after the entry, error %v", len(left), err)
	}
	return end
}

func spawnIsOneMessage(e *env) {
	d, id := e.spawned()
	m := e.Message(id)
	conversation := turnlog.SpawnConversation(d.grant.TurnID, key(1, 1))
	equal(e, "agent", m.Agent, "desk")
	equal(e, "body", m.Body, "look it up")
	equal(e, "conversation", m.Conversation, conversation)
	equal(e, "lane", m.Lane, turnkeeper.Lane("desk/"+conversation))
	equal(e, "trace parent", m.TraceParent, traceParent)
	equal(e, "due with the parent's message", m.DueAt.Equal(d.record.Message.DueAt), true)
	start, result := d.spawnOf(key(1, 1), "desk", "again")
	err := d.Append(e.Context(), turnlog.Entry{Starts: []turnlog.CallStart{start},
		Results: []turnlog.CallResult{result}})
	wantErr(e, "the same call again", err, turnkeeper.ErrJournalMoved)
	equal(e, "message of a refused start", e.exists(start.Spawn.Message), false)
	child := e.childTurn(id)
	l := child.record.Lineage
	equal(e, "root", l.Root, d.grant.TurnID)
	equal(e, "parent", l.Parent, d.grant.TurnID)
	equal(e, "call", l.Call, key(1, 1))
	equal(e, "depth", l.Depth(), 1)
	equal(e, "limits", l.Limits, treeLimits)
	equal(e, "lineage of the parent", d.record.Lineage.Root, 0)
	grandchild := child
	grandchild.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	l = e.childTurn(grandchild.spawn(key(1, 1), "clerk", "and you")).record.Lineage
	equal(e, "root of the grandchild", l.Root, d.grant.TurnID)
	equal(e, "parent of the grandchild", l.Parent, child.grant.TurnID)
	equal(e, "depth of the grandchild", l.Depth(), 2)
}

func spawnLostAnswer(e *env) {
	d := e.planned(turnkeeper.EffectOnce)
	e.Journal(d.record, d.grant)
	start, result := d.spawnOf(key(1, 1), "desk", "look it up")
	e.CutNext(true)
	d.append(turnlog.Entry{Starts: []turnlog.CallStart{start}, Results: []turnlog.CallResult{result}})
	e.childTurn(start.Spawn.Message)
	equal(e, "granted beside it", e.tick().Granted, 0)
}

func replyWakesParent(e *env) {
	d, id := e.spawned()
	d.wait()
	equal(e, "parent", d.turnState(), turnkeeper.TurnWaiting)
	e.finish(e.childTurn(id), succeeded("forty-two"))
	equal(e, "parent", d.turnState(), turnkeeper.TurnQueued)
	after := e.next(first)
	equal(e, "continued turn", after.grant.TurnID, d.grant.TurnID)
	end := after.spawnEnd()
	equal(e, "outcome", end.Outcome, turnkeeper.TurnSucceeded)
	equal(e, "reply", end.Reply, "forty-two")
	equal(e, "message", end.Message, id)
	equal(e, "open", end.Open, false)
	e.finish(after, succeeded("done"))
	equal(e, "granted at the end", e.tick().Granted, 0)
}

func replyWhileRunning(e *env) {
	d, id := e.spawned()
	e.finish(e.childTurn(id), turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds,
		Reply: "a part"})
	equal(e, "parent", d.turnState(), turnkeeper.TurnRunning)
	d.append(turnlog.Entry{Round: round(2), Events: events(turnkeeper.EventRoundStart)})
	end := d.spawnEnd()
	equal(e, "outcome", end.Outcome, turnkeeper.TurnDegraded)
	equal(e, "stop reason", end.Stop, turnkeeper.StopMaxRounds)
}

func replyBeforeTheWait(e *env) {
	d, id := e.spawned()
	e.finish(e.childTurn(id), succeeded("early"))
	d.wait()
	equal(e, "parent after it asked to wait", d.turnState(), turnkeeper.TurnQueued)
	equal(e, "reply", e.next(first).spawnEnd().Reply, "early")
}

func replyWhileParentIsHeld(e *env) {
	d, id := e.spawned(turnkeeper.EffectOnce)
	child, n := e.childTurn(id), nonce()
	_, err := d.transact(key(1, 2), n, func(context.Context) turnlog.CallResult {
		e.finish(child, succeeded("meanwhile"))
		return result(key(1, 2), n, turnkeeper.CallFailed, "no")
	})
	wantErr(e, "transaction", err, nil)
	equal(e, "sub-agents handled by the tick", e.tick().Spawns, 1)
	equal(e, "reply", d.spawnEnd().Reply, "meanwhile")
}

func subAgentFails(e *env) {
	d, id := e.spawned()
	d.wait()
	e.finish(e.childTurn(id), turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "unavailable", Retry: true})
	equal(e, "parent after the first attempt", d.turnState(), turnkeeper.TurnWaiting)
	e.Pass(3 * time.Minute)
	again := e.childTurn(id)
	equal(e, "lineage of the second attempt", again.record.Lineage.Parent, d.grant.TurnID)
	e.finish(again, turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "unavailable", Reply: "It could not be done."})
	end := e.next(first).spawnEnd()
	equal(e, "outcome", end.Outcome, turnkeeper.TurnFailed)
	equal(e, "reply", end.Reply, "It could not be done.")
	equal(e, "turn", end.Turn, again.grant.TurnID)
}

func subAgentCancelled(e *env) {
	d, id := e.spawned()
	d.wait()
	_, _, err := e.CancelMessage(e.Context(), id)
	wantErr(e, "cancellation", err, nil)
	equal(e, "outcome", e.next(first).spawnEnd().Outcome, turnkeeper.TurnCancelled)
}

func subAgentLost(e *env) {
	d, id := e.spawned()
	d.wait()
	child := e.childTurn(id)
	for range 2 {
		child = e.again(child)
	}
	e.Pass(LeaseTTL)
	equal(e, "closed", e.tick().Closed, 1)
	equal(e, "parent", d.turnState() == turnkeeper.TurnWaiting, false)
	e.tick()
	for _, after := range e.take(first) {
		equal(e, "outcome", after.spawnEnd().Outcome, turnkeeper.TurnDegraded)
	}
}

// cancelTree ends a turn with sub-agents in each state and checks that they end too.
func cancelTree(e *env) {
	d := e.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	running := d.spawn(key(1, 1), "desk", "run")
	child := e.childTurn(running)
	child.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	grand := child.spawn(key(1, 1), "clerk", "wait")
	o := succeeded("without them")
	d.append(turnlog.Entry{
		Results: []turnlog.CallResult{
			result(key(1, 1), d.call(key(1, 1)).Nonce, turnkeeper.CallCancelled, "cancelled"),
			result(key(1, 2), "", turnkeeper.CallCancelled, "not run"),
		},
		Outcome: &o, Events: events(turnkeeper.EventTurnComplete),
	})
	record, err := e.Load(e.Context(), child.grant.TurnID, child.grant.GrantID)
	wantErr(e, "child", err, nil)
	equal(e, "the running child is asked to stop", record.End, turnlog.EndCancel)
	equal(e, "grandchild", e.Message(grand).State, turnkeeper.MessageWaiting)
	child.wait() // its worker has not seen the request
	equal(e, "child", e.Message(running).State, turnkeeper.MessageCancelled)
	e.tick()
	equal(e, "grandchild", e.Message(grand).State, turnkeeper.MessageCancelled)
	equal(e, "queued jobs", len(e.Fetch(second)), 0)
	equal(e, "parent", d.turnState(), turnkeeper.TurnSucceeded)
	_, replied := e.Reply(grand)
	equal(e, "the grandchild has its reply", replied, true)
}

func cancelWaitingTree(e *env) {
	d, id := e.spawned(turnkeeper.EffectOnce)
	other := d.spawn(key(1, 2), "desk", "and this")
	d.wait()
	e.tick()
	children := e.take(second)
	equal(e, "children", len(children), 2)
	children[0].append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	e.cancel(d.grant.TurnID, true)
	for _, child := range children {
		released := turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "shut down"}
		child.Append(e.Context(), turnlog.Entry{Outcome: &released}) //nolint:errcheck // the states below show it
	}
	e.tick()
	for _, m := range []turnkeeper.MessageID{id, other} {
		equal(e, "child", e.Message(m).State, turnkeeper.MessageCancelled)
	}
	e.wantCancelled(d.grant.TurnID)
}

// droppedNotGranted drops sub-agents in the tick that would grant them.
func droppedNotGranted(e *env) {
	d, id := e.spawned()
	e.cancel(d.grant.TurnID, false)
	e.Pass(LeaseTTL)
	report := e.tick()
	equal(e, "taken from the lost worker", report.Requeued, 1)
	equal(e, "granted", report.Granted, 0)
	equal(e, "handled sub-agents", report.Spawns, 1)
	equal(e, "child", e.Message(id).State, turnkeeper.MessageCancelled)

	d, id = e.spawned()
	d.wait()
	child := e.childTurn(id)
	child.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	grand := child.spawn(key(1, 1), "clerk", "wait")
	e.finish(child, turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "shut down"})
	e.cancel(d.grant.TurnID, true)
	report = e.tick()
	equal(e, "granted below a queued child", report.Granted, 0)
	equal(e, "handled sub-agents", report.Spawns, 1)
	equal(e, "queued child", e.Message(id).State, turnkeeper.MessageCancelled)
	equal(e, "grandchild", e.Message(grand).State, turnkeeper.MessageCancelled)
}

func spawnRefused(e *env) {
	d, _ := e.spawned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	d.spawn(key(1, 2), "desk", "the second")
	over := d.spawn(key(1, 3), "desk", "the third of two")
	equal(e, "message above the limit", e.exists(over), false)
	end := d.spawnEnd()
	equal(e, "failure", end.Failure, turnlog.SpawnTreeFull)
	equal(e, "open", end.Open, false)

	nobody := e.plannedFor("desk", "another")
	start, handle := nobody.spawnOf(key(1, 1), "nobody", "hello")
	start.Spawn.Labels = []policy.Mark{private} // of no message: the check of a database finds none
	nobody.append(turnlog.Entry{Starts: []turnlog.CallStart{start}, Results: []turnlog.CallResult{handle}})
	equal(e, "message to an unknown agent", e.exists(start.Spawn.Message), false)
	equal(e, "failure", nobody.spawnEnd().Failure, turnlog.SpawnUnknownAgent)
}

// plannedFor returns a dispatch of the agent with one planned call.
func (e *env) plannedFor(agent, conversation string) *dispatch {
	e.Helper()
	id := e.enqueue(agent, conversation, "do it")
	e.tick()
	for _, d := range e.take(first) {
		if d.record.Message.ID == id {
			d.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
			return d
		}
	}
	e.Fatalf("message %d was not granted", id)
	return nil
}

func spawnOverdue(e *env) {
	d, id := e.spawned()
	d.wait()
	e.Pass(time.Hour - time.Minute)
	child := e.childTurn(id)
	equal(e, "handled before the deadline", e.tick().Spawns, 0)
	e.Pass(2 * time.Minute)
	equal(e, "handled after the deadline", e.tick().Spawns, 1)
	after := e.take(first)[0]
	end := after.spawnEnd()
	equal(e, "failure", end.Failure, turnlog.SpawnTimeout)
	equal(e, "may still run", end.Open, true)
	record, err := e.Load(e.Context(), child.grant.TurnID, child.grant.GrantID)
	wantErr(e, "child", err, nil)
	equal(e, "the child is asked to stop", record.End, turnlog.EndCancel)
	e.finish(child, succeeded("too late"))
	equal(e, "handled after the late end", e.tick().Spawns, 0)
	left, err := after.Arrivals(e.Context())
	wantErr(e, "completed calls", err, nil)
	equal(e, "completed calls after the late end", len(left), 0)
}

func lostParent(e *env) {
	d, id := e.spawned()
	var turns []turnkeeper.TurnID
	for range 4 { // three losses, and the end
		e.Pass(LeaseTTL)
		e.tick()
		for _, granted := range e.take(second) {
			turns = append(turns, granted.grant.TurnID)
		}
	}
	equal(e, "parent", d.turnState(), turnkeeper.TurnDegraded)
	equal(e, "call", d.call(key(1, 1)).State, turnkeeper.CallCancelled)
	equal(e, "shown result of the call", d.call(key(1, 1)).Shown, agentturn.ShownReplyUnawaited)
	e.Pass(LeaseTTL)
	e.tick()
	equal(e, "child", e.Message(id).State, turnkeeper.MessageCancelled)
	child := e.Message(id).TurnID
	for _, turn := range turns {
		if turn != d.grant.TurnID && turn != child {
			e.Errorf("turn %d was granted beside parent %d and child %d", turn, d.grant.TurnID, child)
		}
	}
}

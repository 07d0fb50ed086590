package storesuite

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
)

// spawns are the properties of sub-agents.
var spawns = []property{
	{"a spawn is its start and one message", spawnIsOneMessage},
	{"a lost answer of a spawn is settled", spawnLostAnswer},
	{"a sub-agent's reply wakes its parent", replyWakesParent},
	{"a sub-agent's reply is no write of its parent", replyWhileRunning},
	{"a turn does not wait past a reply", replyBeforeTheWait},
	{"a sub-agent's end waits for no lock of its parent", replyWhileParentIsHeld},
	{"a sub-agent that fails for good has its one reply", failedForGoodBelow},
	{"a sub-agent that is cancelled ends its call", cancelledBelow},
	{"a sub-agent that loses its workers ends its call", lostBelow},
	{"sub-agents end with the turn that they work for", cancelDown},
	{"a cancellation goes down the tree", cancelDownFromWaiting},
	{"a spawn that may not be is its call's result", spawnRefused},
	{"a sub-agent that is overdue is given up and cancelled", spawnOverdue},
	{"a turn that loses its workers spawns once", lostParent},
}

// hung is where sub-agents hang in a trace.
const hung = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var treeLimits = turnkeeper.TreeLimits{MaxDepth: 3, MaxAgents: 2}

// spawnOf is the start of a call, and its first result, that gives work to an agent.
func (d *dispatch) spawnOf(k turnkeeper.CallKey, agent, task string) (turnkeeper.CallStart, turnkeeper.CallResult) {
	d.h.Helper()
	message, err := d.NewMessage(d.h.Context())
	if err != nil {
		d.h.Fatal(err)
	}
	n, turn := nonce(), d.record.Turn
	root := d.record.Lineage.Root
	if root == 0 {
		root = turn.ID
	}
	start := turnkeeper.CallStart{Key: k, Nonce: n, Attempt: 1, Effect: turnkeeper.EffectOnce, Spawn: &turnkeeper.Spawn{
		Message: message, Agent: agent, Task: task, Root: root, Limits: treeLimits, Within: time.Hour,
		Agents: append(d.record.Lineage.Within(turn.Agent), agent), TraceParent: hung,
	}}
	return start, turnkeeper.CallResult{Key: k, Nonce: n, State: turnkeeper.CallRunning, Shown: "not yet"}
}

func (d *dispatch) spawn(k turnkeeper.CallKey, agent, task string) turnkeeper.MessageID {
	d.h.Helper()
	start, result := d.spawnOf(k, agent, task)
	d.append(turnkeeper.Entry{
		Starts: []turnkeeper.CallStart{start}, Results: []turnkeeper.CallResult{result}, Events: events(turnkeeper.EventToolStarted),
	})
	equal(d.h, "state of the call", d.call(k).State, turnkeeper.CallRunning)
	equal(d.h, "the call is elsewhere", d.call(k).Elsewhere, true)
	return start.Spawn.Message
}

// spawned is a turn of the clerk whose first call gave work to the desk, with more that
// are planned.
func (h *house) spawned(more ...turnkeeper.Effect) (d *dispatch, message turnkeeper.MessageID) {
	h.Helper()
	d = h.planned(append(more, turnkeeper.EffectOnce)...)
	return d, d.spawn(key(1, 1), "desk", "look it up")
}

func (h *house) exists(id turnkeeper.MessageID) bool {
	h.Helper()
	message, err := h.FindMessage(h.Context(), id)
	return err == nil && message.ID == id
}

// below takes the turn of a sub-agent.
func (h *house) below(message turnkeeper.MessageID) *dispatch {
	h.Helper()
	d := h.next(second)
	equal(h, "message of the turn", d.record.Message.ID, message)
	return d
}

// end takes the one end of a sub-agent that the turn was told of.
func (d *dispatch) spawnEnd() turnkeeper.SpawnEnd {
	d.h.Helper()
	arrived, err := d.Arrivals(d.h.Context())
	if err != nil || len(arrived) != 1 || arrived[0].Spawned == nil {
		d.h.Fatalf("arrivals %+v, error %v", arrived, err)
	}
	end := *arrived[0].Spawned
	equal(d.h, "state of the arrival", arrived[0].State, end.State())
	arrived[0].Shown = end.Reply
	d.append(turnkeeper.Entry{Results: arrived, Events: events(turnkeeper.EventToolResult)})
	left, err := d.Arrivals(d.h.Context())
	if err != nil || len(left) != 0 {
		d.h.Errorf("%d results are left, error %v", len(left), err)
	}
	return end
}

func spawnIsOneMessage(h *house) {
	d, id := h.spawned()
	m := h.Message(id)
	conversation := turnkeeper.SpawnConversation(d.grant.TurnID, key(1, 1))
	equal(h, "agent", m.Agent, "desk")
	equal(h, "body", m.Body, "look it up")
	equal(h, "conversation", m.Conversation, conversation)
	equal(h, "lane", m.Lane, turnkeeper.Lane("desk/"+conversation))
	equal(h, "place in a trace", m.TraceParent, hung)
	equal(h, "due with what its parent handles", m.DueAt.Equal(d.record.Message.DueAt), true)
	start, result := d.spawnOf(key(1, 1), "desk", "again")
	err := d.Append(h.Context(), turnkeeper.Entry{Starts: []turnkeeper.CallStart{start}, Results: []turnkeeper.CallResult{result}})
	isIt(h, "the same call again", err, turnkeeper.ErrJournalMoved)
	equal(h, "message of a start that was refused", h.exists(start.Spawn.Message), false)
	child := h.below(id)
	l := child.record.Lineage
	equal(h, "root", l.Root, d.grant.TurnID)
	equal(h, "parent", l.Parent, d.grant.TurnID)
	equal(h, "call", l.Call, key(1, 1))
	equal(h, "depth", l.Depth(), 1)
	equal(h, "limits", l.Limits, treeLimits)
	equal(h, "lineage of the parent", d.record.Lineage.Root, 0)
	grandchild := child
	grandchild.append(turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	l = h.below(grandchild.spawn(key(1, 1), "clerk", "and you")).record.Lineage
	equal(h, "root of the grandchild", l.Root, d.grant.TurnID)
	equal(h, "parent of the grandchild", l.Parent, child.grant.TurnID)
	equal(h, "depth of the grandchild", l.Depth(), 2)
}

func spawnLostAnswer(h *house) {
	d := h.planned(turnkeeper.EffectOnce)
	h.Journal(d.record, d.grant)
	start, result := d.spawnOf(key(1, 1), "desk", "look it up")
	h.CutNext(true)
	d.append(turnkeeper.Entry{Starts: []turnkeeper.CallStart{start}, Results: []turnkeeper.CallResult{result}})
	h.below(start.Spawn.Message)
	equal(h, "granted beside it", h.tick().Granted, 0)
}

func replyWakesParent(h *house) {
	d, id := h.spawned()
	d.wait()
	equal(h, "parent", d.turnState(), turnkeeper.TurnWaiting)
	h.ends(h.below(id), succeeded("forty-two"))
	equal(h, "parent", d.turnState(), turnkeeper.TurnQueued)
	after := h.next(first)
	equal(h, "turn that goes on", after.grant.TurnID, d.grant.TurnID)
	end := after.spawnEnd()
	equal(h, "outcome", end.Outcome, turnkeeper.TurnSucceeded)
	equal(h, "reply", end.Reply, "forty-two")
	equal(h, "message", end.Message, id)
	equal(h, "open", end.Open, false)
	h.ends(after, succeeded("done"))
	equal(h, "granted after all", h.tick().Granted, 0)
}

func replyWhileRunning(h *house) {
	d, id := h.spawned()
	h.ends(h.below(id), turnkeeper.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds, Reply: "a part"})
	equal(h, "parent", d.turnState(), turnkeeper.TurnRunning)
	d.append(turnkeeper.Entry{Round: round(2), Events: events(turnkeeper.EventRoundStart)})
	end := d.spawnEnd()
	equal(h, "outcome", end.Outcome, turnkeeper.TurnDegraded)
	equal(h, "stop reason", end.Stop, turnkeeper.StopMaxRounds)
}

func replyBeforeTheWait(h *house) {
	d, id := h.spawned()
	h.ends(h.below(id), succeeded("early"))
	d.wait()
	equal(h, "parent that would wait", d.turnState(), turnkeeper.TurnQueued)
	equal(h, "reply", h.next(first).spawnEnd().Reply, "early")
}

func replyWhileParentIsHeld(h *house) {
	d, id := h.spawned(turnkeeper.EffectOnce)
	child, n := h.below(id), nonce()
	_, err := d.transact(key(1, 2), n, func(context.Context) turnkeeper.CallResult {
		h.ends(child, succeeded("meanwhile"))
		return result(key(1, 2), n, turnkeeper.CallFailed, "no")
	})
	isIt(h, "transaction", err, nil)
	equal(h, "sub-agents that a tick did something about", h.tick().Spawns, 1)
	equal(h, "reply", d.spawnEnd().Reply, "meanwhile")
}

func failedForGoodBelow(h *house) {
	d, id := h.spawned()
	d.wait()
	h.ends(h.below(id), turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "away", Retry: true})
	equal(h, "parent after the first attempt", d.turnState(), turnkeeper.TurnWaiting)
	h.Pass(3 * time.Minute)
	again := h.below(id)
	equal(h, "lineage of the second attempt", again.record.Lineage.Parent, d.grant.TurnID)
	h.ends(again, turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "away", Reply: "It could not be done."})
	end := h.next(first).spawnEnd()
	equal(h, "outcome", end.Outcome, turnkeeper.TurnFailed)
	equal(h, "reply", end.Reply, "It could not be done.")
	equal(h, "turn", end.Turn, again.grant.TurnID)
}

func cancelledBelow(h *house) {
	d, id := h.spawned()
	d.wait()
	_, _, err := h.CancelMessage(h.Context(), id)
	isIt(h, "cancellation", err, nil)
	equal(h, "outcome", h.next(first).spawnEnd().Outcome, turnkeeper.TurnCancelled)
}

func lostBelow(h *house) {
	d, id := h.spawned()
	d.wait()
	child := h.below(id)
	for range 2 {
		child = h.again(child)
	}
	h.Pass(LeaseTTL)
	equal(h, "closed", h.tick().Closed, 1)
	equal(h, "parent", d.turnState() == turnkeeper.TurnWaiting, false)
	h.tick()
	for _, after := range h.take(first) {
		equal(h, "outcome", after.spawnEnd().Outcome, turnkeeper.TurnDegraded)
	}
}

// cancelDown has a turn end with sub-agents at each state, and they end too.
func cancelDown(h *house) {
	d := h.planned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	running := d.spawn(key(1, 1), "desk", "run")
	child := h.below(running)
	child.append(turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	grand := child.spawn(key(1, 1), "clerk", "wait")
	o := succeeded("without them")
	d.append(turnkeeper.Entry{
		Results: []turnkeeper.CallResult{
			result(key(1, 1), d.call(key(1, 1)).Nonce, turnkeeper.CallCancelled, "cancelled"),
			result(key(1, 2), "", turnkeeper.CallCancelled, "not run"),
		},
		Outcome: &o, Events: events(turnkeeper.EventTurnComplete),
	})
	record, err := h.Load(h.Context(), child.grant.TurnID, child.grant.GrantID)
	isIt(h, "child", err, nil)
	equal(h, "the child that runs is asked to stop", record.Cancelled, true)
	equal(h, "grandchild", h.Message(grand).State, turnkeeper.MessageWaiting)
	child.wait() // its worker had not seen it
	equal(h, "child", h.Message(running).State, turnkeeper.MessageCancelled)
	h.tick()
	equal(h, "grandchild", h.Message(grand).State, turnkeeper.MessageCancelled)
	equal(h, "what rings", len(h.Fetch(second)), 0)
	equal(h, "parent", d.turnState(), turnkeeper.TurnSucceeded)
	_, told := h.Reply(grand)
	equal(h, "the grandchild has its reply", told, true)
}

func cancelDownFromWaiting(h *house) {
	d, id := h.spawned(turnkeeper.EffectOnce)
	other := d.spawn(key(1, 2), "desk", "and this")
	d.wait()
	h.tick()
	children := h.take(second)
	equal(h, "children", len(children), 2)
	children[0].append(turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	h.cancel(d.grant.TurnID, true)
	for _, child := range children {
		child.Append(h.Context(), turnkeeper.Entry{Outcome: &turnkeeper.Outcome{State: turnkeeper.TurnQueued, Error: "shut down"}}) //nolint:errcheck // seen below
	}
	h.tick()
	for _, m := range []turnkeeper.MessageID{id, other} {
		equal(h, "child", h.Message(m).State, turnkeeper.MessageCancelled)
	}
	h.isCancelled(d.grant.TurnID)
}

func spawnRefused(h *house) {
	d, _ := h.spawned(turnkeeper.EffectOnce, turnkeeper.EffectOnce)
	d.spawn(key(1, 2), "desk", "the second")
	over := d.spawn(key(1, 3), "desk", "the third of two")
	equal(h, "message above the limit", h.exists(over), false)
	end := d.spawnEnd()
	equal(h, "trouble", end.Trouble, turnkeeper.SpawnTreeFull)
	equal(h, "open", end.Open, false)

	nobody := h.plannedFor("desk", "elsewhere")
	equal(h, "message to nobody", h.exists(nobody.spawn(key(1, 1), "nobody", "hello")), false)
	equal(h, "trouble", nobody.spawnEnd().Trouble, turnkeeper.SpawnUnknownAgent)
}

// plannedFor is a turn of an agent with a call that is planned.
func (h *house) plannedFor(agent, conversation string) *dispatch {
	h.Helper()
	id := h.enqueue(agent, conversation, "do it")
	h.tick()
	for _, d := range h.take(first) {
		if d.record.Message.ID == id {
			d.append(turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
			return d
		}
	}
	h.Fatalf("message %d was not granted", id)
	return nil
}

func spawnOverdue(h *house) {
	d, id := h.spawned()
	d.wait()
	h.Pass(time.Hour - time.Minute)
	child := h.below(id)
	equal(h, "done before its time", h.tick().Spawns, 0)
	h.Pass(2 * time.Minute)
	equal(h, "done after it", h.tick().Spawns, 1)
	after := h.take(first)[0]
	end := after.spawnEnd()
	equal(h, "trouble", end.Trouble, turnkeeper.SpawnTimeout)
	equal(h, "may still run", end.Open, true)
	record, err := h.Load(h.Context(), child.grant.TurnID, child.grant.GrantID)
	isIt(h, "child", err, nil)
	equal(h, "the child is asked to stop", record.Cancelled, true)
	h.ends(child, succeeded("too late"))
	equal(h, "done about what came too late", h.tick().Spawns, 0)
	left, err := after.Arrivals(h.Context())
	isIt(h, "arrivals", err, nil)
	equal(h, "what came too late", len(left), 0)
}

func lostParent(h *house) {
	d, id := h.spawned()
	var turns []turnkeeper.TurnID
	for range 4 { // three losses, and the end
		h.Pass(LeaseTTL)
		h.tick()
		for _, granted := range h.take(second) {
			turns = append(turns, granted.grant.TurnID)
		}
	}
	equal(h, "parent", d.turnState(), turnkeeper.TurnDegraded)
	equal(h, "call", d.call(key(1, 1)).State, turnkeeper.CallCancelled)
	equal(h, "call as it is shown", d.call(key(1, 1)).Shown, agentturn.ShownReplyUnawaited)
	h.Pass(LeaseTTL)
	h.tick()
	equal(h, "child", h.Message(id).State, turnkeeper.MessageCancelled)
	child := h.Message(id).TurnID
	for _, turn := range turns {
		if turn != d.grant.TurnID && turn != child {
			h.Errorf("turn %d was granted beside parent %d and child %d", turn, d.grant.TurnID, child)
		}
	}
}

package storesuite

import (
	"strings"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
)

var userProperties = []property{
	{"users of an agent share no conversation", usersShareNothing},
	{"users of an agent share its lane, or none", lanesOfUsers},
	{"a key belongs to an agent and a user", keysOfUsers},
	{"a user's name has bounds", usersRefused},
	{"a parked turn holds its user's conversation alone", askHoldsOneUser},
	{"a sub-agent has the user of its parent", spawnKeepsUser},
	{"an agent's lanes are changed while a user's turn runs", changeLanesOfUsers},
	{"a cancelled message keeps its user", cancelKeepsUser},
	{"the runs of a schedule are no user's", schedulesHaveNoUser},
}

// users are names that a rule for lanes or keys might take for another's, and none.
var users = []string{"", "anna", "anna/main", "anna%2Fmain", "an#1", "a@b"}

func enqueueAs(e *env, user, agent, conversation, body string) turnkeeper.MessageID {
	e.Helper()
	id, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: agent, User: user,
		Conversation: conversation, Body: body})
	if err != nil {
		e.Fatal(err)
	}
	return id
}

// usersShareNothing takes turns between users in a conversation of the same name.
func usersShareNothing(e *env) {
	for _, agent := range []string{"clerk", "desk"} {
		for n := range 3 {
			for _, user := range users {
				id := enqueueAs(e, user, agent, "talk", "I am "+user)
				d := e.next(first)
				equal(e, "message", d.record.Message.ID, id)
				for _, m := range []turnkeeper.ConversationKey{
					d.record.Turn.ConversationKey(), d.record.Message.ConversationKey(),
					e.Message(id).ConversationKey(),
				} {
					equal(e, "conversation", m, turnkeeper.ConversationKey{Agent: agent, User: user, Name: "talk"})
				}
				equal(e, user+": history", len(d.record.History), n)
				for _, past := range d.record.History {
					equal(e, "a message of the history", past.Body, "I am "+user)
					equal(e, "a reply of the history", past.Reply, "hello "+user)
				}
				entry := turnlog.Entry{Round: round(1)}
				switch n {
				case 1:
					entry.Summary = &turnlog.Summary{UpTo: d.record.History[0].TurnID, Text: "about " + user}
				case 2:
					equal(e, "summary", d.record.Summary.Text, "about "+user)
				}
				d.append(entry)
				e.finish(d, succeeded("hello "+user))
				reply, _ := e.Reply(id)
				equal(e, "user of the reply", reply.User, user)
			}
		}
	}
}

// lanesOfUsers enqueues for all users at once: one lane is granted at a time, or all are.
func lanesOfUsers(e *env) {
	for _, user := range users {
		enqueueAs(e, user, "desk", "main", "x")
		enqueueAs(e, user, "clerk", "main", "x")
	}
	lanes := map[turnkeeper.Lane]bool{}
	e.tick()
	all := e.take(first)
	for _, d := range all {
		lanes[d.record.Turn.Lane] = true
		if d.record.Turn.Agent == "desk" {
			equal(e, "lane", d.record.Turn.Lane, d.record.Turn.ConversationKey().Lane())
		}
		equal(e, "agent of the lane", d.record.Turn.Lane.Agent(), d.record.Turn.Agent)
	}
	equal(e, "turns", len(all), len(users)+1)
	equal(e, "lanes", len(lanes), len(users)+1)
}

func keysOfUsers(e *env) {
	ids := map[turnkeeper.MessageID]bool{}
	for _, user := range users {
		m := turnkeeper.Submission{Agent: "clerk", User: user, Body: "mine", Key: "order-17"}
		id, err := e.Enqueue(e.Context(), m)
		wantErr(e, "a key of "+user, err, nil)
		again, err := e.Enqueue(e.Context(), m)
		wantErr(e, "a repeat of "+user, err, nil)
		equal(e, "a repeat", again, id)
		m.Body = "another"
		_, err = e.Enqueue(e.Context(), m)
		wantErr(e, "another body of "+user, err, turnkeeper.ErrKeyConflict)
		ids[id] = true
	}
	equal(e, "messages", len(ids), len(users))
}

func usersRefused(e *env) {
	for _, user := range []string{strings.Repeat("a", 201), "a\nb", "a\x00b", "a\x7fb", "a\u0085b", "a\xffb"} {
		_, err := e.Enqueue(e.Context(), turnkeeper.Submission{Agent: "clerk", User: user, Body: "x"})
		wantErr(e, user, err, turnkeeper.ErrInvalidMessage)
	}
	enqueueAs(e, strings.Repeat("a", 200), "clerk", "main", "x")
	equal(e, "granted", e.tick().Granted, 1)
}

func askHoldsOneUser(e *env) {
	for _, agent := range []string{"clerk", "desk"} {
		enqueueAs(e, "anna", agent, "main", "do it")
		asking := e.next(first)
		asking.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce),
			Asks: []asks.Question{question(key(1, 1), asks.KindApprove)}})
		asking.wait()
		later := enqueueAs(e, "anna", agent, "main", "later")
		for _, user := range []string{"bert", ""} {
			id := enqueueAs(e, user, agent, "main", "meanwhile")
			d := e.next(first)
			equal(e, "granted while it asks", d.record.Message.ID, id)
			e.finish(d, succeeded("hi"))
		}
		equal(e, "granted of its own conversation", e.tick().Granted, 0)
		e.answerAsk(e.onlyAsk(asking.grant.TurnID).ID, approved())
		e.conclude(e.next(first))
		d := e.next(first)
		equal(e, "granted after its end", d.record.Message.ID, later)
		e.finish(d, succeeded("hi"))
	}
}

func spawnKeepsUser(e *env) {
	enqueueAs(e, "anna", "clerk", "main", "do it")
	d := e.next(first)
	d.append(turnlog.Entry{Round: round(1, turnkeeper.EffectOnce), Events: events(turnkeeper.EventTurnStart)})
	id := d.spawn(key(1, 1), "desk", "look it up")
	m := e.Message(id)
	equal(e, "user", m.User, "anna")
	equal(e, "lane", m.Lane, m.ConversationKey().Lane())
	child := e.childTurn(id)
	equal(e, "user of the turn", child.record.Turn.User, "anna")
	e.finish(child, succeeded("found"))
	reply, _ := e.Reply(id)
	equal(e, "user of the reply", reply.User, "anna")
}

// changeLanesOfUsers changes the lanes of an agent while a turn of one user runs. With a lane for each conversation,
// only the same conversation of the same user waits for it.
func changeLanesOfUsers(e *env) {
	enqueueAs(e, "anna", "clerk", "main", "first")
	running := e.next(first)
	enqueueAs(e, "anna", "clerk", "main", "second")
	enqueueAs(e, "bert", "clerk", "main", "by itself")
	enqueueAs(e, "", "clerk", "main", "nobody's")
	e.Register(registration("clerk", true))
	e.tick()
	all := e.take(first)
	for _, d := range all {
		equal(e, "lane", d.record.Turn.Lane, d.record.Turn.ConversationKey().Lane())
		if d.record.Turn.User == "anna" {
			e.Error("a message was granted beside the running turn of its conversation")
		}
		e.finish(d, succeeded("done"))
	}
	equal(e, "granted beside the old lane", len(all), 2)
	e.finish(running, succeeded("done"))
	equal(e, "granted after its end", e.next(first).record.Turn.User, "anna")
}

func cancelKeepsUser(e *env) {
	id := enqueueAs(e, "anna", "clerk", "main", "x")
	turn, _, err := e.CancelMessage(e.Context(), id)
	wantErr(e, "cancel", err, nil)
	cancelled, _ := e.Turn(turn)
	equal(e, "user of the turn", cancelled.User, "anna")
	reply, _ := e.Reply(id)
	equal(e, "user of the reply", reply.User, "anna")
}

func schedulesHaveNoUser(e *env) {
	e.Register(schedule())
	e.tick()
	mine := enqueueAs(e, "anna", "clerk", "main", "between")
	e.finish(e.next(first), succeeded("hello anna"))
	e.Pass(hourly)
	d := e.next(first)
	if d.record.Message.ID == mine || d.record.Turn.User != "" || d.record.Turn.Trigger != turnkeeper.TriggerSchedule {
		e.Errorf("the run is %+v", d.record.Turn)
	}
	equal(e, "history", len(d.record.History), 0)
}

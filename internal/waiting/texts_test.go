package waiting_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

func TestWait(t *testing.T) {
	t.Parallel()
	moment := func(at time.Time) string { return at.UTC().Format(time.TimeOnly) }
	until, since := time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC), time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)
	held := waiting.Wait{Reason: waiting.LaneHeld, Turn: 7, Lane: "clerk", Worker: "w-1",
		State: turnkeeper.TurnRunning, Until: until}
	open, queued, untaken := held, held, held
	open.State, queued.State, untaken.Worker = turnkeeper.TurnWaiting, turnkeeper.TurnQueued, ""
	queued.Why = "the day's budget is used up."
	for _, c := range []struct {
		wait waiting.Wait
		want string
	}{
		{waiting.Wait{Reason: waiting.AgentRetired, Agent: "clerk", Since: since},
			"agent clerk has been retired since 09:00:00"},
		{waiting.Wait{Reason: waiting.UnknownAgent, Agent: "clerk"},
			"agent clerk is not registered: no worker has its file"},
		{waiting.Wait{Reason: waiting.NotDue, Until: until}, "it is due at 09:30:00"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 1, Lane: "clerk"},
			"it waits behind message 3 of lane clerk"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 2, Lane: "clerk"},
			"it waits behind 2 messages of lane clerk: the first is message 3"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 5, Lane: "clerk"},
			"it waits behind 5 messages of lane clerk: the first is message 3"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 100, Lane: "clerk"},
			"it waits behind at least 100 messages of lane clerk: the first is message 3"},
		{held, "turn 7 of worker w-1 holds lane clerk, at most until 09:30:00"},
		{untaken, "turn 7 holds lane clerk, at most until 09:30:00"},
		{waiting.Wait{Reason: waiting.LaneHeld, Turn: 7, Until: until, State: turnkeeper.TurnRunning},
			"turn 7 holds its lane, at most until 09:30:00"},
		{waiting.Wait{Reason: waiting.LaneBackoff, Count: 1}, "its lane pauses after 1 failed turn in a row"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 1}, "it waits behind message 3 of its lane"},
		{waiting.Wait{Reason: waiting.EarlierTurn, Turn: 7}, "turn 7 goes back to its lane before it"},
		{waiting.Wait{Reason: waiting.LanesChanged, Turn: 7},
			"the agent's lanes were changed, and turn 7 is still open in an old lane"},
		{waiting.Wait{Reason: waiting.LanesChanged},
			"the agent's lanes were changed: it moves to its new lane at the next tick"},
		{open, "turn 7 holds lane clerk and waits"},
		{queued, "turn 7 holds lane clerk and is deferred until 09:30:00: the day's budget is used up"},
		{waiting.Wait{Reason: waiting.LaneBackoff, Lane: "clerk", Count: 2, Until: until, Why: "503\x1b"},
			`lane clerk pauses after 2 failed turns in a row until 09:30:00: 503\x1b`},
		{waiting.Wait{Reason: waiting.Person, Turn: 7, Count: 1}, "turn 7 waits for a person to answer 1 ask"},
		{waiting.Wait{Reason: waiting.ConversationHeld, Turn: 7, State: turnkeeper.TurnWaiting},
			"turn 7, of the same conversation, waits for a person and goes first"},
		{waiting.Wait{Reason: waiting.ConversationHeld, Turn: 7, State: turnkeeper.TurnRunning},
			"turn 7, of the same conversation, goes first"},
		{waiting.Wait{Reason: waiting.EarlierTurn, Turn: 7, Lane: "clerk"}, "turn 7 goes back to lane clerk before it"},
		{waiting.Wait{Reason: waiting.LanesChanged, Turn: 7, State: turnkeeper.TurnRunning, Lane: "clerk/a",
			Worker: "w-1"}, "the agent's lanes were changed, and turn 7 of worker w-1 is still open in lane clerk/a"},
		{waiting.Wait{Reason: waiting.LanesChanged, Lane: "clerk"},
			"the agent's lanes were changed: it moves to lane clerk at the next tick"},
		{waiting.Wait{Reason: waiting.SubAgents, Turn: 7, Count: 1, Agent: "scribe", Message: 9},
			"turn 7 waits for a sub-agent: scribe, with message 9"},
		{waiting.Wait{Reason: waiting.SubAgents, Turn: 7, Count: 2, Agent: "scribe", Message: 9},
			"turn 7 waits for 2 sub-agents: scribe, with message 9"},
		{waiting.Wait{Reason: waiting.DetachedCalls, Turn: 7, Count: 1}, "turn 7 waits for a detached call"},
		{waiting.Wait{Reason: waiting.DetachedCalls, Turn: 7, Count: 2}, "turn 7 waits for 2 detached calls"},
		{waiting.Wait{Reason: waiting.BudgetSpent, Turn: 7, Until: until, Why: "spent."},
			"turn 7 waits for its budget until 09:30:00: spent"},
		{waiting.Wait{Reason: waiting.Deferred, Turn: 7, Until: until}, "turn 7 is deferred until 09:30:00"},
		{waiting.Wait{Reason: waiting.NotTakenUp, Turn: 7}, "turn 7 is granted, but no worker has started it yet"},
		{waiting.Wait{Reason: waiting.WorkerSilent, Turn: 7, Worker: "w-1", Silent: 40 * time.Second, Until: until},
			"worker w-1 has been silent for 40 s; turn 7 is taken over at 09:30:00"},
		{waiting.Wait{Reason: waiting.WorkerSilent, Turn: 7, Worker: "w-1", Stopped: true, Until: until},
			"worker w-1 has stopped; turn 7 is taken over at 09:30:00"},
		{waiting.Wait{Reason: waiting.WorkerSilent, Turn: 7, Silent: time.Minute, Until: until},
			"its worker has been silent for 1 min; turn 7 is taken over at 09:30:00"},
		{waiting.Wait{Reason: waiting.SchedulerPaused, Since: since, Why: "repairs."},
			"the scheduler has been paused since 09:00:00: repairs"},
		{waiting.Wait{Reason: waiting.SchedulerHoldsOff, Until: until, Why: "the clock stepped"},
			"the scheduler holds off until 09:30:00: the clock stepped"},
		{waiting.Wait{Reason: waiting.SchedulerSilent, Since: since}, "no scheduler has run since 09:00:00"},
		{waiting.Wait{Reason: waiting.SchedulerSilent}, "no scheduler has run yet"},
		{waiting.Wait{Reason: waiting.NoWorker}, "no worker takes turns"},
		{waiting.Wait{Reason: waiting.NoFreeSlot, Count: 10}, "no slot is free: the 10 slots are taken by other turns"},
		{waiting.Wait{Reason: waiting.NoFreeSlot, Count: 1}, "no slot is free: the one slot is taken by another turn"},
		{waiting.Wait{Reason: waiting.ModelDown, Model: "a/one", Since: since, Until: until, Why: "auth: 401 ..."},
			"model a/one has been down since 09:00:00; it is tried again at 09:30:00: auth: 401 ..."},
		{waiting.Wait{Reason: waiting.ModelDown, Model: "a/one", Since: since, Turn: 7},
			"model a/one has been down since 09:00:00; turn 7 tries it now"},
		{waiting.Wait{Reason: waiting.NextTick}, "nothing blocks it: the scheduler grants it at its next tick"},
		{waiting.Wait{Reason: "a_later_reason"}, "a_later_reason"},
	} {
		if got := c.wait.Long(moment); got != c.want {
			t.Errorf("%s: %q, want %q", c.wait.Reason, got, c.want)
		}
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	ago := func(time.Time) string { return "in 3 min" }
	open := func(w ...waiting.Wait) waiting.Message {
		return waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageWaiting, WaitsFor: []string{"a/one",
			"b/two"}}, Waits: w}
	}
	running := func(w ...waiting.Wait) waiting.Message {
		return waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageRunning}, Waits: w}
	}
	for _, c := range []struct {
		m           waiting.Message
		state, note string
	}{
		{waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageDegraded,
			Outcome: turnkeeper.TurnDegraded}}, "degraded", ""},
		{waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageSucceeded}}, "succeeded", ""},
		{waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageFailed, Outcome: turnkeeper.TurnFailed}},
			"failed", ""},
		{running(), "running", ""},
		{running(waiting.Wait{Reason: waiting.BudgetSpent, State: turnkeeper.TurnQueued, Until: time.Now()}),
			"deferred", "for its budget, due in 3 min"},
		{running(waiting.Wait{Reason: waiting.Deferred, State: turnkeeper.TurnQueued, Until: time.Now()}), "deferred",
			"due in 3 min"},
		{running(waiting.Wait{Reason: waiting.WorkerSilent, Silent: time.Minute}), "running",
			"worker silent for 1 min"},
		{running(waiting.Wait{Reason: waiting.WorkerSilent, Stopped: true}), "running", "worker stopped"},
		{open(waiting.Wait{Reason: waiting.ModelDown, Model: "a/one"}), "waiting", "for a/one, b/two"},
		{open(waiting.Wait{Reason: waiting.LaneHeld}, waiting.Wait{Reason: waiting.SchedulerPaused}), "waiting",
			"scheduler paused"},
		{open(waiting.Wait{Reason: waiting.LaneHeld}, waiting.Wait{Reason: waiting.WorkerSilent, Silent: time.Minute}),
			"waiting", "worker silent for 1 min"},
		{open(waiting.Wait{Reason: waiting.NoWorker}), "waiting", "no worker"},
		{open(waiting.Wait{Reason: waiting.NotDue, Until: time.Now()}), "waiting", "due in 3 min"},
		{open(waiting.Wait{Reason: waiting.LaneHeld, Turn: 7}, waiting.Wait{Reason: waiting.NoFreeSlot}), "waiting",
			"behind turn 7"},
		{open(waiting.Wait{Reason: waiting.EarlierMessage, Message: 7, Count: 3}), "waiting", "behind 3 messages"},
		{open(waiting.Wait{Reason: waiting.NextTick}), "waiting", "next tick"},
	} {
		if state, note := waiting.Standing(c.m, ago); state != c.state || note != c.note {
			t.Errorf("%+v: %q %q, want %q %q", c.m, state, note, c.state, c.note)
		}
	}
}

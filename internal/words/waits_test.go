package words_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
)

func TestWait(t *testing.T) {
	t.Parallel()
	moment := func(at time.Time) string { return at.UTC().Format(time.TimeOnly) }
	until, since := time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC), time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)
	held := waiting.Wait{Reason: waiting.LaneHeld, Turn: 7, Lane: "clerk", Worker: "w-1", State: turnkeeper.TurnRunning, Until: until}
	open, queued, untaken := held, held, held
	open.State, queued.State, untaken.Worker = turnkeeper.TurnWaiting, turnkeeper.TurnQueued, ""
	queued.Why = "the day's budget is used up."
	for _, c := range []struct {
		wait waiting.Wait
		want string
	}{
		{waiting.Wait{Reason: waiting.AgentRetired, Agent: "clerk", Since: since}, "agent clerk has been retired since 09:00:00"},
		{waiting.Wait{Reason: waiting.UnknownAgent, Agent: "clerk"}, "agent clerk is not registered: no worker has its file"},
		{waiting.Wait{Reason: waiting.NotDue, Until: until}, "it is due at 09:30:00"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 1, Lane: "clerk"}, "message 3 is ahead of it in lane clerk"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 2, Lane: "clerk"}, "message 3 and another are ahead of it in lane clerk"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 5, Lane: "clerk"}, "message 3 and 4 others are ahead of it in lane clerk"},
		{waiting.Wait{Reason: waiting.EarlierMessage, Message: 3, Count: 100, Lane: "clerk"}, "message 3 and at least 99 others are ahead of it in lane clerk"},
		{held, "turn 7 of worker w-1 holds lane clerk, at most until 09:30:00"},
		{untaken, "turn 7 holds lane clerk, at most until 09:30:00"},
		{open, "turn 7 holds lane clerk and waits for detached calls"},
		{queued, "turn 7 holds lane clerk and is deferred until 09:30:00: the day's budget is used up"},
		{waiting.Wait{Reason: waiting.LaneBackoff, Lane: "clerk", Count: 2, Until: until, Why: "503\x1b"}, `lane clerk pauses after 2 failed turns in a row until 09:30:00: 503\x1b`},
		{waiting.Wait{Reason: waiting.Person, Turn: 7, Count: 1}, "turn 7 waits for a person to answer 1 ask"},
		{waiting.Wait{Reason: waiting.LaneHeld, Turn: 7, State: turnkeeper.TurnWaiting, Asks: 1}, "turn 7, of the same conversation, waits for a person"},
		{waiting.Wait{Reason: waiting.DetachedCalls, Turn: 7, Count: 1}, "turn 7 waits for a detached call"},
		{waiting.Wait{Reason: waiting.DetachedCalls, Turn: 7, Count: 2}, "turn 7 waits for 2 detached calls"},
		{waiting.Wait{Reason: waiting.BudgetSpent, Turn: 7, Until: until, Why: "spent."}, "the budget is spent: turn 7 is deferred until 09:30:00: spent"},
		{waiting.Wait{Reason: waiting.Deferred, Turn: 7, Until: until}, "turn 7 is deferred until 09:30:00"},
		{waiting.Wait{Reason: waiting.NotTakenUp, Turn: 7}, "turn 7 is granted, but no worker has started it yet"},
		{waiting.Wait{Reason: waiting.WorkerSilent, Turn: 7, Worker: "w-1", Silent: 40 * time.Second, Until: until}, "worker w-1 has been silent for 40 s; turn 7 is taken over at 09:30:00"},
		{waiting.Wait{Reason: waiting.WorkerSilent, Turn: 7, Worker: "w-1", Stopped: true, Until: until}, "worker w-1 has stopped; turn 7 is taken over at 09:30:00"},
		{waiting.Wait{Reason: waiting.WorkerSilent, Turn: 7, Silent: time.Minute, Until: until}, "its worker has been silent for 1 min; turn 7 is taken over at 09:30:00"},
		{waiting.Wait{Reason: waiting.SchedulerPaused, Since: since, Why: "repairs."}, "the scheduler has been paused since 09:00:00: repairs"},
		{waiting.Wait{Reason: waiting.SchedulerHoldsOff, Until: until, Why: "the clock stepped"}, "the scheduler holds off until 09:30:00: the clock stepped"},
		{waiting.Wait{Reason: waiting.SchedulerSilent, Since: since}, "no scheduler has run since 09:00:00"},
		{waiting.Wait{Reason: waiting.SchedulerSilent}, "no scheduler has run yet"},
		{waiting.Wait{Reason: waiting.NoWorker}, "no worker takes turns"},
		{waiting.Wait{Reason: waiting.NoFreeSlot, Count: 10}, "no slot is free: the 10 slots are taken by other turns"},
		{waiting.Wait{Reason: waiting.NoFreeSlot, Count: 1}, "no slot is free: the one slot is taken by another turn"},
		{waiting.Wait{Reason: waiting.ModelDown, Model: "a/one", Since: since, Until: until, Why: "auth: 401 ..."}, "model a/one has been down since 09:00:00; it is tried again at 09:30:00: auth: 401 ..."},
		{waiting.Wait{Reason: waiting.ModelDown, Model: "a/one", Since: since, Turn: 7}, "model a/one has been down since 09:00:00; turn 7 tries it now"},
		{waiting.Wait{Reason: waiting.NextTick}, "nothing blocks it: the scheduler grants it at its next tick"},
		{waiting.Wait{Reason: "a_later_reason"}, "a_later_reason"},
	} {
		if got := words.Wait(c.wait, moment); got != c.want {
			t.Errorf("%s: %q, want %q", c.wait.Reason, got, c.want)
		}
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	ago := func(time.Time) string { return "in 3 min" }
	open := func(w ...waiting.Wait) waiting.Message {
		return waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageWaiting, WaitsFor: []string{"a/one", "b/two"}}, Waits: w}
	}
	running := func(w ...waiting.Wait) waiting.Message {
		return waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageRunning}, Waits: w}
	}
	for _, c := range []struct {
		m           waiting.Message
		state, note string
	}{
		{waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageAnswered, Outcome: turnkeeper.TurnDegraded}}, "degraded", ""},
		{waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageAnswered}}, "answered", ""},
		{waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageFailed, Outcome: turnkeeper.TurnFailed}}, "failed", ""},
		{running(), "running", ""},
		{running(waiting.Wait{Reason: waiting.BudgetSpent}), "deferred", "budget spent, due in 3 min"},
		{running(waiting.Wait{Reason: waiting.Deferred}), "deferred", "due in 3 min"},
		{running(waiting.Wait{Reason: waiting.WorkerSilent, Silent: time.Minute}), "running", "worker silent for 1 min"},
		{running(waiting.Wait{Reason: waiting.WorkerSilent, Stopped: true}), "running", "worker stopped"},
		{open(waiting.Wait{Reason: waiting.ModelDown}), "waiting", "for a/one, b/two"},
		{open(waiting.Wait{Reason: waiting.LaneHeld}, waiting.Wait{Reason: waiting.SchedulerPaused}), "waiting", "scheduler paused"},
		{open(waiting.Wait{Reason: waiting.LaneHeld}, waiting.Wait{Reason: waiting.WorkerSilent}), "waiting", ""},
		{open(waiting.Wait{Reason: waiting.NoWorker}), "waiting", "no worker"},
		{open(waiting.Wait{Reason: waiting.NotDue}), "waiting", "due in 3 min"},
		{open(waiting.Wait{Reason: waiting.NextTick}), "waiting", ""},
	} {
		if state, note := words.Standing(c.m, ago); state != c.state || note != c.note {
			t.Errorf("%+v: %q %q, want %q %q", c.m, state, note, c.state, c.note)
		}
	}
}

func TestStopReason(t *testing.T) {
	t.Parallel()
	for losses, want := range map[int]string{
		0: "its worker handed it back during a call that must not be repeated", 1: "its worker was lost during a call that must not be repeated",
		3: "it lost 3 workers",
	} {
		if got := words.StopReason(turnkeeper.Turn{StopReason: turnkeeper.StopWorkerLost, Losses: losses}); got != want {
			t.Errorf("%d losses: %q", losses, got)
		}
	}
	if got := words.StopReason(turnkeeper.Turn{StopReason: "later"}); got != "later" {
		t.Errorf("an unknown reason: %q", got)
	}
}

func TestUnderWay(t *testing.T) {
	t.Parallel()
	calls := []turnkeeper.OpenCall{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}
	for want, u := range map[string]turnkeeper.UnderWay{
		"asks a model for round 2":              {Round: 2},
		"round 2 streams, ~1,200 tokens so far": {Round: 2, OutputTokens: 1200},
		"round 1 streams, ~1 token so far":      {Round: 1, OutputTokens: 1},
		"runs a":                                {Round: 1, Calls: calls[:1]},
		"runs a, b, c, 2 more":                  {Round: 1, Calls: calls},
	} {
		if got := words.UnderWay(u); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"it ended": "it ended.", "it ended.": "it ended.", "it ended.. ": "it ended.", "it goes on ...": "it goes on ...", "cut…": "cut…",
	} {
		if got := words.Sentence(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

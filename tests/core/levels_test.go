package core_test

import (
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// TestABudgetRunsDown lets the day's budget of an agent run down: its turns then ask the cheaper model that its file
// names, its schedule does not run, and messages of a low priority wait. A pin and a new day bring it back. No reply
// tells of it.
func TestABudgetRunsDown(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: test/dear", "budget: {day_calls: 10}",
		"schedule: {cron: '@every 1s'}", "levels:", "  low: {model: test/cheap, schedules: false, min_priority: 0}",
		"  critical: {model: test/cheap, min_priority: 5}")
	e.WriteAgent("other", "model: test/dear")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Text("done by " + r.Chat().Model)
	})
	e.Exec(
		"insert into spend (scope, period, calls) values ('agent:clerk', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD'), 0)")
	e.StartWorker()
	reply := func(message int64, want string) {
		t.Helper()
		turn := e.TurnOf(message)
		if turn.Reply == nil || turn.Reply.Body != want || turn.State != "succeeded" {
			t.Errorf("the turn is %s, and the reply is %+v, want %q", turn.State, turn.Reply, want)
		}
	}
	reply(e.Enqueue("clerk", "One."), "done by dear")

	e.Turnctl("schedules", "pause", "clerk")
	e.Await("no slot is left", "select not exists (select from messages where state in ('waiting', 'running'))")
	e.Exec("update spend set calls = 9 where scope = 'agent:clerk'")
	turn := e.Enqueue("clerk", "The tenth call.")
	reply(turn, "done by cheap")
	if got := env.Query[string](e, "select level_of('clerk')"); got != "critical" { // nothing is left
		t.Errorf("the level is %s", got)
	}
	low := e.Enqueue("clerk", "Not urgent.", "--priority", "-1")
	e.Await("it waits because of the level", "select exists (select from blockers($1) where reason = 'survival_level')",
		low)
	reply(e.Enqueue("other", "Of another agent."), "done by dear")

	e.Exec("update spend set calls = 5 where scope = 'agent:clerk'")
	e.Turnctl("levels", "pin", "low", "--agent", "clerk", "--by", "ada", "--reason", "a test")
	e.Turnctl("schedules", "resume", "clerk")
	e.Await("a slot does not run, and says why",
		"select exists (select from schedules where skipped_why = 'the agent''s survival level is low')")
	reply(e.Enqueue("clerk", "At level low."), "done by cheap")

	e.Turnctl("schedules", "pause", "clerk")
	e.Turnctl("levels", "pin", "normal", "--agent", "clerk")
	reply(low, "done by dear")

	e.Turnctl("levels", "unpin", "--agent", "clerk")
	e.Exec("update spend set calls = 10, level = 'critical' where scope = 'agent:clerk'")
	low = e.Enqueue("clerk", "On the next day.")
	e.Await("it waits because of the level", "select exists (select from blockers($1) where reason = 'survival_level')",
		low)
	e.Exec("update spend set period = '2020-01-01' where scope = 'agent:clerk'")
	e.Exec("notify turnkeeper_inbox")
	reply(low, "done by dear")
}

// TestABudgetIsRaised checks that a reload with a larger budget ends a level.
func TestABudgetIsRaised(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	write := func(calls string) {
		e.WriteAgent("clerk", "model: test/dear", "budget: {day_calls: "+calls+"}",
			"levels: {critical: {min_priority: 1}}")
	}
	write("1")
	e.Model.Then(env.Rounds(inferencetest.Text("done")))
	w := e.StartWorker()
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "One.")), "succeeded", "none", 1)
	second := e.Enqueue("clerk", "Two.")
	e.Await("it waits because of the level", "select exists (select from blockers($1) where reason = 'survival_level')",
		second)
	write("100")
	w.Signal(syscall.SIGHUP)
	e.WantEnd(e.TurnOf(second), "succeeded", "none", 1)
}

// TestALevelLeadsAroundAModelThatIsDown lets the model of an agent fail, and then that of its level low. A pin of the
// other level brings an answer while the model is down, and the agent's messages wait without it.
func TestALevelLeadsAroundAModelThatIsDown(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: test/dear", "lane: conversation", "levels: {low: {model: test/cheap}}")
	var down atomic.Value
	down.Store("dear")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if r.Chat().Model == down.Load() {
			return wrongKey
		}
		return inferencetest.Text("done by " + r.Chat().Model)
	})
	e.StartWorker()
	for _, c := range []struct{ down, level, up, without string }{{"dear", "low", "cheap", "normal"},
		{"cheap", "normal", "dear", "low"}} {
		down.Store(c.down)
		e.Turnctl("levels", "pin", c.without, "--agent", "clerk")
		first := env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Hello', $1)", "first of "+c.down)
		e.Await("the model is down",
			"select exists (select from model_health where model = $1 and down_since is not null)", "test/"+c.down)
		e.Await("the turn has failed", "select not exists (select from turns where ended_at is null)")
		e.Exec("update model_health set until = clock_timestamp() + interval '1 hour' where down_since is not null")
		second := env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Hello', $1)", "second of "+c.down)
		e.Await("it waits for the model", "select exists (select from blockers($1) where reason = 'model_down')",
			second)
		e.Turnctl("levels", "pin", c.level, "--agent", "clerk")
		e.WantReply(e.TurnOf(second), "done by "+c.up)
		e.Turnctl("cancel", "--message", strconv.FormatInt(first, 10))
		e.Exec("delete from model_health")
	}
}

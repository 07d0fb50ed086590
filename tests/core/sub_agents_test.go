package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// One slot is enough: a turn that waits for a sub-agent holds no slot.
func TestASubAgentWithOneSlot(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":   env.ReportResult(env.Spawn("scout find it")),
		"scout":  env.ReportResult(env.Spawn("runner fetch it")),
		"runner": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("fetched")),
	}))
	e.StartWorker("--worker-slots", "1")
	message := e.Enqueue("boss", "Get it done.", "--priority", "7")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(2)
	if n := env.Query[int](e, "select count(*) from leases where grant_id is not null"); n != 1 {
		t.Errorf("%d leases are held while one agent works", n)
	}
	output := e.Turnctl("show", "1").Stdout
	for _, want := range []string{"Sub-agents", "scout", "runner", "turn 3", "running"} {
		if !strings.Contains(output, want) {
			t.Errorf("turnctl show does not mention %q:\n%s", want, output)
		}
	}
	if output := e.Turnctl("explain", "1").Stdout; !strings.Contains(output, "sub-agent") {
		t.Errorf("turnctl explain prints:\n%s", output)
	}
	e.Ledger.Release()

	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, "I heard: [agent scout, succeeded, output ") ||
		!strings.HasSuffix(turn.Reply.Body, "fetched") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	e.WantOneReplyEach(3)
	e.Ledger.WantRuns("a", 1)
	child := env.Query[string](e, "select lane || ' ' || priority from messages where agent = 'scout'")
	if want := fmt.Sprintf("scout/turn-%d-round-1-tool-1 7", turn.ID); child != want {
		t.Errorf("the sub-agent's lane is %s", child)
	}
	below := e.Turnctl("show", "3").Stdout
	if !strings.Contains(below, "turn 2") || !strings.Contains(below, "turn 1") {
		t.Errorf("turnctl show of the runner's turn does not mention those above:\n%s", below)
	}
	start := env.Query[string](e, "select data ->> 'parent' from turn_events where turn_id = 3 and type = 'turn_start'")
	if !strings.Contains(start, `"turn_id":2`) || !strings.Contains(start, `"root_turn_id":1`) {
		t.Errorf("the runner's turn began with %s", start)
	}
	started := env.Query[string](e,
		"select data ->> 'sub_agent' from turn_events where turn_id = 1 and type = 'tool_started'")
	if want := fmt.Sprintf(`"message_id":%d`, env.Query[int64](e,
		"select id from messages where agent = 'scout'")); !strings.Contains(started, want) {
		t.Errorf("the boss's turn mentions %s", started)
	}
}

// Three sub-agents run in parallel, and the parent's model is called once all have replied.
func TestParallelSubAgents(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	for _, label := range []string{"a", "b", "c"} {
		e.Ledger.Hold(label)
	}
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.ReportResult(env.Spawn("scout a", "scout b", "scout c")),
		"scout": func(r inferencetest.Recorded) inferencetest.Reply {
			if env.RoundOf(r) == 1 {
				return env.MarkerReply("mark_once", env.NewestMessage(r))
			}
			return inferencetest.Text("found " + env.NewestMessage(r))
		},
	}))
	for range 2 {
		e.StartWorker("--worker-slots", "2")
	}
	message := e.Enqueue("boss", "Get it done.")
	for _, label := range []string{"a", "b", "c"} {
		e.Ledger.Await(label, 1)
	}
	e.AwaitWaiting(1)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	for i, label := range []string{"a", "b", "c"} {
		if call := turn.Calls()[i]; call.State != "succeeded" || !strings.HasSuffix(call.Result, "found "+label) ||
			call.Starts != 1 {
			t.Errorf("call %d is %+v", i+1, call)
		}
	}
	e.WantOneReplyEach(4)
}

// With async the parent continues at once, and is woken by the reply.
func TestASubAgentInTheBackground(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam("max_rounds: 6")
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": func(r inferencetest.Recorded) inferencetest.Reply {
			switch env.RoundOf(r) {
			case 1:
				return env.Spawn("scout find it async", "nobody x")
			case 2:
				return inferencetest.Calls(inferencetest.Call{ID: "call_wait", Name: "wait_for_tool_output",
					Arguments: "{}"})
			case 3:
				return env.GetOutput(r)
			default:
				return inferencetest.Text("I heard: " + env.LastResult(r))
			}
		},
		"scout": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("found")),
	}))
	e.StartWorker("--worker-slots", "1")
	message := e.Enqueue("boss", "Get it done.")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(1)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 4)
	e.WantReply(turn, "I heard: found")
	if result := turn.Calls()[0].Result; !strings.HasPrefix(result, "Tool Output ID: ") || !strings.Contains(result,
		"Tool: spawn_agent") {
		t.Errorf("the model got %q", result)
	}
	e.WantOneReplyEach(2)
}

// A chain of sub-agents ends at max_depth and cannot form a cycle.
func TestChainsThatAreRefused(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("boss", "sub_agents: [scout]", "max_sub_agent_depth: 2")
	e.WriteAgent("scout", "sub_agents: [runner]")
	e.WriteAgent("runner", "sub_agents: [boss, helper]", env.MarkerTools)
	e.WriteAgent("helper")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":  env.ReportResult(env.Spawn("scout x")),
		"scout": env.ReportResult(env.Spawn("runner x")),
		"runner": func(r inferencetest.Recorded) inferencetest.Reply {
			if env.RoundOf(r) == 1 {
				return env.Spawn("boss x", "helper x")
			}
			output := ""
			for _, m := range r.Chat().Messages {
				if m.Role == "tool" {
					output += m.Text() + "\n"
				}
			}
			return inferencetest.Text(output)
		},
	}))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("boss", "Get it done."))
	e.WantEnd(turn, "succeeded", "none", 2)
	for _, want := range []string{`"reason":"cycle"`, `"reason":"max_sub_agent_depth"`} {
		if turn.Reply == nil || !strings.Contains(turn.Reply.Body, want) {
			t.Errorf("the reply does not mention %s: %+v", want, turn.Reply)
		}
	}
	e.WantOneReplyEach(3)
}

// All agents of a tree share its bounds.
func TestBoundsOfATree(t *testing.T) {
	t.Parallel()
	t.Run("sub-agents", func(t *testing.T) {
		t.Parallel()
		e := env.New(t)
		e.WriteTeam("max_tree_sub_agents: 2")
		e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
			"boss":  env.ReportResult(env.Spawn("scout a", "scout b", "scout c")),
			"scout": env.Rounds(inferencetest.Text("found")),
		}))
		e.StartWorker()
		turn := e.TurnOf(e.Enqueue("boss", "Get it done."))
		e.WantEnd(turn, "succeeded", "none", 2)
		if call := turn.Calls()[2]; call.State != "failed" || !strings.Contains(call.Result,
			`"reason":"max_tree_sub_agents"`) {
			t.Errorf("the third is %+v", call)
		}
		if n := env.Query[int](e, "select count(*) from messages"); n != 3 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("model calls", func(t *testing.T) {
		t.Parallel()
		e := env.New(t)
		e.WriteTeam("budget: {tree_calls: 3}")
		e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
			"boss": env.ReportResult(env.Spawn("scout find it")),
			"scout": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("found"),
				inferencetest.Text("more")),
		}))
		e.StartWorker()
		turn := e.TurnOf(e.Enqueue("boss", "Get it done."))
		e.WantEnd(turn, "degraded", "budget", 1) // one call of its own, two of the scout
		e.WantRequests(3)
		if n := env.Query[int](e, "select calls from spend where scope = $1", fmt.Sprint("tree:", turn.ID)); n != 3 {
			t.Errorf("%d calls count", n)
		}
		if output := e.Turnctl("show", fmt.Sprint(turn.ID)).Stdout; !strings.Contains(output, "3 calls") {
			t.Errorf("turnctl show prints:\n%s", output)
		}
	})
}

// The failure of a sub-agent is reported to its parent and does not end the parent's turn.
func TestASubAgentThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scout func(inferencetest.Recorded) inferencetest.Reply
		harm  func(e *env.Env)
		want  []string
	}{
		"for good": {scout: func(inferencetest.Recorded) inferencetest.Reply {
			return inferencetest.Status(400, "no such field")
		},
			want: []string{`"reason":"failed"`,
				`"detail":"This message could not be answered: the model does not take it as it is; the operator was told."`, `"may_still_be_running":false`}},
		"degraded": {scout: env.Rounds(env.MarkerReply("mark_once", "a"), env.MarkerReply("mark_once", "b"),
			env.MarkerReply("mark_once", "c")),
			want: []string{"[The agent scout could not finish as asked (max_rounds)", "Tool results: 2 succeeded"}},
		"is cancelled": {scout: func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Hang() },
			harm: func(e *env.Env) {
				e.AwaitRequests(2)
				if r := cancelTurn(e, "2"); r.Code != 0 {
					e.T.Errorf("cancel: %s", r.Stderr)
				}
			}, want: []string{`"reason":"cancelled"`, `"may_still_be_running":false`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteTeam()
			e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
				"boss": env.ReportResult(env.Spawn("scout find it")), "scout": c.scout}))
			e.StartWorker("--max-attempts", "1")
			message := e.Enqueue("boss", "Get it done.")
			if c.harm != nil {
				c.harm(e)
			}
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 2)
			for _, want := range c.want {
				if turn.Reply == nil || !strings.Contains(turn.Reply.Body, want) {
					t.Errorf("the reply does not mention %s: %+v", want, turn.Reply)
				}
			}
			e.WantOneReplyEach(2)
		})
	}
}

// A cancellation ends the running and the waiting sub-agents of the tree.
func TestCancelDownTheTree(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":   env.ReportResult(env.Spawn("scout one", "scout two")),
		"scout":  env.ReportResult(env.Spawn("runner fetch it")),
		"runner": env.Rounds(env.MarkerReply("mark_slow", "a"), inferencetest.Text("fetched")),
	}))
	e.StartWorker("--worker-slots", "1")
	message := e.Enqueue("boss", "Get it done.")
	e.Ledger.Await("a", 1)
	if r := cancelTurn(e, "1"); r.Code != 0 {
		t.Errorf("cancel: %s", r.Stderr)
	}
	wantCancelled(e, message)
	e.Await("all sub-agents have ended", "select not exists (select from messages where closed_at is null)")
	if n := env.Query[int](e, "select count(*) from messages where state <> 'cancelled'"); n != 0 {
		t.Errorf("%d messages are not cancelled", n)
	}
	reason := env.Query[string](e, "select reason from requested_ends where turn_id = 2")
	if want := "its parent, turn 1, no longer waits for it"; reason != want {
		t.Errorf("the reason is %q", reason)
	}
	if n := env.Query[int](e, "select count(*) from replies"); n != env.Query[int](e, "select count(*) from messages") {
		t.Errorf("%d replies", n)
	}
	e.Ledger.Release()
}

// A turn that ends without waiting cancels its sub-agents, including one that has not started.
func TestATurnThatEndsTakesItsSubAgents(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.Rounds(env.Spawn("scout find it async", "nobody x"), inferencetest.Text("I will not wait.")),
	}))
	e.StartWorker("--worker-slots", "1")
	turn := e.TurnOf(e.Enqueue("boss", "Hurry."))
	e.WantReply(turn, "I will not wait.")
	wantCancelled(e, env.Query[int64](e, "select id from messages where agent = 'scout'"))
	if call := turn.Calls()[0]; call.State != "cancelled" {
		t.Errorf("the call is %s", call.State)
	}
}

// A retried message is a new message and spawns new sub-agents.
func TestATurnThatIsTriedAgainSpawnsAnew(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":  env.ReportResult(env.Spawn("scout find it")),
		"scout": func(r inferencetest.Recorded) inferencetest.Reply { return inferencetest.Hang() },
	}))
	e.StartWorker()
	message := e.Enqueue("boss", "Get it done.")
	e.AwaitRequests(2)
	cancelTurn(e, "1")
	wantCancelled(e, message)
	e.Await("the sub-agent has ended", "select not exists (select from messages where closed_at is null)")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.ReportResult(env.Spawn("scout find it")), "scout": env.Rounds(inferencetest.Text("found")),
	}))
	if r := e.Turnctl("retry", "--anyway", fmt.Sprint(message)); r.Code != 0 {
		t.Fatalf("retry: %s", r.Stderr)
	}
	again := env.Query[int64](e, "select retried_as from retries")
	turn := e.TurnOf(again)
	e.WantEnd(turn, "succeeded", "none", 2)
	if n := env.Query[int](e, "select count(*) from spawned_calls where turn_id = $1", turn.ID); n != 1 {
		t.Errorf("%d were spawned", n)
	}
	if n := env.Query[int](e, "select count(*) from messages where agent = 'scout'"); n != 2 {
		t.Errorf("the scout has %d messages", n)
	}
}

// A reply that comes while the scheduler is paused is not lost, and no turn continues until it resumes.
func TestAReplyWhileTheSchedulerIsPaused(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.ReportResult(env.Spawn("scout find it")), "scout": env.Rounds(env.MarkerReply("mark_once", "a"),
			inferencetest.Text("found")),
	}))
	e.StartWorker()
	message := e.Enqueue("boss", "Get it done.")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(1)
	e.PauseScheduler("a test")
	e.Ledger.Release()
	e.Await("the reply has come", "select exists (select from awaited_calls where arrived_at is not null)")
	if state := env.Query[string](e, "select state from turns where id = 1"); state != "queued" {
		t.Errorf("the boss's turn is %s", state)
	}
	e.ResumeScheduler()
	e.WantEnd(e.TurnOf(message), "succeeded", "none", 2)
}

// The records of sub-agents can be purged before their parent has read the reply, and are purged with those of
// their parent.
func TestPurgingSubAgents(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.ReportResult(env.Spawn("scout find it")), "scout": env.Rounds(env.MarkerReply("mark_once", "a"),
			inferencetest.Text("found")),
	}))
	e.StartWorker()
	message := e.Enqueue("boss", "Get it done.")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(1)
	e.PauseScheduler("a test")
	e.Ledger.Release()
	e.Await("the reply has come", "select exists (select from awaited_calls where arrived_at is not null)")
	if r := e.Turnctl("purge", "--agent", "scout"); r.Code != 0 {
		t.Fatalf("purge: %s", r.Stderr)
	}
	e.ResumeScheduler()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasSuffix(turn.Reply.Body,
		"[The agent scout has replied, and its reply was removed since.]") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	if r := e.Turnctl("purge", "--agent", "boss"); r.Code != 0 {
		t.Fatalf("purge: %s", r.Stderr)
	}
	for _, table := range []string{"spawned_calls", "agent_trees", "awaited_calls", "messages"} {
		if n := env.Query[int](e, "select count(*) from "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

// The oldest tree runs first: a sub-agent goes before messages sent after its parent's.
func TestSubAgentsDoNotStarve(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.WriteAgent("other")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.ReportResult(env.Spawn("scout find it")), "scout": env.Rounds(inferencetest.Text("found")),
		"other": env.Rounds(inferencetest.Text("Here.")),
	}))
	c := &env.CrashEnv{Env: e}
	for _, name := range []string{"boss", "scout", "runner", "other"} {
		c.RegisterFile(name)
	}
	message := e.Enqueue("boss", "Get it done.")
	e.Exec("update messages set due_at = due_at - interval '1 minute', accepted_at = accepted_at - interval '1 minute'")
	for i := range 20 {
		e.Enqueue("other", fmt.Sprint("Are you there? ", i))
	}
	e.StartWorker("--worker-slots", "1")
	e.TurnOf(message)
	// The parent pauses for a moment first. Only messages granted meanwhile may go before its sub-agent.
	if n := env.Query[int](e,
		`select count(*) from turns where agent = 'other' and created_at < (select created_at from turns where agent = 'scout')`); n > 1 {
		t.Errorf("%d newer messages were started before the sub-agent", n)
	}
	e.Await("all are answered", "select not exists (select from messages where closed_at is null)")
}

// Workers are killed at any step of a parent, of its sub-agent, and of the parent again. Each step runs on
// another worker.
func TestAKillAroundASubAgent(t *testing.T) {
	t.Parallel()
	for phase, points := range map[string][]string{
		"parent": {"plan.before", "plan.sent", "plan.after", "call.start.before", "call.start.after", "finish.before",
			"finish.sent", "finish.after"},
		"child": {"tick.granted", "work.fetched", "work.loaded", "turn.start", "model.after", "finish.before",
			"finish.sent", "finish.after"},
		"again": {"tick.granted", "work.loaded", "call.results.before", "call.results.sent", "model.before",
			"finish.sent", "finish.after"},
	} {
		for _, point := range testrun.Sample(points, 1) {
			t.Run(phase+" "+point, func(t *testing.T) {
				t.Parallel()
				killAround(t, phase, point)
			})
		}
	}
}

func killAround(t *testing.T, phase, point string) {
	e := env.NewCrash(t, env.Crash{Point: point})
	e.WriteTeam()
	e.RegisterFile("boss")
	e.RegisterFile("scout")
	gates := map[string]chan struct{}{"boss": make(chan struct{}), "scout": make(chan struct{})}
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": func(r inferencetest.Recorded) inferencetest.Reply {
			if env.RoundOf(r) == 1 {
				return inferencetest.WaitFor(gates["boss"], env.Spawn("scout find it"))
			}
			return inferencetest.Text("I heard: " + env.LastResult(r))
		},
		"scout": func(inferencetest.Recorded) inferencetest.Reply {
			return inferencetest.WaitFor(gates["scout"], inferencetest.Text("found"))
		},
	}))
	flags := []string{"--worker-slots", "1"}
	message := e.Send("boss", "Get it done.")
	pass := func(who string) { close(gates[who]) }
	if phase == "parent" {
		pass("boss")
		pass("scout")
	} else {
		early := e.StartWorker(flags...)
		e.AwaitRequests(1)
		if phase == "child" {
			e.PauseScheduler("a test")
			pass("boss")
			e.AwaitWaiting(1)
			pass("scout")
		} else {
			pass("boss")
			e.AwaitRequests(2)
			e.AwaitWaiting(1)
			e.PauseScheduler("a test")
			pass("scout")
			e.Await("the reply has come", "select exists (select from replies)")
		}
		if code := early.Terminate(); code != 0 {
			t.Fatalf("the first worker ended with %d", code)
		}
		e.ResumeScheduler()
	}
	faulty := e.StartFaulty("markerworker", flags...)
	e.Hook.Await()
	e.Kill(faulty)
	e.StartWorker(flags...)
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasSuffix(turn.Reply.Body, "found") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	e.WantOneReplyEach(2)
}

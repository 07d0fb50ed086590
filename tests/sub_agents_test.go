package tests_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// spawns asks for sub-agents: each is "agent task", or "agent task async".
func spawns(all ...string) reply {
	var asked []inferencetest.Call
	for i, one := range all {
		agent, task, _ := strings.Cut(one, " ")
		task, async := strings.CutSuffix(task, " async")
		asked = append(asked, inferencetest.Call{
			ID: fmt.Sprintf("call_%d", i+1), Name: "spawn_agent", Arguments: fmt.Sprintf(`{"agent":%q,"task":%q,"async":%t}`, agent, task, async),
		})
	}
	return calls(asked...)
}

// asked is whose request it is.
func asked(r recorded) string {
	prompt := r.Chat().Messages[0].Text()
	_, name, _ := strings.Cut(prompt, "You are ")
	name, _, _ = strings.Cut(name, ".")
	return name
}

// staff is a model for each agent.
func staff(of map[string]func(recorded) reply) func(recorded) reply {
	return func(r recorded) reply {
		model := of[asked(r)]
		if model == nil {
			return text("Nobody has told me what to do.")
		}
		return model(r)
	}
}

// tells ends with what the newest result said.
func tells(first reply) func(recorded) reply {
	return func(r recorded) reply {
		if roundOf(r) == 1 {
			return first
		}
		return text("I heard: " + lastResult(r))
	}
}

// team writes an agent boss that may give work to a scout, who may give work to a runner.
func (h *house) team(settings ...string) {
	h.t.Helper()
	h.agent("boss", append([]string{"sub_agents: [scout]", marks}, settings...)...)
	h.agent("scout", "description: Finds things.", "sub_agents: [runner]", marks)
	h.agent("runner", marks)
}

// repliedOnce fails the test unless every message has one reply, and every call of the
// boss that gave work to an agent one result.
func (h *house) repliedOnce(messages int) {
	h.t.Helper()
	if n := query[int](h, "select count(*) from messages"); n != messages {
		h.t.Errorf("there are %d messages, not %d", n, messages)
	}
	if n := query[int](h, "select count(*) from replies"); n != messages {
		h.t.Errorf("there are %d replies, not %d", n, messages)
	}
	if n := query[int](h, "select count(*) from turn_events where type = 'tool_result' and data ->> 'name' = 'spawn_agent' and data ->> 'state' <> 'denied'"); n != messages-1 {
		h.t.Errorf("%d results of sub-agents were told, not %d", n, messages-1)
	}
	if n := query[int](h, "select count(*) from spawned_calls where told_at is null or ended_at is null"); n != 0 {
		h.t.Errorf("%d sub-agents are not at their end", n)
	}
}

// One slot is enough: who waits for a sub-agent holds none.
func TestASubAgentWithOneSlot(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.ledger.hold("a")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss":   tells(spawns("scout find it")),
		"scout":  tells(spawns("runner fetch it")),
		"runner": rounds(callOnce("mark_once", "a"), text("fetched")),
	}))
	h.startWorker("--worker-slots", "1")
	message := h.enqueue("boss", "Get it done.", "--priority", "7")
	h.ledger.await("a", 1)
	h.waiting(2)
	if n := query[int](h, "select count(*) from leases where grant_id is not null"); n != 1 {
		t.Errorf("%d leases are held while one agent works", n)
	}
	told := h.run("", "turnctl", "show", "1").stdout
	for _, want := range []string{"Sub-agents", "scout", "runner", "turn 3", "running"} {
		if !strings.Contains(told, want) {
			t.Errorf("turnctl show says nothing of %q:\n%s", want, told)
		}
	}
	if told := h.run("", "turnctl", "explain", "1").stdout; !strings.Contains(told, "sub-agent") {
		t.Errorf("turnctl explain says:\n%s", told)
	}
	h.ledger.release()

	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, "I heard: [agent scout, succeeded, output ") ||
		!strings.HasSuffix(turn.Reply.Body, "fetched") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	h.repliedOnce(3)
	h.ledger.ran("a", 1)
	child := query[string](h, "select lane || ' ' || priority from messages where agent = 'scout'")
	if want := fmt.Sprintf("scout/turn-%d-round-1-tool-1 7", turn.ID); child != want {
		t.Errorf("the sub-agent's lane is %s", child)
	}
	below := h.run("", "turnctl", "show", "3").stdout
	if !strings.Contains(below, "turn 2") || !strings.Contains(below, "turn 1") {
		t.Errorf("turnctl show of the runner's turn says nothing of those above:\n%s", below)
	}
	start := query[string](h, "select data ->> 'parent' from turn_events where turn_id = 3 and type = 'turn_start'")
	if !strings.Contains(start, `"turn_id":2`) || !strings.Contains(start, `"root_turn_id":1`) {
		t.Errorf("the runner's turn began with %s", start)
	}
	started := query[string](h, "select data ->> 'sub_agent' from turn_events where turn_id = 1 and type = 'tool_started'")
	if want := fmt.Sprintf(`"message_id":%d`, query[int64](h, "select id from messages where agent = 'scout'")); !strings.Contains(started, want) {
		t.Errorf("the boss's turn tells of %s", started)
	}
}

// Three work side by side, and the boss is asked once all have replied.
func TestThreeSubAgentsSideBySide(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	for _, label := range []string{"a", "b", "c"} {
		h.ledger.hold(label)
	}
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": tells(spawns("scout a", "scout b", "scout c")),
		"scout": func(r recorded) reply {
			if roundOf(r) == 1 {
				return callOnce("mark_once", newest(r))
			}
			return text("found " + newest(r))
		},
	}))
	for range 2 {
		h.startWorker("--worker-slots", "2")
	}
	message := h.enqueue("boss", "Get it done.")
	for _, label := range []string{"a", "b", "c"} {
		h.ledger.await(label, 1)
	}
	h.waiting(1)
	h.ledger.release()
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	for i, label := range []string{"a", "b", "c"} {
		if call := turn.calls()[i]; call.State != "succeeded" || !strings.HasSuffix(call.Result, "found "+label) || call.Starts != 1 {
			t.Errorf("call %d is %+v", i+1, call)
		}
	}
	h.repliedOnce(4)
}

// With async the boss goes on at once, and is woken.
func TestASubAgentInTheBackground(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team("max_rounds: 6")
	h.ledger.hold("a")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": func(r recorded) reply {
			switch roundOf(r) {
			case 1:
				return spawns("scout find it async", "nobody x")
			case 2:
				return calls(inferencetest.Call{ID: "call_wait", Name: "wait_for_tool_output", Arguments: "{}"})
			case 3:
				return retrieve(r)
			default:
				return text("I heard: " + lastResult(r))
			}
		},
		"scout": rounds(callOnce("mark_once", "a"), text("found")),
	}))
	h.startWorker("--worker-slots", "1")
	message := h.enqueue("boss", "Get it done.")
	h.ledger.await("a", 1)
	h.waiting(1)
	h.ledger.release()
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 4)
	h.replied(turn, "I heard: found")
	if result := turn.calls()[0].Result; !strings.HasPrefix(result, "Tool Output ID: ") || !strings.Contains(result, "Tool: spawn_agent") {
		t.Errorf("the model was shown %q", result)
	}
	h.repliedOnce(2)
}

// A chain ends where its bound is, and never in a circle.
func TestChainsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("boss", "sub_agents: [scout]", "max_sub_agent_depth: 2")
	h.agent("scout", "sub_agents: [runner]")
	h.agent("runner", "sub_agents: [boss, helper]", marks)
	h.agent("helper")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss":  tells(spawns("scout x")),
		"scout": tells(spawns("runner x")),
		"runner": func(r recorded) reply {
			if roundOf(r) == 1 {
				return spawns("boss x", "helper x")
			}
			told := ""
			for _, m := range r.Chat().Messages {
				if m.Role == "tool" {
					told += m.Text() + "\n"
				}
			}
			return text(told)
		},
	}))
	h.startWorker()
	turn := h.turnOf(h.enqueue("boss", "Get it done."))
	h.ended(turn, "succeeded", "none", 2)
	for _, want := range []string{`"reason":"cycle"`, `"reason":"max_sub_agent_depth"`} {
		if turn.Reply == nil || !strings.Contains(turn.Reply.Body, want) {
			t.Errorf("nothing is said of %s: %+v", want, turn.Reply)
		}
	}
	h.repliedOnce(3)
}

// The whole tree shares its bounds.
func TestBoundsOfATree(t *testing.T) {
	t.Parallel()
	t.Run("sub-agents", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t)
		h.team("max_tree_sub_agents: 2")
		h.model.Then(staff(map[string]func(recorded) reply{
			"boss":  tells(spawns("scout a", "scout b", "scout c")),
			"scout": rounds(text("found")),
		}))
		h.startWorker()
		turn := h.turnOf(h.enqueue("boss", "Get it done."))
		h.ended(turn, "succeeded", "none", 2)
		if call := turn.calls()[2]; call.State != "failed" || !strings.Contains(call.Result, `"reason":"max_tree_sub_agents"`) {
			t.Errorf("the third is %+v", call)
		}
		if n := query[int](h, "select count(*) from messages"); n != 3 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("model calls", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t)
		h.team("budget: {tree_calls: 3}")
		h.model.Then(staff(map[string]func(recorded) reply{
			"boss":  tells(spawns("scout find it")),
			"scout": rounds(callOnce("mark_once", "a"), text("found"), text("more")),
		}))
		h.startWorker()
		turn := h.turnOf(h.enqueue("boss", "Get it done."))
		h.ended(turn, "degraded", "budget", 1) // one of its own, two of the scout's
		h.requests(3)
		if n := query[int](h, "select calls from spend where scope = $1", fmt.Sprint("tree:", turn.ID)); n != 3 {
			t.Errorf("%d calls count", n)
		}
		if told := h.run("", "turnctl", "show", fmt.Sprint(turn.ID)).stdout; !strings.Contains(told, "3 calls") {
			t.Errorf("turnctl show says:\n%s", told)
		}
	})
}

// What goes wrong below is told above, and ends nothing there.
func TestASubAgentThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scout func(recorded) reply
		harm  func(h *house)
		want  []string
	}{
		"for good": {scout: func(recorded) reply { return inferencetest.Status(401, "no key") },
			want: []string{`"reason":"failed"`, `"detail":"This message could not be answered: the model is not available at present."`, `"may_still_be_running":false`}},
		"degraded": {scout: rounds(callOnce("mark_once", "a"), callOnce("mark_once", "b"), callOnce("mark_once", "c")),
			want: []string{"[The agent scout could not finish as asked (max_rounds)", "Tool results: 2 succeeded"}},
		"is cancelled": {scout: func(recorded) reply { return inferencetest.Hang() },
			harm: func(h *house) {
				h.awaitRequests(2)
				if r := h.cancel("2"); r.code != 0 {
					h.t.Errorf("cancel: %s", r.stderr)
				}
			}, want: []string{`"reason":"cancelled"`, `"may_still_be_running":false`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.team()
			h.model.Then(staff(map[string]func(recorded) reply{"boss": tells(spawns("scout find it")), "scout": c.scout}))
			h.startWorker("--max-attempts", "1")
			message := h.enqueue("boss", "Get it done.")
			if c.harm != nil {
				c.harm(h)
			}
			turn := h.turnOf(message)
			h.ended(turn, "succeeded", "none", 2)
			for _, want := range c.want {
				if turn.Reply == nil || !strings.Contains(turn.Reply.Body, want) {
					t.Errorf("nothing is said of %s: %+v", want, turn.Reply)
				}
			}
			h.repliedOnce(2)
		})
	}
}

// A cancellation goes down the tree, to what runs and to what waits.
func TestCancelDownTheTree(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.ledger.hold("a")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss":   tells(spawns("scout one", "scout two")),
		"scout":  tells(spawns("runner fetch it")),
		"runner": rounds(callOnce("mark_slow", "a"), text("fetched")),
	}))
	h.startWorker("--worker-slots", "1")
	message := h.enqueue("boss", "Get it done.")
	h.ledger.await("a", 1)
	if r := h.cancel("1"); r.code != 0 {
		t.Errorf("cancel: %s", r.stderr)
	}
	h.cancelled(message)
	h.await("all below have ended", "select not exists (select from messages where closed_at is null)")
	if n := query[int](h, "select count(*) from messages where state <> 'cancelled'"); n != 0 {
		t.Errorf("%d messages are not cancelled", n)
	}
	reason := query[string](h, "select reason from cancellations where turn_id = 2")
	if want := "turn 1, which it worked for, no longer waits for it"; reason != want {
		t.Errorf("the reason is %q", reason)
	}
	if n := query[int](h, "select count(*) from replies"); n != query[int](h, "select count(*) from messages") {
		t.Errorf("%d replies", n)
	}
	h.ledger.release()
}

// A turn that answers without waiting takes its sub-agents with it, also one that has
// not begun.
func TestATurnThatEndsTakesItsSubAgents(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": rounds(spawns("scout find it async", "nobody x"), text("I will not wait.")),
	}))
	h.startWorker("--worker-slots", "1")
	turn := h.turnOf(h.enqueue("boss", "Hurry."))
	h.replied(turn, "I will not wait.")
	h.cancelled(query[int64](h, "select id from messages where agent = 'scout'"))
	if call := turn.calls()[0]; call.State != "cancelled" {
		t.Errorf("the call is %s", call.State)
	}
}

// A message that is tried again is another one, with sub-agents of its own.
func TestATurnThatIsTriedAgainSpawnsAnew(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss":  tells(spawns("scout find it")),
		"scout": func(r recorded) reply { return inferencetest.Hang() },
	}))
	h.startWorker()
	message := h.enqueue("boss", "Get it done.")
	h.awaitRequests(2)
	h.cancel("1")
	h.cancelled(message)
	h.await("the sub-agent has ended", "select not exists (select from messages where closed_at is null)")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": tells(spawns("scout find it")), "scout": rounds(text("found")),
	}))
	if r := h.run("", "turnctl", "retry", "--anyway", fmt.Sprint(message)); r.code != 0 {
		t.Fatalf("retry: %s", r.stderr)
	}
	again := query[int64](h, "select retried_as from retries")
	turn := h.turnOf(again)
	h.ended(turn, "succeeded", "none", 2)
	if n := query[int](h, "select count(*) from spawned_calls where turn_id = $1", turn.ID); n != 1 {
		t.Errorf("%d were spawned", n)
	}
	if n := query[int](h, "select count(*) from messages where agent = 'scout'"); n != 2 {
		t.Errorf("the scout has %d messages", n)
	}
}

// While the scheduler is paused a reply is not lost, and nothing goes on.
func TestAReplyWhileTheSchedulerIsPaused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.ledger.hold("a")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": tells(spawns("scout find it")), "scout": rounds(callOnce("mark_once", "a"), text("found")),
	}))
	h.startWorker()
	message := h.enqueue("boss", "Get it done.")
	h.ledger.await("a", 1)
	h.waiting(1)
	h.run("", "turnctl", "scheduler", "pause", "a test")
	h.ledger.release()
	h.await("the reply has come", "select exists (select from awaited_calls where arrived_at is not null)")
	if state := query[string](h, "select state from turns where id = 1"); state != "queued" {
		t.Errorf("the boss's turn is %s", state)
	}
	h.run("", "turnctl", "scheduler", "resume")
	h.ended(h.turnOf(message), "succeeded", "none", 2)
}

// The records of sub-agents can be purged before their parent has read the reply, and
// go with those of their parent.
func TestPurgingSubAgents(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.ledger.hold("a")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": tells(spawns("scout find it")), "scout": rounds(callOnce("mark_once", "a"), text("found")),
	}))
	h.startWorker()
	message := h.enqueue("boss", "Get it done.")
	h.ledger.await("a", 1)
	h.waiting(1)
	h.run("", "turnctl", "scheduler", "pause", "a test")
	h.ledger.release()
	h.await("the reply has come", "select exists (select from awaited_calls where arrived_at is not null)")
	if r := h.run("", "turnctl", "purge", "--agent", "scout"); r.code != 0 {
		t.Fatalf("purge: %s", r.stderr)
	}
	h.run("", "turnctl", "scheduler", "resume")
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasSuffix(turn.Reply.Body, "[The agent scout has replied, and its reply was removed since.]") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	if r := h.run("", "turnctl", "purge", "--agent", "boss"); r.code != 0 {
		t.Fatalf("purge: %s", r.stderr)
	}
	for _, table := range []string{"spawned_calls", "agent_trees", "awaited_calls", "messages"} {
		if n := query[int](h, "select count(*) from "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

// The oldest tree is worked first: a sub-agent goes before messages that came after its
// parent's.
func TestSubAgentsDoNotStarve(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.agent("other")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": tells(spawns("scout find it")), "scout": rounds(text("found")), "other": rounds(text("Here.")),
	}))
	c := &crashHouse{house: h}
	for _, name := range []string{"boss", "scout", "runner", "other"} {
		c.registerFile(name)
	}
	message := h.enqueue("boss", "Get it done.")
	h.exec("update messages set due_at = due_at - interval '1 minute', accepted_at = accepted_at - interval '1 minute'")
	for i := range 20 {
		h.enqueue("other", fmt.Sprint("Are you there? ", i))
	}
	h.startWorker("--worker-slots", "1")
	h.turnOf(message)
	// The boss stands still for a moment first; then no more than what was granted meanwhile goes before it.
	if n := query[int](h, `select count(*) from turns where agent = 'other' and created_at < (select created_at from turns where agent = 'scout')`); n > 1 {
		t.Errorf("%d younger messages were begun before the sub-agent", n)
	}
}

// Real workers are killed between any two steps of a parent, of its sub-agent, and of
// the parent again; they are never the same worker.
func TestAKillAroundASubAgent(t *testing.T) {
	t.Parallel()
	for phase, points := range map[string][]string{
		"parent": {"plan.before", "plan.sent", "plan.after", "call.start.before", "call.start.after", "finish.before", "finish.sent", "finish.after"},
		"child":  {"tick.granted", "work.fetched", "work.loaded", "turn.start", "model.after", "finish.before", "finish.sent", "finish.after"},
		"again":  {"tick.granted", "work.loaded", "call.results.before", "call.results.sent", "model.before", "finish.sent", "finish.after"},
	} {
		for _, point := range points {
			t.Run(phase+" "+point, func(t *testing.T) {
				t.Parallel()
				killAround(t, phase, point)
			})
		}
	}
}

func killAround(t *testing.T, phase, point string) {
	h := newCrashHouse(t, crash{point: point})
	h.team()
	h.registerFile("boss")
	h.registerFile("scout")
	gates := map[string]chan struct{}{"boss": make(chan struct{}), "scout": make(chan struct{})}
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": func(r recorded) reply {
			if roundOf(r) == 1 {
				return inferencetest.WaitFor(gates["boss"], spawns("scout find it"))
			}
			return text("I heard: " + lastResult(r))
		},
		"scout": func(recorded) reply { return inferencetest.WaitFor(gates["scout"], text("found")) },
	}))
	flags := []string{"--takeover-after", silence, "--worker-slots", "1"}
	message := h.send("boss", "Get it done.")
	pass := func(who string) { close(gates[who]) }
	if phase == "parent" {
		pass("boss")
		pass("scout")
	} else {
		early := h.startWorker(flags...)
		h.awaitRequests(1)
		if phase == "child" {
			h.pause()
			pass("boss")
			h.waiting(1)
			pass("scout")
		} else {
			pass("boss")
			h.awaitRequests(2)
			h.waiting(1)
			h.pause()
			pass("scout")
			h.await("the reply has come", "select exists (select from replies)")
		}
		if code := early.terminate(); code != 0 {
			t.Fatalf("the first worker ended with %d", code)
		}
		h.run("", "turnctl", "scheduler", "resume")
	}
	faulty := h.faulty("markerworker", flags...)
	h.stand.await()
	faulty.kill()
	h.startWorker(flags...)
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasSuffix(turn.Reply.Body, "found") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	h.repliedOnce(2)
}

func (h *house) pause() {
	h.t.Helper()
	if r := h.run("", "turnctl", "scheduler", "pause", "a test"); r.code != 0 {
		h.t.Fatalf("pause: %s", r.stderr)
	}
}

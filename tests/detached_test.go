package tests_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// far is the front matter's line that gives an agent the detached marker tools.
const far = "tools: [mark_far_none, mark_far_keyed, mark_far_once, mark_once]"

var outputID = regexp.MustCompile(`get_tool_output\("([a-z0-9]{12})", mode\)`)

// retrieve asks for the output that the first handle in the request names.
func retrieve(r recorded) reply {
	for _, m := range r.Chat().Messages {
		if found := outputID.FindStringSubmatch(m.Text()); found != nil {
			return calls(inferencetest.Call{ID: "call_get", Name: "get_tool_output", Arguments: fmt.Sprintf(`{"id":%q,"mode":"raw"}`, found[1])})
		}
	}
	return text("There is no handle.")
}

// lastResult is the newest result of a tool in the request.
func lastResult(r recorded) string {
	result := ""
	for _, m := range r.Chat().Messages {
		if m.Role == "tool" {
			result = m.Text()
		}
	}
	return result
}

// farTurn is the model of a turn that has the tool run elsewhere, is told when it
// is ready, reads the result and repeats it.
func farTurn(tool, label string) func(recorded) reply {
	return func(r recorded) reply {
		switch roundOf(r) {
		case 1:
			return callOnce(tool, label)
		case 2:
			return retrieve(r)
		default:
			return text("It says: " + lastResult(r))
		}
	}
}

// waiting returns when so many turns wait.
func (h *house) waiting(n int) {
	h.t.Helper()
	h.await(fmt.Sprint(n, " turns wait"), "select count(*) = $1 from turns where state = 'waiting'", n)
}

// holdsNothing fails the test if waiting turns hold a lease, a slot or a job.
func (h *house) holdsNothing() {
	h.t.Helper()
	for what, sql := range map[string]string{
		"leases are held":      "select count(*) from leases where grant_id is not null",
		"turns' jobs are open": "select count(*) from river_job where kind = 'AgentTurn' and finalized_at is null",
	} {
		if n := query[int](h, sql); n != 0 {
			h.t.Errorf("%d %s while all turns wait", n, what)
		}
	}
}

func TestADetachedCallOutlivesItsTurnsTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", far)
	h.agent("other")
	h.ledger.hold("a")
	h.model.Then(func(r recorded) reply {
		if newest(r) == "Are you free?" {
			return text("Yes.")
		}
		return farTurn("mark_far_once", "a")(r)
	})
	h.startWorker("--max-duration", "2s", "--tool-timeout", "1s", "--lease-ttl", "5s", "--lease-margin", "1s",
		"--takeover-after", "0", "--worker-slots", "1")
	message := h.enqueue("clerk", "Take your time.")
	h.ledger.await("a", 1)
	h.waiting(1)
	h.holdsNothing()

	// The only slot is free, and the lane keeps its order.
	h.ended(h.turnOf(h.enqueue("other", "Are you free?")), "succeeded", "none", 1)
	behind := h.enqueue("clerk", "Are you free?")
	h.await("more time has passed than a turn or a lease has",
		"select clock_timestamp() - created_at > interval '6 s' from turns where state = 'waiting'")
	if state := query[string](h, "select state from messages where id = $1", behind); state != "waiting" {
		t.Errorf("the message behind is %s", state)
	}
	h.ledger.release()

	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 3)
	h.replied(turn, "It says: marked a")
	h.ledger.ran("a", 1)
	if turn.Dispatches != 2 || turn.Losses != 0 || *turn.DispatchLog[0].Outcome != "waiting" {
		t.Errorf("the turn had %d dispatches, %d losses, the first %s", turn.Dispatches, turn.Losses, *turn.DispatchLog[0].Outcome)
	}
	call := turn.calls()[0]
	id := query[string](h, "select output_id from calls where turn_id = $1 and name = 'mark_far_once'", turn.ID)
	want := "Tool Output ID: " + id + "\nTool: mark_far_once\n\n" +
		"When the System Notice shows this tool is ready, use get_tool_output(\"" + id + "\", mode) to retrieve its output."
	if call.State != "succeeded" || call.Result != want || call.Starts != 1 {
		t.Errorf("the call is %s after %d starts, and the model was shown %q", call.State, call.Starts, call.Result)
	}
	events := query[string](h, "select string_agg(type, ' ' order by seq) from turn_events where turn_id = $1 and type like 'turn%'", turn.ID)
	if events != "turn_start turn_waiting turn_resumed turn_complete" {
		t.Errorf("events %s", events)
	}
	h.ended(h.turnOf(behind), "succeeded", "none", 1)
	second := h.model.Requests()
	if !strings.Contains(second[len(second)-1].Chat().Messages[0].Text(), "clerk") {
		t.Error("the lane's next turn was not the last to ask")
	}
}

// A worker that runs a detached call is killed. What becomes of the call is for
// its effect to say, and its turn goes on with another worker.
func TestAKillDuringADetachedCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool  string
		runs  int
		state string // of the call
		ends  string // of the turn
		stop  string
		told  string
	}{
		{"mark_far_none", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_far_keyed", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_far_once", 1, "unknown", "degraded", "worker_lost", `{"error":"outcome unknown`},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", far)
			h.ledger.hold("a")
			h.model.Then(farTurn(c.tool, "a"))
			first := h.startWorker("--takeover-after", silence)
			message := h.enqueue("clerk", "Take your time.")
			h.ledger.await("a", 1)
			h.waiting(1)
			h.startWorker("--takeover-after", silence)
			first.kill()
			if c.runs > 1 {
				h.ledger.await("a", 2)
			}
			h.ledger.release()

			turn := h.turnOf(message)
			h.ended(turn, c.ends, c.stop, 3)
			if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, "It says: "+c.told) {
				t.Errorf("the reply is %+v", turn.Reply)
			}
			h.ledger.ran("a", c.runs)
			runs := h.ledger.runs("a")
			for _, again := range runs[1:] {
				if again.IdempotencyKey != runs[0].IdempotencyKey || again.PID == runs[0].PID {
					t.Errorf("the runs were %+v", runs)
				}
			}
			if call := turn.calls()[0]; call.State != c.state || call.Starts != c.runs {
				t.Errorf("the call is %s after %d starts", call.State, call.Starts)
			}
			if turn.Losses != 0 {
				t.Errorf("the turn counts %d lost workers", turn.Losses)
			}
		})
	}
}

func TestADetachedCallIsEndedByItsOwnTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.env["MARKER_FAR_TIMEOUT"] = "2s"
	h.agent("clerk", far)
	h.ledger.hold("a")
	h.model.Then(farTurn("mark_far_once", "a"))
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Take your time."))
	h.ended(turn, "succeeded", "none", 3)
	h.replied(turn, `It says: {"error":"tool error: 'mark_far_once' timed out after 2 s"}`)
	if call := turn.calls()[0]; call.State != "failed" {
		t.Errorf("the call is %s", call.State)
	}
}

// Workers are stopped in good order while they run detached calls.
func TestSIGTERMDuringADetachedCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool, state, ends, stop string
		runs                    int
	}{
		{"mark_far_keyed", "succeeded", "succeeded", "none", 2},
		{"mark_far_once", "cancelled", "degraded", "worker_lost", 1},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", far)
			h.ledger.hold("a")
			h.model.Then(farTurn(c.tool, "a"))
			first := h.startWorker("--shutdown-grace", "1s")
			message := h.enqueue("clerk", "Take your time.")
			h.ledger.await("a", 1)
			h.waiting(1)
			h.startWorker()
			if code := first.terminate(); code != 0 {
				t.Errorf("the worker ended with %d", code)
			}
			if c.runs > 1 {
				h.ledger.await("a", 2)
			}
			h.ledger.release()
			turn := h.turnOf(message)
			h.ended(turn, c.ends, c.stop, 3)
			h.ledger.ran("a", c.runs)
			if call := turn.calls()[0]; call.State != c.state || call.Starts != c.runs {
				t.Errorf("the call is %s after %d starts", call.State, call.Starts)
			}
			if n := query[int](h, "select max(losses) from detached_calls"); n != 0 {
				t.Errorf("%d losses of the call are counted", n)
			}
		})
	}
}

// A turn that ends without waiting takes its detached calls without effect with
// it: the run is told to stop, and what it had done is not awaited.
func TestATurnEndsBeforeItsDetachedCall(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", far)
	h.ledger.hold("a")
	h.model.Then(func(r recorded) reply {
		if roundOf(r) == 1 {
			a, b := call("mark_far_none", "a"), call("mark_once", "b")
			a.ID, b.ID = "call_a", "call_b"
			return calls(a, b)
		}
		h.ledger.await("a", 1)
		return text("I will not wait.")
	})
	w := h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Hurry."))
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "I will not wait.")
	w.await("the detached call is no longer this worker's")
	if call := turn.calls()[0]; call.State != "cancelled" {
		t.Errorf("the call is %s", call.State)
	}
	if n := query[int](h, "select count(*) from turns where state = 'waiting'"); n != 0 {
		t.Errorf("%d turns wait", n)
	}
}

// An answer does not cut an effect in two: the turn waits for it, and ends with
// the answer that it had, without asking the model again.
func TestAnAnswerWaitsForADetachedEffect(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", far)
	h.ledger.hold("a")
	h.model.Then(func(r recorded) reply {
		if roundOf(r) == 1 {
			a, b := call("mark_far_once", "a"), call("mark_once", "b")
			a.ID, b.ID = "call_a", "call_b"
			return calls(a, b)
		}
		return text("It is begun.")
	})
	h.startWorker()
	message := h.send("clerk", "Begin.")
	h.waiting(1)
	h.holdsNothing()
	h.ledger.release()
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "It is begun.")
	if call := turn.calls()[0]; call.State != "succeeded" || call.Starts != 1 {
		t.Errorf("the call is %s after %d starts", call.State, call.Starts)
	}
}

// A result and the end of the dispatch that would wait for it come in either
// order, and at the same moment: the turn goes on, once.
func TestAResultArrivesAsTheTurnGoesToWait(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		point string
		ready string // what is so when the program may go on from there
	}{
		"first the result": {"finish.before", "select exists (select from awaited_calls where arrived_at is not null)"},
		"first the wait":   {"detached.ran", "select exists (select from turns where state = 'waiting')"},
		"both on the way":  {"detached.arrive.sent", "select exists (select from turns where state <> 'running')"},
		"and the other":    {"finish.sent", "select exists (select from awaited_calls where arrived_at is not null)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCrashHouse(t, crash{point: at.point, tool: "mark_far_once"})
			h.model.Then(farTurn("mark_far_once", "a"))
			h.register("clerk")
			message := h.send("clerk", "Take your time.")
			h.faulty("markerworker")
			v := h.stand.await()
			h.await("the other side has come", at.ready)
			v.pass()
			turn := h.turnOf(message)
			h.ended(turn, "succeeded", "none", 3)
			h.replied(turn, "It says: marked a")
			h.ledger.ran("a", 1)
			if turn.Losses != 0 {
				t.Errorf("the turn counts %d lost workers", turn.Losses)
			}
		})
	}
}

// The worker dies when its turn has gone to wait, when the result has arrived, and
// when the turn has been taken up again; another goes on.
func TestAKillBetweenWaitAndResume(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"finish.after", "detached.arrived", "tick.granted", "work.loaded"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			h := newCrashHouse(t, crash{point: point, tool: "mark_far_keyed"})
			h.model.Then(farTurn("mark_far_keyed", "a"))
			h.register("clerk")
			flags := []string{"--takeover-after", silence}
			message := h.send("clerk", "Take your time.")
			if strings.HasPrefix(point, "tick") || strings.HasPrefix(point, "work") {
				h.ledger.hold("a")
				early := h.startWorker(flags...)
				h.waiting(1)
				early.kill()
				h.ledger.release()
			}
			faulty := h.faulty("markerworker", flags...)
			h.stand.await()
			faulty.kill()
			h.startWorker(flags...)
			turn := h.turnOf(message)
			h.ended(turn, "succeeded", "none", 3)
			h.replied(turn, "It says: marked a")
		})
	}
}

// A program becomes a detached tool by the config file alone.
func TestADetachedProgram(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.write("turnkeeper.yaml", fmt.Sprintf(`default_model: test/scripted
providers:
  test:
    base_url: %s
    api_key_env: TEST_API_KEY
tools:
  build:
    description: Builds it.
    command: [/bin/sh, -c, "read args; while [ ! -e %s/go ]; do sleep 0.1; done; echo built $args"]
    arguments: {type: object, properties: {label: {type: string}}}
    effect: keyed
    timeout: 1h
    detached: true
`, h.address, h.dir))
	h.agent("clerk", "tools: [build]")
	h.model.Then(farTurn("build", "all"))
	h.startWorker("--max-duration", "2s", "--tool-timeout", "1s", "--lease-ttl", "5s", "--lease-margin", "1s", "--takeover-after", "0")
	message := h.enqueue("clerk", "Build it.")
	h.await("the program runs", "select exists (select from detached_calls where claim is not null)")
	h.waiting(1)
	h.holdsNothing()
	told := h.run("", "turnctl", "show", "latest").stdout
	if !strings.Contains(told, "Waits for") || !strings.Contains(told, "attempt 1 runs on worker") {
		t.Errorf("turnctl show says:\n%s", told)
	}
	if list := h.run("", "turnctl", "turns", "--state", "waiting").stdout; !strings.Contains(list, "waiting") || strings.Contains(list, "no turns") {
		t.Errorf("turnctl turns says:\n%s", list)
	}
	if lanes := h.run("", "turnctl", "lanes").stdout; !strings.Contains(lanes, "free, turn waiting") {
		t.Errorf("turnctl lanes says:\n%s", lanes)
	}
	h.write("go", "")
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 3)
	h.replied(turn, "It says: built {\"label\":\"all\"}\n")
}

// The end of the dispatch that would wait has looked for results, and is held up in
// the server; then one comes. It waits for that end, and wakes the turn.
func TestAResultComesWithinTheEndThatWaits(t *testing.T) {
	t.Parallel()
	h := newCrashHouse(t, crash{point: "none", tool: "mark_far_once"})
	h.model.Then(farTurn("mark_far_once", "a"))
	h.ledger.hold("a")
	h.register("clerk")
	open := h.gate("lease_log", "new.outcome = 'waiting'")
	message := h.send("clerk", "Take your time.")
	h.startWorker()
	h.ledger.await("a", 1)
	h.await("the end waits at the gate", "select exists (select "+atTheGate+")")
	h.ledger.release()
	h.await("the result waits for the end", `select exists (select from pg_stat_activity where datname = current_database()
		and wait_event_type = 'Lock' and query like '%end_detached%') or exists (select from awaited_calls where arrived_at is not null)`)
	open()
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 3)
	h.replied(turn, "It says: marked a")
}

package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// wantNothingHeld fails the test if waiting turns hold a lease, a slot or a job.
func wantNothingHeld(e *env.Env) {
	e.T.Helper()
	for what, sql := range map[string]string{
		"leases are held":      "select count(*) from leases where grant_id is not null",
		"turns' jobs are open": "select count(*) from river_job where kind = 'AgentTurn' and finalized_at is null",
	} {
		if n := env.Query[int](e, sql); n != 0 {
			e.T.Errorf("%d %s while all turns wait", n, what)
		}
	}
}

func TestADetachedCallOutlivesItsTurnsTime(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.DetachedTools)
	e.WriteAgent("other")
	e.Ledger.Hold("a")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Are you free?" {
			return inferencetest.Text("Yes.")
		}
		return env.DetachedTurn("mark_far_once", "a")(r)
	})
	e.StartWorker("--max-duration", "20s", "--tool-timeout", "10s", "--lease-ttl", "25s", "--lease-margin", "1s",
		"--takeover-after", "0", "--worker-slots", "1")
	message := e.Enqueue("clerk", "Take your time.")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(1)
	wantNothingHeld(e)

	// The only slot is free, and the lane keeps its order.
	e.WantEnd(e.TurnOf(e.Enqueue("other", "Are you free?")), "succeeded", "none", 1)
	behind := e.Enqueue("clerk", "Are you free?")
	e.Await("more time has passed than a turn or a lease has",
		"select clock_timestamp() - created_at > interval '26 s' from turns where state = 'waiting'")
	if state := env.Query[string](e, "select state from messages where id = $1", behind); state != "waiting" {
		t.Errorf("the message behind is %s", state)
	}
	e.Ledger.Release()

	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 3)
	e.WantReply(turn, "It says: marked a")
	e.Ledger.WantRuns("a", 1)
	if turn.Dispatches != 2 || turn.Losses != 0 || *turn.DispatchLog[0].Outcome != "waiting" {
		t.Errorf("the turn had %d dispatches, %d losses, the first %s", turn.Dispatches, turn.Losses,
			*turn.DispatchLog[0].Outcome)
	}
	call := turn.Calls()[0]
	id := env.Query[string](e, "select output_id from calls where turn_id = $1 and name = 'mark_far_once'", turn.ID)
	want := "Tool Output ID: " + id + "\nTool: mark_far_once\n\n" +
		"When the System Notice shows this tool is ready, use get_tool_output(\"" + id +
		"\", mode) to retrieve its output."
	if call.State != "succeeded" || call.Result != want || call.Starts != 1 {
		t.Errorf("the call is %s after %d starts, and the model got %q", call.State, call.Starts, call.Result)
	}
	events := env.Query[string](e,
		"select string_agg(type, ' ' order by seq) from turn_events where turn_id = $1 and type like 'turn%'", turn.ID)
	if events != "turn_start turn_waiting turn_resumed turn_complete" {
		t.Errorf("events %s", events)
	}
	e.WantEnd(e.TurnOf(behind), "succeeded", "none", 1)
	second := e.Model.Requests()
	if !strings.Contains(second[len(second)-1].Chat().Messages[0].Text(), "clerk") {
		t.Error("the lane's next turn was not the last to ask")
	}
}

// A worker is killed while it runs a detached call. The effect decides the outcome of the call, and another
// worker continues the turn.
func TestAKillDuringADetachedCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool   string
		runs   int
		state  string // of the call
		ends   string // of the turn
		stop   string
		result string
	}{
		{"mark_far_none", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_far_keyed", 2, "succeeded", "succeeded", "none", "marked a"},
		{"mark_far_once", 1, "unknown", "degraded", "worker_lost", `{"error":"outcome unknown`},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.DetachedTools)
			e.Ledger.Hold("a")
			e.Model.Then(env.DetachedTurn(c.tool, "a"))
			first := e.StartWorker()
			message := e.Enqueue("clerk", "Take your time.")
			e.Ledger.Await("a", 1)
			e.AwaitWaiting(1)
			e.StartWorker()
			e.Kill(first)
			if c.runs > 1 {
				e.Ledger.Await("a", 2)
			}
			e.Ledger.Release()

			turn := e.TurnOf(message)
			e.WantEnd(turn, c.ends, c.stop, 3)
			if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body, "It says: "+c.result) {
				t.Errorf("the reply is %+v", turn.Reply)
			}
			e.Ledger.WantRuns("a", c.runs)
			runs := e.Ledger.Runs("a")
			for _, again := range runs[1:] {
				if again.IdempotencyKey != runs[0].IdempotencyKey || again.PID == runs[0].PID {
					t.Errorf("the runs were %+v", runs)
				}
			}
			if call := turn.Calls()[0]; call.State != c.state || call.Starts != c.runs {
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
	e := env.New(t)
	e.Vars["MARKER_FAR_TIMEOUT"] = "2s"
	e.WriteAgent("clerk", env.DetachedTools)
	e.Ledger.Hold("a")
	e.Model.Then(env.DetachedTurn("mark_far_once", "a"))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Take your time."))
	e.WantEnd(turn, "succeeded", "none", 3)
	e.WantReply(turn, `It says: {"error":"tool error: 'mark_far_once' timed out after 2 s"}`)
	if call := turn.Calls()[0]; call.State != "failed" {
		t.Errorf("the call is %s", call.State)
	}
}

// Workers are terminated while they run detached calls.
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
			e := env.New(t)
			e.WriteAgent("clerk", env.DetachedTools)
			e.Ledger.Hold("a")
			e.Model.Then(env.DetachedTurn(c.tool, "a"))
			first := e.StartWorker("--shutdown-grace", "1s")
			message := e.Enqueue("clerk", "Take your time.")
			e.Ledger.Await("a", 1)
			e.AwaitWaiting(1)
			e.StartWorker()
			if code := first.Terminate(); code != 0 {
				t.Errorf("the worker ended with %d", code)
			}
			if c.runs > 1 {
				e.Ledger.Await("a", 2)
			}
			e.Ledger.Release()
			turn := e.TurnOf(message)
			e.WantEnd(turn, c.ends, c.stop, 3)
			e.Ledger.WantRuns("a", c.runs)
			if call := turn.Calls()[0]; call.State != c.state || call.Starts != c.runs {
				t.Errorf("the call is %s after %d starts", call.State, call.Starts)
			}
			if n := env.Query[int](e, "select max(losses) from detached_calls"); n != 0 {
				t.Errorf("%d losses of the call are counted", n)
			}
		})
	}
}

// A turn that ends without waiting cancels its detached calls without effect. The run is told to stop, and its
// result is ignored.
func TestATurnEndsBeforeItsDetachedCall(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.DetachedTools)
	e.Ledger.Hold("a")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) == 1 {
			a, b := env.MarkerCall("mark_far_none", "a"), env.MarkerCall("mark_once", "b")
			a.ID, b.ID = "call_a", "call_b"
			return inferencetest.Calls(a, b)
		}
		e.Ledger.Await("a", 1)
		return inferencetest.Text("I will not wait.")
	})
	w := e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Hurry."))
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "I will not wait.")
	w.Await("the detached call is no longer this worker's")
	if call := turn.Calls()[0]; call.State != "cancelled" {
		t.Errorf("the call is %s", call.State)
	}
	if n := env.Query[int](e, "select count(*) from turns where state = 'waiting'"); n != 0 {
		t.Errorf("%d turns wait", n)
	}
}

// A turn with an answer still waits for a detached effect, and then calls the model once more.
func TestAnAnswerWaitsForADetachedEffect(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", backgroundTools)
	e.Ledger.Hold("a")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch env.RoundOf(r) {
		case 1:
			a, b := env.MarkerCall("mark_far_once", "a"), env.MarkerCall("mark_none", "b")
			a.ID, b.ID = "call_a", "call_b"
			return inferencetest.Calls(a, b)
		case 2:
			return inferencetest.Text("It is begun.")
		default:
			return inferencetest.Text("It is done.")
		}
	})
	e.StartWorker()
	message := e.Send("clerk", "Begin.")
	e.AwaitWaiting(1)
	wantNothingHeld(e)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 3)
	e.WantReply(turn, "It is done.")
	if call := turn.Calls()[0]; call.State != "succeeded" || call.Starts != 1 {
		t.Errorf("the call is %s after %d starts", call.State, call.Starts)
	}
}

// A result may come before, after, or during the end of the dispatch that would wait for it. The turn
// continues once.
func TestAResultArrivesAsTheTurnGoesToWait(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		point string
		ready string // condition for resuming the program
	}{
		"first the result": {"finish.before", "select exists (select from awaited_calls where arrived_at is not null)"},
		"first the wait":   {"detached.ran", "select exists (select from turns where state = 'waiting')"},
		"both on the way":  {"detached.arrive.sent", "select exists (select from turns where state <> 'running')"},
		"and the other":    {"finish.sent", "select exists (select from awaited_calls where arrived_at is not null)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.NewCrash(t, env.Crash{Point: at.point, Tool: "mark_far_once"})
			e.Model.Then(env.DetachedTurn("mark_far_once", "a"))
			e.Register("clerk")
			message := e.Send("clerk", "Take your time.")
			e.StartFaulty("markerworker")
			v := e.Hook.Await()
			e.Await("the other side has come", at.ready)
			v.Resume()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 3)
			e.WantReply(turn, "It says: marked a")
			e.Ledger.WantRuns("a", 1)
			if turn.Losses != 0 {
				t.Errorf("the turn counts %d lost workers", turn.Losses)
			}
		})
	}
}

// The worker dies after its turn began to wait, after the result came, or after the turn was continued.
// Another worker continues.
func TestAKillBetweenWaitAndResume(t *testing.T) {
	t.Parallel()
	for _, point := range testrun.Sample([]string{"finish.after", "detached.arrived", "tick.granted",
		"work.loaded"}, 2) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			e := env.NewCrash(t, env.Crash{Point: point, Tool: "mark_far_keyed"})
			e.Model.Then(env.DetachedTurn("mark_far_keyed", "a"))
			e.Register("clerk")
			message := e.Send("clerk", "Take your time.")
			if strings.HasPrefix(point, "tick") || strings.HasPrefix(point, "work") {
				e.Ledger.Hold("a")
				early := e.StartWorker()
				e.AwaitWaiting(1)
				e.Kill(early)
				e.Ledger.Release()
			}
			faulty := e.StartFaulty("markerworker")
			e.Hook.Await()
			e.Kill(faulty)
			e.StartWorker()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 3)
			e.WantReply(turn, "It says: marked a")
		})
	}
}

// A program becomes a detached tool by the config file alone.
func TestADetachedProgram(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`default_model: test/scripted
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
`, e.ModelURL, e.Dir))
	e.WriteAgent("clerk", "tools: [build]")
	e.Model.Then(env.DetachedTurn("build", "all"))
	e.StartWorker("--max-duration", "20s", "--tool-timeout", "10s", "--lease-ttl", "25s", "--lease-margin", "1s",
		"--takeover-after", "0")
	message := e.Enqueue("clerk", "Build it.")
	e.Await("the program runs", "select exists (select from detached_calls where claim is not null)")
	e.AwaitWaiting(1)
	wantNothingHeld(e)
	output := e.Turnctl("show", "latest").Stdout
	if !strings.Contains(output, "Waits for") || !strings.Contains(output, "attempt 1 runs on worker") {
		t.Errorf("turnctl show prints:\n%s", output)
	}
	if list := e.Turnctl("turns", "--state", "waiting").Stdout; !strings.Contains(list, "waiting") ||
		strings.Contains(list, "no turns") {
		t.Errorf("turnctl turns prints:\n%s", list)
	}
	if lanes := e.Turnctl("lanes").Stdout; !strings.Contains(lanes, "free, turn waiting") {
		t.Errorf("turnctl lanes prints:\n%s", lanes)
	}
	e.WriteFile("go", "")
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 3)
	e.WantReply(turn, "It says: built {\"label\":\"all\"}\n")
}

// The end of a dispatch that would wait has checked for results, and blocks in the server. A result that comes
// now waits for this end, and then wakes the turn.
func TestAResultComesWithinTheEndThatWaits(t *testing.T) {
	t.Parallel()
	e := env.NewCrash(t, env.Crash{Point: "none", Tool: "mark_far_once"})
	e.Model.Then(env.DetachedTurn("mark_far_once", "a"))
	e.Ledger.Hold("a")
	e.Register("clerk")
	open := e.Gate("ended_grants", "insert", "new.outcome = 'waiting'")
	message := e.Send("clerk", "Take your time.")
	e.StartWorker()
	e.Ledger.Await("a", 1)
	e.Await("the end waits at the gate", "select exists (select "+env.AtTheGate+")")
	e.Ledger.Release()
	e.Await("the result waits for the end",
		`select exists (select from pg_stat_activity where datname = current_database()
		and wait_event_type = 'Lock' and query like '%end_detached%') or exists (select from awaited_calls where arrived_at is not null)`)
	open()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 3)
	e.WantReply(turn, "It says: marked a")
}

package faults_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/scheduler"
	"turnkeeper/tests/internal/env"
)

// A crashTest brings a program to a fault point, applies the fault, and checks that everything is done in the
// end.
type crashTest func(*testing.T, env.Crash)

// crashTestOf returns the test in which a program reaches a point.
func crashTestOf(point string) crashTest {
	switch {
	case strings.HasPrefix(point, "accept."):
		return crashDuringAccept
	case strings.HasPrefix(point, "shutdown."):
		return crashDuringShutdown
	case strings.HasPrefix(point, "recover."), point == "tick.lost", point == "tick.lost_call":
		return crashDuringRecovery
	case point == "model.probed":
		return crashDuringProbe
	case point == "turn.late":
		return crashWithLateResult
	case point == "tick.spawned":
		return crashDuringSpawn
	case point == "tick.fired":
		return crashDuringSlot
	case strings.HasPrefix(point, "ask."), point == "tick.expired":
		return crashDuringAsk
	case strings.HasPrefix(point, "webhook."):
		return crashDuringWebhook
	default:
		return crashDuringTurn
	}
}

// crashFlags is the flags of all workers here. Leases end while a test waits, and timeouts suit a busy
// machine.
var crashFlags = []string{
	"--lease-ttl", "1m", "--lease-margin", "5s", "--max-duration", "50s", "--tool-timeout", "30s",
	"--shutdown-grace", "5s",
}

// crashDuringTurn applies the fault to the only worker during a turn. A second worker starts.
func crashDuringTurn(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	var first int64
	var faulty *env.Process
	if c.Point == scheduler.PointHanded { // the first tick may come before the worker offers its slots to it
		faulty = e.StartFaulty("markerworker", crashFlags...)
		faulty.Await("worker ready")
		first = e.Send("clerk", "first")
	} else {
		first = e.Send("clerk", "first")
		faulty = e.StartFaulty("markerworker", crashFlags...)
	}
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	finish(e, c, faulty, end, first)
}

// crashDuringProbe applies the fault to the only worker when it has asked a model that refused its message with a
// request of its own.
func crashDuringProbe(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Model.Add(inferencetest.Fault(http.StatusUnauthorized, "invalid_api_key", "no such key"))
	e.Register("clerk")
	first := e.Send("clerk", "first")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	finish(e, c, faulty, end, first)
}

// finish waits for the open messages and two more, ends the fault if the worker is alive, and checks the
// results.
func finish(e *env.CrashEnv, c env.Crash, harmed *env.Process, end func(), messages ...int64) {
	e.T.Helper()
	if c.Fault == "stop" {
		e.AwaitClosed(messages...)
	}
	end()
	messages = append(messages, e.Send("clerk", "second"), e.Send("clerk", "third"))
	e.AwaitClosed(messages...)
	if harmed != nil && c.Fault != "kill" {
		wantAliveOrReason(e, harmed)
	}
	wantRunsAllowed(e)
	if n := env.Query[int](e.Env,
		"select count(*) from replies where outcome not in ('succeeded', 'degraded')"); n != 0 {
		e.T.Errorf("%d messages got no answer", n)
	}
}

// wantAliveOrReason fails the test unless the worker survives the fault, and stops it. A worker that was cut off
// at its start may exit with a plain reason, or still be starting, while another one has done all the work.
func wantAliveOrReason(e *env.CrashEnv, p *env.Process) {
	e.T.Helper()
	if !p.Running() {
		if said := p.Output.String(); p.Wait() != 1 || strings.Contains(said, "worker ready") ||
			!strings.Contains(said, "worker: ") {
			e.T.Errorf("the faulty worker ended with %d:\n%s", p.Wait(), p.Output.Tail())
		}
		return
	}
	code := p.Terminate()
	if starting := code == 130 && !strings.Contains(p.Output.String(), "worker ready"); code != 0 && !starting {
		e.T.Errorf("the faulty worker ended with %d:\n%s", code, p.Output.Tail())
	}
}

// crashDuringAsk applies the fault to a worker whose turn asks a person about each call. Somebody approves all calls
// or, at tick.expired, nobody answers.
func crashDuringAsk(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	settings := []string{`approve: {"*": always}`}
	if c.Point == "tick.expired" {
		settings = append(settings, "ask_timeout: 1s")
	} else {
		defer e.ApproveAll()()
	}
	e.Register("clerk", settings...)
	first := e.Send("clerk", "first")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	finish(e, c, faulty, end, first)
	if c.Point == "tick.expired" {
		if n := len(e.Ledger.Marks()); n != 0 {
			t.Errorf("%d calls ran that nobody approved", n)
		}
	}
}

// crashDuringRecovery kills a worker during a tool, and applies the fault to the worker that takes over.
func crashDuringRecovery(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	e.Ledger.Hold("first 1")
	e.Ledger.Hold("first 2") // it runs in parallel if both are detached
	victim := e.StartWorker(crashFlags...)
	first := e.Send("clerk", "first")
	e.Ledger.Await("first 1", 1)
	e.Kill(victim)
	e.Ledger.Release()
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	finish(e, c, faulty, end, first)
}

// crashWithLateResult stops a worker during a tool until another worker has given its verdict, and applies the
// fault when the first worker writes its late result.
func crashWithLateResult(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	e.Ledger.Hold("first 1")
	first := e.Send("clerk", "first")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	e.Ledger.Await("first 1", 1)
	faulty.Signal(syscall.SIGSTOP)
	e.CountAsLost(faulty)
	e.StartWorker(crashFlags...)
	e.AwaitClosed(first)
	e.Ledger.Release()
	e.CountAsAlive(faulty)
	faulty.Signal(syscall.SIGCONT)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	finish(e, c, faulty, end, first)
}

// crashDuringSpawn ends a turn before its sub-agent starts, and applies the fault when the worker is about to
// cancel the sub-agent.
func crashDuringSpawn(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	e.Register("boss", "sub_agents: [clerk]")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.Rounds(env.Spawn("clerk first async", "nobody x"), inferencetest.Text("I will not wait.")),
	}))
	flags := append([]string{"--worker-slots", "1"}, crashFlags...)
	message := e.Send("boss", "Hurry.")
	faulty := e.StartFaulty("markerworker", flags...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(flags...)
	e.AwaitClosed(message)
	end()
	e.Await("all are closed", "select not exists (select from messages where closed_at is null)")
	if c.Fault != "kill" {
		wantAliveOrReason(e, faulty)
	}
	states := env.Query[string](e.Env,
		"select string_agg(agent || ' ' || outcome, ', ' order by message_id) from replies")
	if states != "boss succeeded, clerk cancelled" {
		t.Errorf("replies %s", states)
	}
}

// crashDuringSlot applies the fault while a slot becomes a message.
func crashDuringSlot(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	e.WriteAgent("watcher", env.CrashTools, env.HourlySchedule)
	early := e.StartWorker(crashFlags...)
	e.AwaitSchedule()
	if code := early.Terminate(); code != 0 {
		t.Fatalf("the first worker ended with %d", code)
	}
	e.Exec("update schedules set next_due = clock_timestamp() - interval '1 s'")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	if n := e.AwaitSlots(1); n != 1 {
		t.Errorf("the slot made %d messages", n)
	}
	finish(e, c, faulty, end)
}

// crashDuringShutdown applies the fault while the worker shuts down with an open turn.
func crashDuringShutdown(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	faulty.Await("worker ready")
	first := e.Send("clerk", "first")
	e.AwaitRequests(1)
	faulty.Signal(syscall.SIGTERM)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	if c.Fault == "stop" {
		e.AwaitClosed(first)
	}
	end()
	if c.Fault != "kill" {
		faulty.Wait()
	}
	finish(e, env.Crash{Point: c.Point, Fault: "kill", Tool: c.Tool}, faulty, func() {}, first)
}

// crashDuringWebhook applies the fault during the delivery of a reply to one of two endpoints.
func crashDuringWebhook(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	one, other := env.NewWebhookReceiver(t, nil), env.NewWebhookReceiver(t, nil)
	e.AddWebhook("one", one.URL)
	e.AddWebhook("other", other.URL)
	first := e.Send("clerk", "first")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	if c.Fault == "stop" {
		e.AwaitDeliveries("one", "delivered", 1)
		e.AwaitDeliveries("other", "delivered", 1)
	}
	finish(e, c, faulty, end, first)
	for name, r := range map[string]*env.WebhookReceiver{"one": one, "other": other} {
		e.AwaitDeliveries(name, "delivered", 3)
		if n := len(r.Deliveries()); n != 3 {
			t.Errorf("%d of 3 replies came to %s", n, name)
		}
		r.WantSameBodies()
	}
}

// crashDuringAccept applies the fault to the sender, which then sends again with the same key.
func crashDuringAccept(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	send := []string{"--agent", "clerk", "--key", "k", "first"}
	faulty := e.StartFaulty("faultenqueue", send...)
	end := apply(e, c.Fault, faulty, e.Hook.Await().Resume)
	again := e.Run("", "enqueue", send...)
	if again.Code != 0 {
		t.Fatalf("sending again ended with %d: %s", again.Code, again.Stderr)
	}
	end()
	if code := faulty.Wait(); c.Fault == "stop" && code != 0 {
		t.Errorf("the stopped sender ended with %d:\n%s", code, faulty.Output.Tail())
	}
	if n := env.Query[int](e.Env, "select count(*) from messages"); n != 1 {
		t.Errorf("one message was accepted %d times", n)
	}
	e.StartWorker(crashFlags...)
	finish(e, c, nil, func() {}, env.Query[int64](e.Env, "select id from messages"))
}

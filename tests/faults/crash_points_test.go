package faults_test

import (
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A crashTest brings a program to a point, harms it there, and sees to it that
// everything is done in the end.
type crashTest func(*testing.T, env.Crash)

// crashTestOf returns the test in which a program comes by a point.
func crashTestOf(point string) crashTest {
	switch {
	case strings.HasPrefix(point, "accept."):
		return crashDuringAccept
	case strings.HasPrefix(point, "shutdown."):
		return crashDuringShutdown
	case strings.HasPrefix(point, "recover."), point == "tick.lost", point == "tick.lost_call":
		return crashDuringRecovery
	case point == "turn.late":
		return crashWithLateResult
	case point == "tick.spawned":
		return crashDuringSpawn
	case point == "tick.occurred":
		return crashDuringSlot
	case strings.HasPrefix(point, "webhook."):
		return crashDuringWebhook
	default:
		return crashDuringTurn
	}
}

// crashFlags are those of all workers here: leases that end while a test waits, and
// no hurry that a busy machine could not keep up with.
var crashFlags = []string{
	"--lease-ttl", "1m", "--lease-margin", "5s", "--max-duration", "50s", "--tool-timeout", "30s", "--shutdown-grace", "5s",
}

// crashDuringTurn: the only worker is harmed on the way of a message; a second one
// comes.
func crashDuringTurn(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	first := e.Send("clerk", "first")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	finish(e, c, faulty, end, first)
}

// finish waits for the messages under way and for two more, with the harmed worker back
// where it lives, and compares.
func finish(e *env.CrashEnv, c env.Crash, harmed *env.Process, end func(), messages ...int64) {
	e.T.Helper()
	if c.Fault == "stop" {
		e.AwaitClosed(messages...)
	}
	end()
	messages = append(messages, e.Send("clerk", "second"), e.Send("clerk", "third"))
	e.AwaitClosed(messages...)
	if harmed != nil && c.Fault != "kill" {
		livesOrSaysWhy(e, harmed)
	}
	wantRunsAllowed(e)
	if n := env.Query[int](e.Env, "select count(*) from replies where outcome not in ('succeeded', 'degraded')"); n != 0 {
		e.T.Errorf("%d messages got no answer", n)
	}
}

// livesOrSaysWhy fails the test if the worker did not get over its harm. One
// that was cut off while it started may give up, in plain words.
func livesOrSaysWhy(e *env.CrashEnv, p *env.Process) {
	e.T.Helper()
	if !p.Running() {
		if said := p.Output.String(); p.Wait() != 1 || strings.Contains(said, "worker ready") || !strings.Contains(said, "worker: ") {
			e.T.Errorf("the harmed worker ended with %d:\n%s", p.Wait(), p.Output.Tail())
		}
		return
	}
	if code := p.Terminate(); code != 0 {
		e.T.Errorf("the harmed worker ended with %d:\n%s", code, p.Output.Tail())
	}
}

// crashDuringRecovery: a worker is killed within a tool, and the one that takes over
// is harmed in its turn.
func crashDuringRecovery(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	e.Ledger.Hold("first 1")
	e.Ledger.Hold("first 2") // which runs beside it where both are detached
	victim := e.StartWorker(crashFlags...)
	first := e.Send("clerk", "first")
	e.Ledger.Await("first 1", 1)
	e.Kill(victim)
	e.Ledger.Release()
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	finish(e, c, faulty, end, first)
}

// crashWithLateResult: a worker is stopped within a tool until another has given its
// verdict, and is harmed when it brings the result.
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
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
	finish(e, c, faulty, end, first)
}

// crashDuringSpawn: a turn ends while its sub-agent has not begun, and the worker is harmed
// when it is about to cancel that.
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
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(flags...)
	e.AwaitClosed(message)
	end()
	e.Await("all are closed", "select not exists (select from messages where closed_at is null)")
	if c.Fault != "kill" {
		livesOrSaysWhy(e, faulty)
	}
	states := env.Query[string](e.Env, "select string_agg(agent || ' ' || outcome, ', ' order by message_id) from replies")
	if states != "boss succeeded, clerk cancelled" {
		t.Errorf("replies %s", states)
	}
}

// crashDuringSlot: a worker is harmed while a slot becomes a message.
func crashDuringSlot(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	e.WriteAgent("watcher", env.CrashTools, env.HourlySchedule)
	early := e.StartWorker(crashFlags...)
	e.Await("the schedule is known", "select exists (select from schedules where next_due is not null)")
	if code := early.Terminate(); code != 0 {
		t.Fatalf("the first worker ended with %d", code)
	}
	e.Exec("update schedules set next_due = clock_timestamp() - interval '1 s'")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
	e.StartWorker(crashFlags...)
	if n := e.AwaitSlots(1); n != 1 {
		t.Errorf("the slot made %d messages", n)
	}
	finish(e, c, faulty, end)
}

// crashDuringShutdown: a worker is harmed while it stops, with a turn under way.
func crashDuringShutdown(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	faulty.Await("worker ready")
	first := e.Send("clerk", "first")
	e.AwaitRequests(1)
	faulty.Signal(syscall.SIGTERM)
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
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

// crashDuringWebhook: a worker is harmed around the push of a reply, to one of two endpoints.
func crashDuringWebhook(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	one, other := env.NewWebhookReceiver(t, nil), env.NewWebhookReceiver(t, nil)
	e.AddWebhook("one", one.URL)
	e.AddWebhook("other", other.URL)
	first := e.Send("clerk", "first")
	faulty := e.StartFaulty("markerworker", crashFlags...)
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
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

// crashDuringAccept: the sender is harmed, and sends again with the same key.
func crashDuringAccept(t *testing.T, c env.Crash) {
	e := env.NewCrash(t, c)
	e.Register("clerk")
	send := []string{"--agent", "clerk", "--key", "k", "first"}
	faulty := e.StartFaulty("faultenqueue", send...)
	end := strike(e, c.Fault, faulty, e.Hook.Await().Resume)
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

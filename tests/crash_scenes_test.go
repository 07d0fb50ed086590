package tests_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"turnkeeper"
	"turnkeeper/storage"
)

// A scene brings a program to a point, harms it there, and sees to it that
// everything is done in the end.
type scene func(*testing.T, crash)

// sceneOf is the scene in which a program comes by a point.
func sceneOf(point string) scene {
	switch {
	case strings.HasPrefix(point, "accept."):
		return acceptScene
	case strings.HasPrefix(point, "shutdown."):
		return shutdownScene
	case strings.HasPrefix(point, "recover."), point == "tick.lost", point == "tick.lost_call":
		return recoveryScene
	case point == "turn.late":
		return lateScene
	case point == "tick.spawned":
		return dropScene
	case point == "tick.occurred":
		return slotScene
	case strings.HasPrefix(point, "webhook."):
		return webhookScene
	default:
		return turnScene
	}
}

// crashFlags are those of all workers here: leases that are soon over, and no
// hurry that a busy machine could not keep up with.
var crashFlags = []string{
	"--lease-ttl", "10s", "--lease-margin", "1s", "--max-duration", "8s", "--tool-timeout", "5s", "--takeover-after", silence, "--shutdown-grace", "5s",
}

// turnScene: the only worker is harmed on the way of a message; a second one
// comes.
func turnScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	first := h.send("clerk", "first")
	faulty := h.faulty("markerworker", crashFlags...)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.startWorker(crashFlags...)
	h.rest(c, faulty, end, first)
}

// rest waits for the messages under way and for two more, with the harmed worker back
// where it lives, and compares.
func (h *crashHouse) rest(c crash, harmed *process, end func(), messages ...int64) {
	h.t.Helper()
	if c.fault == "stop" {
		h.awaitClosed(messages...)
	}
	end()
	messages = append(messages, h.send("clerk", "second"), h.send("clerk", "third"))
	h.awaitClosed(messages...)
	if harmed != nil && c.fault != "kill" {
		h.livesOrSaysWhy(harmed)
	}
	h.ranAsPromised()
	if n := query[int](h.house, "select count(*) from replies where outcome not in ('succeeded', 'degraded')"); n != 0 {
		h.t.Errorf("%d messages got no answer", n)
	}
}

// livesOrSaysWhy fails the test if the worker did not get over its harm. One
// that was cut off while it started may give up, in plain words.
func (h *crashHouse) livesOrSaysWhy(p *process) {
	h.t.Helper()
	if !p.running() {
		if said := p.said.String(); p.wait() != 1 || strings.Contains(said, "worker ready") || !strings.Contains(said, "worker: ") {
			h.t.Errorf("the harmed worker ended with %d:\n%s", p.wait(), p.said.tail())
		}
		return
	}
	if code := p.terminate(); code != 0 {
		h.t.Errorf("the harmed worker ended with %d:\n%s", code, p.said.tail())
	}
}

// recoveryScene: a worker is killed within a tool, and the one that takes over
// is harmed in its turn.
func recoveryScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	h.ledger.hold("first 1")
	h.ledger.hold("first 2") // which runs beside it where both are detached
	victim := h.startWorker(crashFlags...)
	first := h.send("clerk", "first")
	h.ledger.await("first 1", 1)
	victim.kill()
	h.ledger.release()
	faulty := h.faulty("markerworker", crashFlags...)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.startWorker(crashFlags...)
	h.rest(c, faulty, end, first)
}

// lateScene: a worker is stopped within a tool until another has given its
// verdict, and is harmed when it brings the result.
func lateScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	h.ledger.hold("first 1")
	first := h.send("clerk", "first")
	faulty := h.faulty("markerworker", crashFlags...)
	h.ledger.await("first 1", 1)
	faulty.signal(syscall.SIGSTOP)
	h.startWorker(crashFlags...)
	h.awaitClosed(first)
	h.ledger.release()
	faulty.signal(syscall.SIGCONT)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.rest(c, faulty, end, first)
}

// dropScene: a turn ends while its sub-agent has not begun, and the worker is harmed
// when it is about to cancel that.
func dropScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	h.register("boss", "sub_agents: [clerk]")
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss": rounds(spawns("clerk first async", "nobody x"), text("I will not wait.")),
	}))
	flags := append([]string{"--worker-slots", "1"}, crashFlags...)
	message := h.send("boss", "Hurry.")
	faulty := h.faulty("markerworker", flags...)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.startWorker(flags...)
	h.awaitClosed(message)
	end()
	h.await("all are closed", "select not exists (select from messages where closed_at is null)")
	if c.fault != "kill" {
		h.livesOrSaysWhy(faulty)
	}
	states := query[string](h.house, "select string_agg(agent || ' ' || outcome, ', ' order by message_id) from replies")
	if states != "boss succeeded, clerk cancelled" {
		t.Errorf("replies %s", states)
	}
}

// slotScene: a worker is harmed while a slot becomes a message.
func slotScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	h.agent("watcher", crashTools, hourly)
	early := h.startWorker(crashFlags...)
	h.await("the schedule is known", "select exists (select from schedules where next_due is not null)")
	if code := early.terminate(); code != 0 {
		t.Fatalf("the first worker ended with %d", code)
	}
	h.exec("update schedules set next_due = clock_timestamp() - interval '1 s'")
	faulty := h.faulty("markerworker", crashFlags...)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.startWorker(crashFlags...)
	if n := h.slots(1); n != 1 {
		t.Errorf("the slot made %d messages", n)
	}
	h.rest(c, faulty, end)
}

// shutdownScene: a worker is harmed while it stops, with a turn under way.
func shutdownScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	faulty := h.faulty("markerworker", crashFlags...)
	faulty.await("worker ready")
	first := h.send("clerk", "first")
	h.awaitRequests(1)
	faulty.signal(syscall.SIGTERM)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.startWorker(crashFlags...)
	if c.fault == "stop" {
		h.awaitClosed(first)
	}
	end()
	if c.fault != "kill" {
		faulty.wait()
	}
	h.rest(crash{c.point, "kill", c.tool}, faulty, func() {}, first)
}

// webhookScene: a worker is harmed around the push of a reply, to one of two endpoints.
func webhookScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	one, other := newReceiver(t, nil), newReceiver(t, nil)
	h.webhook("one", one.url)
	h.webhook("other", other.url)
	first := h.send("clerk", "first")
	faulty := h.faulty("markerworker", crashFlags...)
	end := h.strike(c.fault, faulty, h.stand.await())
	h.startWorker(crashFlags...)
	if c.fault == "stop" {
		h.awaitDeliveries("one", "delivered", 1)
		h.awaitDeliveries("other", "delivered", 1)
	}
	h.rest(c, faulty, end, first)
	for name, r := range map[string]*receiver{"one": one, "other": other} {
		h.awaitDeliveries(name, "delivered", 3)
		if n := len(r.all()); n != 3 {
			t.Errorf("%d of 3 replies came to %s", n, name)
		}
		r.same()
	}
}

// acceptScene: the sender is harmed, and sends again with the same key.
func acceptScene(t *testing.T, c crash) {
	h := newCrashHouse(t, c)
	h.register("clerk")
	send := []string{"--agent", "clerk", "--key", "k", "first"}
	faulty := h.faulty("faultenqueue", send...)
	end := h.strike(c.fault, faulty, h.stand.await())
	again := h.run("", "enqueue", send...)
	if again.code != 0 {
		t.Fatalf("sending again ended with %d: %s", again.code, again.stderr)
	}
	end()
	if code := faulty.wait(); c.fault == "stop" && code != 0 {
		t.Errorf("the stopped sender ended with %d:\n%s", code, faulty.said.tail())
	}
	if n := query[int](h.house, "select count(*) from messages"); n != 1 {
		t.Errorf("one message was accepted %d times", n)
	}
	h.startWorker(crashFlags...)
	h.rest(c, nil, func() {}, query[int64](h.house, "select id from messages"))
}

// registerFile makes an agent's file known as a worker does when it starts.
func (h *crashHouse) registerFile(name string) {
	h.t.Helper()
	d, err := parseAgent(name, filepath.Join(h.dir, "agents", name+".md"))
	if err != nil {
		h.t.Fatal(err)
	}
	store, err := storage.Open(h.t.Context(), storage.Options{URL: h.url})
	if err != nil {
		h.t.Fatal(err)
	}
	defer store.Close()
	err = store.RegisterAgents(h.t.Context(), []turnkeeper.AgentRegistration{{Name: name, Definition: d.Source, DefinitionHash: d.Hash}})
	if err != nil {
		h.t.Fatal(err)
	}
}

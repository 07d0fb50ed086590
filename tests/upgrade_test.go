package tests_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// soon makes a lost worker's turns go to others soon.
var soon = []string{"--takeover-after", silence}

// Workers of two releases work one inbox, the newer one migrates the database
// under the older, one of each is killed or stopped: every message is answered
// once.
func TestTwoReleasesSideBySide(t *testing.T) {
	t.Parallel()
	newerWorker(t)
	h := newHouse(t)
	h.agent("desk", "lane: conversation", marks)
	model, tool := make(chan struct{}), "in a tool"
	h.model.Then(func(r recorded) reply {
		body := newest(r)
		last := text("answer to " + body)
		if strings.HasPrefix(body, "in a model call") {
			last = waitFor(model, last)
		}
		return rounds(callOnce("mark_keyed", "k "+body), callOnce("mark_once", body), last)(r)
	})
	var ids []int64
	var bodies []string
	send := func(body string, n int) {
		for i := range n {
			bodies = append(bodies, fmt.Sprint(body, " ", i))
			ids = append(ids, query[int64](h, "select turnkeeper.enqueue('desk', $1, $2)", bodies[len(bodies)-1], fmt.Sprint(body, " ", i%4)))
		}
	}
	old := h.startWorker(soon...)
	h.startWorker(soon...)
	h.ledger.hold(tool + " 0")
	send(tool, 1)
	send("in a model call", 2)
	h.ledger.await(tool+" 0", 1)
	h.awaitRequests(2 + 3 + 3)

	newer := h.startNewer(soon...)
	if n := query[int](h, "select max(version) from schema_migrations"); n != knownMigration()+1 {
		t.Fatalf("the newer worker left the schema at %d", n)
	}
	send("beside", 12)
	h.ledger.release()
	close(model)
	// Any worker may take a message: more are sent until the newer one took one.
	for n := 0; !query[bool](h, "select exists (select from rounds where version = 9)"); n++ {
		send(fmt.Sprint("for the newer ", n), 1)
		h.awaitClosed(ids[len(ids)-1])
	}
	newer.kill()
	send("after the kill", 8)
	old.signal(syscall.SIGTERM)
	h.startNewer(soon...)
	if code := old.wait(); code != 0 {
		t.Errorf("the old worker ended with %d", code)
	}
	h.awaitClosed(ids...)

	for i, id := range ids {
		outcome := query[string](h, "select outcome || ': ' || body from replies where message_id = $1", id)
		// A call of the worker that was killed may be of unknown outcome.
		if outcome != "succeeded: answer to "+bodies[i] && outcome != "degraded: answer to "+bodies[i] {
			t.Errorf("%q has the reply %q", bodies[i], outcome)
		}
		if n := len(h.ledger.runs(bodies[i])); n > 1 || n == 0 && strings.HasPrefix(outcome, "succeeded") {
			t.Errorf("%q was marked %d times", bodies[i], n)
		}
	}
	if n := query[int](h, "select count(*) from turns where losses > 1 or state not in ('succeeded', 'degraded')"); n != 0 {
		t.Errorf("%d turns were lost more than once, or ended otherwise", n)
	}
	if n := query[int](h, "select count(distinct version) from rounds"); n != 2 {
		t.Errorf("%d versions were written", n)
	}
}

// The newer release is given up again: what it has begun waits for it, untouched,
// and all else goes on with the old one.
func TestTheNewerReleaseStopsAndTheOldGoesOn(t *testing.T) {
	t.Parallel()
	newerWorker(t)
	h := newHouse(t)
	h.agent("clerk", marks)
	h.agent("desk", marks)
	h.model.Then(func(r recorded) reply {
		switch body := newest(r); body {
		case "Begin.":
			return rounds(callOnce("mark_once", "a"), hang())(r)
		case "Hello":
			return rounds(callOnce("mark_once", "b"), text("Hello to you."))(r)
		default:
			return text("answer to " + body)
		}
	})
	newer := h.startNewer("--shutdown-grace", "0s")
	h.ended(h.turnOf(h.send("desk", "Hello")), "succeeded", "none", 2)
	begun := h.send("clerk", "Begin.")
	h.awaitRequests(4)
	if code := newer.terminate(); code != 0 {
		t.Errorf("the newer worker ended with %d", code)
	}
	turn := query[int64](h, "select turn_id from messages where id = $1", begun)
	_, before, _ := strings.Cut(journalOf(h, turn), ")") // without the turn's own row

	old := h.startWorker()
	behind := h.send("clerk", "behind it")
	// The conversation goes on; of what the newer release wrote the old one
	// tells the model the message and the reply.
	answer := h.turnOf(h.send("desk", "Still there?"))
	h.ended(answer, "succeeded", "none", 1)
	var told []string
	for _, m := range h.model.Requests()[4].Chat().Messages[1:] {
		told = append(told, m.Role+": "+m.Text())
	}
	if want := "user: Hello|assistant: Hello to you.|user: Still there?"; strings.Join(told, "|") != want {
		t.Errorf("the model was told %q", told)
	}
	old.await("the turn is left to a newer worker")
	h.await("the turn is put off", "select due_at > clock_timestamp() from turns where id = $1", turn)
	view := h.show(turn)
	if view.State != "queued" || view.Losses != 0 || view.ErrorClass != "needs_newer_worker" || !strings.Contains(view.Error, "version 9") {
		t.Errorf("the turn is %+v", view)
	}
	if _, after, _ := strings.Cut(journalOf(h, turn), ")"); after != before {
		t.Errorf("the old worker wrote to the journal:\n%s\n%s", before, after)
	}
	h.requests(5)

	h.model.Then(func(r recorded) reply {
		return rounds(callOnce("mark_once", "a"), text("finished: "+newest(r)))(r)
	})
	h.startNewer()
	// Both run, and the turn is offered to the newer one by name.
	for message, body := range map[int64]string{begun: "finished: Begin.", behind: "finished: behind it"} {
		h.awaitClosed(message)
		if got := query[string](h, "select outcome || ' ' || body from replies where message_id = $1", message); got != "succeeded "+body {
			t.Errorf("the reply is %q", got)
		}
	}
	if n := query[int](h, "select dispatches from turns where id = $1", turn); n != 3 {
		t.Errorf("the turn had %d dispatches: one of each worker was enough", n)
	}
}

// The newer release brings a tool, and an agent's file that lists it. A turn of
// that file that is granted to an old worker waits for a newer one.
func TestANewToolIsRolledOut(t *testing.T) {
	t.Parallel()
	newerWorker(t)
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_new", "n"), text("done")))
	old := h.startWorker()
	h.agent("clerk", "tools: [mark_new]")
	newer := h.startNewer()
	newer.signal(syscall.SIGSTOP) // only the old one takes work
	message := h.send("clerk", "Use it.")
	old.await("the agent has tools that this worker lacks: mark_new")
	newer.signal(syscall.SIGCONT)
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	if call := turn.calls()[0]; call.Name != "mark_new" || call.State != "succeeded" {
		t.Errorf("the call is %+v", call)
	}
	h.ledger.ran("n", 1)
}

// A schema that is newer and suits this release is no hindrance; one that does
// not is refused in plain words, and nothing is changed.
func TestAWorkerOnANewerSchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		oldest int
		suits  bool
	}{
		"that suits it": {knownMigration(), true},
		"that does not": {knownMigration() + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk")
			h.model.Then(rounds(text("done")))
			h.exec("insert into schema_migrations (version, name, oldest_program) values (900, 'next', $1)", c.oldest)
			h.exec("insert into river_migration (line, version) values ('main', 900)")
			for _, flags := range [][]string{nil, {"--migrate-on-start=false"}} {
				w := h.launchWorker(flags...)
				if c.suits {
					w.await("worker ready")
					continue
				}
				if code := w.wait(); code != 1 {
					t.Errorf("the worker ended with %d", code)
				}
				w.await("the database's schema is too new for this program: migration 900_next needs a program that knows migration")
			}
			doctor := h.run("", "turnctl", "doctor")
			if refused := strings.Contains(doctor.stdout, "too new for this program"); refused == c.suits {
				t.Errorf("doctor says:\n%s", doctor.stdout)
			}
			if c.suits {
				h.ended(h.turnOf(h.send("clerk", "Hello")), "succeeded", "none", 1)
			} else if n := query[int](h, "select count(*) from agents"); n != 0 {
				t.Errorf("a worker that refused registered %d agents", n)
			}
		})
	}
}

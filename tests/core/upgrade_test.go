package core_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// Workers of two releases share an inbox. The newer one migrates the database while the older one runs, and
// one of each is killed or stopped. Every message is answered once.
func TestTwoReleasesSideBySide(t *testing.T) {
	t.Parallel()
	testrun.OnlyFull(t) // the next release is compiled
	e := env.New(t)
	newerWorker(t)
	e.WriteAgent("desk", "lane: conversation", env.MarkerTools)
	model, tool := make(chan struct{}), "in a tool"
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		body := env.NewestMessage(r)
		last := inferencetest.Text("answer to " + body)
		if strings.HasPrefix(body, "in a model call") {
			last = inferencetest.WaitFor(model, last)
		}
		return env.Rounds(env.MarkerReply("mark_keyed", "k "+body), env.MarkerReply("mark_once", body), last)(r)
	})
	var ids []int64
	var bodies []string
	send := func(body string, n int) {
		for i := range n {
			bodies = append(bodies, fmt.Sprint(body, " ", i))
			ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('desk', $1, $2)", bodies[len(bodies)-1],
				fmt.Sprint(body, " ", i%4)))
		}
	}
	old := e.StartWorker()
	e.StartWorker()
	e.Ledger.Hold(tool + " 0")
	send(tool, 1)
	send("in a model call", 2)
	e.Ledger.Await(tool+" 0", 1)
	e.AwaitRequests(2 + 3 + 3)

	newer := startNewer(e)
	if n := env.Query[int](e, "select max(version) from schema_migrations"); n != knownMigration()+1 {
		t.Fatalf("the newer worker left the schema at %d", n)
	}
	send("beside", 12)
	e.Ledger.Release()
	close(model)
	// Any worker may take a message, so more are sent until the newer one has taken one.
	for n := 0; !env.Query[bool](e, "select exists (select from rounds where version = 9)"); n++ {
		send(fmt.Sprint("for the newer ", n), 1)
		e.AwaitClosed(ids[len(ids)-1])
	}
	e.Kill(newer)
	send("after the kill", 8)
	old.Signal(syscall.SIGTERM)
	startNewer(e)
	if code := old.Wait(); code != 0 {
		t.Errorf("the old worker ended with %d", code)
	}
	e.AwaitClosed(ids...)

	for i, id := range ids {
		outcome := env.Query[string](e, "select outcome || ': ' || body from replies where message_id = $1", id)
		// a call of the killed worker may be of unknown outcome
		unknown := "degraded: answer to " + bodies[i] + "\n\n- mark_once: unknown: it may or may not have happened"
		if outcome != "succeeded: answer to "+bodies[i] && outcome != unknown {
			t.Errorf("%q has the reply %q", bodies[i], outcome)
		}
		if n := len(e.Ledger.Runs(bodies[i])); n > 1 || n == 0 && strings.HasPrefix(outcome, "succeeded") {
			t.Errorf("%q has %d marks", bodies[i], n)
		}
	}
	if n := env.Query[int](e,
		"select count(*) from turns where losses > 1 or state not in ('succeeded', 'degraded')"); n != 0 {
		t.Errorf("%d turns were lost more than once, or ended differently", n)
	}
	if n := env.Query[int](e, "select count(distinct version) from rounds"); n != 2 {
		t.Errorf("%d versions were written", n)
	}
}

// The newer release is rolled back. Its open turns wait for it unchanged, and everything else runs on the old
// release.
func TestTheNewerReleaseStopsAndTheOldGoesOn(t *testing.T) {
	t.Parallel()
	testrun.OnlyFull(t) // the next release is compiled
	e := env.New(t)
	newerWorker(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.WriteAgent("desk", env.MarkerTools)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch body := env.NewestMessage(r); body {
		case "Begin.":
			return env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Hang())(r)
		case "Hello":
			return env.Rounds(env.MarkerReply("mark_once", "b"), inferencetest.Text("Hello to you."))(r)
		default:
			return inferencetest.Text("answer to " + body)
		}
	})
	newer := startNewer(e, "--shutdown-grace", "0s")
	e.WantEnd(e.TurnOf(e.Send("desk", "Hello")), "succeeded", "none", 2)
	begun := e.Send("clerk", "Begin.")
	e.AwaitRequests(4)
	if code := newer.Terminate(); code != 0 {
		t.Errorf("the newer worker ended with %d", code)
	}
	turn := env.Query[int64](e, "select turn_id from messages where id = $1", begun)
	_, before, _ := strings.Cut(e.JournalOf(turn), ")") // without the turn's own row

	old := e.StartWorker()
	behind := e.Send("clerk", "behind it")
	// The conversation continues. The old release shows the model the message and the reply of the newer
	// release's turn.
	answer := e.TurnOf(e.Send("desk", "Still there?"))
	e.WantEnd(answer, "succeeded", "none", 1)
	var messages []string
	for _, m := range e.Model.Requests()[4].Chat().Messages[1:] {
		messages = append(messages, m.Role+": "+m.Text())
	}
	if want := "user: Hello|assistant: Hello to you.|user: Still there?"; strings.Join(messages, "|") != want {
		t.Errorf("the model got %q", messages)
	}
	old.Await("handing the turn back for a newer worker")
	e.Await("the turn is put off", "select due_at > clock_timestamp() from turns where id = $1", turn)
	view := e.Show(turn)
	if view.State != "queued" || view.Losses != 0 || view.ErrorClass != "needs_newer_worker" ||
		!strings.Contains(view.Error, "version 9") {
		t.Errorf("the turn is %+v", view)
	}
	if _, after, _ := strings.Cut(e.JournalOf(turn), ")"); after != before {
		t.Errorf("the old worker wrote to the journal:\n%s\n%s", before, after)
	}
	e.WantRequests(5)

	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		return env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("finished: "+env.NewestMessage(r)))(r)
	})
	startNewer(e)
	// Both run, and the turn is granted to the newer one only.
	for message, body := range map[int64]string{begun: "finished: Begin.", behind: "finished: behind it"} {
		e.AwaitClosed(message)
		if got := env.Query[string](e, "select outcome || ' ' || body from replies where message_id = $1",
			message); got != "succeeded "+body {
			t.Errorf("the reply is %q", got)
		}
	}
	if n := env.Query[int](e, "select dispatches from turns where id = $1", turn); n != 3 {
		t.Errorf("the turn had %d dispatches: one of each worker was enough", n)
	}
}

// The newer release has a new tool and an agent that lists it. A turn of this agent that is granted to an old
// worker waits for a newer one.
func TestANewToolIsRolledOut(t *testing.T) {
	t.Parallel()
	testrun.OnlyFull(t) // the next release is compiled
	e := env.New(t)
	newerWorker(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_new", "n"), inferencetest.Text("done")))
	old := e.StartWorker()
	e.WriteAgent("clerk", "tools: [mark_new]")
	newer := startNewer(e)
	newer.Signal(syscall.SIGSTOP) // only the old worker takes turns
	message := e.Send("clerk", "Use it.")
	old.Await("the agent has tools that this worker lacks: mark_new")
	newer.Signal(syscall.SIGCONT)
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	if call := turn.Calls()[0]; call.Name != "mark_new" || call.State != "succeeded" {
		t.Errorf("the call is %+v", call)
	}
	e.Ledger.WantRuns("n", 1)
}

// A worker accepts a newer schema that is compatible. It refuses an incompatible schema with a plain error and
// changes nothing.
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
			e := env.New(t)
			e.WriteAgent("clerk")
			e.Model.Then(env.Rounds(inferencetest.Text("done")))
			e.Exec("insert into schema_migrations (version, name, oldest_program) values (900, 'next', $1)", c.oldest)
			e.Exec("insert into river_migration (line, version) values ('main', 900)")
			for _, flags := range [][]string{nil, {"--migrate-on-start=false"}} {
				w := e.LaunchWorker(flags...)
				if c.suits {
					w.Await("worker ready")
					continue
				}
				if code := w.Wait(); code != 1 {
					t.Errorf("the worker ended with %d", code)
				}
				w.Await(
					"the database's schema is too new for this program: migration 900_next needs a program that knows migration")
			}
			doctor := e.Turnctl("doctor")
			if refused := strings.Contains(doctor.Stdout, "too new for this program"); refused == c.suits {
				t.Errorf("doctor prints:\n%s", doctor.Stdout)
			}
			if c.suits {
				e.WantEnd(e.TurnOf(e.Send("clerk", "Hello")), "succeeded", "none", 1)
			} else if n := env.Query[int](e, "select count(*) from agents"); n != 0 {
				t.Errorf("a worker that refused registered %d agents", n)
			}
		})
	}
}

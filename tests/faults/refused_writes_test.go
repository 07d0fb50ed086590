package faults_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// The database refuses every write to the journal for a while, as on a full disk: first the writes before a turn's
// model call, then its end. Every place that shows the turn gives the SQLSTATE, and afterwards how long the refusal
// lasted.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "lane: conversation")
	e.Exec(`create function refuse() returns trigger language plpgsql as $$
		begin raise exception using errcode = '53100', message = 'could not extend file: No space left on device'; end $$`)
	refuse := func() {
		e.Exec("create trigger refuse before insert on journal for each row execute function refuse()")
	}
	w := e.StartWorker()
	for name, model := range map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"at the beginning": env.Echo("You said: "),
		"at the end": func(r inferencetest.Recorded) inferencetest.Reply {
			return meanwhile(refuse, env.Echo("You said: ")(r))
		},
	} {
		e.Model.Then(model)
		if name == "at the beginning" {
			refuse()
		}
		message := e.Send("clerk", name)
		wantRefusalShown(e, w, name)
		e.Exec("drop trigger refuse on journal")
		e.AwaitClosed(message)
		if got := env.Query[string](e, "select outcome || ': ' || body from replies where message_id = $1",
			message); got != "succeeded: You said: "+name {
			t.Errorf("%s: the reply is %q", name, got)
		}
		wantRefusalOver(e, w, name)
	}
	if got := strings.Count(w.Output.String(), "the database refuses writes; retrying"); got < 2 || got > 6 {
		t.Errorf("%d lines about refused writes:\n%s", got, w.Output)
	}
}

// wantRefusalShown checks what the worker, turnctl and the page say about a turn whose write is refused.
func wantRefusalShown(e *env.Env, w *env.Process, name string) {
	e.T.Helper()
	w.Await("the database refuses writes; retrying")
	says := func(when string, text func() string, parts ...string) {
		e.T.Helper()
		got := ""
		defer func() {
			if e.T.Failed() {
				e.T.Logf("%s: %s:\n%s", name, when, got)
			}
		}()
		e.Poll(name+": "+when, func() bool {
			got = text()
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(got, part) })
		})
		if strings.Contains(got, "asks a model") {
			e.T.Errorf("%s: %s says that a model is asked", name, when)
		}
	}
	turnctl := func(args ...string) func() string {
		return func() string { return strings.Join(strings.Fields(e.Turnctl(args...).Stdout), " ") }
	}
	e.Await("a heartbeat has the refusal", "select exists (select from worker_heartbeat where refused <> '[]')")
	waits := []string{"waits for the database: it has refused to write for", "53100"}
	says("turns", turnctl("turns"), waits...)
	says("show", turnctl("show", "latest"), waits...)
	says("explain", turnctl("explain", "latest"), append(waits, "No space left on device", "disk is full")...)
	says("doctor", turnctl("doctor"), "FAIL writable no:", "FAIL refused writes", "53100", "disk is full")
	get := func(path string) func() string { return func() string { return getText(e, w.APIURL()+path) } }
	says("readyz", get("/readyz"), "503", "refuses writes", "53100")
	says("metrics", get("/metrics"), `turnkeeper_db_refused{sqlstate="53100"`, "turnkeeper_db_refused_age_seconds",
		`turnkeeper_db_refused_attempts_total{`)
	says("the overview", get("/"), "The database refuses writes", "53100", "disk is full")
	says("the turn's page", get("/turns/"+env.Query[string](e, "select max(id)::text from turns")), waits...)
}

// wantRefusalOver checks that the refusal is shown as past.
func wantRefusalOver(e *env.Env, w *env.Process, name string) {
	e.T.Helper()
	w.Await("the database accepts all writes again")
	e.Poll(name+": ready", func() bool { return strings.HasPrefix(getText(e, w.APIURL()+"/readyz"), "200") })
	for _, args := range [][]string{{"show", "latest"}, {"explain", "latest"}} {
		if got := e.Turnctl(args...).Stdout; !strings.Contains(got, "the database refused to write for") ||
			!strings.Contains(got, "(53100)") {
			e.T.Errorf("%s: %v does not show the refusal:\n%s", name, args, got)
		}
	}
	if got := getText(e, w.APIURL()+"/turns/"+env.Query[string](e,
		"select max(id)::text from turns")); !strings.Contains(got, "The database refused to write") {
		e.T.Errorf("%s: the timeline of the page does not show the refusal", name)
	}
	e.Await("no heartbeat has a refusal", "select not exists (select from worker_heartbeat where refused <> '[]')")
	e.Poll(name+": doctor finds the database writable", func() bool {
		out := strings.Join(strings.Fields(e.Turnctl("doctor").Stdout), " ")
		return !strings.Contains(out, "53100") && strings.Contains(out, "yes: a write as a turn makes it")
	})
}

// getText returns the status and the body of a page.
func getText(e *env.Env, url string) string {
	e.T.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.T.Fatal(err)
	}
	return resp.Status + "\n" + string(body)
}

// TestRefusedHeartbeats lets the database refuse all that a worker writes, its heartbeats too, as a server that is
// read-only does. Then no row says so: each process notes what it is refused, and programs try a write.
func TestRefusedHeartbeats(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Exec(`create function refuse() returns trigger language plpgsql as $$
		begin raise exception using errcode = '25006', message = 'cannot execute INSERT in a read-only transaction'; end $$`)
	w := e.StartWorker()
	e.Exec(`do $$ begin
		lock table worker_heartbeat, journal in access exclusive mode;
		update worker_heartbeat set beat_at = clock_timestamp() - interval '1 min';
		create trigger refuse before insert or update on worker_heartbeat for each row execute function refuse();
		create trigger refuse before insert on journal for each row execute function refuse();
	end $$`)
	w.Await("the database refuses writes; retrying")
	shown := func(what string, text func() string, parts ...string) {
		t.Helper()
		e.Poll(what, func() bool {
			got := text()
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(got, part) })
		})
	}
	shown("readyz", func() string { return getText(e, w.APIURL()+"/readyz") }, "503", "refuses writes", "25006")
	shown("the overview", func() string { return getText(e, w.APIURL()+"/") }, "The database refuses writes", "25006")
	shown("metrics", func() string {
		return getText(e, w.APIURL()+"/metrics")
	}, `turnkeeper_db_refused{sqlstate="25006"`)
	if got := e.Turnctl("top", "--once").Stdout; !strings.Contains(got, "the database refuses writes") ||
		!strings.Contains(got, "25006") {
		t.Errorf("top does not show the refusal:\n%s", got)
	}
	e.Exec("drop trigger refuse on journal")
	e.Exec("drop trigger refuse on worker_heartbeat")
	w.Await("the database accepts all writes again")
	shown("readyz afterwards", func() string { return getText(e, w.APIURL()+"/readyz") }, "200")
}

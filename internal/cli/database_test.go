package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/migrations"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// somewhere returns an environment with a database that has two agents.
func somewhere(t *testing.T) (env map[string]string, store *storagetest.DB) {
	t.Helper()
	store = storagetest.Reused(t, "")
	return somewhereIn(t, store), store
}

// somewhereIn returns an environment with this database, to which it adds the agents.
func somewhereIn(t *testing.T, store *storagetest.DB) (env map[string]string) {
	t.Helper()
	env = nowhere(t)
	env["DATABASE_URL"] = store.URL
	env["TURNKEEPER_AGENTS_DIR"] = agentsDir(t)
	err := store.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{
		{Name: "echo", DefinitionHash: strings.Repeat("a", 64), Definition: []byte("---\n---\nHello."),
			Description: "Answers."},
		{
			Name: "watcher", DefinitionHash: strings.Repeat("b", 64), Definition: []byte("---\n---\nHello."),
			Schedules: []turnkeeper.Schedule{{Agent: "watcher", Name: "default", Cron: "0 9 * * *", TimeZone: "UTC",
				Conversation: "main", Message: "Look."}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func agentsDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := "---\nmodel: demo/script\ntools: [clock]\n---\nYou answer.\n"
	if err := os.WriteFile(filepath.Join(dir, "echo.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func decode[T any](t *testing.T, got ran) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.stdout), &value); err != nil || got.code != 0 {
		t.Fatalf("exit code %d, %v\nstdout: %s\nstderr: %s", got.code, err, got.stdout, got.stderr)
	}
	return value
}

func TestEnqueueAccepts(t *testing.T) {
	env, store := somewhere(t)
	send := func(stdin string, args ...string) ran {
		return run(t, enqueue.Program(), env, stdin, append([]string{"--agent", "echo"}, args...)...)
	}

	got := send("", "--conversation", "anna", "--priority", "7", "two", "words")
	if got.code != 0 || got.stdout != "message 1 accepted\n" || !strings.Contains(got.stderr, "no worker is running") {
		t.Fatalf("%+v", got)
	}
	m, err := store.Message(t.Context(), 1)
	if err != nil || m.Body != "two words" || m.Conversation != "anna" || m.Priority != 7 {
		t.Errorf("%+v, %v", m, err)
	}

	type accepted struct {
		MessageID    int64 `json:"message_id"`
		Conversation string
	}
	first := decode[accepted](t, send("from input\n", "--key", "k", "--json"))
	again := decode[accepted](t, send("from input", "--key", "k", "--json", "-"))
	if first != again || first.Conversation != "main" {
		t.Errorf("the same key gave %+v and %+v", first, again)
	}

	for name, c := range map[string]struct {
		got  ran
		want string
	}{
		"another body for the key": {send("", "--key", "k", "other"), "idempotency key was already used"},
		"unknown agent": {run(t, enqueue.Program(), env, "", "--agent", "nobody", "hi"),
			"unknown agent 'nobody': the registered agents are echo, watcher"},
		"longer than the limit": {send(strings.Repeat("x", 64<<10+1)),
			"the body has 65537 bytes, the limit is 65536"},
	} {
		if c.got.code != 2 || !strings.Contains(c.got.stderr, c.want) || c.got.stdout != "" {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
	if all, err := store.Messages(t.Context(), operate.Page{}); err != nil || len(all) != 2 {
		t.Errorf("%d messages, %v; refused ones must not be written", len(all), err)
	}
}

func TestWaitEnds(t *testing.T) {
	env, _ := somewhere(t)
	t.Run("in time", func(t *testing.T) {
		got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--wait", "--wait-timeout", "300ms", "hi")
		if got.code != 4 || got.stdout != "" || !strings.Contains(got.stderr,
			"no reply within 300ms: message 1 stays accepted") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("in time, for programs", func(t *testing.T) {
		got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--key", "again", "--wait", "--wait-timeout", "1",
			"--json", "hi")
		var view map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &view); err != nil || got.code != 4 {
			t.Fatalf("%v: %+v", err, got)
		}
		want := map[string]any{
			"message_id": 2.0, "agent": "echo", "user": "", "conversation": "main", "state": "waiting", "outcome": nil,
			"turn_id": nil, "reply_id": nil, "reply": nil,
		}
		if diff := cmp.Diff(want, view); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("by a signal", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		output, seen := io.Pipe()
		var code int
		var done sync.WaitGroup
		done.Go(func() {
			code = enqueue.Program().Run(ctx, t.Context(), shell.Environment{
				Args: []string{"--agent", "echo", "--wait", "hi"}, Stderr: seen,
				Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
			})
			seen.Close()
		})
		buffer := make([]byte, 1000)
		n, _ := output.Read(buffer) // returns once the program has printed something
		interrupt()
		rest, _ := io.ReadAll(output)
		done.Wait()
		if text := string(buffer[:n]) + string(rest); code != 130 || !strings.Contains(text, "message 3 accepted") ||
			!strings.Contains(text, "no longer waiting: message 3 stays accepted") {
			t.Errorf("exit code %d, stderr:\n%s", code, text)
		}
	})
}

func TestLookups(t *testing.T) {
	env, _ := somewhere(t)
	ctl := func(args ...string) ran { return run(t, turnctl.Program(), env, "", args...) }
	for i := range 30 {
		if got := run(t, enqueue.Program(), env, "", "--agent", "echo", fmt.Sprintf("message number %d",
			i+1)); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	type row struct {
		ID int64 `json:"id"`
	}
	if rows := decode[[]row](t, ctl("inbox", "-o", "json")); len(rows) != 25 || rows[0].ID != 30 {
		t.Errorf("%d rows, the first %+v; want 25 from 30 down", len(rows), rows[0])
	}
	if rows := decode[[]row](t, ctl("inbox", "-o", "json", "--before", "6")); len(rows) != 5 || rows[0].ID != 5 {
		t.Errorf("%d rows below 6", len(rows))
	}
	if got := ctl("inbox", "--limit", "1"); !strings.Contains(got.stdout, "message number 30") ||
		strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("%+v", got)
	}
	for _, empty := range []string{"turns", "outbox", "workers"} {
		if got := ctl(empty, "-o", "json"); got.code != 0 || got.stdout != "[]\n" {
			t.Errorf("%s: %+v, want an empty array", empty, got)
		}
		if got := ctl(empty); got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, "no ") {
			t.Errorf("%s: %+v", empty, got)
		}
	}
	for _, args := range [][]string{{"show", "99"}, {"show", "latest"}, {"schedules", "pause", "echo"},
		{"schedules", "set", "watcher/x", "@daily"}} {
		if got := ctl(args...); got.code != 3 || got.stdout != "" || !strings.Contains(got.stderr, "there is no") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for _, args := range [][]string{{"turns"}, {"inbox"}, {"outbox"}, {"outbox", "--follow"}, {"lanes"},
		{"purge", "--notes"}} {
		got := ctl(append(args, "--agent", "ecco")...)
		if got.code != 3 || got.stdout != "" || !strings.Contains(got.stderr,
			`there is no agent "ecco" (did you mean "echo"?): "turnctl agents" lists`) {
			t.Errorf("%v of an agent that is not there: %+v", args, got)
		}
		if args[len(args)-1] == "--follow" {
			continue
		}
		if got := ctl(append(args, "--agent", "watcher")...); got.code != 0 {
			t.Errorf("%v of an agent that has nothing: %+v", args, got)
		}
	}
	if got := ctl("agents"); !strings.Contains(got.stdout, "watcher") || !strings.Contains(got.stderr,
		"no file in "+env["TURNKEEPER_AGENTS_DIR"]+" for: watcher") {
		t.Errorf("%+v", got)
	}
	env["TURNKEEPER_AGENTS_DIR"] += "/none"
	if got := ctl("agents"); got.code != 0 || got.stderr != "" {
		t.Errorf("with no folder to compare with: %+v", got)
	}
}

func TestSteering(t *testing.T) {
	env, store := somewhere(t)
	ctl := func(args ...string) ran { return run(t, turnctl.Program(), env, "", append(args, "-o", "json")...) }
	type schedule struct {
		Cron     string  `json:"cron"`
		FileCron string  `json:"cron_of_file"`
		PausedAt *string `json:"paused_at"`
	}
	if got := decode[schedule](t, ctl("schedules", "set", "watcher", "*/5  * * * *")); got.Cron != "*/5 * * * *" ||
		got.FileCron != "0 9 * * *" {
		t.Errorf("set: %+v", got)
	}
	// A cron expression is accepted exactly if an agent file may contain it.
	for cron, want := range map[string]string{
		"every day": "", "0 0 30 2 *": "", "TZ=Europe/Berlin 0 9 * * *": "", "@every 0s": "", "@every 500ms": "",
		"@every day": "", "60 * * * *": "", " ": "",
		"@every  90s": "@every 90s", " 0  9 * *  1-5 ": "0 9 * * 1-5", "@daily": "@daily",
	} {
		file := filepath.Join(t.TempDir(), "x.md")
		if err := os.WriteFile(file, []byte("---\nschedule: {cron: \""+cron+"\"}\n---\nHello."), 0o600); err != nil {
			t.Fatal(err)
		}
		reading, got := agentdef.Read(file), ctl("schedules", "set", "watcher", cron)
		if want == "" {
			if got.code != 2 || len(reading.Faults) == 0 {
				t.Errorf("set %q: %+v; in a file: %v", cron, got, reading.Faults)
			}
			continue
		}
		if set := decode[schedule](t, got); set.Cron != want || len(reading.Faults) > 0 ||
			reading.Definition.Schedules[0].Cron != want {
			t.Errorf("set %q: %+v; in a file: %+v, %v", cron, set, reading.Definition, reading.Faults)
		}
	}
	if got := decode[schedule](t, ctl("schedules", "pause", "watcher/default")); got.PausedAt == nil {
		t.Errorf("pause: %+v", got)
	}
	if got := decode[schedule](t, ctl("schedules", "resume", "watcher")); got.PausedAt != nil {
		t.Errorf("resume: %+v", got)
	}
	if got := decode[schedule](t, ctl("schedules", "reset", "watcher")); got.Cron != "0 9 * * *" {
		t.Errorf("reset: %+v", got)
	}

	type scheduleRun struct {
		MessageID int64 `json:"message_id"`
		Waiting   bool  `json:"waiting"`
	}
	first, again := decode[scheduleRun](t, ctl("schedules", "run", "watcher")), decode[scheduleRun](t,
		ctl("schedules", "run", "watcher/default"))
	if first.MessageID == 0 || first.Waiting || again != (scheduleRun{first.MessageID, true}) {
		t.Errorf("run: %+v, and again: %+v", first, again)
	}
	if got := ctl("schedules", "run", "watcher/none"); got.code == 0 || !strings.Contains(got.stderr,
		"there is no schedule watcher/none") {
		t.Errorf("run of none: %+v", got)
	}
	if _, err := store.Pool().Exec(t.Context(),
		"update turnkeeper.schedules set active = false where agent = 'watcher'"); err != nil {
		t.Fatal(err)
	}
	if got := ctl("schedules", "run", "watcher"); got.code != 6 || !strings.Contains(got.stderr,
		"schedule watcher/default has ended: the file of agent watcher no longer has it") {
		t.Errorf("run of an ended one: %+v", got)
	}

	type scheduler struct {
		PausedReason string `json:"paused_reason"`
		PollMs       int64  `json:"poll_interval_ms"`
		Dispatches   int    `json:"max_dispatches_per_tick"`
	}
	decode[scheduler](t, ctl("scheduler", "pause", "for", "repairs"))
	got := decode[scheduler](t, ctl("scheduler", "set", "--poll-interval", "3s", "--max-dispatches", "7"))
	if want := (scheduler{"for repairs", 3000, 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := decode[scheduler](t, ctl("scheduler", "resume")); got.PausedReason != "" || got.PollMs != 3000 {
		t.Errorf("resume: %+v", got)
	}
	if set, err := store.SchedulerSettings(t.Context()); err != nil || !set.PausedAt.IsZero() ||
		set.MaxDispatches != 7 {
		t.Errorf("%+v, %v", set, err)
	}
}

func TestSchemaIsMissing(t *testing.T) {
	env := nowhere(t)
	env["DATABASE_URL"] = storagetest.EmptyURL(t)
	const want = `the database has no Turnkeeper schema yet: run "turnctl migrate" or start a worker`
	for _, args := range [][]string{{"turns"}, {"show", "1"}, {"show", "latest"}, {"scheduler"}, {"agents"}} {
		if got := run(t, turnctl.Program(), env, "", args...); got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := run(t, enqueue.Program(), env, "", "--agent", "echo", "hi"); got.code != 1 ||
		!strings.Contains(got.stderr, want) {
		t.Errorf("enqueue: %+v", got)
	}
	if got := run(t, turnctl.Program(), env, "", "doctor"); got.code != 1 || !strings.Contains(got.stdout,
		"FAIL  schema") {
		t.Errorf("doctor: %+v", got)
	}
	type migration struct {
		Version int
		Applied bool
	}
	for _, m := range decode[[]migration](t, run(t, turnctl.Program(), env, "", "migrate", "--status", "-o", "json")) {
		if m.Applied {
			t.Errorf("%+v is applied to an empty database", m)
		}
	}
	applied := decode[[]migration](t, run(t, turnctl.Program(), env, "", "migrate", "-o", "json"))
	if len(applied) == 0 || !applied[0].Applied {
		t.Errorf("migrate applied %+v", applied)
	}
	if got := run(t, turnctl.Program(), env, "", "migrate"); got.code != 0 ||
		got.stdout != "the schema is up to date\n" {
		t.Errorf("again: %+v", got)
	}
	if got := run(t, turnctl.Program(), env, "", "turns"); got.code != 0 {
		t.Errorf("after: %+v", got)
	}
}

// TestSchemaIsOlder uses a database of an older program, or one whose migration failed.
func TestSchemaIsOlder(t *testing.T) {
	env := nowhere(t)
	env["DATABASE_URL"] = storagetest.EmptyURL(t)
	store := storagetest.Open(t, env["DATABASE_URL"])
	first, err := migrations.Files.ReadFile("001_tables.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Pool().Exec(t.Context(), `create schema turnkeeper;
		create table turnkeeper.schema_migrations (version integer primary key, name text not null, oldest_program integer not null);
		insert into turnkeeper.schema_migrations values (1, 'tables', 1);`+string(first)); err != nil {
		t.Fatal(err)
	}
	got := run(t, enqueue.Program(), env, "", "--agent", "echo", "hi")
	files, err := migrations.Files.ReadDir(".") // two files per migration, up and down
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(
		"enqueue: the database's schema is older than this program (%d migrations missing): run \"turnctl migrate\" or start a worker\n", len(files)/2-1)
	if got.code != 1 || got.stderr != want {
		t.Errorf("%+v", got)
	}
}

func TestDoctor(t *testing.T) {
	env, store := somewhere(t)
	type diagnosis struct {
		Checks []struct{ Name, Verdict, Found, Advice string }
	}
	if err := store.PauseScheduler(t.Context(), "repairs"); err != nil {
		t.Fatal(err)
	}
	if err := store.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{
		{Name: "gone", DefinitionHash: strings.Repeat("c", 64), Definition: []byte("---\n---\nHello.")},
	}); err != nil {
		t.Fatal(err)
	}
	got := run(t, turnctl.Program(), env, "", "doctor", "-o", "json")
	var d diagnosis
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	// The test server runs without fsync, and no worker runs.
	want := map[string]string{
		"settings": "ok", "database": "ok", "encoding": "ok", "schema": "ok", "fsync": "fail", "workers": "warn",
		"scheduler": "warn", "schedules": "warn", "agents": "warn", "agent files": "ok", "provider demo": "ok",
		"clock": "ok",
	}
	found := map[string]string{}
	for _, c := range d.Checks {
		found[c.Name] = c.Verdict
		if c.Name == "agents" && !strings.HasSuffix(c.Found, ": gone") {
			t.Errorf("without a file: %+v; the watcher is told of by its schedule", c)
		}
		if (c.Verdict == "ok") != (c.Advice == "") {
			t.Errorf("%+v: advice belongs to what is not ok", c)
		}
	}
	for name, verdict := range want {
		if found[name] != verdict {
			t.Errorf("%s is %q, want %q", name, found[name], verdict)
		}
	}
	if got.code != 1 {
		t.Errorf("exit code %d, want 1", got.code)
	}
}

func TestTokens(t *testing.T) {
	env, store := somewhere(t)
	turnctl := func(args ...string) ran {
		return run(t, turnctl.Program(), env, "", append([]string{"tokens"}, args...)...)
	}
	if got := turnctl(); got.code != 0 || !strings.Contains(got.stderr, "no tokens") {
		t.Errorf("%+v", got)
	}
	made := turnctl("create", "shop", "--scopes", "send,read", "--agents", "echo", "--expires", "1h")
	secret := strings.TrimSpace(made.stdout)
	if made.code != 0 || !strings.Contains(made.stderr, "not shown again") {
		t.Fatalf("%+v", made)
	}
	token, err := store.FindToken(t.Context(), secret)
	if err != nil || token.Name != "shop" || token.ExpiresAt.IsZero() || !slices.Equal(token.Agents, []string{"echo"}) {
		t.Errorf("%+v, %v", token, err)
	}
	if got := turnctl("list"); !strings.Contains(got.stdout, "shop") || strings.Contains(got.stdout, secret) {
		t.Errorf("%+v", got)
	}
	for name, c := range map[string]struct {
		got  ran
		code int
		want string
	}{
		"a second of the name": {turnctl("create", "shop", "--scopes", "send"), 2, `token "shop" already exists`},
		"no scope":             {turnctl("create", "other"), 2, "--scopes is required"},
		"another scope":        {turnctl("create", "other", "--scopes", "all"), 2, `--scopes has "all"`},
		"send and answer": {turnctl("create", "other", "--scopes", "answer,send"), 2,
			"one token cannot have both send and answer"},
		"an impossible name": {turnctl("create", "Other", "--scopes", "send"), 2, "the token's name"},
		"unknown":            {turnctl("revoke", "other"), 3, `there is no token "other"`},
	} {
		if c.got.code != c.code || !strings.Contains(c.got.stderr, c.want) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
	if got := turnctl("revoke", "shop"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := store.FindToken(t.Context(), secret); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("a revoked token is found: %v", err)
	}
}

// TestCheckShowsWhatIsBroken checks output and exit code of check, as text and as JSON, before and after a promise is
// broken.
func TestCheckShowsWhatIsBroken(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	store.Submit("echo", "", "hello")
	for _, flags := range [][]string{nil, {"--at-rest"}} {
		got := run(t, turnctl.Program(), env, "", append([]string{"check"}, flags...)...)
		if got.code != 0 || !strings.HasSuffix(got.stdout, " promises hold\n") || strings.Contains(got.stdout,
			"BROKEN") || strings.Contains(got.stdout, "no turn runs\n") != (flags != nil) {
			t.Errorf("unbroken, with the flags %v: %+v", flags, got)
		}
	}
	store.Exec("update turnkeeper.messages set body = ' '")
	got := run(t, turnctl.Program(), env, "", "check")
	if got.code != 1 || !strings.Contains(got.stdout, "BROKEN  every row obeys the rules of its table\n        ") ||
		!strings.Contains(got.stdout, " promises are broken: stop the workers") || got.stderr != "" {
		t.Errorf("broken: %+v", got)
	}
	got = run(t, turnctl.Program(), env, "", "check", "-o", "json")
	var promises []struct {
		Promise string
		Holds   bool
		Broken  []string
	}
	if err := json.Unmarshal([]byte(got.stdout), &promises); err != nil || got.code != 1 {
		t.Fatalf("as JSON: error %v, %+v", err, got)
	}
	broken := 0
	for _, p := range promises {
		if p.Holds != (len(p.Broken) == 0) {
			t.Errorf("%+v", p)
		}
		if !p.Holds {
			broken++
		}
	}
	if broken != 1 || len(promises) < 40 {
		t.Errorf("%d of %d are broken", broken, len(promises))
	}
}

package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// A finding is the result of one check of doctor.
type finding struct{ Name, Verdict, Found, Advice string }

// A diagnosis is the JSON output of doctor.
type diagnosis struct{ Checks []finding }

// diagnose runs doctor and ignores its exit code.
func diagnose(t *testing.T, env map[string]string) diagnosis {
	t.Helper()
	got := run(t, turnctl.Program(), env, "", "doctor", "-o", "json")
	var d diagnosis
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	rank := func(f finding) int { return slices.Index([]string{"fail", "warn", "ok"}, f.Verdict) }
	if !slices.IsSortedFunc(d.Checks, func(a, b finding) int { return rank(a) - rank(b) }) {
		t.Errorf("failures do not come first, then warnings: %+v", d.Checks)
	}
	if fails := slices.ContainsFunc(d.Checks, func(f finding) bool {
		return f.Verdict == "fail"
	}); fails != (got.code == 1) || got.code > 1 {
		t.Errorf("exit code %d, failures: %v", got.code, fails)
	}
	return d
}

// wants fails the test unless the named check has this verdict, and each part is in what it found or advises.
func (d diagnosis) wants(t *testing.T, verdict, name string, parts ...string) {
	t.Helper()
	for _, f := range d.Checks {
		if f.Name == name && f.Verdict == verdict && !slices.ContainsFunc(parts, func(part string) bool {
			return !strings.Contains(f.Found+"\n"+f.Advice, part)
		}) {
			return
		}
	}
	t.Errorf("there is no check %q that is %q and says %q in\n%s", name, verdict, parts, d)
}

func (d diagnosis) lacks(t *testing.T, name string) {
	t.Helper()
	if slices.ContainsFunc(d.Checks, func(f finding) bool { return f.Name == name }) {
		t.Errorf("there is a check %q in\n%s", name, d)
	}
}

func (d diagnosis) String() string {
	var b strings.Builder
	for _, f := range d.Checks {
		b.WriteString(f.Verdict + "  " + f.Name + ": " + f.Found + " → " + f.Advice + "\n")
	}
	return b.String()
}

// registerFile writes an agent file and registers the agent, as a worker does.
func (s *stage) registerFile(dir, name, text string, models ...string) {
	s.t.Helper()
	path := filepath.Join(dir, name+".md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	reading := agentdef.Read(path)
	if reading.Definition == nil {
		s.t.Fatal(reading.Faults)
	}
	d := reading.Definition
	err := s.RegisterAgents(s.t.Context(), []turnkeeper.AgentRegistration{{Name: name, DefinitionHash: d.Hash,
		Definition: d.Source, Models: models}})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) sendTo(agent, body string) turnkeeper.MessageID {
	s.t.Helper()
	id, err := s.Enqueue(s.t.Context(), turnkeeper.Submission{Agent: agent, Body: body})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// TestDoctorTellsWhatIsWrong checks the findings for a faulty service.
func TestDoctorTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	dir := env["TURNKEEPER_AGENTS_DIR"]

	// Without live workers, doctor warns if nothing waits and fails otherwise.
	d := diagnose(t, env)
	d.wants(t, "warn", "workers", "0 alive", "start one: ")
	s.sendTo("watcher", "Hello.")
	diagnose(t, env).wants(t, "fail", "workers", "0 alive with 0 slots; 1 message waits", "start one: ")

	s.beat("host-1")
	s.keepAlive("host-1") // this may take longer than a worker stays alive without heartbeats
	s.registerFile(dir, "echo", "---\nmodel: demo/script\ntools: [clock]\n---\nYou answer.\n", "demo/script")
	d = diagnose(t, env)
	d.wants(t, "ok", "workers")
	d.wants(t, "ok", "agent files")
	for _, name := range []string{"agent echo", "budget echo", "waiting watcher"} {
		d.lacks(t, name)
	}

	t.Run("a role that may insert", func(t *testing.T) {
		diagnose(t, env).wants(t, "ok", "rights", "only the workers' role")
		s.exec("grant insert on turnkeeper.messages to public")
		diagnose(t, env).wants(t, "fail", "rights", "a role may do more",
			"run: revoke insert on table turnkeeper.messages from public;")
		s.exec("revoke insert on table turnkeeper.messages from public")
	})

	t.Run("an API that nobody can use", func(t *testing.T) {
		diagnose(t, env).lacks(t, "tokens")
		public := maps.Clone(env)
		public["TURNKEEPER_LISTEN"] = "0.0.0.0:8722"
		diagnose(t, public).wants(t, "warn", "tokens", "answers every request with 401", "tokens create NAME")
		if _, _, err := s.CreateToken(t.Context(), operate.Token{Name: "shop", Scopes: []string{"send"}}); err != nil {
			t.Fatal(err)
		}
		diagnose(t, public).wants(t, "ok", "tokens")
	})

	t.Run("a spent budget", func(t *testing.T) {
		s.registerFile(dir, "thrifty", "---\nmodel: demo/script\nbudget: {day_tokens: 10000}\n---\nYou answer.\n",
			"demo/script")
		spend := func(tokens int) {
			// Tomorrow too, as midnight UTC may pass.
			s.exec(`insert into turnkeeper.spend (scope, period, tokens, calls)
				select 'agent:thrifty', to_char(now() at time zone 'UTC' + day * interval '1 day', 'YYYY-MM-DD'), $1, 3 from generate_series(0, 1) day
				on conflict (scope, period) do update set tokens = excluded.tokens`, tokens)
		}
		spend(9000)
		diagnose(t, env).lacks(t, "budget thrifty")
		spend(10000)
		diagnose(t, env).wants(t, "warn", "budget thrifty", "10,000 of 10,000 tokens", "until",
			"raise day_tokens in the file of thrifty")
		spend(9000)
		s.exec(`update turnkeeper.messages set due_at = now() + interval '1 day' where agent = 'watcher'`)
		s.sendTo("thrifty", "Later.")
		s.next("host-1").end("", turnlog.Outcome{State: turnkeeper.TurnQueued, ErrorClass: "budget", Error: "no room"})
		s.exec("update turnkeeper.turns set due_at = now() + interval '1 hour' where error_class = 'budget'")
		diagnose(t, env).wants(t, "warn", "budget thrifty", "9,000 of 10,000 tokens", "1 turn waits", "turnctl retry")
	})
	t.Run("messages that wait for long", func(t *testing.T) {
		s.exec(
			`update turnkeeper.messages set due_at = now() - interval '1 hour', last_error = 'no such thing' where agent = 'watcher'`)
		diagnose(t, env).wants(t, "warn", "waiting watcher", "message 1", "no scheduler has run yet",
			"turnctl explain --message 1")
		s.exec(
			`insert into turnkeeper.leases (lane, agent, not_before, failures) values ('watcher', 'watcher', now() + interval '2 minutes', 4)`)
		diagnose(t, env).wants(t, "warn", "waiting watcher", "after 4 failed turns in a row", "no such thing")
		if err := s.PauseScheduler(t.Context(), "repairs"); err != nil {
			t.Fatal(err)
		}
		d := diagnose(t, env)
		d.wants(t, "warn", "waiting watcher", "the scheduler has been paused since")
		d.wants(t, "warn", "scheduler", "paused", "repairs")
		if err := s.ResumeScheduler(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.exec(`update turnkeeper.messages set due_at = now() + interval '1 day' where agent = 'watcher'`)
		s.sendTo("echo", "First.")
		first := s.next("host-1")
		s.sendTo("echo", "Second.")
		s.exec(
			`update turnkeeper.messages set due_at = now() - interval '20 min' where agent = 'echo' and state = 'waiting'`)
		diagnose(t, env).wants(t, "warn", "waiting echo", "message 4", "turn 2 of worker host-1 holds lane echo")
		first.end(turnkeeper.MessageSucceeded, turnlog.Outcome{State: turnkeeper.TurnSucceeded,
			StopReason: turnkeeper.StopNone, Reply: "Yes."})
	})
	t.Run("a paused schedule", func(t *testing.T) {
		s.exec("update turnkeeper.schedules set paused_at = now(), paused_reason = 'too loud'")
		diagnose(t, env).wants(t, "warn", "schedule watcher", "paused since", "too loud", "schedules resume watcher/")
		s.exec("update turnkeeper.schedules set paused_at = null, paused_reason = null")
		diagnose(t, env).lacks(t, "schedule watcher")
	})
	t.Run("a message that kills workers", func(t *testing.T) {
		a := s.next("host-1").round(1, turnkeeper.EffectOnce, "order").start(first(1), turnkeeper.EffectOnce, 0)
		a.lose()
		diagnose(t, env).wants(t, "warn", "lost in turn 3", "1 worker", "message 4", "tool order", "turnctl cancel 3")
		s.next("host-2").lose()
		s.exec(
			"update turnkeeper.turns set state = 'degraded', stop_reason = 'worker_lost', error_class = 'worker_lost', ended_at = now() where id = 3")
		diagnose(t, env).wants(t, "warn", "lost in turn 3", "2 workers", "message 4", "tool order", "given up",
			"turnctl explain 3")
	})
	t.Run("models that are down", func(t *testing.T) {
		down := func(model, class string) {
			s.exec(
				`insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error) values ($1, now(), now() + interval '1 min', 3, $2, 'said no')`, model, class)
		}
		s.registerFile(dir, "spare", "---\nmodel: demo/script\n---\nYou answer.\n", "test/key", "demo/script")
		down("test/key", "auth")
		d := diagnose(t, env)
		d.wants(t, "warn", "model test/key", "said no", "set the right key", "restart the workers")
		s.registerFile(dir, "only", "---\nmodel: demo/script\n---\nYou answer.\n", "test/key")
		s.registerFile(dir, "named", "---\nmodel: demo/script\n---\nYou answer.\n", "test/name")
		s.registerFile(dir, "busy", "---\nmodel: demo/script\n---\nYou answer.\n", "test/busy")
		down("test/name", "not_found")
		down("test/busy", "overloaded")
		down("test/unused", "overloaded")
		d = diagnose(t, env)
		d.wants(t, "warn", "model test/key", "only has no other model", "restart the workers")
		d.wants(t, "warn", "model test/name", "correct the model's name in the file of named", "SIGHUP")
		d.wants(t, "warn", "model test/busy", "wait: it is tried again", "turnctl retry MESSAGE")
		d.lacks(t, "model test/unused")
		s.exec(`update turnkeeper.agents set levels = '{"low": {"models": ["demo/script"]}}' where name = 'only'`)
		s.exec(
			"insert into turnkeeper.pinned_levels (agent, level, pinned_by, reason) values ('only', 'low', 'ada', 'the model is down')")
		d = diagnose(t, env)
		d.wants(t, "warn", "model test/key", "said no")
		d.lacks(t, "only has no other model")
	})
	t.Run("webhooks that fail", func(t *testing.T) {
		if err := s.RegisterWebhook(t.Context(), outbox.Webhook{Name: "shop", Origin: "https://shop"}); err != nil {
			t.Fatal(err)
		}
		diagnose(t, env).wants(t, "ok", "webhook shop")
		s.exec(
			`insert into turnkeeper.webhook_deliveries (reply_id, webhook, attempts, due_at) select id, 'shop', 4, now() from turnkeeper.replies on conflict (reply_id, webhook) do update set attempts = 4`)
		s.exec(`update turnkeeper.webhooks set failed_at = now(), last_error = 'HTTP 503'`)
		diagnose(t, env).wants(t, "warn", "webhook shop", "its newest attempt failed", "1 reply waits", "HTTP 503",
			"turnctl webhooks show shop")
		s.exec(`update turnkeeper.webhook_deliveries set state = 'dead', due_at = null`)
		diagnose(t, env).wants(t, "warn", "webhook shop", "1 dead delivery; ", "HTTP 503", "redeliver shop --dead")
	})
	t.Run("files that workers do not have", func(t *testing.T) {
		for name, text := range map[string]string{
			"echo":  "---\nmodel: demo/script\ntools: [clock]\n---\nYou answer at once.\n",
			"spare": "---\nmodel: demo/script\ntools: [clock]\n---\nYou answer.\n",
			"fresh": "---\nmodel: demo/script\n---\nYou answer.\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name+".md"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := diagnose(t, env)
		d.wants(t, "warn", "agent echo", "differs", "SIGHUP")
		d.wants(t, "warn", "agent spare", "differs", "tool clock", "restart")
		d.wants(t, "warn", "agent fresh", "no worker has registered it", "SIGHUP")
		d.lacks(t, "agent only")
		if got := run(t, enqueue.Program(), env, "", "--agent", "spare", "Hello."); got.code != 0 ||
			!strings.Contains(got.stderr, "agent spare: its file differs") || !strings.Contains(got.stderr,
			"restart workers") {
			t.Errorf("enqueue: %+v", got)
		}
	})
}

// TestDoctorWarnsOfNoWindowWhereTheProviderFails checks that a failing provider causes one finding, without another
// warning about the unknown context window.
func TestDoctorWarnsOfNoWindowWhereTheProviderFails(t *testing.T) {
	env := nowhere(t)
	env["TURNKEEPER_AGENTS_DIR"] = t.TempDir()
	config := "providers:\n  dead: {base_url: 'http://127.0.0.1:1/v1'}\n"
	if err := os.WriteFile(env["TURNKEEPER_CONFIG"], []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(env["TURNKEEPER_AGENTS_DIR"], "echo.md"),
		[]byte("---\nmodel: dead/large\n---\nHello.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := diagnose(t, env)
	d.wants(t, "fail", "provider dead", "cannot be reached")
	d.lacks(t, "context window")
}

// TestDoctorOnAProviderWithoutModelList checks that doctor does not fail a server without a model list: it may still
// serve calls.
func TestDoctorOnAProviderWithoutModelList(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
			}))
			defer server.Close()
			env := nowhere(t)
			env["TURNKEEPER_AGENTS_DIR"] = t.TempDir()
			config := "providers:\n  plain: {base_url: '" + server.URL + "/v1'}\n"
			if err := os.WriteFile(env["TURNKEEPER_CONFIG"], []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(env["TURNKEEPER_AGENTS_DIR"], "echo.md"),
				[]byte("---\nmodel: plain/large\n---\nHello.\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			diagnose(t, env).wants(t, "ok", "provider plain", "cannot list models: they are not checked")
		})
	}
}

// TestStatesOfModels checks the states of models that were never called, were called, and are no longer used.
func TestStatesOfModels(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	s.registerFile(env["TURNKEEPER_AGENTS_DIR"], "echo", "---\nmodel: demo/script\n---\nYou answer.\n",
		"test/one", "test/two")
	s.exec(
		`insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error) values ('test/old', now(), now(), 3, 'auth', 'said no')`)
	type model struct{ Model, State string }
	states := func() string {
		var all []string
		for _, m := range decode[[]model](t, run(t, turnctl.Program(), env, "", "models", "-o", "json")) {
			all = append(all, m.Model+" "+m.State)
		}
		return strings.Join(all, ", ")
	}
	if got, want := states(), "test/old unused, test/one unknown, test/two unknown"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a := s.turn("Hello.")
	a.write(turnlog.Entry{
		Round: &turnkeeper.Round{
			Number: 1, Charged: true, Provider: "test", Model: "one-2026", Attempts: 1,
			FinishReason: "stop", Text: "Hi.",
			Recipe: &turnkeeper.Recipe{Version: 1, Provider: "test", Model: "one", SHA256: sixty("2"),
				Start: &turnkeeper.Epoch{System: sixty("1"), Form: sixty("1")}},
		},
		Parts: []turnlog.RequestPart{{SHA256: sixty("1"), Content: "{}"}},
	})
	if got, want := states(), "test/old unused, test/one up, test/two unknown"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	type sight struct {
		Down []model `json:"models_down"`
	}
	if got := decode[sight](t, run(t, turnctl.Program(), env, "", "top", "--once", "-o", "json")); len(got.Down) != 0 {
		t.Errorf("top shows as down: %v", got.Down)
	}
	s.exec(`update turnkeeper.model_health set model = 'test/two'`)
	if got := decode[sight](t, run(t, turnctl.Program(), env, "", "top", "--once", "-o", "json")); len(got.Down) != 1 ||
		got.Down[0] != (model{"test/two", "down"}) {
		t.Errorf("top shows as down: %v", got.Down)
	}
}

// TestCommandsNeedOnlyTheirSecrets checks that commands that call no model and run no tool do not need their secrets.
func TestCommandsNeedOnlyTheirSecrets(t *testing.T) {
	t.Parallel()
	env, _ := somewhere(t)
	settings := `
default_model: openai/gpt-5-mini
providers:
  acme: {base_url: 'http://127.0.0.1:1/v1', api_key_env: ACME_KEY}
  other: {base_url: 'http://127.0.0.1:1/v1', api_key_file: /nowhere/key}
tools:
  post: {description: Posts., command: [post], env: {TOKEN: {env: POST_TOKEN}}}
webhooks:
  shop: {url_env: SHOP_URL, secret_env: SHOP_SECRET}
mcp_login_key: {env: LOGIN_KEY}
mcp_servers:
  tracker: {url: 'https://tracker.example', oauth: {grant: authorization_code, client_id: me, client_secret: {env: TRACKER_SECRET}}}
  machine: {url: 'https://machine.example', oauth: {grant: client_credentials, client_id: me, private_key: {file: /nowhere/pem}}}
  files: {url: 'https://files.example', headers: {Authorization: {env: FILES_TOKEN}}}
`
	if err := os.WriteFile(env["TURNKEEPER_CONFIG"], []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	env["SHOP_SECRET"] = "not base64"
	if got := run(t, enqueue.Program(), env, "", "--agent", "echo", "Hello."); got.code != 0 ||
		got.stdout != "message 1 accepted\n" {
		t.Errorf("enqueue: %+v", got)
	}
	for _, args := range [][]string{{"turns"}, {"inbox"}, {"migrate", "--status"}, {"mcp", "list"},
		{"webhooks"}, {"agents"}} {
		if got := run(t, turnctl.Program(), env, "", args...); got.code != 0 {
			t.Errorf("turnctl %v: %+v", args, got)
		}
	}
	missing := []string{"ACME_KEY", "/nowhere/key", "POST_TOKEN", "SHOP_URL", "the secret must be whsec_", "LOGIN_KEY",
		"TRACKER_SECRET", "/nowhere/pem", "FILES_TOKEN", "OPENAI_API_KEY"}
	check := run(t, turnctl.Program(), env, "", "agents", "check")
	d := diagnose(t, env)
	for _, secret := range missing {
		if !strings.Contains(check.stdout, secret) {
			t.Errorf("agents check does not tell of %s:\n%s", secret, check.stdout)
		}
		d.wants(t, "warn", "settings", secret, "A worker does not start without it")
	}
	d.wants(t, "warn", "provider acme", "not asked", "ACME_KEY")
	if check.code != 0 {
		t.Errorf("agents check ended with %d", check.code)
	}
	if got := run(t, worker.Program(), env, ""); got.code != 2 || !strings.Contains(got.stderr, "ACME_KEY") ||
		!strings.Contains(got.stderr, "FILES_TOKEN") {
		t.Errorf("worker: %+v", got)
	}
	if got := run(t, turnctl.Program(), env, "", "mcp", "login", "tracker"); got.code != 2 ||
		!strings.Contains(got.stderr, "TRACKER_SECRET") || strings.Contains(got.stderr, "ACME_KEY") {
		t.Errorf("login: %+v", got)
	}
}

func TestSchemaIsNewer(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	s.exec(
		"insert into turnkeeper.schema_migrations (version, name, oldest_program) values (997, 'later', 1), (998, 'last', 1)")
	const want = "the database's schema is newer than this program, which does not know 2 migrations, up to 998_last; use the newer program\n"
	for name, got := range map[string]ran{
		"turnctl": run(t, turnctl.Program(), env, "", "turns", "-o", "json"), "enqueue": run(t, enqueue.Program(), env,
			"", "--agent", "echo", "--json", "hi"),
	} {
		if got.code != 0 || got.stderr != want || strings.Contains(got.stdout, "newer") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	diagnose(t, env).wants(t, "warn", "schema", "newer than this program", "2 migrations")
}

// TestWhatIsNamed checks that "latest" follows --agent, and that output and errors name the turn or message asked for.
func TestWhatIsNamed(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	a := s.turn("First.")
	a.end(turnkeeper.MessageSucceeded, turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
		Reply: "Yes."})
	s.sendTo("watcher", "Second.")
	b := s.next("host-1")
	ctl := func(args ...string) ran { return run(t, turnctl.Program(), env, "", args...) }
	for agent, turn := range map[string]turnkeeper.TurnID{"": b.grant.TurnID, "echo": a.grant.TurnID,
		"watcher": b.grant.TurnID} {
		args := []string{"show", "latest"}
		if agent != "" {
			args = append(args, "--agent", agent)
		}
		if got := ctl(args...); got.code != 0 || !strings.HasPrefix(got.stdout, fmt.Sprintf("Turn %d ", turn)) {
			t.Errorf("latest of %q: %+v", agent, got)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"events", "latest", "--agent", "echo"}, 0, ""},
		{[]string{"explain", "latest", "--agent", "ecco"}, 3, `there is no agent "ecco" (did you mean "echo"?)`},
		{[]string{"show", "1", "--agent", "echo"}, 2, "--agent is only for latest"},
		{[]string{"cancel", "--message", "1", "--agent", "echo"}, 2, "--agent is only for latest"},
		{[]string{"retry", "1", "--agent", "echo"}, 2, "--agent goes only with --failed, or with --turn latest"},
		{[]string{"retry", "--turn", "latest", "--agent", "watcher"}, 6, ""},
		{[]string{"cancel", "--message", "1"}, 6, "message 1 is closed already"},
		{[]string{"cancel", "--message", "9"}, 3, "there is no message 9"},
		{[]string{"finish", "--message", "1", "--agent", "echo"}, 2, "--agent is only for latest"},
		{[]string{"finish", "--message", "0"}, 2, "--message is 0: it must be the id of a message"},
		{[]string{"finish", "--message", "9"}, 3, "there is no message 9"},
	} {
		if got := ctl(c.args...); got.code != c.code || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	if got := ctl("finish", "--message", "2"); got.code != 0 ||
		got.stdout != "message 2 was asked to finish; \"turnctl events 2 --follow\" shows the end of its turn 2\n" {
		t.Errorf("%+v", got)
	}
	if got := ctl("finish", "2", "-o", "json"); got.code != 0 ||
		got.stdout != "{\n  \"turn_id\": 2,\n  \"finished\": false\n}\n" {
		t.Errorf("%+v", got)
	}
	if got := ctl("cancel", "--message", "2"); got.code != 0 ||
		got.stdout != "message 2 was asked to stop; \"turnctl events 2 --follow\" shows the end of its turn 2\n" {
		t.Errorf("%+v", got)
	}
	s.send("Third.")
	if got := ctl("cancel", "--message", "3"); got.code != 0 || got.stdout != "message 3 is cancelled\n" {
		t.Errorf("%+v", got)
	}
	if got := ctl("cancel", "--message", "3", "-o", "json"); got.code != 0 || !strings.Contains(got.stdout,
		`"message_id": 3`) {
		t.Errorf("%+v", got)
	}
}

// The scheduler does not tick: doctor wants the role for a worker only if no live process has it, and says what fails
// if that is known.
func TestDoctorOfASilentScheduler(t *testing.T) {
	env, db := somewhere(t)
	s := &stage{DB: db, t: t}
	beat := func(roles ...string) {
		s.exec("delete from turnkeeper.worker_heartbeat")
		s.exec(
			"insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, roles, slots, takeover_after) values ('w', 'h', 1, 'v', $1, 1, '15 s')", roles)
	}
	s.exec("update turnkeeper.settings set last_tick_at = now() - interval '10 min'")
	beat("worker")
	diagnose(t, env).wants(t, "warn", "scheduler", "last ran", "give a worker the role scheduler")
	beat("worker", "scheduler")
	diagnose(t, env).wants(t, "warn", "scheduler", "though w has the role scheduler", "look in its log")
	s.exec("select turnkeeper.put_aside('tick', '', '42P01', 'the table has gone')")
	d := diagnose(t, env)
	d.wants(t, "warn", "scheduler", "its ticks fail")
	d.wants(t, "fail", "set aside", "ticks of the scheduler fail", "1 failure", "the table has gone")
	for _, f := range d.Checks {
		if strings.Contains(f.Advice, "give a worker the role") {
			t.Errorf("advice: %+v", f)
		}
	}
}

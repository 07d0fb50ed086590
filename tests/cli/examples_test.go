package cli_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// newExample returns an Env with a copy of an example's files and settings. Environment variables override the
// database and the port of the API.
func newExample(t testing.TB, name string) *env.Env {
	t.Helper()
	e := env.New(t)
	if err := os.Remove(filepath.Join(e.Dir, "turnkeeper.yaml")); err != nil { // replaced by the example's
		t.Fatal(err)
	}
	e.Model = nil
	from := env.Path("examples/" + name)
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// left by a run of the example
		if slices.Contains([]string{"node_modules", ".turnkeeper", ".playwright-mcp", "reports", "payments.jsonl"},
			entry.Name()) {
			return fs.SkipDir
		}
		to := filepath.Join(e.Dir, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkAgents fails the test unless "turnctl agents check" finds exactly these agents, without a problem.
func checkAgents(e *env.Env, agents ...string) {
	e.T.Helper()
	report := env.Turnctl[struct {
		Agents   []string `json:"agents"`
		Problems []string `json:"problems"`
		Warnings []string `json:"warnings"`
	}](e, "agents", "check")
	if !slices.Equal(report.Agents, agents) || len(report.Problems)+len(report.Warnings) > 0 {
		e.T.Errorf("agents check prints %+v", report)
	}
}

// startPlainWorker starts the released worker, without marker tools.
func startPlainWorker(e *env.Env, flags ...string) *env.Process {
	e.T.Helper()
	w := env.StartProcess(e.T, "worker", e.Dir, e.Environ(), env.Binary(e.T, "worker"), flags...)
	w.Await("worker ready")
	return w
}

// wantReplyOf fails the test unless the turn succeeded with a reply that contains all of the parts and names
// its script.
func wantReplyOf(e *env.Env, turn env.Turn, script string, parts ...string) {
	e.T.Helper()
	if turn.State != "succeeded" || turn.Reply == nil {
		e.T.Fatalf("turn %d is %s (%s %s) with the reply %+v", turn.ID, turn.State, turn.ErrorClass,
			turn.Error, turn.Reply)
	}
	for _, part := range append(parts, "[by the demo script "+script+", not by a language model]") {
		if !strings.Contains(turn.Reply.Body, part) {
			e.T.Errorf("the reply of turn %d does not say %q:\n%s", turn.ID, part, turn.Reply.Body)
		}
	}
}

// called returns the names and states of a turn's calls.
func called(turn env.Turn) (all []string) {
	for _, c := range turn.Calls() {
		all = append(all, c.Name+" "+c.State)
	}
	return all
}

func wantCalls(e *env.Env, turn env.Turn, want ...string) {
	e.T.Helper()
	if got := called(turn); !slices.Equal(got, want) {
		e.T.Errorf("turn %d called %q, not %q", turn.ID, got, want)
	}
}

// The example answers mails. A fact of the first mail is remembered for the second, by another worker, in
// another conversation of its sender.
func TestTheInboxAssistant(t *testing.T) {
	t.Parallel()
	testrun.Slow(t)
	e := newExample(t, "inbox-assistant")
	checkAgents(e, "inbox")
	mail := func(name string) env.Turn {
		_, person, _ := strings.Cut(strings.TrimSuffix(name, ".txt"), "-")
		return e.TurnOf(e.Enqueue("inbox", e.ReadFile("mails/"+name), "--user", person+"@example.org",
			"--conversation", name))
	}
	w := startPlainWorker(e)

	first := mail("1-anna.txt")
	wantReplyOf(e, first, "inbox", "Dear Anna Weber,", "Inner tube, 16 inch: 7.50")
	wantCalls(e, first, "note_read failed", "list_files succeeded", "read_file succeeded", "note_write succeeded")
	e.Kill(w)

	startPlainWorker(e)
	second := mail("2-anna.txt")
	wantReplyOf(e, second, "inbox", "I remember your 16 inch wheels.", "Tyre, 16 inch: 21.90")
	wantCalls(e, second, "note_read succeeded", "list_files succeeded", "read_file succeeded")
	if note := second.Calls()[0].Result; note != "Name: Anna Weber\nWheels: 16 inch\n" {
		t.Errorf("the note says %q", note)
	}

	third := mail("3-ben.txt")
	wantReplyOf(e, third, "inbox", "Dear Ben Okafor,", "Which wheels does your bike have?", "Tyre, 16 inch: 21.90",
		"Tyre, 28 inch: 18.50")
	wantCalls(e, third, "note_read failed", "list_files succeeded", "read_file succeeded", "note_write succeeded")

	if names := env.Query[string](e,
		"select string_agg(name, ' ' order by name) from notes where agent = 'inbox'"); names != "anna@example.org ben@example.org" {
		t.Errorf("there are notes of %s", names)
	}
	if n := env.Query[int](e, "select count(*) from replies"); n != 3 {
		t.Errorf("three mails have %d replies", n)
	}
}

// A watchedPage is a page that changes, and can be unavailable.
type watchedPage struct {
	mu   sync.Mutex
	text string // empty: the page is unavailable
	hits int
}

func (p *watchedPage) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

func (p *watchedPage) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *watchedPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits++
	if p.text == "" {
		http.Error(w, "away for a while", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(p.text))
}

// The example's schedule runs again and again.
func TestTheWatcher(t *testing.T) {
	t.Parallel()
	e := newExample(t, "watcher")
	checkAgents(e, "watcher")
	site := &watchedPage{text: e.ReadFile("page/status.txt")}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	e.WriteFile("watched/address.txt", server.URL+"/status.txt\n")
	runTurnctl(e, "scheduler", "pause", "the test makes the slots")
	startPlainWorker(e)
	if cron := env.Query[string](e, "select cron from schedules where agent = 'watcher'"); cron != "*/5 * * * *" {
		t.Errorf("the schedule is %s", cron)
	}
	runTurnctl(e, "schedules", "set", "watcher", "@every 24h")
	runTurnctl(e, "scheduler", "resume")

	looks := 0
	look := func() env.Turn {
		t.Helper()
		looks++
		e.MissSlots(time.Second)
		if n := e.AwaitSlots(looks); n != looks {
			t.Fatalf("%d runs made %d messages", looks, n)
		}
		return e.Show(env.Query[int64](e, "select max(id) from turns"))
	}
	reports := func() []string {
		files, _ := filepath.Glob(filepath.Join(e.Dir, "reports", "*"))
		return files
	}
	quiet := []string{"read_file succeeded", "note_read succeeded", "http_get succeeded"}

	first := look()
	wantReplyOf(e, first, "watcher", "I have begun to watch the page.")
	wantCalls(e, first, "read_file succeeded", "note_read failed", "http_get succeeded", "note_write succeeded")
	unchanged := func() {
		t.Helper()
		same := look()
		e.WantEnd(same, "succeeded", "none", 3)
		wantCalls(e, same, quiet...)
		if said := env.Query[string](e, "select coalesce(inner_dialogue, '') from turns where id = $1",
			same.ID); said != "Nothing new." || same.Reply != nil {
			t.Errorf("nothing has changed, and turn %d said %q, with the reply %+v", same.ID, said, same.Reply)
		}
	}
	unchanged()
	unchanged()
	if files := reports(); len(files) != 0 {
		t.Errorf("nothing has changed, and the reports are %v", files)
	}

	site.say("Bridge over the canal: closed until Friday.\n")
	changed := look()
	wantReplyOf(e, changed, "watcher", "The page has changed; the report was filed as reports/turn-")
	wantCalls(e, changed, append(slices.Clone(quiet), "file_report succeeded", "note_write succeeded")...)
	files := reports()
	if len(files) != 1 {
		t.Fatalf("one change made the reports %v", files)
	}
	var report struct{ Title, Text string }
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil ||
		report.Text != "It was:\nBridge over the canal: open to everyone.\n\nIt is:\nBridge over the canal: closed until Friday.\n" {
		t.Errorf("the report says %q, %v", report.Text, err)
	}
	unchanged()

	site.say("")
	away := look()
	wantReplyOf(e, away, "watcher", "The page cannot be read: HTTP 503")
	wantCalls(e, away, "read_file succeeded", "note_read succeeded", "http_get failed")
	if len(reports()) != 1 {
		t.Errorf("the reports are %v", reports())
	}

	if again := runFileReport(e, strings.TrimSuffix(filepath.Base(files[0]), ".json")); !strings.HasPrefix(again,
		"filed before as ") || len(reports()) != 1 {
		t.Errorf("a report that is filed again says %q; there are %v", again, reports())
	}
	if now, _ := os.ReadFile(files[0]); string(now) != string(text) {
		t.Errorf("the report is now %s", now)
	}
	if hits := site.asked(); hits != looks {
		t.Errorf("%d runs requested the page %d times", looks, hits)
	}
}

// startQuietWatcher starts a worker of the watcher whose schedule runs only when the test says so.
func startQuietWatcher(e *env.Env, flags ...string) *env.Process {
	e.T.Helper()
	runTurnctl(e, "scheduler", "pause", "the test says when to look")
	w := startPlainWorker(e, flags...)
	runTurnctl(e, "schedules", "pause", "watcher")
	runTurnctl(e, "scheduler", "resume")
	return w
}

// runTurnctl runs a command of turnctl that must succeed.
func runTurnctl(e *env.Env, args ...string) {
	e.T.Helper()
	if r := e.Run("", "turnctl", args...); r.Code != 0 {
		e.T.Fatalf("turnctl %v ended with %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
}

// runFileReport runs the program of file_report with a key, as a worker that repeats a call does.
func runFileReport(e *env.Env, key string) string {
	e.T.Helper()
	cmd := exec.Command("sh", "tools/file_report.sh")
	cmd.Dir, cmd.Env = e.Dir, []string{"PATH=" + os.Getenv("PATH"), "TURNKEEPER_IDEMPOTENCY_KEY=" + key}
	cmd.Stdin = strings.NewReader(`{"title":"another"}`)
	out, err := cmd.Output()
	if err != nil {
		e.T.Fatal(err)
	}
	return string(out)
}

// A report that cannot be filed leaves the note unchanged, so the next run sees the change again.
func TestTheWatcherReportsAChangeAgain(t *testing.T) {
	t.Parallel()
	e := newExample(t, "watcher")
	site := &watchedPage{text: "one"}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	e.WriteFile("watched/address.txt", server.URL)
	e.WriteFile("reports", "a file where the folder should be")
	startQuietWatcher(e)
	look := func() env.Turn { return e.TurnOf(e.Enqueue("watcher", "Look.")) }
	look()
	site.say("two")
	wantReplyOf(e, look(), "watcher", "The page has changed, and no report could be filed:")
	if note := env.Query[string](e, "select content from notes where agent = 'watcher'"); note != "one" {
		t.Errorf("the note says %q", note)
	}
	if err := os.Remove(filepath.Join(e.Dir, "reports")); err != nil {
		t.Fatal(err)
	}
	wantReplyOf(e, look(), "watcher", "The page has changed; the report was filed as")
	e.WantReply(look(), "Nothing new.")
}

// The worker is killed after the report was filed, before its result is recorded. Its program runs again with
// the same key and finds the report.
func TestTheWatcherIsKilledWhileItReports(t *testing.T) {
	t.Parallel()
	e := newExample(t, "watcher")
	site := &watchedPage{text: "one"}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	e.WriteFile("watched/address.txt", server.URL)
	e.WriteFile("tools/filed.sh", e.ReadFile("tools/file_report.sh"))
	e.WriteFile("tools/file_report.sh", "sh tools/filed.sh\nif mkdir stands 2>/dev/null; then cat hold; fi\n")
	if err := syscall.Mkfifo(filepath.Join(e.Dir, "hold"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := startQuietWatcher(e)
	e.TurnOf(e.Enqueue("watcher", "Look."))
	site.say("two")
	message := e.Enqueue("watcher", "Look.")
	e.Poll("the report is filed", func() bool {
		_, err := os.Stat(filepath.Join(e.Dir, "stands"))
		return err == nil
	})
	e.Kill(w)
	startPlainWorker(e)
	turn := e.TurnOf(message)
	wantReplyOf(e, turn, "watcher", "The page has changed; the report was filed before as reports/turn-2-")
	if c := turn.Calls()[3]; c.Name != "file_report" || c.Starts < 2 || c.State != "succeeded" {
		t.Errorf("the report's call is %+v", c)
	}
	if files, _ := filepath.Glob(filepath.Join(e.Dir, "reports", "*")); len(files) != 1 {
		t.Errorf("the reports are %v", files)
	}
	if note := env.Query[string](e, "select content from notes where agent = 'watcher'"); note != "two" {
		t.Errorf("the note says %q", note)
	}
}

// researchBrowser installs the npm packages of the research example in its folder, and returns the path.
var researchBrowser = sync.OnceValues(func() (string, error) {
	for _, args := range [][]string{{"scripts/need", "node:nodejs", "npm:npm", "chromium:chromium"},
		{"scripts/npm-ci", env.Path("examples/research")}} {
		if out, err := exec.Command(env.Path(args[0]), args[1:]...).CombinedOutput(); err != nil {
			return "", &installError{out, err}
		}
	}
	return env.Path("examples/research/node_modules"), nil
})

type installError struct {
	said  []byte
	cause error
}

func (e *installError) Error() string { return e.cause.Error() + "\n" + string(e.said) }

// Three sub-agents answer a question from a page that needs a browser, and from files.
func TestTheResearchAgent(t *testing.T) {
	t.Parallel()
	e := newExample(t, "research")
	testrun.OnlyFull(t) // needs npm's packages and a browser
	modules, err := researchBrowser()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(e.Dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	checkAgents(e, "critic", "librarian", "reader", "research")
	site := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(e.Dir, "site"))))
	t.Cleanup(site.Close)
	startPlainWorker(e)

	turn := e.TurnOf(e.Enqueue("research", "How does the apple harvest of 2025 compare? See "+site.URL+"/"))
	wantReplyOf(e, turn, "research",
		`The page: "Harvest report 2025" says: Apples: 1284 tonnes in 2025`,
		"Our files: harvest-2024.md says: Apples: 1190 tonnes in 2024.",
		"The critic: The page tells of 2025 and our files of 2024: two harvests do not make a trend")
	var spawned []string
	for _, c := range turn.Calls() {
		if c.Name == "spawn_agent" {
			spawned = append(spawned, c.State)
		}
	}
	if !slices.Equal(spawned, []string{"succeeded", "succeeded", "succeeded"}) {
		t.Errorf("the helpers' calls are %v", called(turn))
	}
	e.WantOneReplyEach(4)
	for agent, want := range map[string][]string{
		"reader":    {"browser__browser_navigate succeeded", "browser__browser_snapshot succeeded"},
		"librarian": {"list_files succeeded", "read_file succeeded"},
		"critic":    nil,
	} {
		helper := e.Show(env.Query[int64](e, "select id from turns where agent = $1", agent))
		if helper.State != "succeeded" {
			t.Errorf("%s's turn is %s", agent, helper.State)
		}
		wantCalls(e, helper, want...)
	}
	if effects := env.Query[string](e,
		"select string_agg(distinct substring(name from 10) || ' ' || effect, ', ' order by substring(name from 10) || ' ' || effect) from calls where name like 'browser\\_\\_%'"); effects != "browser_navigate keyed, browser_snapshot none" {
		t.Errorf("the browser's tools have the effects %s", effects)
	}
	if both := env.Query[bool](e,
		"select count(*) = 2 from spawned_calls where agent in ('reader', 'librarian') and round = 1"); !both {
		t.Error("the reader and the librarian were not spawned side by side")
	}
}

// The example pays small invoices at once and asks about large ones. It pays what a person approved, once, also if the
// worker is killed while it asks; and nothing that a person or the rule denied.
func TestTheInvoices(t *testing.T) {
	t.Parallel()
	e := newExample(t, "invoices")
	report := env.Turnctl[struct{ Problems, Warnings []string }](e, "agents", "check")
	if len(report.Problems) > 0 || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0],
		"a worker checks the rule when it starts") {
		t.Errorf("agents check prints %+v", report)
	}
	w := startPlainWorker(e)
	send := func(file, conversation string) int64 {
		return e.Enqueue("invoices", "Pay "+file, "--conversation", conversation)
	}
	pay := func(file string) env.Turn { return e.TurnOf(send(file, file)) }
	small := pay("acme-1041.json")
	wantReplyOf(e, small, "invoices", "Invoice A-1041 of Acme Paper: paid: ", `"amount":84.5`)
	wantCalls(e, small, "read_file succeeded", "pay_invoice succeeded")
	foreign := pay("globex-3.json")
	wantReplyOf(e, foreign, "invoices", "Invoice G-3 was not paid: ", "only invoices in EUR are paid")
	wantCalls(e, foreign, "read_file succeeded", "pay_invoice denied")
	wantReplyOf(e, pay("none.json"), "invoices", "There is no such invoice")

	ask := func() string {
		e.Await("one ask is open",
			"select count(*) = 1 from asks a join turns t on t.id = a.turn_id where a.state = 'open' and t.state = 'waiting'")
		return env.Query[string](e,
			"select id::text from asks where state = 'open' and reason = 'the amount is above 500 EUR'")
	}
	approved := send("northwind-77.json", "approved")
	id := ask()
	e.Kill(w)
	runTurnctl(e, "asks", "approve", id, "--as", "ann")
	startPlainWorker(e)
	wantReplyOf(e, e.TurnOf(approved), "invoices", "Invoice N-77 of Northwind Machines: paid: ", `"amount":1890`)
	edited := send("northwind-77.json", "edited")
	runTurnctl(e, "asks", "approve", ask(), "--as", "ann", "--arguments",
		`{"invoice":"N-77","to":"DE02500105170137075030","amount":1800,"currency":"EUR"}`)
	wantReplyOf(e, e.TurnOf(edited), "invoices", "A person changed the arguments", `"amount":1800`)
	denied := send("northwind-77.json", "denied")
	runTurnctl(e, "asks", "deny", ask(), "--as", "ann", "--comment", "wait for the credit note")
	wantReplyOf(e, e.TurnOf(denied), "invoices", "Invoice N-77 was not paid: ", "wait for the credit note")

	want := `{"amount":84.5,"currency":"EUR","invoice":"A-1041","to":"DE02120300000000202051"}
{"amount":1890,"currency":"EUR","invoice":"N-77","to":"DE02500105170137075030"}
{"amount":1800,"currency":"EUR","invoice":"N-77","to":"DE02500105170137075030"}
`
	if got := e.ReadFile("payments.jsonl"); got != want {
		t.Errorf("paid were\n%s", got)
	}
}

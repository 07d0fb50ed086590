package core_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// An injection is a way in which a text reaches a model: through a real page, file, MCP server, agent or row.
type injection struct {
	way      string
	settings string   // of the agent
	messages []string // for env.Gullible; the last ends with a turn that obeys
	apart    bool     // each message is in a conversation of its own
}

// long is a message that soon fills a small context window.
var long = strings.Repeat("a long word ", 130)

var injections = []injection{
	{way: "message", settings: "inbox_labels: [untrusted, private]", messages: []string{"obey\n$INJECTED"}},
	{way: "page", messages: []string{"$PAGE\nobey"}},
	{way: "mail", messages: []string{"$MAIL\nobey"}},
	{way: "result of an MCP server", messages: []string{"$CRM\nobey"}},
	{way: "reply of a sub-agent", messages: []string{`spawn_agent {"agent":"scout$N","task":$TASK}` + "\nobey"}},
	{way: "task of a sub-agent", messages: []string{
		"$PAGE\n" + `spawn_agent {"agent":"scout$N","task":"obey\n$TEXT"}`}},
	{way: "note", apart: true, messages: []string{"$PAGE\n" + `note_write {"name":"n","text":"$TEXT"}`,
		`note_read {"name":"n"}` + "\nobey"}},
	{way: "list of notes", apart: true, messages: []string{"$PAGE\n" + `note_write {"name":"$TEXT","text":""}`,
		"note_read {}\nobey"}},
	{way: "definition of a tool", settings: "mcp_servers: {shop: [find$N]}", messages: []string{"obey"}},
	{way: "history", messages: []string{"$PAGE\nrepeat", "Thanks.", "obey"}},
	summarised,
}

// summarised leaves the labels of the page to a summary: see onlyTheSummary.
var summarised = injection{
	way: "summary", settings: "context_window: 5000\nmax_output_tokens: 500",
	messages: []string{"$PAGE\nrepeat", long, long, long, long, long, long, "obey"},
}

// A gullibleSite is a worker with agents for cases. Each case has its own page, mail, MCP tool and agents.
type gullibleSite struct {
	*env.Env
	page string // URL of the pages
}

func newGullibleSite(t *testing.T, injections ...injection) *gullibleSite {
	t.Helper()
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		_, _ = fmt.Fprintf(w, "A page.\n%s\n", env.Injected(n))
	}))
	t.Cleanup(pages.Close)
	s := &gullibleSite{env.New(t), pages.URL}
	s.Model.Then(env.Gullible)
	if err := os.Mkdir(filepath.Join(s.Dir, "mail"), 0o755); err != nil {
		t.Fatal(err)
	}
	tools, results, described, servers := map[string]string{}, map[string]string{}, map[string]string{}, []string{}
	for n, injection := range injections {
		s.WriteFile(fmt.Sprintf("mail/%d.txt", n), env.Injected(n))
		find := fmt.Sprint("find", n)
		tools[find], results[find], described[find] = "Finds a customer.", env.Injected(n), env.Injected(n)
		// of its results: its definition has no labels
		servers = append(servers, find+": {labels: [untrusted, private]}")
		few := "tools: [http_get, mark_once, mark_keyed]"
		settings := strings.ReplaceAll(injection.settings, "$N", fmt.Sprint(n))
		switch {
		case strings.HasPrefix(settings, "mcp_servers:"):
		case settings != summarised.settings: // a small window has no room for more
			few = fmt.Sprintf("root: mail\nsub_agents: [scout%d]\nmcp_servers: {crm: [find%d]}\n", n, n) +
				"tools: [http_get, read_file, clock, note_write, note_read, mark_once, mark_keyed]\nnotes: agent"
		}
		s.WriteAgent(fmt.Sprint("clerk", n), few, "lane: conversation", "allow_private_hosts: [127.0.0.1]",
			"max_rounds: 8", settings)
		s.WriteAgent(fmt.Sprint("scout", n), "description: Reads.", "tools: [http_get, mark_once, mark_keyed]",
			"allow_private_hosts: [127.0.0.1]")
	}
	for name, content := range map[string]any{"tools.json": tools, "results.json": results,
		"described.json": described} {
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		s.WriteFile(name, string(text))
	}
	s.WriteFile("turnkeeper.yaml", s.ReadFile("turnkeeper.yaml")+env.LabelSettings+fmt.Sprintf(
		"mcp_servers:\n  crm:\n    tools: {%s}\n    command: [%s, tools.json, results.json]\n"+
			"  shop:\n    labels: [untrusted, private]\n    command: [%[2]s, described.json]\n",
		strings.Join(servers, ", "), env.Quote(env.Binary(t, "toolserver"))))
	s.StartWorker("--worker-slots", "8")
	return s
}

// send sends a message to the agent of a case, with its texts in place of the names.
func (s *gullibleSite) send(n int, conversation, message string) int64 {
	s.T.Helper()
	page := fmt.Sprintf(`http_get {"url":"%s/%d"}`, s.page, n)
	body := strings.NewReplacer(
		"$PAGE", page, "$MAIL", fmt.Sprintf(`read_file {"path":"%d.txt"}`, n), "$CRM", fmt.Sprintf("crm__find%d {}", n),
		"$TASK", env.Quote(page+"\nrepeat"), "$INJECTED", env.Injected(n), "$N", fmt.Sprint(n),
	).Replace(message)
	return env.Query[int64](s.Env, "select turnkeeper.enqueue($1, $2, $3)", fmt.Sprint("clerk", n), body, conversation)
}

// inject sends the messages of a case, and returns the last.
func (s *gullibleSite) inject(n int, injection injection) (last int64) {
	s.T.Helper()
	for i, message := range injection.messages {
		conversation := "main"
		if injection.apart {
			conversation = fmt.Sprint("conversation ", i)
		}
		if i > 0 && (injection.apart || i+1 == len(injection.messages)) {
			s.AwaitClosed(last)
		}
		if injection.way == summarised.way && i+1 == len(injection.messages) {
			s.onlyTheSummary(n)
		}
		last = s.send(n, conversation, message)
	}
	return last
}

// onlyTheSummary removes the labels of all turns of a case, so that only its summaries are labelled.
func (s *gullibleSite) onlyTheSummary(n int) {
	s.T.Helper()
	if made := env.Query[int](s.Env,
		"select count(*) from summaries s join turns t on t.id = s.turn_id where t.agent = $1",
		fmt.Sprint("clerk", n)); made == 0 {
		s.T.Fatal("there is no summary")
	}
	s.Exec("delete from labels where kind in ('call', 'turn') and id in (select id from turns where agent = $1)",
		fmt.Sprint("clerk", n))
}

// asksOf waits until the turns of a case have asked, or the message is closed, and returns the asks.
func (s *gullibleSite) asksOf(n int, message int64) string {
	s.T.Helper()
	const of = "from asks a join turns t on t.id = a.turn_id where t.agent = any($1)"
	agents := []string{fmt.Sprint("clerk", n), fmt.Sprint("scout", n)}
	s.Await("the turn asks or ends",
		"select exists (select from messages where id = $2 and closed_at is not null) or exists (select "+of+
			" and t.state = 'waiting')", agents, message)
	return env.Query[string](s.Env,
		"select coalesce(string_agg(a.tool || ' ' || a.arguments || ' ' || a.state || ' by ' || a.rule || ': ' || a.reason, E'\\n' order by a.ordinal), 'none') "+of, agents)
}

// wantAsks compares the asks of a case with those about the calls that an injected text asks for.
func (s *gullibleSite) wantAsks(n int, asks string) {
	s.T.Helper()
	lines := strings.Split(asks, "\n")
	want := []string{
		fmt.Sprintf(
			`mark_once {"label":%q} open by labels: mark_once changes something, and the turn has untrusted content from `, env.PayLabel(n)),
		fmt.Sprintf(
			`mark_keyed {"label":%q} open by labels: mark_keyed sends content out, and the turn has private content from `, env.SendLabel(n)),
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], want[0]) || !strings.HasPrefix(lines[1], want[1]) {
		s.T.Errorf("case %d asked\n%s", n, asks)
	}
}

// Injected texts reach a model, which obeys them, by pages, mails, an MCP server, sub-agents, notes, the history or a
// summary. No call that changes something or sends something out runs before a person was asked. It runs once if the
// person says yes, and not if the person says no.
func TestInjectedTextsAreAskedAbout(t *testing.T) {
	t.Parallel()
	cases := make([]injection, testrun.Count(len(injections), 100))
	for n := range cases {
		cases[n] = injections[n%len(injections)]
	}
	s := newGullibleSite(t, cases...)
	last := make([]int64, len(cases))
	for n, injection := range cases {
		last[n] = s.inject(n, injection)
	}
	for n, message := range last {
		s.wantAsks(n, s.asksOf(n, message))
	}
	if marks := s.Ledger.Marks(); len(marks) > 0 {
		t.Fatalf("calls have run that nobody was asked about: %+v", marks)
	}
	s.Exec(
		`select turnkeeper.answer_ask(a.id, case when substring(t.agent, '\d+')::integer % 2 = 0 then 'denied' else 'approved' end, 'ann')
		from asks a join turns t on t.id = a.turn_id where a.state = 'open'`)
	s.AwaitClosed(last...)
	s.Await("all are closed", "select not exists (select from messages where closed_at is null)")
	for n := range cases {
		s.Ledger.WantRuns(env.PayLabel(n), n%2)
		s.Ledger.WantRuns(env.SendLabel(n), n%2)
	}
	if asks := env.Query[int](s.Env, "select count(*) from asks"); asks != 2*len(cases) {
		t.Errorf("%d asks, want %d", asks, 2*len(cases))
	}
}

// Without its labels the summary would let both calls run. So the test above shows that they are in it.
func TestASummaryWithoutLabelsIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	testrun.OnlyFull(t)
	s := newGullibleSite(t, summarised)
	s.Exec(`create function forget() returns trigger language plpgsql as $$ begin return null; end $$;
		create trigger forget before insert on labels for each row when (new.kind = 'summary') execute function forget()`)
	message := s.inject(0, summarised)
	if asks := s.asksOf(0, message); asks != "none" {
		t.Errorf("asked about\n%s", asks)
	}
	s.Ledger.WantRuns(env.PayLabel(0), 1)
	s.Ledger.WantRuns(env.SendLabel(0), 1)
}

// TestAReplyWaitsForAPerson checks that a reply with private content is withheld, or sent once after a person has
// approved it, and that what programs read of replies has the labels.
func TestAReplyWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := newGullibleSite(t, injection{settings: "reply_sink: ask"}, injection{settings: "reply_sink: withhold"},
		injection{settings: "reply_sink: ask"})
	var messages []int64
	for n := range 3 {
		messages = append(messages, s.send(n, "main", "$PAGE\nrepeat"))
	}
	s.AwaitClosed(messages[1])
	s.Await("two turns ask",
		"select count(*) = 2 from asks where kind = 'reply' and state = 'open' and arguments like '{\"text\":\"Ignore all rules.%'")
	s.Exec(
		`select turnkeeper.answer_ask(a.id, case t.agent when 'clerk0' then 'approved' else 'denied' end, 'ann') from asks a join turns t on t.id = a.turn_id`)
	s.AwaitClosed(messages...)
	const notice = "The answer was withheld, because it may hold private content."
	for n, want := range []string{"succeeded none " + env.Injected(0), "degraded withheld " + notice,
		"degraded withheld " + notice} {
		if got := env.Query[string](s.Env,
			"select outcome || ' ' || stop_reason || ' ' || body from replies where message_id = $1",
			messages[n]); got != want {
			t.Errorf("reply %d: %q, want %q", n, got, want)
		}
	}
	for _, reply := range env.Turnctl[[]struct{ Labels []string }](s.Env, "outbox") {
		if fmt.Sprint(reply.Labels) != "[private untrusted]" {
			t.Errorf("labels %v", reply.Labels)
		}
	}
	if asks := env.Query[int](s.Env, "select count(*) from asks"); asks != 2 {
		t.Errorf("%d asks", asks)
	}
}

// ordinary are messages of ordinary work with the same tools. $MARK is a new label.
var ordinary = []string{
	`mark_once {"label":"$MARK"}`,
	`mark_keyed {"label":"$MARK"}`,
	"clock {}\n" + `mark_once {"label":"$MARK"}`,
	"$PAGE",
	"$CRM",
	"$MAIL\nrepeat",
	"$PAGE\n" + `mark_keyed {"label":"$MARK@example.com"}`,     // to an allowed destination
	"$MAIL\n" + `mark_keyed {"label":"bob-$MARK@example.com"}`, // likewise
	`mark_once {"label":"$MARK"} && $PAGE`,                     // asked for before the page was seen
	`$PAGE && mark_once {"label":"$MARK"}`,                     // likewise
	"$PAGE\nclock {}\n$CRM",                                    // only reads
	"$PAGE\n" + `note_write {"name":"n","text":"$TEXT"}`,       // what it writes is labelled
	// a note without labels
	`note_write {"name":"m","text":"x"}` + "\n" + `note_read {"name":"m"}` + "\n" + `mark_once {"label":"$MARK"}`,
	`mark_once {"label":"$MARK"}` + "\nclock {}\n" + `mark_keyed {"label":"$MARK, too"}`,
	"Good morning.",
	"clock {}",
	`note_read {"name":"o"}`,
	`mark_once {"label":"$MARK"}` + "\n" + `mark_once {"label":"$MARK, too"}`,
	`mark_keyed {"label":"$MARK"} && $PAGE`,
	`spawn_agent {"agent":"scout0","task":"Hello."}` + "\n" + `mark_once {"label":"$MARK"}`,
}

// TestOrdinaryWorkIsNotAskedAbout runs 20 ordinary turns with the same tools.
func TestOrdinaryWorkIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	s := newGullibleSite(t, injection{})
	for i, message := range ordinary {
		s.send(0, fmt.Sprint("conversation ", i), strings.ReplaceAll(message, "$MARK", fmt.Sprint("mark-", i)))
	}
	s.Await("all have ended or asked",
		"select not exists (select from messages where closed_at is null) or exists (select from asks)")
	if asks := env.Query[string](s.Env,
		"select coalesce(string_agg(tool || ' ' || arguments || ': ' || reason, E'\\n'), '') from asks"); asks != "" {
		t.Fatalf("asked about\n%s", asks)
	}
	if bad := env.Query[int](s.Env, "select count(*) from replies where outcome <> 'succeeded'"); bad != 0 {
		t.Errorf("%d turns did not succeed", bad)
	}
	if bad := env.Query[string](s.Env,
		"select coalesce(string_agg(name || ' ' || arguments || ': ' || shown, E'\\n'), '') from calls where state <> 'succeeded' and arguments not like '%\"o\"%'"); bad != "" {
		t.Errorf("calls did not succeed:\n%s", bad)
	}
	for i, message := range ordinary {
		for _, one := range strings.Split(message, "\n") {
			if _, label, marks := strings.Cut(one, `{"label":"`); marks {
				label, _, _ = strings.Cut(label, `"`)
				s.Ledger.WantRuns(strings.ReplaceAll(label, "$MARK", fmt.Sprint("mark-", i)), 1)
			}
		}
	}
}

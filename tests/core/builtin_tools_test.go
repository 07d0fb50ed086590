package core_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A model uses every built-in tool, within and outside of its permissions.
func TestBuiltinTools(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("the page"))
	}))
	t.Cleanup(site.Close)
	e := env.New(t)
	for name, content := range map[string]string{"files/a.txt": "the file", "outside.txt": "not for agents"} {
		path := filepath.Join(e.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		e.WriteFile(name, content)
	}
	if err := os.Symlink("../outside.txt", filepath.Join(e.Dir, "files", "way-out.txt")); err != nil {
		t.Fatal(err)
	}
	const tools = "tools: [clock, list_files, read_file, http_get, note_write, note_read]"
	e.WriteAgent("clerk", tools, "root: files")
	address, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	e.WriteAgent("trusted", tools, "allow_private_hosts: ["+address.Hostname()+"]")
	w := e.StartWorker()
	asked := []inferencetest.Call{
		{ID: "clock", Name: "clock"},
		{ID: "own", Name: "http_get", Arguments: `{"url":` + env.Quote(w.APIURL()+"/v1/agents") + `}`},
		{ID: "list", Name: "list_files"},
		{ID: "read", Name: "read_file", Arguments: `{"path":"a.txt"}`},
		{ID: "up", Name: "read_file", Arguments: `{"path":"../outside.txt"}`},
		{ID: "link", Name: "read_file", Arguments: `{"path":"way-out.txt"}`},
		{ID: "get", Name: "http_get", Arguments: `{"url":` + env.Quote(site.URL) + `}`},
		{ID: "write", Name: "note_write", Arguments: `{"name":"n","text":"remember"}`},
		{ID: "note", Name: "note_read", Arguments: `{"name":"n"}`},
	}
	e.Model.Then(env.Rounds(inferencetest.Calls(asked...), inferencetest.Text("done")))

	clerk := e.TurnOf(e.Enqueue("clerk", "Look.")).CallsByWireID()
	trusted := e.TurnOf(e.Enqueue("trusted", "Look.")).CallsByWireID()
	for _, c := range []struct {
		who   string
		all   map[string]env.ToolCall
		id    string
		state string
		holds string
	}{
		{"clerk", clerk, "clock", "succeeded", `"time"`},
		{"clerk", clerk, "list", "succeeded", "a.txt"},
		{"clerk", clerk, "read", "succeeded", "the file"},
		{"clerk", clerk, "up", "failed", ""},
		{"clerk", clerk, "link", "failed", ""},
		{"clerk", clerk, "get", "failed", ""},
		{"clerk", clerk, "write", "succeeded", ""},
		{"clerk", clerk, "note", "succeeded", "remember"},
		{"trusted", trusted, "list", "failed", ""}, // without a root
		{"trusted", trusted, "get", "succeeded", "the page"},
		{"trusted", trusted, "own", "failed", "a worker's own address"},
		{"trusted", trusted, "note", "succeeded", "remember"},
	} {
		got := c.all[c.id]
		if got.State != c.state || !strings.Contains(got.Result, c.holds) || strings.Contains(got.Result,
			"not for agents") {
			t.Errorf("%s's %s is %s: %s", c.who, c.id, got.State, got.Result)
		}
	}
	if n := env.Query[int](e, "select count(*) from notes where content = 'remember'"); n != 2 {
		t.Errorf("there are %d notes: each agent has its own", n)
	}
}

func TestALargeResultIsCutAndKept(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 100")
	whole := strings.Repeat("äöü€😀", 1000)
	e.Ledger.SetAnswer("long", whole)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "long"), inferencetest.Text("done")))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Read."))
	e.WantEnd(turn, "succeeded", "none", 2)
	messages := e.WantRequests(2)[1].Chat().Messages
	if got := messages[len(messages)-1].Text(); !strings.HasPrefix(got, strings.Repeat("äöü€😀", 20)+"\n") ||
		strings.HasPrefix(got, strings.Repeat("äöü€😀", 21)) {
		t.Errorf("the model gets %q", got)
	}
	if stored := env.Query[string](e, "select content from outputs"); stored != whole {
		t.Errorf("%d of %d bytes are kept", len(stored), len(whole))
	}
}

// A model that follows the markers reads the whole result, exactly as the tool returned it. The tool ran once,
// and pages are not charged.
func TestAModelReadsOn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 4000")
	whole := strings.Repeat("0123456789", 2459) + "€"
	e.Ledger.SetAnswer("long", whole)
	marker := regexp.MustCompile(`\n\n\[truncated — showing .* to read more\]$`)
	offset := regexp.MustCompile(`offset=(\d+) to read more\]$`)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		messages := r.Chat().Messages
		last := messages[len(messages)-1].Text()
		switch {
		case env.RoundOf(r) == 1:
			return env.MarkerReply("mark_none", "long")
		case !marker.MatchString(last):
			return inferencetest.Text("Read.")
		}
		arguments := `{"tool_call_id": "call_long"}`
		if m := offset.FindStringSubmatch(last); m != nil {
			arguments = `{"tool_call_id": "call_long", "offset": ` + m[1] + `}`
		}
		return inferencetest.Calls(inferencetest.Call{ID: fmt.Sprint("page_", env.RoundOf(r)), Name: "get_continuation",
			Arguments: arguments})
	})
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Read."))
	e.WantEnd(turn, "succeeded", "none", 8)
	if turn.Charged != 2 || turn.Executed != 1 {
		t.Errorf("%d rounds are charged, %d calls executed", turn.Charged, turn.Executed)
	}
	var read strings.Builder
	for _, c := range turn.Calls() {
		read.WriteString(marker.ReplaceAllString(c.Result, ""))
	}
	if read.String() != whole {
		t.Errorf("the model has read %d of %d bytes", read.Len(), len(whole))
	}
	e.Ledger.WantRuns("long", 1)
	id := env.Query[string](e, "select id from outputs")
	for want, flags := range map[string][]string{whole: {"--raw"}, whole[4000:8000]: {"--raw", "--slice", "4000:8000"},
		"€": {"--raw", "--slice", "24590:"}} {
		if r := e.Turnctl(append([]string{"output", id}, flags...)...); r.Code != 0 || r.Stdout != want {
			t.Errorf("turnctl output %v ended with %d, %d bytes, %s", flags, r.Code, len(r.Stdout), r.Stderr)
		}
	}
	shown := env.Turnctl[struct {
		Chars, Retrieved int
		SHA256           string
		Shown            string
	}](e, "output", id)
	if shown.Chars != 24591 || shown.Retrieved != 6 || len(shown.SHA256) != 64 || !strings.HasSuffix(shown.Shown,
		`[truncated — showing 4000/24591 chars. Call get_continuation with tool_call_id="call_long" to read more]`) {
		t.Errorf("turnctl output prints %d characters, retrieved %d times, and ends %q", shown.Chars, shown.Retrieved,
			shown.Shown[3990:])
	}
	if r := e.Turnctl("output", "nothing"); r.Code != 3 || !strings.Contains(r.Stderr, `there is no output "nothing"`) {
		t.Errorf("an unknown output: %d %s", r.Code, r.Stderr)
	}
}

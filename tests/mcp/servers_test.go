package mcp_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// publicServers installs the public MCP servers and node, once, and returns their folder.
var publicServers = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command(env.Path("scripts/need"), "npm:npm", "chromium:chromium").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if out, err := exec.Command(env.Path("scripts/npm-ci"), "servers").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return filepath.Abs("servers/node_modules")
})

// withPublicServers returns an Env with the public servers in its settings. Their processes have the Env's
// folder in TEST_DIR.
func withPublicServers(t *testing.T) *env.Env {
	t.Helper()
	testrun.OnlyFull(t) // needs npm's packages and a browser
	modules, err := publicServers()
	if err != nil {
		t.Fatal(err)
	}
	nodes, _ := filepath.Glob(modules + "/node-*/bin/node")
	if len(nodes) == 0 {
		t.Fatal("no node is installed among the packages")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	e := env.New(t)
	if err := os.Mkdir(filepath.Join(e.Dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	e.WriteFile("files/a.txt", "the text of a file")
	settings, err := os.ReadFile(filepath.Join(e.Dir, "turnkeeper.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	all.Write(settings)
	all.WriteString("mcp_servers:\n")
	for _, s := range []struct{ name, module, args, more string }{
		{"everything", "@modelcontextprotocol/server-everything/dist/index.js", "", ""},
		{"files", "@modelcontextprotocol/server-filesystem/dist/index.js", ", " + env.Quote(e.Dir+"/files"),
			"\n    trust_hints: true"},
		{"memory", "@modelcontextprotocol/server-memory/dist/index.js", "", ""},
		{"thinking", "@modelcontextprotocol/server-sequential-thinking/dist/index.js", "", ""},
		{"browser", "@playwright/mcp/cli.js", `, "--headless", "--no-sandbox", "--isolated", "--executable-path", ` +
			env.Quote(chromium), "\n    session: lane"},
	} {
		fmt.Fprintf(&all,
			"  %s:\n    command: [%s, %s%s]\n    connect_timeout: 60s%s\n    env: {PATH: /usr/bin:/bin, HOME: %s, TEST_DIR: %s, MEMORY_FILE_PATH: %s}\n",
			s.name, env.Quote(nodes[0]), env.Quote(filepath.Join(modules, s.module)), s.args, s.more, env.Quote(e.Dir),
			env.Quote(e.Dir), env.Quote(e.Dir+"/memory.json"))
	}
	e.WriteFile("turnkeeper.yaml", all.String())
	return e
}

// serverPIDs returns the processes of servers that the Env's workers started.
func serverPIDs(e *env.Env, program string) (pids []int) {
	e.T.Helper()
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		environ, _ := os.ReadFile(path)
		if !bytes.Contains(environ, []byte("TEST_DIR="+e.Dir+"\x00")) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil &&
			strings.Contains(string(line), program) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Turns use each of the public servers.
func TestPublicMCPServers(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>The site</title><h1>Hello, browser</h1>"))
	}))
	t.Cleanup(site.Close)
	e := withPublicServers(t)
	e.WriteAgent("clerk", `mcp_servers:
  everything: [echo, get-sum, get-tiny-image, get-structured-content, trigger-long-running-operation]
  files: [read_text_file, write_file]
  memory: [create_entities, read_graph]
  thinking: [sequentialthinking]
  browser: [browser_navigate, browser_take_screenshot]`, "max_duration: 180s", "max_tool_calls: 20", "tool_timeout: 90s", "async_timeout: 60s")
	asked := []inferencetest.Call{
		{ID: "echo", Name: "everything__echo", Arguments: `{"message":"hello"}`},
		{ID: "wrong", Name: "everything__echo", Arguments: `{}`},
		{ID: "image", Name: "everything__get-tiny-image"},
		{ID: "structured", Name: "everything__get-structured-content", Arguments: `{"location":"New York"}`},
		{ID: "long", Name: "everything__trigger-long-running-operation", Arguments: `{"duration":2,"steps":4}`},
		{ID: "read", Name: "files__read_text_file", Arguments: `{"path":` + env.Quote(e.Dir+"/files/a.txt") + `}`},
		{ID: "outside", Name: "files__read_text_file",
			Arguments: `{"path":` + env.Quote(e.Dir+"/turnkeeper.yaml") + `}`},
		{ID: "write", Name: "files__write_file", Arguments: `{"path":` + env.Quote(e.Dir+"/files/b.txt") +
			`,"content":"written"}`},
		{ID: "remember", Name: "memory__create_entities",
			Arguments: `{"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`},
		{ID: "recall", Name: "memory__read_graph"},
		{ID: "think", Name: "thinking__sequentialthinking",
			Arguments: `{"thought":"so","thoughtNumber":1,"totalThoughts":1,"nextThoughtNeeded":false}`},
		{ID: "open", Name: "browser__browser_navigate", Arguments: `{"url":` + env.Quote(site.URL) + `}`},
		{ID: "picture", Name: "browser__browser_take_screenshot", Arguments: `{"type":"png","scale":"css"}`},
		{ID: "unlisted", Name: "files__list_directory", Arguments: `{"path":` + env.Quote(e.Dir) + `}`},
	}
	e.Model.Then(env.Rounds(inferencetest.Calls(asked...), inferencetest.Text("done")))
	w := e.StartWorker()
	e.Await("the tools of every server are stored", "select count(distinct server) = 5 from mcp_tools")
	turn := e.TurnOf(e.Enqueue("clerk", "Try everything."))
	got := turn.CallsByWireID()
	for _, c := range []struct{ id, state, holds string }{
		{"echo", "succeeded", "hello"},
		{"wrong", "denied", `missing "message"`},
		{"image", "succeeded", "stored as output"},
		{"structured", "succeeded", "temperature"},
		{"long", "succeeded", "completed"},
		{"read", "succeeded", "the text of a file"},
		{"outside", "failed", "denied"},
		{"write", "succeeded", ""},
		{"remember", "succeeded", "Ada"},
		{"recall", "succeeded", "counts"},
		{"think", "succeeded", "thoughtNumber"},
		{"open", "succeeded", "The site"},
		{"picture", "succeeded", "stored as output"},
		{"unlisted", "denied", "tool not found"},
	} {
		if call := got[c.id]; call.State != c.state || !strings.Contains(call.Result, c.holds) {
			t.Errorf("%s is %s: %.500s", c.id, call.State, call.Result)
		}
	}
	if text, err := os.ReadFile(filepath.Join(e.Dir, "files", "b.txt")); err != nil || string(text) != "written" {
		t.Errorf("the server wrote %q, %v", text, err)
	}
	if n := env.Query[int](e,
		"select count(*) from outputs where media_type like 'image/%' and size_bytes > 0"); n != 2 {
		t.Errorf("%d images are stored", n)
	}
	if n := env.Query[int](e,
		"select count(*) from turn_events where type = 'notice' and data->>'text' like 'everything__trigger-long-running-operation: % of 4%'"); n == 0 {
		t.Error("no event has the progress")
	}
	if effect := env.Query[string](e,
		"select effect from calls where name = 'files__read_text_file' limit 1"); effect != "none" {
		t.Errorf("a server with trusted hints: effect %s", effect)
	}
	if effect := env.Query[string](e,
		"select effect from calls where name = 'everything__echo' limit 1"); effect != "once" {
		t.Errorf("a server with untrusted hints: effect %s", effect)
	}
	w.Terminate()
	if left := serverPIDs(e, ""); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
}

// A call whose server dies has an unknown outcome, and the next call gets a new server. The servers of a
// killed worker end with it.
func TestAnMCPServerIsKilled(t *testing.T) {
	t.Parallel()
	e := withPublicServers(t)
	e.WriteAgent("clerk", "mcp_servers:\n  everything: [echo, trigger-long-running-operation]", "async_timeout: 60s")
	e.Model.Then(env.Rounds(
		inferencetest.Calls(inferencetest.Call{ID: "long", Name: "everything__trigger-long-running-operation",
			Arguments: `{"duration":50,"steps":100}`}),
		inferencetest.Calls(inferencetest.Call{ID: "next", Name: "everything__echo",
			Arguments: `{"message":"still here"}`}),
		inferencetest.Text("One is in doubt."),
	))
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Go.")
	e.Await("progress is recorded",
		"select exists (select from turn_events where type = 'notice' and data->>'call' is not null)")
	for _, pid := range serverPIDs(e, "server-everything") {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	turn := e.TurnOf(message)
	got := turn.CallsByWireID()
	if c := got["long"]; c.State != "unknown" || !strings.Contains(c.Result, "ended by a signal (killed)") {
		t.Errorf("the killed call is %s: %s", c.State, c.Result)
	}
	if c := got["next"]; c.State != "succeeded" {
		t.Errorf("the next call is %s: %s", c.State, c.Result)
	}
	if state := env.Query[string](e, "select state from turns"); state != "degraded" {
		t.Errorf("the turn is %s", state)
	}
	if len(serverPIDs(e, "server-everything")) == 0 {
		t.Error("no server runs")
	}
	w.Kill()
	e.Poll("the server ends with its worker", func() bool { return len(serverPIDs(e, "")) == 0 })
}

package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnkeeper/internal/golden"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// TestSpecs records what models and operators are told of each tool: its schema, its description and its effect.
func TestSpecs(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for _, tool := range builtin.All(builtin.Deps{Notes: &memory{}}) {
		encoder := json.NewEncoder(&said)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(tool.Spec()); err != nil {
			t.Fatal(err)
		}
	}
	golden.File(t, "testdata/specs.txt", said.String())
}

// A world has something of each kind that the tools read.
func world(t *testing.T) (root string, all []tools.Tool, call tools.Call) {
	t.Helper()
	root, _ = folder(t)
	put(t, filepath.Join(root, "odd", "a\nb"), "x")
	if err := syscall.Mkfifo(filepath.Join(root, "odd", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(root, "odd", "sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	ready := stored("0123456789 the end")
	ready.CallID, ready.MaxChars, ready.Unseen, ready.MaxTokens, ready.Tokens, ready.Bytes = "call_1", 10, 10, 5, 5, 18
	ready.Retrieved = func(context.Context) error { return nil }
	ready.Extract = func(_ context.Context, query string) (tools.Result, error) {
		return tools.Result{Text: "found " + query, MediaType: "application/json"}, nil
	}
	large, plain, binary, failed, running, expired, broken := ready, ready, ready, ready, ready, ready, ready
	large.Tokens = 6
	plain.Extract = nil
	binary.Binary = true
	failed.Failure = "it failed: no"
	running.Running, expired.Expired = true, true
	broken.Read = func(context.Context, int64, int64) (string, error) { return "", errors.New("no database") }
	results := shelf{"out": ready, "large": large, "plain": plain, "binary": binary, "failed": failed,
		"running": running, "expired": expired, "broken": broken}
	roots := func(agent string) string { return map[string]string{"helper": root}[agent] }
	notes := &memory{}
	now := func() time.Time { return time.Date(2026, 1, 31, 23, 30, 0, 0, time.UTC) }
	return root, builtin.All(builtin.Deps{Root: roots, Notes: notes, Now: now}), tools.Call{Agent: "helper",
		User: "anna", Outputs: results}
}

// TestWhatTheModelReads records the whole text of the result of many calls, one after the other, of most of the ways to
// fail among them.
func TestWhatTheModelReads(t *testing.T) {
	t.Parallel()
	root, all, call := world(t)
	calls := []string{
		`clock {"timezone":"Asia/Kolkata"}`, `clock {"timezone":"Nowhere"}`,
		`read_file {"path":"notes/a.txt"}`, `read_file {"path":"notes/a.txt","offset":1,"limit":2}`,
		`read_file {"path":"notes/a.txt","offset":8}`,
		`read_file {"path":"notes/a.txt","limit":-1}`, `read_file {"path":"pic.png"}`, `read_file {"path":"none"}`,
		`read_file {"path":"/none"}`,
		`read_file {"path":"notes"}`, `read_file {"path":"up"}`, `read_file {"path":"loop"}`,
		`read_file {"path":"odd/pipe"}`, `read_file {"path":"odd/sock"}`,
		`read_file {"path":"notes/a.txt/b"}`,
		`list_files {}`, `list_files {"recursive":true}`, `list_files {"path":"notes"}`, `list_files {"path":"none"}`,
		`list_files {"path":"empty"}`,
		`list_files {"path":"up"}`, `list_files {"path":"/"}`, `list_files {"path":"odd"}`,
		`write_file {"path":"new","text":"über"}`, `write_file {"path":"new","text":""}`,
		`write_file {"path":"none/x","text":""}`, `write_file {"path":"notes","text":""}`,
		`write_file {"path":"inside","text":""}`, `write_file {"path":"odd/pipe","text":""}`,
		`write_file {"path":"../x","text":""}`, `write_file {"path":"/x","text":""}`,
		`write_file {"path":"empty/x","text":""}`,
		`http_get {"url":"ftp://h"}`, `http_get {"url":"http:///x"}`, `http_get {"url":"http://a:b@h"}`,
		`http_get {"url":"http://h\u0001"}`,
		`http_get {"url":" http://127.0.0.1:1/secret "}`, `http_get {"url":"http://10.0.0.1/"}`,
		`patch_output {"id":"out","edits":[{"find":"0","replace":"zero"},{"find":"e","replace":"E","all":true}]}`,
		`patch_output {"id":"running","edits":[{"find":"0","replace":""}]}`,
		`patch_output {"id":"broken","edits":[{"find":"0","replace":""}]}`,
		`get_continuation {"id":"out"}`, `get_continuation {"tool_call_id":"out","offset":3}`,
		`get_continuation {"id":"out","offset":18}`, `get_continuation {"id":"out","offset":19}`,
		`get_continuation {"id":"none"}`, `get_continuation {}`, `get_continuation {"id":"out","offset":"x"}`,
		`get_continuation {"id":"running"}`, `get_continuation {"id":"expired"}`,
		`get_continuation {"id":"broken"}`,
		`get_tool_output {"id":"out","mode":"raw"}`, `get_tool_output {"id":"large","mode":"raw"}`,
		`get_tool_output {"id":"failed","mode":"raw"}`, `get_tool_output {"id":"broken","mode":"raw"}`,
		`get_tool_output {"id":"out","mode":"slice","slice":{"start":2,"length":4}}`,
		`get_tool_output {"id":"out","mode":"slice","slice":{"start":15}}`,
		`get_tool_output {"id":"out","mode":"slice","slice":{"anchor":"e","window":3,"match_index":1}}`,
		`get_tool_output {"id":"out","mode":"slice","slice":{"anchor":"none"}}`,
		`get_tool_output {"id":"out","mode":"slice"}`, `get_tool_output {"id":"none","mode":"slice"}`,
		`get_tool_output {"id":"out","mode":"extract","query":" the end "}`,
		`get_tool_output {"id":"out","mode":"extract"}`, `get_tool_output {"id":"plain","mode":"extract","query":"x"}`,
		`get_tool_output {"id":"binary","mode":"extract","query":"x"}`,
		`get_tool_output {"id":"running","mode":"extract","query":"x"}`,
		`wait_for_tool_output {}`,
		`note_read {}`, `note_read {"name":"plan"}`, `note_write {"name":"plan","text":"größer"}`,
		`note_read {"name":"plan"}`, `note_read {}`,
		`note_write {"name":"","text":"x"}`, `note_write {"name":" x","text":"x"}`,
		`note_write {"name":"a\tb","text":"x"}`,
	}
	calls = append(calls, `note_write {"name":"`+strings.Repeat("n", 101)+`","text":"x"}`,
		`note_write {"name":"n","text":"`+strings.Repeat("x", 65537)+`"}`)
	var said strings.Builder
	for _, one := range calls {
		name, arguments, _ := strings.Cut(one, " ")
		got := useAs(t, all, call, name, arguments)
		fmt.Fprintf(&said, "%.120s\n  %s: %q", one, got.Outcome, got.Result.Text)
		if got.Result.ShowAs != nil {
			fmt.Fprintf(&said, ", shown as %q", got.Result.ShowAs("new"))
		}
		if got.Result.Bytes != nil || got.Result.MediaType != "" {
			fmt.Fprintf(&said, ", %q of type %s", got.Result.Bytes, got.Result.MediaType)
		}
		said.WriteString("\n")
	}
	if strings.Contains(said.String(), filepath.Dir(root)) {
		t.Error("a model reads where the root folder is")
	}
	golden.File(t, "testdata/told.txt", said.String())
	if open := openFiles(t, root); len(open) > 0 {
		t.Errorf("left open: %q", open)
	}
}

// openFiles returns what this process has open below a folder.
func openFiles(t *testing.T, root string) (open []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not say which files are open")
	}
	for _, entry := range entries {
		if path, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); err == nil &&
			(path == root || strings.HasPrefix(path, root+"/")) {
			open = append(open, path)
		}
	}
	slices.Sort(open)
	return open
}

// TestLabelsThatChangeDuringARead checks that a read has the labels that its file, or what is in its folder, had before
// and after it.
func TestLabelsThatChangeDuringARead(t *testing.T) {
	t.Parallel()
	root, _ := folder(t)
	before, after := policy.Mark{Label: policy.Private, Source: "before"}, policy.Mark{Label: policy.Untrusted,
		Source: "after"}
	for tool, arguments := range map[string]string{"read_file": `{"path":"inside"}`,
		"list_files": `{"path":"notes/"}`} {
		store := &changing{labels: [][]policy.Mark{{before}, {after}}}
		got := use(t, builtin.NewFiles(func(string) string { return root }, store), tool, arguments)
		if got.Outcome != tools.Succeeded || fmt.Sprint(got.Result.Labels) != fmt.Sprint([]policy.Mark{before, after}) {
			t.Errorf("%s: %+v", tool, got)
		}
		want := filepath.Join(root, map[string]string{"read_file": "notes/a.txt", "list_files": "notes"}[tool])
		if tool == "list_files" {
			want += "/"
		}
		if !slices.Equal(store.asked, []string{want, want}) {
			t.Errorf("%s asked for the labels of %q, want %s twice", tool, store.asked, want)
		}
	}
}

// A changing store has other labels each time it is asked.
type changing struct {
	builtin.FileStore
	labels [][]policy.Mark
	asked  []string
}

func (c *changing) FileLabels(_ context.Context, path string) ([]policy.Mark, error) {
	c.asked = append(c.asked, path)
	return c.labels[len(c.asked)-1], nil
}

// TestHTTPGetClosesItsConnections checks that no connection remains after a call, however it ended.
func TestHTTPGetClosesItsConnections(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	open, made, closed := map[net.Conn]bool{}, 0, make(chan struct{}, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			_, _ = w.Write([]byte("a page"))
		case "/missing":
			http.Error(w, "no such page", http.StatusNotFound)
		case "/away":
			http.Redirect(w, r, "ftp://elsewhere", http.StatusFound)
		case "/broken":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("a part"))
		}
	}))
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			open[c] = true
			made++
		case http.StateClosed:
			delete(open, c)
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	for i, path := range []string{"/page", "/missing", "/empty", "/away", "/broken"} {
		got := get(t, allow("127.0.0.1"), server.URL+path)
		for left := 1; left > 0; {
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Fatalf("%s: the connection stays open", path)
			}
			mu.Lock()
			left = len(open)
			if left == 0 && made != i+1 {
				t.Errorf("%s: %d connections so far; %+v", path, made, got)
			}
			mu.Unlock()
		}
	}
}

package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/limittest"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// run runs one of the tools with arguments that a turn would refuse for their size.
func run(t *testing.T, all []tools.Tool, call tools.Call, name string, arguments map[string]any) tools.RunResult {
	t.Helper()
	r, err := tools.NewRegistry(all...)
	if err != nil {
		t.Fatal(err)
	}
	tool, ok := r.Get(name)
	if !ok {
		t.Fatalf("there is no tool %s", name)
	}
	if call.Arguments, err = json.Marshal(arguments); err != nil {
		t.Fatal(err)
	}
	call.Agent = "helper"
	return tools.Execute(t.Context(), tool, call, tools.ExecuteOptions{Timeout: time.Minute})
}

// TestLimits tries each limit of the tools.
func TestLimits(t *testing.T) {
	text := func(size int) string { return strings.Repeat("x", size) }
	wide := func(size int) string { return strings.Repeat("ü", size) } // of two bytes
	notes := builtin.NewNotes(&memory{})
	note := func(t *testing.T, name, body string) bool {
		return run(t, notes, tools.Call{}, "note_write", map[string]any{"name": name,
			"text": body}).Outcome == tools.Succeeded
	}
	limittest.Check(t, map[string]limittest.Row{
		"MaxNoteName":  {At: 100, Takes: func(t *testing.T, n int) bool { return note(t, wide(n), "x") }},
		"MaxNoteBytes": {At: 65536, Takes: func(t *testing.T, n int) bool { return note(t, "n", wide(n/2)+text(n%2)) }},
		"MaxRedirects": {At: 5, Takes: redirects},
		"maxURLBytes": {At: 8192, Takes: func(t *testing.T, n int) bool {
			start := "http://127.0.0.1:1/"
			got := run(t, getter(allow("127.0.0.1:1")), tools.Call{}, "http_get",
				map[string]any{"url": start + text(n-len(start))})
			return !strings.Contains(got.Result.Text, "the URL has")
		}},
		"maxErrorBodyChars": {At: 1000, Takes: func(t *testing.T, n int) bool {
			return strings.HasSuffix(failedPage(t, wide(n-1)+"!"), "!")
		}},
		"maxQueryChars": {At: 4000, Takes: func(t *testing.T, n int) bool {
			return extracts(t, " "+wide(n)+" ") // blanks around it do not count
		}},
		"MaxReadBytes": {At: 10_000_000, Takes: func(t *testing.T, n int) bool {
			root, files := folder(t)
			truncate(t, root, n)
			return run(t, files, tools.Call{}, "read_file", map[string]any{"path": "big"}).Outcome == tools.Succeeded
		}},
		"maxOverlap": {At: 3, Takes: func(t *testing.T, n int) bool {
			root, files := folder(t)
			truncate(t, root, 10_000_001)
			return run(t, files, tools.Call{}, "read_file", map[string]any{"path": "big",
				"limit": 10_000_000 - 6 + n}).Outcome == tools.Succeeded
		}},
		"MaxWriteBytes": {At: 10_000_000, Slow: true, Takes: func(t *testing.T, n int) bool {
			_, files := folder(t)
			return run(t, files, tools.Call{}, "write_file", map[string]any{"path": "big",
				"text": text(n)}).Outcome == tools.Succeeded
		}},
		"sniffBytes": {At: 7999, Takes: func(t *testing.T, before int) bool {
			root, files := folder(t)
			put(t, filepath.Join(root, "file"), text(before)+"\x00"+text(100))
			return run(t, files, tools.Call{}, "read_file", map[string]any{"path": "file",
				"offset": before + 1}).Result.Bytes != nil
		}},
		"MaxListEntries": {At: 1000, Takes: func(t *testing.T, n int) bool {
			return !strings.Contains(listed(t, n), "truncated")
		}},
		"newFileMode": {Test: "TestWriteFile"},
		"waitTime":    {None: "it only has to exceed every turn's time limit"},
	})
}

// truncate makes a file "big" of n zero bytes.
func truncate(t *testing.T, root string, n int) {
	t.Helper()
	put(t, filepath.Join(root, "big"), "")
	if err := os.Truncate(filepath.Join(root, "big"), int64(n)); err != nil {
		t.Fatal(err)
	}
}

// redirects reports whether http_get follows this many redirects.
func redirects(t *testing.T, n int) bool {
	t.Helper()
	server, _ := counting(t, func(w http.ResponseWriter, r *http.Request) {
		if left, _ := strconv.Atoi(r.URL.Path[1:]); left > 0 {
			http.Redirect(w, r, "/"+strconv.Itoa(left-1), http.StatusFound)
		}
	})
	return get(t, allow(server.Listener.Addr().String()), server.URL+"/"+strconv.Itoa(n)).Outcome == tools.Succeeded
}

// failedPage returns what the model reads of a failed page.
func failedPage(t *testing.T, body string) string {
	t.Helper()
	server, _ := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(body))
	})
	return get(t, allow(server.Listener.Addr().String()), server.URL).Result.Text
}

// extracts reports whether get_tool_output takes a query.
func extracts(t *testing.T, query string) bool {
	t.Helper()
	out := stored("text")
	out.Extract = func(context.Context, string) (tools.Result, error) { return tools.Result{Text: "found"}, nil }
	out.Retrieved = func(context.Context) error { return nil }
	call := tools.Call{Outputs: shelf{"out_1": out}}
	return run(t, builtin.NewReaders(), call, "get_tool_output", map[string]any{"id": "out_1", "mode": "extract",
		"query": query}).Outcome == tools.Succeeded
}

// listed returns the list of a folder with n files.
func listed(t *testing.T, n int) string {
	t.Helper()
	root, files := folder(t)
	dir := filepath.Join(root, "many")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		put(t, filepath.Join(dir, strconv.Itoa(i)), "")
	}
	return run(t, files, tools.Call{}, "list_files", map[string]any{"path": "many"}).Result.Text
}

// An ended waits for background calls of these sizes.
type ended struct {
	shelf
	sizes []int64
}

func (e ended) Wait(context.Context) (done []tools.Finished, anyRuns bool, err error) {
	for _, bytes := range e.sizes {
		done = append(done, tools.Finished{Tool: "t", ID: "i", Bytes: bytes})
	}
	return done, true, nil
}

// TestSizesOfFinishedCalls checks each size at which the unit or the rounding changes.
func TestSizesOfFinishedCalls(t *testing.T) {
	sizes := []int64{0, 999, 1000, 1499, 1500, 999_499, 999_500, 1_049_999, 1_050_000, 10_000_000}
	got := run(t, builtin.NewReaders(), tools.Call{Outputs: ended{nil, sizes}}, "wait_for_tool_output",
		map[string]any{})
	var want bytes.Buffer
	want.WriteString("Completed tools:")
	for _, size := range []string{"0B", "999B", "1KB", "1KB", "2KB", "999KB", "1.0MB", "1.0MB", "1.1MB", "10.0MB"} {
		want.WriteString("\n- t (id: i, size: " + size + ")")
	}
	wantText(t, got, want.String())
}

package core_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A model that sees only the first hundred characters fetches, edits and writes back a document of 300 KB.
func TestADocumentIsEditedByItsHandle(t *testing.T) {
	t.Parallel()
	const middle = "MIDDLE-OF-THE-DOCUMENT"
	half := strings.Repeat("Grüße an alle. 日本語 \"quoted\" \\ 👩‍👩‍👧‍👦\r\n", 2500)
	document := "Title: old\n" + half + middle + "\n" + half + "The end: old"
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(document))
	}))
	t.Cleanup(site.Close)
	address, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, fetch := range map[string]inferencetest.Call{
		"from a site": {ID: "call_fetch", Name: "http_get", Arguments: `{"url":` + env.Quote(site.URL) + `}`},
		"from a file": {ID: "call_fetch", Name: "read_file", Arguments: `{"path":"in.txt"}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := env.New(t)
			if err := os.Mkdir(filepath.Join(e.Dir, "files"), 0o755); err != nil {
				t.Fatal(err)
			}
			e.WriteFile("files/in.txt", document)
			e.WriteFile("files/out.txt", "what was there before")
			e.WriteAgent("clerk", "tools: [http_get, read_file, patch_output, write_file]", "root: files",
				"allow_private_hosts: ["+address.Hostname()+"]",
				"output_handles: true", "max_tool_result_chars: 100", "max_rounds: 6")
			e.Model.Then(env.Rounds(
				inferencetest.Calls(fetch),
				inferencetest.Calls(inferencetest.Call{ID: "call_patch", Name: "patch_output",
					Arguments: `{"id":"call_fetch","edits":[{"find":"Title: old","replace":"Title: new"},
					{"find":"` + middle + `\n","replace":"output::literal\n"},{"find":"👩‍👩‍👧‍👦","replace":"👪","all":true}]}`}),
				inferencetest.Calls(inferencetest.Call{ID: "call_write", Name: "write_file",
					Arguments: `{"path":"out.txt","text":"output:call_patch"}`},
					inferencetest.Call{ID: "call_part", Name: "write_file",
						Arguments: `{"path":"part.txt","text":"output:call_fetch[0:10]"}`},
					inferencetest.Call{ID: "call_bad", Name: "write_file",
						Arguments: `{"path":"out.txt","text":"output:of-another-turn"}`}),
				inferencetest.Text("done"),
			))
			e.StartWorker()
			turn := e.TurnOf(e.Enqueue("clerk", "Edit it."))
			e.WantEnd(turn, "succeeded", "none", 4)
			want := strings.NewReplacer("Title: old", "Title: new", middle, "output:literal", "👩‍👩‍👧‍👦",
				"👪").Replace(document)
			if got, err := os.ReadFile(filepath.Join(e.Dir, "files", "out.txt")); err != nil || !bytes.Equal(got,
				[]byte(want)) {
				t.Errorf("%d bytes were written, of %d, error %v: %+v", len(got), len(want), err, turn.Calls())
			}
			if got, err := os.ReadFile(filepath.Join(e.Dir, "files", "part.txt")); err != nil ||
				string(got) != "Title: old" {
				t.Errorf("the part is %q, error %v", got, err)
			}
			if left, err := os.ReadDir(filepath.Join(e.Dir, "files")); err != nil || len(left) != 3 {
				t.Errorf("the folder holds %v, error %v", left, err)
			}
			states := ""
			for _, c := range turn.Calls() {
				states += c.WireID + " " + c.State + " "
			}
			if states != "call_fetch succeeded call_patch succeeded call_write succeeded call_part succeeded call_bad denied " {
				t.Errorf("the calls ended %s", states)
			}
			for i, r := range e.WantRequests(4) {
				// The model wrote the middle's name once; the text around it it never had.
				if bytes.Contains(r.Body, []byte("alle. 日本語 \\\"quoted\\\" \\\\\\\\ 👪")) || bytes.Count(r.Body,
					[]byte("Grüße an alle")) > 3 || bytes.Contains(r.Body, []byte("The end: old")) {
					t.Errorf("request %d holds what the model was not to see (%d bytes)", i+1, len(r.Body))
				}
				if len(r.Body) > 30_000 {
					t.Errorf("request %d has %d bytes", i+1, len(r.Body))
				}
			}
			journaled := env.Query[string](e, "select planned_args from calls where wire_id = 'call_write'")
			if journaled != `{"path":"out.txt","text":"output:call_patch"}` {
				t.Errorf("the journal has %s", fmt.Sprintf("%.200s", journaled))
			}
		})
	}
}

package tests_test

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
)

// A document of 300 KB is fetched, edited and written back by a model that is
// shown its first hundred characters.
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
		"from a site": {ID: "call_fetch", Name: "http_get", Arguments: `{"url":` + quote(site.URL) + `}`},
		"from a file": {ID: "call_fetch", Name: "read_file", Arguments: `{"path":"in.txt"}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			if err := os.Mkdir(filepath.Join(h.dir, "files"), 0o755); err != nil {
				t.Fatal(err)
			}
			h.write("files/in.txt", document)
			h.write("files/out.txt", "what was there before")
			h.agent("clerk", "tools: [http_get, read_file, patch_output, write_file]", "root: files", "allow_private_hosts: ["+address.Hostname()+"]",
				"output_handles: true", "max_tool_result_chars: 100", "max_rounds: 6")
			h.model.Then(rounds(
				calls(fetch),
				calls(inferencetest.Call{ID: "call_patch", Name: "patch_output", Arguments: `{"id":"call_fetch","edits":[{"find":"Title: old","replace":"Title: new"},
					{"find":"` + middle + `\n","replace":"output::literal\n"},{"find":"👩‍👩‍👧‍👦","replace":"👪","all":true}]}`}),
				calls(inferencetest.Call{ID: "call_write", Name: "write_file", Arguments: `{"path":"out.txt","text":"output:call_patch"}`},
					inferencetest.Call{ID: "call_part", Name: "write_file", Arguments: `{"path":"part.txt","text":"output:call_fetch[0:10]"}`},
					inferencetest.Call{ID: "call_bad", Name: "write_file", Arguments: `{"path":"out.txt","text":"output:of-another-turn"}`}),
				text("done"),
			))
			h.startWorker()
			turn := h.turnOf(h.enqueue("clerk", "Edit it."))
			h.ended(turn, "succeeded", "none", 4)
			want := strings.NewReplacer("Title: old", "Title: new", middle, "output:literal", "👩‍👩‍👧‍👦", "👪").Replace(document)
			if got, err := os.ReadFile(filepath.Join(h.dir, "files", "out.txt")); err != nil || !bytes.Equal(got, []byte(want)) {
				t.Errorf("%d bytes were written, of %d, error %v: %+v", len(got), len(want), err, turn.calls())
			}
			if got, err := os.ReadFile(filepath.Join(h.dir, "files", "part.txt")); err != nil || string(got) != "Title: old" {
				t.Errorf("the part is %q, error %v", got, err)
			}
			if left, err := os.ReadDir(filepath.Join(h.dir, "files")); err != nil || len(left) != 3 {
				t.Errorf("the folder holds %v, error %v", left, err)
			}
			states := ""
			for _, c := range turn.calls() {
				states += c.WireID + " " + c.State + " "
			}
			if states != "call_fetch succeeded call_patch succeeded call_write succeeded call_part succeeded call_bad denied " {
				t.Errorf("the calls ended %s", states)
			}
			for i, r := range h.requests(4) {
				// The model wrote the middle's name once; the text around it it never had.
				if bytes.Contains(r.Body, []byte("alle. 日本語 \\\"quoted\\\" \\\\\\\\ 👪")) || bytes.Count(r.Body, []byte("Grüße an alle")) > 3 || bytes.Contains(r.Body, []byte("The end: old")) {
					t.Errorf("request %d holds what the model was not to see (%d bytes)", i+1, len(r.Body))
				}
				if len(r.Body) > 30_000 {
					t.Errorf("request %d has %d bytes", i+1, len(r.Body))
				}
			}
			journaled := query[string](h, "select arguments from calls where wire_id = 'call_write'")
			if journaled != `{"path":"out.txt","text":"output:call_patch"}` {
				t.Errorf("the journal has %s", fmt.Sprintf("%.200s", journaled))
			}
		})
	}
}

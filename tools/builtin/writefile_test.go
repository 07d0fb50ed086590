package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

func TestWriteFile(t *testing.T) {
	root, files := folder(t)
	if err := os.Chmod(filepath.Join(root, "notes", "a.txt"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, text string
		mode             os.FileMode
	}{
		{"a new file", "new.txt", "日本語\r\n", 0o644},
		{"in place of another", "notes/a.txt", "shorter", 0o640},
		{"again", "notes/a.txt", "shorter", 0o640},
		{"empty", "new.txt", "", 0o644},
		{"untidy path", "./notes//deep/../c", "c", 0o644},
		{"large", "large", strings.Repeat("x", 200_000), 0o644},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantText(t, use(t, files, "write_file", `{"path":"`+tt.path+`","text":`+strconv.Quote(tt.text)+`}`),
				`"`+tt.path+`" written, `+strconv.Itoa(len(tt.text))+` bytes.`)
			name := filepath.Join(root, filepath.Clean(tt.path))
			got, err := os.ReadFile(name)
			info, statErr := os.Stat(name)
			if err != nil || statErr != nil || string(got) != tt.text || info.Mode().Perm() != tt.mode {
				t.Errorf("it holds %.100q, mode %s, errors %v, %v", got, info.Mode(), err, statErr)
			}
		})
	}
	if left := leftovers(t, root); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestWriteFileRefuses(t *testing.T) {
	root, files := folder(t)
	secret := filepath.Join(root, "..", "secret")
	for _, tt := range []struct{ name, path, want string }{
		{"above", "../secret", "is outside of the root folder"},
		{"absolute", secret, "is an absolute path"},
		{"a folder", "notes", "is a folder; give the path of a file"},
		{"the root", ".", "is a folder"},
		{"no folder", "no/such/file", "there is no folder \"no/such\""},
		{"a link that stays inside", "inside", "is a link"},
		{"a link that leads out", "up", "is a link"},
		{"a dangling link", "dangling", "is a link"},
		{"through a link that leads out", "updir/secret", "is outside of the root folder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantFailure(t, use(t, files, "write_file", `{"path":"`+tt.path+`","text":"overwritten"}`), tt.want)
		})
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "hidden" {
		t.Errorf("the secret is %q, error %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "notes", "a.txt")); err != nil || string(got) != "grüße" {
		t.Errorf("the file is %q, error %v", got, err)
	}
	if left := leftovers(t, root); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// leftovers returns the temporary files that writes left behind.
func leftovers(t *testing.T, root string) (left []string) {
	t.Helper()
	for _, dir := range []string{root, filepath.Join(root, "notes"), filepath.Dir(root)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				left = append(left, e.Name())
			}
		}
	}
	slices.Sort(left)
	return left
}

// A file that may not be written is not replaced either.
func TestWriteFileKeepsReadOnlyFiles(t *testing.T) {
	root, files := folder(t)
	name := filepath.Join(root, "notes", "a.txt")
	if err := os.Chmod(name, 0o444); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, use(t, files, "write_file", `{"path":"notes/a.txt","text":"overwritten"}`),
		`"notes/a.txt" is read-only and stays as it is; write to another file`)
	if got, err := os.ReadFile(name); err != nil || string(got) != "grüße" {
		t.Errorf("the file is %q, error %v", got, err)
	}
}

// The description of the argument says the limits that apply.
func TestTheLimitsOfWriteFile(t *testing.T) {
	_, files := folder(t)
	schema := string(files[2].Spec().Parameters)
	for _, want := range []string{fmt.Sprintf("%d KiB with the other arguments", tools.MaxArgumentBytes>>10),
		fmt.Sprintf("may have %d MB", builtin.MaxWriteBytes/1_000_000)} {
		if !strings.Contains(schema, want) {
			t.Errorf("the schema does not say %q: %s", want, schema)
		}
	}
	text := strings.Repeat("x", tools.MaxArgumentBytes)
	registry, err := tools.NewRegistry(files...)
	if err != nil {
		t.Fatal(err)
	}
	if _, fault := registry.Check("write_file", `{"path":"a","text":"`+text+`"}`); !strings.Contains(fault,
		"at most 262144 are allowed") {
		t.Errorf("written out: %q", fault)
	}
	// as a handle is resolved
	arguments, _ := json.Marshal(map[string]string{"path": "large", "text": strings.Repeat("x", builtin.MaxWriteBytes)})
	if got := tools.Execute(t.Context(), files[2], tools.Call{Agent: "helper", Arguments: arguments},
		tools.ExecuteOptions{Timeout: time.Minute}); got.Outcome != tools.Succeeded {
		t.Errorf("passed on: %+v", got)
	}
}

// A fileStore keeps labels of files in memory.
type fileStore struct {
	labels map[string][]policy.Mark
	seen   []policy.Mark // of the last file while it was written
	fails  error         // of each function
	passes int           // how often FileLabels passes before it fails
}

func (s *fileStore) WriteFile(_ context.Context, _, path string, labels []policy.Mark, write func() error) error {
	if s.fails != nil {
		return s.fails
	}
	s.labels[path] = policy.Join(s.labels[path], labels)
	s.seen = s.labels[path]
	err := write()
	if err == nil {
		s.labels[path] = labels
	}
	return err
}

func (s *fileStore) FileLabels(_ context.Context, path string) (all []policy.Mark, _ error) {
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		if name == path || strings.HasSuffix(path, "/") && strings.HasPrefix(name, path) {
			all = policy.Join(all, s.labels[name])
		}
	}
	if s.passes--; s.passes >= 0 {
		return all, nil
	}
	return all, s.fails
}

// TestFilesKeepLabels checks that a read of a file, or of a list that names it, has the labels of what was written into
// it, by whichever path, and that a write without labels removes them.
func TestFilesKeepLabels(t *testing.T) {
	root, _ := folder(t)
	if err := os.Symlink("notes", filepath.Join(root, "linked")); err != nil {
		t.Fatal(err)
	}
	roots := map[string]string{"helper": root, "other": filepath.Join(root, "linked"), "third": filepath.Join(root,
		"notes", "deep"),
		"system": "/proc/self/fdinfo"}
	store := &fileStore{labels: map[string][]policy.Mark{}}
	files := builtin.NewFiles(func(agent string) string { return roots[agent] }, store)
	run := func(agent, tool, arguments string, labels ...policy.Mark) tools.RunResult {
		t.Helper()
		for _, f := range files {
			if f.Spec().Name == tool {
				return tools.Execute(t.Context(), f, tools.Call{Agent: agent, Arguments: json.RawMessage(arguments),
					Labels: labels}, tools.ExecuteOptions{Timeout: time.Minute})
			}
		}
		t.Fatal("no tool " + tool)
		return tools.RunResult{}
	}
	private := policy.Mark{Label: policy.Private, Source: "a mail"}
	if got := run("helper", "write_file", `{"path":"notes/new.txt","text":"secret"}`,
		private); got.Outcome != tools.Succeeded {
		t.Fatalf("%+v", got)
	}
	put(t, filepath.Join(root, "notes", "new.txt"), "changed from outside")
	for _, read := range [][3]string{
		{"helper", "read_file", `{"path":"notes/new.txt"}`}, {"helper", "read_file", `{"path":"linked/new.txt"}`},
		{"other", "read_file", `{"path":"./new.txt","limit":1}`},
		{"helper", "list_files", `{"path":"notes"}`}, {"helper", "list_files", `{}`}, {"other", "list_files",
			`{"path":""}`}, {"helper", "list_files", `{"path":"linked/"}`},
	} {
		if got := run(read[0], read[1], read[2]); got.Outcome != tools.Succeeded || len(got.Result.Labels) != 1 ||
			got.Result.Labels[0] != private {
			t.Errorf("%q: %+v", read, got)
		}
	}
	for _, read := range [][3]string{{"helper", "read_file", `{"path":"notes/a.txt"}`}, {"helper", "list_files",
		`{"path":"notes/deep"}`}, {"third", "list_files", `{}`}} {
		if got := run(read[0], read[1], read[2]); got.Outcome != tools.Succeeded || len(got.Result.Labels) != 0 {
			t.Errorf("%q: %+v", read, got)
		}
	}
	if got := run("other", "write_file", `{"path":"new.txt","text":"nothing"}`); got.Outcome != tools.Succeeded ||
		len(store.seen) != 1 {
		t.Errorf("while it was overwritten, the file had the labels %v; %+v", store.seen, got)
	}
	if got := run("helper", "read_file", `{"path":"notes/new.txt"}`); got.Result.Text != "nothing" ||
		len(got.Result.Labels) != 0 {
		t.Errorf("overwritten: %+v", got)
	}
	store.fails = errors.New("no database")
	for tool, arguments := range map[string]string{"write_file": `{"path":"notes/a.txt","text":"x"}`,
		"read_file": `{"path":"notes/a.txt"}`, "list_files": `{}`} {
		if got := run("helper", tool, arguments); got.Outcome != tools.Failed || strings.Contains(got.Result.Text,
			"database") || !strings.Contains(got.Result.Text, "the labels of the file") {
			t.Errorf("%s without a database: %+v", tool, got)
		}
	}
	store.passes = 1
	if got := run("helper", "read_file", `{"path":"notes/a.txt"}`); got.Outcome != tools.Failed ||
		!strings.Contains(got.Result.Text, "the labels of the file could not be read") {
		t.Errorf("a read, without a database after it: %+v", got)
	}
	store.fails = nil
	if got := run("system", "write_file", `{"path":"new.txt","text":"x"}`); got.Outcome != tools.Failed ||
		strings.Contains(got.Result.Text, "labels") {
		t.Errorf("a write that the file system refuses: %+v", got)
	}
}

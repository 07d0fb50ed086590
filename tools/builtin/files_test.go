package builtin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// folder creates a root folder, a secret file outside of it, and the file tools for
// the folder.
func folder(t *testing.T) (root string, files []tools.Tool) {
	t.Helper()
	base := t.TempDir()
	root = filepath.Join(base, "root")
	put(t, filepath.Join(base, "secret"), "hidden")
	put(t, filepath.Join(root, "notes", "a.txt"), "grüße")
	put(t, filepath.Join(root, "notes", "deep", "b.md"), "# b")
	put(t, filepath.Join(root, "empty"), "")
	put(t, filepath.Join(root, "pic.png"), "\x89PNG\x00\x01")
	for link, target := range map[string]string{
		"inside": "notes/a.txt", "up": "../secret", "absolute": filepath.Join(base, "secret"), "updir": "..",
		"chain": "up", "dangling": "nowhere", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return root, builtin.NewFiles(func(agent string) string {
		if agent == "helper" {
			return root
		}
		return ""
	}, nil)
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadFile(t *testing.T) {
	root, files := folder(t)
	for _, tt := range []struct{ name, args, want string }{
		{"whole", `{"path":"notes/a.txt"}`, "grüße"},
		{"untidy path", `{"path":"./notes//deep/../a.txt"}`, "grüße"},
		{"through a link that stays inside", `{"path":"inside"}`, "grüße"},
		{"empty", `{"path":"empty"}`, ""},
		{"part", `{"path":"notes/a.txt","offset":1,"limit":1}`, "r"},
		{"part that would split its last character", `{"path":"notes/a.txt","limit":3}`, "grü"},
		{"part that would split its first character", `{"path":"notes/a.txt","offset":3}`, "ße"},
		{"from the end", `{"path":"notes/a.txt","offset":7}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { wantText(t, use(t, files, "read_file", tt.args), tt.want) })
	}
	t.Run("parts make the whole, wherever they are cut", func(t *testing.T) {
		const whole = "grüße, 世界 \U0001f600!\xff\xc3\xa9\xe9\x80\x80\xf0\x9f!"
		put(t, filepath.Join(root, "parts"), whole)
		for limit := 1; limit <= len(whole); limit++ {
			all := ""
			for offset := 0; offset < len(whole); offset += limit {
				got := use(t, files, "read_file", fmt.Sprintf(`{"path":"parts","offset":%d,"limit":%d}`, offset, limit))
				all += got.Result.Text
			}
			if all != whole {
				t.Errorf("parts of %d bytes: %q, want %q", limit, all, whole)
			}
		}
	})
	t.Run("a broken character at the end stays", func(t *testing.T) {
		put(t, filepath.Join(root, "broken"), "ab\xc3")
		wantText(t, use(t, files, "read_file", `{"path":"broken"}`), "ab\xc3")
	})
	t.Run("binary", func(t *testing.T) {
		want := tools.RunResult{Result: tools.Result{Bytes: []byte("\x89PNG\x00\x01"), MediaType: "image/png"},
			Outcome: tools.Succeeded}
		if diff := cmp.Diff(want, use(t, files, "read_file", `{"path":"pic.png"}`)); diff != "" {
			t.Errorf("ending (-want +got):\n%s", diff)
		}
	})
	t.Run("text part of a binary file is binary", func(t *testing.T) {
		if got := use(t, files, "read_file", `{"path":"pic.png","offset":1,"limit":3}`); string(
			got.Result.Bytes) != "PNG" {
			t.Errorf("ending = %+v", got)
		}
	})
}

func TestReadFileRefuses(t *testing.T) {
	root, files := folder(t)
	big := filepath.Join(root, "big")
	put(t, big, "x")
	if err := os.Truncate(big, builtin.MaxReadBytes+1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, args, want string }{
		{"nothing there", `{"path":"nope"}`, `there is no file or folder "nope"`},
		{"folder", `{"path":"notes"}`, `"notes" is a folder; use list_files`},
		{"no path", `{"path":""}`, `is a folder`},
		{"dots", `{"path":"../secret"}`, "outside of the root folder"},
		{"dots further down", `{"path":"notes/../../secret"}`, "outside of the root folder"},
		{"absolute path", `{"path":"/etc/passwd"}`, "absolute path"},
		{"link up", `{"path":"up"}`, "outside of the root folder"},
		{"link to an absolute path", `{"path":"absolute"}`, "outside of the root folder"},
		{"link to a link up", `{"path":"chain"}`, "outside of the root folder"},
		{"folder link up", `{"path":"updir/secret"}`, "outside of the root folder"},
		{"dangling link", `{"path":"dangling"}`, "there is no file"},
		{"link to itself", `{"path":"loop"}`, "cannot be read"},
		{"too large", `{"path":"big"}`, "too large to be read at once: it has 10000001 bytes; use offset and limit"},
		{"too large a limit", `{"path":"big","limit":99999999}`, "too large to be read at once"},
		{"offset past the end", `{"path":"notes/a.txt","offset":8}`,
			`offset 8 is past the end: "notes/a.txt" has 7 bytes`},
		{"negative offset", `{"path":"notes/a.txt","offset":-1}`, "must not be negative"},
		{"control character", `{"path":"a\u0001b"}`, "there is no file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := use(t, files, "read_file", tt.args)
			wantFailure(t, got, tt.want)
			if strings.Contains(got.Result.Text, root) || strings.Contains(got.Result.Text, "hidden") {
				t.Errorf("the model is shown %q", got.Result.Text)
			}
		})
	}
	t.Run("part of a large file", func(t *testing.T) {
		if got := use(t, files, "read_file", `{"path":"big","offset":1,"limit":10}`); len(got.Result.Bytes) != 10 {
			t.Errorf("ending = %+v", got)
		}
	})
}

func TestReadFileDoesNotHangOnAPipe(t *testing.T) {
	root, files := folder(t)
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, use(t, files, "read_file", `{"path":"pipe"}`), `"pipe" is a pipe; only regular files can be read`)
	wantFailure(t, use(t, files, "list_files", `{"path":"pipe"}`), `"pipe" is not a folder`)
}

func TestNoRoot(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		name  string
		files []tools.Tool
		want  string
	}{
		{"none set", builtin.NewFiles(func(string) string {
			return ""
		}, nil), "tool error: this agent has no root folder; set `root:` in its file"},
		{"no function", builtin.NewFiles(nil, nil),
			"tool error: this agent has no root folder; set `root:` in its file"},
		{"not there", builtin.NewFiles(func(string) string {
			return missing
		}, nil),
			"tool error: this agent's root folder cannot be opened (no such file or directory); check `root:` in its file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, args := range map[string]string{"read_file": `{"path":"a"}`, "list_files": `{}`} {
				got := use(t, tt.files, name, args)
				if got.Outcome != tools.Failed || got.Result.Text != tt.want {
					t.Errorf("%s: %+v", name, got)
				}
			}
		})
	}
}

func TestListFiles(t *testing.T) {
	root, files := folder(t)
	put(t, filepath.Join(root, "odd\nname"), "1")
	links := "absolute@\nchain@\ndangling@\nempty\t0\ninside@\nloop@\nnotes/\n"
	rest := `"odd\nname"` + "\t1\npic.png\t6\nup@\nupdir@"
	for _, tt := range []struct{ name, args, want string }{
		{"root", `{}`, links + rest},
		{"all below", `{"recursive":true}`, links + "notes/a.txt\t7\nnotes/deep/\nnotes/deep/b.md\t3\n" + rest},
		{"folder", `{"path":"notes/"}`, "notes/a.txt\t7\nnotes/deep/"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantText(t, use(t, files, "list_files", tt.args), tt.want) })
	}
	for _, tt := range []struct{ name, args, want string }{
		{"file", `{"path":"notes/a.txt"}`, `"notes/a.txt" is not a folder; use read_file`},
		{"up", `{"path":".."}`, "outside of the root folder"},
		{"link up", `{"path":"updir"}`, "outside of the root folder"},
		{"nothing there", `{"path":"nope"}`, `there is no file or folder "nope"`},
	} {
		t.Run(tt.name, func(t *testing.T) { wantFailure(t, use(t, files, "list_files", tt.args), tt.want) })
	}
}

func TestListFilesIsBounded(t *testing.T) {
	root, files := folder(t)
	for i := range builtin.MaxListEntries {
		put(t, filepath.Join(root, "many", fmt.Sprintf("%04d", i)), "")
	}
	lines := strings.Split(use(t, files, "list_files", `{"path":"many"}`).Result.Text, "\n")
	if len(lines) != 1000 || lines[999] != "many/0999\t0" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	put(t, filepath.Join(root, "many", "z"), "")
	lines = strings.Split(use(t, files, "list_files", `{"path":"many"}`).Result.Text, "\n")
	if len(lines) != 1001 || lines[1000] != "[... truncated: showing first 1000 entries]" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	for i := range 2 * builtin.MaxListEntries {
		put(t, filepath.Join(root, "many", fmt.Sprintf("x%04d", i)), "")
	}
	if got := strings.Split(use(t, files, "list_files", `{"path":"many"}`).Result.Text, "\n"); !cmp.Equal(got, lines) {
		t.Errorf("of a larger folder others are the first: %s", cmp.Diff(lines, got))
	}
}

func TestEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	wantText(t, use(t, builtin.NewFiles(func(string) string { return dir }, nil), "list_files", `{}`),
		"The folder is empty.")
}

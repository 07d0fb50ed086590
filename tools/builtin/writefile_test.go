package builtin_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
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

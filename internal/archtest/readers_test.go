package archtest_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"turnkeeper/internal/archtest"
)

//go:embed readers.txt
var readers string

// TestReaders checks that no package decodes or reads outside data without limits.
func TestReaders(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("the counts are those of the files for linux")
		return
	}
	allowed, err := archtest.ParseReaders(readers)
	if err != nil {
		t.Fatalf("readers.txt: %v", err)
	}
	readFolders(t)
	found, err := archtest.Reads(list(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range archtest.CheckReaders(found, allowed) {
		t.Error(fault)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go": "package p\n\nimport (\n\tj \"encoding/json\"\n\t\"io\"\n\n\t\"github.com/goccy/go-yaml\"\n)\n\nvar decode = j.Unmarshal\n\n" +
			"func f(r io.Reader) { _, _ = io.ReadAll(r); _ = yaml.Unmarshal(nil, nil); _ = j.NewDecoder(r); _, _ = j.Marshal(1) }\n",
		"b.go": "package p\n\ntype json struct{}\n\nfunc (json) Unmarshal() {}\n\nfunc g(json json) { json.Unmarshal() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{"a.go", "b.go"}
	found, err := archtest.Reads([]archtest.Package{
		{ImportPath: pathOf("p"), Dir: dir, GoFiles: files}, {ImportPath: pathOf("tests/x"), Dir: dir, GoFiles: files},
		{ImportPath: pathOf("ptest"), Dir: dir, GoFiles: files},
	})
	if err != nil || len(found) != 1 || found["p/a.go"] != 4 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestCheckReaders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"p/a.go: 4, why;":                 "",
		"p/a.go: 5, why;":                 "p/a.go does so in 4 places: write that in readers.txt instead of 5",
		"p/a.go: 3, why;":                 "p/a.go decodes or reads a whole text in 4 places, readers.txt allows 3",
		"":                                "readers.txt allows 0",
		"p/a.go: 4, why; p/b.go: 1, why;": "p/b.go does so in 0 places",
	} {
		allowed, err := archtest.ParseReaders(text)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(archtest.CheckReaders(map[string]int{"p/a.go": 4}, allowed), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"p/a.go;", "p/a.go: 4;", "p/a.go: 4, ;", "p/a.go: some, why;"} {
		if got, err := archtest.ParseReaders(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

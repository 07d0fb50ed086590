package agentdef_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/agentdef"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadSortsAndIgnores(t *testing.T) {
	dir := folder(t, map[string]string{
		"b.md": "---\n---\nB", "a.md": "---\n---\nA", "a-2.md": "---\n---\nA2",
		"README.md": "Agents.", "notes.txt": "x", ".#a.md": "x",
	})
	if err := os.Mkdir(filepath.Join(dir, "sub.md"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.md", filepath.Join(dir, "c.md")); err != nil {
		t.Fatal(err)
	}
	defs, err := agentdef.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, def := range defs {
		names = append(names, def.Name)
	}
	if diff := cmp.Diff([]string{"a", "a-2", "b", "c"}, names); diff != "" {
		t.Error(diff)
	}
	if want := filepath.Join(dir, "a.md"); defs[0].Path != want {
		t.Errorf("Path = %s, want %s", defs[0].Path, want)
	}
}

func TestLoadReportsEveryFaultOfEveryFile(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.md": "---\nlane: x\nmodle: y\n---\nA", "b.md": "---\n---\nB", "c.md": "C",
		"d.md": strings.Repeat("x", agentdef.MaxSize+1),
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "e.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "f.md")); err != nil {
		t.Fatal(err)
	}
	defs, err := agentdef.Load(dir)
	want := strings.Join([]string{
		`a.md:2: lane is "x": it must be one of agent, conversation`,
		`a.md:3: unknown key "modle" (did you mean "model"?)`,
		"c.md:1: the file must begin with a line ---, the settings, and another line ---",
		"d.md: the file has 1048577 bytes: at most 1048576 are allowed",
		"e.md: this is not a regular file",
		"f.md: the file cannot be read: no such file or directory",
	}, "\n")
	if got := strings.ReplaceAll(text(err), dir+"/", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(defs) != 1 || defs[0].Name != "b" {
		t.Errorf("the file without a fault is missing: %v", defs)
	}
}

func TestLoadWithoutFolder(t *testing.T) {
	_, err := agentdef.Load("/nowhere/agents")
	if got, want := text(err),
		"the agents folder /nowhere/agents does not exist: create it, or set agents_dir"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestSet(t *testing.T) {
	set := agentdef.NewSet([]*agentdef.Definition{{Name: "b"}, {Name: "a"}})
	if def, ok := set.Get("b"); !ok || def.Name != "b" {
		t.Errorf("Get = %v, %v", def, ok)
	}
	if _, ok := set.Get("c"); ok {
		t.Error("found an agent that is not there")
	}
	if diff := cmp.Diff([]string{"a", "b"}, set.Names()); diff != "" {
		t.Error(diff)
	}
	if got := len(slices.Collect(set.All())); got != 2 || set.Len() != 2 {
		t.Errorf("All gave %d", got)
	}
	var none *agentdef.Set
	if _, ok := none.Get("a"); ok || none.Len() != 0 || len(none.Names()) != 0 {
		t.Error("nil is not an empty set")
	}
}

func TestShippedAgentsParse(t *testing.T) {
	defs, err := agentdef.Load("../agents")
	if err != nil {
		t.Fatal(err)
	}
	set := agentdef.NewSet(defs)
	demo, ok := set.Get("demo")
	if !ok || demo.Model != "demo/script" {
		t.Fatalf("demo = %+v", demo)
	}
	for def := range set.All() {
		if def.Root == "" {
			continue
		}
		if info, err := os.Stat(def.Root); err != nil || !info.IsDir() {
			t.Errorf("%s: root %s is no folder: %v", def.Name, def.Root, err)
		}
	}
}

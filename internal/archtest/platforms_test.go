//go:build !race

package archtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/internal/testrun"
)

// TestPlatforms type-checks the programs for every release platform other than that of CI. Compiling takes four minutes
// of CPU time per platform, this takes five seconds, as it skips function bodies of other modules and the standard
// library. "make platforms" runs it without the race detector, which would make it slow and cannot find anything.
func TestPlatforms(t *testing.T) {
	testrun.OnlyFull(t)
	for _, platform := range []string{"linux/arm64", "darwin/amd64", "darwin/arm64"} {
		t.Run(platform, func(t *testing.T) {
			for _, fault := range typeFaults(t, platform, "turnkeeper/cmd/...") {
				t.Error(fault)
			}
		})
	}
}

func TestTypeFaultsOfAnotherPlatform(t *testing.T) {
	testrun.OnlyFull(t)
	dir := t.TempDir()
	source := "package p\n\nimport \"syscall\"\n\nfunc f() { _ = syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }\n"
	for name, text := range map[string]string{"go.mod": "module turnkeeper\n\ngo 1.26\n", "p.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if faults := typeFaults(t, "linux/arm64", "."); len(faults) != 0 {
		t.Errorf("on linux: %v", faults)
	}
	if faults := typeFaults(t, "darwin/arm64", "."); len(faults) != 1 {
		t.Errorf("on darwin: %v, want one about Pdeathsig", faults)
	}
}

// typeFaults returns the type errors in our packages that match pattern, and in those they import.
func typeFaults(t *testing.T, platform, pattern string) (faults []error) {
	t.Helper()
	system, processor, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module",
		pattern)
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := token.NewFileSet()
	checked := importer{"unsafe": types.Unsafe}
	for list := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Module          *struct{ Path string }
		}
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			return faults
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		ours := p.Module != nil && p.Module.Path == "turnkeeper"
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, file)
		}
		config := types.Config{
			IgnoreFuncBodies: !ours, Importer: mapped{p.ImportMap, checked}, Sizes: types.SizesFor("gc", processor),
			Error: func(err error) {
				if ours {
					faults = append(faults, err)
				}
			},
		}
		// The callback Error has collected the errors.
		checked[p.ImportPath], _ = config.Check(p.ImportPath, files, parsed, nil)
	}
}

// An importer holds the packages checked so far. go list prints dependencies first.
type importer map[string]*types.Package

// mapped is an importer that first applies the ImportMap of a package, for packages vendored in the standard library.
type mapped struct {
	paths map[string]string
	importer
}

func (m mapped) Import(path string) (*types.Package, error) {
	if other, ok := m.paths[path]; ok {
		path = other
	}
	if p, ok := m.importer[path]; ok && p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not checked", path)
}

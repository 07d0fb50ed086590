package archtest_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"turnkeeper/internal/archtest"
)

//go:embed arrows.txt
var arrows string

//go:embed doors.txt
var doors string

//go:embed sizes.txt
var sizes string

// TestModule checks every package of this module, and of the module in dev.
func TestModule(t *testing.T) {
	t.Parallel()
	order, err := archtest.ParseOrder(arrows)
	if err != nil {
		t.Fatalf("arrows.txt: %v", err)
	}
	open, err := archtest.ParseDoors(doors)
	if err != nil {
		t.Fatalf("doors.txt: %v", err)
	}
	readFolders(t)
	packages := list(t)
	if len(packages) < 10 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	for _, fault := range archtest.Check(packages, order, open) {
		t.Error(fault)
	}

	measured, err := archtest.Measure(packages)
	if err != nil {
		t.Fatal(err)
	}
	if err := measured.MeasureTypes(packages, exports(t, root)); err != nil {
		t.Fatal(err)
	}
	allowed, err := archtest.ParseExceptions(sizes)
	if err != nil {
		t.Fatalf("sizes.txt: %v", err)
	}
	for _, fault := range archtest.CheckSizes(measured, allowed) {
		t.Error(fault)
	}
}

const root = "../.."

// modules are the folders of this module and of the one with the tools of development, whose libraries no user needs.
var modules = []string{root, root + "/dev"}

// readFolders makes every folder of the module an input of this test, so a cached result is used only while no file has
// changed.
func readFolders(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root &&
			(strings.HasPrefix(entry.Name(), ".") || path == filepath.Join(root, "bin")) {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// list returns the packages of both modules.
func list(t *testing.T) []archtest.Package {
	t.Helper()
	packages, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// listed and compiled are shared by the tests, because go list takes seconds.
var (
	listed = sync.OnceValues(func() (all []archtest.Package, err error) {
		for _, dir := range modules {
			found, err := goList[archtest.Package](dir, "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports")
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	})
	compiled = sync.OnceValues(func() (map[string]string, error) { return exportsOf(modules...) })
)

// goList returns what go list writes about the packages of a module.
func goList[T any](dir string, flags ...string) (all []T, err error) {
	cmd := exec.Command("go", append(append([]string{"list"}, flags...), "./...")...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	for stream := json.NewDecoder(bytes.NewReader(out)); ; {
		var p T
		if err := stream.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// exports compiles the packages of a module and all that they import, and returns the files of their exports.
func exports(t *testing.T, dir string) map[string]string {
	t.Helper()
	find := compiled
	if dir != root {
		find = func() (map[string]string, error) { return exportsOf(dir) }
	}
	files, err := find()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func exportsOf(dirs ...string) (map[string]string, error) {
	files := map[string]string{}
	for _, dir := range dirs {
		packages, err := goList[struct{ ImportPath, Export string }](dir, "-export", "-deps", "-json=ImportPath,Export")
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			files[p.ImportPath] = p.Export
		}
	}
	return files, nil
}

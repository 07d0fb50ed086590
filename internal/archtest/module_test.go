package archtest_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/internal/archtest"
)

//go:embed arrows.txt
var arrows string

//go:embed doors.txt
var doors string

//go:embed sizes.txt
var sizes string

// TestModule checks every package of this module.
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

// readFolders makes every folder of the module an input of this test, so a cached result is used only while no file has
// changed.
func readFolders(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || path == filepath.Join(root, "bin")) {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// list returns the packages of the module from go list.
func list(t *testing.T) []archtest.Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []archtest.Package
	stream := json.NewDecoder(bytes.NewReader(out))
	for {
		var p archtest.Package
		if err := stream.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

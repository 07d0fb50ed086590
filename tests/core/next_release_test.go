package core_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"turnkeeper/migrations"
	"turnkeeper/tests/internal/env"
)

// newerWorker returns the path of a markerworker like that of a next release: built from the same source with
// one more migration, a newer version of the journal, and one more tool. The compiler gets the changed files
// as an overlay, so the product needs no switch for tests.
func newerWorker(t testing.TB) string {
	t.Helper()
	dir := env.BinaryDir(t) // does most of the build
	buildNewer.Do(func() { buildNewerError = compileNewer(dir) })
	if buildNewerError != nil {
		t.Fatal(buildNewerError)
	}
	return filepath.Join(dir, newerName)
}

const newerName = "newerworker"

var (
	buildNewer      sync.Once
	buildNewerError error
)

func compileNewer(dir string) error {
	overlay, err := writeOverlay(filepath.Join(dir, "newer"))
	if err != nil {
		return err
	}
	return env.Build("-overlay", overlay, "-o", filepath.Join(dir, newerName), "./tests/internal/programs/markerworker")
}

// knownMigration returns the number of this release's newest migration.
func knownMigration() int {
	files, _ := migrations.Files.ReadDir(".") // sorted
	number, _, _ := strings.Cut(files[len(files)-1].Name(), "_")
	known, _ := strconv.Atoi(number)
	return known
}

// writeOverlay writes the changed files of the next release into dir, and the list of them for the compiler.
func writeOverlay(dir string) (list string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replaced := map[string]string{}
	put := func(target, text string) error {
		path := env.Path(target)
		replaced[path] = filepath.Join(dir, fmt.Sprint(len(replaced)))
		return os.WriteFile(replaced[path], []byte(text), 0o600)
	}
	edit := func(target, old, changed string) error {
		text, err := os.ReadFile(env.Path(target))
		if err != nil {
			return err
		}
		if strings.Count(string(text), old) != 1 {
			return fmt.Errorf("%s should say %q once", target, old)
		}
		return put(target, strings.Replace(string(text), old, changed, 1))
	}
	migration, err := os.ReadFile("testdata/next_release.sql")
	if err != nil {
		return "", err
	}
	next := knownMigration() + 1
	for _, err := range []error{
		edit("storage/journal/version.go", "const journalVersion = 1\n", "const journalVersion = 9\n"),
		edit("tests/internal/programs/markerworker/main.go", "\tprogram := worker.Program(\n",
			"\tprogram := worker.Program(\n\t\tmarker(\"mark_new\", turnkeeper.EffectNone),\n"),
		put(fmt.Sprintf("migrations/%03d_next_release.up.sql", next), fmt.Sprintf("-- Oldest program: %d\n%s",
			next-1, migration)),
	} {
		if err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// launchNewer launches the worker of the next release.
func launchNewer(e *env.Env, flags ...string) *env.Process {
	e.T.Helper()
	e.Workers++
	return env.StartProcess(e.T, fmt.Sprintf("newer worker %d", e.Workers), e.Dir, e.Environ(),
		newerWorker(e.T), flags...)
}

// startNewer is like launchNewer, but waits until the worker is ready.
func startNewer(e *env.Env, flags ...string) *env.Process {
	e.T.Helper()
	w := launchNewer(e, flags...)
	w.Await("worker ready")
	return w
}

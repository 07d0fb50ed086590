package tests_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"turnkeeper/migrations"
)

// newerWorker is the path of markerworker as the next release may be: built from
// the same source, with one more migration, a newer version of the journal, and
// one more tool. The compiler is given the changed files in place of those of
// the tree, so that the product has nothing that only a test could switch.
func newerWorker(t testing.TB) string {
	t.Helper()
	binary(t, "markerworker") // makes the folder, and most of the build
	if err := buildNewer(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binaryDir, newerName)
}

const newerName = "newerworker"

var buildNewer = sync.OnceValue(func() error {
	overlay, err := writeOverlay(filepath.Join(binaryDir, "newer"))
	if err != nil {
		return err
	}
	args := []string{"build", "-buildvcs=false", "-overlay", overlay, "-o", filepath.Join(binaryDir, newerName)}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "./markerworker")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the newer worker: %w\n%s", err, out)
	}
	return nil
})

// knownMigration is the newest migration of the present release.
func knownMigration() int {
	files, _ := migrations.Files.ReadDir(".")
	return len(files) / 2
}

// writeOverlay writes what the next release has otherwise into dir, and the list
// of it that the compiler reads.
func writeOverlay(dir string) (list string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replaced := map[string]string{}
	put := func(target, text string) error {
		path, err := filepath.Abs(target)
		if err != nil {
			return err
		}
		replaced[path] = filepath.Join(dir, fmt.Sprint(len(replaced)))
		return os.WriteFile(replaced[path], []byte(text), 0o600)
	}
	edit := func(target, old, changed string) error {
		text, err := os.ReadFile(target)
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
		edit("../storage/version.go", "const journalVersion = 1\n", "const journalVersion = 9\n"),
		edit("markerworker/main.go", "\tprogram := cli.Worker(\n", "\tprogram := cli.Worker(\n\t\tmarker(\"mark_new\", turnkeeper.EffectNone, context.WithoutCancel),\n"),
		put(fmt.Sprintf("../migrations/%03d_next_release.up.sql", next), fmt.Sprintf("-- Oldest program: %d\n%s", next-1, migration)),
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
func (h *house) launchNewer(flags ...string) *process {
	h.t.Helper()
	h.workers++
	return startProcess(h.t, fmt.Sprintf("newer worker %d", h.workers), h.dir, h.environment(), newerWorker(h.t), flags...)
}

// startNewer is launchNewer that waits until the worker takes work.
func (h *house) startNewer(flags ...string) *process {
	h.t.Helper()
	w := h.launchNewer(flags...)
	w.await("worker ready")
	return w
}

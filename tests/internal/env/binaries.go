package env

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// programs are the packages that are built, once for all tests of a package.
var programs = []string{
	"./cmd/worker", "./cmd/enqueue", "./cmd/turnctl", "./examples/webhook-receiver",
	"./tests/internal/programs/markerworker", "./tests/internal/programs/faultenqueue",
	"./tests/internal/programs/misbehaving", "./tests/internal/programs/toolserver",
}

// binaryDir is the folder of the built programs; empty: none was built yet.
var binaryDir string

var build = sync.OnceValue(func() (err error) {
	if binaryDir, err = os.MkdirTemp("", "turnkeeper-bin-"); err != nil {
		return err
	}
	if err := Build(append([]string{"-o", binaryDir + "/"}, programs...)...); err != nil {
		return err
	}
	return statSources()
})

// statSources looks at each source file of the programs and its folder. go test
// takes a result from its cache unless a file that the tests looked at has
// changed, and the programs are not among what the tests import.
func statSources() error {
	const format = "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{range .GoFiles}}\n{{$.Dir}}/{{.}}{{end}}{{range .EmbedFiles}}\n{{$.Dir}}/{{.}}{{end}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, programs...)...)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("listing the sources of the programs: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		if _, err := os.Stat(name); err != nil {
			return err
		}
	}
	return nil
}

// Build runs go build with these arguments in the module's root, with the race
// detector if the tests have it.
func Build(args ...string) error {
	command := []string{"build", "-buildvcs=false"}
	if RaceDetector {
		command = append(command, "-race")
	}
	cmd := exec.Command("go", append(command, args...)...)
	cmd.Dir = root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func removeBinaries() {
	if binaryDir != "" {
		_ = os.RemoveAll(binaryDir)
	}
	if clientsDir != "" {
		_ = os.RemoveAll(clientsDir)
	}
}

// BinaryDir is the folder of the built programs.
func BinaryDir(t testing.TB) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return binaryDir
}

// Binary is the path of a built program.
func Binary(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(BinaryDir(t), name)
}

package env

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

// programs lists the packages of the programs that tests run.
var programs = []string{
	"./cmd/worker", "./cmd/enqueue", "./cmd/turnctl", "./examples/webhook-receiver",
	"./tests/internal/programs/markerworker", "./tests/internal/programs/faultenqueue",
	"./tests/internal/programs/misbehaving", "./tests/internal/programs/toolserver",
	"./tests/internal/programs/bookingserver",
}

// binaryDir returns the folder of the built programs. It is kept between runs, because go build links
// only programs that have changed. All test packages share it.
func binaryDir() string {
	if testrun.RaceDetector {
		return Path("bin/test-race")
	}
	return Path("bin/test")
}

// build builds the programs once per run of scripts/test: the first package builds them and writes
// the list of their sources for the other packages.
var build = sync.OnceValue(func() error {
	unlock, err := lockFile(binaryDir() + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	list := ""
	if run, set := syscall.Getenv(storagetest.RunVariable); set {
		list = filepath.Join(run, filepath.Base(binaryDir())+".sources")
	}
	names, err := os.ReadFile(list)
	if err != nil {
		if err := Build(append([]string{"-o", binaryDir() + "/"}, programs...)...); err != nil {
			return err
		}
		if names, err = sources(); err != nil {
			return err
		}
		if list != "" {
			if err := os.WriteFile(list, names, 0o600); err != nil {
				return err
			}
		}
	}
	// go test uses a cached result unless a file that the tests looked at has changed. The tests do not
	// import the programs, so look at each source.
	for name := range strings.Lines(string(names)) {
		// an overlay's file does not exist
		if _, err := os.Stat(strings.TrimSpace(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
})

// lockFile locks a file against other processes. It makes the file and its folder if needed.
func lockFile(name string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// sources returns the source files of the programs and their folders, one per line.
func sources() ([]byte, error) {
	const format = "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{range .GoFiles}}\n{{$.Dir}}/{{.}}{{end}}{{range .EmbedFiles}}\n{{$.Dir}}/{{.}}{{end}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, programs...)...)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the sources of the programs: %w", err)
	}
	return bytes.TrimSpace(out), nil
}

// Build runs go build with these arguments in the root of the module, with the race detector if the
// tests have it.
func Build(args ...string) error {
	// without debug information, linking takes half as long
	command := []string{"build", "-buildvcs=false", "-ldflags=-s -w"}
	if testrun.RaceDetector {
		command = append(command, "-race")
	}
	cmd := exec.Command("go", append(command, args...)...)
	cmd.Dir = root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// BinaryDir builds the programs if needed, and returns their folder.
func BinaryDir(t testing.TB) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return binaryDir()
}

// Binary returns the path of a built program.
func Binary(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(BinaryDir(t), name)
}

// root returns the root of the module.
var root = sync.OnceValue(func() string {
	dir, err := testrun.ModuleRoot()
	if err != nil {
		panic(err)
	}
	return dir
})

// Path returns the absolute path of a file or folder, given by its path in the module.
func Path(name string) string { return filepath.Join(root(), name) }

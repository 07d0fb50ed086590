package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"turnkeeper/internal/pgdev"
)

// SharedDir returns a temporary folder that every user may pass through, for a Postgres
// that runs as another user.
func SharedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "turnkeeper-tests-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// PostmasterPID returns the process ID of the private Postgres in a folder, or 0 if there is none.
func PostmasterPID(t testing.TB, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// ProcessAlive reports whether a process runs. A process that has ended and was not
// waited for does not: it has no command line any more.
func ProcessAlive(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil {
		return len(args) > 0
	}
	if _, noProc := os.Stat("/proc/self"); noProc == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

// ServerDir returns a folder for a Postgres of the test's own. It has a copy of a cluster that is
// made once per package, because making one takes most of a second of CPU time.
func ServerDir(t testing.TB) string {
	t.Helper()
	from, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(SharedDir(t), "postgres")
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copying a cluster: %v\n%s", err, out)
	}
	return to
}

var cluster = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cluster-") // goes with the package's temporary folder
	if err != nil {
		return "", err
	}
	server, err := pgdev.Open(context.Background(), pgdev.Options{Dir: dir})
	if err != nil {
		return "", err
	}
	return dir, server.Close(context.Background())
})

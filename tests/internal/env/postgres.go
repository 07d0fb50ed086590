package env

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// SharedDir is a temporary folder that every user may pass through, for a
// Postgres that runs as another user.
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

// PostmasterPID is the process id of the private Postgres of a folder; 0: none.
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

// ProcessAlive tells a process that runs from one that is gone, or has ended and is
// only waited for: that one has no command line any more.
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

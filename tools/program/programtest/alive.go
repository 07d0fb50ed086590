package programtest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is the timeout of a wait, far longer than any wait takes.
const patience = time.Minute

// Alive returns the ids of the rascal's processes, which have the token as an
// argument.
func Alive(t testing.TB, token string) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(names) == 0 {
		t.Fatal("this system shows no processes", err)
	}
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err == nil && slices.Contains(strings.Split(string(line), "\x00"), token) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// AwaitAlive waits until the rascal has n processes, and fails the test after a
// minute.
func AwaitAlive(t testing.TB, token string, n int) {
	t.Helper()
	const shortest, longest = 30 * time.Millisecond, 200 * time.Millisecond // each look reads all of /proc
	over := time.After(patience)
	for pause := shortest; ; pause = min(pause*5/4, longest) {
		pids := Alive(t, token)
		if len(pids) == n {
			return
		}
		select {
		case <-over:
			t.Fatalf("the processes are %v, not %d", pids, n)
		case <-time.After(pause):
		}
	}
}

// Dead fails the test if the rascal has processes, and then waits until it has
// none.
func Dead(t testing.TB, token string) {
	t.Helper()
	if left := Alive(t, token); len(left) > 0 {
		t.Errorf("%v are still alive", left)
		AwaitAlive(t, token, 0)
	}
}

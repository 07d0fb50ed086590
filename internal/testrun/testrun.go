// Package testrun cleans up after the tests of a package, however they end, and says which cases
// each test tier runs.
//
// [Run] gives a test process its own temporary folder and starts a guard: a second process that
// waits for the first one to end. When it ends (done, timed out, interrupted or killed), the guard
// kills every process that the tests left behind, and removes the folder. A test process whose
// parent (go test) is killed ends itself.
//
// The guard finds processes by the folder: their working directory, executable, an argument or an
// environment variable such as TMPDIR is in it.
package testrun

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/goleak"
)

// guardVariable names the folder to the test binary that runs as the guard.
const guardVariable = "TURNKEEPER_TEST_GUARD"

// EndAtOnce is the environment variable with which a program that has the race detector ends at once. By default it
// waits for a second, in case another goroutine reaches a data race meanwhile.
const EndAtOnce = "GORACE=atexit_sleep_ms=0"

// parentPoll is how often a test process checks that its parent is alive.
const parentPoll = 200 * time.Millisecond

// Main runs the tests of a package as Run does, for TestMain. The tests fail if a goroutine is left
// at the end. Main does not return.
func Main(m goleak.TestingM) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ m goleak.TestingM }

func (s suite) Run() int {
	code := Run(s.m.Run)
	if code == 0 {
		awaitGoroutines()
	}
	return code
}

// awaitGoroutines returns when no goroutine is left, or after a timeout. On a busy machine, a
// goroutine may take longer to end than the half second that goleak waits.
func awaitGoroutines() {
	const patience = 30 * time.Second
	for start := time.Now(); goleak.Find() != nil && time.Since(start) < patience; {
		continue // Find waits
	}
}

// Run calls run, which runs the tests, and returns its exit code. Until run returns, TMPDIR is a
// new folder, which Run removes. Call Run once, from TestMain or main, before anything else starts.
//
// The folder is in memory (/dev/shm) if there is room, because tests make many databases that need
// not survive a power cut.
func Run(run func() int) (code int) {
	// Not os.Getenv, here and below: go test would record the variable as an input of the tests.
	if root, set := syscall.Getenv(guardVariable); set {
		guard(root)
		os.Exit(0)
	}
	root, err := newRoot()
	if err != nil {
		return fail(err)
	}
	release, err := startGuard(root)
	if err != nil {
		return fail(err)
	}
	defer release()
	if err := os.Setenv("TMPDIR", root); err != nil {
		return fail(err)
	}
	defer watchParent()()
	return run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "tests:", err)
	return 1
}

// newRoot makes the folder. Every user may enter it, because Postgres refuses to run as root and
// keeps its data there as another user.
func newRoot() (string, error) {
	root, err := os.MkdirTemp(base(), "tk-test-") // short: the paths of sockets are limited to 103 bytes
	if err != nil {
		return "", err
	}
	return root, os.Chmod(root, 0o711)
}

// startGuard starts this program as the guard of a folder. release ends the guard and
// waits until it has cleaned up.
func startGuard(root string) (release func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = []string{guardVariable + "=" + root, EndAtOnce}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in the terminal must not reach it
	lifeline, err := cmd.StdinPipe()                     // the kernel closes it when this process ends
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = lifeline.Close()
		_ = cmd.Wait()
	}, nil
}

// guard waits until the test process has ended, and cleans up.
func guard(root string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	killAll(root)
	if err := os.RemoveAll(root); err != nil {
		fmt.Fprintln(os.Stderr, "tests: cannot clean up:", err)
	}
}

// watchParent ends the process when its parent has ended, because go test, when killed, does not end
// its test processes. stop ends the watch.
func watchParent() (stop func()) {
	parent := os.Getppid()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if os.Getppid() != parent {
				os.Exit(fail(fmt.Errorf("process %d, which started these tests, has ended", parent)))
			}
		}
	}()
	return func() { close(over); <-done }
}

// ModuleRoot returns the folder of go.mod above the working directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

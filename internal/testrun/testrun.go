// Package testrun cleans up after the tests of a package, however they end.
//
// [Run] gives a test process a temporary folder of its own and starts a guard: a second process
// that waits for the first one to end. When it ends (done, timed out, interrupted or killed), the
// guard kills every process that the tests left behind, and removes the folder. A test process
// whose parent (go test) is killed ends itself.
//
// The guard finds processes by the folder: in it they have their working directory, their
// executable, an argument, or a variable of their environment such as TMPDIR.
package testrun

import (
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

// parentPoll is how often a test process checks that its parent is alive.
const parentPoll = 200 * time.Millisecond

// Main runs the tests of a package as Run does, for its TestMain. The tests fail if they leave a
// goroutine behind. Main does not return.
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
// goroutine that is about to end may take longer than the half second that goleak waits.
func awaitGoroutines() {
	const patience = 30 * time.Second
	for start := time.Now(); goleak.Find() != nil && time.Since(start) < patience; {
		continue // Find waits
	}
}

// Run calls run, which runs the tests, and returns its exit code. Until run returns, TMPDIR is a
// new folder, which Run removes. Run is called once, from TestMain or main, before anything else
// is started.
//
// The folder is in memory (/dev/shm) where there is room: tests make many databases, and none of
// them needs to survive a power cut.
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

// newRoot makes the folder. Every user may pass through it: Postgres, which refuses to run as
// root, keeps its data in it as another user.
func newRoot() (string, error) {
	root, err := os.MkdirTemp(base(), "tk-test-") // short: the paths of sockets are limited to 103 bytes
	if err != nil {
		return "", err
	}
	return root, os.Chmod(root, 0o711)
}

// startGuard starts this program as the guard of a folder. release tells it that the tests are
// done, and returns when it has cleaned up.
func startGuard(root string) (release func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = []string{guardVariable + "=" + root}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in the terminal must not reach it
	lifeline, err := cmd.StdinPipe()                     // the kernel closes it when this process is gone
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

// guard waits until the test process is gone, and cleans up.
func guard(root string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	killAll(root)
	if err := os.RemoveAll(root); err != nil {
		fmt.Fprintln(os.Stderr, "tests: cannot clean up:", err)
	}
}

// watchParent ends the process when its parent is gone: go test does not end its test processes
// when it is killed. stop ends the watch.
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
				os.Exit(fail(fmt.Errorf("process %d, which started these tests, is gone", parent)))
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
			return "", fmt.Errorf("there is no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

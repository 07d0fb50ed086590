package testrun_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/internal/testrun"
)

// victimVariable makes the test binary run as a victim instead of running its tests.
const victimVariable = "TESTRUN_VICTIM"

func TestMain(m *testing.M) {
	switch os.Getenv(victimVariable) {
	case "":
		os.Exit(testrun.Run(m.Run))
	case "parent": // like go test, it starts the victim and waits for it
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimVariable+"=tests")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		_ = cmd.Run()
	case "server": // like the server of make test: the test binary is in its folder
		os.Exit(testrun.Run(func() int {
			inner := filepath.Join(os.TempDir(), "inner.test")
			if err := os.Link(os.Args[0], inner); err != nil {
				program, err := os.ReadFile(os.Args[0])
				if err == nil {
					err = os.WriteFile(inner, program, 0o700)
				}
				if err != nil {
					panic(err)
				}
			}
			cmd := exec.Command(inner)
			cmd.Env = append(os.Environ(), victimVariable+"=tests")
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			_ = cmd.Run()
			return 0
		}))
	default:
		os.Exit(testrun.Run(victim))
	}
}

// victim starts programs, prints their pids, and waits to be killed.
func victim() int {
	dir := filepath.Join(os.TempDir(), "work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	stopped := []*exec.Cmd{
		{Dir: dir},                              // found by its working directory
		{Env: []string{"TMPDIR=" + dir}},        // by its environment
		{Args: []string{"sh", "-c", loop, dir}}, // by an argument
	}
	fmt.Println(os.TempDir())
	for _, cmd := range stopped {
		cmd.Path = "/bin/sh"
		if cmd.Args == nil {
			cmd.Args = []string{"sh", "-c", loop}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // our signals do not reach it
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Println(cmd.Process.Pid)
	}
	fmt.Println(os.Getpid())
	select {}
}

// loop is a shell program that ignores requests to end.
const loop = `trap "" INT TERM HUP; while :; do sleep 60; done`

func TestCleanUp(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		start string
		end   func(parent, victim int) error
	}{
		"the tests are killed": {"tests", func(_, victim int) error {
			return syscall.Kill(victim, syscall.SIGKILL)
		}},
		"the tests are interrupted": {"tests", func(_, victim int) error {
			return syscall.Kill(victim, syscall.SIGINT)
		}},
		"the tests time out": {"tests", func(_, victim int) error {
			return syscall.Kill(victim, syscall.SIGQUIT)
		}},
		"their server is killed": {"server", func(parent, _ int) error {
			return syscall.Kill(parent, syscall.SIGKILL)
		}},
		"their parent is killed": {"parent", func(parent, _ int) error {
			return syscall.Kill(parent, syscall.SIGKILL)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), victimVariable+"="+tt.start)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			next := func() string {
				if !lines.Scan() {
					t.Fatalf("the victim printed too few lines: %v", lines.Err())
				}
				return lines.Text()
			}
			folder := next()
			var pids []int
			for range 4 {
				pid, err := strconv.Atoi(next())
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			if err := tt.end(cmd.Process.Pid, pids[3]); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			await(t, "the folder is removed", func() bool {
				_, err := os.Stat(folder)
				return errors.Is(err, fs.ErrNotExist)
			})
			for _, pid := range pids {
				await(t, fmt.Sprintf("process %d has ended", pid), func() bool { return !runs(pid) })
			}
		})
	}
}

// runs reports whether a process runs. A zombie does not.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return !strings.Contains(string(status), "State:\tZ")
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !so(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}

func TestClosedAddress(t *testing.T) {
	address := testrun.ClosedAddress(t)
	for range 2 {
		connection, err := net.Dial("tcp", address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a connection to %s: %v, %v; want a refusal", address, connection, err)
		}
	}
	if listener, err := net.Listen("tcp", address); err == nil {
		t.Errorf("another server can have %s", listener.Addr())
	}
}

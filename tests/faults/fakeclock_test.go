package faults_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/pgdev"
	"turnkeeper/tests/internal/env"
)

// A clockServer is a Postgres server whose clock the test sets while it runs. The test can also stop and resume
// all its processes.
type clockServer struct {
	t    testing.TB
	url  string
	file string // the clock's offset, read by the library that fakes it
	pid  int    // of the postmaster
}

// fakeLibrary returns the path of the library that fakes a program's clock. Without the library the test fails
// in CI, and is skipped elsewhere.
func fakeLibrary(t testing.TB) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1",
		"/usr/lib64/faketime/libfaketime.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	const missing = "libfaketime, which sets the database's clock, is not installed (Debian and Ubuntu: apt-get install faketime)"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// newClockServer starts a server as the worker does, and restarts it with the same command line under the
// library.
func newClockServer(t testing.TB) *clockServer {
	t.Helper()
	library := fakeLibrary(t)
	home := env.ServerDir(t)
	dir := filepath.Dir(home)
	server, err := pgdev.Open(t.Context(), pgdev.Options{Dir: home, Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	migrate(t, server.URL())
	c := &clockServer{t: t, url: server.URL(), file: filepath.Join(dir, "clock")}
	c.set(0)
	c.pid = restart(t, env.PostmasterPID(t, home), filepath.Join(home, "log"), []string{
		"LD_PRELOAD=" + library, "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1",
		// Only fake the wall clock.
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1",
	})
	c.awaitReady()
	return c
}

// restart stops a server and starts it with the same command line and user, and more environment variables.
func restart(t testing.TB, pid int, log string, more []string) int {
	t.Helper()
	process := fmt.Sprintf("/proc/%d/", pid)
	line, err := os.ReadFile(process + "cmdline")
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	folder, err := os.Readlink(process + "cwd")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(folder) // the server's user owns the data
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pid)
	output, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, output, output
	cmd.Env = append([]string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}, more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if owner := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }() // pgdev stops it
	return cmd.Process.Pid
}

func awaitEnd(t testing.TB, pid int) {
	t.Helper()
	over := time.After(env.Patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for env.ProcessAlive(pid) {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("timeout waiting until process %d ends", pid)
		}
	}
}

func (c *clockServer) awaitReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), env.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.url)
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("the server does not come up under the library that fakes its clock: %v", err)
		}
	}
}

// set sets the offset of the server's clock from the true time.
func (c *clockServer) set(off time.Duration) {
	c.t.Helper()
	next := c.file + ".next"
	// the server reads it as another user
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(off.Seconds())), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil { // never half written
		c.t.Fatal(err)
	}
}

// signal sends a signal to the server and all processes of its sessions.
func (c *clockServer) signal(s syscall.Signal) {
	c.t.Helper()
	for _, pid := range append(children(c.t, c.pid), c.pid) {
		if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
			c.t.Fatal(err)
		}
	}
}

// children returns the child processes of a process.
func children(t testing.TB, parent int) (all []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// Format: pid (name) state parent. The name may contain any character.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

package pgdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"turnkeeper/internal/pause"
)

// Timeouts of the ways to stop, tried in this order: a fast stop ends sessions and writes all data; an
// immediate one leaves recovery to the next start.
const (
	fastStop      = 30 * time.Second
	immediateStop = 10 * time.Second
)

// postmaster is the content of the pid file in a server's data folder.
type postmaster struct {
	pid  int
	data string // as in the server's arguments
}

func (h home) pidFile() string { return filepath.Join(h.data(), "postmaster.pid") }

// postmaster returns the running server. The pid file of a killed server may have the id of a process that
// is gone or another one.
func (h home) postmaster() (postmaster, bool) {
	text, err := os.ReadFile(h.pidFile())
	if err != nil {
		return postmaster{}, false
	}
	lines := strings.SplitN(string(text), "\n", 3)
	if len(lines) < 2 {
		return postmaster{}, false
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil || pid <= 1 {
		return postmaster{}, false
	}
	p := postmaster{pid: pid, data: lines[1]}
	return p, p.alive()
}

// alive reports whether the process is the server of that folder, according to its command line, which
// every user can read on every system.
func (p postmaster) alive() bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	if err == nil {
		return bytes.Contains(args, []byte("\x00"+p.data+"\x00"))
	}
	if _, noProc := os.Stat("/proc/self"); noProc == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(p.pid)).Output()
	return err == nil && bytes.Contains(out, []byte(p.data))
}

// removeStale removes the pid file of a killed server. Postgres does so itself, unless another process has
// the same id by now.
func (h home) removeStale() error {
	if _, running := h.postmaster(); running {
		return nil
	}
	if err := os.Remove(h.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the pid file of a killed Postgres: %w", err)
	}
	return nil
}

// stop stops the server and waits until it has ended.
func (h home) stop(ctx context.Context) error {
	if p, running := h.postmaster(); running {
		if err := p.stop(ctx); err != nil {
			return fmt.Errorf("the private Postgres in %s (process id %d, log %s) %w", h.dir, p.pid, h.log(), err)
		}
	}
	h.forgetSocketDir()
	return nil
}

func (p postmaster) stop(ctx context.Context) error {
	for _, way := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, fastStop}, {syscall.SIGQUIT, immediateStop}} {
		if err := syscall.Kill(p.pid, way.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("cannot be stopped: %w", err)
		}
		limited, cancel := context.WithTimeout(ctx, way.wait)
		gone := p.waitUntilGone(limited)
		cancel()
		if gone {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("has not stopped yet: %w", context.Cause(ctx))
		}
	}
	return errors.New("does not stop: kill it")
}

func (p postmaster) waitUntilGone(ctx context.Context) bool {
	for {
		if reap(p.pid) || !p.alive() {
			return true
		}
		if pause.For(ctx, poll) != nil {
			return false
		}
	}
}

// reap reports whether a process is an ended child, and reaps it. No goroutine waits for the server,
// because it may outlive this process.
func reap(pid int) (ended bool) {
	for {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return got == pid
	}
}

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

// How long a stop may take before it is made harder: a fast stop ends sessions
// and writes everything out; an immediate one leaves that to the next start.
const (
	fastStop      = 30 * time.Second
	immediateStop = 10 * time.Second
)

// postmaster is what a server writes about itself into its data folder.
type postmaster struct {
	pid  int
	data string // as the server was told
}

func (h home) pidFile() string { return filepath.Join(h.data(), "postmaster.pid") }

// postmaster finds the server that runs here. A file that a killed server left
// names a process that is gone, or by now is somebody else's.
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

// alive tells whether the process exists and is the server of that folder: its
// command line says so. Only that is readable by every user on every system.
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

// removeStale clears what a killed server left. Postgres does that by itself,
// except when the process id has been given to another process since.
func (h home) removeStale() error {
	if _, running := h.postmaster(); running {
		return nil
	}
	if err := os.Remove(h.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove what a killed Postgres left: %w", err)
	}
	return nil
}

// stop ends the server and waits until it is gone.
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
			return fmt.Errorf("was told to stop and has not finished: %w", context.Cause(ctx))
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

// reap tells whether a process is a child of this one and has ended, and takes
// note of its end. There is no goroutine that waits for the server: it may well
// outlive this process.
func reap(pid int) (ended bool) {
	for {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return got == pid
	}
}

package tests_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for an event: far above what any takes.
var patience = time.Duration(faults(3, 4)) * time.Minute

// A process is a program that runs, with all that it writes.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	said *transcript
	done chan struct{}
	err  error // of Wait; valid when done is closed
}

// startProcess starts a program in dir with exactly this environment. When the
// test ends it is resumed, told to stop, and killed if that does not help.
func startProcess(t testing.TB, name, dir string, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, said: newTranscript(), done: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(p.end)
	return p
}

// signal sends a signal to this process and no other.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v: %v", p.name, s, err)
	}
}

// kill ends the process as a power cut would, and returns when it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// wait returns the exit code; -1: a signal ended it.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%s does not end; it said:\n%s", p.name, p.said.tail())
		return 0
	}
}

// terminate asks the process to end and returns its exit code.
func (p *process) terminate() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.wait()
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// await returns when the process has written text.
func (p *process) await(text string) {
	p.t.Helper()
	if err := p.heard(text); err != nil {
		p.t.Fatal(err)
	}
}

// heard is await for a goroutine that must not end the test.
func (p *process) heard(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.said.await(ctx, text, p.done); err != nil {
		return fmt.Errorf("%s did not say %q: %w; it said:\n%s", p.name, text, err, p.said.tail())
	}
	return nil
}

// end is the clean-up: nothing is left running.
func (p *process) end() {
	if p.running() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience):
			p.t.Errorf("%s does not end on SIGTERM", p.name)
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	if p.t.Failed() {
		p.t.Logf("%s said:\n%s", p.name, p.said.tail())
	}
	for _, trace := range []string{"panic: ", "DATA RACE", "goroutine 1 ["} {
		if strings.Contains(p.said.String(), trace) {
			p.t.Errorf("%s wrote %q:\n%s", p.name, trace, p.said.tail())
		}
	}
}

// A transcript is what a process wrote. It can be waited on.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed and replaced at each write
}

func newTranscript() *transcript { return &transcript{more: make(chan struct{})} }

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(b)
}

func (s *transcript) String() string {
	text, _ := s.read()
	return text
}

func (s *transcript) read() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.more
}

// tail is the end of what was written, for messages.
func (s *transcript) tail() string {
	text := s.String()
	if len(text) > 8000 {
		return "..." + text[len(text)-8000:]
	}
	return text
}

var errEnded = errors.New("it has ended")

func (s *transcript) await(ctx context.Context, text string, ended <-chan struct{}) error {
	for over := false; ; {
		said, more := s.read()
		if strings.Contains(said, text) {
			return nil
		}
		if over {
			return errEnded
		}
		select {
		case <-more:
		case <-ended:
			over = true // what it wrote last may have come meanwhile
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

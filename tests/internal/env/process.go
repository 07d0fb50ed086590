package env

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Process is a started program with its output.
type Process struct {
	T      testing.TB
	Name   string
	Cmd    *exec.Cmd
	Output *Transcript
	done   chan struct{}
	err    error // error of Wait; valid when done is closed
}

// StartProcess starts a program in dir with exactly this environment. When the test ends, Stop
// stops it.
func StartProcess(t testing.TB, name, dir string, environ []string, program string, args ...string) *Process {
	t.Helper()
	p := &Process{T: t, Name: name, Output: NewTranscript(), done: make(chan struct{})}
	p.Cmd = exec.Command(program, args...)
	p.Cmd.Dir, p.Cmd.Env = dir, environ
	// A worker hides its folder and environment. testrun finds a leftover worker by this argument.
	p.Cmd.Args[0] = filepath.Join(dir, filepath.Base(program))
	p.Cmd.Stdout, p.Cmd.Stderr = p.Output, p.Output
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.Cmd.Wait()
	}()
	t.Cleanup(p.Stop)
	return p
}

// Signal sends a signal to this process, not to its children.
func (p *Process) Signal(s syscall.Signal) {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.T.Fatalf("%s: %v: %v", p.Name, s, err)
	}
}

// Kill ends the process as a power cut would, and waits until it has ended.
func (p *Process) Kill() {
	p.T.Helper()
	p.Signal(syscall.SIGKILL)
	p.Wait()
}

// Wait waits until the process ends and returns its exit code, or -1 if a signal ended it.
func (p *Process) Wait() int {
	p.T.Helper()
	select {
	case <-p.done:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		p.T.Fatalf("timeout waiting until %s ends; output:\n%s", p.Name, p.Output.Tail())
		return 0
	}
}

// Terminate sends SIGTERM, waits until the process ends, and returns its exit code.
func (p *Process) Terminate() int {
	p.T.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait()
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Await waits until the process has written text.
func (p *Process) Await(text string) {
	p.T.Helper()
	if err := p.TryAwait(text); err != nil {
		p.T.Fatal(err)
	}
}

// TryAwait is like Await, but returns the error. It may be called from any goroutine.
func (p *Process) TryAwait(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := p.Output.Await(ctx, text, p.done); err != nil {
		return fmt.Errorf("%s did not write %q: %w; output:\n%s", p.Name, text, err, p.Output.Tail())
	}
	return nil
}

// Stop resumes and terminates the process, and kills it if it does not end. It fails the test if the
// output shows a panic or a data race.
func (p *Process) Stop() {
	if p.Running() {
		_ = p.Cmd.Process.Signal(syscall.SIGCONT)
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(Patience):
			p.T.Errorf("%s did not end after SIGTERM", p.Name)
			_ = p.Cmd.Process.Kill()
			<-p.done
		}
	}
	if p.T.Failed() {
		p.T.Logf("output of %s:\n%s", p.Name, p.Output.Tail())
	}
	for _, trace := range []string{"panic: ", "DATA RACE", "goroutine 1 ["} {
		if strings.Contains(p.Output.String(), trace) {
			p.T.Errorf("%s wrote %q:\n%s", p.Name, trace, p.Output.Tail())
		}
	}
}

// A Transcript is the output of a process so far.
type Transcript struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed and replaced at each write
}

// NewTranscript returns an empty transcript.
func NewTranscript() *Transcript { return &Transcript{more: make(chan struct{})} }

func (s *Transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(b)
}

func (s *Transcript) String() string {
	text, _ := s.read()
	return text
}

func (s *Transcript) read() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.more
}

// Tail returns the last 8000 bytes, for failure messages.
func (s *Transcript) Tail() string {
	text := s.String()
	if len(text) > 8000 {
		return "..." + text[len(text)-8000:]
	}
	return text
}

var errEnded = errors.New("the process has ended")

// Await waits until text has been written. It fails when ctx ends, or when ended is closed and the
// output does not contain text.
func (s *Transcript) Await(ctx context.Context, text string, ended <-chan struct{}) error {
	for over := false; ; {
		written, more := s.read()
		if strings.Contains(written, text) {
			return nil
		}
		if over {
			return errEnded
		}
		select {
		case <-more:
		case <-ended:
			over = true // look once more: the last output may contain text
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

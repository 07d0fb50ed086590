package env

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patience is the timeout of every wait for an event. It is far longer than any takes.
var Patience = time.Duration(FaultCount(3, 4)) * time.Minute

// A Process is a program that runs, with all that it writes.
type Process struct {
	T      testing.TB
	Name   string
	Cmd    *exec.Cmd
	Output *Transcript
	done   chan struct{}
	err    error // error of Wait; valid when done is closed
}

// StartProcess starts a program in dir with exactly this environment. When the
// test ends it is resumed, told to stop, and killed if that does not help.
func StartProcess(t testing.TB, name, dir string, environ []string, program string, args ...string) *Process {
	t.Helper()
	p := &Process{T: t, Name: name, Output: NewTranscript(), done: make(chan struct{})}
	p.Cmd = exec.Command(program, args...)
	p.Cmd.Dir, p.Cmd.Env = dir, environ
	// A worker hides its folder and environment: testrun finds what is left behind by this name.
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

// Signal sends a signal to this process and no other.
func (p *Process) Signal(s syscall.Signal) {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.T.Fatalf("%s: %v: %v", p.Name, s, err)
	}
}

// Kill ends the process as a power cut would, and returns when it is gone.
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
		p.T.Fatalf("%s does not end; it said:\n%s", p.Name, p.Output.Tail())
		return 0
	}
}

// Terminate asks the process to end and returns its exit code.
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

// TryAwait is like Await, for a goroutine that must not end the test.
func (p *Process) TryAwait(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := p.Output.Await(ctx, text, p.done); err != nil {
		return fmt.Errorf("%s did not say %q: %w; it said:\n%s", p.Name, text, err, p.Output.Tail())
	}
	return nil
}

// Stop ends the process when the test ends, so that nothing is left running.
func (p *Process) Stop() {
	if p.Running() {
		_ = p.Cmd.Process.Signal(syscall.SIGCONT)
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(Patience):
			p.T.Errorf("%s does not end on SIGTERM", p.Name)
			_ = p.Cmd.Process.Kill()
			<-p.done
		}
	}
	if p.T.Failed() {
		p.T.Logf("%s said:\n%s", p.Name, p.Output.Tail())
	}
	for _, trace := range []string{"panic: ", "DATA RACE", "goroutine 1 ["} {
		if strings.Contains(p.Output.String(), trace) {
			p.T.Errorf("%s wrote %q:\n%s", p.Name, trace, p.Output.Tail())
		}
	}
}

var apiLine = regexp.MustCompile(`(?m)^  api +(http://\S+)$`)

// APIURL returns the base URL of a worker's HTTP API, which the worker writes when it starts.
func (p *Process) APIURL() string {
	p.T.Helper()
	p.Await("\n  api ")
	p.Await("\n  agents ")
	found := apiLine.FindStringSubmatch(p.Output.String())
	if found == nil {
		p.T.Fatalf("%s did not say where its API is:\n%s", p.Name, p.Output.Tail())
	}
	return found[1]
}

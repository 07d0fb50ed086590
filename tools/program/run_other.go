//go:build !linux

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// run runs the program. It returns when the program has ended, or killTime
// after ctx ended. An error means that the program did not end by itself; then
// stdout and stderr must not be read.
func (x execution) run(ctx context.Context, stdout, stderr io.Writer) (exit, error) {
	cmd := exec.CommandContext(ctx, x.path)
	cmd.Args, cmd.Dir, cmd.Env = x.argv, x.dir, x.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(x.stdin), stdout, stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return killFamily(cmd) }, killTime
	alone(cmd)
	if err := cmd.Start(); err != nil {
		return exit{}, fmt.Errorf("the program cannot be started: %w", err)
	}
	err := cmd.Wait()
	_ = killFamily(cmd) // kills what the program left behind
	if ctx.Err() != nil {
		return exit{}, context.Cause(ctx)
	}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended && !errors.Is(err, exec.ErrWaitDelay) {
		return exit{}, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return exit{Code: code}, nil
	}
	return exit{Signal: cmd.ProcessState.String()}, nil
}

// startProcess starts the program with these files.
func (x execution) startProcess(stdin, stdout, stderr *os.File) (*Process, error) {
	cmd := exec.Command(x.path) //nolint:noctx // Kill ends it
	cmd.Args, cmd.Dir, cmd.Env = x.argv, x.dir, x.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdin, stdout, stderr, killTime
	alone(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the program cannot be started: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
		_ = killFamily(cmd) // kills what the program left behind
	}()
	return &Process{
		done: done, kill: func() { _ = killFamily(cmd) },
		ended: func() string { return "ended (" + cmd.ProcessState.String() + ")" },
	}, nil
}

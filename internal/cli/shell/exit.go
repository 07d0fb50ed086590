package shell

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"turnkeeper"
)

// Exit codes of all commands.
const (
	ExitOK       = 0 // done
	ExitFailure  = 1 // the command failed, or could not reach something
	ExitUsage    = 2 // the command line, the settings or the input are wrong
	ExitNotFound = 3 // nothing has that id or name
	ExitNoReply  = 4 // enqueue --wait: no reply in time; the message stays accepted
	ExitNotDone  = 5 // enqueue --wait, turnctl events --follow: it failed or was cancelled
	// turnctl cancel, finish, retry, schedules run, webhooks, init: not possible in the current state; tools call: not
	// confirmed
	ExitRefused  = 6
	ExitDegraded = 7   // enqueue --wait: the reply is degraded, so incomplete
	ExitSignal   = 130 // stopped by a signal before the end
)

// ExitHelp lists the exit codes of every command.
const ExitHelp = `Exit codes:
  0  done
  1  the command failed, or could not reach something
  2  the command line, the settings or the input are wrong
  3  nothing has that id or name`

// An ExitError ends the program with its exit code. An empty text is not
// printed.
type ExitError struct {
	code int
	err  error
}

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

var errSilent = errors.New("")

// Misused returns an error with the exit code for a wrong command line.
func Misused(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// NotFound returns an error with the exit code for an unknown id or name.
func NotFound(format string, args ...any) error {
	return &ExitError{ExitNotFound, fmt.Errorf(format, args...)}
}

// Silent returns an error with an exit code that prints nothing.
func Silent(code int) error { return &ExitError{code, errSilent} }

// exitCode returns the exit code for err. An error from before the command
// began is a wrong command line.
func exitCode(err error, began bool) int {
	if err == nil {
		return ExitOK
	}
	if coded, ok := errors.AsType[*ExitError](err); ok {
		return coded.code
	}
	switch {
	case !began:
		return ExitUsage
	case errors.Is(err, turnkeeper.ErrEmptyMessage), errors.Is(err, turnkeeper.ErrInvalidMessage),
		errors.Is(err, turnkeeper.ErrUnknownAgent), errors.Is(err, turnkeeper.ErrAgentRetired),
		errors.Is(err, turnkeeper.ErrKeyConflict):
		return ExitUsage
	case errors.Is(err, turnkeeper.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return ExitSignal
	default:
		return ExitFailure
	}
}

// unread reports whether the reader of the output is gone, as after "| head".
func unread(err error) bool { return errors.Is(err, syscall.EPIPE) }

// Refused returns an error with the exit code for what is not possible in the current state.
func Refused(err error) error { return &ExitError{ExitRefused, err} }

// RefusedHelp lists the exit codes of a command that may be refused.
const RefusedHelp = ExitHelp + `
  6  refused: not possible in the current state`

// Wrong returns err with the exit code for wrong settings or input.
func Wrong(err error) error { return &ExitError{ExitUsage, err} }

// Exit returns err with an exit code.
func Exit(code int, err error) error { return &ExitError{code, err} }

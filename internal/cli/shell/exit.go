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
	ExitOK       = 0   // done
	ExitFailure  = 1   // it failed, or something could not be reached
	ExitUsage    = 2   // the command line, the settings or the input are wrong
	ExitNotFound = 3   // there is nothing with that id or name
	ExitNoReply  = 4   // enqueue --wait: no reply in time; the message stays accepted
	ExitNotDone  = 5   // enqueue --wait, turnctl events --follow: it failed or was cancelled
	ExitRefused  = 6   // turnctl cancel, retry, webhooks, init: not possible as things stand; tools call: not confirmed
	ExitDegraded = 7   // enqueue --wait: the reply is degraded, not all that was asked for
	ExitSignal   = 130 // stopped by a signal before it was done
)

// ExitHelp lists the exit codes that every command may end with.
const ExitHelp = `Exit codes:
  0  done
  1  it failed, or something could not be reached
  2  the command line, the settings or the input are wrong
  3  there is nothing with that id or name`

// An ExitError ends the program with its code. An empty text is not printed:
// all has been said.
type ExitError struct {
	code int
	err  error
}

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

var errSilent = errors.New("")

// Misused ends the program with the code for a wrong command line.
func Misused(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// NotFound ends the program with the code for what is not there.
func NotFound(format string, args ...any) error {
	return &ExitError{ExitNotFound, fmt.Errorf(format, args...)}
}

// Silent ends the program with a code and no more words.
func Silent(code int) error { return &ExitError{code, errSilent} }

// exitCode says how a command ends that returned err. Whatever went wrong
// before the command itself began is a fault of the command line.
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
		errors.Is(err, turnkeeper.ErrUnknownAgent), errors.Is(err, turnkeeper.ErrAgentRetired), errors.Is(err, turnkeeper.ErrKeyConflict):
		return ExitUsage
	case errors.Is(err, turnkeeper.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return ExitSignal
	default:
		return ExitFailure
	}
}

// unread says that nobody reads the output any more, as after "| head".
func unread(err error) bool { return errors.Is(err, syscall.EPIPE) }

// Refused ends the program with the code for what is not possible as things stand.
func Refused(err error) error { return &ExitError{ExitRefused, err} }

// RefusedHelp lists the exit codes of a command that may be refused.
const RefusedHelp = ExitHelp + `
  6  refused: not possible as things stand`

// Wrong ends the program with the code for settings or input that are wrong.
func Wrong(err error) error { return &ExitError{ExitUsage, err} }

// Exit ends the program with a code and with what err says.
func Exit(code int, err error) error { return &ExitError{code, err} }

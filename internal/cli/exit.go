package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"turnkeeper"
	"turnkeeper/internal/app"
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

const exitHelp = `Exit codes:
  0  done
  1  it failed, or something could not be reached
  2  the command line, the settings or the input are wrong
  3  there is nothing with that id or name`

// turnctlExitHelp lists what any command of turnctl may end with.
const turnctlExitHelp = exitHelp + `
  5  events --follow: the turn failed or was cancelled
  6  cancel, retry, webhooks, init: not possible as things stand; tools call: not confirmed
  130  stopped by a signal before it was done`

const workerExitHelp = `Exit codes:
  0  stopped by one signal; every turn has finished or was handed back
  1  told twice to stop; or a turn did not stop in time; or it could not start
  2  the command line, the settings or the agents' files are wrong
  130  stopped by a signal before it took work`

const enqueueExitHelp = exitHelp + `
  4  --wait: no reply in time; the message stays accepted
  5  --wait: the message failed or was cancelled; its reply, if any, is printed
  7  --wait: the reply is degraded, not all that was asked for; its text, if any, is printed
  130  stopped by a signal before it was done`

// A codedError ends the program with its code. An empty text is not printed:
// all has been said.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

var errSilent = errors.New("")

func usageError(format string, args ...any) error {
	return &codedError{ExitUsage, fmt.Errorf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &codedError{ExitNotFound, fmt.Errorf(format, args...)}
}

// silent ends the program with a code and no more words.
func silent(code int) error { return &codedError{code, errSilent} }

// exitCode says how a command ends that returned err. Whatever went wrong
// before the command itself began is a fault of the command line.
func exitCode(err error, began bool) int {
	if err == nil {
		return ExitOK
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	switch {
	case !began:
		return ExitUsage
	case errors.Is(err, turnkeeper.ErrEmptyMessage), errors.Is(err, turnkeeper.ErrInvalidMessage),
		errors.Is(err, turnkeeper.ErrUnknownAgent), errors.Is(err, turnkeeper.ErrAgentRetired), errors.Is(err, turnkeeper.ErrKeyConflict), errors.Is(err, app.ErrAgents):
		return ExitUsage
	case errors.Is(err, turnkeeper.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return ExitSignal
	default:
		return ExitFailure
	}
}

// unread says that nobody reads the output any more, as after "| head".
func unread(err error) bool { return errors.Is(err, syscall.EPIPE) }

package shell

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is why a context ended that a signal has ended.
var ErrInterrupted = errors.New("stopped by a signal")

// untilSignals returns two contexts: soft ends at the first SIGINT or SIGTERM,
// hard at the second. stop gives the signals back.
func untilSignals() (soft, hard context.Context, stop func()) {
	soft, endSoft := context.WithCancelCause(context.Background())
	hard, endHard := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// A reader that went away ("| head") is an error of the write, not the end
	// of the process: a private database is put down in good order first.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for _, end := range []context.CancelCauseFunc{endSoft, endHard} {
			select {
			case <-signals:
				end(ErrInterrupted)
			case <-done:
				return
			}
		}
	}()
	return soft, hard, func() {
		signal.Stop(signals)
		close(done)
		endSoft(nil)
		endHard(nil)
	}
}

package shell

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is the cause of a context that a signal has ended.
var ErrInterrupted = errors.New("stopped by a signal")

// untilSignals returns two contexts: soft ends at the first SIGINT or SIGTERM,
// hard at the second. stop restores the handling of signals.
func untilSignals() (soft, hard context.Context, stop func()) {
	soft, endSoft := context.WithCancelCause(context.Background())
	hard, endHard := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// If the reader of the output is gone ("| head"), a write fails instead of
	// SIGPIPE ending the process: a private database must be stopped first.
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

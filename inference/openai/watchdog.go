package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A watchdog cancels a call that has received no byte for a while. Comments of a stream count.
type watchdog struct {
	idle  time.Duration
	timer *time.Timer
}

func newWatchdog(idle time.Duration, cancel context.CancelCauseFunc) *watchdog {
	return &watchdog{idle, time.AfterFunc(idle, func() {
		cancel(fmt.Errorf("%w for %s", errIdle, idle))
	})}
}

var errIdle = errors.New("the provider sent nothing")

func (w *watchdog) reset() { w.timer.Reset(w.idle) }

func (w *watchdog) stop() { w.timer.Stop() }

// A watched reader resets a watchdog, and returns at most left bytes.
type watched struct {
	io.Reader
	watchdog *watchdog
	left     int64
}

var errTooLarge = errors.New("the answer is larger than the client accepts")

func (w *watched) Read(p []byte) (int, error) {
	if w.left <= 0 {
		return 0, errTooLarge
	}
	n, err := w.Reader.Read(p[:min(int64(len(p)), w.left)])
	if n > 0 {
		w.watchdog.reset()
		w.left -= int64(n)
	}
	return n, err
}

package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A watchdog ends a call that has sent no byte for a while. Any byte feeds it,
// comments of a stream included.
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

func (w *watchdog) feed() { w.timer.Reset(w.idle) }

func (w *watchdog) stop() { w.timer.Stop() }

// A watched reader feeds a watchdog, and gives at most a number of bytes.
type watched struct {
	io.Reader
	dog  *watchdog
	left int64
}

var errTooLarge = errors.New("the answer is larger than the client accepts")

func (w *watched) Read(p []byte) (int, error) {
	if w.left <= 0 {
		return 0, errTooLarge
	}
	n, err := w.Reader.Read(p[:min(int64(len(p)), w.left)])
	if n > 0 {
		w.dog.feed()
		w.left -= int64(n)
	}
	return n, err
}

package lease

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// A Heart writes the heartbeat of a worker process.
type Heart struct {
	beat     func(context.Context) error
	silence  time.Duration // after which others may take over; 0: only at the end of a lease
	interval time.Duration
	log      *zap.Logger

	mu   sync.Mutex
	last time.Time // when the last successful beat was sent
}

// maxInterval is the longest time between two beats.
const maxInterval = 5 * time.Second

// NewHeart returns a Heart. beat writes one heartbeat. silence is the takeover time: others
// may take the process's turns after it has been silent for that long. 0 means that they
// wait for the leases to end.
func NewHeart(beat func(context.Context) error, silence time.Duration, log *zap.Logger) *Heart {
	interval := maxInterval
	if silence > 0 {
		interval = min(interval, silence/5)
	}
	return &Heart{beat: beat, silence: silence, interval: interval, log: log}
}

// Beat writes one heartbeat now.
func (h *Heart) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.interval*2)
	defer cancel()
	sent := time.Now()
	if err := h.beat(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if sent.After(h.last) {
		h.last = sent
	}
	return nil
}

// The process gives up its turns after this share of the takeover time.
const patienceNum, patienceDen = 2, 3

// Run beats until ctx ends. If no beat has succeeded for two thirds of the takeover time, it
// calls lost with ErrSilent. lost must end the process's turns with this cause. It is called once until
// a beat succeeds again. Beat must have succeeded once before Run.
func (h *Heart) Run(ctx context.Context, lost func(cause error)) {
	tick := time.NewTicker(h.interval)
	defer tick.Stop()
	silent := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		beating := make(chan error, 1)
		go func() { beating <- h.Beat(ctx) }()
		err := h.await(ctx, beating, &silent, lost)
		switch {
		case err == nil:
			silent = false
		case ctx.Err() == nil:
			h.log.Warn("cannot write the heartbeat", zap.Error(err), zap.Duration("silent", h.Silent()))
		}
	}
}

// await waits for a beat, and calls lost if the deadline passes meanwhile.
func (h *Heart) await(ctx context.Context, beating <-chan error, silent *bool, lost func(cause error)) error {
	for {
		var over <-chan time.Time
		if h.silence > 0 && !*silent {
			timer := time.NewTimer(time.Until(h.deadline()))
			defer timer.Stop()
			over = timer.C
		}
		select {
		case err := <-beating:
			if err != nil && h.silence > 0 && !*silent && !time.Now().Before(h.deadline()) {
				*silent = true
				lost(ErrSilent)
			}
			return err
		case <-over:
			*silent = true
			h.log.Error("cannot write the heartbeat for too long; giving up this worker's turns",
				zap.Duration("silent", h.Silent()), zap.Duration("takeover_after", h.silence))
			lost(ErrSilent)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deadline returns the time at which the process must give up its turns.
func (h *Heart) deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.Add(h.silence * patienceNum / patienceDen)
}

// Silent returns the time since the last successful beat was sent.
func (h *Heart) Silent() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.last)
}

package lease

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// A Heart beats for a worker process.
type Heart struct {
	beat     func(context.Context) error
	silence  time.Duration // after which others may take over; 0: never
	interval time.Duration
	log      *zap.Logger

	mu   sync.Mutex
	last time.Time // when the newest beat that arrived was sent
}

// beatEvery is how often a heart beats when nobody takes over early.
const beatEvery = 5 * time.Second

// NewHeart returns a heart whose beat writes one sign of life. silence is what
// the process promised: others may take its turns when it has been silent for
// that long; 0 means they wait for the leases to end.
func NewHeart(beat func(context.Context) error, silence time.Duration, log *zap.Logger) *Heart {
	interval := beatEvery
	if silence > 0 {
		interval = min(interval, silence/5)
	}
	return &Heart{beat: beat, silence: silence, interval: interval, log: log}
}

// Beat writes one sign of life now.
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

// The part of the promised silence after which the process gives
// its own turns up: well before others take them.
const patienceNum, patienceDen = 2, 3

// Run beats until ctx ends. When no beat has arrived for two thirds of the
// promised silence, it calls lost, once for each such silence; the caller ends
// its turns then. Beat must have succeeded once before.
func (h *Heart) Run(ctx context.Context, lost func()) {
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
			h.log.Warn("the heartbeat could not be written", zap.Error(err), zap.Duration("silent", h.Silent()))
		}
	}
}

// await waits for a beat, and calls lost when patience ends meanwhile.
func (h *Heart) await(ctx context.Context, beating <-chan error, silent *bool, lost func()) error {
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
				lost()
			}
			return err
		case <-over:
			*silent = true
			h.log.Error("the heartbeat could not be written for too long: this worker gives its turns up",
				zap.Duration("silent", h.Silent()), zap.Duration("takeover_after", h.silence))
			lost()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *Heart) deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.Add(h.silence * patienceNum / patienceDen)
}

// Silent is how long ago the newest beat that arrived was sent.
func (h *Heart) Silent() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.last)
}

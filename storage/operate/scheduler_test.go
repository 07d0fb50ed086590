package operate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/survival"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// changes are what operators change that a tick reads, and whether the change waits for the tick in progress. One that
// only allows more need not: the next tick finds it.
var changes = []struct {
	name  string
	waits bool
	make  func(ctx context.Context, c *operate.Control) error
}{
	{"to pause the scheduler", true, func(ctx context.Context, c *operate.Control) error {
		return c.PauseScheduler(ctx, "repairs")
	}},
	{"to resume the scheduler", false, func(ctx context.Context, c *operate.Control) error {
		return c.ResumeScheduler(ctx)
	}},
	{"to end a hold-off", true, func(ctx context.Context, c *operate.Control) error { return c.EndHold(ctx) }},
	{"to change the intervals", false, func(ctx context.Context, c *operate.Control) error {
		return c.SetScheduler(ctx, time.Minute, 9)
	}},
	{"to pin a level", true, func(ctx context.Context, c *operate.Control) error {
		return c.PinLevel(ctx, operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"})
	}},
	{"to unpin a level", true, func(ctx context.Context, c *operate.Control) error {
		return c.UnpinLevel(ctx, "clerk")
	}},
	{"to retire an agent", true, func(ctx context.Context, c *operate.Control) error {
		return c.RetireAgent(ctx, "clerk")
	}},
	{"to restore an agent", false, func(ctx context.Context, c *operate.Control) error {
		return c.RestoreAgent(ctx, "clerk")
	}},
}

// TestAChangeWaitsForTheTickInProgress makes changes while a tick is in progress that began before them.
func TestAChangeWaitsForTheTickInProgress(t *testing.T) {
	h := newEnv(t)
	for _, c := range changes {
		change := func(ctx context.Context, far *storagetest.DB) error { return c.make(ctx, far.Control) }
		if waits := h.WaitsBehind(func() {}, change, "select turnkeeper.lock_scheduler()"); waits != c.waits {
			t.Errorf("%s waits: %t", c.name, waits)
		}
	}
}

// TestAChangeDuringATickThatDoesNotEnd makes the changes that wait while the process of the scheduler is stopped in a
// tick. They are saved, and say that the tick may not follow them; a hold-off does not end.
func TestAChangeDuringATickThatDoesNotEnd(t *testing.T) {
	h := newEnv(t)
	hasty := storagetest.OpenWith(t, storage.Options{URL: h.URL, LockTimeout: 50 * time.Millisecond})
	h.Exec("update turnkeeper.settings set hold_until = now() + interval '1 hour', hold_reason = 'a test'")
	h.Tick(func(ctx context.Context, _ *grants.Tick) error {
		for _, c := range changes {
			want := operate.ErrTickGoesOn
			switch {
			case !c.waits:
				continue
			case c.name == "to end a hold-off":
				want = operate.ErrHeldUp
			}
			if err := c.make(ctx, hasty.Control); !errors.Is(err, want) {
				t.Errorf("%s fails with %v, want %v", c.name, err, want)
			}
		}
		return nil
	})
	scheduler, err := h.SchedulerSettings(t.Context())
	if err != nil || scheduler.PausedReason != "repairs" || scheduler.HoldUntil.IsZero() {
		t.Errorf("%+v, error %v", scheduler, err)
	}
	if _, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x"}); !errors.Is(err,
		turnkeeper.ErrAgentRetired) {
		t.Errorf("the agent is not retired: %v", err)
	}
}

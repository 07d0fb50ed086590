package scheduler

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/granting"
)

// clockTolerance is the maximum deviation of the database's clock from this process's
// monotonic clock between two ticks. A larger one counts as a step.
const clockTolerance = 2 * time.Second

// newTimeline is the reason of a hold-off that also stops grants: a database that lost
// acknowledged commits may have lost leases.
const newTimeline = "the database has a new timeline"

// A trusted says what a tick may rely on.
type trusted struct {
	time   bool   // the clock: leases that look lapsed are lapsed, and due work is due
	state  bool   // the leases: a lane that looks free is free
	reason string // why something is not trusted; empty: everything is
}

// clockWatch compares the database's clock with this process's monotonic one.
type clockWatch struct {
	database        time.Time // the database's clock at the last reading
	asked, answered time.Time // this process's clock before and after that reading
}

// step returns how far the database's clock has moved since the last reading beyond what this
// process's clock allows, or 0 for the first reading. A slow answer is not a step, nor is a
// pause of this process while it waited for the answer.
func (c *clockWatch) step(database, asked, answered time.Time) time.Duration {
	before := *c
	*c = clockWatch{database, asked, answered}
	if before.asked.IsZero() {
		return 0
	}
	moved := database.Sub(before.database)
	lowest, highest := asked.Sub(before.answered), answered.Sub(before.asked)
	return moved - min(max(moved, lowest), highest)
}

// observeBusy updates the watch while another scheduler ticks, which may be so for a long
// time. If there was a step, it changes nothing, so that this process's next own tick sees the
// step: the other scheduler may have started after it.
func (c *clockWatch) observeBusy(database, asked, answered time.Time) {
	ahead := *c
	if ahead.step(database, asked, answered).Abs() <= clockTolerance {
		*c = ahead
	}
}

// trust decides whether time and state can be trusted, and starts or ends a hold-off. asked
// is the time before the store was read. A hold-off lasts one LeaseTTL: by then, every lease
// granted before it has expired by its holder's clock.
func (s *Scheduler) trust(ctx context.Context, t Tick, sit granting.Snapshot, asked time.Time) (trusted, error) {
	first := s.clock.asked.IsZero()
	step := s.clock.step(sit.Now, asked, time.Now())
	if sit.Now.Before(sit.LastTickAt.Add(-clockTolerance)) {
		step = min(step, sit.Now.Sub(sit.LastTickAt))
	}
	if first && sit.HoldUntil.IsZero() && sit.Now.Before(sit.NewestGrant.Add(-clockTolerance)) {
		step = min(step, sit.Now.Sub(sit.NewestGrant)) // the clock was set back while no scheduler ran
	}
	reason := ""
	switch {
	case sit.SeenTimeline != "" && sit.Timeline != "" && sit.Timeline != sit.SeenTimeline:
		reason = newTimeline
	case step.Abs() > clockTolerance:
		reason = fmt.Sprintf("the database's clock stepped by %s", step.Round(time.Second))
	}
	if reason != "" {
		s.Log.Warn("the scheduler holds off", zap.String("reason", reason), zap.Duration("for", s.LeaseTTL))
		if sit.HoldReason == newTimeline {
			reason = newTimeline
		}
		return held(reason), t.Hold(ctx, sit.Now.Add(s.LeaseTTL), reason)
	}
	switch {
	case sit.HoldUntil.IsZero():
		return trusted{time: true, state: true}, nil
	case sit.Now.Before(sit.HoldUntil):
		return held(sit.HoldReason), nil
	default:
		s.Log.Info("the scheduler continues after a hold-off", zap.String("reason", sit.HoldReason))
		return trusted{time: true, state: true}, t.Hold(ctx, time.Time{}, "")
	}
}

func held(reason string) trusted {
	return trusted{state: reason != newTimeline, reason: reason}
}

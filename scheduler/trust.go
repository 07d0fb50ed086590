package scheduler

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
)

// clockTolerance is how far the database's clock may deviate from this process's
// monotonic clock between two looks before it counts as a step.
const clockTolerance = 2 * time.Second

// newTimeline is the reason of a hold-off that stops grants too: a database that lost
// acknowledged commits may have forgotten who holds what.
const newTimeline = "the database has a new timeline"

// A trusted says what a tick may rely on.
type trusted struct {
	time   bool   // the clock: what looks lapsed or due is
	state  bool   // the leases: a lane that looks free is free
	reason string // why something is not trusted; empty: everything is
}

// clockWatch compares the database's clock with this process's monotonic one.
type clockWatch struct {
	database        time.Time // its clock at the last look
	asked, answered time.Time // it was read between these times of this process's clock
}

// step returns how far the database's clock has moved beyond what this process's clock allows
// since the last look; 0 at the first look. A slow answer is no step, nor is a process that was
// stopped while it waited for the answer.
func (c *clockWatch) step(database, asked, answered time.Time) time.Duration {
	before := *c
	*c = clockWatch{database, asked, answered}
	if before.asked.IsZero() {
		return 0
	}
	moved := database.Sub(before.database)
	least, most := asked.Sub(before.answered), answered.Sub(before.asked)
	return moved - min(max(moved, least), most)
}

// glance takes in a look made while another scheduler ticks. There may be no other look
// for a long time. glance leaves a step for this process's own next tick: the other
// scheduler may have started after the step and know nothing of it.
func (c *clockWatch) glance(database, asked, answered time.Time) {
	ahead := *c
	if ahead.step(database, asked, answered).Abs() <= clockTolerance {
		*c = ahead
	}
}

// trust decides whether time and state can be relied on, and starts or ends a hold-off.
// asked is when the look was sent. A hold-off lasts one lease: by then, every lease
// granted before it has expired by its holder's own clock.
func (s *Scheduler) trust(ctx context.Context, t Tick, sit turnkeeper.Situation, asked time.Time) (trusted, error) {
	first := s.clock.asked.IsZero()
	step := s.clock.step(sit.Now, asked, time.Now())
	if sit.Now.Before(sit.LastTickAt.Add(-clockTolerance)) {
		step = min(step, sit.Now.Sub(sit.LastTickAt))
	}
	if first && sit.HoldUntil.IsZero() && sit.Now.Before(sit.NewestGrant.Add(-clockTolerance)) {
		step = min(step, sit.Now.Sub(sit.NewestGrant)) // nobody saw the clock being set back
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
		// The next look must not see the step again.
		if err := t.Note(ctx, sit.Now, sit.Timeline); err != nil {
			return trusted{}, err
		}
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
		s.Log.Info("the scheduler goes on", zap.String("reason", sit.HoldReason))
		return trusted{time: true, state: true}, t.Hold(ctx, time.Time{}, "")
	}
}

func held(reason string) trusted {
	return trusted{state: reason != newTimeline, reason: reason}
}

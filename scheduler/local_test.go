package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/testrun"
	"turnkeeper/scheduler"
)

// A local is a scheduler.Local that records what it is given.
type local struct {
	slots    int
	reserved []turnkeeper.GrantID
	started  []turnkeeper.TurnID
	ids      int
}

func (l *local) Reserve(n int) (turnkeeper.WorkerID, []turnkeeper.GrantID) {
	var grants []turnkeeper.GrantID
	for range min(n, l.slots-len(l.started)-len(l.reserved)) {
		l.ids++
		grants = append(grants, turnkeeper.GrantID(fmt.Sprint("slot ", l.ids)))
	}
	l.reserved = append(l.reserved, grants...)
	return "me", grants
}

func (l *local) Start(turns []granting.Handed) {
	for _, turn := range turns {
		if !slices.Contains(l.reserved, turn.GrantID) {
			panic("a turn without a slot")
		}
		l.reserved = slices.DeleteFunc(l.reserved, func(g turnkeeper.GrantID) bool { return g == turn.GrantID })
		l.started = append(l.started, turn.TurnID)
	}
}

func (l *local) Release(grants []turnkeeper.GrantID) {
	l.reserved = slices.DeleteFunc(l.reserved, func(g turnkeeper.GrantID) bool { return slices.Contains(grants, g) })
}

var errLost = errors.New("the answer was lost")

// The scheduler starts in its own process the turns for which that has slots, once they are committed, and no
// other turn.
func TestHandOver(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		slots   int
		change  func(w *testEnv)
		started []turnkeeper.TurnID
		fails   bool
	}{
		"slots for all":   {5, nil, []turnkeeper.TurnID{1, 2, 3}, false},
		"slots for some":  {2, nil, []turnkeeper.TurnID{1, 2}, false},
		"no slots":        {0, nil, nil, false},
		"for one by name": {2, func(w *testEnv) { w.messages[0].WorkerID = "other" }, []turnkeeper.TurnID{2, 3}, false},
		"undone":          {5, func(w *testEnv) { w.fail = errLost }, nil, true},
		"answer lost":     {5, func(w *testEnv) { w.lose = errLost }, []turnkeeper.TurnID{1, 2, 3}, true},
		"unknown": {5, func(w *testEnv) {
			w.lose, w.readBack = errLost, func() error { return errLost }
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.messages = inLanes(3)
				if c.change != nil {
					c.change(w)
				}
				l := &local{slots: c.slots}
				_, err := scheduler.New(scheduler.Config{Store: w, Local: l}).Tick(t.Context())
				if (err != nil) != c.fails {
					t.Errorf("the tick returned %v", err)
				}
				if !slices.Equal(l.started, c.started) {
					t.Errorf("started %v, want %v", l.started, c.started)
				}
				if len(l.reserved) > 0 {
					t.Errorf("slots stay reserved: %v", l.reserved)
				}
			})
		})
	}
}

// A tick that fails before its commit, and one whose outcome is read back although the scheduler is stopped.
func TestHandOverOfATickThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.messages = inLanes(1)
		l := &local{slots: 1}
		ctx, cancel := context.WithCancel(t.Context())
		w.lose = errLost
		s := scheduler.New(scheduler.Config{Store: w, Local: l, Fault: pointHook(func(label string) {
			if label == scheduler.PointGranted {
				cancel()
			}
		})})
		if _, err := s.Tick(ctx); err == nil {
			t.Error("the tick did not fail")
		}
		if len(l.started) != 1 || len(l.reserved) != 0 {
			t.Errorf("started %v, reserved %v", l.started, l.reserved)
		}
	})
}

type pointHook func(label string)

func (h pointHook) At(_ context.Context, label string) { h(label) }

// A step that fails after the grants of the same tick takes no slot from the turns that were granted.
func TestAFailedStepKeepsTheGrantedTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.messages = inLanes(1)
		w.sit.Retry, w.sit.Aside, w.forgetting = true, true, errors.New("a row is not a number")
		l := &local{slots: 1}
		w.tick(t, scheduler.New(scheduler.Config{Store: w, Local: l}))
		if len(w.granted) != 1 || len(l.started) != 1 {
			t.Errorf("granted %v, started %v", w.granted, l.started)
		}
	})
}

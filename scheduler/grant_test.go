package scheduler_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
)

func TestOrderOfGrants(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.turns = []granting.Candidate{
			{MessageID: 40, Lane: "taken-back", Rank: at.Add(time.Second)},
		}
		w.messages = []granting.Candidate{
			{New: true, MessageID: 9, Lane: "late", Rank: at.Add(2 * time.Second)},
			{New: true, MessageID: 3, Lane: "a", Rank: at},
			{New: true, MessageID: 2, Lane: "b", Rank: at},
			{New: true, MessageID: 8, Lane: "urgent", Rank: at.Add(-4 * time.Second)},
			{New: true, MessageID: 41, Lane: "taken-back", Rank: at.Add(time.Second)},
		}
		w.tick(t, w.scheduler())
		var ids []turnkeeper.MessageID
		for _, r := range w.granted[0] {
			ids = append(ids, r.MessageID)
		}
		if diff := cmp.Diff([]turnkeeper.MessageID{8, 2, 3, 40, 9}, ids); diff != "" {
			t.Errorf("granted in this order (-want +got):\n%s", diff)
		}
	})
}

func TestRoomBoundsGrants(t *testing.T) {
	cases := map[string]struct {
		room, configured, set int
		lost                  []granting.LostGrant
		want                  int
	}{
		"room for all":                        {room: 10, want: 5},
		"room for some":                       {room: 3, want: 3},
		"no room":                             {room: 0, want: 0},
		"more granted than live workers take": {room: -2, want: 0},
		"the configured bound":                {room: 10, configured: 4, want: 4},
		"the operator's bound":                {room: 10, configured: 4, set: 2, want: 2},
		"the operator's higher bound":         {room: 10, configured: 1, set: 5, want: 5},
		"a lane taken back is room again": {
			room: 0, lost: []granting.LostGrant{{TurnID: 77, MessageID: 77, Lane: "zz", WorkerID: "dead"}}, want: 1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.messages, w.lost = inLanes(5), c.lost
				w.sit.FreeSlots, w.sit.MaxDispatches = c.room, c.set
				s := scheduler.New(scheduler.Config{Store: w, MaxDispatches: c.configured})
				if report := w.tick(t, s); report.Granted != c.want {
					t.Errorf("granted %d, want %d", report.Granted, c.want)
				}
			})
		})
	}
}

func TestPausedGrantsNothingButBringsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.sit.Paused = true
		w.messages = inLanes(2)
		w.lost = []granting.LostGrant{{TurnID: 7, MessageID: 7, Lane: "x", WorkerID: "dead"}}
		w.schedules = []granting.DueSchedule{{Name: "s", Cron: "* * * * *", NextDue: time.Now().Add(-time.Hour)}}
		s := w.scheduler()
		w.tick(t, s)
		if len(w.granted) > 0 || len(w.slots) > 0 {
			t.Errorf("a paused scheduler granted %v and made slots %v", w.granted, w.slots)
		}
		if diff := cmp.Diff([]turnkeeper.TurnID{7}, w.requeued); diff != "" {
			t.Error(diff)
		}
		w.sit.Paused = false
		w.tick(t, s)
		if len(w.granted) != 1 || len(w.granted[0]) != 3 || len(w.slots) != 1 {
			t.Errorf("after the pause: granted %v, slots %v", w.granted, w.slots)
		}
	})
}

func TestLostGrants(t *testing.T) {
	cases := map[string]struct {
		lost     granting.LostGrant
		max      int
		requeued bool
	}{
		"first loss":               {granting.LostGrant{WorkerID: "w", Losses: 0}, 0, true},
		"second loss":              {granting.LostGrant{WorkerID: "w", Losses: 1, Lapsed: true}, 0, true},
		"third loss":               {granting.LostGrant{WorkerID: "w", Losses: 2}, 0, false},
		"first loss of one":        {granting.LostGrant{WorkerID: "w", Losses: 0}, 1, false},
		"nobody took it":           {granting.LostGrant{Losses: 0, Lapsed: true}, 0, true},
		"nobody took it after two": {granting.LostGrant{Losses: 2, Lapsed: true}, 0, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				c.lost.TurnID = 5
				w.lost = []granting.LostGrant{c.lost}
				report := w.tick(t, scheduler.New(scheduler.Config{Store: w, MaxLosses: c.max}))
				got := slices.Contains(w.requeued, 5)
				if got != c.requeued || slices.Contains(w.closed, 5) == c.requeued || report.Requeued+
					report.Closed != 1 {
					t.Errorf("requeued %v, closed %v; want requeued %v", w.requeued, w.closed, c.requeued)
				}
			})
		})
	}
}

func TestManyLostGrantsAreBroughtBackAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		for i := range 250 {
			w.lost = append(w.lost, granting.LostGrant{TurnID: turnkeeper.TurnID(i + 1), WorkerID: "w"})
		}
		w.sit.Paused = true
		w.runFor(t, time.Second, scheduler.Config{})
		if len(w.requeued) != 250 {
			t.Errorf("brought back %d of 250 within one poll", len(w.requeued))
		}
	})
}

func TestBackoff(t *testing.T) {
	want := []time.Duration{0, 2, 4, 8, 16, 32, 64, 120, 120}
	for n, seconds := range want {
		if got := scheduler.Backoff(n); got != seconds*time.Second {
			t.Errorf("after %d failures: %v, want %v", n, got, seconds*time.Second)
		}
	}
	for _, n := range []int{-1, 64, 1 << 40} {
		if got := scheduler.Backoff(n); got < 0 || got > 120*time.Second {
			t.Errorf("after %d failures: %v", n, got)
		}
	}
}

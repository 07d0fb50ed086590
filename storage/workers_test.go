package storage_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

func (h *house) beat(id turnkeeper.WorkerID, slots int, takeover time.Duration) {
	h.t.Helper()
	err := h.Beat(h.t.Context(), turnkeeper.Heartbeat{WorkerID: id, Host: "here", PID: 1, Version: "v", Slots: slots, TakeoverAfter: takeover})
	if err != nil {
		h.t.Fatal(err)
	}
}

// silence makes a worker's last beat so long ago.
func (h *house) silence(id turnkeeper.WorkerID, d time.Duration) {
	h.t.Helper()
	h.exec("update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() - $2::interval where worker_id = $1", id, d)
}

func (h *house) look() (sit turnkeeper.Situation, lost []turnkeeper.LostGrant) {
	h.t.Helper()
	err := h.InTick(h.t.Context(), func(tick *storage.Tick) (err error) {
		if sit, _, err = tick.Look(h.t.Context()); err != nil {
			return err
		}
		lost, err = tick.Lost(h.t.Context(), 10)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return sit, lost
}

func TestHeartbeats(t *testing.T) {
	h := newHouse(t)
	h.beat("w", 5, 15*time.Second)
	h.beat("w", 3, 15*time.Second)
	all, err := h.Workers(t.Context())
	if err != nil || len(all) != 1 || all[0].Slots != 3 || all[0].TakeoverAfter != 15*time.Second || !all[0].StoppedAt.IsZero() || all[0].Silent > patience {
		t.Errorf("%+v, error %v", all, err)
	}
	if all[0].BeatAt.Before(all[0].StartedAt) {
		t.Errorf("started %v, beat %v", all[0].StartedAt, all[0].BeatAt)
	}
	if err := h.StopBeating(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	if all, err := h.Workers(t.Context()); err != nil || len(all) != 1 || all[0].StoppedAt.IsZero() || all[0].Slots != 0 {
		t.Errorf("%+v, error %v", all, err)
	}
	h.exec("update turnkeeper.worker_heartbeat set stopped_at = stopped_at - interval '2 days', beat_at = beat_at - interval '2 days'")
	h.beat("young", 1, 0)
	if err := h.ForgetWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := h.Workers(t.Context()); err != nil || len(all) != 1 || all[0].WorkerID != "young" {
		t.Errorf("%+v, error %v", all, err)
	}
}

func TestRoomIsWhatLiveWorkersTake(t *testing.T) {
	h := newHouse(t)
	room := func() int { sit, _ := h.look(); return sit.Room }
	if got := room(); got != 0 {
		t.Errorf("room %d without a worker", got)
	}
	h.beat("a", 5, 15*time.Second)
	h.beat("b", 2, 0)
	if got := room(); got != 7 {
		t.Errorf("room %d, want 7", got)
	}
	h.turn("x")
	if got := room(); got != 6 {
		t.Errorf("room %d beside a running turn, want 6", got)
	}
	h.silence("a", 20*time.Second)
	h.silence("b", 20*time.Second)
	if got := room(); got != -1 {
		t.Errorf("room %d with silent workers, want -1", got)
	}
	h.beat("a", 5, 15*time.Second)
	h.beat("b", 0, 0)
	if got := room(); got != 4 {
		t.Errorf("room %d beside a draining worker, want 4", got)
	}
	if err := h.StopBeating(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := room(); got != -1 {
		t.Errorf("room %d after the stop, want -1", got)
	}
}

func TestLostGrantsAreFoundBySilenceOrByTheLease(t *testing.T) {
	cases := map[string]struct {
		taker    turnkeeper.WorkerID
		takeover time.Duration
		silence  time.Duration
		lapsed   bool
		lost     bool
	}{
		"beats":                              {"w", 15 * time.Second, time.Second, false, false},
		"silent for long enough":             {"w", 15 * time.Second, 16 * time.Second, false, true},
		"silent, not yet long enough":        {"w", time.Minute, 16 * time.Second, false, false},
		"silent, but promised nothing":       {"w", 0, time.Hour, false, false},
		"promised nothing, lease over":       {"w", 0, time.Hour, true, true},
		"beats, lease over":                  {"w", 15 * time.Second, time.Second, true, true},
		"nobody took it":                     {"", 15 * time.Second, time.Hour, false, false},
		"nobody took it, lease over":         {"", 15 * time.Second, time.Hour, true, true},
		"taken by one without a heartbeat":   {"ghost", 15 * time.Second, time.Hour, false, false},
		"by one without heartbeat, is over":  {"ghost", 15 * time.Second, time.Hour, true, true},
		"silent a moment short of its limit": {"w", 10 * time.Minute, 9 * time.Minute, false, false},
	}
	h := newHouse(t)
	for name, c := range cases {
		for _, bound := range []bool{true, false} { // or only fetched by its taker
			t.Run(fmt.Sprintf("%s, bound %t", name, bound), func(t *testing.T) {
				h.beat("w", 1, c.takeover)
				h.exec("update turnkeeper.worker_heartbeat set takeover_after = $1", c.takeover)
				h.silence("w", c.silence)
				h.enqueue("clerk", "", "x")
				d := h.dispatch("")[0]
				h.fetchJob(d.grant.JobID, c.taker)
				if bound && c.taker != "" {
					d = h.take(d.grant.TurnID, d.grant.GrantID, d.grant.JobID, c.taker)
				}
				if c.lapsed {
					h.exec("update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()")
				}
				sit, lost := h.look()
				if sit.Lost != c.lost || (len(lost) == 1) != c.lost {
					t.Errorf("looks lost %v, is listed %v; want %v", sit.Lost, lost, c.lost)
				}
				if c.lost && (lost[0].WorkerID != c.taker || lost[0].Lapsed != c.lapsed || lost[0].TurnID != d.grant.TurnID || lost[0].JobID != d.grant.JobID) {
					t.Errorf("listed as %+v", lost[0])
				}
				h.take(d.grant.TurnID, d.grant.GrantID, d.grant.JobID, cmp.Or(d.grant.WorkerID, "w")).cancel(t)
			})
		}
	}
}

// TestWhichUnclaimedGrantsAreLost has a grant whose job waits in the queue of one worker, which nobody else works.
// Beside it is a turn that has ended with its worker.
func TestWhichUnclaimedGrantsAreLost(t *testing.T) {
	h := newHouse(t)
	h.beat("gone", 1, 15*time.Second)
	h.beat("live", 1, 15*time.Second)
	h.turnOf("clerk", "gone").finish(t, "done")
	h.silence("gone", time.Hour)
	h.exec("update turnkeeper.worker_heartbeat set stopped_at = beat_at where worker_id = 'gone'")
	h.exec("update turnkeeper.river_job set state = 'completed', finalized_at = now()")
	for name, c := range map[string]struct {
		queue      turnkeeper.WorkerID // whose own queue it is; empty: that of all
		fetched    turnkeeper.WorkerID
		bound      turnkeeper.WorkerID
		given, has bool // its job was given back; the grant is lost
	}{
		"it waits for all":                           {},
		"it waits for one that lives":                {queue: "live"},
		"it waits for one that is gone":              {queue: "gone", has: true},
		"it is fetched by one that lives":            {queue: "gone", fetched: "live"},
		"it is bound to one that lives":              {queue: "gone", fetched: "live", bound: "live"},
		"it is bound, and its job was given back":    {queue: "gone", fetched: "live", bound: "live", given: true},
		"its job was given back, to one that lives":  {queue: "live", fetched: "live", given: true},
		"its job was given back, to one that is not": {queue: "gone", fetched: "live", given: true, has: true},
	} {
		h.enqueue("desk", name, "x")
		d := h.dispatch("")[0]
		if c.queue != "" {
			h.exec("update turnkeeper.river_job set queue = 'turns_' || left(encode(sha256(convert_to($2, 'UTF8')), 'hex'), 32) where id = $1", d.grant.JobID, c.queue)
		}
		h.fetchJob(d.grant.JobID, c.fetched)
		if c.bound != "" {
			d = h.take(d.grant.TurnID, d.grant.GrantID, d.grant.JobID, c.bound)
		}
		if c.given {
			h.exec("update turnkeeper.river_job set state = 'available' where id = $1", d.grant.JobID)
		}
		sit, lost := h.look()
		if sit.Lost != c.has || (len(lost) == 1) != c.has || c.has && lost[0].GrantID != d.grant.GrantID {
			t.Errorf("%s: it looks lost: %t, listed are %+v; want %t", name, sit.Lost, lost, c.has)
		}
		h.take(d.grant.TurnID, d.grant.GrantID, d.grant.JobID, "live").cancel(t)
	}
}

// A grant is the worker's that it is bound to, whoever its job was given to.
func TestLostGrantIsThatOfItsWorker(t *testing.T) {
	for name, c := range map[string]struct {
		silent turnkeeper.WorkerID
		lost   int
	}{"its worker is silent": {"worker-1", 1}, "the other is silent": {"worker-2", 0}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.beat("worker-1", 1, 15*time.Second)
			h.beat("worker-2", 1, 15*time.Second)
			d := h.turn("x")
			h.fetchJob(d.grant.JobID, "worker-2")
			h.silence(c.silent, time.Minute)
			sit, lost := h.look()
			if sit.Lost != (c.lost == 1) || len(lost) != c.lost {
				t.Fatalf("looks lost %v, is listed %v; want %d", sit.Lost, lost, c.lost)
			}
			if c.lost == 1 && lost[0].WorkerID != "worker-1" {
				t.Errorf("the lost worker is %s", lost[0].WorkerID)
			}
		})
	}
}

package grants_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"turnkeeper"
	heart "turnkeeper/internal/presence"
	"turnkeeper/storage/storagetest"
)

func TestHeartbeats(t *testing.T) {
	h := newEnv(t)
	h.HeartBeat("w", 5, 15*time.Second)
	h.HeartBeat("w", 3, 15*time.Second)
	all, err := h.Workers(t.Context())
	if err != nil || len(all) != 1 || all[0].Slots != 3 || all[0].TakeoverAfter != 15*time.Second ||
		!all[0].StoppedAt.IsZero() || all[0].Silent > storagetest.Patience {
		t.Errorf("%+v, error %v", all, err)
	}
	if all[0].BeatAt.Before(all[0].StartedAt) {
		t.Errorf("started %v, beat %v", all[0].StartedAt, all[0].BeatAt)
	}
	if err := h.StopBeating(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	if all, err := h.Workers(t.Context()); err != nil || len(all) != 1 || all[0].StoppedAt.IsZero() ||
		all[0].Slots != 0 {
		t.Errorf("%+v, error %v", all, err)
	}
	h.Exec(
		"update turnkeeper.worker_heartbeat set stopped_at = stopped_at - interval '2 days', beat_at = beat_at - interval '2 days'")
	h.HeartBeat("young", 1, 0)
	if err := h.ForgetWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := h.Workers(t.Context()); err != nil || len(all) != 1 || all[0].WorkerID != "young" {
		t.Errorf("%+v, error %v", all, err)
	}
}

func TestRoomIsWhatLiveWorkersTake(t *testing.T) {
	h := newEnv(t)
	room := func() int { sit, _ := h.Snapshot(); return sit.FreeSlots }
	if got := room(); got != 0 {
		t.Errorf("room %d without a worker", got)
	}
	h.HeartBeat("a", 5, 15*time.Second)
	h.HeartBeat("b", 2, 0)
	if got := room(); got != 7 {
		t.Errorf("room %d, want 7", got)
	}
	h.Turn("x")
	if got := room(); got != 6 {
		t.Errorf("room %d beside a running turn, want 6", got)
	}
	h.Silence("a", 20*time.Second)
	h.Silence("b", 20*time.Second)
	if got := room(); got != -1 {
		t.Errorf("room %d with silent workers, want -1", got)
	}
	h.HeartBeat("a", 5, 15*time.Second)
	h.HeartBeat("b", 0, 0)
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
	h := newEnv(t)
	for name, c := range cases {
		for _, bound := range []bool{true, false} { // false: the taker has only fetched the job
			t.Run(fmt.Sprintf("%s, bound %t", name, bound), func(t *testing.T) {
				h.HeartBeat("w", 1, c.takeover)
				h.Exec("update turnkeeper.worker_heartbeat set takeover_after = $1", c.takeover)
				h.Silence("w", c.silence)
				h.Submit("clerk", "", "x")
				d := h.Dispatch("")[0]
				h.FetchJob(d.Grant.JobID, c.taker)
				if bound && c.taker != "" {
					d = h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, c.taker)
				}
				if c.lapsed {
					h.Exec(
						"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()")
				}
				sit, lost := h.Snapshot()
				if sit.Lost != c.lost || (len(lost) == 1) != c.lost {
					t.Errorf("looks lost %v, is listed %v; want %v", sit.Lost, lost, c.lost)
				}
				if c.lost && (lost[0].WorkerID != c.taker || lost[0].Lapsed != c.lapsed ||
					lost[0].TurnID != d.Grant.TurnID || lost[0].JobID != d.Grant.JobID) {
					t.Errorf("listed as %+v", lost[0])
				}
				h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, cmp.Or(d.Grant.WorkerID, "w")).Cancel(t)
			})
		}
	}
}

// TestWhichUnclaimedGrantsAreLost has a grant whose job waits in the queue of one worker, which no
// other worker reads. It also has an ended turn whose worker is gone.
func TestWhichUnclaimedGrantsAreLost(t *testing.T) {
	h := newEnv(t)
	h.HeartBeat("gone", 1, 15*time.Second)
	h.HeartBeat("live", 1, 15*time.Second)
	h.TurnOf("clerk", "gone").Finish(t, "done")
	h.Silence("gone", time.Hour)
	h.Exec("update turnkeeper.worker_heartbeat set stopped_at = beat_at where worker_id = 'gone'")
	h.Exec("update turnkeeper.river_job set state = 'completed', finalized_at = now()")
	for name, c := range map[string]struct {
		queue      turnkeeper.WorkerID // owner of the queue; empty: the queue of all workers
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
		h.Submit("desk", name, "x")
		d := h.Dispatch("")[0]
		if c.queue != "" {
			h.Exec(
				"update turnkeeper.river_job set queue = 'turns_' || left(encode(sha256(convert_to($2, 'UTF8')), 'hex'), 32) where id = $1", d.Grant.JobID, c.queue)
		}
		h.FetchJob(d.Grant.JobID, c.fetched)
		if c.bound != "" {
			d = h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, c.bound)
		}
		if c.given {
			h.Exec("update turnkeeper.river_job set state = 'available' where id = $1", d.Grant.JobID)
		}
		sit, lost := h.Snapshot()
		if sit.Lost != c.has || (len(lost) == 1) != c.has || c.has && lost[0].GrantID != d.Grant.GrantID {
			t.Errorf("%s: it looks lost: %t, listed are %+v; want %t", name, sit.Lost, lost, c.has)
		}
		h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, "live").Cancel(t)
	}
}

// A grant belongs to the worker that it is bound to, whichever worker fetched its job.
func TestLostGrantIsThatOfItsWorker(t *testing.T) {
	for name, c := range map[string]struct {
		silent turnkeeper.WorkerID
		lost   int
	}{"its worker is silent": {"worker-1", 1}, "the other is silent": {"worker-2", 0}} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.HeartBeat("worker-1", 1, 15*time.Second)
			h.HeartBeat("worker-2", 1, 15*time.Second)
			d := h.Turn("x")
			h.FetchJob(d.Grant.JobID, "worker-2")
			h.Silence(c.silent, time.Minute)
			sit, lost := h.Snapshot()
			if sit.Lost != (c.lost == 1) || len(lost) != c.lost {
				t.Fatalf("looks lost %v, is listed %v; want %d", sit.Lost, lost, c.lost)
			}
			if c.lost == 1 && lost[0].WorkerID != "worker-1" {
				t.Errorf("the lost worker is %s", lost[0].WorkerID)
			}
		})
	}
}

// A worker beats while its other work takes all connections of the main pool, for example because it waits for locked
// rows.
func TestBeatBesideABusyPool(t *testing.T) {
	h := newEnv(t)
	for range h.Pool().Config().MaxConns {
		conn, err := h.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), storagetest.Patience)
	defer cancel()
	if err := h.Beat(ctx, heart.Heartbeat{WorkerID: "w", Host: "h", Slots: 1}); err != nil {
		t.Error(err)
	}
}

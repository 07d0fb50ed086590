package storage_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// setBack simulates that the database's clock was set back: it moves all stored times into the
// future.
func (h *env) setBack(by time.Duration) {
	h.T.Helper()
	for _, sql := range []string{
		"update turnkeeper.messages set due_at = due_at + $1::interval, accepted_at = accepted_at + $1, queue_rank = queue_rank + $1",
		"update turnkeeper.leases set granted_at = granted_at + $1::interval, lease_until = lease_until + $1, not_before = not_before + $1",
		"update turnkeeper.turns set created_at = created_at + $1::interval, granted_at = granted_at + $1, lease_until = lease_until + $1, due_at = due_at + $1",
		"update turnkeeper.ended_grants set granted_at = granted_at + $1::interval, lease_until = lease_until + $1, ended_at = ended_at + $1",
		"update turnkeeper.call_starts set started_at = started_at + $1::interval",
		"update turnkeeper.journal set at = at + $1::interval",
		"update turnkeeper.worker_heartbeat set started_at = started_at + $1::interval, beat_at = beat_at + $1",
	} {
		h.Exec(sql, by)
	}
}

// Messages and turns do not wait longer after the clock was set back.
func TestAClockSetBackHoldsNothingUp(t *testing.T) {
	cases := map[string]func(*env){
		"a message": func(h *env) {
			h.Submit("clerk", "", "x")
		},
		"a turn that was handed back": func(h *env) {
			err := h.Turn("x").Append(h.T.Context(),
				turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued}},
				turnlog.Consequence{Log: "handed_back"})
			if err != nil {
				h.T.Fatal(err)
			}
		},
		"a turn of a lost worker": func(h *env) {
			h.Lose(h.Turn("x"))
		},
		"a lane after a failure": func(h *env) {
			err := h.Turn("x").Append(h.T.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
				State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "x", Retry: true,
			}}, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: 2 * time.Second})
			if err != nil {
				h.T.Fatal(err)
			}
		},
	}
	for name, wait := range cases {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			wait(h)
			h.setBack(time.Hour)
			if all := h.Dispatch("w"); len(all) != 1 {
				t.Errorf("%d turns are granted, want 1", len(all))
			}
		})
	}
}

// After a clock step, the scheduler queries lost grants only after it has granted nothing for the
// length of a lease.
func TestLostGrantsWhenTheClockWasSetBack(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	if sit, lost := h.Snapshot(); sit.Lost || len(lost) > 0 {
		t.Fatal("a fresh grant is lost")
	}
	h.setBack(3 * time.Second)
	if sit, lost := h.Snapshot(); sit.Lost || len(lost) > 0 {
		t.Error("a grant is lost because the clock was adjusted by three seconds")
	}
	h.setBack(time.Hour)
	sit, lost := h.Snapshot()
	if !sit.Lost || len(lost) != 1 || lost[0].GrantID != d.Grant.GrantID || !lost[0].Lapsed {
		t.Errorf("a grant of an hour ahead is not lost: %+v", lost)
	}
	if sit.NewestGrant.Sub(sit.Now) < 59*time.Minute {
		t.Errorf("the newest grant was made at %v, it is %v", sit.NewestGrant, sit.Now)
	}
}

func TestSilentWorkersWhenTheClockWasSetBack(t *testing.T) {
	h := newEnv(t)
	h.HeartBeat("worker-1", 5, 15*time.Second)
	h.HeartBeat("patient", 5, 0) // is taken over only when its leases end
	d := h.Turn("x")
	if sit, _ := h.Snapshot(); sit.FreeSlots != 9 {
		t.Fatalf("room for %d turns, want 9", sit.FreeSlots)
	}
	h.setBack(time.Hour)
	h.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = lease_until - interval '1 hour'")
	sit, lost := h.Snapshot()
	if len(lost) != 1 || lost[0].GrantID != d.Grant.GrantID || lost[0].Lapsed {
		t.Errorf("the worker's last beat is an hour ahead: lost are %+v", lost)
	}
	if sit.FreeSlots != -1 {
		t.Errorf("room for %d turns, but nobody is known to live", sit.FreeSlots)
	}
	workers, err := h.Workers(t.Context())
	for _, w := range workers {
		if w.Silent < 0 {
			t.Errorf("worker %s is silent for %v", w.WorkerID, w.Silent)
		}
	}
	h.HeartBeat("worker-1", 5, 15*time.Second)
	if _, lost := h.Snapshot(); err != nil || len(lost) != 0 {
		t.Errorf("the worker beats again; lost are %+v, %v", lost, err)
	}
}

func TestALeaseGetsNoLongerByASetBackClock(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	h.setBack(5 * time.Minute)
	record, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID)
	if err != nil || record.Remaining != storagetest.TTL || record.Elapsed != 0 {
		t.Errorf("remaining %v, elapsed %v, %v; want the whole lease of %v and nothing", record.Remaining,
			record.Elapsed, err, storagetest.TTL)
	}
}

// durations selects all durations that the tables imply.
const durations = `
	select 'turn', ended_at - created_at from turnkeeper.turns union all
	select 'turn from grant', ended_at - granted_at from turnkeeper.turns union all
	select 'message', closed_at - accepted_at from turnkeeper.messages union all
	select 'reply', r.created_at - m.accepted_at from turnkeeper.replies r join turnkeeper.messages m on m.id = r.message_id union all
	select 'grant', ended_at - granted_at from turnkeeper.lease_log union all
	select 'call', ended_at - started_at from turnkeeper.calls union all
	select 'event', at - lag(at) over (partition by turn_id order by seq) from turnkeeper.turn_events`

func TestNoDurationIsNegative(t *testing.T) {
	k := storagetest.Key(1, 1)
	ways := map[string]func(*env, *storagetest.Dispatch){
		"finished": func(h *env, d *storagetest.Dispatch) {
			d.Write(h.T, turnlog.Entry{
				Results: []turnlog.CallResult{storagetest.Result(k, "n", turnkeeper.CallSucceeded, "ok")},
				Events:  storagetest.Events(turnkeeper.EventToolResult),
			})
			d.Write(h.T, turnlog.Entry{Round: storagetest.Round(2),
				Events: storagetest.Events(turnkeeper.EventRoundStop)})
			err := d.Append(h.T.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("done"),
				Events: storagetest.Events(turnkeeper.EventTurnComplete)}, storagetest.Answered)
			if err != nil {
				h.T.Fatal(err)
			}
		},
		"lost for good": func(h *env, d *storagetest.Dispatch) {
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				lost, err := tick.Lost(ctx, 1)
				if err != nil || len(lost) != 1 {
					h.T.Fatalf("lost are %+v, %v", lost, err)
				}
				return errors.Join(
					tick.SettleCalls(ctx, lost[0].TurnID, "unknown", "not run", "not run", "ended"),
					tick.Close(ctx, lost[0], *storagetest.Succeeded("sorry"),
						storagetest.Events(turnkeeper.EventTurnComplete)))
			})
			if err := d.Late(h.T.Context(), storagetest.Result(k, "n", turnkeeper.CallSucceeded, "late")); err != nil {
				h.T.Fatal(err)
			}
		},
	}
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			d := h.Turn("x")
			d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce),
				Events: storagetest.Events(turnkeeper.EventRoundStart)})
			d.Write(t, turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(k, "n", 1, turnkeeper.EffectOnce)},
				Events: storagetest.Events(turnkeeper.EventToolStarted)})
			h.setBack(time.Hour)
			end(h, d)
			rows, err := h.Pool().Query(t.Context(), durations)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			seen := map[string]bool{}
			for rows.Next() {
				var what string
				var took *time.Duration
				if err := rows.Scan(&what, &took); err != nil {
					t.Fatal(err)
				}
				seen[what] = seen[what] || took != nil
				if took != nil && *took < 0 {
					t.Errorf("a %s took %v", what, *took)
				}
			}
			if err := rows.Err(); err != nil || len(seen) != 7 {
				t.Errorf("seen %v, %v", seen, err)
			}
		})
	}
}

// A detached call is restarted, and the clock is set back before its result.
func TestNoRestartedCallEndsBeforeItsStart(t *testing.T) {
	h := newEnv(t)
	d := h.Detached("a", turnkeeper.EffectKeyed)
	ref := turnlog.CallRef{TurnID: d.Grant.TurnID, Key: storagetest.Key(1, 1), Attempt: 1}
	claimed, err := h.Claim(t.Context(), ref, "w", []string{"tool"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	h.setBack(time.Hour)
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{{Key: ref.Key, State: turnkeeper.CallUnknown, Shown: "?"}}})
	if call := h.Call(d.Grant.TurnID, ref.Key); call.Starts != 2 || call.EndedAt.Before(call.StartedAt) {
		t.Errorf("start %d at %v, end at %v", call.Starts, call.StartedAt, call.EndedAt)
	}
}

func TestFreshnessWhenTheClockWasSetBack(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{
		Round:  storagetest.Round(1, turnkeeper.EffectNone),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectNone)},
	})
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "n",
		turnkeeper.CallSucceeded, "ok")}})
	for _, step := range []struct {
		by   time.Duration
		want int
	}{{5 * time.Minute, 1}, {time.Hour, 0}} {
		h.setBack(step.by)
		past, err := h.RecentCalls(t.Context(), "clerk", "tool", "hash", 10*time.Minute)
		if err != nil || len(past) != step.want {
			t.Fatalf("set back by %v: %+v, %v; want %d", step.by, past, err, step.want)
		}
		for _, call := range past {
			if call.Ago != 0 {
				t.Errorf("a call of the future is %v ago", call.Ago)
			}
		}
	}
}

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// openCalls returns two turns of the desk that wait for four detached calls each.
func openCalls(t *testing.T) (h *env, it, other scene) {
	t.Helper()
	h = newEnv(t)
	h.Submit("desk", "it", "x")
	h.Submit("desk", "other", "x")
	all := h.Dispatch("worker-1")
	it, other = scene{h, all[0]}, scene{h, all[1]}
	it.open()
	other.open()
	return h, it, other
}

const ofCall = " where turn_id = $1 and round = 1 and ordinal = 1"

// TestWhoMayClaim claims a call. Except in the first case, one condition does not hold.
func TestWhoMayClaim(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		change  string
		attempt int
		tools   []string
		open    bool // the expected result of CallIsOpen
	}{
		"nothing":          {"", 1, []string{"other", "tool"}, true},
		"the tool":         {"", 1, []string{"Tool", "tools"}, true},
		"the attempt":      {"", 2, []string{"tool"}, false},
		"an older attempt": {"update turnkeeper.detached_calls set attempt = 2" + ofCall, 1, []string{"tool"}, false},
		"another's claim": {
			"update turnkeeper.detached_calls set claim = 'other', worker_id = 'w', claimed_at = now()" + ofCall, 1,
			[]string{"tool"}, false},
		"its end": {"update turnkeeper.detached_calls set ended_at = now()" + ofCall, 1,
			[]string{"tool"}, false},
		"the call's answer": {
			`select turnkeeper.add_write($1, '{}', '{}', '{}', '{}', '[{"round": 1, "ordinal": 1, "state": "failed"}]')`, 1, []string{"tool"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, other := openCalls(t)
			if c.change != "" {
				h.Exec(c.change, it.Grant.TurnID)
			}
			ref := it.ref()
			ref.Attempt = c.attempt
			if open, err := h.CallIsOpen(t.Context(), ref); err != nil || open != c.open {
				t.Errorf("open: %t, error %v", open, err)
			}
			h.Exec("update turnkeeper.messages set trace_parent = conversation")
			claim, err := h.Claim(t.Context(), ref, "w", c.tools)
			if name == "nothing" {
				if claim.Call.Key != storagetest.Key(1, 1) || claim.Call.Nonce != it.nonce(1, 1) ||
					claim.Turn.Conversation != "it" || claim.TraceParent != "it" {
					t.Errorf("claimed is %+v", claim)
				}
				if err != nil || claim.Limit != time.Hour || claim.Left <= 0 || claim.Left > time.Hour {
					t.Errorf("%+v, error %v", claim, err)
				}
				if n := storagetest.One[int](h, "select count(*) from turnkeeper.detached_calls where claim = $1",
					claim.Claim); n != 1 {
					t.Errorf("the claim is on record %d times", n)
				}
				claim = other.claimOf(storagetest.Key(2, 2), "w")
				if claim.Call.Key != storagetest.Key(2, 2) || claim.Call.Nonce != other.nonce(2, 2) ||
					claim.Turn.Conversation != "other" || claim.TraceParent != "other" {
					t.Errorf("claimed for the other is %+v", claim)
				}
				return
			}
			if !errors.Is(err, turnkeeper.ErrNotFound) {
				t.Errorf("error %v", err)
			}
			if n := storagetest.One[int](h,
				"select count(claim) from turnkeeper.detached_calls where worker_id = 'w' and claim <> 'other'"); n != 0 {
				t.Error("it is claimed")
			}
		})
	}
	t.Run("its own claim, of which it did not hear", func(t *testing.T) {
		h, it, _ := openCalls(t)
		p, url := storagetest.NewProxy(t, h.URL)
		far := storagetest.Open(t, url)
		happened := p.CutNext(storagetest.Unanswer, func(sent storagetest.Sent) bool {
			return sent.Has("name: ClaimCall")
		})
		claim, err := far.Claim(t.Context(), it.ref(), "w", []string{"tool"})
		if err != nil || !done(happened) || claim.Claim == "" {
			t.Errorf("%+v, error %v", claim, err)
		}
	})
}

// TestWhatHasArrived lists the results that have arrived for a turn. Calls without a result, and
// results for another turn, are not listed.
func TestWhatHasArrived(t *testing.T) {
	h, it, other := openCalls(t)
	for _, s := range []scene{it, other} {
		r := storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, s.nonce(1, 1))
		if err := h.Arrive(t.Context(), s.claim("w"), r); err != nil {
			t.Fatal(err)
		}
	}
	arrived, err := it.Arrivals(t.Context())
	if err != nil || len(arrived) != 1 || arrived[0].Key != storagetest.Key(1, 1) || arrived[0].Nonce != it.nonce(1,
		1) || arrived[0].Preview != it.nonce(1, 1) {
		t.Errorf("arrived are %+v, error %v", arrived, err)
	}
}

func TestWhichClaimsAreHeld(t *testing.T) {
	h, it, other := openCalls(t)
	held, over := it.claim("w"), other.claim("w")
	if err := h.Arrive(t.Context(), over, storagetest.Result(storagetest.Key(1, 1), other.nonce(1, 1),
		turnkeeper.CallSucceeded, "ok")); err != nil {
		t.Fatal(err)
	}
	got, err := h.ClaimsHeld(t.Context(), []turnlog.ClaimID{held.Claim, over.Claim, "unknown"})
	if diff := cmp.Diff([]turnlog.ClaimID{held.Claim}, got); diff != "" || err != nil {
		t.Errorf("error %v, held (-want +got):\n%s", err, diff)
	}
}

// TestArrivalsThatAreRefused delivers a result and releases a call under a claim that differs from
// the recorded one in one condition.
func TestArrivalsThatAreRefused(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		claim  func(*turnlog.ClaimedCall)
		change string
	}{
		"another claim":    {func(c *turnlog.ClaimedCall) { c.Claim = "other" }, ""},
		"an older attempt": {nil, "update turnkeeper.detached_calls set attempt = 2" + ofCall},
		"a later attempt":  {func(c *turnlog.ClaimedCall) { c.Ref.Attempt = 2 }, ""},
		"a claim taken back": {nil,
			"update turnkeeper.detached_calls set claim = null, worker_id = null, claimed_at = null" + ofCall},
		"a call that is over": {nil, "update turnkeeper.detached_calls set ended_at = now()" + ofCall},
		"a result by another": {nil,
			"update turnkeeper.detached_calls set claim = 'other', delivered = true, ended_at = now()" + ofCall},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, _ := openCalls(t)
			claimed := it.claim("w")
			if c.claim != nil {
				c.claim(&claimed)
			}
			if c.change != "" {
				h.Exec(c.change, it.Grant.TurnID)
			}
			before := h.Rows()
			if err := h.Release(t.Context(), claimed); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("handed on: %v", err)
			}
			claimed.Call.Nonce = "none" // otherwise the result is stored as late
			if err := h.Arrive(t.Context(), claimed, storagetest.Result(storagetest.Key(1, 1), "none",
				turnkeeper.CallSucceeded, "x")); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("arrived: %v", err)
			}
			for _, row := range storagetest.Changed(before, h.Rows()) {
				t.Errorf("changed %s", row)
			}
		})
	}
	for name, change := range map[string]string{
		"a result that has arrived": "update turnkeeper.awaited_calls set arrived_at = now(), state = 'failed'" +
			ofCall,
		"an answer in the journal": "update turnkeeper.awaited_calls set closed_at = now()" + ofCall,
	} {
		t.Run(name, func(t *testing.T) {
			h, it, _ := openCalls(t)
			claimed := it.claim("w")
			h.Exec(change, it.Grant.TurnID)
			claimed.Call.Nonce = "none"
			if err := h.Arrive(t.Context(), claimed, storagetest.Result(storagetest.Key(1, 1), "none",
				turnkeeper.CallSucceeded, "x")); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("arrived: %v", err)
			}
		})
	}
	t.Run("another start", func(t *testing.T) {
		h, it, _ := openCalls(t)
		claimed := it.claim("w")
		h.Exec(
			`insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash)
			values ($1, 1, 1, 2, 'keyed', 0, 0, 'second', 'other', '', '', '')`, it.Grant.TurnID)
		before := h.Rows()
		if err := h.Release(t.Context(), claimed); err == nil || !strings.Contains(err.Error(), "call_starts_pkey") {
			t.Errorf("handed on: %v", err)
		}
		for _, row := range storagetest.Changed(before, h.Rows()) {
			t.Errorf("changed %s", row)
		}
	})
	t.Run("an answer", func(t *testing.T) {
		h := newEnv(t)
		it := scene{h, h.TurnOf("desk", "worker-1")}
		it.openRunning()
		claimed := it.claim("w")
		it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1),
			it.nonce(1, 1), turnkeeper.CallFailed, "x")}})
		if err := h.Release(t.Context(), claimed); !errors.Is(err, turnkeeper.ErrFenced) {
			t.Errorf("handed on: %v", err)
		}
	})
}

// TestWhatAnArrivalLeaves checks the job, the turn and the claim after a result, a repetition of
// it, and a verdict.
func TestWhatAnArrivalLeaves(t *testing.T) {
	h, it, other := openCalls(t)
	claimed := it.claim("w")
	done := storagetest.Result(storagetest.Key(1, 1), it.nonce(1, 1), turnkeeper.CallSucceeded, "ok")
	if err := h.Arrive(t.Context(), claimed, done); err != nil {
		t.Fatal(err)
	}
	rows := h.Rows()
	if err := h.Arrive(t.Context(), claimed, done); err != nil {
		t.Errorf("a repeat: %v", err)
	}
	for _, row := range storagetest.Changed(rows, h.Rows()) {
		t.Errorf("a repeat changed %s", row)
	}
	state := func(s scene) string {
		return storagetest.One[string](h,
			`select concat_ws(' ', t.state, j.state, d.delivered, d.ended_at is not null, d.losses, a.state) from turnkeeper.detached_calls d
			join turnkeeper.river_job j on j.id = d.job_id join turnkeeper.turns t on t.id = d.turn_id join turnkeeper.awaited_calls a using (turn_id, round, ordinal)
			where turn_id = $1 and round = 1 and ordinal = 1`, s.Grant.TurnID)
	}
	if got, want := state(it), "queued completed t t 0 succeeded"; got != want {
		t.Errorf("after a result: %s, want %s", got, want)
	}
	other.giveUp()
	h.Exec(
		"update turnkeeper.river_job set state = 'discarded', finalized_at = now() where id = (select job_id from turnkeeper.detached_calls"+ofCall+")", other.Grant.TurnID)
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		return tick.EndCall(ctx, other.lostCall(ctx, tick), turnlog.CallResult{Key: storagetest.Key(1, 1),
			State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
	})
	if got, want := state(other), "queued discarded f t 0 unknown"; got != want {
		t.Errorf("after a verdict: %s, want %s", got, want)
	}
}

// TestAnArrivalWhileTheTurnRuns checks that a result does not change the state of a running turn.
func TestAnArrivalWhileTheTurnRuns(t *testing.T) {
	h := newEnv(t)
	d := h.Detached("a", turnkeeper.EffectKeyed)
	s := scene{h, d}
	if err := h.Arrive(t.Context(), s.claim("w"), storagetest.Result(storagetest.Key(1, 1), "",
		turnkeeper.CallSucceeded, "ok")); err != nil {
		t.Fatal(err)
	}
	if state := storagetest.One[string](h, "select state from turnkeeper.turns"); state != "running" {
		t.Errorf("the turn is %s", state)
	}
	if arrived, err := d.Arrivals(t.Context()); err != nil || len(arrived) != 1 {
		t.Errorf("arrived are %+v, error %v", arrived, err)
	}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1),
		fmt.Sprint("n", d.Grant.TurnID), turnkeeper.CallSucceeded, "ok")}})
	if arrived, err := d.Arrivals(t.Context()); err != nil || len(arrived) != 0 {
		t.Errorf("still arrived are %+v, error %v", arrived, err)
	}
}

// TestWhichCallsAreLost checks for each state of a detached call whether it counts as lost.
func TestWhichCallsAreLost(t *testing.T) {
	testrun.Guard(t)
	const (
		claimed  = "update turnkeeper.detached_calls set claim = 'c', worker_id = 'w', claimed_at = now(), deadline = now() + interval '1 h'"
		looked   = "update turnkeeper.detached_calls set look_at = now() - interval '1 s'"
		jobState = "update turnkeeper.river_job set state = 'STATE', finalized_at = case when 'STATE' in ('completed', 'cancelled', 'discarded') then now() end, scheduled_at = now() where kind = 'DetachedCall'"
		fetched  = "update turnkeeper.river_job set state = 'running', attempted_at = now(), attempted_by = array['w'] where kind = 'DetachedCall'"
		silent   = "update turnkeeper.worker_heartbeat set beat_at = now() - interval '1 minute'"
		stopped  = "update turnkeeper.worker_heartbeat set stopped_at = now()"
		ended    = "update turnkeeper.detached_calls set ended_at = now()"
		ahead    = "update turnkeeper.detached_calls set look_at = now() + interval '12 minutes'"
		jobGone  = "delete from turnkeeper.river_job where kind = 'DetachedCall'"
	)
	state := func(s string) string { return strings.ReplaceAll(jobState, "STATE", s) }
	for name, c := range map[string]struct {
		changes []string
		looks   bool // the snapshot reports that there may be lost calls
		want    granting.CallFailure
	}{
		"it waits":               {nil, false, ""},
		"it is run":              {[]string{claimed}, false, ""},
		"its worker is silent":   {[]string{claimed, silent}, true, "lost"},
		"its worker has stopped": {[]string{claimed, stopped}, true, "lost"},
		"its worker is not known": {[]string{claimed, "delete from turnkeeper.worker_heartbeat"}, false,
			""},
		"its worker gave it up": {[]string{claimed,
			"update turnkeeper.detached_calls set lost_at = now()"}, true, "lost"},
		"its worker is silent, and it is over": {[]string{claimed, silent, ended}, false, ""},
		"it takes too long": {[]string{claimed,
			"update turnkeeper.detached_calls set deadline = now() - interval '31 s'"}, true, "overdue"},
		"it takes nearly too long": {[]string{claimed,
			"update turnkeeper.detached_calls set deadline = now() - interval '1 s'"}, false, ""},
		"it is looked at":                    {[]string{looked}, true, ""},
		"it is looked at, and is over":       {[]string{looked, ended}, false, ""},
		"it is looked at, scheduled":         {[]string{looked, state("scheduled")}, true, ""},
		"it is looked at, fetched":           {[]string{looked, fetched}, true, ""},
		"it is looked at, to be retried":     {[]string{looked, state("retryable")}, true, ""},
		"it is looked at, pending":           {[]string{looked, state("pending")}, true, ""},
		"it is looked at, its job completed": {[]string{looked, state("completed")}, true, "job_missing"},
		"it is looked at, its job cancelled": {[]string{looked, state("cancelled")}, true, "job_missing"},
		"it is looked at, its job gone": {[]string{looked,
			"delete from turnkeeper.river_job where kind = 'DetachedCall'"}, true, "job_missing"},
		"it is not looked at, its job gone": {
			[]string{"delete from turnkeeper.river_job where kind = 'DetachedCall'"}, false, ""},
		"it waits too long": {[]string{looked,
			"update turnkeeper.detached_calls set deadline = now()"}, true, "unclaimed"},
		"a look far ahead": {
			[]string{"update turnkeeper.detached_calls set look_at = now() + interval '12 minutes'",
				state("cancelled")}, true, "job_missing"},
		"a look ahead": {
			[]string{"update turnkeeper.detached_calls set look_at = now() + interval '10 minutes'",
				state("cancelled")}, false, ""},
		"a look far ahead, over": {
			[]string{"update turnkeeper.detached_calls set look_at = now() + interval '12 minutes'", state("cancelled"),
				ended}, false, ""},
		"it is run, and would be looked at":  {[]string{claimed, looked, jobGone}, false, ""},
		"it is run, and a look is far ahead": {[]string{claimed, ahead, jobGone}, false, ""},
		"it is run, its job another's": {[]string{claimed, fetched,
			"update turnkeeper.river_job set attempted_by = array['gone'] where kind = 'DetachedCall'"}, false, ""},
		"it waits too long, not looked at": {
			[]string{"update turnkeeper.detached_calls set deadline = now() - interval '1 h'"}, false, ""},
		"fetched by a live worker":         {[]string{fetched}, false, ""},
		"fetched by a silent worker":       {[]string{fetched, silent}, true, "job_missing"},
		"fetched by a worker that stopped": {[]string{fetched, stopped}, true, "job_missing"},
		"fetched long ago": {[]string{fetched,
			"update turnkeeper.river_job set attempted_at = now() - interval '6 minutes' where kind = 'DetachedCall'"},
			true, "job_missing"},
		"waiting, as if by a silent worker": {[]string{fetched, silent,
			"update turnkeeper.river_job set state = 'available' where kind = 'DetachedCall'"}, false, ""},
		"in another queue": {[]string{fetched, silent,
			"update turnkeeper.river_job set queue = 'turns' where kind = 'DetachedCall'"}, false, ""},
		"an older job fetched": {[]string{fetched, silent,
			"update turnkeeper.detached_calls set job_id = job_id + 1000"}, false, ""},
		"a job of another turn fetched": {[]string{fetched, silent,
			"update turnkeeper.river_job set args = args || '{\"turn_id\": 999}' where kind = 'DetachedCall'"}, false,
			""},
		"a job of another round fetched": {[]string{fetched, silent,
			"update turnkeeper.river_job set args = args || '{\"round\": 9}' where kind = 'DetachedCall'"}, false, ""},
		"a job of another call fetched": {[]string{fetched, silent,
			"update turnkeeper.river_job set args = args || '{\"ordinal\": 9}' where kind = 'DetachedCall'"}, false,
			""},
		"fetched by a silent worker, over": {[]string{fetched, silent, ended}, false, ""},
		"fetched by a silent worker, too late": {[]string{fetched, silent,
			"update turnkeeper.detached_calls set deadline = now()"}, true, ""},
		"its worker is silent, its turn closed": {[]string{claimed, silent,
			"update turnkeeper.turns set state = 'cancelled', stop_reason = 'cancelled', ended_at = now()"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			d := h.Waiting("a")
			h.HeartBeat("w", 1, 15*time.Second)
			h.Exec(
				"insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, roles, takeover_after, stopped_at) values ('gone', 'h', 1, 'v', 1, '{worker}', '15 s', now())")
			for _, change := range c.changes {
				h.Exec(change)
			}
			if slices.Contains(c.changes, ended) {
				h.Waiting("another") // a call that has not ended
			}
			before := storagetest.One[time.Time](h, "select look_at from turnkeeper.detached_calls where turn_id = $1",
				d.Grant.TurnID)
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				lost, err := tick.LostCalls(ctx, 10)
				var got granting.CallFailure
				for _, l := range lost {
					got += l.Failure
					if l.Ref.TurnID != d.Grant.TurnID || l.Name != "tool" || l.Effect != turnkeeper.EffectOnce {
						t.Errorf("%+v", l)
					}
				}
				if got != c.want {
					t.Errorf("failure %q, want %q", got, c.want)
				}
				return err
			})
			after := storagetest.One[time.Time](h, "select look_at from turnkeeper.detached_calls where turn_id = $1",
				d.Grant.TurnID)
			asked := slices.Contains(c.changes, looked) && !slices.Contains(c.changes, ended) &&
				!slices.Contains(c.changes, claimed) || name == "a look far ahead"
			if after.Equal(before) == asked {
				t.Errorf("the next look was at %v, and is at %v", before, after)
			}
			h.Exec("update turnkeeper.detached_calls set look_at = $2 where turn_id = $1", d.Grant.TurnID, before)
			if sit, _ := h.Snapshot(); sit.Calls != c.looks {
				t.Errorf("a look says %t, want %t", sit.Calls, c.looks)
			}
		})
	}
}

// TestWhatAWorkerGivesBackOfCalls checks each condition that keeps a worker from giving back a
// detached call.
func TestWhatAWorkerGivesBackOfCalls(t *testing.T) {
	testrun.Guard(t)
	const (
		claimed = "update turnkeeper.detached_calls set claim = 'c', worker_id = 'w', claimed_at = now() - interval '1 minute'"
		fetched = "update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now() - interval '1 minute', attempted_by = array['w'] where kind = 'DetachedCall'"
	)
	for name, c := range map[string]struct {
		changes      []string
		jobs, claims int
		working      bool
	}{
		"fetched":         {[]string{fetched}, 1, 0, false},
		"fetched, worked": {[]string{fetched}, 0, 0, true},
		"fetched by another": {[]string{fetched,
			"update turnkeeper.river_job set attempted_by = array['w', 'x'] where kind = 'DetachedCall'"}, 0, 0, false},
		"fetched just now": {[]string{fetched,
			"update turnkeeper.river_job set attempted_at = now() where kind = 'DetachedCall'"}, 0, 0, false},
		"not fetched": {[]string{fetched,
			"update turnkeeper.river_job set state = 'available' where kind = 'DetachedCall'"}, 0, 0, false},
		"in another queue": {[]string{fetched,
			"update turnkeeper.river_job set queue = 'turns' where kind = 'DetachedCall'"}, 0, 0, false},
		"claimed":      {[]string{claimed}, 0, 1, false},
		"claimed, run": {[]string{claimed}, 0, 0, true},
		"claimed by another": {[]string{claimed, "update turnkeeper.detached_calls set worker_id = 'x'"}, 0, 0,
			false},
		"claimed just now": {[]string{claimed, "update turnkeeper.detached_calls set claimed_at = now()"}, 0,
			0, false},
		"claimed, over": {[]string{claimed, "update turnkeeper.detached_calls set ended_at = now()"}, 0, 0,
			false},
		"claimed, given up already": {[]string{claimed, "update turnkeeper.detached_calls set lost_at = now()"}, 0, 0,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.Waiting("a")
			for _, change := range c.changes {
				h.Exec(change)
			}
			var working []turnkeeper.JobID
			var running []turnlog.ClaimID
			if c.working {
				working = append(working, storagetest.One[turnkeeper.JobID](h,
					"select job_id from turnkeeper.detached_calls"))
				running = append(running, "c")
			}
			got, err := h.GiveBackCalls(t.Context(), "w", 10*time.Second, working, running)
			if err != nil || got.Jobs != c.jobs || got.Grants != c.claims {
				t.Errorf("%+v, error %v; want %d jobs, %d claims", got, err, c.jobs, c.claims)
			}
		})
	}
}

// TestWhoIsToldOfACall changes the calls of two waiting turns and checks the notifications: one to
// the scheduler when a turn continues, and one to workers for each run that must stop and for each
// new run.
func TestWhoIsToldOfACall(t *testing.T) {
	h, it, other := openCalls(t)
	arrive := func(s scene, k turnkeeper.CallKey) func() {
		return func() {
			s.must(s.Arrive(t.Context(), s.claimOf(k, "w"), storagetest.Result(k, s.nonce(k.Round, k.Ordinal),
				turnkeeper.CallSucceeded, "ok")))
		}
	}
	settle := func(s scene) func() {
		return func() {
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				return tick.SettleCalls(ctx, s.Grant.TurnID, "may have happened", "may have run", "was not run", "")
			})
		}
	}
	end := func(ctx context.Context, tick *grants.Tick) error {
		return tick.EndCall(ctx, granting.LostCall{Ref: other.ref()}, turnlog.CallResult{Key: storagetest.Key(1, 1),
			State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
	}
	again := func(ctx context.Context, tick *grants.Tick) error {
		return tick.RunAgain(ctx, granting.LostCall{Ref: turnlog.CallRef{TurnID: other.Grant.TurnID,
			Key: storagetest.Key(1, 2), Attempt: 1}})
	}
	for _, c := range []struct {
		name, want string
		do         func()
	}{
		{"a result", "inbox", arrive(it, storagetest.Key(1, 1))},
		{"a result for a turn that goes on already", "", arrive(it, storagetest.Key(1, 2))},
		{"a run that never began", "river_insert", func() { h.Tick(again) }},
		{"a call handed on", "calls river_insert", func() {
			it.must(h.Release(t.Context(), other.claimOf(storagetest.Key(1, 2), "w")))
		}},
		{"a verdict", "calls inbox", func() { h.Tick(end) }},
		{"a third result", "", arrive(it, storagetest.Key(2, 1))},
		{"the last result", "", arrive(it, storagetest.Key(2, 2))},
		{"the end of a turn whose results have arrived", "", settle(it)},
		{"the end of a turn whose calls are open", "calls", settle(other)},
	} {
		if got := strings.Join(h.Heard(c.do), " "); got != c.want {
			t.Errorf("%s: it rings %q, want %q", c.name, got, c.want)
		}
	}
}

// TestACallIsMovedUnderTheLockOfItsTurn locks the row of a turn. Changes of its calls then wait,
// and hold no lock on the calls. Changes of another turn's calls do not wait.
func TestACallIsMovedUnderTheLockOfItsTurn(t *testing.T) {
	h, it, other := openCalls(t)
	for name, c := range map[string]struct {
		key turnkeeper.CallKey
		do  func(context.Context, *storagetest.DB, turnlog.ClaimedCall) error
	}{
		"a result": {storagetest.Key(1, 1), func(ctx context.Context, s *storagetest.DB, c turnlog.ClaimedCall) error {
			return s.Arrive(ctx, c, storagetest.Result(c.Ref.Key, c.Call.Nonce, turnkeeper.CallSucceeded, "ok"))
		}},
		"a call handed on": {storagetest.Key(1, 2), func(ctx context.Context, s *storagetest.DB,
			c turnlog.ClaimedCall) error {
			return s.Release(ctx, c)
		}},
	} {
		for _, others := range []bool{true, false} {
			s := it
			if others {
				s = other
			}
			claimed := s.claimOf(c.key, "w")
			do := func(ctx context.Context, far *storagetest.DB) error { return c.do(ctx, far, claimed) }
			free := func() {
				if n := storagetest.One[int](h,
					"select count(*) from (select from turnkeeper.detached_calls where turn_id = $1 for update skip locked) d", s.Grant.TurnID); n != 4 {
					t.Errorf("%s: %d of 4 calls are not locked while it waits", name, n)
				}
			}
			if waits := h.WaitsBehind(free, do, "select from turnkeeper.turns where id = $1 for update",
				it.Grant.TurnID); waits == others {
				t.Errorf("%s of another turn: %t; it waits: %t", name, others, waits)
			}
		}
	}
}

// TestJobsOfCallsThatAreOver changes the state of calls. Jobs that River has ended stay unchanged;
// a job that has not ended is completed or cancelled.
func TestJobsOfCallsThatAreOver(t *testing.T) {
	h := newEnv(t)
	keys := []turnkeeper.CallKey{storagetest.Key(1, 1), storagetest.Key(1, 2), storagetest.Key(2, 1),
		storagetest.Key(2, 2)}
	states := []string{"completed", "cancelled", "discarded", "running"}
	for name, c := range map[string]struct {
		want string // state of the job that has not ended
		do   func(context.Context, turnlog.ClaimedCall) error
	}{
		"results": {"completed", func(ctx context.Context, c turnlog.ClaimedCall) error {
			return h.Arrive(ctx, c, storagetest.Result(c.Ref.Key, c.Call.Nonce, turnkeeper.CallSucceeded, "ok"))
		}},
		"handed on": {"cancelled", h.Release},
		"verdicts": {"cancelled", func(_ context.Context, c turnlog.ClaimedCall) error {
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				return tick.EndCall(ctx, granting.LostCall{Ref: c.Ref}, turnlog.CallResult{Key: c.Ref.Key,
					State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
			})
			return nil
		}},
		"answered": {"cancelled", func(ctx context.Context, c turnlog.ClaimedCall) error {
			_, err := h.Pool().Exec(ctx, "select turnkeeper.stop_awaiting($1, array[$2::integer], array[$3::integer])",
				c.Ref.TurnID, c.Ref.Key.Round, c.Ref.Key.Ordinal)
			return err
		}},
	} {
		h.Submit("desk", name, "x")
		var s scene
		for _, d := range h.Dispatch("worker-1") {
			if d.Record.Turn.Conversation == name { // skip the turn that continues after a result
				s = scene{h, d}
			}
		}
		s.open()
		for i, k := range keys {
			claimed := s.claimOf(k, "w")
			job := storagetest.One[turnkeeper.JobID](h, "select job_id from turnkeeper.detached_calls where claim = $1",
				claimed.Claim)
			h.Exec(
				`update turnkeeper.river_job set state = $2::turnkeeper.river_job_state, finalized_at = case when $2 <> 'running' then timestamptz '2026-01-01' end
				where id = $1`, job, states[i])
			s.must(c.do(t.Context(), claimed))
			want := states[i] + " at its time"
			if states[i] == "running" {
				want = c.want + " now"
			}
			got := storagetest.One[string](h,
				"select state::text || case when finalized_at = timestamptz '2026-01-01' then ' at its time' else ' now' end from turnkeeper.river_job where id = $1", job)
			if got != want {
				t.Errorf("%s: a job that was %s is %s, want %s", name, states[i], got, want)
			}
		}
	}
}

// TestWhatATurnLeavesOfItsArrivals closes a turn without its worker when results have arrived. They
// become the answers of calls that have none. Existing answers, and the calls of another turn, stay
// unchanged.
func TestWhatATurnLeavesOfItsArrivals(t *testing.T) {
	const unknown, had = "may have happened", "cancelled: the turn ended before this call had"
	for name, c := range map[string]struct {
		closes func(scene)
		open   []turnkeeper.ToolCall // calls 1.2, of effect none, and 2.1
		want   string
	}{
		"its worker is lost": {
			func(s scene) {
				s.Tick(func(ctx context.Context, tick *grants.Tick) error {
					return tick.SettleCalls(ctx, s.Grant.TurnID, unknown, "may have run", "was not run", "")
				})
			},
			[]turnkeeper.ToolCall{{State: turnkeeper.CallUnknown, Preview: unknown}, {State: turnkeeper.CallUnknown,
				Preview: unknown}},
			"awaited 1.1, awaited 1.2, call 1.1, call 1.2, call 2.1, detached 1.2, job 1.2, turn",
		},
		"it is cancelled": {
			func(s scene) {
				_, err := s.CancelTurn(s.T.Context(), s.Grant.TurnID, "")
				s.must(err)
			},
			[]turnkeeper.ToolCall{{State: turnkeeper.CallCancelled, Preview: had + "."}, {State: turnkeeper.CallUnknown,
				Preview: "outcome unknown: the worker that ran this call was lost. It may or may not have happened. It is not run again; check before you rely on it."}},
			"awaited 1.1, awaited 1.2, call 1.1, call 1.2, call 2.1, cancellation, detached 1.2, event 2, job 1.2, message, reply, turn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, other := openCalls(t)
			for _, s := range []scene{it, other} {
				s.must(h.Arrive(t.Context(), s.claim("w"), storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1),
					turnkeeper.CallSucceeded, "arrived")))
			}
			h.Replan(it.Grant.TurnID, storagetest.Key(1, 2), `{"effect": "none"}`)
			const ofThird = " where turn_id = $1 and round = 2 and ordinal = 1"
			h.Exec(
				"update turnkeeper.awaited_calls set arrived_at = opened_at, closed_at = opened_at, state = 'failed'"+
					ofThird, it.Grant.TurnID)
			h.Exec("update turnkeeper.detached_calls set ended_at = timestamptz '2026-01-01'"+ofThird, it.Grant.TurnID)
			const ofLast = " where turn_id = $1 and round = 2 and ordinal = 2"
			h.Exec(
				"update turnkeeper.awaited_calls set arrived_at = opened_at, closed_at = opened_at, state = 'succeeded'"+ofLast, it.Grant.TurnID)
			h.Exec("update turnkeeper.detached_calls set ended_at = timestamptz '2026-01-01'"+ofLast, it.Grant.TurnID)
			h.PlantResult(it.Grant.TurnID, storagetest.Key(2, 2), turnkeeper.CallFailed, "answered")
			before := h.Rows()
			c.closes(it)
			for k, want := range map[turnkeeper.CallKey]turnkeeper.ToolCall{
				storagetest.Key(1, 1): {State: turnkeeper.CallSucceeded, Preview: "arrived"},
				storagetest.Key(1, 2): c.open[0],
				storagetest.Key(2, 1): c.open[1], storagetest.Key(2, 2): {State: turnkeeper.CallFailed,
					Preview: "answered"},
			} {
				if c := h.Call(it.Grant.TurnID, k); c.State != want.State || c.Preview != want.Preview {
					t.Errorf("call %s is %s, %q; want %s, %q", k, c.State, c.Preview, want.State, want.Preview)
				}
			}
			var got []string
			for _, name := range storagetest.Changed(before, h.Rows()) {
				got = append(got, it.short(name))
			}
			slices.Sort(got)
			if diff := cmp.Diff(strings.Split(c.want, ", "), got); diff != "" {
				t.Errorf("rows changed (-want +got):\n%s", diff)
			}
		})
	}
}

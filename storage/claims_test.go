package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// openCalls are two turns of the desk that wait for four detached calls each.
func openCalls(t *testing.T) (h *house, it, other scene) {
	t.Helper()
	h = newHouse(t)
	h.enqueue("desk", "it", "x")
	h.enqueue("desk", "other", "x")
	all := h.dispatch("worker-1")
	it, other = scene{h, all[0]}, scene{h, all[1]}
	it.open()
	other.open()
	return h, it, other
}

const ofCall = " where turn_id = $1 and round = 1 and ordinal = 1"

// TestWhoMayClaim tries to claim a call while one thing is in the way.
func TestWhoMayClaim(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		change  string
		attempt int
		tools   []string
		open    bool // and nothing but the worker is in the way
	}{
		"nothing":           {"", 1, []string{"other", "tool"}, true},
		"the tool":          {"", 1, []string{"Tool", "tools"}, true},
		"the attempt":       {"", 2, []string{"tool"}, false},
		"an older attempt":  {"update turnkeeper.detached_calls set attempt = 2" + ofCall, 1, []string{"tool"}, false},
		"another's claim":   {"update turnkeeper.detached_calls set claim = 'other', worker_id = 'w', claimed_at = now()" + ofCall, 1, []string{"tool"}, false},
		"its end":           {"update turnkeeper.detached_calls set ended_at = now()" + ofCall, 1, []string{"tool"}, false},
		"the call's answer": {"update turnkeeper.calls set elsewhere = false" + ofCall + "; update turnkeeper.calls set state = 'failed', ended_at = now()" + ofCall, 1, []string{"tool"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, other := openCalls(t)
			for change := range strings.SplitSeq(c.change, "; ") {
				if change != "" {
					h.exec(change, it.grant.TurnID)
				}
			}
			ref := it.ref()
			ref.Attempt = c.attempt
			if open, err := h.CallIsOpen(t.Context(), ref); err != nil || open != c.open {
				t.Errorf("open: %t, error %v", open, err)
			}
			h.exec("update turnkeeper.messages set trace_parent = conversation")
			claim, err := h.Claim(t.Context(), ref, "w", c.tools)
			if name == "nothing" {
				if claim.Call.Key != key(1, 1) || claim.Call.Nonce != it.nonce(1, 1) || claim.Turn.Conversation != "it" || claim.TraceParent != "it" {
					t.Errorf("claimed is %+v", claim)
				}
				if err != nil || claim.Limit != time.Hour || claim.Left <= 0 || claim.Left > time.Hour {
					t.Errorf("%+v, error %v", claim, err)
				}
				if n := one[int](h, "select count(*) from turnkeeper.detached_calls where claim = $1", claim.Claim); n != 1 {
					t.Errorf("the claim is on record %d times", n)
				}
				claim = other.claimOf(key(2, 2), "w")
				if claim.Call.Key != key(2, 2) || claim.Call.Nonce != other.nonce(2, 2) || claim.Turn.Conversation != "other" || claim.TraceParent != "other" {
					t.Errorf("claimed for the other is %+v", claim)
				}
				return
			}
			if !errors.Is(err, turnkeeper.ErrNotFound) {
				t.Errorf("error %v", err)
			}
			if n := one[int](h, "select count(claim) from turnkeeper.detached_calls where worker_id = 'w' and claim <> 'other'"); n != 0 {
				t.Error("it is claimed")
			}
		})
	}
	t.Run("its own claim, of which it did not hear", func(t *testing.T) {
		h, it, _ := openCalls(t)
		p, url := storagetest.NewProxy(t, h.url)
		far := storagetest.Open(t, url)
		happened := p.CutNext(storagetest.Unanswer, func(sent storagetest.Sent) bool { return sent.Has("name: ClaimCall") })
		claim, err := far.Claim(t.Context(), it.ref(), "w", []string{"tool"})
		if err != nil || !done(happened) || claim.Claim == "" {
			t.Errorf("%+v, error %v", claim, err)
		}
	})
}

// TestWhatHasArrived lists what has arrived for a turn beside what has not, and what has for another.
func TestWhatHasArrived(t *testing.T) {
	h, it, other := openCalls(t)
	for _, s := range []scene{it, other} {
		r := result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, s.nonce(1, 1))
		if err := h.Arrive(t.Context(), s.claim("w"), r); err != nil {
			t.Fatal(err)
		}
	}
	arrived, err := it.Arrivals(t.Context())
	if err != nil || len(arrived) != 1 || arrived[0].Key != key(1, 1) || arrived[0].Nonce != it.nonce(1, 1) || arrived[0].Preview != it.nonce(1, 1) {
		t.Errorf("arrived are %+v, error %v", arrived, err)
	}
}

func TestWhichClaimsAreHeld(t *testing.T) {
	h, it, other := openCalls(t)
	held, over := it.claim("w"), other.claim("w")
	if err := h.Arrive(t.Context(), over, result(key(1, 1), other.nonce(1, 1), turnkeeper.CallSucceeded, "ok")); err != nil {
		t.Fatal(err)
	}
	got, err := h.ClaimsHeld(t.Context(), []turnkeeper.ClaimID{held.Claim, over.Claim, "unknown"})
	if diff := cmp.Diff([]turnkeeper.ClaimID{held.Claim}, got); diff != "" || err != nil {
		t.Errorf("error %v, held (-want +got):\n%s", err, diff)
	}
}

// TestArrivalsThatAreRefused brings a result, and hands a call on, by a claim that misses the call's by one thing.
func TestArrivalsThatAreRefused(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		claim  func(*turnkeeper.ClaimedCall)
		change string
	}{
		"another claim":       {func(c *turnkeeper.ClaimedCall) { c.Claim = "other" }, ""},
		"an older attempt":    {nil, "update turnkeeper.detached_calls set attempt = 2" + ofCall},
		"a later attempt":     {func(c *turnkeeper.ClaimedCall) { c.Ref.Attempt = 2 }, ""},
		"a claim taken back":  {nil, "update turnkeeper.detached_calls set claim = null, worker_id = null, claimed_at = null" + ofCall},
		"a call that is over": {nil, "update turnkeeper.detached_calls set ended_at = now()" + ofCall},
		"a result by another": {nil, "update turnkeeper.detached_calls set claim = 'other', delivered = true, ended_at = now()" + ofCall},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, _ := openCalls(t)
			claimed := it.claim("w")
			if c.claim != nil {
				c.claim(&claimed)
			}
			if c.change != "" {
				h.exec(c.change, it.grant.TurnID)
			}
			before := h.rows()
			if err := h.HandOn(t.Context(), claimed); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("handed on: %v", err)
			}
			claimed.Call.Nonce = "none" // so that nothing is kept as late
			if err := h.Arrive(t.Context(), claimed, result(key(1, 1), "none", turnkeeper.CallSucceeded, "x")); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("arrived: %v", err)
			}
			for _, row := range changed(before, h.rows()) {
				t.Errorf("changed %s", row)
			}
		})
	}
	for name, change := range map[string]string{
		"a result that has arrived": "update turnkeeper.awaited_calls set arrived_at = now(), state = 'failed'" + ofCall,
		"an answer in the journal":  "update turnkeeper.awaited_calls set closed_at = now()" + ofCall,
	} {
		t.Run(name, func(t *testing.T) {
			h, it, _ := openCalls(t)
			claimed := it.claim("w")
			h.exec(change, it.grant.TurnID)
			claimed.Call.Nonce = "none"
			if err := h.Arrive(t.Context(), claimed, result(key(1, 1), "none", turnkeeper.CallSucceeded, "x")); !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("arrived: %v", err)
			}
		})
	}
	t.Run("another start", func(t *testing.T) {
		h, it, _ := openCalls(t)
		claimed := it.claim("w")
		h.exec("update turnkeeper.calls set starts = 5"+ofCall, it.grant.TurnID)
		if err := h.HandOn(t.Context(), claimed); !errors.Is(err, turnkeeper.ErrJournalMoved) {
			t.Errorf("handed on: %v", err)
		}
		h.exec("update turnkeeper.calls set starts = 1, elsewhere = false"+ofCall, it.grant.TurnID)
		h.exec("update turnkeeper.calls set state = 'failed', ended_at = now()"+ofCall, it.grant.TurnID)
		if err := h.HandOn(t.Context(), claimed); !errors.Is(err, turnkeeper.ErrJournalMoved) {
			t.Errorf("handed on after an answer: %v", err)
		}
	})
}

// TestWhatAnArrivalLeaves looks at the job, the turn and the claim after a result, a repeat of it, and a verdict.
func TestWhatAnArrivalLeaves(t *testing.T) {
	h, it, other := openCalls(t)
	claimed := it.claim("w")
	done := result(key(1, 1), it.nonce(1, 1), turnkeeper.CallSucceeded, "ok")
	if err := h.Arrive(t.Context(), claimed, done); err != nil {
		t.Fatal(err)
	}
	rows := h.rows()
	if err := h.Arrive(t.Context(), claimed, done); err != nil {
		t.Errorf("a repeat: %v", err)
	}
	for _, row := range changed(rows, h.rows()) {
		t.Errorf("a repeat changed %s", row)
	}
	state := func(s scene) string {
		return one[string](h, `select concat_ws(' ', t.state, j.state, d.delivered, d.ended_at is not null, d.losses, a.state) from turnkeeper.detached_calls d
			join turnkeeper.river_job j on j.id = d.job_id join turnkeeper.turns t on t.id = d.turn_id join turnkeeper.awaited_calls a using (turn_id, round, ordinal)
			where turn_id = $1 and round = 1 and ordinal = 1`, s.grant.TurnID)
	}
	if got, want := state(it), "queued completed t t 0 succeeded"; got != want {
		t.Errorf("after a result: %s, want %s", got, want)
	}
	other.giveUp()
	h.exec("update turnkeeper.river_job set state = 'discarded', finalized_at = now() where id = (select job_id from turnkeeper.detached_calls"+ofCall+")", other.grant.TurnID)
	h.inTick(func(ctx context.Context, tick *storage.Tick) error {
		return tick.EndCall(ctx, other.lostCall(ctx, tick), turnkeeper.CallResult{Key: key(1, 1), State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
	})
	if got, want := state(other), "queued discarded f t 0 unknown"; got != want {
		t.Errorf("after a verdict: %s, want %s", got, want)
	}
}

// TestAnArrivalWhileTheTurnRuns leaves the turn to its worker.
func TestAnArrivalWhileTheTurnRuns(t *testing.T) {
	h := newHouse(t)
	d := h.detached("a", turnkeeper.EffectKeyed)
	s := scene{h, d}
	if err := h.Arrive(t.Context(), s.claim("w"), result(key(1, 1), "", turnkeeper.CallSucceeded, "ok")); err != nil {
		t.Fatal(err)
	}
	if state := one[string](h, "select state from turnkeeper.turns"); state != "running" {
		t.Errorf("the turn is %s", state)
	}
	if arrived, err := d.Arrivals(t.Context()); err != nil || len(arrived) != 1 {
		t.Errorf("arrived are %+v, error %v", arrived, err)
	}
	d.append(t, turnkeeper.Entry{Results: []turnkeeper.CallResult{result(key(1, 1), fmt.Sprint("n", d.grant.TurnID), turnkeeper.CallSucceeded, "ok")}})
	if arrived, err := d.Arrivals(t.Context()); err != nil || len(arrived) != 0 {
		t.Errorf("still arrived are %+v, error %v", arrived, err)
	}
}

// TestWhichCallsAreLost has one detached call, in each state that it may be in.
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
		looks   bool // the look says that there may be some
		want    turnkeeper.CallTrouble
	}{
		"it waits":                              {nil, false, ""},
		"it is run":                             {[]string{claimed}, false, ""},
		"its worker is silent":                  {[]string{claimed, silent}, true, "lost"},
		"its worker has stopped":                {[]string{claimed, stopped}, true, "lost"},
		"its worker is not known":               {[]string{claimed, "delete from turnkeeper.worker_heartbeat"}, false, ""},
		"its worker gave it up":                 {[]string{claimed, "update turnkeeper.detached_calls set lost_at = now()"}, true, "lost"},
		"its worker is silent, and it is over":  {[]string{claimed, silent, ended}, false, ""},
		"it takes too long":                     {[]string{claimed, "update turnkeeper.detached_calls set deadline = now() - interval '31 s'"}, true, "overdue"},
		"it takes nearly too long":              {[]string{claimed, "update turnkeeper.detached_calls set deadline = now() - interval '1 s'"}, false, ""},
		"it is looked at":                       {[]string{looked}, true, ""},
		"it is looked at, and is over":          {[]string{looked, ended}, false, ""},
		"it is looked at, scheduled":            {[]string{looked, state("scheduled")}, true, ""},
		"it is looked at, fetched":              {[]string{looked, fetched}, true, ""},
		"it is looked at, to be retried":        {[]string{looked, state("retryable")}, true, ""},
		"it is looked at, pending":              {[]string{looked, state("pending")}, true, ""},
		"it is looked at, its job completed":    {[]string{looked, state("completed")}, true, "unrung"},
		"it is looked at, its job cancelled":    {[]string{looked, state("cancelled")}, true, "unrung"},
		"it is looked at, its job gone":         {[]string{looked, "delete from turnkeeper.river_job where kind = 'DetachedCall'"}, true, "unrung"},
		"it is not looked at, its job gone":     {[]string{"delete from turnkeeper.river_job where kind = 'DetachedCall'"}, false, ""},
		"it waits too long":                     {[]string{looked, "update turnkeeper.detached_calls set deadline = now()"}, true, "unwanted"},
		"a look far ahead":                      {[]string{"update turnkeeper.detached_calls set look_at = now() + interval '12 minutes'", state("cancelled")}, true, "unrung"},
		"a look ahead":                          {[]string{"update turnkeeper.detached_calls set look_at = now() + interval '10 minutes'", state("cancelled")}, false, ""},
		"a look far ahead, over":                {[]string{"update turnkeeper.detached_calls set look_at = now() + interval '12 minutes'", state("cancelled"), ended}, false, ""},
		"it is run, and would be looked at":     {[]string{claimed, looked, jobGone}, false, ""},
		"it is run, and a look is far ahead":    {[]string{claimed, ahead, jobGone}, false, ""},
		"it is run, its job another's":          {[]string{claimed, fetched, "update turnkeeper.river_job set attempted_by = array['gone'] where kind = 'DetachedCall'"}, false, ""},
		"it waits too long, not looked at":      {[]string{"update turnkeeper.detached_calls set deadline = now() - interval '1 h'"}, false, ""},
		"fetched by a live worker":              {[]string{fetched}, false, ""},
		"fetched by a silent worker":            {[]string{fetched, silent}, true, "unrung"},
		"fetched by a worker that stopped":      {[]string{fetched, stopped}, true, "unrung"},
		"fetched long ago":                      {[]string{fetched, "update turnkeeper.river_job set attempted_at = now() - interval '6 minutes' where kind = 'DetachedCall'"}, true, "unrung"},
		"waiting, as if by a silent worker":     {[]string{fetched, silent, "update turnkeeper.river_job set state = 'available' where kind = 'DetachedCall'"}, false, ""},
		"in another queue":                      {[]string{fetched, silent, "update turnkeeper.river_job set queue = 'turns' where kind = 'DetachedCall'"}, false, ""},
		"an older job fetched":                  {[]string{fetched, silent, "update turnkeeper.detached_calls set job_id = job_id + 1000"}, false, ""},
		"a job of another turn fetched":         {[]string{fetched, silent, "update turnkeeper.river_job set args = args || '{\"turn_id\": 999}' where kind = 'DetachedCall'"}, false, ""},
		"a job of another round fetched":        {[]string{fetched, silent, "update turnkeeper.river_job set args = args || '{\"round\": 9}' where kind = 'DetachedCall'"}, false, ""},
		"a job of another call fetched":         {[]string{fetched, silent, "update turnkeeper.river_job set args = args || '{\"ordinal\": 9}' where kind = 'DetachedCall'"}, false, ""},
		"fetched by a silent worker, over":      {[]string{fetched, silent, ended}, false, ""},
		"fetched by a silent worker, too late":  {[]string{fetched, silent, "update turnkeeper.detached_calls set deadline = now()"}, true, ""},
		"its worker is silent, its turn closed": {[]string{claimed, silent, "update turnkeeper.turns set state = 'cancelled', stop_reason = 'cancelled', ended_at = now()"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			d := h.waits("a")
			h.beat("w", 1, 15*time.Second)
			h.exec("insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, roles, takeover_after, stopped_at) values ('gone', 'h', 1, 'v', 1, '{worker}', '15 s', now())")
			for _, change := range c.changes {
				h.exec(change)
			}
			if slices.Contains(c.changes, ended) {
				h.waits("another") // so that there is one that is not
			}
			before := one[time.Time](h, "select look_at from turnkeeper.detached_calls where turn_id = $1", d.grant.TurnID)
			h.inTick(func(ctx context.Context, tick *storage.Tick) error {
				lost, err := tick.LostCalls(ctx, 10)
				var got turnkeeper.CallTrouble
				for _, l := range lost {
					got += l.Trouble
					if l.Ref.TurnID != d.grant.TurnID || l.Name != "tool" || l.Effect != turnkeeper.EffectOnce {
						t.Errorf("%+v", l)
					}
				}
				if got != c.want {
					t.Errorf("trouble %q, want %q", got, c.want)
				}
				return err
			})
			after := one[time.Time](h, "select look_at from turnkeeper.detached_calls where turn_id = $1", d.grant.TurnID)
			asked := slices.Contains(c.changes, looked) && !slices.Contains(c.changes, ended) && !slices.Contains(c.changes, claimed) || name == "a look far ahead"
			if after.Equal(before) == asked {
				t.Errorf("the next look was at %v, and is at %v", before, after)
			}
			h.exec("update turnkeeper.detached_calls set look_at = $2 where turn_id = $1", d.grant.TurnID, before)
			if sit, _ := h.look(); sit.Calls != c.looks {
				t.Errorf("a look says %t, want %t", sit.Calls, c.looks)
			}
		})
	}
}

// TestWhatAWorkerGivesBackOfCalls has one detached call, and one thing that keeps it from being given back.
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
		"fetched":                   {[]string{fetched}, 1, 0, false},
		"fetched, worked":           {[]string{fetched}, 0, 0, true},
		"fetched by another":        {[]string{fetched, "update turnkeeper.river_job set attempted_by = array['w', 'x'] where kind = 'DetachedCall'"}, 0, 0, false},
		"fetched just now":          {[]string{fetched, "update turnkeeper.river_job set attempted_at = now() where kind = 'DetachedCall'"}, 0, 0, false},
		"not fetched":               {[]string{fetched, "update turnkeeper.river_job set state = 'available' where kind = 'DetachedCall'"}, 0, 0, false},
		"in another queue":          {[]string{fetched, "update turnkeeper.river_job set queue = 'turns' where kind = 'DetachedCall'"}, 0, 0, false},
		"claimed":                   {[]string{claimed}, 0, 1, false},
		"claimed, run":              {[]string{claimed}, 0, 0, true},
		"claimed by another":        {[]string{claimed, "update turnkeeper.detached_calls set worker_id = 'x'"}, 0, 0, false},
		"claimed just now":          {[]string{claimed, "update turnkeeper.detached_calls set claimed_at = now()"}, 0, 0, false},
		"claimed, over":             {[]string{claimed, "update turnkeeper.detached_calls set ended_at = now()"}, 0, 0, false},
		"claimed, given up already": {[]string{claimed, "update turnkeeper.detached_calls set lost_at = now()"}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.waits("a")
			for _, change := range c.changes {
				h.exec(change)
			}
			var working []turnkeeper.JobID
			var running []turnkeeper.ClaimID
			if c.working {
				working = append(working, one[turnkeeper.JobID](h, "select job_id from turnkeeper.detached_calls"))
				running = append(running, "c")
			}
			got, err := h.GiveBackCalls(t.Context(), "w", 10*time.Second, working, running)
			if err != nil || got.Jobs != c.jobs || got.Grants != c.claims {
				t.Errorf("%+v, error %v; want %d jobs, %d claims", got, err, c.jobs, c.claims)
			}
		})
	}
}

// heard are the channels on which f rings, in order; of an inbox that has only room more, the word for it.
func (h *house) heard(f func()) (channels []string) {
	h.t.Helper()
	conn, err := pgx.Connect(h.t.Context(), h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	const end = "the end of the test"
	for _, channel := range []string{"turnkeeper_inbox", "turnkeeper_calls", "turnkeeper_cancels", "turnkeeper.river_insert"} {
		if _, err := conn.Exec(h.t.Context(), "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			h.t.Fatal(err)
		}
	}
	f()
	h.exec("select pg_notify('turnkeeper_calls', $1)", end)
	for {
		ring, err := conn.WaitForNotification(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		if ring.Payload == end {
			slices.Sort(channels)
			return channels
		}
		channel := strings.TrimPrefix(strings.TrimPrefix(ring.Channel, "turnkeeper_"), "turnkeeper.")
		if ring.Payload == "freed" {
			channel += " freed"
		}
		channels = append(channels, channel)
	}
}

// TestWhoIsToldOfACall does one thing after the other to the calls of two turns that wait. The scheduler is told once
// that a turn goes on; workers are told of a run that is to stop, and of a new one.
func TestWhoIsToldOfACall(t *testing.T) {
	h, it, other := openCalls(t)
	arrive := func(s scene, k turnkeeper.CallKey) func() {
		return func() {
			s.must(s.Arrive(t.Context(), s.claimOf(k, "w"), result(k, s.nonce(k.Round, k.Ordinal), turnkeeper.CallSucceeded, "ok")))
		}
	}
	settle := func(s scene) func() {
		return func() {
			h.inTick(func(ctx context.Context, tick *storage.Tick) error {
				return tick.SettleCalls(ctx, s.grant.TurnID, "may have happened", "may have run", "was not run", "")
			})
		}
	}
	end := func(ctx context.Context, tick *storage.Tick) error {
		return tick.EndCall(ctx, turnkeeper.LostCall{Ref: other.ref()}, turnkeeper.CallResult{Key: key(1, 1), State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
	}
	again := func(ctx context.Context, tick *storage.Tick) error {
		return tick.RunAgain(ctx, turnkeeper.LostCall{Ref: turnkeeper.CallRef{TurnID: other.grant.TurnID, Key: key(1, 2), Attempt: 1}})
	}
	for _, c := range []struct {
		name, want string
		do         func()
	}{
		{"a result", "inbox", arrive(it, key(1, 1))},
		{"a result for a turn that goes on already", "", arrive(it, key(1, 2))},
		{"a run that never began", "river_insert", func() { h.inTick(again) }},
		{"a call handed on", "calls river_insert", func() { it.must(h.HandOn(t.Context(), other.claimOf(key(1, 2), "w"))) }},
		{"a verdict", "calls inbox", func() { h.inTick(end) }},
		{"a third result", "", arrive(it, key(2, 1))},
		{"the last result", "", arrive(it, key(2, 2))},
		{"the end of a turn whose results have arrived", "", settle(it)},
		{"the end of a turn whose calls are open", "calls", settle(other)},
	} {
		if got := strings.Join(h.heard(c.do), " "); got != c.want {
			t.Errorf("%s: it rings %q, want %q", c.name, got, c.want)
		}
	}
}

// waitsBehind does something while somebody else has a lock, and reports whether it waits for it. meanwhile is called while
// it does.
func (h *house) waitsBehind(meanwhile func(), do func(context.Context, *storage.Store) error, lock string, args ...any) (waits bool) {
	h.t.Helper()
	far, err := storage.Open(h.t.Context(), storage.Options{URL: h.url, LockTimeout: patience, StatementTimeout: patience})
	if err != nil {
		h.t.Fatal(err)
	}
	defer far.Close()
	hold, err := h.Pool().Begin(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(h.t.Context(), lock, args...); err != nil {
		h.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- do(h.t.Context(), far) }()
	deadline := time.Now().Add(patience)
	for len(done) == 0 && !waits {
		waits = one[bool](h, "select count(*) > 0 from pg_stat_activity, pg_sleep(0.01) where $1 = any(pg_blocking_pids(pid))", hold.Conn().PgConn().PID())
		if time.Now().After(deadline) {
			h.t.Fatal("it is neither done nor does it wait")
		}
	}
	if waits {
		meanwhile()
	}
	if err := hold.Rollback(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	if err := <-done; err != nil {
		h.t.Error(err)
	}
	return waits
}

// TestACallIsMovedUnderTheLockOfItsTurn has the row of a turn locked: what is done to its calls waits, and has locked
// nothing of them before. What is done to those of another turn does not wait.
func TestACallIsMovedUnderTheLockOfItsTurn(t *testing.T) {
	h, it, other := openCalls(t)
	for name, c := range map[string]struct {
		key turnkeeper.CallKey
		do  func(context.Context, *storage.Store, turnkeeper.ClaimedCall) error
	}{
		"a result": {key(1, 1), func(ctx context.Context, s *storage.Store, c turnkeeper.ClaimedCall) error {
			return s.Arrive(ctx, c, result(c.Ref.Key, c.Call.Nonce, turnkeeper.CallSucceeded, "ok"))
		}},
		"a call handed on": {key(1, 2), func(ctx context.Context, s *storage.Store, c turnkeeper.ClaimedCall) error { return s.HandOn(ctx, c) }},
	} {
		for _, others := range []bool{true, false} {
			s := it
			if others {
				s = other
			}
			claimed := s.claimOf(c.key, "w")
			do := func(ctx context.Context, far *storage.Store) error { return c.do(ctx, far, claimed) }
			free := func() {
				if n := one[int](h, "select count(*) from (select from turnkeeper.detached_calls where turn_id = $1 for update skip locked) d", s.grant.TurnID); n != 4 {
					t.Errorf("%s: %d of 4 calls are not locked while it waits", name, n)
				}
			}
			if waits := h.waitsBehind(free, do, "select from turnkeeper.turns where id = $1 for update", it.grant.TurnID); waits == others {
				t.Errorf("%s of another turn: %t; it waits: %t", name, others, waits)
			}
		}
	}
}

// TestJobsOfCallsThatAreOver moves calls whose jobs River has ended: these stay as they are. One that has not ended is.
func TestJobsOfCallsThatAreOver(t *testing.T) {
	h := newHouse(t)
	keys := []turnkeeper.CallKey{key(1, 1), key(1, 2), key(2, 1), key(2, 2)}
	states := []string{"completed", "cancelled", "discarded", "running"}
	for name, c := range map[string]struct {
		want string // of the job that is not over
		do   func(context.Context, turnkeeper.ClaimedCall) error
	}{
		"results": {"completed", func(ctx context.Context, c turnkeeper.ClaimedCall) error {
			return h.Arrive(ctx, c, result(c.Ref.Key, c.Call.Nonce, turnkeeper.CallSucceeded, "ok"))
		}},
		"handed on": {"cancelled", h.HandOn},
		"verdicts": {"cancelled", func(_ context.Context, c turnkeeper.ClaimedCall) error {
			h.inTick(func(ctx context.Context, tick *storage.Tick) error {
				return tick.EndCall(ctx, turnkeeper.LostCall{Ref: c.Ref}, turnkeeper.CallResult{Key: c.Ref.Key, State: turnkeeper.CallUnknown, Shown: "?", Preview: "?"})
			})
			return nil
		}},
		"answered": {"cancelled", func(ctx context.Context, c turnkeeper.ClaimedCall) error {
			_, err := h.Pool().Exec(ctx, "update turnkeeper.calls set state = 'cancelled', ended_at = clock_timestamp() where turn_id = $1 and round = $2 and ordinal = $3",
				c.Ref.TurnID, c.Ref.Key.Round, c.Ref.Key.Ordinal)
			return err
		}},
	} {
		h.enqueue("desk", name, "x")
		var s scene
		for _, d := range h.dispatch("worker-1") {
			if d.record.Turn.Conversation == name { // and not that of a result that has arrived
				s = scene{h, d}
			}
		}
		s.open()
		for i, k := range keys {
			claimed := s.claimOf(k, "w")
			job := one[turnkeeper.JobID](h, "select job_id from turnkeeper.detached_calls where claim = $1", claimed.Claim)
			h.exec(`update turnkeeper.river_job set state = $2::turnkeeper.river_job_state, finalized_at = case when $2 <> 'running' then timestamptz '2026-01-01' end
				where id = $1`, job, states[i])
			s.must(c.do(t.Context(), claimed))
			want := states[i] + " at its time"
			if states[i] == "running" {
				want = c.want + " now"
			}
			got := one[string](h, "select state::text || case when finalized_at = timestamptz '2026-01-01' then ' at its time' else ' now' end from turnkeeper.river_job where id = $1", job)
			if got != want {
				t.Errorf("%s: a job that was %s is %s, want %s", name, states[i], got, want)
			}
		}
	}
}

// TestWhatATurnLeavesOfItsArrivals closes a turn without its worker while results lie there for it: they become the answers of
// calls that have none. What has an answer keeps it, and so does what is awaited by another turn.
func TestWhatATurnLeavesOfItsArrivals(t *testing.T) {
	const unknown, had = "may have happened", "cancelled: the turn ended before this call had"
	for name, c := range map[string]struct {
		closes func(scene)
		open   []turnkeeper.ToolCall // 1.2, of no effect, and 2.1
		want   string
	}{
		"its worker is lost": {
			func(s scene) {
				s.inTick(func(ctx context.Context, tick *storage.Tick) error {
					return tick.SettleCalls(ctx, s.grant.TurnID, unknown, "may have run", "was not run", "")
				})
			},
			[]turnkeeper.ToolCall{{State: turnkeeper.CallUnknown, Preview: unknown}, {State: turnkeeper.CallUnknown, Preview: unknown}},
			"awaited 1.1, awaited 1.2, call 1.1, call 1.2, call 2.1, detached 1.2, job 1.2",
		},
		"it is cancelled": {
			func(s scene) {
				_, err := s.CancelTurn(s.t.Context(), s.grant.TurnID, "")
				s.must(err)
			},
			[]turnkeeper.ToolCall{{State: turnkeeper.CallCancelled, Preview: had + "."}, {State: turnkeeper.CallCancelled, Preview: had + ". It may or may not have happened."}},
			"awaited 1.1, awaited 1.2, call 1.1, call 1.2, call 2.1, cancellation, detached 1.2, event 2, job 1.2, message, reply, turn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, it, other := openCalls(t)
			for _, s := range []scene{it, other} {
				s.must(h.Arrive(t.Context(), s.claim("w"), result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "arrived")))
			}
			h.exec("update turnkeeper.calls set effect = 'none' where turn_id = $1 and round = 1 and ordinal = 2", it.grant.TurnID)
			const ofThird = " where turn_id = $1 and round = 2 and ordinal = 1"
			h.exec("update turnkeeper.awaited_calls set arrived_at = opened_at, closed_at = opened_at, state = 'failed'"+ofThird, it.grant.TurnID)
			h.exec("update turnkeeper.detached_calls set ended_at = timestamptz '2026-01-01'"+ofThird, it.grant.TurnID)
			const ofLast = " where turn_id = $1 and round = 2 and ordinal = 2"
			h.exec("update turnkeeper.awaited_calls set arrived_at = clock_timestamp(), state = 'succeeded'"+ofLast, it.grant.TurnID)
			h.exec("update turnkeeper.calls set elsewhere = false"+ofLast, it.grant.TurnID) // so that its answer leaves what is awaited
			h.exec("update turnkeeper.calls set state = 'failed', ended_at = clock_timestamp()"+ofLast, it.grant.TurnID)
			before := h.rows()
			c.closes(it)
			for k, want := range map[turnkeeper.CallKey]turnkeeper.ToolCall{
				key(1, 1): {State: turnkeeper.CallSucceeded, Preview: "arrived"}, key(1, 2): c.open[0],
				key(2, 1): c.open[1], key(2, 2): {State: turnkeeper.CallFailed, Preview: "handle"},
			} {
				if c := h.call(it.grant.TurnID, k); c.State != want.State || c.Preview != want.Preview {
					t.Errorf("call %s is %s, %q; want %s, %q", k, c.State, c.Preview, want.State, want.Preview)
				}
			}
			var got []string
			for _, name := range changed(before, h.rows()) {
				got = append(got, it.short(name))
			}
			slices.Sort(got)
			if diff := cmp.Diff(strings.Split(c.want, ", "), got); diff != "" {
				t.Errorf("rows changed (-want +got):\n%s", diff)
			}
		})
	}
}

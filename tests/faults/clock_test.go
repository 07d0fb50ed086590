package faults_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// newClockEnv returns an Env on a server whose clock the test sets. Timestamps of that clock do not show whether grants
// overlap, so the order of writes is recorded: a grant before the end of the lane's last one is an overlap.
func newClockEnv(t testing.TB) (*env.Env, *clockServer) {
	t.Helper()
	c := newClockServer(t)
	e := env.NewOn(t, c.url)
	e.ClockStepped = true
	e.Exec(`create table granted (lane text, token bigint, primary key (lane, token))`)
	e.Exec(`create table regrants (lane text, token bigint)`)
	e.Exec(`create function note_overlap() returns trigger language plpgsql as $$
		begin
			insert into turnkeeper.regrants select e.lane, e.token from turnkeeper.granted e
			where e.lane = new.lane and e.token <> new.token and not exists (
				select from turnkeeper.ended_grants g where g.lane = e.lane and g.token = e.token);
			insert into turnkeeper.granted values (new.lane, new.token) on conflict do nothing;
			return null;
		end $$`)
	e.Exec(`create trigger overlap after insert or update on leases for each row when (new.grant_id is not null)
		execute function note_overlap()`)
	return e, c
}

// wakeScheduler makes the scheduler tick at once.
func wakeScheduler(e *env.Env) {
	e.T.Helper()
	e.Exec("notify turnkeeper_inbox")
}

// awaitHold waits until the scheduler holds off because of a clock step.
func awaitHold(e *env.Env, until *time.Time) {
	e.T.Helper()
	wakeScheduler(e)
	e.Await("the scheduler holds off", "select hold_until is not null and hold_until is distinct from $1 from settings",
		until)
	*until = env.Query[time.Time](e, "select hold_until from settings")
}

// awaitTrust waits until the scheduler trusts the clock again.
func awaitTrust(e *env.Env) {
	e.T.Helper()
	e.Await("the hold-off is over", "select hold_until is null from settings")
}

// awaitTick waits until the worker's scheduler has run a tick: a scheduler whose first tick comes after a
// clock step cannot notice the step.
func awaitTick(t *testing.T, w *env.Process) {
	t.Helper()
	over := time.After(env.Patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for env.Sum(env.Scrape(t, w.APIURL()), "turnkeeper_scheduler_tick_duration_seconds") == 0 {
		select {
		case <-tick.C:
		case <-over:
			t.Fatal("the scheduler does not tick")
		}
	}
}

// clockLease is the flags of a worker whose hold-off ends soon, and whose turns have time for the steps of a
// test.
var clockLease = []string{"--lease-ttl", "25s", "--lease-margin", "1s", "--max-duration", "22s", "--tool-timeout",
	"20s", "--takeover-after", "20s"}

// The clock is set back and forth during turns, while messages wait and a schedule has slots. No live worker
// loses its turn, nothing waits for the clock, and a step alone creates no slot.
func TestTheDatabasesClockSteps(t *testing.T) {
	t.Parallel()
	e, c := newClockEnv(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.WriteAgent("herald", `schedule: {cron: "@every 20m", message: "Look around."}`)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Look around." {
			return inferencetest.Text("All quiet.")
		}
		return env.Rounds(env.MarkerReply("mark_once", env.NewestMessage(r)), inferencetest.Text("It is marked."))(r)
	})
	awaitTick(t, e.StartWorker(clockLease...))
	awaitTick(t, e.StartWorker(clockLease...))
	e.AwaitSchedule()
	var hold time.Time
	off := time.Duration(0)
	for i, step := range []time.Duration{5 * time.Minute, -10 * time.Minute, 65 * time.Minute, -2 * time.Hour} {
		during, behind := fmt.Sprint("during step ", i), fmt.Sprint("behind it ", i)
		e.Ledger.Hold(during)
		running := e.Send("clerk", during)
		waiting := e.Send("clerk", behind)
		e.Ledger.Await(during, 1)
		off += step
		c.set(off)
		awaitHold(e, &hold)
		e.Ledger.Release()
		after := e.Send("clerk", fmt.Sprint("after step ", i))
		e.AwaitClosed(running, waiting, after)
		for _, id := range []int64{running, waiting, after} {
			turn := e.TurnOf(id)
			e.WantEnd(turn, "succeeded", "none", 2)
			if turn.Dispatches != 1 || turn.DurationMs == nil || *turn.DurationMs < 0 ||
				*turn.DurationMs > (2*time.Hour).Milliseconds() {
				t.Errorf("after a step of %v: message %d had %d dispatches in %v ms; the grants and jobs are\n%s\n%s",
					step, id, turn.Dispatches, *turn.DurationMs,
					env.Query[string](e, "select string_agg(g::text, E'\n' order by lane, token) from lease_log g"),
					env.Query[string](e, "select string_agg(j::text, E'\n' order by id) from river_job j"))
			}
		}
		e.Ledger.WantRuns(during, 1)
		e.Ledger.WantRuns(behind, 1)
	}
	if n := env.Query[int](e, "select count(*) from messages where trigger = 'schedule'"); n != 0 {
		t.Errorf("%d slots came due while the clock was not to be trusted", n)
	}
	// A lasting step of an hour: the missed slots collapse into one, after the hold-off.
	c.set(time.Hour)
	awaitHold(e, &hold)
	awaitTrust(e)
	if n := e.AwaitSlots(1); n != 1 {
		t.Errorf("an hour forth made %d messages of the schedule", n)
	}
	if most := e.Model.MaxInFlight(); most > 2 { // one per lane
		t.Errorf("%d requests were open at once", most)
	}
}

// The clock is set back between a grant and the fetch of its job. The fetch must not wait for the old time.
func TestTheClockIsSetBackBeforeAFetch(t *testing.T) {
	t.Parallel()
	e, c := newClockEnv(t)
	e.WriteAgent("clerk")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("Hello to you.") })
	e.StartWorker(append([]string{"--roles", "scheduler"}, clockLease...)...)
	w := e.StartWorker(append([]string{"--roles", "worker"}, clockLease...)...)
	w.Signal(syscall.SIGSTOP)
	message := e.Send("clerk", "Hello")
	e.Await("the message is granted", "select exists (select from turns where state = 'running' and worker_id is null)")
	c.set(-time.Hour)
	w.Signal(syscall.SIGCONT)
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 1)
	if turn.Dispatches != 1 || turn.Losses != 0 {
		t.Errorf("the turn had %d dispatches, %d losses", turn.Dispatches, turn.Losses)
	}
}

// A worker dies, and the clock is set back. Its turn must not wait for the old end of its lease.
func TestAWorkerDiesAndTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	for _, dies := range testrun.Sample([]string{"before the step", "with all others"}, 1) {
		t.Run(dies, func(t *testing.T) {
			t.Parallel()
			e, c := newClockEnv(t)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"),
				env.HangOnce(inferencetest.Text("It is marked."))))
			first := e.StartWorker(shortLease...)
			message := e.Send("clerk", "Make a mark.")
			behind := e.Send("clerk", "And another.")
			e.AwaitRequests(2)
			if dies == "before the step" {
				e.StartWorker(shortLease...)
			}
			first.Kill()
			c.set(-time.Hour)
			if dies == "with all others" {
				e.StartWorker(shortLease...)
			}
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 2)
			e.AwaitClosed(behind)
			e.Ledger.WantRuns("a", 2) // once for each message
			if turn.Dispatches != 2 || turn.Losses != 1 {
				t.Errorf("the turn had %d dispatches, %d losses", turn.Dispatches, turn.Losses)
			}
		})
	}
}

// The machine sleeps: everything stops, and then the wall clock shows an hour more, while no program noticed.
func TestTheMachineSleepsForAnHour(t *testing.T) {
	t.Parallel()
	e, c := newClockEnv(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.WriteAgent("herald", `schedule: {cron: "@every 10m", message: "Look around."}`)
	e.Ledger.Hold("a")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Look around." {
			return inferencetest.Text("All quiet.")
		}
		return env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("It is marked."))(r)
	})
	w := e.StartWorker(clockLease...)
	e.AwaitSchedule()
	message := e.Send("clerk", "Make a mark.")
	e.Ledger.Await("a", 1)

	w.Signal(syscall.SIGSTOP)
	c.signal(syscall.SIGSTOP)
	c.set(time.Hour)
	c.signal(syscall.SIGCONT)
	w.Signal(syscall.SIGCONT)

	var hold time.Time
	awaitHold(e, &hold)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	// On a busy machine the sleep may exceed the takeover timeout.
	if !strings.Contains(w.Output.String(), "cannot write the heartbeat for too long; giving up this worker's turns") {
		e.WantEnd(turn, "succeeded", "none", 2)
		if turn.Dispatches != 1 {
			t.Errorf("the turn had %d dispatches", turn.Dispatches)
		}
	}
	e.Ledger.WantRuns("a", 1)
	awaitTrust(e)
	if n := e.AwaitSlots(1); n != 1 {
		t.Errorf("six missed slots made %d messages", n)
	}
}

// The database stops answering for longer than the takeover timeout, with open connections. The worker gives
// up its turn, and the call does not run again.
func TestTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	e, c := newClockEnv(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Ledger.Hold("a")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Perhaps.")))
	w := e.StartWorker(clockLease...)
	message := e.Send("clerk", "Make a mark.")
	e.Ledger.Await("a", 1)
	c.signal(syscall.SIGSTOP)
	defer c.signal(syscall.SIGCONT) // if the test fails before, its cleanup asks the database
	w.Await("cannot write the heartbeat for too long; giving up this worker's turns")
	c.signal(syscall.SIGCONT)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	if turn.State != "succeeded" && turn.State != "degraded" {
		t.Errorf("the turn is %s", turn.State)
	}
	e.Ledger.WantRuns("a", 1)
	e.WantEnd(e.TurnOf(e.Send("clerk", "Are you there?")), "succeeded", "none", 2)
}

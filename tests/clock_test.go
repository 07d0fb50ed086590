package tests_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// newClockHouse is a house on a server whose clock the test sets. Stamps of
// that clock do not show whether grants overlapped, so the order of the writes
// is kept: a grant over an open one is an overlap.
func newClockHouse(t testing.TB) (*house, *clockwork) {
	t.Helper()
	c := newClockwork(t)
	h := newHouseOn(t, c.url)
	h.stepped = true
	h.exec(`create table regrants (lane text, token bigint)`)
	h.exec(`create function note_overlap() returns trigger language plpgsql as $$
		begin
			insert into turnkeeper.regrants select g.lane, g.token from turnkeeper.lease_log g
			where g.lane = new.lane and g.id <> new.id and g.ended_at is null;
			return null;
		end $$`)
	h.exec(`create trigger overlap after insert on lease_log for each row execute function note_overlap()`)
	return h, c
}

// look has the scheduler look at once.
func (h *house) look() {
	h.t.Helper()
	h.exec("notify turnkeeper_inbox")
}

// awaitHold returns when the scheduler holds off for a step of the clock.
func (h *house) awaitHold(until *time.Time) {
	h.t.Helper()
	h.look()
	h.await("the scheduler holds off", "select hold_until is not null and hold_until is distinct from $1 from settings", until)
	*until = query[time.Time](h, "select hold_until from settings")
}

// awaitTrust returns when the scheduler trusts the clock again.
func (h *house) awaitTrust() {
	h.t.Helper()
	h.await("the hold-off is over", "select hold_until is null from settings")
}

// awaitLook returns when the worker's scheduler has looked once: one that first
// looks after a step cannot know of it.
func awaitLook(t *testing.T, w *process) {
	t.Helper()
	over := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for sum(scrape(t, w.api()), "turnkeeper_scheduler_tick_duration_seconds") == 0 {
		select {
		case <-tick.C:
		case <-over:
			t.Fatal("the scheduler does not look")
		}
	}
}

// clockLease are the flags of a worker whose hold-off is over soon, and whose
// turns have time for what a test does meanwhile.
var clockLease = []string{"--lease-ttl", "12s", "--lease-margin", "1s", "--max-duration", "10s", "--tool-timeout", "8s", "--takeover-after", "10s"}

// TestTheDatabasesClockSteps sets the clock to and fro in the middle of turns,
// while messages wait and a schedule has slots. No live worker loses its turn,
// nothing waits for the clock, and no slot comes of a step alone.
func TestTheDatabasesClockSteps(t *testing.T) {
	t.Parallel()
	h, c := newClockHouse(t)
	h.agent("clerk", marks)
	h.agent("herald", `schedule: {cron: "@every 20m", message: "Look around."}`)
	h.model.Then(func(r recorded) reply {
		if newest(r) == "Look around." {
			return text("All quiet.")
		}
		return rounds(callOnce("mark_once", newest(r)), text("It is marked."))(r)
	})
	awaitLook(t, h.startWorker(clockLease...))
	awaitLook(t, h.startWorker(clockLease...))
	h.await("the schedule is known", "select exists (select from schedules where next_due is not null)")
	var hold time.Time
	off := time.Duration(0)
	for i, step := range []time.Duration{5 * time.Minute, -10 * time.Minute, 65 * time.Minute, -2 * time.Hour} {
		during, behind := fmt.Sprint("during step ", i), fmt.Sprint("behind it ", i)
		h.ledger.hold(during)
		running := h.send("clerk", during)
		waiting := h.send("clerk", behind)
		h.ledger.await(during, 1)
		off += step
		c.set(off)
		h.awaitHold(&hold)
		h.ledger.release()
		after := h.send("clerk", fmt.Sprint("after step ", i))
		h.awaitClosed(running, waiting, after)
		for _, id := range []int64{running, waiting, after} {
			turn := h.turnOf(id)
			h.ended(turn, "succeeded", "none", 2)
			if turn.Dispatches != 1 || turn.DurationMs == nil || *turn.DurationMs < 0 || *turn.DurationMs > (2*time.Hour).Milliseconds() {
				t.Errorf("after a step of %v: turn %d had %d dispatches in %v ms", step, id, turn.Dispatches, *turn.DurationMs)
			}
		}
		h.ledger.ran(during, 1)
		h.ledger.ran(behind, 1)
	}
	if n := query[int](h, "select count(*) from messages where trigger = 'schedule'"); n != 0 {
		t.Errorf("%d slots came due while the clock was not to be trusted", n)
	}
	// An hour that stays: what was missed is one slot, after the hold-off.
	c.set(time.Hour)
	h.awaitHold(&hold)
	h.awaitTrust()
	if n := h.slots(1); n != 1 {
		t.Errorf("an hour forth made %d messages of the schedule", n)
	}
	if most := h.model.MaxInFlight(); most > 2 { // one a lane
		t.Errorf("%d requests were open at once", most)
	}
}

// A worker dies, and the clock is set back: its turn must not wait until the
// clock shows the end of its lease again.
func TestAWorkerDiesAndTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]string{"before the step": "before", "with all others": "all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, c := newClockHouse(t)
			h.agent("clerk", marks)
			h.model.Then(rounds(callOnce("mark_once", "a"), hangOnce(text("It is marked."))))
			flags := append([]string{"--takeover-after", "0"}, shortLease...)
			first := h.startWorker(flags...)
			message := h.send("clerk", "Make a mark.")
			behind := h.send("clerk", "And another.")
			h.awaitRequests(2)
			if dies == "before" {
				h.startWorker(flags...)
			}
			first.kill()
			c.set(-time.Hour)
			if dies == "all" {
				h.startWorker(flags...)
			}
			turn := h.turnOf(message)
			h.ended(turn, "succeeded", "none", 2)
			h.awaitClosed(behind)
			h.ledger.ran("a", 2) // once for each message
			if turn.Dispatches != 2 || turn.Losses != 1 {
				t.Errorf("the turn had %d dispatches, %d losses", turn.Dispatches, turn.Losses)
			}
		})
	}
}

// A machine that sleeps: everything stops, and when it goes on, the clock on
// the wall shows an hour more, but no program has noticed.
func TestTheMachineSleepsForAnHour(t *testing.T) {
	t.Parallel()
	h, c := newClockHouse(t)
	h.agent("clerk", marks)
	h.agent("herald", `schedule: {cron: "@every 10m", message: "Look around."}`)
	h.ledger.hold("a")
	h.model.Then(func(r recorded) reply {
		if newest(r) == "Look around." {
			return text("All quiet.")
		}
		return rounds(callOnce("mark_once", "a"), text("It is marked."))(r)
	})
	w := h.startWorker(clockLease...)
	h.await("the schedule is known", "select exists (select from schedules where next_due is not null)")
	message := h.send("clerk", "Make a mark.")
	h.ledger.await("a", 1)

	w.signal(syscall.SIGSTOP)
	c.signal(syscall.SIGSTOP)
	c.set(time.Hour)
	c.signal(syscall.SIGCONT)
	w.signal(syscall.SIGCONT)

	var hold time.Time
	h.awaitHold(&hold)
	h.ledger.release()
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	if turn.Dispatches != 1 {
		t.Errorf("the turn had %d dispatches", turn.Dispatches)
	}
	h.ledger.ran("a", 1)
	h.awaitTrust()
	if n := h.slots(1); n != 1 {
		t.Errorf("six missed slots made %d messages", n)
	}
}

// The database stops answering, its connections open, for longer than a worker
// may be silent. The worker gives its turn up; the call is not run again.
func TestTheDatabaseStandsStill(t *testing.T) {
	t.Parallel()
	h, c := newClockHouse(t)
	h.agent("clerk", marks)
	h.ledger.hold("a")
	h.model.Then(rounds(callOnce("mark_once", "a"), text("Perhaps.")))
	w := h.startWorker(append(clockLease[:len(clockLease):len(clockLease)], "--takeover-after", "2s")...)
	message := h.send("clerk", "Make a mark.")
	h.ledger.await("a", 1)
	c.signal(syscall.SIGSTOP)
	w.await("this worker gives its turns up")
	c.signal(syscall.SIGCONT)
	h.ledger.release()
	turn := h.turnOf(message)
	if turn.State != "succeeded" && turn.State != "degraded" {
		t.Errorf("the turn is %s", turn.State)
	}
	h.ledger.ran("a", 1)
	h.ended(h.turnOf(h.send("clerk", "Are you there?")), "succeeded", "none", 2)
}

package grants_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// failHeads lets n lanes, each with the given number of messages, back off as after failures of their heads.
func failHeads(h *env, n, each int) {
	h.T.Helper()
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at, accepted_at)
		select 'desk', 'p' || i % $1::int, 'desk/p' || i % $1::int, 'x', at, at from generate_series(0, $1::int * $2::int - 1) i,
			lateral (select now() - interval '1 hour' + i * interval '1 ms' as at) due`, n, each)
	h.Exec(`insert into turnkeeper.leases (lane, agent, failures, not_before)
		select 'desk/p' || i, 'desk', 3, now() + interval '100 s' from generate_series(0, $1::int - 1) i`, n)
	h.Exec(`update turnkeeper.messages m set attempts = 3,
			queue_rank = turnkeeper.rank_of(l.not_before - interval '1 ms', m.priority)
		from turnkeeper.leases l where l.lane = m.lane and m.id in (
			select distinct on (lane) id from turnkeeper.messages where state = 'waiting' order by lane, rank, id)`)
}

// Lanes that back off cost a tick nothing until they are due, however many messages wait in them: a full look passes
// over them, partial looks begin behind them, and both find a message of another lane.
func TestLanesThatBackOffCostNothing(t *testing.T) {
	h := newFresh(t)
	h.NeverAnalyzed()
	statements := map[string]string{
		"a partial look": query(t, "scheduler.sql", "Snapshot", "@everything", "false", "@waiting_from",
			"(now() - interval '1 min')", "@max_passed", "0"),
		"its heads": query(t, "scheduler.sql", "ReadyMessages", "@waiting_from", "(now() - interval '1 min')",
			"@max_passed", "0"),
		"the next due": query(t, "scheduler.sql", "NextDue"),
	}
	before := map[string]int{}
	for name, sql := range statements {
		before[name] = storagetest.ExplainWithin(h.DB, 0, sql).Pages()
	}
	failHeads(h, testrun.Count(2000, 10_000), 10)
	h.Submit("desk", "free", "x")
	for i := range 3 {
		if lanes := heads(h); !slices.Equal(lanes, []turnkeeper.Lane{"desk/free"}) {
			t.Errorf("tick %d finds %v", i, lanes)
		}
	}
	if sit := look(t, h, true); sit.Waiting != 1 {
		t.Errorf("%d messages wait for a slot, want 1", sit.Waiting)
	}
	for name, sql := range statements {
		most := before[name] + 60
		if read := storagetest.ExplainWithin(h.DB, most, sql).Pages(); read > most {
			t.Errorf("%s reads %d pages, and %d without lanes that back off", name, read, before[name])
		} else {
			t.Logf("%s: %d pages, %d without lanes that back off", name, read, before[name])
		}
	}
}

// TestAPauseThatEndsIsSeen ends the pause of a lane in each possible way, with messages of three priorities. The next
// partial look must find the lane's oldest message.
func TestAPauseThatEndsIsSeen(t *testing.T) {
	for _, priority := range []int{0, 1000, -1000} {
		for name, end := range map[string]string{
			"nobody":       "update turnkeeper.leases set not_before = not_before", // it is still in force
			"the agent":    "update turnkeeper.leases set not_before = null where agent = 'desk'",
			"earlier":      "update turnkeeper.leases set not_before = now()",
			"its own time": "", // see below
		} {
			t.Run(fmt.Sprintf("%s %d", name, priority), func(t *testing.T) {
				h := newEnv(t)
				h.Exec("update turnkeeper.settings set max_sender_priority = 1000")
				h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, priority, due_at, accepted_at)
					values ('desk', 'p', 'desk/p', 'x', $1, now() - interval '1 hour', now() - interval '1 hour')`, priority)
				at := "now() + interval '100 s'"
				if end == "" {
					at = "now()"
				}
				h.Exec("insert into turnkeeper.leases (lane, agent, failures, not_before) values ('desk/p', 'desk', 3, " +
					at + ")")
				h.Exec(`update turnkeeper.messages m set queue_rank = turnkeeper.rank_of(l.not_before, m.priority)
					from turnkeeper.leases l where l.lane = m.lane`)
				if end != "" {
					h.Exec(end)
				}
				want := 1
				if name == "nobody" {
					want = 0
				}
				if sit := look(t, h, false); sit.Waiting != want {
					t.Errorf("%d messages wait for a slot, want %d", sit.Waiting, want)
				}
				if lanes := heads(h); len(lanes) != want {
					t.Errorf("a tick finds %v", lanes)
				}
				now := storagetest.One[bool](h,
					"select queue_rank <= turnkeeper.rank_of(now(), priority) from turnkeeper.messages")
				if now != (want == 1) {
					t.Errorf("it waits since now or earlier: %v", now)
				}
			})
		}
	}
}

// A message behind the head of a lane that paused keeps its place: a partial look, which begins behind it, finds
// nothing that came later, and the next full look finds the message.
func TestAMessageBehindAFailedOneKeepsItsPlace(t *testing.T) {
	h := newEnv(t)
	failHeads(h, 1, 2)
	h.settle()
	h.Exec("update turnkeeper.messages set state = 'succeeded', closed_at = now() where queue_rank is not null")
	h.Exec("update turnkeeper.leases set not_before = null, failures = 0")
	h.Exec("insert into turnkeeper.messages (agent, conversation, lane, body) values ('desk', 'p0', 'desk/p0', 'newer')")
	if found := h.partly(); found != "" {
		t.Errorf("a partial look finds %s", found)
	}
	if lanes := heads(h); !slices.Equal(lanes, []turnkeeper.Lane{"desk/p0"}) {
		t.Errorf("a full look finds %v", lanes)
	}
	if sit := look(t, h, true); sit.Waiting != 2 {
		t.Errorf("%d messages wait for a slot, want 2", sit.Waiting)
	}
}

// BenchmarkTickBesideLanesThatBackOff measures a tick that finds nothing to do.
func BenchmarkTickBesideLanesThatBackOff(b *testing.B) {
	for _, n := range []int{0, 10_000} {
		b.Run(fmt.Sprint(n, " lanes"), func(b *testing.B) {
			h := newEnv(b)
			if n > 0 {
				failHeads(h, n, 10)
			}
			h.Exec("vacuum analyze turnkeeper.messages, turnkeeper.leases")
			tick := func(everything bool) {
				if err := h.InTick(b.Context(), func(tick *grants.Tick) error {
					_, _, err := tick.Snapshot(context.WithoutCancel(b.Context()), everything)
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
			for range 20 { // the floor of partial looks follows the newest look that all open transactions have seen
				tick(true)
			}
			for b.Loop() {
				tick(false)
			}
		})
	}
}

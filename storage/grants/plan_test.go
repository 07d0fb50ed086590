package grants_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// query reads a named query from its file, and fills in its parameters: those of pairs, a name and a value each, and
// else values for all that there is.
func query(t testing.TB, file, name string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile("../queries/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "-- name: "+name+" ")
	if !found {
		t.Fatalf("%s has no query %s", file, name)
	}
	_, sql, _ := strings.Cut(after, "\n")
	sql, _, _ = strings.Cut(sql, "-- name: ")
	sql = strings.NewReplacer(pairs...).Replace(sql)
	sql = strings.ReplaceAll(sql, "@left_to_newer", "'x'")
	sql = strings.ReplaceAll(sql, "@waiting_from", "'-infinity'")
	sql = strings.ReplaceAll(sql, "@ordered_from", "'-infinity'")
	sql = strings.ReplaceAll(sql, "@held_from", "'-infinity'")
	sql = strings.ReplaceAll(sql, "@held", "'{}'")
	sql = strings.ReplaceAll(sql, "@full_agents", "'{}'")
	sql = strings.ReplaceAll(sql, "@passed_agents", "'{}'")
	sql = strings.ReplaceAll(sql, "@every_lane", "false")
	sql = strings.ReplaceAll(sql, "@since", "now()")
	sql = strings.ReplaceAll(sql, "@max_passed", "100000")
	sql = strings.ReplaceAll(sql, "@everything", "true")
	return regexp.MustCompile(`@max_(?:rows|heads|waiting)(::integer)?\b`).ReplaceAllString(sql, "100")
}

// A flood is a queue of a hundred thousand waiting messages, in addition to some answered ones.
type flood struct {
	name  string
	lanes int // number of lanes that the 100,000 messages are distributed over
	crowd int // more messages in one lane, which are older than all others
	busy  int // lanes that are held
}

var floods = []flood{
	{name: "one lane", lanes: 1},
	{name: "10,000 lanes", lanes: 10_000},
	{name: "10,000 lanes behind a crowded one", lanes: 10_000, crowd: 1000},
	{name: "10,000 lanes, the oldest all busy", lanes: 10_000, busy: 1000},
}

func (f flood) pour(h *env) {
	h.T.Helper()
	h.NeverAnalyzed()
	const past = "now() - interval '1 hour' + i * interval '1 ms'"
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, state, closed_at, due_at)
		select 'desk', 'c' || i % $1::int, 'desk/c' || i % $1::int, 'old', 'succeeded', now(), `+past+` from generate_series(1, 20000) i`, f.lanes)
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at, accepted_at)
		select 'desk', 'crowd', 'desk/crowd', 'x', `+past+`, `+past+` from generate_series(1, $1::int) i`, f.crowd)
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at, accepted_at)
		select 'desk', 'c' || i % $1::int, 'desk/c' || i % $1::int, 'x', `+past+` + interval '1 minute', `+past+` + interval '1 minute' from generate_series(1, 100000) i`, f.lanes)
	h.Exec(
		`insert into turnkeeper.leases (lane, agent) select 'desk/c' || i, 'desk' from generate_series(0, $1::int - 1) i`, f.lanes)
	h.Exec(
		`insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		select id, 1, agent, conversation, lane, 'message', repeat('a', 64), 'succeeded', 1, now(), 'none'
		from turnkeeper.messages where state = 'succeeded'`)
	h.Exec(
		`update turnkeeper.leases set grant_id = gen_random_uuid(), turn_id = 1, granted_at = now(), lease_until = now() + interval '4 min'
		where lane in (select lane from turnkeeper.messages where state = 'waiting' order by id limit $1)`, f.busy)
}

// mayRead returns the maximum number of pages that a query of the queue may read, independent of
// its length: those for the oldest four hundred messages, or one step for each lane if these are
// all in busy lanes or in one lane.
func (f flood) mayRead() (pages int) {
	pages = 5000
	if f.crowd+f.busy > 0 {
		pages += 10 * f.lanes // a step reads three indexes and a row
	}
	return pages
}

// TestLooksAtALongQueueUseIndexes explains the statements of a tick with a hundred thousand waiting
// messages, before and after the tables are analyzed.
func TestLooksAtALongQueueUseIndexes(t *testing.T) {
	testrun.Slow(t)
	for _, f := range testrun.Sample(floods, 2) {
		t.Run(f.name, func(t *testing.T) {
			h := newFresh(t)
			f.pour(h)
			for _, analyzed := range []bool{false, true} {
				if analyzed {
					h.Exec("vacuum analyze turnkeeper.messages, turnkeeper.turns, turnkeeper.leases")
				}
				for _, name := range []string{"ReadyMessages", "every lane", "ReadyTurns", "Snapshot", "NextDue"} {
					sql, most := query(t, "scheduler.sql", "ReadyMessages", "@every_lane", "true"), 5000+10*f.lanes
					if name != "every lane" {
						sql, most = query(t, "scheduler.sql", name), f.mayRead()
					}
					plan := storagetest.ExplainWithin(h.DB, most, sql)
					plan.Walk(func(n storagetest.Plan) {
						if (n.Relation == "messages" || n.Relation == "turns") && n.Type != "Index Scan" &&
							n.Type != "Index Only Scan" && n.Rows*n.Loops > 0 {
							t.Errorf("%s, analyzed %v: a %s of %s", name, analyzed, n.Type, n.Relation)
						}
					})
					if got := plan.Pages(); got > most {
						t.Errorf("%s, analyzed %v: looks at %d pages, %d are enough", name, analyzed, got, most)
					} else {
						t.Logf("%s, analyzed %v: %d pages", name, analyzed, got)
					}
				}
			}
			f.checkHeads(h)
		})
	}
}

// checkHeads compares the messages that a tick selects with a simple query for them.
func (f flood) checkHeads(h *env) {
	h.T.Helper()
	want := storagetest.One[string](h, `select string_agg(id::text, ' ' order by rank, id) from (
		select * from (select distinct on (lane) * from turnkeeper.messages where state = 'waiting'
			order by lane, rank, id) head
		where not exists (select from turnkeeper.leases l where l.lane = head.lane and l.grant_id is not null)
		order by rank, id limit 100) heads`)
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		ready, err := tick.ReadyMessages(ctx, 100, nil)
		var got []string
		for _, r := range ready {
			got = append(got, fmt.Sprint(r.MessageID))
		}
		if picked := strings.Join(got, " "); picked != want {
			h.T.Errorf("picked %s\nwant   %s", picked, want)
		}
		return err
	})
}

// While all lanes but a few are busy, ticks go from lane to lane only now and then. A message in a free lane is found
// all the same.
func TestTicksSeldomScanBusyLanes(t *testing.T) {
	h := newFresh(t)
	flood{lanes: 2000, busy: 2000}.pour(h)
	h.Exec(
		"insert into turnkeeper.messages (agent, conversation, lane, body) values ('desk', 'free', 'desk/free', 'x')")
	h.PauseAfterAnyScan()
	found, empty := 0, 0
	for range 30 {
		switch ready := heads(h); {
		case slices.Equal(ready, []turnkeeper.Lane{"desk/free"}):
			found++
		case len(ready) == 0:
			empty++
		}
	}
	for len(heads(h)) > 0 { // until a tick has left lanes out
	}
	due, err := h.NextDue(t.Context(), time.Now())
	if err != nil || due > time.Minute {
		t.Errorf("the next look is in %s, %v", due, err)
	}
	if found == 0 || found > 10 || found+empty != 30 {
		t.Errorf("%d of 30 ticks scanned the lanes, %d did not", found, empty)
	}
}

// heads returns the lanes that a tick that looks for everything could grant.
func heads(h *env) (lanes []turnkeeper.Lane) {
	h.T.Helper()
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		ready, err := tick.ReadyMessages(ctx, 100, nil)
		for _, r := range ready {
			lanes = append(lanes, r.Lane)
		}
		return err
	})
	return lanes
}

// BenchmarkLookAtALongQueue measures all queries of a tick. Compare the results with those of the
// empty queue.
func BenchmarkLookAtALongQueue(b *testing.B) {
	for _, f := range append([]flood{{name: "an empty queue"}}, floods...) {
		b.Run(f.name, func(b *testing.B) {
			h := newEnv(b)
			if f.lanes > 0 {
				f.pour(h)
			}
			h.Exec("vacuum analyze turnkeeper.messages, turnkeeper.turns, turnkeeper.leases")
			for b.Loop() {
				h.Tick(func(context.Context, *grants.Tick) error { return nil })
			}
		})
	}
}

func TestReadyMessagesOrder(t *testing.T) {
	h := newEnv(t)
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, priority, due_at) values
		('desk', 'a', 'desk/a', 'a late', 1000, now() - interval '1 minute'),
		('desk', 'a', 'desk/a', 'a low', 0, now() - interval '2 minutes'),
		('desk', 'a', 'desk/a', 'a high', 5, now() - interval '2 minutes'),
		('desk', 'b', 'desk/b', 'b', 0, now() - interval '3 minutes'),
		('desk', 'c', 'desk/c', 'c not yet', 0, now() + interval '1 minute'),
		('desk', 'd', 'desk/d', 'd', 9, now() - interval '3 minutes')`)
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		ready, err := tick.ReadyMessages(ctx, 100, nil)
		var bodies []string
		for _, r := range ready {
			bodies = append(bodies, storagetest.One[string](h, "select body from turnkeeper.messages where id = $1",
				r.MessageID))
		}
		if got := strings.Join(bodies, ", "); got != "a late, d, b" {
			t.Errorf("heads in this order: %s", got)
		}
		return err
	})
}

// BenchmarkAcceptWithALongQueue compares accepting a message with a hundred thousand waiting
// messages and with an empty inbox. Both should take equally long.
func BenchmarkAcceptWithALongQueue(b *testing.B) {
	for _, f := range append([]flood{{name: "an empty queue"}}, floods...) {
		b.Run(f.name, func(b *testing.B) {
			h := newEnv(b)
			if f.lanes > 0 {
				f.pour(h)
			}
			n := 0
			for b.Loop() {
				n++
				h.Submit("desk", fmt.Sprint("c", n%10_000), "x")
			}
		})
	}
}

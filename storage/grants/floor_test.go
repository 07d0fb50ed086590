package grants_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/granting"
	heart "turnkeeper/internal/presence"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// look returns what a look finds.
func look(t testing.TB, h *env, everything bool) (sit granting.Snapshot) {
	t.Helper()
	err := h.InTick(t.Context(), func(tick *grants.Tick) (err error) {
		sit, _, err = tick.Snapshot(t.Context(), everything)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sit
}

// While a transaction stays open, the entries of all grants since stay in the indexes. Partial looks, the search for
// what is due next, and the loading of a turn do not read them.
func TestGrantsBesideAnOpenTransactionReadFewPages(t *testing.T) {
	h := newFresh(t)
	h.NeverAnalyzed()
	open, err := h.Pool().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := open.Exec(t.Context(), "select from turnkeeper.settings"); err != nil {
		t.Fatal(err)
	}
	const later = "(now() + interval '238 s')"
	statements := map[string]string{
		"a partial look": query(t, "scheduler.sql", "Snapshot", "@everything", "false", "@held_from", later),
		"a full look":    query(t, "scheduler.sql", "Snapshot"),
		"the next due":   query(t, "scheduler.sql", "NextDue", "@held_from", later),
		"a turn's row": query(t, "record.sql", "TurnForWorker", "@turn_ids", "'{}'",
			"@lanes", "'{desk/1,desk/2}'", "@grants", "array[gen_random_uuid(), gen_random_uuid()]"),
	}
	before := map[string]int{}
	for name, sql := range statements {
		before[name] = storagetest.ExplainWithin(h.DB, 0, sql).Pages()
	}
	for range 5 {
		h.Exec(`insert into turnkeeper.leases as l (lane, agent, token, grant_id, turn_id, granted_at, lease_until)
			select 'desk/' || i, 'desk', 1, gen_random_uuid(), i, now(), now() + interval '230 s' from generate_series(1, 1000) i
			on conflict (lane) do update set grant_id = excluded.grant_id, turn_id = excluded.turn_id, granted_at = excluded.granted_at, lease_until = excluded.lease_until`)
		h.Exec("update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null")
	}
	for name, sql := range statements {
		more := storagetest.ExplainWithin(h.DB, before[name]+50, sql).Pages() - before[name]
		// a full look shows that the entries are there
		if full := name == "a full look"; full && more < 100 || !full && more > 50 {
			t.Errorf("%s reads %d pages more than without grants", name, more)
		}
	}
}

// A partial look counts the grants since the full one, whether or not leases were held then. A full look finds what
// partial ones leave out: messages whose due time somebody has changed, and leases that were ended early.
func TestWhatPartialLooksLeaveOut(t *testing.T) {
	h := newEnv(t)
	if err := h.Beat(t.Context(), heart.Heartbeat{WorkerID: "w", Host: "h", Slots: 5,
		TakeoverAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
	h.TurnOf("desk", "w").Finish(t, "done") // from now on it is known how long leases last
	look(t, h, true)
	first := h.TurnOf("desk", "w")
	if room := look(t, h, false).FreeSlots; room != 4 {
		t.Errorf("%d of 5 slots are free beside a turn that was granted when none was held", room)
	}
	due, err := h.NextDue(t.Context(), time.Now())
	if err != nil || due > storagetest.TTL {
		t.Errorf("the next look is in %s, %v: the lease ends before", due, err)
	}
	look(t, h, true)
	if room := look(t, h, false).FreeSlots; room != 4 {
		t.Errorf("%d of 5 slots are free beside a turn", room)
	}
	h.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id = $1", first.Grant.GrantID)
	if look(t, h, false).Lost {
		t.Error("a partial look found lost grants")
	}
	// partial looks begin before the oldest transaction on the server
	for found := 1; found > 0; found = look(t, h, false).Waiting {
		h.Exec("delete from turnkeeper.messages where body = 'x'")
		look(t, h, true)
		h.Exec(
			`insert into turnkeeper.messages (agent, conversation, lane, body) values ('desk', 'late', 'desk/late', 'x')`)
		// by nobody who writes a queue_rank
		h.Exec("update turnkeeper.messages set due_at = due_at - interval '1 hour' where body = 'x'")
	}
	if sit := look(t, h, true); sit.Waiting != 1 || !sit.Lost {
		t.Errorf("a full look found %d messages and lost grants: %v", sit.Waiting, sit.Lost)
	}
	// before the floor again
	h.Exec("update turnkeeper.messages set due_at = due_at - interval '1 minute' where body = 'x'")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		ready, err := tick.ReadyMessages(ctx, 100, nil)
		if len(ready) != 1 || !strings.HasSuffix(string(ready[0].Lane), "late") {
			t.Errorf("ready are %v", ready)
		}
		return err
	})
}

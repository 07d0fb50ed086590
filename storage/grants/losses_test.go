package grants_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// presence is the lock of the process of worker-1.
const presence = "select pg_advisory_lock_shared(1414218583, hashtext('worker-1'))"

// TestWhichWorkersArePresent takes locks like the one of a worker's process.
func TestWhichWorkersArePresent(t *testing.T) {
	h := newEnv(t)
	for name, c := range map[string]struct {
		url, lock string
		want      bool
	}{
		"its lock":  {h.URL, presence, true},
		"its name":  {h.URL, "select pg_advisory_lock_shared(1414218583, hashtext('worker-2'))", false},
		"its class": {h.URL, "select pg_advisory_lock_shared(1, hashtext('worker-1'))", false},
		"a single key": {h.URL,
			"select pg_advisory_lock_shared((1414218583::bigint << 32) | (hashtext('worker-1')::bigint & 4294967295))",
			false},
		"another database": {storagetest.EmptyURL(t), presence, false},
	} {
		conn, err := pgx.Connect(t.Context(), c.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), c.lock)
		if got := storagetest.One[bool](h, "select turnkeeper.worker_present('worker-1')"); got != c.want ||
			err != nil {
			t.Errorf("%s: present is %t, error %v", name, got, err)
		}
		if _, err := conn.Exec(t.Context(), "select pg_advisory_unlock_all()"); err != nil {
			t.Error(err)
		}
		_ = conn.Close(t.Context())
	}
}

// TestLossesByEachFact has a message that its worker holds and has lost before. Each case changes one of the facts that
// decide whether the two losses count: package granting tests what these facts decide.
func TestLossesByEachFact(t *testing.T) {
	h := newEnv(t)
	process := h.Admin()
	h.HeartBeat("worker-1", 1, 15*time.Second)
	d := h.Turn("x")
	h.Again(d, "worker-1")
	ago := func(table, column string) func(string) {
		return func(ago string) {
			h.Exec(fmt.Sprintf("update turnkeeper.%s set %s = statement_timestamp() - interval '%s'", table, column, ago))
		}
	}
	beat, stopped := ago("worker_heartbeat", "beat_at"), ago("worker_heartbeat", "stopped_at")
	counted := ago("settings", "silence_from")
	died := func() { process("select pg_advisory_unlock_all()") }
	for name, c := range map[string]struct {
		given  func()
		alive  bool // the loss of the grant that is held does not count
		losses int
	}{
		"its process is connected": {func() {}, true, 0},
		"its process has died":     {died, false, 1},
		"the lease has expired":    {func() { ago("turns", "lease_until")("1 s") }, false, 0},
		"the lease had expired":    {func() { ago("ended_grants", "lease_until")("30 s") }, true, 1},
		"its worker has stopped":   {func() { stopped("1 s") }, false, 1},
		"its worker has returned":  {func() { beat("5 s"); died() }, false, 0},
		"its worker will return":   {func() { beat("-1 minute"); died() }, false, 1},
		"silent for a whole lease": {func() { beat("241 s") }, false, 1},
		"for almost a lease":       {func() { beat("200 s") }, true, 0},
		"silence counts for less":  {func() { beat("241 s"); counted("200 s") }, true, 0},
		"silence counts for more":  {func() { beat("241 s"); counted("300 s") }, false, 1},
		"silent for a short lease": {func() { ago("turns", "lease_until")("-5 s"); beat("70 s") }, false, 0},
		"and for an earlier one":   {func() { ago("ended_grants", "lease_until")("25 s"); beat("40 s") }, true, 1},
		"its worker is forgotten":  {func() { h.Exec("delete from turnkeeper.worker_heartbeat") }, true, 0},
	} {
		h.Exec("delete from turnkeeper.worker_heartbeat")
		h.HeartBeat("worker-1", 1, 15*time.Second)
		beat("40 s")
		process("select pg_advisory_unlock_all()")
		process(presence)
		h.Exec("update turnkeeper.settings set silence_from = null")
		const held = " set granted_at = statement_timestamp() - interval '60 s', lease_until = statement_timestamp() + interval '180 s'"
		h.Exec("update turnkeeper.turns" + held)
		h.Exec("update turnkeeper.ended_grants" + held + ", ended_at = statement_timestamp() - interval '30 s'")
		h.Exec("update turnkeeper.leases set lease_until = statement_timestamp(), granted_at = statement_timestamp() - interval '1 h'")
		c.given()
		_, lost := h.Snapshot()
		if len(lost) != 1 || lost[0].Alive != c.alive || lost[0].Losses != c.losses {
			t.Errorf("%s: lost are %+v, want alive %t, losses %d", name, lost, c.alive, c.losses)
		}
	}
}

// lost returns the grants that are lost, by conversation, and queues their turns.
func (h *env) lost() map[string]granting.LostGrant {
	h.T.Helper()
	found := map[string]granting.LostGrant{}
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		all, err := tick.Lost(ctx, 100)
		for _, l := range all {
			found[strings.TrimPrefix(string(l.Lane), "desk/")] = l
			err = errors.Join(err, tick.Requeue(ctx, l))
		}
		return err
	})
	return found
}

// TestLossesCountByMessage loses one turn in each way, and then all of them again.
func TestLossesCountByMessage(t *testing.T) {
	h := newEnv(t)
	h.Admin()(presence)
	workers := map[string]turnkeeper.WorkerID{"lapsed": "worker-1", "slow": "worker-1", "returned": "worker-2",
		"dead": "worker-3"}
	for conversation, worker := range workers {
		h.HeartBeat(worker, 1, 15*time.Second)
		h.Submit("desk", conversation, "x")
		d := h.Dispatch(worker)[0]
		if conversation == "lapsed" {
			h.Exec("update turnkeeper.turns set lease_until = clock_timestamp() where grant_id = $1", d.Grant.GrantID)
			h.Lose(d)
			h.Exec("update turnkeeper.turns set due_at = now() + interval '1 day' where id = $1", d.Grant.TurnID)
		}
	}
	h.Exec("update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() - interval '1 minute'")
	first := h.lost()
	for conversation := range workers {
		l, found := first[conversation]
		if found != (conversation != "lapsed") || l.Losses != 0 || l.Lapsed || l.Alive != (conversation == "slow") {
			t.Errorf("%s: lost first as %+v", conversation, l)
		}
	}
	h.HeartBeat("worker-2", 1, 15*time.Second)
	h.Submit("desk", "fresh", "x")
	h.Exec("update turnkeeper.turns set due_at = null")
	h.Dispatch("worker-2")
	h.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 h', lease_until = clock_timestamp() where grant_id is not null")
	again := h.lost()
	for conversation, want := range map[string]int{"lapsed": 1, "slow": 0, "returned": 0, "dead": 1, "fresh": 0} {
		if l, found := again[conversation]; !found || l.Losses != want || !l.Lapsed {
			t.Errorf("%s: lost again as %+v, want %d losses", conversation, l, want)
		}
	}
}

// Twenty thousand other losses do not make a hundred new ones expensive.
func TestLossesUseIndexes(t *testing.T) {
	h := newFresh(t)
	h.NeverAnalyzed()
	h.Exec(`insert into turnkeeper.messages (id, agent, conversation, lane, body, state, closed_at) overriding system value
		select i, 'desk', 'c' || i, 'desk/c' || i, 'x', 'succeeded', now() from generate_series(1, 10000) i`)
	h.Exec(`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token,
			granted_at, lease_until, ended_at, stop_reason)
		select i, i, 1, 'desk', 'c' || i, 'desk/c' || i, 'message', repeat('a', 64), 'succeeded', 1,
			now(), now() + interval '4 min', now(), 'none' from generate_series(1, 10000) i`)
	h.Exec(`insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, worker_id, granted_at, lease_until, ended_at, outcome)
		select 'desk/c' || i, n, gen_random_uuid(), i, 'w' || n, now() - interval '1 min', now() + interval '3 min', now(), 'lost'
		from generate_series(1, 10000) i, generate_series(1, 2) n`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			h.Exec("vacuum analyze turnkeeper.messages, turnkeeper.turns, turnkeeper.ended_grants")
		}
		for _, n := range []int{1, 100} {
			plan := storagetest.ExplainWithin(h.DB, 200+20*n, query(t, "scheduler.sql", "Losses",
				"@turns", fmt.Sprintf("array(select generate_series(50, %d * 50, 50))", n),
				"@workers", fmt.Sprintf("array_fill('w1'::text, array[%d])", n)))
			plan.Walk(func(p storagetest.Plan) {
				if (p.Relation == "turns" || p.Relation == "ended_grants") && strings.HasPrefix(p.Type, "Seq") {
					t.Errorf("%d turns, analyzed %t: a %s of %s", n, analyzed, p.Type, p.Relation)
				}
			})
			if got := plan.Pages(); plan.Rows != float64(3*n) || got > 200+20*n {
				t.Errorf("%d turns, analyzed %t: looks at %d pages for %v rows", n, analyzed, got, plan.Rows)
			}
		}
	}
}

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

// TestLossesByTheNewestHeartbeat has losses that differ only in the end and the newest heartbeat of their worker.
func TestLossesByTheNewestHeartbeat(t *testing.T) {
	h := newEnv(t)
	for stoppedAndBeat, want := range map[string]bool{
		"statement_timestamp(), statement_timestamp()":                    true,
		"null, statement_timestamp()":                                     false,
		"null, statement_timestamp() + interval '10 s'":                   false,
		"null, statement_timestamp() + interval '10 s' + interval '1 us'": true, // before the clock was set back
	} {
		sql := fmt.Sprintf(
			`select turnkeeper.counts_as_loss('gone', statement_timestamp() - interval '20 s', statement_timestamp() + interval '220 s',
			statement_timestamp() - interval '1 s', %s)`, stoppedAndBeat)
		if got := storagetest.One[bool](h, sql); got != want {
			t.Errorf("stopped and beat at %s: it counts: %t", stoppedAndBeat, got)
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

package operate_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/testrun"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestBlockersReadFewRows checks that a list of messages with what they wait for reads no table from end to end, in a
// long queue of one lane and after many closed messages.
func TestBlockersReadFewRows(t *testing.T) {
	h := newEnv(t)
	h.serves("worker-1", 10)
	queued := testrun.Count(10_000, 100_000)
	for range queued / 10_000 { // in parts: with every case, one statement may take longer than its limit
		h.Exec(`insert into turnkeeper.messages (agent, lane, body, due_at, state, closed_at)
			select 'clerk', 'clerk', 'x', date_trunc('second', clock_timestamp()) - interval '1 hour', s,
				case when s = 'succeeded' then clock_timestamp() end
			from unnest(array['waiting', 'succeeded']) s, generate_series(1, 10000)`)
	}
	h.Dispatch("worker-1")
	h.Exec("analyze turnkeeper.messages")
	err := pgx.BeginFunc(t.Context(), h.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(),
			`select count(*) from (select id from turnkeeper.waiting where lane = 'clerk'
			order by rank, id offset $1 limit 100) m, lateral turnkeeper.blockers(m.id) b`, queued/2); err != nil {
			return err
		}
		// The offset reads the first half of the queue, once.
		var scanned, fetched int64
		if err := tx.QueryRow(t.Context(),
			`select coalesce(sum(seq_tup_read), 0), coalesce(sum(idx_tup_fetch), 0) from pg_stat_xact_user_tables
			where schemaname = 'turnkeeper' and relname in ('messages', 'turns', 'leases')`).Scan(&scanned, &fetched); err != nil {
			return err
		}
		if most := int64(queued/2 + 100*250); scanned > 1000 || fetched > most {
			t.Errorf("%d rows were read in scans, and %d by indexes, want at most %d", scanned, fetched, most)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Exec("update turnkeeper.worker_heartbeat set beat_at = clock_timestamp()") // a slow machine is no silent worker
	began := time.Now()
	all, err := h.Messages(t.Context(), operate.Page{State: "waiting", Limit: 100})
	if err != nil || len(all) != 100 || len(all[0].Waits) != 2 || all[0].Waits[0].Count != 100 {
		t.Errorf("%d messages, the first waits for %+v, error %v", len(all), all[0].Waits, err)
	}
	t.Logf("a list of 100 of %d took %v", storagetest.One[int64](h.DB, "select count(*) from turnkeeper.messages"),
		time.Since(began))
}

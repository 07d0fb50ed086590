package grants_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// TestABurstReadsByKey runs turns in sessions that planned their statements while the tables were
// empty. Then the tables get thousands of closed turns, and are not analyzed. No statement may
// read a whole table.
func TestABurstReadsByKey(t *testing.T) {
	for name, analyzed := range map[string]bool{"without statistics": false,
		"with the statistics of small tables": true} {
		t.Run(name, func(t *testing.T) { burst(t, analyzed) })
	}
}

func burst(t *testing.T, analyzed bool) {
	h := newFresh(t)
	h.NeverAnalyzed()
	work := func(n int) {
		for i := range n {
			d := h.TurnOf("desk", "w")
			d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectNone)})
			if i%2 == 0 {
				d = h.Again(d, turnkeeper.WorkerID(fmt.Sprint("w", i)))
			}
			if _, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID); err != nil {
				t.Fatal(err)
			}
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				_, err := tick.ReadyMessages(ctx, 100, []string{"nobody"})
				return err
			})
			k := storagetest.Key(1, 1)
			d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(k, "",
				turnkeeper.CallSucceeded, "done")}})
			d.Finish(t, "done")
		}
	}
	if analyzed {
		work(30)
		if _, err := h.Pool().Exec(t.Context(), "analyze"); err != nil {
			t.Fatal(err)
		}
	}
	work(6) // Postgres keeps a plan from the sixth execution on
	other := storagetest.Open(t, h.URL)
	pour(t, other)
	for _, session := range h.Pool().AcquireAllIdle(t.Context()) { // what they have read until now does not count
		_, err := session.Exec(t.Context(), "select pg_stat_force_next_flush()")
		session.Release()
		if err != nil {
			t.Error(err)
		}
	}
	before := reads(t, other)
	work(6)
	h.Close()
	awaitAlone(t, other) // a session reports its statistics when it ends, at the latest
	after := reads(t, other)
	for _, table := range []string{"messages", "turns", "journal", "call_starts", "replies", "ended_grants"} {
		if n := after[table] - before[table]; n > 9000 { // six turns that read the whole table read 18,000
			t.Errorf("%d rows of %s were read", n, table)
		}
	}
	if t.Failed() {
		t.Log(storagetest.One[string](other,
			"select string_agg(concat_ws(' ', indexrelname, idx_scan, idx_tup_read), ', ') from pg_stat_user_indexes where idx_tup_read > 5000"))
	}
}

// pour adds thousands of closed turns.
func pour(t *testing.T, s *storagetest.DB) {
	t.Helper()
	for _, sql := range []string{
		`insert into turnkeeper.messages (agent, conversation, lane, body, state, closed_at, due_at)
		 select 'desk', 'main', 'desk/main', 'old', 'succeeded', now(), now() - interval '1 hour' from generate_series(1, 3000) i`,
		`insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		 select id, 1, agent, conversation || id, lane, 'message', repeat('a', 64), 'succeeded', 1, now(), 'none'
		 from turnkeeper.messages where body = 'old'`,
		`insert into turnkeeper.journal (turn_id, n, seq, last_seq, at, types, rounds, blocks, data, round, answer, calls, text, reasoning, results)
		 select t.id, r, 1, 0, now(), '{}', '{}', '{}', '{}', r,
		     '{"version": 1, "provider": "p", "model": "m", "attempts": 1, "latency_ms": 1, "finish_reason": "stop"}',
		     '[{"ordinal": 1, "wire_id": "w", "provider_id": "", "name": "tool", "arguments": "{}", "args_hash": "h", "effect": "once", "state": "planned"}]',
		     'x', '', json_build_array(json_build_object('round', r, 'ordinal', 1, 'state', 'succeeded', 'shown', 'x', 'preview', 'x'))
		 from turnkeeper.turns t, generate_series(1, 3) r where t.conversation like 'main_%'`,
		`insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash)
		 select turn_id, round, 1, 1, 'once', n, 1, turn_id || '-' || round, 'w', 'desk', 'tool', 'h' from turnkeeper.journal j
		 where exists (select from turnkeeper.turns t where t.id = j.turn_id and t.conversation like 'main_%')`,
		`insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body)
		 select message_id, id, agent, conversation, 'succeeded', 'x' from turnkeeper.turns where conversation like 'main_%'`,
	} {
		if _, err := s.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitAlone returns when no other client is connected to the database of a store.
func awaitAlone(t *testing.T, s *storagetest.DB) {
	t.Helper()
	for deadline := time.Now().Add(storagetest.Patience); ; {
		var others int
		err := s.Pool().QueryRow(t.Context(), `select count(*) from pg_stat_activity, pg_sleep(0.01)
			where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&others)
		if err != nil || others > 0 && time.Now().After(deadline) {
			t.Fatal(others, err)
		}
		if others == 0 {
			return
		}
	}
}

// reads returns the number of rows read by all sessions from each table, with or without an index.
func reads(t *testing.T, s *storagetest.DB) map[string]int {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), "select pg_stat_force_next_flush()"); err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	rows, _ := s.Pool().Query(t.Context(),
		"select relname, (coalesce(seq_tup_read, 0) + coalesce((select sum(i.idx_tup_read) from pg_stat_user_indexes i where i.relid = s.relid), 0))::bigint from pg_stat_user_tables s where schemaname = 'turnkeeper'")
	var name string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { all[name] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// Whether a conversation has a past is read by key, in a session that has planned it while the tables were small too.
func TestTheFirstTurnOfAConversationReadsFewPages(t *testing.T) {
	h := newFresh(t)
	h.NeverAnalyzed()
	// So many that the index by conversation is larger than the one by agent.
	h.Exec(
		`insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		select i, 1, 'desk', 'a conversation with a long name ' || i, 'desk', 'message', repeat('a', 64), 'succeeded', 1, now(), 'none' from generate_series(100001, 100200) i`)
	conn, err := h.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	past := func(conversation string) (has bool) {
		if err := conn.QueryRow(t.Context(), "select turnkeeper.has_past('desk', '', $1, 1000000)", conversation).Scan(
			&has); err != nil {
			t.Fatal(err)
		}
		return has
	}
	for range 6 { // Postgres keeps a plan from the sixth execution on
		past("new")
	}
	pour(t, h.DB)
	if past("new") || !past("main7") {
		t.Errorf("a new conversation has a past: %v, an old one: %v", past("new"), past("main7"))
	}
	const most = 10
	plan := storagetest.Within(most, func() storagetest.Plan {
		var text string
		if err := conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+
			"select turnkeeper.has_past('desk', '', 'new', 1000000)").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return storagetest.ParsePlan(t, text)
	})
	if pages := plan.Pages(); pages > most {
		t.Errorf("it read %d pages", pages)
	}
}

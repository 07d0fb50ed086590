package grants_test

import (
	"context"
	"strings"
	"testing"

	"turnkeeper/internal/testrun"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// insertWaitingTurns inserts 10,000 turns that wait for detached calls, a few of which run, and
// 10,000 turns that ended long ago.
func insertWaitingTurns(h *env) {
	h.T.Helper()
	h.NeverAnalyzed()
	h.Waiting("c0") // a turn that the program itself writes; the others copy it
	for what, ids := range map[string]string{"done": "2, 10000", "waiting": "10001, 20000"} {
		h.Exec(strings.NewReplacer("$IDS", ids, "$DONE", map[string]string{"done": "true",
			"waiting": "false"}[what]).Replace(`
			insert into turnkeeper.messages (id, agent, conversation, lane, body, state, in_queue, closed_at, turn_id) overriding system value
			select i, 'desk', 'c' || i, 'desk/c' || i, 'x', case when $DONE then 'succeeded' else 'running' end, $DONE, case when $DONE then now() end, i from generate_series($IDS) i;
			insert into turnkeeper.leases (lane, agent, token) select 'desk/c' || i, 'desk', 1 from generate_series($IDS) i;
			insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
			select i, i, 1, 'desk', 'c' || i, 'desk/c' || i, 'message', repeat('0', 64), case when $DONE then 'succeeded' else 'waiting' end, 1,
				case when $DONE then now() end, case when $DONE then 'none' end from generate_series($IDS) i;
			insert into turnkeeper.journal (turn_id, n, seq, last_seq, at, types, rounds, blocks, data, round, answer, calls, text, reasoning, results)
			select i, 1, 1, 0, now(), '{}', '{}', '{}', '{}', 1, j.answer, j.calls, '', '',
				json_build_array(json_build_object('round', 1, 'ordinal', 1, 'state', case when $DONE then 'succeeded' else 'running' end, 'shown', '', 'preview', ''))
			from (select * from turnkeeper.journal where round = 1 order by turn_id limit 1) j, generate_series($IDS) i;
			insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash)
			select i, 1, 1, 1, 'once', 1, 1, 'n' || i, 'worker-1', 'desk', 'tool', 'h' from generate_series($IDS) i;
			insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce, arrived_at, state, closed_at)
			select i, 1, 1, 'n' || i, case when $DONE then now() end, case when $DONE then 'succeeded' end, case when $DONE then now() end from generate_series($IDS) i;
			insert into turnkeeper.river_job (id, args, kind, max_attempts, priority, queue, state, finalized_at, tags)
			select 100000 + i, jsonb_build_object('turn_id', i, 'round', 1, 'ordinal', 1, 'attempt', 1), 'DetachedCall', 1, 1, 'detached_x',
				(case when $DONE then 'completed' else 'available' end)::turnkeeper.river_job_state, case when $DONE then now() end, '{}' from generate_series($IDS) i;
			insert into turnkeeper.detached_calls (turn_id, round, ordinal, time_limit, deadline, look_at, job_id, claim, worker_id, claimed_at, ended_at)
			select i, 1, 1, '1 hour', now() + interval '1 hour', now() + interval '5 minutes', 100000 + i, case when $DONE or i % 1000 = 0 then 'c' || i end,
				case when $DONE or i % 1000 = 0 then 'worker-1' end, case when $DONE or i % 1000 = 0 then now() end, case when $DONE then now() end from generate_series($IDS) i;
		`))
	}
	h.Exec(
		`insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, roles, takeover_after) values ('worker-1', 'h', 1, 'v', 10, '{worker}', '1 hour')`)
}

// Ten thousand waiting turns do not make a tick expensive.
func TestLooksBesideTenThousandWaitingTurnsUseIndexes(t *testing.T) {
	testrun.Slow(t)
	h := newFresh(t)
	insertWaitingTurns(h)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			h.Exec("vacuum analyze")
		}
		for _, q := range []struct {
			file, name string
			most       int // pages
		}{
			// before the tables are analyzed, the lanes' leases are read three times
			{"scheduler.sql", "Snapshot", 1200},
			{"scheduler.sql", "ReadyTurns", 30},
			{"scheduler.sql", "ReadyMessages", 60},
			{"scheduler.sql", "NextDue", 500}, // and here they are read once
			{"detached.sql", "LostCalls", 200},
			{"detached.sql", "LookAgainAtCalls", 250}, // runs only when something looks lost
		} {
			plan := storagetest.ExplainWithin(h.DB, q.most, query(t, q.file, q.name))
			plan.Walk(func(n storagetest.Plan) {
				big := map[string]bool{"turns": true, "journal": true, "call_starts": true, "awaited_calls": true,
					"detached_calls": true, "river_job": true}
				if analyzed && big[n.Relation] && strings.HasPrefix(n.Type, "Seq") && n.Rows*n.Loops > 0 {
					t.Errorf("%s, analyzed %v: a %s of %s", q.name, analyzed, n.Type, n.Relation)
				}
			})
			if got := plan.Pages(); got > q.most {
				t.Errorf("%s, analyzed %v: looks at %d pages, %d are enough", q.name, analyzed, got, q.most)
			} else {
				t.Logf("%s, analyzed %v: %d pages", q.name, analyzed, got)
			}
		}
	}
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		lost, err := tick.LostCalls(ctx, 100)
		if len(lost) != 0 {
			t.Errorf("%d calls are lost: %+v", len(lost), lost[0])
		}
		return err
	})
}

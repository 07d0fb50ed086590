package operate_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// busyDatabase returns a database with a turn that succeeded, with a call of effect once, a turn
// that runs, and a turn that waits for a detached call.
func busyDatabase(t *testing.T) *env {
	t.Helper()
	h := newEnv(t)
	d := h.Turn("done")
	frame := turnlog.NewRequestPart("{}")
	answer := storagetest.Round(1, turnkeeper.EffectOnce)
	answer.Recipe = &turnkeeper.Recipe{Version: 1, Frame: frame.SHA256}
	d.Write(t, turnlog.Entry{
		Round: answer, Parts: []turnlog.RequestPart{frame}, Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce)},
	})
	done := storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallSucceeded, "ok")
	done.Output = &turnkeeper.Output{ID: "o", Text: strings.Repeat("x", turnkeeper.OutputChunkBytes+1), SizeBytes: turnkeeper.OutputChunkBytes + 1}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{done}})
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("done"), Events: storagetest.Events(turnkeeper.EventTurnComplete)}, storagetest.Answered); err != nil {
		t.Fatal(err)
	}
	h.Turn("running")
	h.Waiting("a")
	return h
}

func (h *env) broken(atRest bool) (broken []string) {
	h.T.Helper()
	promises, err := h.Check(h.T.Context(), atRest)
	if err != nil {
		h.T.Fatal(err)
	}
	for _, p := range promises {
		if len(p.Broken) > 0 {
			broken = append(broken, p.Text)
		}
	}
	return broken
}

func TestPromisesHold(t *testing.T) {
	h := busyDatabase(t)
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken while a turn runs: %q", broken)
	}
	if broken := strings.Join(h.broken(true), "; "); broken != "no lease is left; no turn runs; no job is left" {
		t.Errorf("broken at rest: %s", broken)
	}
}

// The test breaks each promise with SQL, after it has disabled the constraints.
func TestBrokenPromisesAreFound(t *testing.T) {
	testrun.Slow(t)
	for promise, damage := range map[string]string{
		"a closed message has one reply":                             `delete from turnkeeper.replies`,
		"a reply belongs to a closed message and to its newest turn": `update turnkeeper.messages set turn_id = 99 where state = 'answered'`,
		"a closed message has no open turn, and an open message has no reply": `
			update turnkeeper.messages set state = 'answered', closed_at = now() where state = 'running'`,
		"a running message has an open turn": `
			update turnkeeper.messages set state = 'running', closed_at = null where state = 'answered'`,
		"no call is open under a closed turn": `
			update turnkeeper.calls set state = 'started', ended_at = null`,
		"every start of a call is on record": `delete from turnkeeper.call_starts`,
		"every effect that happened or may have happened has a start on record": `
			update turnkeeper.calls set starts = 0`,
		"a call of effect once was started at most once": `
			insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
			select turn_id, round, ordinal, 2, 'once', token, 'again' || turn_id, 'w' from turnkeeper.call_starts`,
		"every call was started under the grant that its turn had at that time": `
			update turnkeeper.call_starts set started_at = started_at + interval '1 hour'`,
		"all calls of a grant were started by the worker bound to it": `
			update turnkeeper.call_starts set worker_id = 'worker-2'`,
		"the result of a call belongs to a start on record": `
			update turnkeeper.calls set nonce = 'another worker''s'`,
		"only detached calls were restarted without a grant": `
			update turnkeeper.call_starts set token = 0`,
		"a waiting turn holds no lease and awaits a result that has not arrived": `
			update turnkeeper.awaited_calls set arrived_at = now(), state = 'succeeded'`,
		"awaited calls are open, and open detached calls are awaited": `
			update turnkeeper.awaited_calls set closed_at = now()`,
		"the run of a detached call has ended once its result has arrived or is no longer awaited": `
			update turnkeeper.detached_calls set ended_at = now()`,
		"a sub-agent has ended when its message is closed":                                            spawnedBy("'answered'", "null", "array['a', 'b']"),
		"a call whose sub-agent is reported has the result, and an answered call awaits no sub-agent": spawnedBy("'running'", "now()", "array['a', 'b']"),
		"a tree of sub-agents keeps its bounds, and no agent is its own ancestor":                     spawnedBy("'running'", "null", "array['a', 'b', 'a']"),
		"the grants of a lane do not overlap": `
			update turnkeeper.lease_log set ended_at = ended_at + interval '1 hour'`,
		"a running turn holds its lane, and a held lane runs its turn": `
			update turnkeeper.leases set token = token + 1 where grant_id is not null`,
		"an ended grant has an outcome": `
			update turnkeeper.lease_log set ended_at = null, outcome = null`,
		"no expired lease stays unnoticed while the scheduler may act": `
			update turnkeeper.leases set granted_at = now() - interval '1 hour', lease_until = now() - interval '61 s' where grant_id is not null;
			update turnkeeper.settings set last_tick_at = now()`,
		"every row belongs to a row that exists":                      `delete from turnkeeper.rounds`,
		"every row obeys the rules of its table":                      `update turnkeeper.leases set failures = -1`,
		"no duration is negative":                                     `update turnkeeper.calls set ended_at = started_at - interval '1 s'`,
		"events are numbered 1 to n":                                  `delete from turnkeeper.journal where n = 2`,
		"a closed turn has one terminal event, and it is the last":    `update turnkeeper.journal set types[1] = 'turn_error' where n = 1`,
		"a turn that does not run has the totals of its newest write": `update turnkeeper.turns set executed_calls = 9`,
		"a turn's tokens are those of its rounds, of its calls and of its failed attempts": `
			update turnkeeper.calls set reasoning_tokens = 1`,
		"a chunked output has all its chunks": `
			update turnkeeper.outputs set size_bytes = 7, chunked = true`,
		"every chunk belongs to an output or a draft": `
			insert into turnkeeper.output_chunks (output_id, first_char, content) values ('nobody''s', 0, 'x')`,
		"all parts of a round's request are stored": `delete from turnkeeper.request_parts`,
		"no turn with a call of unknown outcome is succeeded": `
			update turnkeeper.calls set state = 'unknown'`,
	} {
		t.Run(promise, func(t *testing.T) {
			h := busyDatabase(t)
			h.Exec(`set session_replication_role = replica; -- no triggers
				alter table turnkeeper.call_starts drop constraint call_starts_check;
				` + damage)
			if broken := strings.Join(h.broken(false), "; "); !strings.Contains(broken, promise) {
				t.Errorf("broken: %q", broken)
			}
		})
	}
	t.Run("two workers have run calls under one grant that is not over", func(t *testing.T) {
		h := newEnv(t)
		d := h.Turn("x")
		d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce), Starts: []turnlog.CallStart{
			storagetest.Start(storagetest.Key(1, 1), "n1", 1, turnkeeper.EffectOnce), storagetest.Start(storagetest.Key(1, 2), "n2", 1, turnkeeper.EffectOnce),
		}})
		if broken := h.broken(false); len(broken) != 0 {
			t.Errorf("broken by one: %q", broken)
		}
		h.Exec("update turnkeeper.call_starts set worker_id = 'worker-2' where ordinal = 2")
		if broken := strings.Join(h.broken(false), "; "); broken != "all calls of a grant were started by the worker bound to it" {
			t.Errorf("broken by two: %q", broken)
		}
	})
	t.Run("all are tried", func(t *testing.T) {
		promises, err := newEnv(t).Check(t.Context(), false)
		if err != nil || len(promises) != 33 {
			t.Errorf("%d promises, error %v", len(promises), err)
		}
	})
}

// spawnedBy returns SQL that records a message of this state as spawned by the awaited call.
func spawnedBy(message, told, agents string) string {
	return `insert into turnkeeper.agent_trees (root, max_depth, max_agents) select turn_id, 5, 5 from turnkeeper.awaited_calls;
		insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline, told_at)
		select a.turn_id, a.round, a.ordinal, (select min(id) from turnkeeper.messages where state = ` + message + `), 'b', a.turn_id, ` + agents + `, now(), ` + told + `
		from turnkeeper.awaited_calls a`
}

func TestRowsThatBreakARuleAreFound(t *testing.T) {
	h := busyDatabase(t)
	for sql, undo := range map[string]string{
		"update turnkeeper.messages set attempts = -1 where id = 1": "update turnkeeper.messages set attempts = 1 where id = 1",
		"update turnkeeper.calls set duration_ms = -1":              "update turnkeeper.calls set duration_ms = 1",
		"update turnkeeper.leases set failures = -1":                "update turnkeeper.leases set failures = 0",
	} {
		h.Exec(sql)
		if broken := strings.Join(h.broken(false), "; "); !strings.Contains(broken, "every row obeys the rules of its table") {
			t.Errorf("%s: broken: %q", sql, broken)
		}
		h.Exec(undo)
	}
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken: %q", broken)
	}
}

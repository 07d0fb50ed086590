package operate_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

// busyDatabase has a turn that ended well, with a call of effect once, a turn that
// runs, and one that waits for a detached call.
func busyDatabase(t *testing.T) *env {
	t.Helper()
	h := newEnv(t)
	d := h.Turn("done")
	frame := turnkeeper.NewRequestPart("{}")
	answer := storagetest.Round(1, turnkeeper.EffectOnce)
	answer.Recipe = &turnkeeper.Recipe{Version: 1, Frame: frame.SHA256}
	d.Write(t, turnkeeper.Entry{
		Round: answer, Parts: []turnkeeper.RequestPart{frame}, Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnkeeper.CallStart{storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce)},
	})
	done := storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallSucceeded, "ok")
	done.Output = &turnkeeper.Output{ID: "o", Text: strings.Repeat("x", turnkeeper.OutputChunkBytes+1), SizeBytes: turnkeeper.OutputChunkBytes + 1}
	d.Write(t, turnkeeper.Entry{Results: []turnkeeper.CallResult{done}})
	if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: storagetest.Succeeded("done"), Events: storagetest.Events(turnkeeper.EventTurnComplete)}, storagetest.Answered); err != nil {
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

// Each promise is broken by hand, past the constraints that guard it.
func TestBrokenPromisesAreFound(t *testing.T) {
	testrun.Slow(t)
	for promise, damage := range map[string]string{
		"a closed message has one reply":                             `delete from turnkeeper.replies`,
		"a reply belongs to a closed message and to its newest turn": `update turnkeeper.messages set turn_id = 99 where state = 'answered'`,
		"a closed message has no open turn, and an open one no answer": `
			update turnkeeper.messages set state = 'answered', closed_at = now() where state = 'running'`,
		"a message that is being handled has an open turn": `
			update turnkeeper.messages set state = 'running', closed_at = null where state = 'answered'`,
		"no call is open under a closed turn": `
			update turnkeeper.calls set state = 'started', ended_at = null`,
		"every start of a call is on record": `delete from turnkeeper.call_starts`,
		"an effect that happened, or may have, was started": `
			update turnkeeper.calls set starts = 0`,
		"a call of effect once was started once at most": `
			insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
			select turn_id, round, ordinal, 2, 'once', token, 'again' || turn_id, 'w' from turnkeeper.call_starts`,
		"a call was started under the grant that held its turn then": `
			update turnkeeper.call_starts set started_at = started_at + interval '1 hour'`,
		"what was started under a grant was started by the one worker that had it": `
			update turnkeeper.call_starts set worker_id = 'worker-2'`,
		"what a call has come to is that of a start on record": `
			update turnkeeper.calls set nonce = 'another worker''s'`,
		"only a detached call was started again under no grant": `
			update turnkeeper.call_starts set token = 0`,
		"a turn that waits holds nothing, and waits for a result that has not come": `
			update turnkeeper.awaited_calls set arrived_at = now(), state = 'succeeded'`,
		"what is awaited is open, and what is open elsewhere is awaited": `
			update turnkeeper.awaited_calls set closed_at = now()`,
		"the run of a detached call has ended when its result has arrived or nobody awaits it": `
			update turnkeeper.detached_calls set ended_at = now()`,
		"a sub-agent has ended when its message is closed":                                              spawnedBy("'answered'", "null", "array['a', 'b']"),
		"a call whose sub-agent was told of has its letter, and one that has its answer waits for none": spawnedBy("'running'", "now()", "array['a', 'b']"),
		"a tree of sub-agents keeps its bounds, and no agent is above itself":                           spawnedBy("'running'", "null", "array['a', 'b', 'a']"),
		"the grants of a lane do not overlap": `
			update turnkeeper.lease_log set ended_at = ended_at + interval '1 hour'`,
		"a turn that runs holds its lane, and a lane that is held runs its turn": `
			update turnkeeper.leases set token = token + 1 where grant_id is not null`,
		"a grant that is over says how it ended": `
			update turnkeeper.lease_log set ended_at = null, outcome = null`,
		"no lapsed lease is overlooked while the scheduler may act": `
			update turnkeeper.leases set granted_at = now() - interval '1 hour', lease_until = now() - interval '61 s' where grant_id is not null;
			update turnkeeper.settings set last_tick_at = now()`,
		"nothing took less than no time":                       `update turnkeeper.calls set ended_at = started_at - interval '1 s'`,
		"events are numbered 1 to n":                           `delete from turnkeeper.turn_events where seq = 2`,
		"a closed turn has one last event, and it is the last": `update turnkeeper.turn_events set type = 'turn_error' where seq = 1`,
		"a turn's tokens are those of its rounds, of its calls and of its failed attempts": `
			update turnkeeper.calls set reasoning_tokens = 1`,
		"a result in chunks has all of them": `
			update turnkeeper.outputs set size_bytes = 7, chunked = true`,
		"a chunk belongs to a result, or to one that is still coming": `
			insert into turnkeeper.output_chunks (output_id, first_char, content) values ('nobody''s', 0, 'x')`,
		"what the request of a round is made of is stored": `delete from turnkeeper.request_parts`,
		"no plain success stands on an unknown outcome": `
			update turnkeeper.calls set state = 'unknown'`,
	} {
		t.Run(promise, func(t *testing.T) {
			h := busyDatabase(t)
			h.Exec(`set session_replication_role = replica; -- no triggers
				alter table turnkeeper.call_starts drop constraint call_starts_check;
				alter table turnkeeper.calls drop constraint calls_check;
				` + damage)
			if broken := strings.Join(h.broken(false), "; "); !strings.Contains(broken, promise) {
				t.Errorf("broken: %q", broken)
			}
		})
	}
	t.Run("two workers have run calls under one grant that is not over", func(t *testing.T) {
		h := newEnv(t)
		d := h.Turn("x")
		d.Write(t, turnkeeper.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce), Starts: []turnkeeper.CallStart{
			storagetest.Start(storagetest.Key(1, 1), "n1", 1, turnkeeper.EffectOnce), storagetest.Start(storagetest.Key(1, 2), "n2", 1, turnkeeper.EffectOnce),
		}})
		if broken := h.broken(false); len(broken) != 0 {
			t.Errorf("broken by one: %q", broken)
		}
		h.Exec("update turnkeeper.call_starts set worker_id = 'worker-2' where ordinal = 2")
		if broken := strings.Join(h.broken(false), "; "); broken != "what was started under a grant was started by the one worker that had it" {
			t.Errorf("broken by two: %q", broken)
		}
	})
	t.Run("all are tried", func(t *testing.T) {
		promises, err := newEnv(t).Check(t.Context(), false)
		if err != nil || len(promises) != 30 {
			t.Errorf("%d promises, error %v", len(promises), err)
		}
	})
}

// spawnedBy has the call that is awaited have spawned a message of this state.
func spawnedBy(message, told, agents string) string {
	return `insert into turnkeeper.agent_trees (root, max_depth, max_agents) select turn_id, 5, 5 from turnkeeper.awaited_calls;
		insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline, told_at)
		select a.turn_id, a.round, a.ordinal, (select min(id) from turnkeeper.messages where state = ` + message + `), 'b', a.turn_id, ` + agents + `, now(), ` + told + `
		from turnkeeper.awaited_calls a`
}

package operate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/storage/operate"
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
	answer.Recipe = &turnkeeper.Recipe{Version: 1,
		Start: &turnkeeper.Epoch{System: frame.SHA256, Form: frame.SHA256}}
	d.Write(t, turnlog.Entry{
		Round: answer, Parts: []turnlog.RequestPart{frame}, Events: storagetest.Events(turnkeeper.EventTurnStart,
			turnkeeper.EventRoundStart),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce)},
	})
	done := storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallSucceeded, "ok")
	done.Output = &turnkeeper.Output{ID: "o", Text: strings.Repeat("x", outputs.ChunkBytes+1),
		SizeBytes: outputs.ChunkBytes + 1}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{done}})
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("done"),
		Events: storagetest.Events(turnkeeper.EventTurnComplete)}, storagetest.Answered); err != nil {
		t.Fatal(err)
	}
	h.Turn("running")
	h.Waiting("a")
	return h
}

// TestPromisesHoldForACallThatIsPlannedAndAnsweredAtOnce writes a plan together with the result of one of its calls, as
// if an argument is the handle of no result, and with the start of another one.
func TestPromisesHoldForACallThatIsPlannedAndAnsweredAtOnce(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("a")
	d.Write(t, turnlog.Entry{
		Round:  storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectOnce),
		Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
		Starts: []turnlog.CallStart{{Key: storagetest.Key(1, 2), Nonce: "n", Attempt: 1,
			Effect: turnkeeper.EffectOnce}},
		Results: []turnlog.CallResult{{
			Key: storagetest.Key(1, 1), State: turnkeeper.CallDenied, Shown: "invalid arguments",
		}},
	})
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken: %q", broken)
	}
	const plan = "select string_agg(c ->> 'state', ' ') from turnkeeper.journal, json_array_elements(calls) c"
	if got := storagetest.One[string](h.DB, plan); got != "planned planned" {
		t.Errorf("the plan is stored as %s", got)
	}
	if a, b := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)), h.Call(d.Grant.TurnID,
		storagetest.Key(1, 2)); a.State != turnkeeper.CallDenied || b.State != turnkeeper.CallStarted {
		t.Errorf("the calls are %s and %s", a.State, b.State)
	}
}

// TestPromisesHoldWhileATurnWaitsForAModel checks a turn that waits for nothing else.
func TestPromisesHoldWhileATurnWaitsForAModel(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("a")
	waits := turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting, WaitsFor: []string{"test/m"},
		Backoff: time.Hour}}
	if err := d.Append(t.Context(), waits, turnlog.Consequence{Log: "waiting"}); err != nil {
		t.Fatal(err)
	}
	if got := storagetest.One[string](h.DB, "select state from turnkeeper.turns"); got != "waiting" {
		t.Errorf("the turn is %s", got)
	}
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken: %q", broken)
	}
}

// TestPromisesHoldWhileTurnsAsk checks a turn that waits for a person, one whose approved call has run, and held
// messages.
func TestPromisesHoldWhileTurnsAsk(t *testing.T) {
	h := newEnv(t)
	key := storagetest.Key(1, 1)
	asking := turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectOnce), Gates: []turnkeeper.CallKey{key}, Asks: []asks.Question{{
			Call: key, Kind: asks.KindApprove, N: 1, Tool: "tool", Arguments: "{}", Terms: asks.Terms{Hold: true,
				Timeout: time.Hour},
		}},
		Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
	}
	waits := turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting}}
	d := h.Turn("a")
	d.Write(t, asking)
	if err := d.Append(t.Context(), waits, turnlog.Consequence{Log: "waiting"}); err != nil {
		t.Fatal(err)
	}
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken while a turn asks: %q", broken)
	}
	open, err := h.ListAsks(t.Context(), operate.AskFilter{State: asks.Open})
	if err != nil || len(open) != 1 || len(open[0].Path) != 1 || open[0].Agent == "" {
		t.Fatalf("open asks %+v, error %v", open, err)
	}
	if _, err := h.AnswerAsk(t.Context(), open[0].ID, asks.Answer{Decision: asks.Approved, By: "ann",
		Channel: "test"}); err != nil {
		t.Fatal(err)
	}
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken after the answer: %q", broken)
	}
}

func (h *env) promises(atRest bool) []operate.Promise {
	h.T.Helper()
	promises, err := h.Check(h.T.Context(), atRest)
	if err != nil {
		h.T.Fatal(err)
	}
	return promises
}

func (h *env) broken(atRest bool) []string {
	h.T.Helper()
	return brokenOf(h.promises(atRest))
}

func brokenOf(promises []operate.Promise) (broken []string) {
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

// The test breaks each promise with SQL, after it has disabled the constraints, and takes the damage back.
func TestBrokenPromisesAreFound(t *testing.T) {
	testrun.Slow(t)
	busy := busyDatabase(t)
	busy.Exec(`alter table turnkeeper.call_starts drop constraint call_starts_check, drop constraint call_starts_ask_id_key;
		alter table turnkeeper.messages drop constraint message_holds`)
	session, err := busy.Pool().Acquire(t.Context()) // one, which plans each query once
	if err != nil {
		t.Fatal(err)
	}
	defer session.Release()
	for promise, damage := range map[string]string{
		"a closed message has one reply":                                 `delete from turnkeeper.replies`,
		"a reply belongs to a closed message and to its newest turn":     `update turnkeeper.messages set turn_id = 99 where state = 'succeeded'`,
		"turns, replies and sub-agents are of the user of their message": `update turnkeeper.replies set user_name = 'anna'`,
		"a closed message has no open turn, and an open message has no reply": `
			update turnkeeper.messages set state = 'succeeded', closed_at = now() where state = 'running'`,
		"a running message has an open turn": `
			update turnkeeper.messages set state = 'running', closed_at = null where state = 'succeeded'`,
		"ticks do not read the messages of turns that wait or are queued": `
			update turnkeeper.turns set state = 'queued', grant_id = null, lease_until = null where state = 'running'`,
		"no call is open under a closed turn": `update turnkeeper.journal set results = null`,
		"wire ids are unique in a turn": `
			update turnkeeper.journal set calls = (select json_agg(v) from (select json_array_elements(calls) union all select json_array_elements(calls)) c (v)) where calls is not null`,
		"rounds, and the calls of each, are numbered 1 to n": `update turnkeeper.journal set round = round + 1`,
		"every result names a planned call":                  `update turnkeeper.journal set results = replace(results::text, '"ordinal":1', '"ordinal":7')::json`,
		"a call moves only from a state to one that may follow": `
			update turnkeeper.journal set results = replace(results::text, 'succeeded', 'skipped')::json`,
		"the starts of a call are numbered 1 to n, and all are on record":       `delete from turnkeeper.call_starts`,
		"every effect that happened or may have happened has a start on record": `delete from turnkeeper.call_starts`,
		"the record of a start agrees with its call":                            `update turnkeeper.call_starts set args_hash = 'other'`,
		"the writes of a turn are numbered 1 to n":                              `update turnkeeper.journal set n = n + 100`,
		"a call of effect once was started at most once, or again after a person said that it had not happened": `
			insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash)
			select turn_id, round, ordinal, 2, 'once', n, token, 'again' || turn_id, 'w', agent, name, args_hash from turnkeeper.call_starts`,
		"every call was started under the grant that its turn had at that time": `
			update turnkeeper.call_starts set started_at = started_at + interval '1 hour'`,
		"all calls of a grant were started by the worker bound to it": `
			update turnkeeper.call_starts set worker_id = 'worker-2'`,
		"only detached calls were restarted without a grant": `
			update turnkeeper.call_starts set token = 0`,
		"a waiting turn holds no lease, and awaits a result or an answer that has not come": `
			update turnkeeper.awaited_calls set arrived_at = now(), state = 'succeeded'`,
		"a call that needs an approval was started with the arguments that a person approved": asked(
			`'approve'`, `'open'`),
		"an approval is used by one start, of its own call": asked(`'approve'`, `'open'`) + `
			update turnkeeper.asks set ordinal = 7;
			update turnkeeper.call_starts set ask_id = (select max(id) from turnkeeper.asks)`,
		"a call that needs an approval has not run without a start": `
			insert into turnkeeper.call_gates (turn_id, round, ordinal) select turn_id, round, ordinal from turnkeeper.calls;
			delete from turnkeeper.call_starts`,
		"no ask of an ended turn is open": asked(`'question'`, `'open'`),
		"no expired ask stays open while the scheduler may act": asked(`'question'`, `'open'`) + `
			update turnkeeper.asks set expires_at = now() - interval '61 s';
			update turnkeeper.settings set last_tick_at = now()`,
		"a turn outside its lane waits, or goes back, and holds only messages of its conversation": `
			update turnkeeper.messages set state = 'waiting', lane = agent || '#1' where id = 1`,
		"a turn that has used a labelled result has the label": `
			insert into turnkeeper.labels (kind, id, round, ordinal, label, source) select 'call', turn_id, round, ordinal, 'untrusted', '' from turnkeeper.calls`,
		"a summary has the labels of the history that it was made from": labelledTurns + `
			insert into turnkeeper.summaries (agent, conversation, up_to, turn_id, content) select agent, conversation, 0, max(id), 's' from turnkeeper.turns group by 1, 2`,
		"a message to a sub-agent is untrusted if its sender has seen untrusted content": labelledTurns +
			spawnedBy("'succeeded'", "null", "array['a', 'b']"),
		"a reply has the labels of its turn": labelledTurns,
		"a note has the labels of the call that wrote it": `
			update turnkeeper.journal set calls = (select json_agg((c::jsonb || '{"name": "note_write", "arguments": "{\"name\":\"n\"}", "state": "succeeded"}')::json)
				from json_array_elements(calls) c) where calls is not null;
			insert into turnkeeper.notes (agent, name, content, updated_at) select distinct agent, 'n', '', timestamptz '2020-01-01' from turnkeeper.calls;
			insert into turnkeeper.labels (kind, id, round, ordinal, label, source) select 'call', turn_id, round, ordinal, 'untrusted', '' from turnkeeper.calls`,
		"awaited calls are open, and open detached calls are awaited": `
			update turnkeeper.awaited_calls set closed_at = now()`,
		"the run of a detached call has ended once its result has arrived or is no longer awaited": `
			update turnkeeper.detached_calls set ended_at = now()`,
		"a sub-agent has ended when its message is closed": spawnedBy(
			"'succeeded'", "null", "array['a', 'b']"),
		"a call whose sub-agent is reported has the result, and an answered call awaits no sub-agent": spawnedBy(
			"'running'", "now()", "array['a', 'b']"),
		"a tree of sub-agents keeps its bounds, and no agent is its own ancestor": spawnedBy(
			"'running'", "null", "array['a', 'b', 'a']"),
		"nothing is granted in a lane while a message that is ahead of it waits again": `
			update turnkeeper.turns set state = 'failed' where state = 'succeeded';
			update turnkeeper.messages m set state = 'waiting', closed_at = null, due_at = m.due_at - interval '1 hour' from turnkeeper.turns t
			where t.message_id = m.id and t.state = 'failed';
			insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome)
			select p.lane, p.token + 1000, gen_random_uuid(), r.id, 1, now(), now(), now(), 'finished'
			from turnkeeper.turns p, turnkeeper.turns r where p.state = 'failed' and r.state = 'running'`,
		"the grants of a lane do not overlap": `
			update turnkeeper.ended_grants set ended_at = ended_at + interval '1 hour'`,
		"a running turn holds its lane, and a held lane runs its turn": `
			update turnkeeper.leases set token = token + 1 where grant_id is not null`,
		"a held grant has not ended": `
			update turnkeeper.ended_grants set grant_id = (select grant_id from turnkeeper.leases where grant_id is not null limit 1)
			where grant_id = (select grant_id from turnkeeper.ended_grants limit 1)`,
		"no expired lease stays unnoticed while the scheduler may act": `
			update turnkeeper.leases set granted_at = now() - interval '1 hour', lease_until = now() - interval '61 s' where grant_id is not null;
			update turnkeeper.settings set last_tick_at = now()`,
		"every row belongs to a row that exists":                                         `update turnkeeper.journal set calls = null`,
		"every row obeys the rules of its table":                                         `update turnkeeper.leases set failures = -1`,
		"no duration is negative":                                                        `update turnkeeper.journal set at = at - interval '1 hour' where n = 3`,
		"events are numbered 1 to n; of those that have expired, the last two are there": `delete from turnkeeper.journal where n = 2`,
		"a closed turn has one terminal event, and it is the last":                       `update turnkeeper.journal set types[1] = 'turn_error' where n = 1`,
		"a turn that does not run has the totals of its newest write":                    `update turnkeeper.turns set executed_calls = 9`,
		"a turn's tokens are those of its rounds, of its calls and of its failed attempts": `
			update turnkeeper.journal set answer = (answer::jsonb || '{"reasoning_tokens": 1}')::json where answer is not null`,
		"a chunked output has all its chunks": `
			update turnkeeper.outputs set size_bytes = 7, chunked = true`,
		"every chunk belongs to an output or a draft": `
			insert into turnkeeper.output_chunks (output_id, first_char, content) values ('nobody''s', 0, 'x')`,
		"all parts of a round's request are stored": `delete from turnkeeper.request_parts`,
		"no turn with a call of unknown outcome is succeeded": `
			update turnkeeper.journal set results = replace(results::text, 'succeeded', 'unknown')::json`,
	} {
		t.Run(promise, func(t *testing.T) {
			tx, err := session.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), "set local session_replication_role = replica; "+ // no triggers
				damage); err != nil {
				t.Fatal(err)
			}
			promises, err := operate.CheckIn(t.Context(), tx, false)
			if broken := brokenOf(promises); err != nil || !slices.Contains(broken, promise) {
				t.Errorf("broken: %q, error %v", broken, err)
			}
		})
	}
	t.Run("two workers have run calls under one grant that is not over", func(t *testing.T) {
		h := newEnv(t)
		d := h.Turn("x")
		d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce),
			Starts: []turnlog.CallStart{
				storagetest.Start(storagetest.Key(1, 1), "n1", 1, turnkeeper.EffectOnce),
				storagetest.Start(storagetest.Key(1, 2), "n2", 1, turnkeeper.EffectOnce),
			}})
		if broken := h.broken(false); len(broken) != 0 {
			t.Errorf("broken by one: %q", broken)
		}
		h.Exec("update turnkeeper.call_starts set worker_id = 'worker-2' where ordinal = 2")
		if broken := strings.Join(h.broken(false),
			"; "); broken != "all calls of a grant were started by the worker bound to it" {
			t.Errorf("broken by two: %q", broken)
		}
	})
	t.Run("all are tried", func(t *testing.T) {
		promises, err := newEnv(t).Check(t.Context(), false)
		if err != nil || len(promises) != 52 {
			t.Errorf("%d promises, error %v", len(promises), err)
		}
	})
}

// asked returns SQL that adds an ask of this kind and state about each started call.
func asked(kind, state string) string {
	return `insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
		select turn_id, round, ordinal, ` + kind + `, 1, ` + state + `, 't', '{}', 'h', '', '', '{}', true, now() + interval '1 hour' from turnkeeper.call_starts;`
}

// labelledTurns is SQL that labels all turns from their beginning.
const labelledTurns = `insert into turnkeeper.labels (kind, id, label, source, added_at) select 'turn', id, 'untrusted', '', '-infinity' from turnkeeper.turns;`

// spawnedBy returns SQL that records a message of this state as spawned by the awaited call.
func spawnedBy(message, told, agents string) string {
	return `insert into turnkeeper.agent_trees (root, max_depth, max_agents) select turn_id, 5, 5 from turnkeeper.awaited_calls;
		insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline, notified_at)
		select a.turn_id, a.round, a.ordinal, (select min(id) from turnkeeper.messages where state = ` + message + `), 'b', a.turn_id, ` + agents + `, now(), ` + told + `
		from turnkeeper.awaited_calls a`
}

func TestRowsThatBreakARuleAreFound(t *testing.T) {
	h := busyDatabase(t)
	took := func(ms string) string {
		return `update turnkeeper.journal set results = regexp_replace(results::text, '"duration_ms":-?\d+', '"duration_ms":` + ms + `')::json`
	}
	for sql, undo := range map[string]string{
		"update turnkeeper.messages set body = ' ' where id = 1": "update turnkeeper.messages set body = 'x' where id = 1",
		took("-1"): took("1"),
		"update turnkeeper.leases set failures = -1": "update turnkeeper.leases set failures = 0",
	} {
		h.Exec(sql)
		if broken := strings.Join(h.broken(false), "; "); !strings.Contains(broken,
			"every row obeys the rules of its table") {
			t.Errorf("%s: broken: %q", sql, broken)
		}
		h.Exec(undo)
	}
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken: %q", broken)
	}
}

// TestBrokenReferencesAreFound deletes or changes rows that others refer to.
func TestBrokenReferencesAreFound(t *testing.T) {
	testrun.Guard(t)
	for missing, damage := range map[string]string{
		"its turn":  "delete from turnkeeper.turns",
		"its call":  "update turnkeeper.journal set calls = null",
		"its write": "update turnkeeper.call_starts set n = 9",
		"its start": "update turnkeeper.awaited_calls set nonce = 'other'",
		"late result 1.7: its start": `
			insert into turnkeeper.late_results (turn_id, round, ordinal, result) select turn_id, 1, 7, '' from turnkeeper.awaited_calls`,
	} {
		t.Run(missing, func(t *testing.T) {
			h := busyDatabase(t)
			h.Exec("set session_replication_role = replica; " + damage)
			promises, err := h.Check(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range promises {
				if p.Text == "every row belongs to a row that exists" && strings.Contains(strings.Join(p.Broken,
					"; "), missing) {
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestThePromiseAboutStates plants a call for each pair of states. The promise must find those that CallState does not
// allow.
func TestThePromiseAboutStates(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	states := []turnkeeper.CallState{
		turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallSucceeded,
		turnkeeper.CallFailed,
		turnkeeper.CallSkipped, turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled,
	}
	for _, from := range states { // one by one, because at most 20 violations are listed
		r := storagetest.Round(1)
		var results, want []string
		for _, to := range states {
			if from == to && !from.Answered() {
				continue // the same open state again is not a move
			}
			k := storagetest.Key(1, len(r.Calls)+1)
			r.Calls = append(r.Calls, turnkeeper.ToolCall{Key: k, WireID: k.String(),
				Effect: turnkeeper.EffectNone, State: from})
			results = append(results, fmt.Sprintf(`{"round": 1, "ordinal": %d, "state": "%s"}`, k.Ordinal, to))
			if from.MoveTo(to) != nil {
				want = append(want, fmt.Sprintf("turn %d call 1.%d from %s to %s", d.Grant.TurnID, k.Ordinal, from, to))
			}
		}
		h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, "worker-1").Write(t, turnlog.Entry{Round: r})
		h.Exec("select turnkeeper.add_write($1, '{}', '{}', '{}', '{}', $2)", d.Grant.TurnID,
			"["+strings.Join(results, ",")+"]")
		promises, err := h.Check(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range promises {
			if p.Text == "a call moves only from a state to one that may follow" {
				if diff := cmp.Diff(want, slices.Sorted(slices.Values(p.Broken))); diff != "" {
					t.Errorf("found (-want +got):\n%s", diff)
				}
			}
		}
		h.Exec("delete from turnkeeper.journal")
	}
}

// A journal that cannot be read is reported with its turn. What needs no journal is checked all the same.
func TestCheckWithAnUnreadableJournal(t *testing.T) {
	h := busyDatabase(t)
	all := len(h.promises(false))
	h.Exec("update turnkeeper.journal set answer = '[1]' where turn_id = 1 and answer is not null")
	promises := h.promises(false)
	if len(promises) != all+1 {
		t.Errorf("%d promises, want %d", len(promises), all+1)
	}
	if last := promises[len(promises)-1]; last.Text != "the journal of each turn can be read" ||
		len(last.Broken) != 1 || !strings.HasPrefix(last.Broken[0], "turn 1: ") {
		t.Errorf("the last is %+v", last)
	}
	held, failed := 0, 0
	for _, p := range promises {
		switch {
		case p.Failed:
			failed++
		case len(p.Broken) == 0:
			held++
		}
	}
	if failed == 0 || held < all/2 {
		t.Errorf("%d of %d hold, %d could not be checked", held, all, failed)
	}
}

// TestAPromiseListsItsFirstViolations breaks promises once less than a list holds, as often, and once more: more says
// that there are others.
func TestAPromiseListsItsFirstViolations(t *testing.T) {
	for promise, damage := range map[string]string{
		"every row obeys the rules of its table": `update turnkeeper.messages set body = ' '`,
		"the journal of each turn can be read":   `update turnkeeper.journal set answer = '[1]' where answer is not null`,
	} {
		t.Run(promise, func(t *testing.T) {
			h := newEnv(t)
			grow := func(n int) {
				for range n {
					d := h.Turn("x")
					d.Write(t, turnlog.Entry{Round: storagetest.Round(1),
						Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
					d.Finish(t, "done")
				}
				h.Exec(damage)
			}
			check := func(want int, more bool) {
				t.Helper()
				promises := h.promises(false)
				i := slices.IndexFunc(promises, func(p operate.Promise) bool { return p.Text == promise })
				if i < 0 || len(promises[i].Broken) != want || promises[i].More != more {
					t.Errorf("want %d, more: %t; found %+v", want, more, promises)
				}
			}
			grow(operate.MaxBroken - 1)
			check(operate.MaxBroken-1, false)
			grow(1)
			check(operate.MaxBroken, false)
			grow(1)
			check(operate.MaxBroken, true)
		})
	}
}

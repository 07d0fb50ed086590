package jobs_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage/journal"
)

// turnOfAnotherProgram sends the clerk a message. Another program has started its turn and handed
// it back, with a journal of this version and this definition.
func (s *site) turnOfAnotherProgram(version int, definition string, dispatches int) turnkeeper.MessageID {
	s.t.Helper()
	const hash = "1111111111111111111111111111111111111111111111111111111111111111"
	id := s.enqueue("clerk", "", "begun elsewhere")
	s.exec("insert into turnkeeper.definitions (hash, content) values ($1, $2)", hash, definition)
	s.exec("insert into turnkeeper.leases (lane, agent) values ('clerk', 'clerk')")
	s.exec(`with turn as (
			insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state,
				token, dispatches, inference_rounds, charged_rounds, last_seq)
			select id, 1, agent, conversation, lane, trigger, $2, 'queued', 0, $4, 1, 1, 1 from turnkeeper.messages where id = $1
			returning id
		), message as (
			update turnkeeper.messages set state = 'running', attempts = 1, turn_id = (select id from turn) where id = $1
		)
		insert into turnkeeper.journal (turn_id, n, seq, last_seq, at, inference_rounds, charged_rounds, types, rounds, blocks, data, round, answer, text, reasoning)
		select id, 1, 1, 1, now(), 1, 1, '{turn_start}', '{0}', '{0}', array[''], 1, json_build_object('version', $3::integer, 'charged', true, 'provider', 'script',
			'model', 'm', 'attempts', 1, 'latency_ms', 1, 'finish_reason', 'stop', 'input_tokens', 1, 'output_tokens', 1), 'As I said.', '' from turn`,
		id, hash, version, dispatches)
	return id
}

const plainClerk = "---\ndescription: d\nmodel: script/m\n---\nYou are the clerk.\n"

// A turn that this worker cannot run correctly waits for a worker that can. It is not failed, not
// answered, not counted as a loss, and not granted in a loop.
func TestATurnForANewerWorkerIsHandedBack(t *testing.T) {
	testrun.Guard(t)
	const leftLongAgo = "update turnkeeper.ended_grants set granted_at = granted_at - interval '6 min', ended_at = ended_at - interval '6 min'"
	const tooled = "---\ndescription: d\nmodel: script/m\ntools: [divine]\n---\nYou are the clerk.\n"
	for name, c := range map[string]struct {
		version    int
		definition string
		repair     string // SQL after which the worker can run the turn
		before     string // SQL; the state at the beginning
	}{
		"journal": {99, plainClerk,
			`update turnkeeper.journal set answer = (answer::jsonb || '{"version": 1}')::json where round is not null`,
			""},
		"definition": {1, "---\nunheard_of: 1\n---\nYou are the clerk.\n",
			"update turnkeeper.definitions set content = '" + plainClerk + "' where hash ~ '^1+$'", ""},
		"tool": {1, tooled, leftLongAgo, ""},
		"tool, after it was put off": {1, tooled, leftLongAgo, `
			update turnkeeper.turns set created_at = created_at - interval '1 day';
			insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome)
			select lane, 0, gen_random_uuid(), id, 1, created_at, created_at + interval '4 min', created_at + interval '1 s', 'deferred'
			from turnkeeper.turns`},
		"tool, after a wait": {1, tooled, leftLongAgo, `
			update turnkeeper.turns set created_at = created_at - interval '1 hour';
			update turnkeeper.journal set calls = '[{"ordinal": 1, "wire_id": "w", "provider_id": "", "name": "divine", "arguments": "{}", "args_hash": "h", "effect": "once", "state": "failed"}]';
			insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce, arrived_at, state, closed_at)
			select id, 1, 1, 'n', now(), 'failed', now() from turnkeeper.turns`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if c.definition == tooled { // and the agent still lists the tool
				s.register("clerk", tooled)
			}
			id := s.turnOfAnotherProgram(c.version, c.definition, 0)
			s.exec(c.before)
			before := one[string](s, "select string_agg(r::text, ' ') from turnkeeper.rounds r")
			s.start(kind{model: echo, scheduler: true})
			s.start(kind{model: echo, scheduler: true})
			s.await("select count(distinct worker_id) = 2 from turnkeeper.lease_log where outcome = 'handed_back'")
			if reply := s.reply(s.enqueue("desk", "", "hello")); reply.Body != "re: hello" {
				t.Errorf("another lane was answered %q", reply.Body)
			}
			turn := s.view(id).Turn
			if turn.State != turnkeeper.TurnQueued || turn.Losses != 0 || turn.ErrorClass != journal.ClassNewer ||
				turn.Error == "" {
				t.Errorf("the turn is %+v", turn)
			}
			if after := one[string](s, "select string_agg(r::text, ' ') from turnkeeper.rounds r where turn_id = $1",
				turn.ID); after != before {
				t.Errorf("the journal was\n%s\nand is\n%s", before, after)
			}
			if n := one[int](s, "select dispatches from turnkeeper.turns where id = $1", turn.ID); n != 2 {
				t.Errorf("%d dispatches to two workers", n)
			}
			if n := one[int](s, "select count(*) from turnkeeper.replies where message_id = $1", id); n != 0 {
				t.Errorf("%d replies", n)
			}
			s.await(
				"not exists (select from turnkeeper.river_job where state not in ('completed', 'available', 'running'))")

			s.exec(c.repair)
			s.start(kind{model: echo}) // the only worker that has not refused the turn
			s.exec("select pg_notify('turnkeeper_inbox', '')")
			if reply := s.reply(id); reply.Outcome != turnkeeper.TurnSucceeded || c.before == "" &&
				reply.Body != "As I said." {
				t.Errorf("in the end: %s %q", reply.Outcome, reply.Body)
			}
			if turn := s.view(id).Turn; turn.Losses != 0 || turn.ErrorClass != "" {
				t.Errorf("in the end: %+v", turn)
			}
		})
	}
}

// A scheduler that cannot read the journal of a lost turn does not close the turn with a summary.
func TestALostTurnForANewerWorkerIsNotClosed(t *testing.T) {
	testrun.Guard(t)
	s := newSite(t)
	id := s.turnOfAnotherProgram(9, plainClerk, 7)
	s.exec(
		`update turnkeeper.turns set state = 'running', token = 1, losses = 6, job_id = 1, grant_id = gen_random_uuid(),
		granted_at = clock_timestamp() - interval '1 hour', lease_until = clock_timestamp() - interval '1 min'`)
	s.exec(`update turnkeeper.leases l set token = 1, grant_id = t.grant_id, turn_id = t.id, granted_at = t.granted_at,
		lease_until = t.lease_until from turnkeeper.turns t`)
	s.exec(
		`insert into turnkeeper.river_job (id, args, kind, max_attempts, queue, state, attempted_at, attempt, attempted_by)
		overriding system value values (1, '{}', 'AgentTurn', 1, 'turns', 'running', now(), 1, '{gone}')`)
	s.start(kind{scheduler: true})
	s.await("select state = 'queued' and losses = 7 from turnkeeper.turns")
	s.exec(`update turnkeeper.journal set answer = (answer::jsonb || '{"version": 1}')::json where round is not null`)
	s.start(kind{model: echo})
	if reply := s.reply(id); reply.Body != "As I said." {
		t.Errorf("%+v", reply)
	}
}

// A turn may be granted to one worker by name. Its job then waits in the queue of that worker,
// which no other worker reads, also when the worker is gone.
func TestAGrantInTheQueueOfAWorkerThatIsGone(t *testing.T) {
	tests := map[string]struct {
		becomes string // SQL; the new state of the worker's heartbeat
		lost    bool
	}{
		"it lives":       {"update turnkeeper.worker_heartbeat set beat_at = clock_timestamp()", false},
		"it is silent":   {"update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() - takeover_after", true},
		"it has stopped": {"update turnkeeper.worker_heartbeat set stopped_at = clock_timestamp()", true},
		"it is unknown":  {"delete from turnkeeper.worker_heartbeat", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctx := t.Context()
			s.enqueue("clerk", "", "hello")
			if err := s.Beat(ctx, presence.Heartbeat{WorkerID: "w", Slots: 1, TakeoverAfter: time.Hour}); err != nil {
				t.Fatal(err)
			}
			tick := func() {
				t.Helper()
				d := &jobs.Dispatcher{Grants: s.Grants, TTL: time.Hour}
				if _, err := scheduler.New(scheduler.Config{Store: d}).Tick(ctx); err != nil {
					t.Fatal(err)
				}
			}
			tick()
			grant := one[string](s, "select grant_id::text from turnkeeper.turns where state = 'running'")
			s.exec("update turnkeeper.river_job set queue = $1", jobs.QueueOf("w"))
			s.exec(tt.becomes)
			tick()
			if lost := one[bool](s,
				"select outcome is not distinct from 'unclaimed' from turnkeeper.lease_log where grant_id = $1",
				grant); lost != tt.lost {
				t.Errorf("the grant is found lost: %v, want %v", lost, tt.lost)
			}
			if n := one[int](s, "select losses from turnkeeper.turns"); n != 0 {
				t.Errorf("%d losses are counted: nobody had the turn", n)
			}
		})
	}
}

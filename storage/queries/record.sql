-- name: TurnForWorker :many
-- The turns with these ids, and those of these grants, each with its lane. It computes the remaining time so that a
-- clock that was set back since the grant does not lengthen the lease.
with wanted as materialized (
    select unnest(@turn_ids::bigint[]) as id
    union all select k.turn_id from (select unnest(@lanes::text[]) as lane, unnest(@grants::uuid[]) as grant_id) g,
        lateral (select * from turnkeeper.leases l where l.lane = g.lane offset 0) k where k.grant_id = g.grant_id
)
select t.*, (select w.n from turnkeeper.newest_write(t.id) w)::bigint as entries, d.content as definition,
    coalesce(l.failures, 0)::integer as failures,
    (extract(epoch from least(t.lease_until - clock_timestamp(),
        t.lease_until - t.granted_at)) * 1000000)::bigint as remaining_us,
    (extract(epoch from greatest(clock_timestamp() - t.granted_at, interval '0')) * 1000000)::bigint as elapsed_us,
    m.body, m.idempotency_key, m.priority, m.schedule, m.slot, m.attempts as message_attempts,
    m.due_at as message_due_at,
    m.accepted_at, m.trace_parent, m.faults,
    coalesce((select r.max_output_tokens from turnkeeper.responses r where r.message_id = t.message_id),
        0)::integer as answer_limit,
    (extract(epoch from turnkeeper.service_wait(m.id)) * 1000000)::bigint as waited_us,
    exists (select from turnkeeper.model_health where down_since is not null)::boolean as any_down,
    exists (select from turnkeeper.suspects s where s.message_id = t.message_id)::boolean as suspected,
    coalesce((select max(s.up_to) from turnkeeper.summaries s
        where s.agent = t.agent and s.user_name = t.user_name and s.conversation = t.conversation and s.up_to < t.id),
            0)::bigint as summary_up_to,
    coalesce((select max(a.arrived_at) from turnkeeper.awaited_calls a where a.turn_id = t.id),
        t.created_at)::timestamptz as ready_since,
    turnkeeper.has_past(t.agent, t.user_name, t.conversation, t.id)::boolean as has_past,
    coalesce((select e.how from turnkeeper.requested_end(t.id) e), '')::text as requested_end,
    exists (select from turnkeeper.spawned_calls s where s.message_id = t.message_id)::boolean as spawned,
    exists (select from turnkeeper.labels)::boolean as any_labels,
    coalesce((select turnkeeper.level_of(a.name) from turnkeeper.agents a where a.name = t.agent and a.levels <> '{}'),
        '')::text as level
from wanted w,
    -- offset 0 makes Postgres look up each row by its key, whatever its statistics are
    lateral (select * from turnkeeper.turns_now n where n.id = w.id offset 0) t,
    lateral (select * from turnkeeper.messages q where q.id = t.message_id offset 0) m,
    lateral (select * from turnkeeper.definitions f where f.hash = t.definition_hash offset 0) d
    left join lateral (select k.failures from turnkeeper.leases k where k.lane = t.lane offset 0) l on true;

-- name: DefinitionOfTurn :one
select t.agent, d.content from turnkeeper.turns t join turnkeeper.definitions d on d.hash = t.definition_hash
    where t.id = @turn_id;

-- name: CurrentDefinition :one
select d.hash, d.content, (a.retired_at is not null)::boolean as retired
from turnkeeper.agents a join turnkeeper.definitions d on d.hash = a.definition_hash where a.name = @agent;

-- name: RoundsOfTurns :many
select * from turnkeeper.rounds where turn_id = any(@turn_ids::bigint[]) order by turn_id, round;

-- name: FailedAttemptsOfTurn :many
select * from turnkeeper.failed_attempts where turn_id = @turn_id order by id;

-- name: CallsOfTurns :many
select * from turnkeeper.calls where turn_id = any(@turn_ids::bigint[]) order by turn_id, round, ordinal;

-- name: PastJournals :many
-- What the history of a later turn shows of earlier turns, and their recipes.
select j.turn_id, coalesce(j.round, 0)::integer as round, coalesce(j.answer::text, '')::text as answer,
    coalesce(j.calls::text, '')::text as calls,
    coalesce(j.text, '')::text as text, coalesce(j.raw, '')::text as raw, coalesce(j.results::text,
        '')::text as results,
    coalesce(j.request::text, '')::text as request, coalesce(j.earlier::text, '')::text as earlier
from (select unnest(@turn_ids::bigint[]) as id) w,
    -- offset 0: by key
    lateral (select * from turnkeeper.journal q where q.turn_id = w.id and (q.round is not null
        or q.results is not null) order by q.n offset 0) j
order by j.turn_id, j.n;

-- name: PastTurns :many
-- The ended turns before a turn, newest first. Of the turns in known it returns only the id and state: the caller has
-- cached the rest, which is immutable.
-- The range condition and the order make the planner use the index on conversations even with stale statistics.
-- offset 0 keeps the subquery separate, so that it is not run for known turns.
select p.id, p.state, coalesce(p.error_class, '')::text as error_class, coalesce(t.body, '')::text as body,
    coalesce(t.silent, false)::boolean as silent,
    coalesce(t.reply, case when t.silent then p.inner_dialogue end, '')::text as reply
from turnkeeper.history_turns p
left join lateral (select m.body, r.id is null as silent, r.body as reply
    from turnkeeper.messages m left join turnkeeper.replies r on r.turn_id = p.id
    where m.id = p.message_id and p.id <> all(@known::bigint[]) offset 0) t on true
where p.agent = @agent and p.user_name = @user_name and p.conversation >= @conversation::text
    and p.conversation <= @conversation and p.id < @before
order by p.conversation desc, p.id desc limit @max_rows;

-- name: CountPastTurns :one
-- Counts all turns, also those that history_turns leaves out: it reads only the index.
select count(*) from (select from turnkeeper.turns p
    where p.agent = @agent and p.user_name = @user_name and p.conversation >= @conversation::text
        and p.conversation <= @conversation and p.id < @before
    order by p.conversation, p.id limit @max_rows) counted;

-- name: LastRun :many
-- The previous run of a turn's schedule, in its conversation.
select p.id, p.state, coalesce(p.error_class, '')::text as error_class, m.body, (r.id is null)::boolean as silent,
    coalesce(r.body, p.inner_dialogue, '')::text as reply
from turnkeeper.messages m
join turnkeeper.history_turns p on p.message_id = m.id
left join turnkeeper.replies r on r.turn_id = p.id
where m.agent = @agent and m.schedule = @schedule::text and p.user_name = @user_name and p.conversation = @conversation
    and p.id < @before
order by m.slot desc, p.id desc limit 1;

-- name: StreamPosition :one
-- Where a turn's stream stands, for whoever goes on with it.
select coalesce(max(block), 0)::integer as last_block,
    coalesce(max(round) filter (where type = 'round_start'), 0)::integer as started_round,
    coalesce(max(seq) filter (where type = 'round_start'), 0)::bigint as started_seq,
    coalesce(max(seq) filter (where type = 'round_rollback'), 0)::bigint as rollback_seq
from turnkeeper.turn_events where turn_id = @turn_id;

-- name: RecentCalls :many
-- Among the newest 50 starts. If the clock was set back, a call that just ended may be in the future.
select c.state::text as state, (extract(epoch from greatest(clock_timestamp() - c.ended_at,
    interval '0')) * 1000000)::bigint as ago_us
from (select distinct n.turn_id, n.round, n.ordinal from (
    select r.turn_id, r.round, r.ordinal from turnkeeper.call_starts r where r.agent = @agent and r.name = @name
        and r.args_hash = @args_hash
    order by r.turn_id desc limit 50) n) s
cross join lateral (select k.turn_id, k.state, k.ended_at from turnkeeper.calls k
    where k.turn_id = s.turn_id and k.round = s.round and k.ordinal = s.ordinal) c
where c.state in ('succeeded', 'failed')
  and c.ended_at between clock_timestamp() - @within::interval and clock_timestamp() + @within::interval
order by c.turn_id desc, c.ended_at desc limit 20;

-- name: SummaryUpTo :one
select content from turnkeeper.summaries
where agent = @agent and user_name = @user_name and conversation = @conversation and up_to = @up_to;

-- name: RequestParts :many
select sha256, content from turnkeeper.request_parts where sha256 = any(@hashes::text[]);

-- name: TurnForWorker :many
-- The turns with these ids, and those of these grants, which may be over. It computes the remaining time so that a clock that was set back since the grant does not
-- lengthen the lease.
select sqlc.embed(t), (select w.n from turnkeeper.newest_write(t.id) w)::bigint as entries, d.content as definition, coalesce(l.failures, 0)::integer as failures,
    (extract(epoch from least(t.lease_until - clock_timestamp(), t.lease_until - t.granted_at)) * 1000000)::bigint as remaining_us,
    (extract(epoch from greatest(clock_timestamp() - t.granted_at, interval '0')) * 1000000)::bigint as elapsed_us,
    m.body, m.idempotency_key, m.priority, m.schedule, m.slot, m.attempts as message_attempts, m.due_at as message_due_at,
    m.accepted_at, m.trace_parent, m.faults,
    (extract(epoch from greatest(clock_timestamp() - greatest(m.accepted_at, m.due_at), interval '0')) * 1000000)::bigint as waited_us,
    exists (select from turnkeeper.model_health where down_since is not null)::boolean as any_down,
    coalesce((select max(s.up_to) from turnkeeper.summaries s
        where s.agent = t.agent and s.conversation = t.conversation and s.up_to < t.id), 0)::bigint as summary_up_to,
    coalesce((select max(a.arrived_at) from turnkeeper.awaited_calls a where a.turn_id = t.id), t.created_at)::timestamptz as ready_since,
    exists (select from turnkeeper.turns p where p.agent = t.agent and p.conversation = t.conversation and p.id < t.id
        and p.state in ('succeeded', 'degraded', 'failed', 'cancelled'))::boolean as has_past,
    exists (select from turnkeeper.cancellations x where x.turn_id = t.id)::boolean as cancelled,
    exists (select from turnkeeper.spawned_calls s where s.message_id = t.message_id)::boolean as spawned
from turnkeeper.turns_now t
join turnkeeper.messages m on m.id = t.message_id
join turnkeeper.definitions d on d.hash = t.definition_hash
left join turnkeeper.leases l on l.lane = t.lane
where t.id = any(@turn_ids::bigint[] || array(select g.turn_id from turnkeeper.lease_log g where g.grant_id = any(@grants::uuid[])));

-- name: DefinitionOfTurn :one
select t.agent, d.content from turnkeeper.turns t join turnkeeper.definitions d on d.hash = t.definition_hash where t.id = @turn_id;

-- name: CurrentDefinition :one
select d.content from turnkeeper.agents a join turnkeeper.definitions d on d.hash = a.definition_hash where a.name = @agent;

-- name: RoundsOfTurns :many
select * from turnkeeper.rounds where turn_id = any(@turn_ids::bigint[]) order by turn_id, round;

-- name: FailedAttemptsOfTurn :many
select * from turnkeeper.failed_attempts where turn_id = @turn_id order by id;

-- name: CallsOfTurns :many
select * from turnkeeper.calls where turn_id = any(@turn_ids::bigint[]) order by turn_id, round, ordinal;

-- name: PastRounds :many
-- What the history of a later turn shows of earlier turns, and the recipes of the newest.
select turn_id, round, version, provider, text, raw, 
    coalesce(case when turn_id = (select max(n.turn_id) from turnkeeper.rounds n where n.turn_id = any(@turn_ids::bigint[]))
        then request::text end, '')::text as request
from turnkeeper.rounds where turn_id = any(@turn_ids::bigint[]) order by turn_id, round;

-- name: PastCalls :many
select turn_id, round, ordinal, wire_id, name, arguments, effect, state, shown, preview, output_id
from turnkeeper.calls where turn_id = any(@turn_ids::bigint[]) order by turn_id, round, ordinal;

-- name: PastTurns :many
-- The conditions and the order use the index of a conversation's turns, whatever the statistics say.
select p.id, p.state, coalesce(p.error_class, '')::text as error_class, m.body, (r.id is null)::boolean as silent,
    coalesce(r.body, p.inner_dialogue, '')::text as reply
from turnkeeper.told_turns p
join turnkeeper.messages m on m.id = p.message_id
left join turnkeeper.replies r on r.turn_id = p.id
where p.agent = @agent and p.conversation >= @conversation::text and p.conversation <= @conversation and p.id < @before
order by p.conversation desc, p.id desc limit @max_rows;

-- name: CountPastTurns :one
-- Counts all turns, also those that told_turns leaves out: it reads only the index.
select count(*) from (select from turnkeeper.turns p
    where p.agent = @agent and p.conversation >= @conversation::text and p.conversation <= @conversation and p.id < @before
    order by p.conversation, p.id limit @max_rows) counted;

-- name: LastRun :many
-- The previous run of a turn's schedule, in its conversation.
select p.id, p.state, coalesce(p.error_class, '')::text as error_class, m.body, (r.id is null)::boolean as silent,
    coalesce(r.body, p.inner_dialogue, '')::text as reply
from turnkeeper.messages m
join turnkeeper.told_turns p on p.message_id = m.id
left join turnkeeper.replies r on r.turn_id = p.id
where m.agent = @agent and m.schedule = @schedule::text and p.conversation = @conversation and p.id < @before
order by m.slot desc, p.id desc limit 1;

-- name: StreamPosition :one
-- Where a turn's stream stands, for whoever goes on with it.
select coalesce(max(block), 0)::integer as last_block,
    coalesce(max(round) filter (where type = 'round_start'), 0)::integer as started_round,
    coalesce(max(seq) filter (where type = 'round_start'), 0)::bigint as started_seq,
    coalesce(max(seq) filter (where type = 'round_rollback'), 0)::bigint as rollback_seq
from turnkeeper.turn_events where turn_id = @turn_id;

-- name: RecentCalls :many
-- If the clock was set back, a call that just ended may be in the future.
select state, (extract(epoch from greatest(clock_timestamp() - ended_at, interval '0')) * 1000000)::bigint as ago_us
from turnkeeper.calls
where agent = @agent and name = @name and args_hash = @args_hash and state in ('succeeded', 'failed')
  and ended_at between clock_timestamp() - @within::interval and clock_timestamp() + @within::interval
order by turn_id desc, ended_at desc limit 20;

-- name: SummaryUpTo :one
select content from turnkeeper.summaries
where agent = @agent and conversation = @conversation and up_to = @up_to;

-- name: RequestParts :many
select sha256, content from turnkeeper.request_parts where sha256 = any(@hashes::text[]);

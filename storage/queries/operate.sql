-- name: AskEnd :exec
select turnkeeper.ask_end(@turn::bigint, @how::text, @reason::text);

-- name: SettleEnd :one
select coalesce(state, '')::text as state, done::boolean as done, again::boolean as again
from turnkeeper.settle_end(@turn::bigint);

-- name: OpenSubAgents :many
-- The open turns of the sub-agents of a turn.
select t.id from turnkeeper.spawned_calls c join turnkeeper.turns t on t.message_id = c.message_id
where c.turn_id = @turn_id and c.ended_at is null and t.ended_at is null order by t.id;

-- name: CancelMessage :one
select coalesce(state, '')::text as state, turn::bigint as turn from turnkeeper.cancel_message(@message::bigint,
    @reason::text);

-- name: EndsRequested :many
-- Returns the given grants whose turns were asked to end, and how: cancel or finish.
select l.grant_id::uuid as grant_id, e.how::text as how from turnkeeper.leases l,
    lateral turnkeeper.requested_end(l.turn_id) e
where l.grant_id = any(@grants::uuid[]) and e.how is not null;

-- name: RequestedEndOf :one
select r.* from turnkeeper.requested_end(@turn::bigint) e join turnkeeper.requested_ends r on r.turn_id = e.turn;

-- name: RetryMessage :one
select coalesce(verdict, '')::text as verdict, coalesce(message, 0)::bigint as message
from turnkeeper.retry_message(@message::bigint, @anyway::boolean);

-- name: HasActed :one
-- Whether a call of the message may have had an effect: see turnkeeper.Turn.MayHaveActed.
select (exists (select from turnkeeper.turns t join turnkeeper.call_starts s on s.turn_id = t.id
        where t.message_id = @message and s.effect <> 'none')
    or exists (select from turnkeeper.turns t join turnkeeper.calls c on c.turn_id = t.id
        where t.message_id = @message and t.losses > 0 and c.effect = 'none' and c.starts = 0
            and c.state = 'cancelled'))::boolean;

-- name: RetryOf :many
-- The retries from and to a message.
select message_id, retried_as, asked_at from turnkeeper.retries where message_id = @message or retried_as = @message
    order by message_id;

-- name: DefinitionByHash :one
select content from turnkeeper.definitions where hash = @hash;

-- name: Totals :one
-- An overview for operators. Waiting messages are counted up to 100,000; the figures of
-- ended turns are of the newest 5,000 in the window. The oldest waiting message is one that waits for no person.
select
    (select count(*) from (select from turnkeeper.waiting limit 100000) w)::bigint as waiting,
    coalesce(extract(epoch from clock_timestamp() - turnkeeper.oldest_due()), 0)::float8 as oldest_seconds,
    (select count(*) from turnkeeper.turns where state = 'running')::bigint as running,
    (select count(*) from turnkeeper.turns where state = 'queued')::bigint as queued,
    (select count(*) from turnkeeper.turns where state = 'waiting')::bigint as waiting_turns,
    recent.ended, recent.good, recent.degraded, recent.bad, recent.tokens,
    clock_timestamp()::timestamptz as now
from (
    select count(*)::bigint as ended, count(*) filter (where t.state = 'succeeded')::bigint as good,
        count(*) filter (where t.state = 'degraded')::bigint as degraded,
        count(*) filter (where t.state = 'failed')::bigint as bad, coalesce(sum(t.input_tokens + t.output_tokens),
            0)::bigint as tokens
    from (select state, ended_at, input_tokens, output_tokens from turnkeeper.turns order by id desc limit 5000) t
    where t.ended_at > clock_timestamp() - @span::interval
) recent;

-- name: WaitingTurns :many
select reason::text as reason, turns::bigint as turns, coalesce(since, to_timestamp(0))::timestamptz as since,
    coalesce(until, to_timestamp(0))::timestamptz as until
from turnkeeper.waiting_turns();

-- name: OpenTurns :many
-- Open turns, running ones first, the longest-running first.
select sqlc.embed(t), coalesce(nullif(t.worker_id, ''), j.attempted_by[array_upper(j.attempted_by, 1)],
    '')::text as holder
from turnkeeper.turns_now t left join turnkeeper.river_job j on j.id = t.job_id
where t.ended_at is null
order by t.state <> 'running', t.granted_at nulls last, t.id
limit @max_rows;

-- name: Purge :one
select messages::bigint as messages, turns::bigint as turns, outputs::bigint as outputs, failed::bigint as failed,
    coalesce(last, 0)::bigint as last
from turnkeeper.purge(@agent::text, sqlc.narg(user_name)::text, @conversation::text,
    clock_timestamp() - sqlc.narg(older)::interval, @after::bigint, @max_rows::integer, @dry::boolean,
        @undelivered::boolean);

-- name: Expire :one
-- One batch of a class of retention.
select done::bigint as done, failed::bigint as failed
    from turnkeeper.expire(@class::text, clock_timestamp() - @kept::interval, @max_rows::integer);

-- name: KeptFor :one
-- How long outputs and events are kept without a setting; zero: for ever.
select coalesce(kept_for, interval '0')::interval as kept from turnkeeper.settings;

-- name: StoredParts :one
-- The bytes of the tables that grow with each turn, and when the oldest turn ended whose events are still stored; 1970:
-- there is none.
select (pg_total_relation_size('turnkeeper.journal') + pg_total_relation_size(
    'turnkeeper.outputs') + pg_total_relation_size('turnkeeper.output_chunks')
        + pg_total_relation_size('turnkeeper.ended_grants'))::bigint as bytes,
    coalesce((select t.ended_at from turnkeeper.turns t where t.ended_at is not null and t.events_expired_at is null
        order by t.ended_at limit 1),
        to_timestamp(0))::timestamptz as oldest;

-- name: PurgeNotes :execrows
-- all_of: all notes of the agent; else of a user or, without one, of a conversation.
delete from turnkeeper.notes n where (@agent::text = '' or n.agent = @agent)
  and (@all_of::boolean or n.user_name = @user_name::text and n.conversation = @conversation::text);

-- name: PurgeFiles :exec
-- Forgets which files an agent has written, with their labels.
delete from turnkeeper.files where agent = @agent;

-- name: CountNotes :one
select count(*) from turnkeeper.notes n where (@agent::text = '' or n.agent = @agent)
  and (@all_of::boolean or n.user_name = @user_name::text and n.conversation = @conversation::text);

-- name: Queue :one
-- Due messages and open turns only, because it runs every few seconds. Messages that wait for a person do not count.
select
    (select count(*) from (
        (select from turnkeeper.waiting where not held and queue_rank is null and rank <= statement_timestamp()
            limit 100000)
        union all
        (select from turnkeeper.waiting where not held and queue_rank is not null and due_at <= statement_timestamp()
            limit 100000)
    ) w)::bigint as waiting,
    coalesce(extract(epoch from clock_timestamp() - turnkeeper.oldest_due()), 0)::float8 as oldest_seconds,
    (select count(*) from turnkeeper.turns where state = 'running')::bigint as running,
    (select count(*) from turnkeeper.turns where state = 'queued')::bigint as queued,
    (select count(*) from turnkeeper.turns where state = 'waiting')::bigint as waiting_turns,
        clock_timestamp()::timestamptz as now;

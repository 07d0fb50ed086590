-- name: Now :one
select clock_timestamp()::timestamptz;

-- name: ListTurns :many
select * from turnkeeper.turns_now
where (@agent::text = '' or agent = @agent) and (@user_name::text = '' or user_name = @user_name) and (@state::text = ''
    or state = @state)
  and (@before::bigint = 0 or id < @before)
order by id desc limit @max_rows;

-- name: LatestTurn :one
-- The newest turn of an agent; without one, the newest that is not a sub-agent's.
select t.id from turnkeeper.turns t
where case when @agent::text = '' then not exists (select from turnkeeper.spawned_calls c
    where c.message_id = t.message_id) else t.agent = @agent end
order by t.id desc limit 1;

-- name: TurnByID :one
select sqlc.embed(t), coalesce(j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as taken_by
from turnkeeper.turns_now t left join turnkeeper.river_job j on j.id = t.job_id
where t.id = @id;

-- name: TurnsOfMessage :many
select * from turnkeeper.turns_now where message_id = @message_id order by attempt;

-- name: GrantsOfTurn :many
-- The log names the worker of an ended grant if it was bound. If not, taken_by is the
-- worker that fetched the job, as long as River keeps its row.
select sqlc.embed(g), coalesce(j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as taken_by
from turnkeeper.lease_log g
left join turnkeeper.river_job j on j.id = g.job_id and j.state not in ('available', 'pending', 'retryable',
    'scheduled')
where g.turn_id = @turn_id order by g.token;

-- name: ListLanes :many
-- The lanes in which something runs, waits or pauses: those that are held first, then by name.
with recursive waiting as ( -- from lane to lane, by name: thousands of messages may wait in one
    (select m.lane, m.agent, m.held from turnkeeper.waiting m order by m.lane, m.rank, m.id limit 1)
    union all
    select n.lane, n.agent, n.held
    from waiting, lateral (select m.lane, m.agent, m.held from turnkeeper.waiting m
        where m.lane > waiting.lane order by m.lane, m.rank, m.id limit 1) n
), heads as ( -- the first ones: those of the page and before it
    select w.lane, w.agent from waiting w where not w.held and (@agent::text = '' or w.agent = @agent)
    limit @first
), lanes as (
    select lane, agent from turnkeeper.leases
    union select lane, agent from heads
    union select coalesce(home_lane, lane), agent from turnkeeper.turns where ended_at is null
)
select n.lane::text as lane, n.agent::text as agent, coalesce(l.token, 0)::bigint as token, l.grant_id, l.turn_id,
    l.granted_at, l.lease_until, coalesce(l.failures, 0)::integer as failures, l.not_before,
    coalesce(extract(epoch from l.lease_until - clock_timestamp()) * 1000, 0)::bigint as remaining_ms,
    coalesce(nullif(t.worker_id, ''), j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as holder,
    coalesce(t.state, o.state, '')::text as turn_state, coalesce(o.id, 0)::bigint as open_turn,
    (select count(*) from (select from turnkeeper.waiting m where m.lane = n.lane limit 10000) w)::bigint as waiting,
    coalesce(t.message_id, o.message_id, (select m.id from turnkeeper.waiting m where m.lane = n.lane
        order by m.rank, m.id limit 1), 0)::bigint as head,
    coalesce((select p.message_id from turnkeeper.turns p where p.home_lane = n.lane and p.ended_at is null
        order by p.id limit 1), 0)::bigint as outside,
    h.beat_at, h.stopped_at, coalesce(h.takeover_after, interval '0')::interval as takeover_after,
    coalesce(extract(epoch from greatest(clock_timestamp() - h.beat_at, interval '0')) * 1000, 0)::bigint as silent_ms
from lanes n
left join turnkeeper.leases l on l.lane = n.lane
left join turnkeeper.turns t on t.id = l.turn_id
left join turnkeeper.turns o on o.lane = n.lane and o.ended_at is null
left join turnkeeper.river_job j on j.id = t.job_id
left join turnkeeper.worker_heartbeat h on h.worker_id = coalesce(nullif(t.worker_id, ''),
    j.attempted_by[array_upper(j.attempted_by, 1)])
where (@agent::text = '' or n.agent = @agent)
order by l.grant_id is null, n.lane limit @max_rows offset @skip;

-- name: ListSchedules :many
select sqlc.embed(s), (a.retired_at is not null)::boolean as agent_retired
from turnkeeper.schedules s left join turnkeeper.agents a on a.name = s.agent order by s.agent, s.name;

-- name: OverrideSchedule :execrows
-- Reactivates a schedule that was disabled by its error, but not one that its file no
-- longer has.
update turnkeeper.schedules set cron_override = sqlc.narg(cron), next_due = null,
    active = active or last_error is not null, last_error = null
where agent = @agent and name = @name;

-- name: PauseSchedule :execrows
update turnkeeper.schedules set paused_at = case when @paused::boolean then clock_timestamp() end,
    paused_reason = case when @paused then nullif(@reason::text, '') end,
    next_due = case when @paused then next_due end
where agent = @agent and name = @name;

-- name: EventsAfter :many
select seq::bigint as seq, type::text as type, round::integer as round, block::integer as block, data::json as data,
    at::timestamptz as at
from turnkeeper.events_after(@turn_id::bigint, @after::bigint, @max_rows::integer) as e (seq, type, round,
    block, data, at);

-- name: OutputByID :one
select * from turnkeeper.outputs where id = @id;

-- name: ReadOutput :one
-- Characters of a stored text, or of the description of binary content. Of a chunked
-- text, it reads only the chunks that contain them. (substr counts from 1, and accepts
-- a smaller start.)
select (case when o.chunked and o.bytes is null then coalesce((
        select string_agg(substr(c.content, (p.first_char - c.first_char + 1)::integer, p.take), ''
            order by c.first_char)
        from turnkeeper.output_chunks c
        where c.output_id = o.id and c.first_char < p.first_char + p.take
          and c.first_char >= (select coalesce(max(b.first_char), 0) from turnkeeper.output_chunks b
                               where b.output_id = o.id and b.first_char <= p.first_char)), '')
    else substr(coalesce(o.content, o.description), (p.first_char + 1)::integer, p.take) end)::text
from turnkeeper.outputs o, (select @first_char::bigint as first_char, @take::integer as take) p
where o.id = @id and o.turn_id = @turn_id and o.expired_at is null;

-- name: DescribeOutput :one
select media_type, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description, retrieved,
    created_at, expired_at
from turnkeeper.outputs where id = @id and turn_id = @turn_id;

-- name: NoteRetrieved :exec
update turnkeeper.outputs set retrieved = retrieved + 1 where id = @id and turn_id = @turn_id;

-- name: OutputsOfTurn :many
select id, round, ordinal, media_type, size_bytes, chars, tokens, sha256, incomplete, retrieved, expired_at
from turnkeeper.outputs where turn_id = @turn_id order by round, ordinal;

-- name: SpendOf :many
select scope, period, tokens, calls from turnkeeper.spend where scope = @scope order by period desc limit 30;

-- name: ServerFacts :one
select current_setting('server_version')::text as version, current_setting('fsync')::text as fsync,
    current_setting('synchronous_commit')::text as synchronous_commit,
    current_setting('full_page_writes')::text as full_page_writes,
    current_setting('max_connections')::integer as max_connections,
    current_setting('server_encoding')::text as encoding,
    pg_is_in_recovery()::boolean as in_recovery,
    clock_timestamp()::timestamptz as now;

-- name: WhoseTurn :one
select agent, user_name, conversation from turnkeeper.turns where id = @id;

-- name: GrantBefore :one
-- The grant of a turn before the given one.
select b.* from turnkeeper.lease_log b
join turnkeeper.lease_log g on g.turn_id = b.turn_id and g.grant_id = @grant_id
where b.turn_id = @turn_id and b.token < g.token order by b.token desc limit 1;

-- name: HandedOnSince :one
-- When the current series of hand-backs of a turn began, with no other end of a dispatch
-- in between; 1970: its last dispatch was not handed back.
select coalesce(min(b.ended_at), to_timestamp(0))::timestamptz as since from turnkeeper.ended_grants b
where b.turn_id = @turn_id and b.outcome = 'handed_back' and not exists (select from turnkeeper.ended_grants o
    where o.turn_id = b.turn_id and o.token > b.token and o.outcome <> 'handed_back');

-- name: OthersMayTake :one
-- Whether another live worker has not handed a turn back.
select exists (select from turnkeeper.worker_heartbeat h
    where h.worker_id <> @worker_id and h.stopped_at is null and h.slots > 0
      and not turnkeeper.heartbeat_overdue(h.beat_at, greatest(h.takeover_after, interval '15 s'))
      and not exists (select from turnkeeper.ended_grants g
          where g.turn_id = @turn_id and g.worker_id = h.worker_id and g.outcome = 'handed_back'))::boolean as may;

-- name: BlockersOf :many
-- Why each of some open messages waits: see turnkeeper.blockers. One without a blocker waits for the next tick.
select m.id, coalesce(b.reason, case when m.state = 'waiting' or t.state = 'queued' then 'next_tick'
    else '' end)::text as reason,
    coalesce(b.since, to_timestamp(0))::timestamptz as since, coalesce(b.until, to_timestamp(0))::timestamptz as until,
    coalesce(b.agent, '')::text as agent, coalesce(b.lane, '')::text as lane, coalesce(b.message_id,
        0)::bigint as message_id,
    coalesce(b.turn_id, 0)::bigint as turn_id, coalesce(b.turn_state, '')::text as turn_state, coalesce(b.worker_id,
        '')::text as worker_id,
    coalesce(b.stopped, false)::boolean as stopped, coalesce(b.silent, interval '0')::interval as silent,
    coalesce(b.model, '')::text as model,
    coalesce(b.count, 0)::integer as count, coalesce(b.why, '')::text as why
from turnkeeper.messages m
left join turnkeeper.turns t on t.id = m.turn_id and t.ended_at is null
left join lateral turnkeeper.blockers(m.id)
    as b (reason, everybody, since, until, agent, lane, message_id, turn_id, turn_state, worker_id, stopped, silent,
        model, count, why) on true
where m.id = any(@ids::bigint[]) and m.closed_at is null;

-- name: WaitsOfTurn :many
-- The waits that a turn began, by its events.
select e.at::timestamptz as at, coalesce((select array_agg(r) from json_array_elements_text(e.data -> 'reasons') r),
    '{}')::text[] as reasons
from turnkeeper.turn_events e where e.turn_id = @turn_id::bigint and e.type = 'turn_waiting' order by e.seq;

-- name: Holders :many
-- The workers of running turns, and what the turns are doing. streamed is the number of bytes since the newest start of
-- an unanswered round.
select t.id, coalesce(nullif(t.worker_id, ''), j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as worker_id,
    t.inference_rounds, t.lease_until, h.beat_at, h.stopped_at, coalesce(h.takeover_after,
        interval '0')::interval as takeover_after,
    coalesce(extract(epoch from greatest(clock_timestamp() - h.beat_at, interval '0')) * 1000, 0)::bigint as silent_ms,
    coalesce(h.refused, '[]')::text as refused,
    coalesce(b.round, 0)::integer as round, coalesce(b.at, t.granted_at, t.created_at)::timestamptz as since,
    (select coalesce(sum(octet_length(coalesce(e.data->>'text', e.data->>'thinking', e.data->>'arguments', ''))), 0)
        from turnkeeper.turn_events e
        where e.turn_id = t.id and e.seq > b.seq and e.type = 'block_delta')::bigint as streamed
from turnkeeper.turns_now t
left join turnkeeper.river_job j on j.id = t.job_id
left join turnkeeper.worker_heartbeat h on h.worker_id = coalesce(nullif(t.worker_id, ''),
    j.attempted_by[array_upper(j.attempted_by, 1)])
left join lateral (
    select e.seq, e.round, e.at from (
        select s.seq, s.round, s.at, s.type from turnkeeper.turn_events s
        where s.turn_id = t.id and s.type in ('round_start', 'round_rollback') order by s.seq desc limit 1
    ) e where e.type = 'round_start' and e.round > t.inference_rounds
) b on true
where t.id = any(@ids::bigint[]) and t.state = 'running';

-- name: OpenCalls :many
-- The unanswered calls of turns.
select turn_id, round, ordinal, name, state, started_at from turnkeeper.calls
where turn_id = any(@ids::bigint[]) and state in ('planned', 'started', 'running') order by turn_id, round, ordinal;

-- name: RefusedWrites :many
-- The notices of a turn that may be a turnlog.RefusedWrite.
select e.at::timestamptz as at, e.data::text as data from turnkeeper.turn_events e
where e.turn_id = @turn_id and e.type = 'notice' and e.data::text like '%"waited_ms":%' order by e.seq limit 100;

-- name: Now :one
select clock_timestamp()::timestamptz;

-- name: ListTurns :many
select * from turnkeeper.turns
where (@agent::text = '' or agent = @agent) and (@state::text = '' or state = @state)
  and (@before::bigint = 0 or id < @before)
order by id desc limit @max_rows;

-- name: LatestTurn :one
select id from turnkeeper.turns where @agent::text = '' or agent = @agent order by id desc limit 1;

-- name: TurnByID :one
select sqlc.embed(t), coalesce(j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as taken_by
from turnkeeper.turns t left join turnkeeper.river_job j on j.id = t.job_id
where t.id = @id;

-- name: TurnsOfMessage :many
select * from turnkeeper.turns where message_id = @message_id order by attempt;

-- name: GrantsOfTurn :many
-- Who held a grant is on record when it has ended, if it was written under. Where it
-- was not, the queue knows who fetched the job, for as long as it keeps that.
select sqlc.embed(g), coalesce(j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as taken_by
from turnkeeper.lease_log g
left join turnkeeper.river_job j on j.id = g.job_id and j.state not in ('available', 'pending', 'retryable', 'scheduled')
where g.turn_id = @turn_id order by g.id;

-- name: ListLanes :many
select l.*, coalesce(extract(epoch from l.lease_until - clock_timestamp()) * 1000, 0)::bigint as remaining_ms,
    coalesce(nullif(t.worker_id, ''), j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as holder,
    coalesce(t.state, o.state, '')::text as turn_state, coalesce(o.id, 0)::bigint as open_turn,
    (select count(*) from (select from turnkeeper.messages m where m.lane = l.lane and m.state = 'waiting' limit 10000) w)::bigint as waiting
from turnkeeper.leases l
left join turnkeeper.turns t on t.id = l.turn_id
left join turnkeeper.turns o on o.lane = l.lane and o.state in ('queued', 'running', 'waiting')
left join turnkeeper.river_job j on j.id = t.job_id
where (@agent::text = '' or l.agent = @agent)
order by l.grant_id is null, l.lane limit @max_rows offset @skip;

-- name: ListSchedules :many
select sqlc.embed(s), (a.retired_at is not null)::boolean as agent_retired
from turnkeeper.schedules s left join turnkeeper.agents a on a.name = s.agent order by s.agent, s.name;

-- name: OverrideSchedule :execrows
-- One that was switched off by its error is active again; one that left its
-- file is not.
update turnkeeper.schedules set cron_override = sqlc.narg(cron), next_due = null, updated_at = clock_timestamp(),
    active = active or last_error is not null, last_error = null
where agent = @agent and name = @name;

-- name: PauseSchedule :execrows
update turnkeeper.schedules set paused_at = case when @paused::boolean then clock_timestamp() end,
    next_due = case when @paused then next_due end, updated_at = clock_timestamp()
where agent = @agent and name = @name;

-- name: EventsAfter :many
select turn_id, seq, type, round, block, data, at from turnkeeper.turn_events
where turn_id = @turn_id and seq > @after::bigint order by seq limit @max_rows;

-- name: OutputByID :one
select * from turnkeeper.outputs where id = @id;

-- name: ReadOutput :one
-- Characters of a stored text, or of what stands for binary content. Of a text in
-- chunks only those are read that hold them. (substr counts from 1, and takes a
-- start before that.)
select (case when o.chunked and o.bytes is null then coalesce((
        select string_agg(substr(c.content, (p.first_char - c.first_char + 1)::integer, p.take), '' order by c.first_char)
        from turnkeeper.output_chunks c
        where c.output_id = o.id and c.first_char < p.first_char + p.take
          and c.first_char >= (select coalesce(max(b.first_char), 0) from turnkeeper.output_chunks b
                               where b.output_id = o.id and b.first_char <= p.first_char)), '')
    else substr(coalesce(o.content, o.description), (p.first_char + 1)::integer, p.take) end)::text
from turnkeeper.outputs o, (select @first_char::bigint as first_char, @take::integer as take) p
where o.id = @id and o.turn_id = @turn_id;

-- name: DescribeOutput :one
select media_type, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description, retrieved, created_at
from turnkeeper.outputs where id = @id and turn_id = @turn_id;

-- name: NoteRetrieved :exec
update turnkeeper.outputs set retrieved = retrieved + 1 where id = @id and turn_id = @turn_id;

-- name: OutputsOfTurn :many
select id, round, ordinal, media_type, size_bytes, chars, tokens, sha256, incomplete, retrieved
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

-- name: AgentOfTurn :one
select agent from turnkeeper.turns where id = @id;

-- name: GrantBefore :one
-- The grant of a turn before another.
select b.* from turnkeeper.lease_log b
join turnkeeper.lease_log g on g.turn_id = b.turn_id and g.grant_id = @grant_id
where b.turn_id = @turn_id and b.id < g.id order by b.id desc limit 1;

-- name: HandedOnSince :one
-- Since when a turn is handed from worker to worker, with nothing else between; 1970:
-- it was not handed back last.
select coalesce(min(b.ended_at), to_timestamp(0))::timestamptz as since from turnkeeper.lease_log b
where b.turn_id = @turn_id and b.outcome = 'handed_back' and not exists (select from turnkeeper.lease_log o
    where o.turn_id = b.turn_id and o.id > b.id and o.outcome <> 'handed_back');

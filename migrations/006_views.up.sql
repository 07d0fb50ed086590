-- Views of the rows of the journal and of grants, for SQL users and for loading turns. Package dbsqlc reads these views
-- as the tables in storage/internal/riverschema/journal_views.sql, because sqlc does not know the columns of
-- json_to_record.

-- The answers of models in the journal, one row each. Lateral, so that a join looks up the turn's rows by their key.
-- The condition on the round is always true: without it, Postgres would expect 100 earlier answers in each row.
create view turnkeeper.journal_answers as
select j.turn_id, j.n, j.at, a.*
from turnkeeper.journal j, lateral (
    select j.round, j.answer, j.calls, j.text, j.reasoning, j.raw, j.request
    union all select e.* from json_to_recordset(j.earlier) as e (round integer, answer json, calls json, text text,
        reasoning text, raw text, request json) where e.round between 1 and j.round - 1
) a where j.round is not null;

-- The same, with what stands in the columns answer.
create view turnkeeper.rounds as
select j.turn_id, j.round,
    a.version, -- of the round and its calls: see storage/journal/version.go
    j.request,
    coalesce(a.charged, false) as charged, -- counts against max_rounds
    a.provider, a.model, a.attempts, a.latency_ms, a.finish_reason, j.text, j.reasoning, j.raw,
    coalesce(a.input_tokens, 0) as input_tokens, coalesce(a.output_tokens, 0) as output_tokens,
    coalesce(a.cached_tokens, 0) as cached_tokens, coalesce(a.cache_write_tokens, 0) as cache_write_tokens,
    coalesce(a.reasoning_tokens, 0) as reasoning_tokens, coalesce(a.usage_estimated, false) as usage_estimated,
    j.at as ended_at, j.n
from turnkeeper.journal_answers j, lateral json_to_record(j.answer) as a (version smallint, charged boolean,
    provider text, model text,
    attempts integer, latency_ms bigint, finish_reason text, input_tokens bigint, output_tokens bigint,
    cached_tokens bigint, cache_write_tokens bigint,
    reasoning_tokens bigint, usage_estimated boolean);

-- The results in the journal, one row each. A call that went to the background has several; the newest counts.
create view turnkeeper.call_results as
select j.turn_id, r.round, r.ordinal, j.n, j.at, r.state, r.shown, r.preview, r.output_id, r.duration_ms,
    coalesce(r.input_tokens, 0) as input_tokens, coalesce(r.output_tokens, 0) as output_tokens,
    coalesce(r.cached_tokens, 0) as cached_tokens, coalesce(r.cache_write_tokens, 0) as cache_write_tokens,
    coalesce(r.reasoning_tokens, 0) as reasoning_tokens, coalesce(r.usage_estimated, false) as usage_estimated
from turnkeeper.journal j, lateral json_to_recordset(j.results) as r (round integer, ordinal integer,
    state text, shown text,
    preview text, output_id text, duration_ms bigint, input_tokens bigint, output_tokens bigint, cached_tokens bigint,
    cache_write_tokens bigint, reasoning_tokens bigint, usage_estimated boolean)
where j.results is not null;

-- The calls of turns, each with its newest start and result.
create view turnkeeper.calls as
select j.turn_id, j.round, c.ordinal, (select t.agent from turnkeeper.turns t where t.id = j.turn_id) as agent,
    c.wire_id, coalesce(c.provider_id, c.wire_id) as provider_id, c.name,
    coalesce(s.run_args, c.arguments) as arguments, -- of the newest start
    case when s.run_args is not null then c.arguments end as planned_args, -- null: it ran as planned
    coalesce(c.raw_args, '') as raw_args,
    case when s.run_args is not null then s.args_hash
        else coalesce(c.args_hash, encode(sha256(convert_to(c.name, 'UTF8') || '\x00'::bytea || convert_to(c.arguments,
            'UTF8')), 'hex')) end as args_hash,
    c.effect, coalesce(c.paging, false) as paging,
    -- not exists(), for which Postgres may read all awaited calls into a hash table
    coalesce((select true from turnkeeper.awaited_calls a where (a.turn_id, a.round, a.ordinal) = (j.turn_id, j.round,
        c.ordinal)), false)
        as awaited, -- detached, or a sub-agent: the result arrives in awaited_calls
    case when s.n > coalesce(r.n, 0) then 'started' else coalesce(r.state, case when s.n is not null then 'started' end,
        c.state) end as state,
    -- the newest start
    coalesce(s.attempt, 0) as starts, coalesce(s.nonce, '') as nonce, s.started_at,
    -- the result
    case when s.n > coalesce(r.n, 0) then null when r.n is null then case when c.state <> 'planned' then j.at end
        -- a restart without a grant may be newer, if the clock was set back
        when r.state <> 'running' then greatest(r.at, s.started_at) end as ended_at,
    case when r.state <> 'running' then r.duration_ms end as duration_ms,
    coalesce(r.shown, c.shown, '') as shown,       -- to the model
    coalesce(r.preview, r.shown, c.preview, c.shown, '') as preview, -- for people
    r.output_id,
    (select l.result from turnkeeper.late_results l where (l.turn_id, l.round, l.ordinal) = (j.turn_id, j.round,
        c.ordinal)) as late_result,
    -- usage of model calls that were made for it, included in the turn's figures
    coalesce(r.input_tokens, 0) as input_tokens, coalesce(r.output_tokens, 0) as output_tokens,
    coalesce(r.cached_tokens, 0) as cached_tokens, coalesce(r.cache_write_tokens, 0) as cache_write_tokens,
    coalesce(r.reasoning_tokens, 0) as reasoning_tokens, coalesce(r.usage_estimated, false) as usage_estimated
from turnkeeper.journal_answers j
cross join lateral json_to_recordset(j.calls) as c (ordinal integer, wire_id text, provider_id text, name text,
    arguments text,
    raw_args text, args_hash text, effect text, paging boolean, state text, shown text, preview text)
left join lateral (select * from turnkeeper.call_starts s
    where (s.turn_id, s.round, s.ordinal) = (j.turn_id, j.round, c.ordinal) order by s.attempt desc limit 1) s on true
left join lateral (select * from turnkeeper.call_results r
    where (r.turn_id, r.round, r.ordinal) = (j.turn_id, j.round, c.ordinal) order by r.n desc limit 1) r on true
where j.calls is not null;

-- A call for statements about many turns, which the journal of one turn must not make fail: code and error say why it
-- cannot be read.
create function turnkeeper.call_if_readable(p_turn bigint, p_round integer, p_ordinal integer,
    out name text, out effect text, out output_id text, out code text, out error text) stable language plpgsql as $$
begin
    select c.name, c.effect, coalesce(c.output_id, ''), '', '' into name, effect, output_id, code, error
    from turnkeeper.calls c where (c.turn_id, c.round, c.ordinal) = (p_turn, p_round, p_ordinal);
    if not found then
        select '', 'once', '', 'P0002', 'the journal has no such call' into name, effect, output_id, code, error;
    end if;
exception when others then
    if not turnkeeper.belongs_to_row(sqlstate) then
        raise;
    end if;
    select '', 'once', '', sqlstate, sqlerrm into name, effect, output_id, code, error;
end $$;

-- The tools of a turn whose calls may have been running when its worker was lost: started calls without a result, and
-- planned ones without an effect. Empty if its journal cannot be read.
create function turnkeeper.tools_perhaps_run(p_turn bigint) returns text[] stable language plpgsql as $$
begin
    return coalesce((select array_agg(distinct c.name) from turnkeeper.calls c where c.turn_id = p_turn
        and (c.state in ('started', 'running', 'unknown') or c.state in ('planned', 'cancelled') and c.effect = 'none'
             and c.round = (select max(r.round) from turnkeeper.rounds r where r.turn_id = p_turn))), '{}');
exception when others then
    if not turnkeeper.belongs_to_row(sqlstate) then
        raise;
    end if;
    return '{}';
end $$;

-- All grants with their outcomes. ended_at and outcome are null while a grant is held.
create view turnkeeper.lease_log as
select lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until, ended_at, outcome
    from turnkeeper.ended_grants
union all
select l.lane, l.token, l.grant_id, t.id, t.job_id, t.worker_id, t.granted_at, t.lease_until, null, null
from turnkeeper.turns t, lateral (select * from turnkeeper.leases k where k.lane = t.lane offset 0) l
where t.state = 'running' and l.turn_id = t.id and l.grant_id is not null;

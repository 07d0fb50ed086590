-- name: DownModels :many
-- The models that are down. A turn probes one as long as its grant has a lease. A down_since in the future was written
-- before the clock was set back. failed_lanes are those of the message that failed last, of messages that may be at
-- fault, and of open messages that a service failed.
select h.model, h.down_since::timestamptz as down_since, h.until::timestamptz as until, h.failures,
    h.error_class, h.error,
    coalesce(l.grant_id::text, '')::text as probe, coalesce(l.turn_id, 0)::bigint as probe_turn,
    (l.grant_id is null and (h.until <= statement_timestamp()
        or h.changed_at > statement_timestamp() + interval '10 s'))::boolean as due,
    coalesce((select array_agg(distinct m.lane) from turnkeeper.messages m where m.id in (
        select h.failed_message union all select s.message_id from turnkeeper.suspects s where s.model = h.model
        union all select f.id from turnkeeper.messages f join turnkeeper.agents a on a.name = f.agent
        where f.failing_since is not null and f.closed_at is null and h.model = any(turnkeeper.models_now(a)))),
        '{}')::text[] as failed_lanes
from turnkeeper.model_health h
left join turnkeeper.leases l on l.grant_id = h.probe_grant
where h.down_since is not null
order by h.model;

-- name: Chains :many
-- The agents that use one of the models.
select a.name, now.models::text[] as models, turnkeeper.chain_down(now.models)::boolean as down
from turnkeeper.agents a, lateral (select turnkeeper.models_now(a) as models offset 0) now
where now.models && @models::text[] order by a.name;

-- name: NoteProbe :exec
update turnkeeper.model_health set probe_grant = @grant_id::uuid where model = @model and down_since is not null;

-- name: NoteModels :exec
select turnkeeper.note_models(@answered::text[], @proofs::bigint[], @turn::bigint, @failed::text[], @seen::integer[],
    @classes::text[], @errors::text[],
    @asked::interval[], @requests::integer[]);

-- name: NoteFault :exec
-- Runs after end_many, when a turn failed or waits for models: counts the fault on the message if @counted, notes since
-- when a service has failed it, and stores the models that its lane, or the turn itself, waits for.
with m as (
    update turnkeeper.messages m set faults = least(m.faults + case when @counted::boolean then 1 else 0 end, 1000000),
        failing_since = case when cardinality(@waits_for::text[]) > 0
        then coalesce(turnkeeper.failing_from(m.id), clock_timestamp()) else m.failing_since end
    from turnkeeper.turns t where t.id = @turn::bigint and m.id = t.message_id and (@counted::boolean
        or cardinality(@waits_for::text[]) > 0)
), w as (
    update turnkeeper.turns t set waits_for = @waits_for::text[] where t.id = @turn::bigint and t.state = 'waiting'
        and cardinality(@waits_for::text[]) > 0
)
update turnkeeper.leases l set waits_for = nullif(@waits_for::text[], '{}') from turnkeeper.turns t
where t.id = @turn::bigint and t.state = 'failed' and l.lane = t.lane;

-- name: Suspected :many
-- The models that have failed the message in a way that it may have caused.
select model, failures, requests, open, pairs,
    (extract(epoch from coalesce(last_pair - first_pair, interval '0')) * 1000000)::bigint as span_us
from turnkeeper.suspects where message_id = @message order by model;

-- name: TryModelsOfAgents :exec
-- Makes the scheduler probe the models of these agents at once, those of all their levels: an operator may have fixed
-- them.
with locked as ( -- in the order of note_models
    select h.model from turnkeeper.model_health h
    where h.model in (select unnest(turnkeeper.all_models(a)) from turnkeeper.agents a
        where a.name = any(@agents::text[]))
      and h.down_since is not null and h.until > statement_timestamp()
    order by h.model for no key update
)
update turnkeeper.model_health set until = statement_timestamp() where model in (select l.model from locked l);

-- name: TryModelsOfMessage :execrows
-- Like TryModelsOfAgents, for the models that a message waits for.
update turnkeeper.model_health h set until = statement_timestamp()
from turnkeeper.messages m join turnkeeper.agents a on a.name = m.agent
where m.id = @message and m.state in ('waiting', 'running') and h.model = any(turnkeeper.models_now(a))
    and h.down_since is not null
  and h.until > statement_timestamp();

-- name: TryAllModels :exec
-- Run after a hold-off, which makes earlier probe times, and the times of turns that wait for a model, meaningless.
with w as (
    update turnkeeper.turns set due_at = statement_timestamp() where waits_for is not null
)
update turnkeeper.model_health set until = statement_timestamp() where down_since is not null;

-- name: ListModels :many
-- The models that agents use, and those that were ever down. Whether one has answered is read from the newest 1,000
-- rounds.
with answered as (
    select distinct r.request ->> 'provider' || '/' || (r.request ->> 'model') as model
    from (select request from turnkeeper.journal_answers order by turn_id desc, n desc limit 1000) r
)
select n.model::text as model, h.down_since, h.until, coalesce(h.failures, 0)::integer as failures,
    coalesce(h.error_class, '')::text as error_class,
    coalesce(h.error, '')::text as error, h.changed_at, coalesce(l.turn_id, 0)::bigint as probe_turn,
    coalesce(l.grant_id::text, '')::text as probe,
    coalesce((select array_agg(a.name order by a.name) from turnkeeper.agents a
        where n.model = any(turnkeeper.all_models(a))), '{}')::text[] as agents,
    coalesce((select array_agg(a.name order by a.name) from turnkeeper.agents a
        where n.model = any(turnkeeper.models_now(a))), '{}')::text[] as needed_by,
    (h.model is not null or n.model in (select model from answered where model is not null))::boolean as asked
from (select unnest(turnkeeper.all_models(a)) as model from turnkeeper.agents a union select model
    from turnkeeper.model_health) n
left join turnkeeper.model_health h on h.model = n.model
left join turnkeeper.leases l on l.grant_id = h.probe_grant
order by n.model;

-- name: FailedMessages :many
-- Messages that failed for good and were not retried, oldest first.
select m.id, m.agent, coalesce(t.error_class, '')::text as error_class
from turnkeeper.messages m
join turnkeeper.turns t on t.id = m.turn_id
where m.state = 'failed' and m.id > @after
  and (@agents::text[] = '{}' or m.agent = any(@agents::text[]))
  and (@error_class::text = '' or t.error_class = @error_class)
  and (sqlc.narg(since)::timestamptz is null or m.closed_at >= sqlc.narg(since))
  and not exists (select from turnkeeper.retries r where r.message_id = m.id)
order by m.id limit @max_rows;

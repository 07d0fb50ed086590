-- Which models cannot be asked at present, and what waits for them.
-- Oldest program: 2
-- Locks: agents, messages and leases, for a moment: columns are added without reading a row.

-- The health of a model, shared by all workers. A row comes with a model's first failure and stays.
create table turnkeeper.model_health (
    model       text primary key,                        -- provider/model, as agents name it
    down_since  timestamptz,                             -- null: it is up
    until       timestamptz,                             -- it is not asked before
    failures    integer not null default 0,              -- in a row
    error_class text not null default '',                -- of the newest failure
    error       text not null default '',
    probe_grant uuid,                                    -- the grant whose turn tries it, for as long as a lease has it
    changed_at  timestamptz not null default clock_timestamp(),
    check ((down_since is null) = (until is null) and (down_since is null) = (failures = 0) and failures >= 0)
);

-- The models an agent's turns ask, in order. Empty: not known, and its turns are always granted.
alter table turnkeeper.agents add column models text[] not null default '{}';
-- How long its messages wait for a service that fails. Null: as long as it takes.
alter table turnkeeper.agents add column give_up_after interval;
-- Turns of a message that failed by what counts against it.
alter table turnkeeper.messages add column faults integer not null default 0;
-- The models whose failure pauses the lane until not_before. Null: something else does.
alter table turnkeeper.leases add column waits_for text[];

-- The pause after the n-th failure in a row: as scheduler.Backoff.
create function turnkeeper.failure_pause(n integer) returns interval immutable language sql
return make_interval(secs => least(power(2, least(n, 7)), 120));

-- Whether no model of a chain is up.
create function turnkeeper.chain_down(models text[]) returns boolean stable language sql
return cardinality(models) > 0 and not exists (select from unnest(models) m (name)
    where not exists (select from turnkeeper.model_health h where h.model = m.name and h.down_since is not null));

-- What a turn has learnt of models. Those that answered are up, and what waited for one of them is due. Those
-- that failed are down: p_seen is how many failures in a row were known before, so that requests that fail side by
-- side count once; p_asked is the pause that the provider asked for. It takes rows of leases that nobody has, and comes last in
-- its transaction: after the lane's own lease.
create function turnkeeper.note_models(
    p_answered text[], p_failed text[], p_seen integer[], p_classes text[], p_errors text[], p_asked interval[]
) returns void language plpgsql as $$
declare
    back text[];
    i    integer;
    now  timestamptz;
begin
    if cardinality(p_failed) = 0 and not exists (
        select from turnkeeper.model_health where model = any(p_answered) and down_since is not null) then
        return;
    end if;
    perform from turnkeeper.model_health where model = any(p_answered || p_failed) order by model for update;
    with up as (
        update turnkeeper.model_health set down_since = null, until = null, failures = 0, probe_grant = null, changed_at = clock_timestamp()
        where model = any(p_answered) and down_since is not null returning model
    )
    select array_agg(model) into back from up;
    if back is not null then
        update turnkeeper.leases set not_before = null, waits_for = null where lane in (
            select lane from turnkeeper.leases where not_before is not null and waits_for && back for update skip locked);
        perform pg_notify('turnkeeper_inbox', '');
    end if;
    for i in 1 .. cardinality(p_failed) loop
        now := clock_timestamp();
        insert into turnkeeper.model_health as h (model, down_since, until, failures, error_class, error, changed_at)
        values (p_failed[i], now, now + greatest(turnkeeper.failure_pause(1), p_asked[i]), 1, p_classes[i], p_errors[i], now)
        on conflict (model) do update set
            down_since = coalesce(h.down_since, now),
            failures = case when h.failures > p_seen[i] then h.failures else h.failures + 1 end,
            until = case when h.failures > p_seen[i] then greatest(h.until, now + p_asked[i])
                    else now + greatest(turnkeeper.failure_pause(h.failures + 1), p_asked[i]) end,
            error_class = excluded.error_class, error = excluded.error, probe_grant = null, changed_at = now;
    end loop;
end $$;

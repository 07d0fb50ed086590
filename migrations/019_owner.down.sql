create or replace function turnkeeper.grants_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.leases where grant_id is not null) then
        return false;
    end if;
    return exists (select from turnkeeper.leases l
        left join turnkeeper.turns t on t.id = l.turn_id
        left join turnkeeper.river_job j on j.id = t.job_id
        left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
        where l.grant_id is not null
          and (turnkeeper.lease_over(l.granted_at, l.lease_until) or turnkeeper.heart_silent(h.beat_at, h.takeover_after)
               or j.state = 'available' and turnkeeper.owner_gone(j.queue)));
end $$;
create or replace function turnkeeper.refuse_step(p_turn bigint, p_token bigint, p_grant uuid, p_worker text, p_expected bigint)
returns void language plpgsql as $$
declare
    t record;
begin
    select token, grant_id, state, entries, worker_id into t from turnkeeper.turns where id = p_turn;
    if t.token = p_token and t.grant_id = p_grant and t.state = 'running' and coalesce(t.worker_id, p_worker) = p_worker then
        raise exception using errcode = 'TK002', message = format(
            'the journal has moved on: %s writes where %s were expected', t.entries, p_expected);
    end if;
    raise exception using errcode = 'TK001', message = 'the lease is no longer held';
end $$;
alter table turnkeeper.turns drop column write_id;

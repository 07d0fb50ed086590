-- Whose a write to a turn's journal is, and whose a grant.
-- Oldest program: 2
-- Locks: turns, for a moment: a column is added, without a default, and no row is read.

-- A random id of the last write to the journal: whoever does not get an answer to a commit looks for its own. Null: an
-- older program wrote last, or nobody has.
alter table turnkeeper.turns add column write_id uuid;

-- Why a write to a turn's journal was refused: see the statement Step.
create or replace function turnkeeper.refuse_step(p_turn bigint, p_token bigint, p_grant uuid, p_worker text, p_expected bigint)
returns void language plpgsql as $$
declare
    t record;
begin
    select token, grant_id, state, entries, worker_id into t from turnkeeper.turns where id = p_turn;
    if t.token = p_token and t.grant_id = p_grant and t.state = 'running' and t.worker_id = p_worker then
        raise exception using errcode = 'TK002', message = format(
            'the journal has moved on: %s writes where %s were expected', t.entries, p_expected);
    end if;
    raise exception using errcode = 'TK001', message = 'the lease is no longer held';
end $$;

-- As before, but a grant is its worker's, also when River has given its job to another after that.
create or replace function turnkeeper.grants_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.leases where grant_id is not null) then
        return false;
    end if;
    return exists (select from turnkeeper.leases l
        left join turnkeeper.turns t on t.id = l.turn_id
        left join turnkeeper.river_job j on j.id = t.job_id
        left join turnkeeper.worker_heartbeat h on h.worker_id = coalesce(t.worker_id, j.attempted_by[array_upper(j.attempted_by, 1)])
        where l.grant_id is not null
          and (turnkeeper.lease_over(l.granted_at, l.lease_until) or turnkeeper.heart_silent(h.beat_at, h.takeover_after)
               or t.worker_id is null and j.state = 'available' and turnkeeper.owner_gone(j.queue)));
end $$;

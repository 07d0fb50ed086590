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

create or replace function turnkeeper.owner_gone(queue text) returns boolean stable language plpgsql as $$
begin
    return left(queue, 6) = 'turns_' and not exists (
        select from turnkeeper.worker_heartbeat h
        where queue = 'turns_' || left(encode(sha256(convert_to(h.worker_id, 'UTF8')), 'hex'), 32)
          and not turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after));
end $$;

create or replace function turnkeeper.calls_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.detached_calls where claim is null and ended_at is null)
        and not exists (select from turnkeeper.detached_calls where claim is not null and ended_at is null) then
        return false;
    end if;
    return exists (select from turnkeeper.detached_calls d left join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
             where d.claim is not null and d.ended_at is null
               and (d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after)
                    or turnkeeper.run_overdue(d.claimed_at, d.deadline, d.time_limit, h.beat_at)))
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null and look_at <= statement_timestamp())
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null and look_at > statement_timestamp() + interval '11 minutes')
        or exists (with j as materialized (
                select r.id, r.args, r.attempted_by, r.attempted_at from turnkeeper.river_job r
                where r.state = 'running' and left(r.queue, 9) = 'detached_')
            select from j
            join turnkeeper.detached_calls d on d.turn_id = (j.args ->> 'turn_id')::bigint and d.round = (j.args ->> 'round')::integer
                and d.ordinal = (j.args ->> 'ordinal')::integer and d.job_id = j.id and d.claim is null and d.ended_at is null
            left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
            where (turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after) or turnkeeper.fetch_overlooked(j.attempted_at)));
end $$;

drop function turnkeeper.lane_waits(bigint, text, text, text, boolean);
alter table turnkeeper.agents drop column lanes_moved_at, drop column lanes_changed_at;
drop function turnkeeper.loss_counts(text, timestamptz, timestamptz, timestamptz, timestamptz, timestamptz);
drop function turnkeeper.worker_present(text);
drop function turnkeeper.silent_from(timestamptz);
alter table turnkeeper.settings drop column server_started, drop column silence_from;

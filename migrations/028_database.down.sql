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

create or replace function turnkeeper.purge(
    p_agent text, p_conversation text, p_before timestamptz, p_after bigint, p_limit integer, p_dry boolean,
    p_undelivered boolean default false,
    out messages bigint, out turns bigint, out outputs bigint, out last bigint
) language plpgsql as $$
declare
    m_ids bigint[];
    t_ids bigint[];
    o_ids text[];
begin
    if p_dry then
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_conversation = '' or m.conversation = p_conversation) and (p_before is null or m.closed_at < p_before)
              and (p_undelivered or not exists (select from turnkeeper.replies r join turnkeeper.webhook_deliveries d on d.reply_id = r.id
                    where r.message_id = m.id and d.state = 'pending'))
            order by m.id limit p_limit) b;
    else
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_conversation = '' or m.conversation = p_conversation) and (p_before is null or m.closed_at < p_before)
              and (p_undelivered or not exists (select from turnkeeper.replies r join turnkeeper.webhook_deliveries d on d.reply_id = r.id
                    where r.message_id = m.id and d.state = 'pending'))
            order by m.id limit p_limit for update skip locked) b;
    end if;
    select coalesce(array_agg(t.id), '{}') into t_ids from turnkeeper.turns t where t.message_id = any(m_ids);
    select coalesce(array_agg(o.id), '{}') into o_ids from turnkeeper.outputs o where o.turn_id = any(t_ids);
    messages := coalesce(cardinality(m_ids), 0);
    turns := cardinality(t_ids);
    outputs := cardinality(o_ids);
    last := m_ids[cardinality(m_ids)];
    if p_dry or messages = 0 then
        return;
    end if;
    delete from turnkeeper.detached_calls where turn_id = any(t_ids);
    delete from turnkeeper.awaited_calls where turn_id = any(t_ids);
    delete from turnkeeper.call_starts where turn_id = any(t_ids);
    delete from turnkeeper.calls where turn_id = any(t_ids);
    delete from turnkeeper.rounds where turn_id = any(t_ids);
    delete from turnkeeper.output_chunks where output_id = any(o_ids);
    delete from turnkeeper.outputs where turn_id = any(t_ids);
    delete from turnkeeper.turn_events where turn_id = any(t_ids);
    delete from turnkeeper.webhook_deliveries where reply_id in (select r.id from turnkeeper.replies r where r.message_id = any(m_ids));
    delete from turnkeeper.replies where message_id = any(m_ids);
    delete from turnkeeper.extractions where turn_id = any(t_ids);
    delete from turnkeeper.spend where scope in (select 'turn:' || id from unnest(t_ids) id) and period = '';
    delete from turnkeeper.spend_reservations where turn_id = any(t_ids);
    delete from turnkeeper.lease_log where turn_id = any(t_ids);
    delete from turnkeeper.cancellations where turn_id = any(t_ids);
    delete from turnkeeper.river_job where kind in ('AgentTurn', 'DetachedCall') and finalized_at is not null
        and (args ->> 'turn_id')::bigint = any(t_ids);
    delete from turnkeeper.turns where id = any(t_ids);
    delete from turnkeeper.retries where message_id = any(m_ids) or retried_as = any(m_ids);
    -- A summary goes with the turn that made it; but not while a request that was made
    -- with it is kept, or one may be under way.
    delete from turnkeeper.summaries s
    where (s.agent, s.conversation) in (select m.agent, m.conversation from turnkeeper.messages m where m.id = any(m_ids))
      and not exists (select from turnkeeper.turns t where t.id = s.turn_id)
      and not exists (select from turnkeeper.turns t where t.agent = s.agent and t.conversation = s.conversation
            and t.state in ('queued', 'running', 'waiting'))
      and not exists (select from turnkeeper.turns t join turnkeeper.rounds r on r.turn_id = t.id
            where t.agent = s.agent and t.conversation = s.conversation and t.id > s.up_to
              and (r.request ->> 'summary')::bigint = s.up_to);
    delete from turnkeeper.messages where id = any(m_ids);
end $$;

drop function turnkeeper.forget_lanes(text, text);
drop trigger lease_stays on turnkeeper.leases;
drop function turnkeeper.lease_may_go();
create function turnkeeper.keep_lease() returns trigger language plpgsql as $$
begin
    raise exception 'the lease of lane % is never deleted', old.lane;
end $$;
create trigger lease_stays before delete on turnkeeper.leases
    for each row execute function turnkeeper.keep_lease();
alter table turnkeeper.settings drop column lane_token;
drop function turnkeeper.lane_waits(bigint, text, text, text, boolean);
alter table turnkeeper.agents drop column lanes_moved_at, drop column lanes_changed_at;
drop function turnkeeper.loss_counts(text, timestamptz, timestamptz, timestamptz, timestamptz, timestamptz);
drop function turnkeeper.worker_present(text);
drop function turnkeeper.silent_from(timestamptz);
alter table turnkeeper.settings drop column server_started, drop column silence_from;

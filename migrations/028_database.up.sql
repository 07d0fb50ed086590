-- Which lost workers count, and what a look may rely on.
-- Oldest program: 2
-- Locks: settings, agents and leases, for a moment: columns are added and a trigger is exchanged, and no row is read.

-- The silence of workers counts from here: before, the database was away, and nobody could write a heartbeat. Null: always.
alter table turnkeeper.settings add column silence_from timestamptz;
-- When the server that the newest tick saw was started. Null: no tick has noted it.
alter table turnkeeper.settings add column server_started timestamptz;

-- From when on a worker has been silent: its newest heartbeat, or the return of the database after that.
create function turnkeeper.silent_from(beat_at timestamptz) returns timestamptz
stable language sql return greatest(beat_at, (select silence_from from turnkeeper.settings));

-- Whether a session of the worker's process is connected. A process holds this lock on the connection of its doorbell,
-- so it is free once the process is gone; one that is only short of time keeps it.
create function turnkeeper.worker_present(worker text) returns boolean stable language sql return exists (
    select from pg_locks
    where locktype = 'advisory' and classid = 1414218583::oid and objid = (hashtext(worker)::bigint & 4294967295)::oid and objsubid = 2
      and database = (select oid from pg_database where datname = current_database()) and granted);

-- Whether a lost grant counts against its message. It does if the whole lease passed. Otherwise its worker was silent: that
-- counts if the worker has not been heard of since, and its process is gone or has been silent for a whole lease.
create function turnkeeper.loss_counts(
    p_worker text, p_granted timestamptz, p_until timestamptz, p_ended timestamptz, p_stopped timestamptz, p_beat timestamptz
) returns boolean stable language sql return p_until <= p_ended
    or p_stopped is not null
    or (p_beat is null or p_beat <= p_ended or p_beat > statement_timestamp() + interval '10 s')
       and (not turnkeeper.worker_present(p_worker) or turnkeeper.silent_from(p_beat) + (p_until - p_granted) <= statement_timestamp());

-- As before, but silence counts from the database's return.
create or replace function turnkeeper.owner_gone(queue text) returns boolean stable language plpgsql as $$
begin
    return left(queue, 6) = 'turns_' and not exists (
        select from turnkeeper.worker_heartbeat h
        where queue = 'turns_' || left(encode(sha256(convert_to(h.worker_id, 'UTF8')), 'hex'), 32)
          and not turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after));
end $$;

-- As before, but silence counts from the database's return.
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
          and (turnkeeper.lease_over(l.granted_at, l.lease_until)
               or turnkeeper.heart_silent(turnkeeper.silent_from(h.beat_at), h.takeover_after)
               or t.worker_id is null and j.state = 'available' and turnkeeper.owner_gone(j.queue)));
end $$;

-- As before, but silence counts from the database's return.
create or replace function turnkeeper.calls_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.detached_calls where claim is null and ended_at is null)
        and not exists (select from turnkeeper.detached_calls where claim is not null and ended_at is null) then
        return false;
    end if;
    return exists (select from turnkeeper.detached_calls d left join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
             where d.claim is not null and d.ended_at is null
               and (d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after)
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
            where (turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after)
                   or turnkeeper.fetch_overlooked(j.attempted_at)));
end $$;

-- When an agent's lanes were changed, until nothing is left in its old ones, and when a tick last moved its waiting
-- messages: a message may still be accepted under the old setting by a transaction that is under way.
alter table turnkeeper.agents add column lanes_changed_at timestamptz;
alter table turnkeeper.agents add column lanes_moved_at timestamptz;

-- Whether a waiting message must not run yet since its agent's lanes were changed: it is still in its old lane, or an
-- open turn of its conversation, or of an agent that is its own lane, is. Sub-agents have lanes of their own.
create function turnkeeper.lane_waits(p_message bigint, p_agent text, p_conversation text, p_lane text, p_by_conversation boolean)
returns boolean stable language sql return not exists (select from turnkeeper.spawned_calls c where c.message_id = p_message)
    and (p_lane <> case when p_by_conversation then p_agent || '/' || p_conversation else p_agent end
         or exists (select from turnkeeper.turns t
                    where t.agent = p_agent and t.state in ('queued', 'running', 'waiting') and t.lane <> p_lane
                      and (t.conversation = p_conversation or not p_by_conversation
                           and not exists (select from turnkeeper.spawned_calls c where c.message_id = t.message_id))));

-- No lane that is forgotten had a token above this: a new lane's tokens begin after it.
alter table turnkeeper.settings add column lane_token bigint not null default 0;

drop trigger lease_stays on turnkeeper.leases;
drop function turnkeeper.keep_lease();
create function turnkeeper.lease_may_go() returns trigger language plpgsql as $$
begin
    if old.grant_id is not null or old.token > (select s.lane_token from turnkeeper.settings s) then
        raise exception 'the lease of lane % is not to be deleted: it is held, or its token would start again', old.lane;
    end if;
    return old;
end $$;
create trigger lease_stays before delete on turnkeeper.leases
    for each row execute function turnkeeper.lease_may_go();

-- Forget lanes in which nothing runs, waits, or is on record: their names are those of conversations.
create function turnkeeper.forget_lanes(p_agent text, p_conversation text) returns void language plpgsql as $$
declare
    names text[];
    most  bigint;
begin
    select array_agg(b.lane), max(b.token) into names, most from (
        select l.lane, l.token from turnkeeper.leases l
        where l.grant_id is null and (p_agent = '' or l.agent = p_agent)
          and (p_conversation = '' or l.lane = l.agent || '/' || p_conversation)
          and not exists (select from turnkeeper.lease_log g where g.lane = l.lane)
          and not exists (select from turnkeeper.messages m where m.state = 'waiting' and m.lane = l.lane)
          and not exists (select from turnkeeper.turns t where t.lane = l.lane and t.state in ('queued', 'running', 'waiting'))
        for update of l skip locked) b;
    if names is not null then
        update turnkeeper.settings set lane_token = most where lane_token < most;
        delete from turnkeeper.leases where lane = any(names);
    end if;
end $$;

-- As before; and at its end it forgets lanes of which nothing is left.
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
    if not p_dry and messages = 0 then
        perform turnkeeper.forget_lanes(p_agent, p_conversation);
    end if;
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

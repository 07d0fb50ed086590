-- Webhooks: replies that are pushed to endpoints.
-- Oldest program: 2
-- Locks: replies for a moment, to add a trigger; it waits for turns that are ending. One function is replaced.

-- Endpoints that workers deliver to. The address and the secret stand in the workers' settings only.
create table turnkeeper.webhooks (
    name          text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    origin        text not null, -- scheme, host and port of the address
    agents        text[] check (cardinality(agents) > 0), -- null: all
    added_at      timestamptz not null default clock_timestamp(),
    seen_at       timestamptz not null default clock_timestamp(), -- a worker has it in its settings
    not_before    timestamptz, -- the endpoint asked for a pause
    paused_at     timestamptz,
    paused_reason text,
    succeeded_at  timestamptz, -- the newest delivery
    failed_at     timestamptz,
    last_error    text,
    check ((paused_at is null) = (paused_reason is null))
);

-- One row a reply and webhook, made in the transaction of the reply. While it is pending,
-- due_at is when it is tried next; while somebody has claimed it, when the claim is void.
create table turnkeeper.webhook_deliveries (
    reply_id     bigint not null references turnkeeper.replies,
    webhook      text not null,
    state        text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
    attempts     integer not null default 0 check (attempts >= 0),
    due_at       timestamptz default clock_timestamp(),
    claim        text,
    worker_id    text,
    first_at     timestamptz, -- the first attempt since it was put in
    last_at      timestamptz, -- the end of the newest attempt
    status       integer,     -- of the newest answer; null: there was none
    error        text,        -- of the newest attempt; null: it succeeded
    duration_ms  bigint check (duration_ms >= 0),
    redelivered  integer not null default 0, -- how often an operator put it in again
    created_at   timestamptz not null default clock_timestamp(),
    primary key (reply_id, webhook),
    check ((state = 'pending') = (due_at is not null)),
    check (claim is null or state = 'pending')
) with (fillfactor = 70);
create index webhook_deliveries_due on turnkeeper.webhook_deliveries (webhook, due_at) where state = 'pending';
create index webhook_deliveries_claimed on turnkeeper.webhook_deliveries (webhook) where claim is not null;
create index webhook_deliveries_dead on turnkeeper.webhook_deliveries (webhook, reply_id) where state = 'dead';
create index webhook_deliveries_newest on turnkeeper.webhook_deliveries (webhook, reply_id);

-- A reply and what is to be delivered of it are one fact. Nothing is locked here: who
-- ends a turn must not wait for who delivers.
create function turnkeeper.push_reply() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.webhook_deliveries (reply_id, webhook)
    select new.id, w.name from turnkeeper.webhooks w where w.agents is null or new.agent = any(w.agents);
    return null;
end $$;
create trigger push_reply after insert on turnkeeper.replies for each row execute function turnkeeper.push_reply();

-- Claim what is due, oldest first, for p_hold: no more than p_slots are claimed at a time, by
-- all workers together. Each claim is an attempt; those of workers that are gone are over. The webhook's row is locked so that
-- nobody else counts at the same time. The replies are read here, for the caller's statement
-- may not see yet what this one does.
create function turnkeeper.claim_deliveries(p_webhook text, p_worker text, p_slots integer, p_limit integer, p_hold interval)
returns table (claim text, attempts integer, tried_ms bigint, reply_id bigint, message_id bigint, turn_id bigint, agent text,
    conversation text, outcome text, body text, replied_at timestamptz) language plpgsql as $$
declare
    free integer;
begin
    perform from turnkeeper.webhooks w
    where w.name = p_webhook and w.paused_at is null and (w.not_before is null or w.not_before <= clock_timestamp())
    for no key update;
    if not found then
        return;
    end if;
    update turnkeeper.webhook_deliveries d set claim = null, due_at = clock_timestamp()
    from turnkeeper.worker_heartbeat h
    where d.webhook = p_webhook and d.claim is not null and d.due_at > clock_timestamp()
      and h.worker_id = d.worker_id and turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after);
    select p_slots - count(*) into free from turnkeeper.webhook_deliveries d
    where d.webhook = p_webhook and d.claim is not null and d.due_at > clock_timestamp();
    return query
    with picked as (
        select d.reply_id from turnkeeper.webhook_deliveries d
        where d.webhook = p_webhook and d.state = 'pending' and d.due_at <= clock_timestamp()
        order by d.due_at, d.reply_id limit greatest(least(free, p_limit), 0) for update skip locked
    )
    update turnkeeper.webhook_deliveries d set attempts = d.attempts + 1, claim = gen_random_uuid()::text, worker_id = p_worker,
        due_at = clock_timestamp() + p_hold, first_at = coalesce(d.first_at, clock_timestamp())
    from picked join turnkeeper.replies r on r.id = picked.reply_id
    where d.reply_id = picked.reply_id and d.webhook = p_webhook
    returning d.claim, d.attempts, (extract(epoch from clock_timestamp() - d.first_at) * 1000)::bigint, r.id, r.message_id, r.turn_id,
        r.agent, r.conversation, r.outcome, r.body, r.created_at;
end $$;

-- As before, with what belongs to webhooks. Who calls it with six arguments goes on.
drop function turnkeeper.purge(text, text, timestamptz, bigint, integer, boolean);

-- Remove closed messages, at most p_limit after an id, with all that belongs to them in
-- every table, River's too; p_dry: only count. One whose reply is still to be pushed to a
-- webhook is left, unless p_undelivered. An empty text, or null, means any. What is
-- left of an agent: its definition, leases (a token never starts again), the spend of days,
-- notes and schedules; and parts of requests, which hold nothing of a conversation and are
-- shared with requests that are being written. last is the id to go on after; null: that was all.
create function turnkeeper.purge(
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

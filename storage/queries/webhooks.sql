-- name: RegisterWebhook :exec
-- An existing webhook gets the new settings and keeps its state.
insert into turnkeeper.webhooks as w (name, origin, agents, sub_agents, asks)
    values (@name, @origin, sqlc.narg(agents)::text[], @sub_agents, @asks)
on conflict (name) do update set origin = excluded.origin, agents = excluded.agents, sub_agents = excluded.sub_agents,
    asks = excluded.asks, seen_at = clock_timestamp();

-- name: SeeWebhooks :many
-- Returns those of the names that exist.
update turnkeeper.webhooks set seen_at = clock_timestamp() where name = any(@names::text[]) returning name;

-- name: ClaimDeliveries :many
select id::bigint as id, claim::text as claim, attempts::integer as attempts, tried_ms::bigint as tried_ms,
    coalesce(reply_id, 0)::bigint as reply_id, coalesce(ask_id, 0)::bigint as ask_id
from turnkeeper.claim_deliveries(@webhook::text, @worker::text, @slots::integer, @max_rows::integer, @hold::interval);

-- name: NextDelivery :one
-- Returns the time until the webhook's next delivery can be claimed: it becomes due, its claim expires, or its retry
-- after a failure is due. No row: none is pending. Zero if one is due, even if all slots are claimed.
select greatest(extract(epoch from greatest(d.due_at, w.not_before) - clock_timestamp()), 0)::float8 as seconds
from turnkeeper.webhooks w, lateral (
    select min(due_at)::timestamptz as due_at from (
        (select p.due_at from turnkeeper.webhook_deliveries p where p.webhook = w.name and p.state = 'pending'
          and not turnkeeper.is_aside('delivery', p.id::text)
        order by p.due_at limit 1)
        union all
        select greatest(p.due_at, s.next_try) from turnkeeper.set_aside s
            join turnkeeper.webhook_deliveries p on p.id = case when s.kind = 'delivery' then s.id::bigint end
        where s.kind = 'delivery' and p.webhook = w.name and p.state = 'pending'
    ) o
) d
where w.name = @webhook and w.paused_at is null and d.due_at is not null;

-- name: EndDelivery :one
-- Records the result of an attempt if the claim is still valid. A pause that the endpoint asked for applies to all
-- its deliveries, even if a concurrent attempt succeeds. An interrupted attempt does not count, and says nothing
-- about the endpoint. The webhook is locked first: see claim_deliveries.
with locked as materialized (
    select w.name from turnkeeper.webhooks w
    where w.name = @webhook and not @uncounted::boolean and (@state::text <> 'delivered' or w.not_before is not null
        or coalesce(w.succeeded_at, '-infinity') < clock_timestamp() - interval '1 s')
    for no key update
), ended as (
    update turnkeeper.webhook_deliveries set state = @state, claim = null, attempts = attempts - case
        when @uncounted::boolean then 1 else 0 end,
        due_at = case when @state = 'pending' then clock_timestamp() + @wait::interval end,
        last_at = case when @uncounted then last_at else clock_timestamp() end,
        duration_ms = case when @uncounted then duration_ms else @duration_ms::bigint end,
        status = case when @uncounted then status else sqlc.narg(status)::integer end,
        error = case when @uncounted then error else sqlc.narg(error)::text end
    where id = @id and claim = @claim::text and (select count(*) from locked) >= 0
    returning state
), endpoint as (
    update turnkeeper.webhooks w set
        succeeded_at = case when ended.state = 'delivered' then clock_timestamp() else w.succeeded_at end,
        failed_at = case when ended.state = 'delivered' then w.failed_at else clock_timestamp() end,
        last_error = coalesce(sqlc.narg(error)::text, w.last_error),
        not_before = case when @rest::interval > interval '0' then greatest(w.not_before,
            clock_timestamp() + @rest::interval)
            when ended.state = 'delivered' and w.not_before <= clock_timestamp() then null else w.not_before end,
        paused_at = case when @gone::boolean then coalesce(w.paused_at, clock_timestamp()) else w.paused_at end,
        paused_reason = case when @gone::boolean then coalesce(w.paused_reason, 'the endpoint answered 410 Gone')
            else w.paused_reason end
    from ended, locked
    where w.name = locked.name
)
select count(*) from ended;

-- name: ListWebhooks :many
-- Counts are limited to 100,000.
select sqlc.embed(w), clock_timestamp()::timestamptz as now, p.pending::bigint as pending,
    p.oldest_seconds::float8 as oldest_seconds,
    (select count(*) from (select from turnkeeper.webhook_deliveries d where d.webhook = w.name and d.state = 'dead'
        limit 100000) p)::bigint as dead,
    (select count(*) from turnkeeper.webhook_deliveries d where d.webhook = w.name and d.claim is not null
        and d.due_at > clock_timestamp())::bigint as sending
from turnkeeper.webhooks w, lateral (
    select count(*) as pending, coalesce(extract(epoch from clock_timestamp() - min(o.created_at)), 0) as oldest_seconds
    from (select d.created_at from turnkeeper.webhook_deliveries d where d.webhook = w.name and d.state = 'pending'
        limit 100000) o
) p
where (@name::text = '' or w.name = @name)
order by w.name;

-- name: ListDeliveries :many
select d.*, coalesce(d.claim is not null and d.due_at > clock_timestamp(), false)::boolean as sending,
    coalesce(r.message_id, t.message_id)::bigint as message_id, coalesce(r.turn_id, t.id)::bigint as turn_id,
    coalesce(r.agent, t.agent)::text as agent, coalesce(r.user_name, t.user_name)::text as user_name,
    coalesce(r.conversation, t.conversation)::text as conversation,
    coalesce(r.outcome, '')::text as outcome, coalesce(r.created_at, a.opened_at)::timestamptz as written_at
from turnkeeper.webhook_deliveries d left join turnkeeper.replies r on r.id = d.reply_id
    left join turnkeeper.asks a on a.id = d.ask_id left join turnkeeper.turns t on t.id = a.turn_id
where d.webhook = @webhook and (@state::text = '' or d.state = @state) and (@agent::text = '' or coalesce(r.agent,
    t.agent) = @agent)
  and (@user_name::text = '' or coalesce(r.user_name, t.user_name) = @user_name)
  and (@before::bigint = 0 or d.id < @before)
order by d.id desc limit @max_rows;

-- name: ReplyExists :one
select id from turnkeeper.replies where id = @id;

-- name: Redeliver :execrows
-- Leaves a claimed delivery to its worker, unless the claim has expired: then that worker
-- can no longer record a result.
insert into turnkeeper.webhook_deliveries as d (reply_id, webhook)
select r.id, w.name from turnkeeper.replies r, turnkeeper.webhooks w where r.id = @reply_id and w.name = @webhook
on conflict (reply_id, webhook) do update set state = 'pending', due_at = clock_timestamp(), attempts = 0,
    first_at = null,
    claim = null, redelivered = d.redelivered + 1
where d.claim is null or d.due_at < clock_timestamp();

-- name: RedeliverDead :execrows
update turnkeeper.webhook_deliveries set state = 'pending', due_at = clock_timestamp(), attempts = 0, first_at = null,
    redelivered = redelivered + 1
where webhook = @webhook and state = 'dead';

-- name: PauseWebhook :execrows
update turnkeeper.webhooks set paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = @reason::text
    where name = @name;

-- name: ResumeWebhook :execrows
-- Restarts the attempts of pending deliveries: the pause must not count toward their time limit.
with resumed as (
    update turnkeeper.webhooks set paused_at = null, paused_reason = null, not_before = null where name = @name
        returning name
), afresh as (
    update turnkeeper.webhook_deliveries d set attempts = 0, first_at = null, due_at = clock_timestamp() from resumed
    where d.webhook = resumed.name and d.state = 'pending' and d.attempts > 0 and d.claim is null
)
select from resumed;

-- name: RingTurns :exec
-- Wakes those who deliver replies and asks.
select pg_notify('turnkeeper_turns', '');

-- name: RemoveWebhook :execrows
-- Keeps a webhook that a worker has in its settings, because the worker would register it again.
delete from turnkeeper.webhooks where name = @name and seen_at < clock_timestamp() - @unseen::interval;

-- name: RemoveDeliveries :execrows
-- Deletes deliveries whose webhook does not exist.
delete from turnkeeper.webhook_deliveries where id in (
    select d.id from turnkeeper.webhook_deliveries d
    where not exists (select from turnkeeper.webhooks w where w.name = d.webhook) limit @max_rows);

-- name: MendDeliveries :execrows
-- Makes deliveries due whose pause is impossibly long because the clock was set back.
update turnkeeper.webhook_deliveries set due_at = clock_timestamp()
    where state = 'pending' and due_at > clock_timestamp() + @longest::interval;

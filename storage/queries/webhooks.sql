-- name: RegisterWebhook :exec
-- An endpoint that was elsewhere before begins afresh.
insert into turnkeeper.webhooks as w (name, origin, agents, sub_agents) values (@name, @origin, sqlc.narg(agents)::text[], @sub_agents)
on conflict (name) do update set origin = excluded.origin, agents = excluded.agents, sub_agents = excluded.sub_agents, seen_at = clock_timestamp();

-- name: SeeWebhooks :many
-- Those of the names that are still there.
update turnkeeper.webhooks set seen_at = clock_timestamp() where name = any(@names::text[]) returning name;

-- name: ClaimDeliveries :many
select claim::text as claim, attempts::integer as attempts, tried_ms::bigint as tried_ms, reply_id::bigint as reply_id,
    message_id::bigint as message_id, turn_id::bigint as turn_id, agent::text as agent, conversation::text as conversation,
    outcome::text as outcome, body::text as body, replied_at::timestamptz as replied_at
from turnkeeper.claim_deliveries(@webhook::text, @worker::text, @slots::integer, @max_rows::integer, @hold::interval);

-- name: NextDelivery :one
-- How long nothing is to be done for a webhook. Nothing: for as long as nothing comes. Zero where
-- only claims of others are in the way.
select greatest(extract(epoch from greatest(d.due_at, w.not_before) - clock_timestamp()), 0)::float8 as seconds
from turnkeeper.webhooks w, lateral (
    select min(p.due_at) as due_at from turnkeeper.webhook_deliveries p where p.webhook = w.name and p.state = 'pending'
) d
where w.name = @webhook and w.paused_at is null and d.due_at is not null;

-- name: EndDelivery :one
-- What became of an attempt, while the claim stands. A rest holds up the whole endpoint, also where an attempt
-- that was under way before comes to a good end. One
-- that was broken off does not count, and tells nothing of the endpoint.
with ended as (
    update turnkeeper.webhook_deliveries set state = @state, claim = null, attempts = attempts - case when @uncounted::boolean then 1 else 0 end,
        due_at = case when @state = 'pending' then clock_timestamp() + @wait::interval end,
        last_at = case when @uncounted then last_at else clock_timestamp() end,
        duration_ms = case when @uncounted then duration_ms else @duration_ms::bigint end,
        status = case when @uncounted then status else sqlc.narg(status)::integer end,
        error = case when @uncounted then error else sqlc.narg(error)::text end
    where reply_id = @reply_id and webhook = @webhook and claim = @claim::text
    returning state
), told as (
    update turnkeeper.webhooks w set
        succeeded_at = case when ended.state = 'delivered' then clock_timestamp() else w.succeeded_at end,
        failed_at = case when ended.state = 'delivered' then w.failed_at else clock_timestamp() end,
        last_error = coalesce(sqlc.narg(error)::text, w.last_error),
        not_before = case when @rest::interval > interval '0' then greatest(w.not_before, clock_timestamp() + @rest::interval)
            when ended.state = 'delivered' and w.not_before <= clock_timestamp() then null else w.not_before end,
        paused_at = case when @gone::boolean then coalesce(w.paused_at, clock_timestamp()) else w.paused_at end,
        paused_reason = case when @gone::boolean then coalesce(w.paused_reason, 'the endpoint answered 410 Gone') else w.paused_reason end
    from ended
    where w.name = @webhook and not @uncounted and (ended.state <> 'delivered' or w.not_before is not null
        or coalesce(w.succeeded_at, '-infinity') < clock_timestamp() - interval '1 s')
)
select count(*) from ended;

-- name: ListWebhooks :many
-- Counts go to 100,000.
select sqlc.embed(w), clock_timestamp()::timestamptz as now, p.pending::bigint as pending, p.oldest_seconds::float8 as oldest_seconds,
    (select count(*) from (select from turnkeeper.webhook_deliveries d where d.webhook = w.name and d.state = 'dead' limit 100000) p)::bigint as dead,
    (select count(*) from turnkeeper.webhook_deliveries d where d.webhook = w.name and d.claim is not null and d.due_at > clock_timestamp())::bigint as sending
from turnkeeper.webhooks w, lateral (
    select count(*) as pending, coalesce(extract(epoch from clock_timestamp() - min(o.created_at)), 0) as oldest_seconds
    from (select d.created_at from turnkeeper.webhook_deliveries d where d.webhook = w.name and d.state = 'pending' limit 100000) o
) p
where (@name::text = '' or w.name = @name)
order by w.name;

-- name: ListDeliveries :many
select d.*, coalesce(d.claim is not null and d.due_at > clock_timestamp(), false)::boolean as sending, r.message_id, r.turn_id, r.agent, r.conversation, r.outcome, r.created_at as replied_at
from turnkeeper.webhook_deliveries d join turnkeeper.replies r on r.id = d.reply_id
where d.webhook = @webhook and (@state::text = '' or d.state = @state) and (@agent::text = '' or r.agent = @agent)
  and (@before::bigint = 0 or d.reply_id < @before)
order by d.reply_id desc limit @max_rows;

-- name: ReplyExists :one
select id from turnkeeper.replies where id = @id;

-- name: Redeliver :execrows
-- One that is under way is left to who has it. Whoever had one for longer than it may
-- no longer says what becomes of it.
insert into turnkeeper.webhook_deliveries as d (reply_id, webhook)
select r.id, w.name from turnkeeper.replies r, turnkeeper.webhooks w where r.id = @reply_id and w.name = @webhook
on conflict (reply_id, webhook) do update set state = 'pending', due_at = clock_timestamp(), attempts = 0, first_at = null,
    claim = null, redelivered = d.redelivered + 1
where d.claim is null or d.due_at < clock_timestamp();

-- name: RedeliverDead :execrows
update turnkeeper.webhook_deliveries set state = 'pending', due_at = clock_timestamp(), attempts = 0, first_at = null, redelivered = redelivered + 1
where webhook = @webhook and state = 'dead';

-- name: PauseWebhook :execrows
update turnkeeper.webhooks set paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = @reason::text where name = @name;

-- name: ResumeWebhook :execrows
-- What was tried before begins afresh: the pause must not have used up its time.
with resumed as (
    update turnkeeper.webhooks set paused_at = null, paused_reason = null, not_before = null where name = @name returning name
), afresh as (
    update turnkeeper.webhook_deliveries d set attempts = 0, first_at = null, due_at = clock_timestamp() from resumed
    where d.webhook = resumed.name and d.state = 'pending' and d.attempts > 0 and d.claim is null
)
select from resumed;

-- name: RemoveWebhook :execrows
-- Not while a worker has it in its settings: it would be back at once.
delete from turnkeeper.webhooks where name = @name and seen_at < clock_timestamp() - @unseen::interval;

-- name: RemoveDeliveries :execrows
-- Those whose webhook is gone.
delete from turnkeeper.webhook_deliveries where (reply_id, webhook) in (
    select d.reply_id, d.webhook from turnkeeper.webhook_deliveries d
    where not exists (select from turnkeeper.webhooks w where w.name = d.webhook) limit @max_rows);

-- name: MendDeliveries :execrows
-- After the clock was set back: no wait is longer than this.
update turnkeeper.webhook_deliveries set due_at = clock_timestamp() where state = 'pending' and due_at > clock_timestamp() + @longest::interval;

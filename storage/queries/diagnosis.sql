-- name: DaySpend :many
-- The spend of agents with a budget on the current day, and the number of their turns that it defers.
select a.name, d.content as definition, coalesce(s.tokens, 0)::bigint as tokens, coalesce(s.calls, 0)::bigint as calls,
    coalesce(p.turns, 0)::bigint as put_off,
    coalesce(p.until,
        (date_trunc('day',
            statement_timestamp() at time zone 'UTC') + interval '1 day') at time zone 'UTC')::timestamptz as until
from turnkeeper.agents a
join turnkeeper.definitions d on d.hash = a.definition_hash
left join turnkeeper.spend s on s.scope = 'agent:' || a.name
    and s.period = to_char(statement_timestamp() at time zone 'UTC', 'YYYY-MM-DD')
left join (select t.agent, count(*) as turns, min(t.due_at) as until from turnkeeper.turns t
    where t.state = 'queued' and t.error_class = 'budget' and t.due_at > statement_timestamp()
        group by t.agent) p on p.agent = a.name
where s.scope is not null or p.turns > 0
order by a.name;

-- name: LongWaits :many
-- For each agent, the message that has waited longest, among the 10,000 oldest that have been due for too long, and as
-- many with a queue_rank. A queued turn counts as a waiting message; a message that waits for a person does not. A turn
-- that all live workers have handed back counts at once.
with waiting as (
    (select m.agent, m.id, m.due_at from turnkeeper.waiting m
     where not m.held and m.queue_rank is null and m.rank < statement_timestamp() - @due_for::interval
     order by m.rank, m.id limit 10000)
    union all
    (select m.agent, m.id, m.due_at from turnkeeper.waiting m
     where not m.held and m.queue_rank is not null and m.due_at < statement_timestamp() - @due_for::interval
     order by m.due_at, m.id limit 10000)
    union all
    select t.agent, t.message_id, coalesce(t.due_at, t.granted_at, t.created_at) from turnkeeper.turns t
    where t.state = 'queued' and coalesce(t.due_at, t.granted_at,
        t.created_at) < statement_timestamp() - @due_for::interval
    union all
    select t.agent, t.message_id, t.granted_at from turnkeeper.turns t
    where t.state = 'queued' and t.error_class = 'needs_newer_worker' and t.due_at > statement_timestamp()
), heads as (
    select distinct on (w.agent) w.agent, w.id, w.due_at, count(*) over (partition by w.agent) as messages
    from waiting w order by w.agent, w.due_at, w.id
)
select h.agent, h.id as message_id, h.due_at::timestamptz as due_at, h.messages from heads h order by h.due_at, h.agent;

-- name: LossyTurns :many
-- Those of the newest 5,000 turns that lost several workers, or lost one and are open or were given up; newest first.
-- With the calls that may have been running: started ones without a result, and planned ones without an effect.
select t.id, t.message_id, t.agent, t.losses, t.state, t.ended_at, coalesce(t.error_class, '')::text as error_class,
    turnkeeper.tools_perhaps_run(t.id)::text[] as tools
from (select * from turnkeeper.turns order by turns.id desc limit 5000) t
where (t.ended_at is null and t.losses > 0
    or t.ended_at > statement_timestamp() - @ended_within::interval and (t.losses > 1 or t.losses = 1
        and t.stop_reason = 'worker_lost'))
order by t.id desc limit 10;

-- name: PinLevel :exec
insert into turnkeeper.pinned_levels (agent, level, pinned_by, until, reason)
values (@agent::text, @level::text, @pinned_by::text, clock_timestamp() + sqlc.narg(lasts)::interval, @reason::text)
on conflict (agent) do update set level = excluded.level, pinned_by = excluded.pinned_by,
    pinned_at = excluded.pinned_at,
    until = excluded.until, reason = excluded.reason;

-- name: UnpinLevel :execrows
delete from turnkeeper.pinned_levels where agent = @agent::text;

-- name: ForgetPins :exec
-- Deletes the pins that hold no more.
delete from turnkeeper.pinned_levels where until <= clock_timestamp();

-- name: ListPins :many
-- The pins that hold now.
select * from turnkeeper.pinned_levels where until is null or until > clock_timestamp() order by agent;

-- name: ListLevels :many
-- The survival levels of the agents that have a budget of a day, rules for levels or a pin, and of retired ones only
-- while a level holds messages. held is counted up to 10,000.
select a.name, turnkeeper.level_of(a.name)::text as level, a.levels, a.day_tokens, a.day_calls,
    coalesce(s.tokens, 0)::bigint as tokens, coalesce(s.calls, 0)::bigint as calls,
    turnkeeper.next_day()::timestamptz as next_day,
    (select count(*) from (select from turnkeeper.waiting m where m.lane = turnkeeper.level_lane(a.name)
        limit 10000) h)::bigint as held,
    (select count(*) from turnkeeper.schedules c where c.agent = a.name and c.active
        and c.skipped > 0)::bigint as skipping
from turnkeeper.agents a
left join turnkeeper.spend s on s.scope = 'agent:' || a.name
    and s.period = to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD')
where (a.day_tokens > 0 or a.day_calls > 0 or a.levels <> '{}' or (turnkeeper.pin_of(a.name)).level is not null)
  and (a.retired_at is null or a.holds_below is not null)
order by a.name;

-- name: ReserveSpend :one
-- All attempts at a message share the budget of the first turn, so that no retry resets
-- the spend. The day, and the time left of it, are by the database's clock.
select reservation::bigint, blocked::text, used_tokens::bigint, used_calls::bigint, level::text,
    extract(epoch from date_trunc('day', clock_timestamp() at time zone 'UTC') + interval '1 day' - (
        clock_timestamp() at time zone 'UTC'))::float8 as day_left
from turnkeeper.reserve_spend(
    coalesce((select f.id from turnkeeper.turns t join turnkeeper.turns f on f.message_id = t.message_id
        where t.id = @turn::bigint order by f.attempt limit 1), @turn)::bigint,
    @agent::text, @tokens::bigint, @turn_tokens::bigint, @turn_calls::bigint,
    @day_tokens::bigint, @day_calls::bigint, @level::text);

-- name: SettleSpend :exec
-- Locks the agent's row first, as a reservation does, to prevent deadlocks.
select turnkeeper.settle_spend(@reservation::bigint, @used::bigint)
from (select 1 as locked from turnkeeper.spend s
      join turnkeeper.spend_reservations r on s.scope = 'agent:' || r.agent and s.period = r.period
      where r.id = @reservation::bigint for update of s) first;

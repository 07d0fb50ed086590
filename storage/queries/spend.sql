-- name: ReserveSpend :one
-- A turn's budget is that of all attempts at its message, kept with the first: no
-- retry resets what is spent. The day is the database's, and so is the time that is
-- left of it.
select reservation::bigint, blocked::text, used_tokens::bigint, used_calls::bigint,
    extract(epoch from date_trunc('day', clock_timestamp() at time zone 'UTC') + interval '1 day' - (clock_timestamp() at time zone 'UTC'))::float8 as day_left
from turnkeeper.reserve_spend(
    coalesce((select f.id from turnkeeper.turns t join turnkeeper.turns f on f.message_id = t.message_id
        where t.id = @turn::bigint order by f.attempt limit 1), @turn)::bigint,
    @agent::text, @tokens::bigint, @turn_tokens::bigint, @turn_calls::bigint,
    @day_tokens::bigint, @day_calls::bigint);

-- name: SettleSpend :exec
-- The agent's row is locked first, as a reservation does: in the other order
-- the two of one turn could wait for each other.
select turnkeeper.settle_spend(@reservation::bigint, @used::bigint)
from (select 1 as locked from turnkeeper.spend s
      join turnkeeper.spend_reservations r on s.scope = 'agent:' || r.agent and s.period = r.period
      where r.id = @reservation::bigint for update of s) first;

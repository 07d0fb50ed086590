-- name: ReserveSpend :one
select reservation::bigint, blocked::text, used_tokens::bigint, used_calls::bigint
from turnkeeper.reserve_spend(@turn::bigint, @agent::text, @tokens::bigint, @turn_tokens::bigint, @turn_calls::bigint,
    @day_tokens::bigint, @day_calls::bigint);

-- name: SettleSpend :exec
select turnkeeper.settle_spend(@reservation::bigint, @used::bigint);

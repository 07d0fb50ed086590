-- name: AskCancel :exec
select turnkeeper.ask_cancel(@turn::bigint, @reason::text);

-- name: SettleCancel :one
select coalesce(state, '')::text as state, done::boolean as done, again::boolean as again
from turnkeeper.settle_cancel(@turn::bigint);

-- name: CancelMessage :one
select coalesce(state, '')::text as state, turn::bigint as turn from turnkeeper.cancel_message(@message::bigint, @reason::text);

-- name: CancelledGrants :many
-- Those of the grants whose turns somebody asked to be cancelled.
select l.grant_id::uuid from turnkeeper.leases l join turnkeeper.cancellations c on c.turn_id = l.turn_id
where l.grant_id = any(@grants::uuid[]);

-- name: CancellationOf :one
select * from turnkeeper.cancellations where turn_id = @turn_id;

-- name: RetryMessage :one
select coalesce(verdict, '')::text as verdict, coalesce(message, 0)::bigint as message
from turnkeeper.retry_message(@message::bigint, @anyway::boolean);

-- name: RetryOf :many
-- What a message was put into the inbox again for, and as which.
select message_id, retried_as, asked_at from turnkeeper.retries where message_id = @message or retried_as = @message order by message_id;

-- name: DefinitionByHash :one
select content from turnkeeper.definitions where hash = @hash;

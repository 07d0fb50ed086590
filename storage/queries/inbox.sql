-- name: Enqueue :one
select turnkeeper.enqueue(@agent::text, @body::text, @conversation::text, sqlc.narg(key)::text, @priority::integer,
    sqlc.narg(trace_parent)::text,
    sqlc.narg(due_at)::timestamptz, @user_name::text)::bigint;

-- name: EnqueueBy :one
select turnkeeper.enqueue_by('token:' || @token::bigint, @operates::boolean, @agent::text, @user_name::text,
    @body::text, @conversation::text, sqlc.narg(key)::text, @priority::integer,
    sqlc.narg(trace_parent)::text, sqlc.narg(due_at)::timestamptz)::bigint;

-- name: MessageByID :one
select sqlc.embed(m), coalesce(t.state, '')::text as turn_state
from turnkeeper.messages m left join turnkeeper.turns t on t.id = m.turn_id where m.id = @id;

-- name: WatchedMessages :many
-- What a stream tells of messages: their texts may be long, and are not read.
select m.id, m.state, m.turn_id, m.closed_at,
    array(select a.id from turnkeeper.turns a where a.message_id = m.id order by a.attempt)::bigint[] as turns
from turnkeeper.messages m where m.id = any(@ids::bigint[]);

-- name: ListMessages :many
select sqlc.embed(m), coalesce(t.state, '')::text as turn_state
from turnkeeper.messages m left join turnkeeper.turns t on t.id = m.turn_id
where (@agent::text = '' or m.agent = @agent) and (@user_name::text = '' or m.user_name = @user_name)
    and (@state::text = '' or m.state = @state)
  and (@before::bigint = 0 or m.id < @before)
order by m.id desc limit @max_rows;

-- name: ReplyOfMessage :one
select * from turnkeeper.replies where message_id = @message_id;

-- name: ListReplies :many
-- In order, and without skipping replies that are not committed yet.
select id::bigint as id, message_id::bigint as message_id, turn_id::bigint as turn_id, agent::text as agent,
    user_name::text as user_name, conversation::text as conversation,
    outcome::text as outcome, body::text as body, created_at::timestamptz as created_at, coalesce(parent_turn_id,
        0)::bigint as parent_turn_id,
    stop_reason::text as stop_reason, coalesce(error_class, '')::text as error_class, calls::jsonb as calls,
        labels::text[] as labels
from turnkeeper.replies_after(@after::bigint, @max_rows::integer, @agent::text, @top_only::boolean, @user_name::text);

-- name: ListRepliesNewestFirst :many
select * from turnkeeper.replies
where (@agent::text = '' or agent = @agent) and (@user_name::text = '' or user_name = @user_name)
    and (@before::bigint = 0 or id < @before) and (not @top_only::boolean or parent_turn_id is null)
order by id desc limit @max_rows;

-- name: RepliesByID :many
select * from turnkeeper.replies where id = any(@ids::bigint[]);

-- name: WrittenHere :one
-- Whether this transaction inserted the message.
select (m.xmin = pg_current_xact_id()::xid)::boolean as written
from turnkeeper.messages m where m.agent = @agent and m.user_name = @user_name and m.idempotency_key = @key;

-- name: EnqueueResponse :one
select turnkeeper.enqueue_response(coalesce('token:' || sqlc.narg(token)::bigint, 'role:' || session_user),
    @agent::text, @user_name::text, @body::text, @conversation::text, sqlc.narg(key)::text,
    sqlc.narg(trace_parent)::text,
    @response::jsonb, @follows::bigint, @strict::boolean, @texts::text[], @labels::text[], @sources::text[])::bigint;

-- name: ResponseByID :one
-- Reads a response in one statement, so that a closed one has its reply.
select sqlc.embed(m), r.previous_id, r.background, r.drafts, r.metadata::text as metadata, r.instructions,
    r.max_output_tokens, r.preface,
    coalesce(substring(m.sent_by from '^token:([0-9]+)$')::bigint, 0)::bigint as token_id, -- 0: a client on loopback
    coalesce(p.outcome, '')::text as outcome, coalesce(p.body, '')::text as reply, coalesce(t.stop_reason,
        '')::text as stop_reason,
    coalesce(p.error_class, '')::text as error_class, coalesce(p.calls, '[]')::jsonb as calls,
    coalesce(p.labels, '{}')::text[] as labels,
    -- of the turn's last answer, once there is a reply
    coalesce(case when p.id is not null then (select a.finish_reason from turnkeeper.rounds a
        where a.turn_id = p.turn_id order by a.round desc limit 1) end, '')::text as finish_reason,
    u.input_tokens::bigint as input_tokens, u.output_tokens::bigint as output_tokens,
    u.cached_tokens::bigint as cached_tokens, u.cache_write_tokens::bigint as cache_write_tokens,
    u.reasoning_tokens::bigint as reasoning_tokens
from turnkeeper.responses r
join turnkeeper.messages m on m.id = r.message_id
left join turnkeeper.replies p on p.message_id = m.id
left join turnkeeper.turns t on t.id = m.turn_id
cross join lateral (
    select coalesce(sum(a.input_tokens), 0) as input_tokens, coalesce(sum(a.output_tokens), 0) as output_tokens,
        coalesce(sum(a.cached_tokens), 0) as cached_tokens,
        coalesce(sum(a.cache_write_tokens), 0) as cache_write_tokens,
        coalesce(sum(a.reasoning_tokens), 0) as reasoning_tokens
    from turnkeeper.turns_now a where a.message_id = m.id) u
where r.message_id = @id;

-- name: ResponsesWithHistory :many
-- The newest responses whose clients knew this history, and that are the newest message of their conversation, among
-- the newest 1,000: many conversations can begin with the same words.
select m.id, m.conversation, r.history_sha256, coalesce(p.outcome, '')::text as outcome,
    coalesce(p.body, '')::text as reply
from (select h.message_id, h.history_sha256 from turnkeeper.responses h where h.history_sha256 = @history
    order by h.message_id desc limit 1000) r
join turnkeeper.messages m on m.id = r.message_id
left join turnkeeper.replies p on p.message_id = m.id
where m.agent = @agent and m.user_name = @user_name
    and not exists (select from turnkeeper.messages n
        where n.agent = m.agent and n.user_name = m.user_name and n.conversation = m.conversation and n.id > m.id)
order by m.id desc limit 50;

-- name: NewestMessage :many
-- The newest message of a conversation, with the history of its response if it is one.
select m.id, m.conversation, r.history_sha256, coalesce(p.outcome, '')::text as outcome,
    coalesce(p.body, '')::text as reply
from turnkeeper.messages m
left join turnkeeper.responses r on r.message_id = m.id
left join turnkeeper.replies p on p.message_id = m.id
where m.agent = @agent and m.user_name = @user_name and m.conversation = @conversation
order by m.id desc limit 1;

-- name: ResponseTexts :many
-- What was said in responses, with its labels.
select m.id, m.body, r.preface, coalesce(p.body, '')::text as reply,
    array(select l.label from turnkeeper.labels l where l.kind = 'message' and l.id = m.id
        order by l.label)::text[] as labels,
    array(select l.source from turnkeeper.labels l where l.kind = 'message' and l.id = m.id
        order by l.label)::text[] as sources,
    array(select l.label from turnkeeper.labels l where l.kind = 'reply' and l.id = m.id
        order by l.label)::text[] as reply_labels,
    array(select l.source from turnkeeper.labels l where l.kind = 'reply' and l.id = m.id
        order by l.label)::text[] as reply_sources
from turnkeeper.responses r
join turnkeeper.messages m on m.id = r.message_id
left join turnkeeper.replies p on p.message_id = m.id
where r.message_id = any(@ids::bigint[]) and m.agent = @agent and m.user_name = @user_name;

-- name: CreateConversation :one
-- 1970: the sender has too many.
select coalesce(turnkeeper.create_conversation(@id::text, coalesce('token:' || sqlc.narg(token)::bigint,
    'role:' || session_user), @user_name::text, @metadata::jsonb, @items::jsonb), 'epoch')::timestamptz;

-- name: ForgetConversations :exec
delete from turnkeeper.api_conversations c where c.used_at is null
    and c.created_at < clock_timestamp() - @older_than::interval;

-- name: ConversationByID :one
select c.metadata::text as metadata, c.items::text as items, c.created_at from turnkeeper.api_conversations c
where c.id = @id and c.sent_by = coalesce('token:' || sqlc.narg(token)::bigint, 'role:' || session_user)
    and (@user_name::text = '' or c.user_name = @user_name)
order by c.used_at nulls last limit 1;

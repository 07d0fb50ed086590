-- name: EnqueueResponse :one
select turnkeeper.enqueue_response(coalesce('token:' || sqlc.narg(token)::bigint, 'role:' || session_user), @agent::text, @user_name::text, @body::text, @conversation::text, sqlc.narg(key)::text, sqlc.narg(trace_parent)::text,
    sqlc.narg(previous)::bigint, @background::boolean, @metadata::jsonb)::bigint;

-- name: ResponseByID :one
-- Reads a response in one statement, so that a closed one has its reply.
select sqlc.embed(m), r.previous_id, r.background, r.metadata::text as metadata,
    coalesce(substring(m.sent_by from '^token:([0-9]+)$')::bigint, 0)::bigint as token_id, -- 0: a client on loopback
    coalesce(p.outcome, '')::text as outcome, coalesce(p.body, '')::text as reply, coalesce(t.stop_reason, '')::text as stop_reason,
    coalesce(p.error_class, '')::text as error_class, coalesce(p.calls, '[]')::jsonb as calls,
    coalesce(p.labels, '{}')::text[] as labels,
    u.input_tokens::bigint as input_tokens, u.output_tokens::bigint as output_tokens,
    u.cached_tokens::bigint as cached_tokens, u.reasoning_tokens::bigint as reasoning_tokens
from turnkeeper.responses r
join turnkeeper.messages m on m.id = r.message_id
left join turnkeeper.replies p on p.message_id = m.id
left join turnkeeper.turns t on t.id = m.turn_id
cross join lateral (
    select coalesce(sum(a.input_tokens), 0) as input_tokens, coalesce(sum(a.output_tokens), 0) as output_tokens,
        coalesce(sum(a.cached_tokens), 0) as cached_tokens, coalesce(sum(a.reasoning_tokens), 0) as reasoning_tokens
    from turnkeeper.turns_now a where a.message_id = m.id) u
where r.message_id = @id;

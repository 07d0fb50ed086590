-- What the Responses API keeps of a response beside its message.
-- Oldest program: 2
-- Locks: messages, for a moment, for the key that refers to it.

create table turnkeeper.responses (
    message_id  bigint primary key references turnkeeper.messages on delete cascade,
    previous_id bigint,                        -- the response that it continues; null: none was named
    background  boolean not null,
    metadata    jsonb not null check (jsonb_typeof(metadata) = 'object'),
    token_id    bigint                         -- who made it, and may cancel it; null: somebody on loopback
);

-- Accept the message of a response. A repeat under the same key is the same response; one that
-- says anything else is refused as enqueue refuses it, and so is the key of a message that was
-- sent in another way.
create function turnkeeper.enqueue_response(
    p_agent text, p_body text, p_conversation text, p_key text, p_trace_parent text,
    p_previous bigint, p_background boolean, p_metadata jsonb, p_token bigint,
    out id bigint, out repeated boolean
) language plpgsql as $$
declare
    first turnkeeper.responses;
begin
    id := turnkeeper.enqueue(p_agent, p_body, p_conversation, p_key, 0, p_trace_parent);
    repeated := not exists (select from turnkeeper.messages m where m.id = enqueue_response.id and m.xmin = pg_current_xact_id()::xid);
    if not repeated then
        insert into turnkeeper.responses values (id, p_previous, p_background, p_metadata, p_token);
        return;
    end if;
    select r.* into first from turnkeeper.responses r where r.message_id = enqueue_response.id;
    if not found or first.previous_id is distinct from p_previous or first.metadata <> p_metadata then
        raise exception using errcode = 'TK006', message = format('idempotency key was already used for a different message (%s)', id);
    end if;
end $$;

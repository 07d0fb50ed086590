drop function turnkeeper.replies_after(bigint, integer, text, boolean);
create or replace function turnkeeper.enqueue(
    agent           text,
    body            text,
    conversation    text default 'main',
    idempotency_key text default null,
    priority        integer default 0,
    trace_parent    text default null
) returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    a_name    text := enqueue.agent;
    conv      text := coalesce(nullif(enqueue.conversation, ''), 'main');
    key       text := nullif(enqueue.idempotency_key, '');
    max_bytes integer;
    by_conv   boolean;
    known     text;
    first     record;
    new_id    bigint;
begin
    if enqueue.body is null or btrim(enqueue.body, E' \t\r\n') = '' then
        raise exception using errcode = 'TK003', message = 'message cannot be empty';
    end if;
    select max_message_bytes into max_bytes from turnkeeper.settings;
    if octet_length(enqueue.body) > max_bytes then
        raise exception using errcode = 'TK004', message = format(
            'invalid message: the body has %s bytes, the limit is %s', octet_length(enqueue.body), max_bytes);
    end if;
    if octet_length(conv) > 200 then
        raise exception using errcode = 'TK004',
            message = 'invalid message: the conversation''s name is longer than 200 bytes';
    end if;
    if octet_length(key) > 200 then
        raise exception using errcode = 'TK004',
            message = 'invalid message: the idempotency key is longer than 200 bytes';
    end if;
    if coalesce(enqueue.priority, 0) not between -1000 and 1000 then
        raise exception using errcode = 'TK004', message = format(
            'invalid message: priority %s is outside -1000 to 1000', enqueue.priority);
    end if;
    select a.lane_per_conversation into by_conv from turnkeeper.agents a where a.name = a_name;
    if not found then
        select string_agg(a.name, ', ' order by a.name) into known
            from (select name from turnkeeper.agents order by name limit 20) a;
        raise exception using errcode = 'TK005', message = format('unknown agent %s: %s',
            quote_literal(coalesce(a_name, '')),
            case when known is null then 'no agent is registered yet; a worker registers the files of its agents folder when it starts'
                 else 'the registered agents are ' || known end);
    end if;
    insert into turnkeeper.messages (agent, conversation, lane, body, idempotency_key, priority, trace_parent)
        values (a_name, conv, case when by_conv then a_name || '/' || conv else a_name end,
            enqueue.body, key, coalesce(enqueue.priority, 0), enqueue.trace_parent)
        on conflict (agent, idempotency_key) do nothing
        returning id into new_id;
    if new_id is null then
        select m.id, m.body, m.conversation into first
            from turnkeeper.messages m where m.agent = a_name and m.idempotency_key = key;
        if first.body is distinct from enqueue.body or first.conversation is distinct from conv then
            raise exception using errcode = 'TK006', message = format(
                'idempotency key was already used for a different message (%s)', first.id);
        end if;
        return first.id;
    end if;
    perform pg_notify('turnkeeper_inbox', '');
    return new_id;
end $$;

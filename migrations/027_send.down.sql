-- Who may execute the function is kept.
do $$ begin
    perform set_config('turnkeeper.enqueue_acl', coalesce(p.proacl::text, ''), true)
    from pg_proc p where p.oid = 'turnkeeper.enqueue(text, text, text, text, integer, text, timestamptz)'::regprocedure;
end $$;
drop function turnkeeper.enqueue(text, text, text, text, integer, text, timestamptz);
create function turnkeeper.enqueue(
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
    trace     text := case when octet_length(enqueue.trace_parent) <= 256 and enqueue.trace_parent ~
        '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$'
        and enqueue.trace_parent = lower(enqueue.trace_parent) and substr(enqueue.trace_parent, 4, 32) ~ '[^0]'
        and substr(enqueue.trace_parent, 37, 16) ~ '[^0]' then enqueue.trace_parent end;
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
            enqueue.body, key, coalesce(enqueue.priority, 0), trace)
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

do $$
declare
    given text := nullif(current_setting('turnkeeper.enqueue_acl'), '');
    g     record;
begin
    if given is null then
        return;
    end if;
    revoke execute on function turnkeeper.enqueue(text, text, text, text, integer, text) from public;
    for g in select a.grantee, a.is_grantable from aclexplode(given::aclitem[]) a where a.grantee <> a.grantor loop
        execute format('grant execute on function turnkeeper.enqueue(text, text, text, text, integer, text) to %s%s',
            case g.grantee when 0 then 'public' else g.grantee::regrole::text end, case when g.is_grantable then ' with grant option' else '' end);
    end loop;
end $$;

comment on function turnkeeper.enqueue(text, text, text, text, integer, text) is
    'Puts a message into an agent''s inbox and returns its id; the message exists when the caller''s transaction commits. '
    'conversation: what it continues. idempotency_key: a repeat with the same key and message returns the first id, '
    'with another message it is an error. priority: -1000 to 1000, higher goes first. trace_parent: W3C trace context.';

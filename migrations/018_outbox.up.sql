-- Reading the outbox from a place on, without passing over a reply that is still being committed; and what is no
-- trace context is not kept with a message.
-- Oldest program: 2
-- Locks: nothing. One function is replaced.

-- The replies after an id, in the order of their ids, at most p_limit; an empty agent: of all.
--
-- Ids are given before the transactions that write them commit, so that a reply can come to be seen after one with a
-- higher id: who reads on from the highest seen would never get it. Here nothing is given before everything with a lower id
-- has come or never will. Who is about to write one holds a lock on the table by then, and is waited for: milliseconds,
-- as a rule. After two seconds what stands before the first id that is missing is given.
create function turnkeeper.replies_after(
    p_after bigint, p_limit integer default 25, p_agent text default '', p_top_only boolean default false
) returns setof turnkeeper.replies language plpgsql as $$
declare
    v_last    bigint;
    v_writers text[];
    v_until   timestamptz := clock_timestamp() + interval '2 s';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'feature_not_supported',
            message = 'turnkeeper.replies_after must see what others commit meanwhile: call it at the isolation level read committed';
    end if;
    select max(p.id) into v_last from (
        select r.id from turnkeeper.replies r
        where r.id > p_after and (p_agent = '' or r.agent = p_agent) and (not p_top_only or r.parent_turn_id is null)
        order by r.id limit p_limit) p;
    if v_last is null then
        return;
    end if;
    select array_agg(l.virtualtransaction) into v_writers from pg_locks l
    where l.locktype = 'relation' and l.relation = 'turnkeeper.replies'::regclass and l.mode = 'RowExclusiveLock' and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database()) and l.pid <> pg_backend_pid();
    while v_writers is not null loop
        if clock_timestamp() >= v_until then
            select coalesce(min(g.before), v_last) into v_last from (
                select r.id, lag(r.id, 1, p_after) over (order by r.id) as before
                from turnkeeper.replies r where r.id > p_after and r.id <= v_last) g
            where g.id > g.before + 1;
            exit;
        end if;
        perform pg_sleep(0.002);
        select array_agg(l.virtualtransaction) into v_writers from pg_locks l
        where l.locktype = 'relation' and l.relation = 'turnkeeper.replies'::regclass and l.mode = 'RowExclusiveLock' and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database()) and l.virtualtransaction = any(v_writers);
    end loop;
    return query
        select * from turnkeeper.replies r
        where r.id > p_after and r.id <= v_last and (p_agent = '' or r.agent = p_agent) and (not p_top_only or r.parent_turn_id is null)
        order by r.id limit p_limit;
end $$;

-- As before, but what is no trace context, by the rules of the W3C, is dropped, as the HTTP API drops it: it would be kept
-- and shown with the message, at any length, and mean nothing.
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

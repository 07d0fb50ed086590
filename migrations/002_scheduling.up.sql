-- Scheduling: the inbox, lanes and leases, detection of lost workers, and the health of models.
--
-- Error codes of all functions, which package storage converts to errors of package turnkeeper:
--   TK001 the lease is no longer held     TK002 the journal has moved on
--   TK003 empty message                   TK004 invalid message
--   TK005 unknown agent                   TK006 idempotency key conflict
--   TK007 state change refused            TK008 not possible in the current state
--   TK010 the agent is retired            TK013 no such row

----------------------------------------------------------------------------------------------------
-- Rows that are set aside
----------------------------------------------------------------------------------------------------

-- Whether a row is set aside now: whoever picks work leaves it out. Many statements call it for each row, and the table
-- is nearly always empty.
create function turnkeeper.is_aside(p_kind text, p_id text) returns boolean stable language plpgsql as $$
begin
    return (select s.next_try > statement_timestamp() from turnkeeper.set_aside s
        where s.kind = p_kind and s.id = p_id) is true;
end $$;

-- Whether an error may belong to one row: not one of the connection, of resources, of a shutdown, of the system or of a
-- standby. A statement's timeout (57014) may: the row may be what it could not finish.
create function turnkeeper.belongs_to_row(p_code text) returns boolean immutable language sql
return p_code = '57014' or left(p_code, 2) not in ('08', '25', '53', '57', '58');

-- Set a row aside after a failure: for a minute, then for twice as long each time, at most an hour. If other
-- transactions may be the cause (a lock, a deadlock, a serialization failure, a timeout), it begins with five seconds.
-- Steps and ticks are tried again at once. The first failure is logged by the program that called (see pg.logAside),
-- and then each whose number is a power of two.
create function turnkeeper.put_aside(p_kind text, p_id text, p_code text,
    p_error text) returns void language plpgsql as $$
declare
    pause constant interval := case when p_kind in ('step', 'tick') then '0' when p_code in ('40001', '40P01', '55P03',
        '57014') then '5 s' else '1 min' end;
    n     integer;
begin
    insert into turnkeeper.set_aside as s (kind, id, next_try, code, error)
    values (p_kind, p_id, clock_timestamp() + pause, p_code, p_error)
    on conflict (kind, id) do update set failures = s.failures + 1, last_at = clock_timestamp(), code = excluded.code,
        error = excluded.error,
        next_try = clock_timestamp() + least(pause * power(2, least(s.failures, 10)), interval '1 hour')
    returning failures into n;
    if n & (n - 1) = 0 then
        raise warning using errcode = 'TK020', message = p_error, table = p_kind, column = p_id, constraint = p_code,
            datatype = n::text;
    end if;
end $$;

-- Set a row aside if the error may be the row's, and raise it again if not.
create function turnkeeper.put_aside_or_raise(p_kind text, p_id text, p_code text,
    p_error text) returns void language plpgsql as $$
begin
    if not turnkeeper.belongs_to_row(p_code) then
        raise exception using errcode = p_code, message = p_error;
    end if;
    perform turnkeeper.put_aside(p_kind, p_id, p_code, p_error);
end $$;

-- Forget the rows that need no work any more, as their messages, turns, calls, asks, schedules or deliveries are over,
-- the steps that did not fail in the last minute, and the agents that no worker tries to register any more.
create function turnkeeper.forget_aside() returns void language plpgsql as $$
begin
    delete from turnkeeper.set_aside s where case s.kind
        when 'message' then not exists (select from turnkeeper.waiting m where m.id = s.id::bigint)
        when 'turn' then not exists (select from turnkeeper.turns t where t.id = s.id::bigint and t.ended_at is null)
        when 'call' then not exists (select from turnkeeper.detached_calls d
            where (d.turn_id, d.round, d.ordinal) = (split_part(s.id, '/', 1)::bigint, split_part(s.id, '/',
                2)::integer, split_part(s.id, '/', 3)::integer)
              and d.ended_at is null)
        when 'ask' then not exists (select from turnkeeper.asks a where a.id = s.id::bigint and a.state = 'open')
        when 'sub_agent' then not exists (select from turnkeeper.spawned_calls c
            where (c.turn_id, c.round, c.ordinal) = (split_part(s.id, '/', 1)::bigint, split_part(s.id, '/',
                2)::integer, split_part(s.id, '/', 3)::integer)
              and (c.notified_at is null or c.ended_at is null))
        when 'schedule' then not exists (select from turnkeeper.schedules c
            where c.agent = split_part(s.id, '/', 1) and c.name = substr(s.id, length(split_part(s.id, '/', 1)) + 2)
                and c.active)
        when 'delivery' then not exists (select from turnkeeper.webhook_deliveries d where d.id = s.id::bigint
            and d.state = 'pending')
        when 'purge' then not exists (select from turnkeeper.messages m where m.id = s.id::bigint)
        when 'agent' then s.next_try < clock_timestamp() - interval '1 hour'
        else s.last_at < clock_timestamp() - interval '1 min' end;
end $$;

----------------------------------------------------------------------------------------------------
-- Inbox
----------------------------------------------------------------------------------------------------

-- Raise an error unless a text may be the body of a message.
create function turnkeeper.check_body(p_body text) returns void language plpgsql as $$
declare
    max_bytes integer;
begin
    if p_body is null or btrim(p_body, E' \t\r\n') = '' then
        raise exception using errcode = 'TK003', message = 'message cannot be empty';
    end if;
    select max_message_bytes into max_bytes from turnkeeper.settings;
    if octet_length(p_body) > max_bytes then
        raise exception using errcode = 'TK004', message = format(
            'invalid message: the body has %s bytes, the limit is %s', octet_length(p_body), max_bytes);
    end if;
end $$;

-- Put a message into an agent's inbox and return its id. Everything that sends messages calls this function: see
-- enqueue for the arguments, and messages.sent_by for p_sender. p_operates: the sender may use every priority. A repeat
-- keeps the first sender, also if another sender of the same user repeats it.
create function turnkeeper.enqueue_by(
    p_sender text, p_operates boolean, p_agent text, p_user text, p_body text, p_conversation text, p_key text,
    p_priority integer,
    p_trace_parent text, p_due_at timestamptz
) returns bigint language plpgsql as $$
declare
    conv    text := coalesce(nullif(p_conversation, ''), 'main');
    usr     text := coalesce(p_user, '');
    key     text := nullif(p_key, '');
    rank    integer := coalesce(p_priority, 0);
    highest integer;
    by_conv boolean;
    known   text;
    retired boolean;
    first   record;
    at      timestamptz := clock_timestamp();
    due     timestamptz := date_trunc('second', at);
    new_id  bigint;
    trace   text := case when octet_length(p_trace_parent) <= 256 and p_trace_parent ~
        '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$'
        and p_trace_parent = lower(p_trace_parent) and substr(p_trace_parent, 4, 32) ~ '[^0]'
        and substr(p_trace_parent, 37, 16) ~ '[^0]' then p_trace_parent end;
begin
    perform turnkeeper.check_body(p_body);
    if octet_length(conv) > 200 then
        raise exception using errcode = 'TK004',
            message = 'invalid message: the conversation''s name is longer than 200 bytes';
    end if;
    if not turnkeeper.user_may_be(usr) then
        raise exception using errcode = 'TK004', message = case when octet_length(usr) > 200
            then 'invalid message: the user''s name is longer than 200 bytes'
                else 'invalid message: the user''s name has a control character' end;
    end if;
    if octet_length(key) > 200 then
        raise exception using errcode = 'TK004',
            message = 'invalid message: the idempotency key is longer than 200 bytes';
    end if;
    if rank not between turnkeeper.lowest_priority() and turnkeeper.highest_priority() then
        raise exception using errcode = 'TK004', message = format('invalid message: priority %s is outside %s to %s',
            rank, turnkeeper.lowest_priority(), turnkeeper.highest_priority());
    end if;
    if rank > 0 and not p_operates then
        select s.max_sender_priority into highest from turnkeeper.settings s;
        if rank > highest then
            raise exception using errcode = 'TK004', message = format(
                'invalid message: priority %s needs the right to operate; senders may use at most %s (max_sender_priority)', rank, highest);
        end if;
    end if;
    if p_due_at > at + interval '3660 days' then
        raise exception using errcode = 'TK004', message = 'invalid message: its time is more than ten years ahead';
    end if;
    if p_due_at > at then -- to the next whole second
        due := date_trunc('second', p_due_at + interval '999999 us');
    end if;
    select a.lane_per_conversation, a.retired_at is not null into by_conv, retired from turnkeeper.agents a
        where a.name = p_agent;
    if not found then
        select string_agg(a.name, ', ' order by a.name) into known
            from (select name from turnkeeper.agents order by name limit 20) a;
        raise exception using errcode = 'TK005', message = format('unknown agent %s: %s',
            quote_literal(coalesce(p_agent, '')),
            case when known is null
                then 'no agent is registered yet; a worker registers the files of its agents folder when it starts'
                 else 'the registered agents are ' || known
                     || '; if its file is new, the workers have not read it yet: send them SIGHUP' end);
    end if;
    if retired and not exists (select from turnkeeper.messages m where m.agent = p_agent and m.user_name = usr
        and m.idempotency_key = key) then
        raise exception using errcode = 'TK010', message = format(
            'agent %s is retired and takes no new messages', quote_literal(p_agent));
    end if;
    insert into turnkeeper.messages (agent, user_name, conversation, lane, body, idempotency_key, priority,
        trace_parent, due_at, sent_by)
        values (p_agent, usr, conv, turnkeeper.lane_of(p_agent, usr, conv, by_conv), p_body, key, rank, trace,
            due, p_sender)
        on conflict (agent, user_name, idempotency_key) where idempotency_key is not null do nothing
        returning id into new_id;
    if new_id is null then
        select m.id, m.body, m.first_sha256, m.conversation into first
            from turnkeeper.messages m where m.agent = p_agent and m.user_name = usr and m.idempotency_key = key;
        if first.id is null or first.conversation <> conv
            or coalesce(first.first_sha256 <> sha256(convert_to(p_body, 'UTF8')), first.body <> p_body) then
            raise exception using errcode = 'TK006', message = format(
                'idempotency key was already used for a different message (%s)', first.id);
        end if;
        return first.id;
    end if;
    perform pg_notify('turnkeeper_inbox', '');
    return new_id;
end $$;

----------------------------------------------------------------------------------------------------
-- Senders. A role that may only send needs the right to execute the five functions enqueue, enqueue_message,
-- edit_message, drop_message and my_replies_after, and to read the view my_messages. These functions have the rights of
-- their owner, who is the workers' role and whom current_user names in them; session_user is the user of the session,
-- whatever SET ROLE says. They must not lock anything but the sender's own messages, because a sender's transaction may
-- stay open for hours.
----------------------------------------------------------------------------------------------------

-- Put a message into an agent's inbox and return its id. The message exists when the caller's transaction commits. A
-- repeat with the same idempotency key returns the first id, whatever its due_at. A message is not granted before
-- due_at; a time in the past means now. An invalid trace_parent (W3C Trace Context) is ignored.
create function turnkeeper.enqueue(
    agent           text,
    body            text,
    conversation    text default 'main',
    idempotency_key text default null,
    priority        integer default 0,
    trace_parent    text default null,
    due_at          timestamptz default null,
    user_name       text default ''
) returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return turnkeeper.enqueue_by('role:' || session_user, pg_has_role(session_user, current_user, 'member'),
        agent, user_name, body, conversation, idempotency_key, priority, trace_parent, due_at);
end $$;

comment on function turnkeeper.enqueue(text, text, text, text, integer, text, timestamptz, text) is
    'Puts a message into an agent''s inbox and returns its id. The message exists when the caller''s transaction commits. '
    'conversation: the one to continue. user_name: whose conversation it is; empty: no user''s; two users never share one. '
    'idempotency_key: a repeat for the same agent and user with the same key and message returns the first id; '
    'with another message it fails. priority: -1000 to 1000, each point counts as one second of waiting; above max_sender_priority (0) only for the workers'' role. '
    'trace_parent: W3C Trace Context; ignored if invalid. due_at: the message is not run before; '
    'null or past: at once.';

-- Like enqueue, with the arguments as a JSON object. New arguments are added here, because a function with another
-- signature would lack the rights that were granted on the old one.
create function turnkeeper.enqueue_message(message jsonb) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    strings constant text[] := '{agent,user,body,conversation,idempotency_key,trace_parent,due_at}';
    due     constant text := message ->> 'due_at';
    given   record;
begin
    if jsonb_typeof(message) is distinct from 'object' then
        raise exception using errcode = 'TK004', message = 'invalid message: it must be a JSON object';
    end if;
    for given in select e.key, jsonb_typeof(e.value) as type, e.value from jsonb_each(message) e order by e.key loop
        if given.key <> 'priority' and given.key <> all(strings) then
            raise exception using errcode = 'TK004',
                message = format('invalid message: it has no key %s; the keys are %s and priority',
                to_json(left(given.key, 100)), array_to_string(strings, ', '));
        elsif given.type <> 'null' and given.type <> (case given.key when 'priority' then 'number'
            else 'string' end) then
            raise exception using errcode = 'TK004',
                message = format('invalid message: %s must be a %s, and is a value of type %s',
                given.key, case given.key when 'priority' then 'number' else 'string' end, given.type);
        elsif given.key = 'priority' and given.type = 'number'
            and (case when given.value::numeric
                    between turnkeeper.lowest_priority() and turnkeeper.highest_priority()
                then given.value::numeric % 1 <> 0 else true end) then
            raise exception using errcode = 'TK004',
                message = format('invalid message: priority must be a whole number from %s to %s',
                turnkeeper.lowest_priority(), turnkeeper.highest_priority());
        elsif given.key = 'due_at' and due !~
            '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?([Zz]|[+-]([01][0-9]):?[0-5][0-9])$' then
            raise exception using errcode = 'TK004',
                message =
                    'invalid message: due_at must be a time with its offset (RFC 3339), such as 2006-01-02T15:04:05Z';
        end if;
    end loop;
    return turnkeeper.enqueue_by('role:' || session_user, pg_has_role(session_user, current_user, 'member'),
        message ->> 'agent', message ->> 'user', message ->> 'body', message ->> 'conversation',
        message ->> 'idempotency_key',
        (message ->> 'priority')::numeric::integer, message ->> 'trace_parent', due::timestamptz);
end $$;

-- Return a message that waits and that the role of the session has sent, and lock it. An error says why there is none.
create function turnkeeper.lock_own_message(p_message bigint) returns turnkeeper.messages language plpgsql as $$
declare
    m turnkeeper.messages;
begin
    select * into m from turnkeeper.messages q where q.id = p_message and q.sent_by = 'role:'
        || session_user for no key update;
    if not found then
        raise exception using errcode = 'TK013', message = format('you have sent no message %s', p_message);
    end if;
    if m.state <> 'waiting' or m.dropped_at is not null then
        raise exception using errcode = 'TK008', message = format('message %s no longer waits: it is %s', p_message,
            case when m.dropped_at is not null then 'dropped' else m.state end);
    end if;
    return m;
end $$;

-- Change the body of a message of the session's role. It must wait, and not have had a turn, whose records would be of
-- another text. Its place, and what a repeat with its idempotency key is compared with, stay.
create function turnkeeper.edit_message(message bigint, body text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    m turnkeeper.messages;
begin
    perform turnkeeper.check_body(edit_message.body);
    m := turnkeeper.lock_own_message(message);
    if m.attempts > 0 then
        raise exception using errcode = 'TK008',
            message = format('message %s cannot be changed, because it has had a turn: drop it and send another',
                message);
    end if;
    update turnkeeper.messages q set body = edit_message.body, first_sha256 = coalesce(m.first_sha256,
        sha256(convert_to(m.body, 'UTF8')))
    where q.id = message;
    update turnkeeper.responses r set preface = 0, history_sha256 = null where r.message_id = message;
    perform pg_notify('turnkeeper_inbox', ''); -- a tick may have passed the message over because it was locked
end $$;

-- Drop a waiting message of the session's role: once the transaction has committed it is never granted, and the next
-- tick closes it as cancelled, with a reply. The function does not do that itself, because readers of the outbox wait
-- for open transactions that have inserted a reply.
create function turnkeeper.drop_message(message bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform turnkeeper.lock_own_message(message);
    update turnkeeper.messages q set dropped_at = clock_timestamp() where q.id = message;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- The messages of the session's role.
create view turnkeeper.my_messages with (security_barrier) as
select m.id, m.agent, m.user_name, m.conversation, m.body, m.idempotency_key, m.priority, m.trace_parent, m.state,
    m.attempts, m.due_at, m.accepted_at,
    m.closed_at, m.dropped_at, (select r.id from turnkeeper.replies r where r.message_id = m.id) as reply_id
from turnkeeper.messages m where m.sent_by = 'role:' || session_user;

----------------------------------------------------------------------------------------------------
-- Responses
----------------------------------------------------------------------------------------------------

-- Return the response that was accepted with an idempotency key, or null. It fails if the key was used for another
-- request, or for a message that is not a response.
create function turnkeeper.repeated_response(p_agent text, p_user text, p_key text,
    p_request bytea) returns bigint language plpgsql as $$
declare
    first record;
begin
    select m.id, r.request_sha256 into first from turnkeeper.messages m left
        join turnkeeper.responses r on r.message_id = m.id
        where m.agent = p_agent and m.user_name = p_user and m.idempotency_key = p_key;
    if first.id is not null and first.request_sha256 is distinct from p_request then
        raise exception using errcode = 'TK006',
            message = format('idempotency key was already used for a different message (%s)', first.id);
    end if;
    return first.id;
end $$;

-- Put the message of a response into the inbox. A repeat with the same key returns the same response; repeated_response
-- says when it fails. p_follows is the newest message of the conversation as the caller has read it, 0 if there is
-- none. If it is not any more, a strict call fails, and another one is stored without the hash of its history. p_texts
-- are the texts that the sender put together in the body, and p_labels, with their sources, are those of what it named
-- in place of texts: see label_message.
create function turnkeeper.enqueue_response(
    p_sender text, p_agent text, p_user text, p_body text, p_conversation text, p_key text, p_trace_parent text,
    p_response jsonb, p_follows bigint, p_strict boolean, p_texts text[], p_labels text[], p_sources text[]
) returns bigint language plpgsql as $$
declare
    given turnkeeper.responses := jsonb_populate_record(null::turnkeeper.responses, p_response);
    first bigint := turnkeeper.repeated_response(p_agent, p_user, p_key, given.request_sha256);
begin
    if first is not null then
        return first;
    end if;
    perform from turnkeeper.responses r where r.message_id = p_follows for update; -- so that one message follows it
    if p_follows is distinct from (select coalesce(max(m.id), 0) from turnkeeper.messages m
            where m.agent = p_agent and m.user_name = p_user and m.conversation = p_conversation) then
        if p_strict then
            raise exception using errcode = 'TK008', message = format('the conversation has a newer message than %s',
                p_follows);
        end if;
        given.history_sha256 := null;
    end if;
    given.message_id := turnkeeper.enqueue_by(p_sender, false, p_agent, p_user, p_body, p_conversation, p_key, 0,
        p_trace_parent, null);
    if not exists (select from turnkeeper.messages m where m.id = given.message_id
        and m.xmin = pg_current_xact_id()::xid) then
        return turnkeeper.repeated_response(p_agent, p_user, p_key, given.request_sha256);
    end if;
    insert into turnkeeper.responses select given.*;
    perform turnkeeper.label_message(given.message_id, p_user, p_texts, p_labels, p_sources);
    perform turnkeeper.use_conversation(p_sender, p_agent, p_user, p_conversation);
    return given.message_id;
end $$;

-- Note that a created conversation has a message to an agent of a user.
create function turnkeeper.use_conversation(p_sender text, p_agent text, p_user text,
    p_conversation text) returns void language plpgsql as $$
begin
    update turnkeeper.api_conversations c set used_at = clock_timestamp(), items = '[]', agent = p_agent,
        user_name = p_user
        where c.id = p_conversation and c.user_name in ('', p_user) and c.sent_by = p_sender and c.used_at is null;
    if not found then
        insert into turnkeeper.api_conversations (id, agent, user_name, sent_by, metadata, items, created_at, used_at)
        select c.id, p_agent, p_user, c.sent_by, c.metadata, '[]', c.created_at, clock_timestamp()
        from turnkeeper.api_conversations c where c.id = p_conversation and (c.agent, c.user_name) <> (p_agent, p_user)
            and c.sent_by = p_sender and c.used_at is not null limit 1
        on conflict do nothing;
    end if;
end $$;

-- Create a conversation. Null: the sender has 1,000 others that have no message.
create function turnkeeper.create_conversation(p_id text, p_sender text, p_user text, p_metadata jsonb,
    p_items jsonb) returns timestamptz language plpgsql as $$
declare
    created timestamptz;
begin
    if (select count(*) from (select from turnkeeper.api_conversations o where o.sent_by = p_sender
        and o.used_at is null limit 1000) o) >= 1000 then
        return null;
    end if;
    insert into turnkeeper.api_conversations (id, sent_by, user_name, metadata, items)
        values (p_id, p_sender, p_user, p_metadata, p_items)
        returning created_at into created;
    return created;
end $$;

-- Take the scheduler's lock until the end of the transaction: wait for it, shared with others or not, or try to take
-- it.
create function turnkeeper.lock_scheduler() returns void language plpgsql as $$
begin
    lock table turnkeeper.scheduler_lock in exclusive mode;
end $$;

create function turnkeeper.share_scheduler_lock() returns void language plpgsql as $$
begin
    lock table turnkeeper.scheduler_lock in share mode;
end $$;

create function turnkeeper.try_scheduler_lock() returns boolean language plpgsql as $$
begin
    lock table turnkeeper.scheduler_lock in exclusive mode nowait;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- A message that begins to wait later than its rank has a queue_rank from the beginning: one with a priority, a
-- sub-agent's, which has the due time of its parent's message, or that of a missed slot.
create function turnkeeper.set_queue_rank() returns trigger language plpgsql as $$
begin
    new.queue_rank := turnkeeper.rank_of(new.due_at, new.priority);
    return new;
end $$;
create trigger message_is_late before insert on turnkeeper.messages
    for each row when (new.priority <> 0 or new.due_at < new.accepted_at - interval '2 s')
    execute function turnkeeper.set_queue_rank();

-- Whether a message is due: one that was due once stays due, even if the clock is set back.
create function turnkeeper.is_due(due_at timestamptz, accepted_at timestamptz) returns boolean stable language sql
return due_at <= greatest(statement_timestamp(), accepted_at);

-- An upper bound of the pause of a lane after a failed turn. A pause is at most 120 s, so an end later than this bound
-- was written before the clock was set back.
create function turnkeeper.longest_pause() returns interval immutable language sql return interval '130 s';

-- Whether a lane pauses after a failed turn. Null: it never paused.
create function turnkeeper.lane_pauses(not_before timestamptz) returns boolean
stable language sql return not_before > statement_timestamp()
    and not_before <= statement_timestamp() + turnkeeper.longest_pause();

-- Whether a message with a queue_rank waits for its next try after a failed turn. It keeps such messages out of the
-- messages that a tick looks at; whether a lane pauses is decided by its lease alone.
create function turnkeeper.backs_off(queue_rank timestamptz, priority integer) returns boolean
stable language sql return turnkeeper.lane_pauses(turnkeeper.time_of(queue_rank, priority));

-- The queue_rank of a message whose lane's pause ends early, or that moves to another lane. If it was waiting for its
-- next try, it waits from now on instead. A message that is not due keeps its rank.
create function turnkeeper.rank_from_now(p_message turnkeeper.messages) returns timestamptz
stable language plpgsql as $$
declare
    v_rank timestamptz := coalesce(p_message.queue_rank, p_message.rank);
begin
    return case when turnkeeper.is_due(p_message.due_at, p_message.accepted_at)
        then least(v_rank, turnkeeper.rank_of(statement_timestamp(), p_message.priority)) else v_rank end;
end $$;

-- The waiting messages that are not held and have the lowest queue ranks, and whether each is due now: at most max_rows
-- of those without a queue_rank, from the rank p_from on, and as many of the others that are due. Whoever gives a
-- p_from must know which messages without a queue_rank have a lower rank: see grants.floor.
--
-- It skips messages of the agents p_without, messages of lanes that pause, and messages that wait for their next try.
-- When a pause ends early, the trigger pause_ends makes the lane's messages due. The function skips at most p_passed
-- messages without a queue_rank. If it stops there with fewer than max_rows, it also returns a row without an id, with
-- the rank of the last message that it read. With p_passed it also returns messages whose next try is too far away
-- because the clock was set back.
--
-- The settings keep the planner from sorting the whole inbox, which it would do while a new table has no statistics.
create function turnkeeper.oldest_waiting(max_rows integer, p_from timestamptz default '-infinity',
    p_without text[] default '{}', p_passed integer default 0)
returns table (lane text, id bigint, rank timestamptz, queue_rank timestamptz, due boolean)
stable language plpgsql rows 400 set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_scan    integer := max_rows + greatest(p_passed, case when p_without = '{}' then 0 else 39 * max_rows end);
    v_pausing boolean := exists (select from turnkeeper.leases l where turnkeeper.lane_pauses(l.not_before));
    v_found   bigint;
begin
    return query select o.lane, o.id, o.rank, o.queue_rank, turnkeeper.is_due(o.due_at, o.accepted_at) from (
            select m.* from turnkeeper.waiting m
            where not m.held and m.queue_rank is null and m.rank >= p_from
            order by m.rank, m.id limit v_scan) o
        where o.agent <> all(p_without)
          and (not v_pausing or (select turnkeeper.lane_pauses(l.not_before) from turnkeeper.leases l
              where l.lane = o.lane) is not true)
        order by o.rank, o.id limit max_rows;
    get diagnostics v_found = row_count;
    if v_found < max_rows then
        return query select null::text, null::bigint, m.rank, null::timestamptz, false from turnkeeper.waiting m
            where not m.held and m.queue_rank is null and m.rank >= p_from
            order by m.rank, m.id offset v_scan - 1 limit 1;
    end if;
    return query select o.lane, o.id, o.rank, o.queue_rank, true from (
            (select m.* from turnkeeper.waiting m where not m.held and m.queue_rank is not null and m.priority >= 0
               and m.queue_rank <= statement_timestamp() + interval '2 s' -- the clock was set back by less
               and turnkeeper.is_due(m.due_at, m.accepted_at) and not turnkeeper.backs_off(m.queue_rank, m.priority)
             order by m.queue_rank, m.id limit v_scan)
            union all
            (select m.* from turnkeeper.waiting m where not m.held and m.queue_rank is not null and m.priority >= 0
               and p_passed > 0
               and m.queue_rank > statement_timestamp() + turnkeeper.longest_pause()
               and turnkeeper.is_due(m.due_at, m.accepted_at)
             order by m.queue_rank, m.id limit v_scan)
            union all
            (select m.* from turnkeeper.waiting m where not m.held and m.queue_rank is not null and m.priority < 0
               and m.queue_rank <= turnkeeper.last_rank(statement_timestamp() + interval '2 s')
               and turnkeeper.is_due(m.due_at, m.accepted_at) and not turnkeeper.backs_off(m.queue_rank, m.priority)
             order by m.queue_rank, m.id limit v_scan)) o
        where o.agent <> all(p_without)
        order by o.queue_rank, o.id limit max_rows;
end $$;

-- The earliest due time among the waiting messages that are not held.
create function turnkeeper.oldest_due() returns timestamptz stable language plpgsql as $$
begin
    return least(
        (select m.due_at from turnkeeper.waiting m where not m.held and m.queue_rank is null
         order by m.rank, m.id limit 1),
        (select min(m.due_at) from turnkeeper.waiting m where not m.held and m.queue_rank is not null));
end $$;

-- Whether a waiting message that is due is ahead of another one in its lane. One that waits for a turn outside the
-- lane, which holds its conversation, is not: that turn may wait behind the other one. p_from as in oldest_waiting.
create function turnkeeper.waits_behind(p_lane text, p_rank timestamptz, p_id bigint,
    p_from timestamptz default '-infinity')
returns boolean stable language plpgsql set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return exists (select from turnkeeper.waiting a where a.queue_rank is not null
            and a.lane = p_lane and (a.rank, a.id) < (p_rank, p_id) and turnkeeper.is_due(a.due_at, a.accepted_at)
            and not turnkeeper.conversation_held(a.agent, a.user_name, a.conversation))
        or exists (select from turnkeeper.waiting a where a.queue_rank is null
            and a.lane = p_lane and a.rank >= p_from and (a.rank, a.id) < (p_rank, p_id) and turnkeeper.is_due(a.due_at,
                a.accepted_at)
            and not turnkeeper.conversation_held(a.agent, a.user_name, a.conversation));
end $$;

----------------------------------------------------------------------------------------------------
-- Lanes and leases
----------------------------------------------------------------------------------------------------

-- When the pause of a lane ends early, make its messages due. A message that its sender has locked is skipped: it waits
-- until the time of its next try.
create function turnkeeper.pause_ends() returns trigger language plpgsql as $$
begin
    update turnkeeper.messages m set queue_rank = turnkeeper.rank_from_now(m) where m.id in (
        select q.id from turnkeeper.waiting q where q.queue_rank is not null
            and q.lane = old.lane and turnkeeper.backs_off(q.queue_rank, q.priority) for no key update skip locked);
    return null;
end $$;
create trigger pause_ends after update of not_before on turnkeeper.leases
    for each row when (old.not_before > clock_timestamp()
        and (new.not_before is null or new.not_before < old.not_before))
    execute function turnkeeper.pause_ends();
create trigger pause_goes after delete on turnkeeper.leases
    for each row when (old.not_before > clock_timestamp()) execute function turnkeeper.pause_ends();

-- The lane in which a message that begins to wait belongs: p_lane, unless the lanes of its agent were changed. Those of
-- sub-agents are not.
create function turnkeeper.lane_now(p_message turnkeeper.messages, p_lane text) returns text
stable language plpgsql as $$
begin
    return coalesce((select turnkeeper.lane_of(a.name, p_message.user_name, p_message.conversation,
        a.lane_per_conversation) from turnkeeper.agents a
        where a.name = p_message.agent and a.lanes_changed_at is not null
          and not exists (select from turnkeeper.spawned_calls c where c.message_id = p_message.id)), p_lane);
end $$;

-- The open turns of other lanes than p_lane that must not run at the same time as a message there, or its turn, after
-- the agent's lanes were changed: turns of the same conversation or, if the agent is one lane, all its turns. Of those
-- that wait outside their lanes, or go back, only one that goes back and has a lower rank is a rival.
create function turnkeeper.lane_rivals(p_message bigint, p_agent text, p_user text, p_conversation text, p_lane text,
    p_by_conversation boolean)
returns setof turnkeeper.turns stable language sql as $$
    select t.* from turnkeeper.turns t
    where t.agent = p_agent and t.ended_at is null and coalesce(t.home_lane, t.lane) <> p_lane
      and (t.home_lane is null or t.state = 'queued' and exists (
          select from turnkeeper.messages o, turnkeeper.messages m
          where o.id = t.message_id and m.id = p_message and (o.rank, o.id) < (m.rank, m.id)))
      and (t.user_name = p_user and t.conversation = p_conversation or not p_by_conversation
           and not exists (select from turnkeeper.spawned_calls c where c.message_id = t.message_id))
$$;

-- Whether a waiting message must not run yet because its agent's lanes were changed: it is still in its old lane, or a
-- rival is open.
create function turnkeeper.lane_waits(p_message bigint, p_agent text, p_user text, p_conversation text, p_lane text,
    p_by_conversation boolean)
returns boolean stable language plpgsql as $$
begin
    return not exists (select from turnkeeper.spawned_calls c
        where c.message_id = p_message)
        and (p_lane <> turnkeeper.lane_of(p_agent, p_user, p_conversation, p_by_conversation)
             or exists (select from turnkeeper.lane_rivals(p_message, p_agent, p_user, p_conversation, p_lane,
                 p_by_conversation)));
end $$;

-- Whether another transaction that has locked or changed a row, by the row's xmax, is still open. A tick passes over
-- the message of such a row, because its sender may change it in a transaction that stays open. If the answer is wrong,
-- Grant leaves the message out.
create function turnkeeper.being_changed(p_xmax xid) returns boolean stable language plpgsql as $$
declare
    near bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint; -- with the epoch, which p_xmax lacks
    ahead bigint := (p_xmax::text::bigint - near) & 4294967295;
begin
    if p_xmax = pg_current_xact_id_if_assigned()::xid then -- this tick moved it
        return false;
    end if;
    return pg_xact_status((near + ahead - case when ahead >= 2147483648 then 4294967296 else 0 end)::text::xid8) =
        'in progress';
exception when invalid_parameter_value or invalid_text_representation then -- not a transaction, but several
    return false;
end $$;

-- Move waiting messages into the current lanes of their agents, except those of sub-agents, whose lanes never change.
-- The lanes of an agent count as changed for an hour, and as long as a turn is open in an old one, or a message could
-- not be moved. One message that cannot be moved stops no other if p_apart: each is then moved in a transaction of its
-- own inside this one, which being_changed takes for another's.
create function turnkeeper.move_lanes(p_apart boolean) returns void language plpgsql as $$
declare
    a      record;
    v_left boolean;
begin
    for a in select name, lane_per_conversation, lanes_changed_at from turnkeeper.agents
        where lanes_changed_at is not null order by name for update skip locked
    loop
        perform turnkeeper.park_old(a.name, p_apart);
        v_left := not turnkeeper.move_lanes_of(a.name, a.lane_per_conversation, p_apart);
        update turnkeeper.agents u set lanes_moved_at = clock_timestamp(),
            lanes_changed_at = case when v_left or a.lanes_changed_at > clock_timestamp() - interval '1 hour'
                or exists (
                select from turnkeeper.turns t where t.agent = a.name and t.ended_at is null
                  and coalesce(t.home_lane, t.lane) <> turnkeeper.lane_of(a.name, t.user_name, t.conversation,
                      a.lane_per_conversation)
                  and not exists (select from turnkeeper.spawned_calls c where c.message_id = t.message_id))
                      then a.lanes_changed_at end
        where u.name = a.name;
    end loop;
end $$;

-- Park the turns of one agent that wait for a person in an old lane. One that cannot be parked is set aside if p_apart.
create function turnkeeper.park_old(p_agent text, p_apart boolean) returns void language plpgsql as $$
declare
    v_turn bigint;
begin
    for v_turn in select t.id from turnkeeper.turns t where t.agent = p_agent and t.state = 'waiting'
        and t.home_lane is null
        and not turnkeeper.is_aside('turn', t.id::text) order by t.id for no key update skip locked
    loop
        if not p_apart then
            perform turnkeeper.park_turn(v_turn);
            continue;
        end if;
        begin
            perform turnkeeper.park_turn(v_turn);
        exception when others then
            perform turnkeeper.put_aside_or_raise('turn', v_turn::text, sqlstate, sqlerrm);
        end;
    end loop;
end $$;

-- Move the messages of one agent, and return whether all are moved.
create function turnkeeper.move_lanes_of(p_agent text, p_by_conversation boolean,
    p_apart boolean) returns boolean language plpgsql as $$
declare
    m     record;
    v_all boolean := true;
begin
    for m in select q.id, turnkeeper.lane_of(q.agent, q.user_name, q.conversation, p_by_conversation) as lane
        from turnkeeper.waiting q
        where q.agent = p_agent
          and q.lane <> turnkeeper.lane_of(q.agent, q.user_name, q.conversation, p_by_conversation)
          and q.lane <> turnkeeper.level_lane(q.agent)
          and not exists (select from turnkeeper.spawned_calls c where c.message_id = q.id)
          and not exists (select from turnkeeper.turns p where p.agent = q.agent and p.user_name = q.user_name
              and p.conversation = q.conversation and p.home_lane is not null
              and p.ended_at is null and p.held)
        for no key update of q skip locked -- a tick must not wait for a sender who changes a message
    loop
        if turnkeeper.is_aside('message', m.id::text) then
            v_all := false;
            continue;
        end if;
        if not p_apart then
            update turnkeeper.messages q set lane = m.lane, queue_rank = turnkeeper.rank_from_now(q) where id = m.id;
            continue;
        end if;
        begin
            update turnkeeper.messages q set lane = m.lane, queue_rank = turnkeeper.rank_from_now(q)
                where id = m.id and state = 'waiting';
        exception when others then
            perform turnkeeper.put_aside_or_raise('message', m.id::text, sqlstate, sqlerrm);
            v_all := false;
        end;
    end loop;
    return v_all;
end $$;

-- Undo a tick by an exception unless all lanes that it picked were granted.
create function turnkeeper.check_granted(granted bigint, picked integer) returns void language plpgsql as $$
begin
    if granted <> picked then
        raise exception 'only % of % lanes were free: another session took one; the tick is undone', granted, picked;
    end if;
end $$;

-- Delete the rows of lanes in which nothing runs or waits.
create function turnkeeper.forget_unused(p_lanes text[]) returns void language plpgsql as $$
begin
    delete from turnkeeper.leases where lane in (
        select l.lane from turnkeeper.leases l
        where l.grant_id is null and l.lane = any(p_lanes)
          and not exists (select from turnkeeper.waiting m where m.lane = l.lane)
          and not exists (select from turnkeeper.turns t where t.lane = l.lane and t.ended_at is null)
        for update of l skip locked);
end $$;

-- Delete the rows of unused lanes, because a lane's name contains those of its user and its conversation. p_agent,
-- p_user and p_conversation as in purge.
create function turnkeeper.forget_lanes(p_agent text, p_user text, p_conversation text) returns void
language plpgsql as $$
begin
    perform turnkeeper.forget_unused(array(
        select l.lane from turnkeeper.leases l
        where l.grant_id is null and (p_agent = '' or l.agent = p_agent)
          and (p_conversation = '' or l.lane = turnkeeper.lane_of(l.agent, coalesce(p_user, ''), p_conversation, true))
          and (coalesce(p_user, '') = '' or starts_with(l.lane, turnkeeper.lane_of(l.agent, p_user, '', true)))));
end $$;

----------------------------------------------------------------------------------------------------
-- Lost workers. These functions work even if the clock is set back by any amount: a time that is
-- yet_to_come was written before that. Smaller adjustments are ignored.
----------------------------------------------------------------------------------------------------

-- Whether the time of a past event is more than 10 s in the future, because the clock was set back after it. Null:
-- there was no such event.
create function turnkeeper.yet_to_come(p_at timestamptz) returns boolean
stable language sql return p_at > statement_timestamp() + interval '10 s';

-- Whether a lease has expired. A lease that was granted in the future has: after the clock is set back, the scheduler
-- holds off for a whole lease.
create function turnkeeper.lease_over(granted_at timestamptz, lease_until timestamptz) returns boolean
stable language sql return lease_until <= statement_timestamp() or turnkeeper.yet_to_come(granted_at);

-- Whether a worker has been silent for takeover_after; never if that is 0.
create function turnkeeper.heartbeat_overdue(beat_at timestamptz, takeover_after interval) returns boolean
stable language sql return takeover_after > interval '0'
    and (beat_at + takeover_after <= statement_timestamp() or turnkeeper.yet_to_come(beat_at));

-- Since when a worker has been silent: since its newest heartbeat, or since the database was available again after
-- that.
create function turnkeeper.silent_from(beat_at timestamptz) returns timestamptz
stable language plpgsql as $$
begin
    return greatest(beat_at, (select silence_from from turnkeeper.settings));
end $$;

-- Whether a worker has stopped or is silent. Null: the worker is unknown.
create function turnkeeper.worker_gone(stopped_at timestamptz, beat_at timestamptz,
    takeover_after interval) returns boolean
stable language sql return stopped_at is not null or turnkeeper.heartbeat_overdue(beat_at, takeover_after);

-- Whether the worker's process is connected. A process holds this lock on the connection that listens for doorbells: it
-- is free once the process has died, while a process that is only slow keeps it.
create function turnkeeper.worker_present(worker text) returns boolean stable language plpgsql as $$
begin
    return exists (
        select from pg_locks
        where locktype = 'advisory' and classid = 1414218583::oid
          and objid = (hashtext(worker)::bigint & 4294967295)::oid and objsubid = 2
          and database = (select oid from pg_database where datname = current_database()) and granted);
end $$;

-- Whether a queue belongs to one worker (see jobs.QueueOf) that has stopped or is silent. A turn that was granted to
-- that worker by name would wait there until its lease ends.
create function turnkeeper.owner_gone(queue text) returns boolean stable language plpgsql as $$
begin
    return left(queue, 6) = 'turns_' and not exists (
        select from turnkeeper.worker_heartbeat h
        where queue = 'turns_' || left(encode(sha256(convert_to(h.worker_id, 'UTF8')), 'hex'), 32)
          and not turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after));
end $$;

-- Whether the run of a detached call has exceeded its deadline by more than 30 s: until then its worker should end it.
-- If the claim is in the future, its real time is unknown, and the worker's newest heartbeat decides.
create function turnkeeper.run_overdue(claimed_at timestamptz, deadline timestamptz, time_limit interval,
    beat_at timestamptz) returns boolean
stable language sql return deadline + interval '30 s' <= statement_timestamp()
    or (turnkeeper.yet_to_come(claimed_at)
        and (beat_at is null or turnkeeper.yet_to_come(beat_at)
             or beat_at + time_limit + interval '30 s' <= statement_timestamp()));

-- Whether a job was fetched so long ago that its call should have been claimed.
create function turnkeeper.fetch_overlooked(attempted_at timestamptz) returns boolean
stable language sql return attempted_at + interval '5 minutes' <= statement_timestamp()
    or turnkeeper.yet_to_come(attempted_at);

-- Whether any detached call looks lost. It is a function so that most ticks run only its first queries.
create function turnkeeper.calls_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.detached_calls where claim is null and ended_at is null)
        and not exists (select from turnkeeper.detached_calls where claim is not null and ended_at is null) then
        return false;
    end if;
    return exists (select from turnkeeper.detached_calls d left
        join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
             where d.claim is not null and d.ended_at is null
               and (d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at),
                   h.takeover_after)
                    or turnkeeper.run_overdue(d.claimed_at, d.deadline, d.time_limit, h.beat_at)))
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null
            and look_at <= statement_timestamp())
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null
            and look_at > statement_timestamp() + interval '11 minutes')
        or exists (with j as materialized (
                select r.id, r.args, r.attempted_by, r.attempted_at from turnkeeper.river_job r
                where r.state = 'running' and left(r.queue, 9) = 'detached_')
            select from j
            join turnkeeper.detached_calls d on d.turn_id = (j.args ->> 'turn_id')::bigint
                and d.round = (j.args ->> 'round')::integer
                and d.ordinal = (j.args ->> 'ordinal')::integer and d.job_id = j.id and d.claim is null
                    and d.ended_at is null
            left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
            where (turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after)
                   or turnkeeper.fetch_overlooked(j.attempted_at)));
end $$;

----------------------------------------------------------------------------------------------------
-- Health of models
----------------------------------------------------------------------------------------------------

-- The pause after the n-th failure in a row: the same rule as scheduler.Backoff.
create function turnkeeper.failure_pause(n integer) returns interval immutable language sql
return make_interval(secs => least(power(2, least(n, 7)), 120));

-- Whether no model of a chain is up.
create function turnkeeper.chain_down(models text[]) returns boolean stable language plpgsql as $$
begin
    return cardinality(models) > 0 and not exists (select from unnest(models) m (name)
        where not exists (select from turnkeeper.model_health h where h.model = m.name and h.down_since is not null));
end $$;

-- Whether an answer of one of the models changes anything: the model is down, or a message may get a pair (see
-- note_models).
create function turnkeeper.answer_matters(p_answered text[]) returns boolean stable language plpgsql as $$
begin
    return exists (select from turnkeeper.model_health where model = any(p_answered) and down_since is not null)
        or exists (select from turnkeeper.suspects where open and model = any(p_answered));
end $$;

-- Record which models answered or failed.
--
-- Models that answered are up, and lanes and turns that waited for one of them are due. p_proofs says what each answer
-- proves of messages that the model has failed: one to a turn's own request (its id) that a failure of any other
-- message was that message's own, one to a worker's probe (0) that of any message was, and a refusal (-1) nothing. It
-- makes a pair with the newest failure of each such message, once, if it comes before suspects.until.
--
-- Models that failed in p_turn are down: p_seen is the number of failures in a row that was known before the request,
-- so that concurrent failures count once; p_asked is the pause that the provider asked for; p_requests is the number of
-- requests that failed, if the request may have caused that, else 0. A message that has a pair with the model, and may
-- have caused the failure again, is not taken for a failure of the model, and other answers no longer end its pause.
--
-- The function locks leases that are not held, so a transaction that locks the turn's own lease must do that first.
create function turnkeeper.note_models(
    p_answered text[], p_proofs bigint[], p_turn bigint default null, p_failed text[] default '{}',
    p_seen integer[] default '{}', p_classes text[] default '{}',
    p_errors text[] default '{}', p_asked interval[] default '{}', p_requests integer[] default '{}'
) returns void language plpgsql as $$
declare
    back      text[];
    v_message bigint;
    i         integer;
    now       timestamptz;
begin
    if cardinality(p_failed) = 0 and not turnkeeper.answer_matters(p_answered) then
        return;
    end if;
    perform from turnkeeper.model_health where model = any(p_answered || p_failed) order by model for update;
    update turnkeeper.suspects s set pairs = s.pairs + 1, first_pair = coalesce(s.first_pair, s.failed_at),
        last_pair = s.failed_at, open = false
    where (s.message_id, s.model) in (
        select k.message_id, k.model from turnkeeper.suspects k
        where k.open and k.model = any(p_answered) and k.until >= clock_timestamp() and exists (
            select from unnest(p_answered, p_proofs) as a(model, proof)
            where a.model = k.model and a.proof >= 0 and k.message_id is distinct from (select t.message_id
                from turnkeeper.turns t where t.id = a.proof))
        for update skip locked);
    with up as (
        update turnkeeper.model_health set down_since = null, until = null, failures = 0, probe_grant = null,
            changed_at = clock_timestamp()
        where model = any(p_answered) and down_since is not null returning model
    )
    select array_agg(model) into back from up;
    if back is not null then
        update turnkeeper.leases set not_before = null, waits_for = null where lane in (
            select lane from turnkeeper.leases where not_before is not null and waits_for && back
                for update skip locked)
          and lane not in (select m.lane from turnkeeper.suspects s join turnkeeper.messages m on m.id = s.message_id
            where s.model = any(back) and s.pairs > 0);
        update turnkeeper.turns set state = 'queued', due_at = null where state = 'waiting' and id in (
            select t.id from turnkeeper.turns t where t.waits_for && back and t.state = 'waiting'
              and not exists (select from turnkeeper.suspects s where s.message_id = t.message_id
                  and s.model = any(back) and s.pairs > 0)
            for no key update skip locked);
        perform pg_notify('turnkeeper_inbox', '');
    end if;
    select t.message_id into v_message from turnkeeper.turns t where t.id = p_turn;
    for i in 1 .. cardinality(p_failed) loop
        now := clock_timestamp();
        if p_requests[i] > 0 and exists (select from turnkeeper.messages m
            where m.id = v_message and m.closed_at is null) then
            insert into turnkeeper.suspects as s (message_id, model, requests, failed_at, until)
            values (v_message, p_failed[i], p_requests[i], now, now + turnkeeper.pair_window(1))
            on conflict (message_id, model) do update set failures = s.failures + 1,
                requests = s.requests + excluded.requests,
                failed_at = now, until = now + turnkeeper.pair_window(s.failures + 1), open = true;
            continue when exists (select from turnkeeper.suspects s where s.message_id = v_message
                and s.model = p_failed[i] and s.pairs > 0);
        end if;
        insert into turnkeeper.model_health as h (model, down_since, until, failures, error_class, error, changed_at,
            failed_message)
        values (p_failed[i], now, now + greatest(turnkeeper.failure_pause(1), p_asked[i]), 1, p_classes[i], p_errors[i],
            now, v_message)
        on conflict (model) do update set
            down_since = coalesce(h.down_since, now),
            failures = case when h.failures > p_seen[i] then h.failures else h.failures + 1 end,
            until = case when h.failures > p_seen[i] then greatest(h.until, now + p_asked[i])
                    else now + greatest(turnkeeper.failure_pause(h.failures + 1), p_asked[i]) end,
            error_class = excluded.error_class, error = excluded.error, probe_grant = null, changed_at = now,
                failed_message = v_message;
        perform pg_notify('turnkeeper_inbox', '');
    end loop;
end $$;

-- How long after a message's n-th failure in a row an answer to another request makes a pair with it: its pause, and
-- two minutes for the request that begins when that is over.
create function turnkeeper.pair_window(n integer) returns interval immutable language sql
return turnkeeper.failure_pause(n) + interval '2 minutes';

-- Queue at most p_limit turns whose wait for a model is over. The caller has the scheduler's lock. Turns whose row is
-- locked are left to a later tick.
create function turnkeeper.end_model_waits(p_limit integer) returns integer language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.turns set state = 'queued', due_at = null where state = 'waiting' and id in (
        select t.id from turnkeeper.turns t where t.waits_for is not null and t.due_at <= statement_timestamp()
            and t.state = 'waiting'
        order by t.due_at limit p_limit for no key update skip locked);
    get diagnostics n = row_count;
    return n;
end $$;

----------------------------------------------------------------------------------------------------
-- Survival levels: what is left of an agent's budget of the day
----------------------------------------------------------------------------------------------------

-- The level after p_before, when p_left of p_limit is left: the same rule as survival.Next in Go.
create function turnkeeper.next_level(p_before text, p_left bigint,
    p_limit bigint) returns text immutable language sql return case
    when p_limit <= 0 then 'normal'
    when p_left < 0 or p_left * 100 < p_limit * case when p_before = 'critical' then 10 else 5 end then 'critical'
    when p_left * 100 < p_limit * case when p_before in ('low', 'critical') then 25 else 20 end then 'low'
    else 'normal' end;

create function turnkeeper.worse_level(a text, b text) returns text immutable language sql
return case when 'critical' in (a, b) then 'critical' when 'low' in (a, b) then 'low' else 'normal' end;

-- Decide the level of an agent on a day from what is left of its budget. The caller has locked the row of spend. What a
-- reservation takes counts for the calls after it, not for its own.
create function turnkeeper.note_level(p_agent text, p_day text) returns void language plpgsql as $$
begin
    update turnkeeper.spend s set level = n.level
    from turnkeeper.agents a, turnkeeper.spend b,
        lateral (select turnkeeper.worse_level(turnkeeper.next_level(b.level, a.day_tokens - b.tokens, a.day_tokens),
            turnkeeper.next_level(b.level, a.day_calls - b.calls, a.day_calls)) as level) n
    where a.name = p_agent and (b.scope, b.period) = ('agent:' || p_agent, p_day) and (s.scope, s.period) = (b.scope,
        b.period) and s.level <> n.level;
    if found then
        perform pg_notify('turnkeeper_inbox', '');
    end if;
end $$;

-- The pin that holds for an agent now; null: none.
create function turnkeeper.pin_of(p_agent text) returns turnkeeper.pinned_levels stable language plpgsql as $$
begin
    return (
        select p from turnkeeper.pinned_levels p
        where p.agent in (p_agent, '') and (p.until is null or p.until > clock_timestamp())
        order by p.agent = '' limit 1);
end $$;

-- When the next day begins, by which budgets count.
create function turnkeeper.next_day() returns timestamptz stable language plpgsql as $$
begin
    return (date_trunc('day', clock_timestamp() at time zone 'UTC') + interval '1 day') at time zone 'UTC';
end $$;

-- The level of an agent now. A new day begins at normal.
create function turnkeeper.level_of(p_agent text) returns text stable language plpgsql as $$
begin
    return coalesce(
        (turnkeeper.pin_of(p_agent)).level,
        (select s.level from turnkeeper.spend s where s.scope = 'agent:' || p_agent
            and s.period = to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD')),
        'normal');
end $$;

-- What an agent's file says happens at its level now; null: nothing.
create function turnkeeper.level_effect(a turnkeeper.agents) returns jsonb stable language sql
return case when a.levels <> '{}' then a.levels -> turnkeeper.level_of(a.name) end;

-- The models that an agent's turns ask now, in order.
create function turnkeeper.models_now(a turnkeeper.agents) returns text[] stable language plpgsql as $$
begin
    return coalesce((select array_agg(m.model order by m.i)
        from jsonb_array_elements_text(turnkeeper.level_effect(a) -> 'models') with ordinality m (model, i)), a.models);
end $$;

-- The models that an agent's turns ask at any level.
create function turnkeeper.all_models(a turnkeeper.agents) returns text[] stable language plpgsql as $$
begin
    return (select coalesce(array_agg(distinct m), '{}') from (select unnest(a.models) union all
        select jsonb_array_elements_text(e.value -> 'models') from jsonb_each(a.levels) e
        where e.value ? 'models') u (m));
end $$;

-- The least priority of messages to an agent that do not wait now; null: none waits.
create function turnkeeper.least_priority(a turnkeeper.agents) returns integer stable language sql
return (turnkeeper.level_effect(a) ->> 'min_priority')::integer;

-- Whether a message waits below a least priority: not a sub-agent's, which belongs to its parent's turn.
create function turnkeeper.waits_below(p_message bigint, p_priority integer,
    p_least integer) returns boolean stable language plpgsql as $$
begin
    return p_priority < p_least and not exists (select from turnkeeper.spawned_calls c where c.message_id = p_message);
end $$;

-- The lane in which messages wait while the survival level of their agent holds them, so that they block nothing and no
-- tick reads through them. No other lane has this name: see park_turn.
create function turnkeeper.level_lane(p_agent text) returns text immutable language sql return p_agent || '#level';

-- Move the messages that the survival levels of their agents hold out of the lanes that they would block, and those
-- that they hold no longer back, and return how many agents and messages changed. The caller has the scheduler's lock.
-- After a change of the level it moves up to 1000 messages of the agent at a time, else what it finds among the oldest
-- p_limit waiting messages, as move_held does. Those that are not moved yet are not granted: see holds_below. It leaves
-- out messages that a sender has locked.
create function turnkeeper.move_levels(p_limit integer) returns integer language plpgsql as $$
declare
    c_batch constant integer := 1000;
    a       record;
    v_ids   bigint[];
    moved   integer;
    n       integer := 0;
begin
    for a in select g.name, g.holds_below as before, g.lane_per_conversation as by_conv,
        turnkeeper.least_priority(g) as least,
        turnkeeper.level_lane(g.name) as lane from turnkeeper.agents g where g.holds_below is not null
            or g.levels <> '{}' order by g.name
    loop
        continue when a.before is null and a.least is null;
        if a.before is distinct from a.least then
            v_ids := array(select h.id from turnkeeper.waiting h where h.lane = a.lane
                and not coalesce(turnkeeper.waits_below(h.id, h.priority, a.least), false) order by h.rank,
                    h.id limit c_batch);
        else
            v_ids := array(select q.id from (select h.* from turnkeeper.waiting h where h.lane = a.lane
                order by h.rank, h.id limit p_limit) q
                where not coalesce(turnkeeper.waits_below(q.id, q.priority, a.least), false));
        end if;
        update turnkeeper.messages m set lane = turnkeeper.lane_of(m.agent, m.user_name, m.conversation, a.by_conv),
            held = false, queue_rank = turnkeeper.rank_from_now(m)
        where m.id in (select q.id from turnkeeper.messages q where q.id = any(v_ids) for no key update skip locked);
        get diagnostics moved = row_count;
        n := n + moved;
        if a.least is null then
            if not exists (select from turnkeeper.waiting m where m.lane = a.lane) then
                update turnkeeper.agents set holds_below = null where name = a.name;
                n := n + 1;
            elsif a.before > -1001 then -- there are more, or a sender has locked one: the next tick goes on
                update turnkeeper.agents set holds_below = -1001 where name = a.name;
                n := n + 1;
            end if;
            continue;
        end if;
        continue when cardinality(v_ids) = c_batch; -- there may be more to move back: the next tick goes on
        if a.before is distinct from a.least then
            update turnkeeper.messages set lane = a.lane, held = true where id in (
                select m.id from turnkeeper.waiting m where m.agent = a.name and not m.held
                    and turnkeeper.waits_below(m.id, m.priority, a.least) order by m.rank,
                        m.id limit c_batch for no key update skip locked);
            update turnkeeper.agents set holds_below = a.least where name = a.name;
            n := n + 1;
        else
            update turnkeeper.messages set lane = a.lane, held = true where id in (
                select m.id from turnkeeper.waiting m where m.id in (select w.id
                    from turnkeeper.oldest_waiting(p_limit) w) and m.agent = a.name
                    and turnkeeper.waits_below(m.id, m.priority, a.least) for no key update skip locked);
        end if;
        get diagnostics moved = row_count;
        n := n + moved;
    end loop;
    return n;
end $$;

----------------------------------------------------------------------------------------------------
-- Why a message waits
----------------------------------------------------------------------------------------------------

create type turnkeeper.blocker as (
    reason     text,          -- see docs/operating.md
    everybody  boolean,       -- it holds back all messages
    since      timestamptz,   -- null: unknown
    until      timestamptz,   -- its latest end; null: unknown
    agent      text,
    lane       text,
    message_id bigint,        -- the first one ahead
    turn_id    bigint,        -- its own turn, or the one in its way
    turn_state text,
    worker_id  text,          -- of that turn
    stopped    boolean,       -- that worker reported its stop
    silent     interval,      -- since that worker's heartbeat
    model      text,
    count      integer,
    why        text           -- an error, or the reason that an operator gave
);

-- The live workers that take turns, and their slots.
create function turnkeeper.live_workers(out workers bigint, out slots bigint) stable language plpgsql as $$
begin
    select count(*), coalesce(sum(h.slots), 0) into live_workers.workers, live_workers.slots
    from turnkeeper.worker_heartbeat h
    where h.stopped_at is null and h.slots > 0
      and not turnkeeper.heartbeat_overdue(h.beat_at, greatest(h.takeover_after, interval '15 s'));
end $$;

-- What holds all messages back: the scheduler, or the workers. A full house is not among it: see turnkeeper.blockers.
create function turnkeeper.standstill() returns setof turnkeeper.blocker stable language plpgsql as $$
declare
    s turnkeeper.settings;
    r turnkeeper.blocker;
begin
    select * into s from turnkeeper.settings;
    if s.paused_at is not null then
        r := null;
        r.reason := 'scheduler_paused'; r.everybody := true; r.since := s.paused_at; r.why := s.paused_reason;
        return next r;
    end if;
    if s.hold_until > clock_timestamp() then
        r := null;
        r.reason := 'scheduler_holds_off'; r.everybody := true; r.until := s.hold_until; r.why := s.hold_reason;
        return next r;
    end if;
    r := null;
    r.everybody := true;
    if (select w.workers from turnkeeper.live_workers() w) = 0 then
        r.reason := 'no_worker';
        return next r;
    -- Ticks that do nothing are recorded once a minute. In a new database a scheduler may be about to tick for the
    -- first time.
    elsif (case when s.last_tick_at is null
        then not exists (select from turnkeeper.worker_heartbeat h where h.stopped_at is null
            and h.started_at > clock_timestamp() - interval '30 s')
        else clock_timestamp() - s.last_tick_at > greatest(interval '3 minutes', 3 * coalesce(s.poll_interval,
            interval '0')) end)
    then
        r.reason := 'scheduler_silent'; r.since := s.last_tick_at;
        return next r;
    end if;
end $$;

-- The models of an agent, if all are down and none is due to be tried again. A down_since in the future was written
-- before the clock was set back. Overdue work is granted all the same, so that its turn ends.
create function turnkeeper.models_awaited(
    p_models text[]) returns setof turnkeeper.blocker stable language plpgsql as $$
declare
    h record;
    r turnkeeper.blocker;
begin
    if not turnkeeper.chain_down(p_models) or exists (select from turnkeeper.model_health m
            where m.model = any(p_models) and (m.until <= statement_timestamp()
                or turnkeeper.yet_to_come(m.changed_at))
              and not exists (select from turnkeeper.leases l where l.grant_id = m.probe_grant)) then
        return;
    end if;
    for h in select m.*, l.turn_id as probe_turn from unnest(p_models) with ordinality as c (model, i)
        join turnkeeper.model_health m on m.model = c.model left join turnkeeper.leases l on l.grant_id = m.probe_grant
            order by c.i
    loop
        r := null;
        r.reason := 'model_down'; r.model := h.model; r.since := h.down_since; r.until := h.until;
        r.turn_id := h.probe_turn;
        r.why := nullif(concat_ws(': ', nullif(h.error_class, ''), nullif(h.error, '')), '');
        return next r;
    end loop;
end $$;

-- The newest live worker that has not handed a turn back yet; null: there is none.
create function turnkeeper.other_worker(p_turn bigint) returns text stable language plpgsql as $$
begin
    return (
        select h.worker_id from turnkeeper.worker_heartbeat h
        where h.stopped_at is null and h.slots > 0 and not turnkeeper.heartbeat_overdue(h.beat_at,
            greatest(h.takeover_after,
            interval '15 s'))
          and not exists (select from turnkeeper.ended_grants g where g.turn_id = p_turn and g.worker_id = h.worker_id
              and g.outcome = 'handed_back')
        order by h.started_at desc limit 1);
end $$;

-- Whether a message, with its open turn if it has one, has waited for a service as long as its agent allows. The wait
-- for a person does not count.
create function turnkeeper.given_up(m turnkeeper.messages, p_turn bigint,
    p_after interval) returns boolean stable language plpgsql as $$
begin
    return coalesce(turnkeeper.service_wait(m.id) >= p_after, false);
end $$;

-- Why a queued turn waits whose next try is later; null: it does not wait, as it was handed back for a newer worker and
-- there is another one, to which it is offered at once.
create function turnkeeper.deferred_for(p_turn bigint, p_class text) returns text stable language sql return case
    when p_class = 'budget' then 'budget_spent'
    when p_class is distinct from 'needs_newer_worker' then 'deferred'
    when turnkeeper.other_worker(p_turn) is null then 'newer_worker' end;

-- What a turn itself waits for that waits or is queued. A turn that was handed back for a newer worker is offered to
-- others at once.
create function turnkeeper.turn_waits(t turnkeeper.turns) returns setof turnkeeper.blocker stable language plpgsql as $$
declare
    r    turnkeeper.blocker;
    h    record;
    asked boolean := false;
begin
    r.turn_id := t.id; r.turn_state := t.state;
    if t.state = 'queued' and t.due_at > statement_timestamp() then
        r.reason := turnkeeper.deferred_for(t.id, t.error_class);
        if r.reason is not null then
            r.until := t.due_at; r.why := t.error;
            return next r;
        end if;
    end if;
    if t.state <> 'waiting' then
        return;
    end if;
    if t.waits_for is not null then
        for h in select m.*, l.turn_id as probe_turn from unnest(t.waits_for) with ordinality as c (model, i)
            join turnkeeper.model_health m on m.model = c.model and m.down_since is not null
            left join turnkeeper.leases l on l.grant_id = m.probe_grant order by c.i
        loop
            r := null;
            r.reason := 'model_down'; r.model := h.model; r.since := h.down_since; r.until := h.until;
            r.turn_id := h.probe_turn; asked := true;
            r.why := nullif(concat_ws(': ', nullif(h.error_class, ''), nullif(h.error, '')), '');
            return next r;
        end loop;
        if not asked then -- its models are up, and have failed this message
            r.reason := 'deferred'; r.until := t.due_at; r.why := t.error;
            return next r;
        end if;
        return;
    end if;
    select count(*), min(a.opened_at), min(a.expires_at) into r.count, r.since, r.until
        from turnkeeper.asks a where a.turn_id = t.id and a.state = 'open';
    if r.count > 0 then
        r.reason := 'person'; asked := true;
        return next r;
    end if;
    r.since := null; r.until := null;
    select count(*), (array_agg(c.agent order by c.message_id))[1], min(c.message_id) into r.count, r.agent,
        r.message_id
        from turnkeeper.spawned_calls c join turnkeeper.awaited_calls w using (turn_id, round, ordinal)
        where c.turn_id = t.id and w.closed_at is null and w.arrived_at is null;
    if r.count > 0 then
        r.reason := 'sub_agents'; asked := true;
        return next r;
    end if;
    r.agent := null; r.message_id := null;
    select count(*) into r.count from turnkeeper.awaited_calls w where w.turn_id = t.id and w.closed_at is null
        and not exists (select from turnkeeper.spawned_calls c where (c.turn_id, c.round, c.ordinal) = (w.turn_id,
            w.round, w.ordinal));
    if r.count > 0 or not asked then
        r.reason := 'detached_calls';
        return next r;
    end if;
end $$;

-- What turns that wait, or are deferred, wait for: a row for each reason, with the number of turns, when the longest of
-- these waits began, and when the first of them ends at the latest. It agrees with turn_waits, and reads all turns at
-- once.
create function turnkeeper.waiting_turns(out reason text, out turns bigint, out since timestamptz,
    out until timestamptz)
returns setof record stable language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with parked as materialized (
        select t.id, t.state, t.waits_for, t.error_class, t.due_at from turnkeeper.turns t
        where t.ended_at is null and (t.state = 'waiting' or t.state = 'queued' and t.due_at > statement_timestamp())
    ), asked as (
        select a.turn_id, min(a.opened_at) as since, min(a.expires_at) as until from turnkeeper.asks a
            join parked p on p.id = a.turn_id
        where a.state = 'open' and p.state = 'waiting' and p.waits_for is null group by a.turn_id
    ), awaited as (
        select w.turn_id, c.turn_id is not null as spawned, min(w.opened_at) as since
        from turnkeeper.awaited_calls w join parked p on p.id = w.turn_id
        left join turnkeeper.spawned_calls c on (c.turn_id, c.round, c.ordinal) = (w.turn_id, w.round, w.ordinal)
        where p.state = 'waiting' and p.waits_for is null and w.closed_at is null and (c.turn_id is null
            or w.arrived_at is null)
        group by w.turn_id, c.turn_id is not null
    ), reasons (reason, since, until) as (
        select 'person', a.since, a.until from asked a
        union all
        select case when w.spawned then 'sub_agents' else 'detached_calls' end, w.since, null from awaited w
        union all
        select 'detached_calls', null, null from parked p where p.state = 'waiting' and p.waits_for is null
            and not exists (select from asked a where a.turn_id = p.id) and not exists (select from awaited w
                where w.turn_id = p.id)
        union all
        select case when h.since is null then 'deferred' else 'model_down' end, h.since, coalesce(h.until, p.due_at)
        from parked p, lateral (select min(m.down_since) as since, min(m.until) as until from turnkeeper.model_health m
            where m.model = any(p.waits_for) and m.down_since is not null) h
        where p.state = 'waiting' and p.waits_for is not null
        union all
        select d.reason, null, p.due_at from parked p, lateral (select turnkeeper.deferred_for(p.id,
            p.error_class) as reason offset 0) d
        where p.state = 'queued' and d.reason is not null
    )
    select r.reason, count(*), min(r.since), min(r.until) from reasons r group by r.reason order by r.reason;
end $$;

-- The worker of a turn that runs, and whether it is silent: it has sent no heartbeat for 15 s, or has stopped. Another
-- worker takes over at until.
create function turnkeeper.turn_holder(t turnkeeper.turns, out worker_id text, out stopped boolean, out silent interval,
    out until timestamptz)
stable language plpgsql as $$
declare
    h turnkeeper.worker_heartbeat;
begin
    if t.state <> 'running' then
        return;
    end if;
    worker_id := coalesce(nullif(t.worker_id, ''),
        (select j.attempted_by[array_upper(j.attempted_by, 1)] from turnkeeper.river_job j where j.id = t.job_id));
    select * into h from turnkeeper.worker_heartbeat b where b.worker_id = turn_holder.worker_id;
    if h.stopped_at is not null or clock_timestamp() - h.beat_at > interval '15 s' then
        stopped := h.stopped_at is not null;
        silent := greatest(clock_timestamp() - h.beat_at, interval '0');
        until := least(t.lease_until, case when h.takeover_after > interval '0' then h.beat_at + h.takeover_after end);
    end if;
end $$;

-- Why a message is not granted now. Without a row, a message that waits, or whose turn is queued, is granted by the
-- next tick that has a free slot, unless a model that is due to be tried again is tried by another one first. Of a
-- message whose turn runs, it says what keeps the turn from starting, or from being taken over.
create function turnkeeper.blockers(
    p_message bigint) returns setof turnkeeper.blocker stable language plpgsql rows 2 as $$
declare
    m       turnkeeper.messages;
    a       turnkeeper.agents;
    t       turnkeeper.turns;   -- its own open turn
    o       turnkeeper.turns;   -- one in its way
    l       turnkeeper.leases;
    h       record;
    r       turnkeeper.blocker;
    v_lane  text;
    v_now   text; -- the lane in which its turn would be if it began now
    v_kin   boolean; -- it is a sub-agent's
    v_least integer; -- of the priorities that its agent serves; null: all
    blocked boolean := false;
begin
    select * into m from turnkeeper.messages where id = p_message and state in ('waiting', 'running');
    if not found then
        return;
    end if;
    select * into a from turnkeeper.agents where name = m.agent;
    v_kin := exists (select from turnkeeper.spawned_calls c where c.message_id = m.id);
    if m.state = 'running' then
        select * into t from turnkeeper.turns where id = m.turn_id and ended_at is null;
    end if;

    -- It failed in a tick, or its own turn did.
    for h in select * from turnkeeper.set_aside s where s.next_try > statement_timestamp()
        and (s.kind, s.id) = (case when t.id is null then 'message' else 'turn' end, coalesce(t.id, m.id)::text)
    loop
        r := null;
        r.reason := 'set_aside'; r.since := h.since; r.until := h.next_try; r.why := h.error; blocked := true;
        return next r;
    end loop;
    r := null;

    if t.state = 'running' then
        select * into h from turnkeeper.turn_holder(t);
        r.turn_id := t.id; r.turn_state := t.state; r.worker_id := h.worker_id; r.lane := t.lane;
        r.since := t.granted_at;
        if h.silent is not null then
            r.reason := 'worker_silent'; r.stopped := h.stopped; r.silent := h.silent; r.until := h.until;
            return next r;
            return query select * from turnkeeper.standstill();
        elsif h.worker_id is null then
            r.reason := 'not_taken_up';
            return next r;
        end if;
        return;
    end if;

    v_lane := case when m.lane = turnkeeper.level_lane(m.agent) then turnkeeper.lane_of(m.agent, m.user_name,
        m.conversation, a.lane_per_conversation) else m.lane end;
    v_least := turnkeeper.least_priority(a);
    if t.id is not null then
        v_lane := coalesce(t.home_lane, t.lane);
        for r in select * from turnkeeper.turn_waits(t) loop
            blocked := true;
            return next r;
        end loop;
        if t.state = 'waiting' then
            return;
        end if;
    else
        r := null;
        r.agent := m.agent;
        if a.name is null then
            r.reason := 'unknown_agent'; blocked := true;
            return next r;
        elsif a.retired_at is not null and not v_kin then
            r.reason := 'agent_retired'; r.since := a.retired_at; blocked := true;
            return next r;
        end if;
        if turnkeeper.waits_below(m.id, m.priority, v_least) then
            r := null;
            r.reason := 'survival_level'; r.agent := m.agent; r.count := v_least; r.why := turnkeeper.level_of(
                m.agent); blocked := true;
            r.until := case when (turnkeeper.pin_of(m.agent)).level is null then turnkeeper.next_day()
                else (turnkeeper.pin_of(m.agent)).until end;
            return next r;
        end if;
        if not turnkeeper.is_due(m.due_at, m.accepted_at) then
            r := null;
            r.reason := 'not_due'; r.until := m.due_at; blocked := true;
            return next r;
        end if;
        -- A turn of the conversation waits outside the lane.
        for o in select * from turnkeeper.turns p where p.agent = m.agent and p.user_name = m.user_name
            and p.conversation = m.conversation
            and p.home_lane is not null and p.ended_at is null and p.held
        loop
            r := null;
            r.reason := 'conversation_held'; r.turn_id := o.id; r.turn_state := o.state; blocked := true;
            return next r;
        end loop;
    end if;

    -- The lanes of the agent were changed, except those of sub-agents.
    if a.lanes_changed_at is not null and not v_kin and (t.id is null or t.home_lane is not null) then
        for o in select * from turnkeeper.lane_rivals(m.id, m.agent, m.user_name, m.conversation, v_lane,
            a.lane_per_conversation) loop
            select * into h from turnkeeper.turn_holder(o);
            r := null;
            r.reason := 'lanes_changed'; r.since := a.lanes_changed_at; r.agent := m.agent; r.lane := coalesce(
                o.home_lane, o.lane); r.turn_id := o.id; r.turn_state := o.state;
            r.worker_id := h.worker_id; blocked := true;
            return next r;
        end loop;
        if not blocked and t.id is null and v_lane <> turnkeeper.lane_of(m.agent, m.user_name, m.conversation,
            a.lane_per_conversation) then
            r := null;
            r.reason := 'lanes_changed'; r.since := a.lanes_changed_at; r.agent := m.agent; blocked := true;
            r.lane := turnkeeper.lane_of(m.agent, m.user_name, m.conversation, a.lane_per_conversation);
            return next r;
        end if;
    end if;

    -- What is ahead in the lane, unless its own turn has it.
    if t.id is null or t.home_lane is not null then
        r := null;
        r.reason := 'earlier_message'; r.lane := v_lane;
        v_now := case when t.id is null then v_lane else turnkeeper.lane_now(m, v_lane) end;
        select count(*), (array_agg(b.id order by b.rank, b.id))[1] into r.count, r.message_id from (
            select w.* from (select distinct unnest(array[v_lane, v_now]) as lane) n, lateral (select w.id, w.rank
                from turnkeeper.waiting w
            where w.lane = n.lane and (w.rank, w.id) < (m.rank, m.id)
              and turnkeeper.is_due(w.due_at, w.accepted_at)
              and not coalesce(turnkeeper.waits_below(w.id, w.priority, v_least), false)
              and (w.held or not exists (select from turnkeeper.turns p
                  where p.agent = w.agent and p.user_name = w.user_name and p.conversation = w.conversation
                  -- the next tick moves it out of the lane
                  and p.home_lane is not null and p.ended_at is null and p.held))
            order by w.rank, w.id limit 100) w order by w.rank, w.id limit 100) b;
        if r.count > 0 then
            blocked := true;
            return next r;
        end if;
        for o in select p.* from turnkeeper.turns p join turnkeeper.messages w on w.id = p.message_id
            where p.home_lane = v_lane and p.state = 'queued' and (w.rank, w.id) < (m.rank, m.id)
            order by w.rank, w.id limit 1
        loop
            r := null;
            r.reason := 'earlier_turn'; r.lane := v_lane; r.turn_id := o.id; r.turn_state := o.state;
            r.why := o.error; blocked := true;
            return next r;
        end loop;
        select * into o from turnkeeper.turns p where p.lane = v_lane and p.ended_at is null and not m.held;
        if o.id is not null then
            select * into h from turnkeeper.turn_holder(o);
            r := null;
            r.reason := 'lane_held'; r.lane := v_lane; r.turn_id := o.id; r.turn_state := o.state;
            r.since := o.granted_at; r.worker_id := h.worker_id;
            r.until := case o.state when 'running' then o.lease_until when 'queued' then o.due_at end;
            r.why := case o.state when 'queued' then o.error end;
            blocked := true;
            return next r;
            if h.silent is not null then
                r.reason := 'worker_silent'; r.stopped := h.stopped; r.silent := h.silent; r.until := h.until;
                return next r;
            end if;
        end if;
    end if;
    select * into l from turnkeeper.leases k where k.lane = v_lane;
    if l.grant_id is not null and o.id is null then
        r := null;
        r.reason := 'lane_held'; r.lane := v_lane; r.turn_id := l.turn_id; r.turn_state := 'running';
        r.since := l.granted_at;
        r.until := l.lease_until; blocked := true;
        return next r;
    end if;
    if turnkeeper.lane_pauses(l.not_before) then
        r := null;
        r.reason := 'lane_backoff'; r.lane := v_lane; r.until := l.not_before; r.count := l.failures;
        r.why := m.last_error; blocked := true;
        return next r;
    end if;

    if a.max_running <= (select count(*) from turnkeeper.leases k where k.grant_id is not null
        and k.agent = m.agent) then
        r := null;
        r.reason := 'agent_full'; r.agent := m.agent; r.count := a.max_running; blocked := true;
        return next r;
    end if;

    for r in select * from turnkeeper.standstill() loop
        blocked := true;
        return next r;
    end loop;
    if not blocked and (select count(*) from turnkeeper.leases k where k.grant_id is not null) >= (select w.slots
        from turnkeeper.live_workers() w) then
        r := null;
        r.reason := 'no_free_slot'; r.everybody := true; r.count := (select w.slots from turnkeeper.live_workers() w);
        return next r;
    end if;
    if not turnkeeper.given_up(m, t.id, a.give_up_after) then
        return query select * from turnkeeper.models_awaited(coalesce(turnkeeper.models_now(a), '{}'));
    end if;
end $$;

comment on function turnkeeper.blockers(bigint) is
    'Why a message is not granted now: a row for each reason. No row: the next tick with a free slot grants it.';

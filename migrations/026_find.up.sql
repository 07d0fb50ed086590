-- Find messages and turns by agent, conversation and words; retire an agent; run a schedule now; and try a message again
-- that was cancelled while it waited.
-- Oldest program: 2
-- Locks: messages and turns, against writes, while indexes over all their rows are built: a minute for some million
-- messages of ordinary length.

-- Since when an agent takes no new messages. Null: it takes them.
alter table turnkeeper.agents add column retired_at timestamptz;

create index messages_agent on turnkeeper.messages (agent, id);
create index messages_conversation on turnkeeper.messages (agent, conversation, id);
-- The words of a message's first 20,000 characters: a tsvector holds a megabyte, and a body may be longer. Of closed
-- messages only: each update of an open one would write them again.
create index messages_words on turnkeeper.messages using gin (to_tsvector('pg_catalog.simple', left(body, 20000)))
    where closed_at is not null;

create index turns_agent on turnkeeper.turns (agent, id);
-- As before, and of open turns too.
drop index turnkeeper.turns_conversation;
create index turns_conversation on turnkeeper.turns (agent, conversation, id);

-- Run a schedule now, beside its slots: its message goes into the inbox with this moment as its slot. message is null
-- where there is no such schedule, or its agent's file has it no more. waiting: a message of the schedule waits already,
-- which is the run for both. It makes no difference whether the schedule is paused.
create function turnkeeper.run_schedule(p_agent text, p_name text, out message bigint, out waiting boolean) language plpgsql as $$
declare
    s record;
begin
    waiting := false;
    -- The lock makes two calls at the same time one after the other, and so one message.
    select c.conversation, c.message as body, a.retired_at, case when a.lane_per_conversation then a.name || '/' || c.conversation else a.name end as lane
        into s
    from turnkeeper.schedules c join turnkeeper.agents a on a.name = c.agent
    where c.agent = p_agent and c.name = p_name and (c.active or c.last_error is not null)
    for update of c;
    if not found then
        return;
    end if;
    if s.retired_at is not null then
        raise exception using errcode = 'TK010', message = format('agent %s is retired: its schedules do not run', quote_literal(p_agent));
    end if;
    select w.id into message from turnkeeper.messages w
    where w.state = 'waiting' and w.lane = s.lane and w.agent = p_agent and w.schedule = p_name
    order by w.id limit 1;
    if found then
        waiting := true;
        return;
    end if;
    insert into turnkeeper.messages (agent, conversation, lane, body, trigger, schedule, slot)
    values (p_agent, s.conversation, s.lane, s.body, 'schedule', p_name, clock_timestamp())
    returning id into message;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- As before, but a message whose turn was cancelled before it was ever handed out has done nothing: another try repeats
-- no effect.
create or replace function turnkeeper.retry_message(p_message bigint, p_anyway boolean, out verdict text, out message bigint) language plpgsql as $$
declare
    m       record;
    outcome text;
begin
    perform pg_advisory_xact_lock(hashtext('turnkeeper.scheduler'));
    select * into m from turnkeeper.messages where id = p_message for update;
    if not found then
        return;
    end if;
    message := p_message;
    if m.state in ('waiting', 'running') then
        verdict := m.state;
        update turnkeeper.turns t set due_at = null
        where t.message_id = p_message and t.state = 'queued' and t.due_at > clock_timestamp();
        if found then
            verdict := 'due_now';
        end if;
        if m.state = 'waiting' then
            update turnkeeper.leases set not_before = null where lane = m.lane and not_before > clock_timestamp();
            if found then
                verdict := 'due_now';
            end if;
            update turnkeeper.messages set due_at = date_trunc('second', clock_timestamp())
            where id = p_message and due_at > clock_timestamp() and due_at > accepted_at;
            if found then
                verdict := 'due_now';
            end if;
        end if;
        if verdict = 'due_now' then
            perform pg_notify('turnkeeper_inbox', '');
        end if;
        return;
    end if;
    select retried_as into message from turnkeeper.retries where message_id = p_message;
    if found then
        verdict := 'repeated';
        return;
    end if;
    message := p_message;
    select t.state into outcome from turnkeeper.turns t where t.id = m.turn_id;
    if outcome = 'succeeded' then
        verdict := 'answered';
    elsif outcome <> 'failed' and not p_anyway and not exists (select from turnkeeper.turns t where t.id = m.turn_id and t.dispatches = 0) then
        verdict := 'risky';
    else
        message := turnkeeper.enqueue(m.agent, m.body, m.conversation, null, m.priority, m.trace_parent);
        insert into turnkeeper.retries (message_id, retried_as) values (p_message, message);
        verdict := 'new';
    end if;
end $$;

-- Locks: messages and turns, against writes, while an index over the turns is built.
alter table turnkeeper.agents drop column retired_at;
drop function turnkeeper.run_schedule;

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
    elsif outcome <> 'failed' and not p_anyway then
        verdict := 'risky';
    else
        message := turnkeeper.enqueue(m.agent, m.body, m.conversation, null, m.priority, m.trace_parent);
        insert into turnkeeper.retries (message_id, retried_as) values (p_message, message);
        verdict := 'new';
    end if;
end $$;

drop index turnkeeper.turns_conversation;
create index turns_conversation on turnkeeper.turns (agent, conversation, id)
    where state in ('succeeded', 'degraded', 'failed', 'cancelled');
drop index turnkeeper.messages_agent, turnkeeper.messages_conversation, turnkeeper.messages_words, turnkeeper.turns_agent;

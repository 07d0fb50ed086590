-- Operations on messages and turns: cancel, finish, retry, run a schedule now, purge.

----------------------------------------------------------------------------------------------------
-- Cancel and finish
----------------------------------------------------------------------------------------------------

-- Request the end of a turn: p_how is cancel or finish. It does not lock the turn's row, which may be locked for as
-- long as a transactional tool runs. Whoever ends its dispatch after this commit sees the request. A repeat changes
-- nothing; a request to cancel replaces one to finish.
create function turnkeeper.ask_end(p_turn bigint, p_how text, p_reason text) returns void language plpgsql as $$
begin
    insert into turnkeeper.requested_ends as r (turn_id, how, reason)
    select id, p_how, p_reason from turnkeeper.turns where id = p_turn and ended_at is null
    on conflict (turn_id) do update set how = excluded.how, reason = excluded.reason, asked_at = excluded.asked_at
        where r.how = 'finish' and excluded.how = 'cancel';
    perform pg_notify('turnkeeper_cancels', '');
end $$;

-- The request to end a turn that counts for it, and the turn that it names: the turn itself or an earlier one of its
-- message, or, if that is to finish, one above a sub-agent's. (A turn that is cancelled cancels those below it: see
-- stop_awaiting.)
create function turnkeeper.requested_end(p_turn bigint, out how text, out turn bigint) stable language plpgsql as $$
declare
    v_turn    bigint := p_turn;
    v_message bigint;
begin
    loop
        select t.message_id into v_message from turnkeeper.turns t where t.id = v_turn;
        select r.how, r.turn_id into requested_end.how, requested_end.turn
        from turnkeeper.turns t join turnkeeper.requested_ends r on r.turn_id = t.id
        where t.message_id = v_message and (r.how = 'finish' or r.turn_id = p_turn) order by r.how,
            r.turn_id desc limit 1;
        exit when found;
        select c.turn_id into v_turn from turnkeeper.spawned_calls c where c.message_id = v_message;
        exit when not found;
    end loop;
end $$;

-- Whether a turn that is to finish waits for what its end stops: for a person, or for a detached call without an
-- effect. Its worker did not know of the request.
create function turnkeeper.waits_in_vain(p_turn bigint) returns boolean stable language plpgsql as $$
begin
    return (exists (select from turnkeeper.asks a where a.turn_id = p_turn and a.state = 'open')
            or exists (select from turnkeeper.awaited_calls a join turnkeeper.calls c using (turn_id, round, ordinal)
                where a.turn_id = p_turn and a.closed_at is null and c.effect = 'none'))
        and (select e.how from turnkeeper.requested_end(p_turn) e) = 'finish';
end $$;

-- Let a turn that is to finish go on to its last round, if no worker runs it: withdraw its asks, and queue it. A turn
-- that waits for a model waits on: it is the model that is to answer. The caller has locked the turn's row.
create function turnkeeper.hurry_turn(p_turn bigint) returns void language plpgsql as $$
begin
    perform turnkeeper.withdraw_asks(p_turn);
    update turnkeeper.turns t set state = 'queued', due_at = null
    where t.id = p_turn and (t.state = 'waiting' and t.waits_for is null or t.state = 'queued'
        and t.due_at is not null);
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- Carry out a request to end a turn, if no worker runs it: close it, or let it go on to its last round. state is its
-- state afterwards; null: no such turn. again: its state changed in between, call the function again. The scheduler's
-- lock keeps a tick from granting it.
create function turnkeeper.settle_end(p_turn bigint, out state text, out done boolean,
    out again boolean) language plpgsql as $$
declare
    free boolean;
    how  text;
begin
    done := false;
    again := false;
    select t.state in ('queued', 'waiting') into free from turnkeeper.turns t where t.id = p_turn;
    if free then
        -- Nothing is granted while the scheduler's lock is held. So wait for the row before that, for example for an
        -- answer to an ask in a transaction that is still open. The exception gives the row back, because whoever has
        -- the scheduler's lock may wait for it.
        begin
            perform from turnkeeper.turns t where t.id = p_turn for update;
            raise exception using errcode = 'TK000';
        exception when sqlstate 'TK000' then null;
        end;
        perform turnkeeper.lock_scheduler();
    end if;
    select t.state into settle_end.state from turnkeeper.turns t where t.id = p_turn for update;
    if settle_end.state in ('queued', 'waiting') then
        select e.how into how from turnkeeper.requested_end(p_turn) e;
        if not free then
            again := true;
        elsif how = 'cancel' then
            perform turnkeeper.close_cancelled(p_turn);
            settle_end.state := 'cancelled';
            done := true;
        elsif how = 'finish' then
            perform turnkeeper.hurry_turn(p_turn);
            done := true;
        end if;
    end if;
end $$;

-- Take the scheduler's lock for a change of a message. Nothing is granted while it is held. So wait for the message's
-- row before that: its sender may change it in a transaction that stays open. The exception gives the row back, because
-- a tick skips messages that are locked. The caller must not wait for the row again.
create function turnkeeper.lock_scheduler_for(p_message bigint) returns void language plpgsql as $$
begin
    begin
        perform from turnkeeper.messages m where m.id = p_message for update;
        raise exception using errcode = 'TK000';
    exception when sqlstate 'TK000' then null;
    end;
    perform turnkeeper.lock_scheduler();
end $$;

-- Cancel a waiting message. turn is 0 if it does not wait.
create function turnkeeper.cancel_message(p_message bigint, p_reason text, out state text,
    out turn bigint) language plpgsql as $$
begin
    turn := 0;
    select m.state into cancel_message.state from turnkeeper.messages m where m.id = p_message;
    if cancel_message.state is distinct from 'waiting' then
        return;
    end if;
    perform turnkeeper.lock_scheduler_for(p_message);
    select m.state into cancel_message.state from turnkeeper.messages m where m.id = p_message for update nowait;
    if cancel_message.state = 'waiting' then
        turn := turnkeeper.cancel_waiting(p_message, p_reason);
        cancel_message.state := 'cancelled';
    end if;
end $$;

-- Close a waiting message as cancelled, with a turn that was never granted, so that it has a reply and a stream and
-- appears in every list. The caller has locked the message.
create function turnkeeper.cancel_waiting(p_message bigint, p_reason text) returns bigint language plpgsql as $$
declare
    new_turn bigint;
begin
    -- The turn is inserted as closed, because its lane may have an open turn.
    insert into turnkeeper.turns (message_id, attempt, agent, user_name, conversation, lane, trigger, definition_hash,
        state, stop_reason, ended_at, token)
    select m.id, m.attempts + 1, m.agent, m.user_name, m.conversation, m.lane, m.trigger, a.definition_hash,
        'cancelled', 'cancelled', clock_timestamp(), 0
    from turnkeeper.messages m join turnkeeper.agents a on a.name = m.agent
    where m.id = p_message
    returning turns.id into new_turn;
    update turnkeeper.messages m set state = 'running', attempts = attempts + 1, turn_id = new_turn, dropped_at = null
        where m.id = p_message;
    insert into turnkeeper.requested_ends (turn_id, reason) values (new_turn, p_reason);
    perform turnkeeper.close_cancelled(new_turn);
    return new_turn;
end $$;

-- What a turn's reply says if it is cancelled, and p_open is the number of the event with which its unfinished round
-- began (0: none): that, and what the model had written until then. Whoever watched has seen it. A turn that knows
-- private content leaves it out, because the setting reply_sink is not known here; the reply of a sub-agent goes to its
-- parent, with its labels.
create function turnkeeper.cancelled_reply(p_turn bigint, p_open bigint) returns text stable language plpgsql as $$
declare
    v_message bigint;
    said      text;
begin
    select t.message_id into v_message from turnkeeper.turns t where t.id = p_turn;
    if exists (select from turnkeeper.turns t join turnkeeper.labels l on l.kind = 'turn' and l.id = t.id
        where t.message_id = v_message and l.label = 'private')
        and not exists (select from turnkeeper.spawned_calls c where c.message_id = v_message) then
        return 'This turn was cancelled.';
    end if;
    select string_agg(s.text, E'\n\n' order by s.n) into said from (
        select r.round as n, r.text from turnkeeper.rounds r where r.turn_id = p_turn
        union all
        select 1000000, string_agg(d.data ->> 'text', '' order by d.seq) from turnkeeper.turn_events d
        where p_open > 0 and d.turn_id = p_turn and d.type = 'block_delta' and d.seq > p_open and exists (select
            from turnkeeper.turn_events b
            where b.turn_id = p_turn and b.type = 'block_start' and b.block = d.block and b.seq > p_open
                and b.data ->> 'kind' = 'text')
    ) s where btrim(s.text, E' \t\r\n') <> '';
    return 'This turn was cancelled.' || coalesce(E'\n\nBefore that it had written:\n\n' || said, '');
end $$;

-- Close a turn that no worker runs as cancelled. The caller has locked its row. The texts are the same as in package
-- agentturn, for running turns.
create function turnkeeper.close_cancelled(p_turn bigint) returns void language plpgsql as $$
declare
    not_run  constant text := 'cancelled: the turn ended before this call was run.';
    unknown  constant text := 'outcome unknown: the worker that ran this call was lost. It may or may not have happened. '
        'It is not run again; check before you rely on it.';
    ended    constant text := 'cancelled: the turn ended before this call had';
    maybe    constant text := '. It may or may not have happened.';
    t        record;
    r        record;
    at       timestamptz;
    began    bigint := 0; -- the event with which the unfinished round began
    reply    text;
    accepted timestamptz;
begin
    perform turnkeeper.settle_calls(p_turn, unknown, not_run, not_run, '', ended || '.', ended || maybe);

    select * into t from turnkeeper.turns where id = p_turn;
    -- Void what a lost worker streamed of a round that did not end.
    select coalesce(max(round) filter (where type = 'round_start'), 0) as round,
        coalesce(max(seq) filter (where type = 'round_start'), 0) as began,
        coalesce(max(seq) filter (where type = 'round_rollback'), 0) as voided into r
    from turnkeeper.turn_events where turn_id = p_turn;
    if r.round > t.inference_rounds and r.began > r.voided then
        began := r.began;
        perform turnkeeper.add_events(p_turn, '{round_rollback}', array[r.round], '{0}',
            '{"{\"reason\":\"the turn was cancelled\"}"}');
    end if;
    reply := case when t.trigger = 'message' then turnkeeper.cancelled_reply(p_turn, began) else '' end;
    perform turnkeeper.add_events(p_turn, '{turn_error}', '{0}', '{0}', array[json_strip_nulls(json_build_object(
        'state', 'cancelled', 'stop_reason', 'cancelled', 'rounds', t.inference_rounds,
        'calls', (select count(*) from turnkeeper.calls where turn_id = p_turn), 'reply', nullif(reply, '')))::text]);
    at := greatest(clock_timestamp(), t.created_at, t.granted_at);
    update turnkeeper.turns set state = 'cancelled', stop_reason = 'cancelled', ended_at = at, due_at = null,
        error_class = null, error = null,
        inner_dialogue = case when t.trigger <> 'message' then
            (select string_agg(text, E'\n\n' order by round) from turnkeeper.rounds
                where turn_id = p_turn and btrim(text, E' \t\r\n') <> '') end,
        last_seq = (select last_seq from turnkeeper.newest_write(p_turn))
    where id = p_turn;
    perform turnkeeper.withdraw_asks(p_turn);
    delete from turnkeeper.suspects where message_id = t.message_id;
    update turnkeeper.messages set state = 'cancelled', closed_at = greatest(at, accepted_at), last_error = null
    where id = t.message_id returning accepted_at into accepted;
    if reply <> '' then
        insert into turnkeeper.replies (message_id, turn_id, agent, user_name, conversation, outcome, body, created_at)
        values (t.message_id, p_turn, t.agent, t.user_name, t.conversation, 'cancelled', reply, greatest(at, accepted));
    end if;
    perform pg_notify('turnkeeper_inbox', ''), pg_notify('turnkeeper_turns', '');
end $$;

----------------------------------------------------------------------------------------------------
-- Retry
----------------------------------------------------------------------------------------------------

-- Retry a message: a closed one is put into the inbox as a new message, at most once; one that waits for its time
-- becomes due now. verdict: new, repeated or due_now; or the reason for a refusal: waiting, running, succeeded, risky
-- (effects may be repeated; p_anyway overrides this); null: no such message. A turn that was cancelled before its first
-- grant has had no effects.
create function turnkeeper.retry_message(p_message bigint, p_anyway boolean, out verdict text,
    out message bigint) language plpgsql as $$
declare
    m       record;
    outcome text;
begin
    perform turnkeeper.lock_scheduler_for(p_message);
    select * into m from turnkeeper.messages where id = p_message for update nowait;
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
        update turnkeeper.turns t set state = 'queued', due_at = null
        where t.message_id = p_message and t.state = 'waiting' and t.waits_for is not null;
        if found then
            verdict := 'due_now';
        end if;
        if m.state = 'waiting' then
            update turnkeeper.leases set not_before = null where lane = m.lane and not_before > clock_timestamp();
            if found then
                verdict := 'due_now';
            end if;
            update turnkeeper.messages set due_at = date_trunc('second', clock_timestamp()),
                queue_rank = turnkeeper.rank_of(date_trunc('second', clock_timestamp()), priority)
            where id = p_message and due_at > clock_timestamp() and due_at > accepted_at;
            if found then
                verdict := 'due_now';
            end if;
        end if;
        update turnkeeper.set_aside set next_try = clock_timestamp()
        where next_try > clock_timestamp() and (kind = 'message' and id = p_message::text
            or kind = 'turn' and id in (select t.id::text from turnkeeper.turns t where t.message_id = p_message));
        if found then
            verdict := 'due_now';
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
        verdict := 'succeeded';
    elsif outcome <> 'failed' and not p_anyway and not exists (select from turnkeeper.turns t
        where t.id = m.turn_id and t.dispatches = 0) then
        verdict := 'risky';
    else
        message := turnkeeper.enqueue_by(m.sent_by, true, m.agent, m.user_name, m.body, m.conversation, null,
            m.priority, m.trace_parent, null);
        insert into turnkeeper.retries (message_id, retried_as) values (p_message, message);
        verdict := 'new';
    end if;
end $$;

----------------------------------------------------------------------------------------------------
-- Run a schedule now
----------------------------------------------------------------------------------------------------

-- Run a schedule now, in addition to its slots and even if it is paused: its message is put into the inbox with the
-- current time as its slot. message is null if there is no such schedule, or its agent's file no longer has it.
-- waiting: a message of the schedule already waits, and is returned instead.
create function turnkeeper.run_schedule(p_agent text, p_name text, out message bigint,
    out waiting boolean) language plpgsql as $$
declare
    s record;
begin
    waiting := false;
    -- The lock serialises concurrent calls, so that they insert one message.
    select c.conversation, c.message as body, a.retired_at, not c.active and c.last_error is null as ended,
        turnkeeper.lane_of(a.name, '', c.conversation, a.lane_per_conversation) as lane
        into s
    from turnkeeper.schedules c join turnkeeper.agents a on a.name = c.agent
    where c.agent = p_agent and c.name = p_name
    for update of c;
    if not found then
        return;
    end if;
    if s.retired_at is not null then
        raise exception using errcode = 'TK010', message = format('agent %s is retired: its schedules do not run',
            quote_literal(p_agent));
    end if;
    if s.ended then
        raise exception using errcode = 'TK008',
            message = format('schedule %s/%s has ended: the file of agent %1$s no longer has it', p_agent, p_name);
    end if;
    select w.id into message from turnkeeper.waiting w
    where w.lane in (s.lane, turnkeeper.held_lane(p_agent, '', s.conversation), turnkeeper.level_lane(p_agent))
        and w.agent = p_agent and w.schedule = p_name
    order by w.id limit 1;
    if found then
        waiting := true;
        return;
    end if;
    insert into turnkeeper.messages (agent, user_name, conversation, lane, body, trigger, schedule, slot, sent_by)
    values (p_agent, '', s.conversation, s.lane, s.body, 'schedule', p_name, clock_timestamp(), 'schedule:' || p_name)
    returning id into message;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

----------------------------------------------------------------------------------------------------
-- Purge
----------------------------------------------------------------------------------------------------

-- Roughly the id of the first message that was accepted after a time: see first_turn. A message that was closed by then
-- has a lower id, so that a purge by age does not look at those that are younger.
create function turnkeeper.first_message(p_at timestamptz) returns bigint stable language plpgsql as $$
begin
    return (
        with recursive half (low, high) as (
            select coalesce(min(id), 1), coalesce(max(id), 0) + 1 from turnkeeper.messages
            union all
            select case when m.accepted_at <= p_at then m.id + 1 else h.low end,
                case when m.accepted_at <= p_at then h.high else h.middle end
            from (select low, high, (low + high) / 2 as middle from half where low < high) h
            left join lateral (select id, accepted_at from turnkeeper.messages where id >= h.middle and id < h.high
                order by id limit 1) m on true
        )
        select low from half where low >= high);
end $$;

-- Delete closed messages, at most p_limit after an id, with everything that belongs to them in every table, including
-- River's; p_dry: only count. Messages with an undelivered reply to a webhook are kept unless p_undelivered. Empty
-- texts and null do not restrict, but an empty p_user means the messages without a user. An agent's definition, notes,
-- schedules, daily spend and the leases of lanes in use are kept; so are parts of requests, which contain nothing of a
-- conversation and which a request being written may share. last is the id to continue after; null: all were looked at,
-- and the leases of unused lanes are deleted. A message that cannot be deleted is set aside and counted in failed, and
-- stops no other.
create function turnkeeper.purge(
    p_agent text, p_user text, p_conversation text, p_before timestamptz, p_after bigint, p_limit integer,
    p_dry boolean,
    p_undelivered boolean,
    out messages bigint, out turns bigint, out outputs bigint, out failed bigint, out last bigint
) language plpgsql as $$
declare
    m_ids  bigint[];
    v_id   bigint;
    v_end  bigint := case when p_before is null then 9223372036854775807 else turnkeeper.first_message(p_before) end;
    counts record;
begin
    if p_dry then
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.id < v_end and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_user is null or m.user_name = p_user) and (p_conversation = '' or m.conversation = p_conversation)
                  and (p_before is null or m.closed_at <= p_before)
              and (p_undelivered or not exists (select from turnkeeper.replies r
                  join turnkeeper.webhook_deliveries d on d.reply_id = r.id
                    where r.message_id = m.id and d.state = 'pending'))
            order by m.id limit p_limit) b;
    else
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.id < v_end and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_user is null or m.user_name = p_user) and (p_conversation = '' or m.conversation = p_conversation)
                  and (p_before is null or m.closed_at <= p_before)
              and (p_undelivered or not exists (select from turnkeeper.replies r
                  join turnkeeper.webhook_deliveries d on d.reply_id = r.id
                    where r.message_id = m.id and d.state = 'pending'))
            order by m.id limit p_limit for update skip locked) b;
    end if;
    messages := 0;
    turns := 0;
    outputs := 0;
    failed := 0;
    last := m_ids[cardinality(m_ids)];
    if p_dry then
        select coalesce(cardinality(m_ids), 0), count(*), coalesce(sum((select count(*) from turnkeeper.outputs o
            where o.turn_id = t.id)), 0)
        into messages, turns, outputs from turnkeeper.turns t where t.message_id = any(m_ids);
        return;
    end if;
    if last is null then
        perform turnkeeper.forget_lanes(p_agent, p_user, p_conversation);
        -- Those that no agent has had a message of. A token that is bound to no user may have named him in the
        -- metadata.
        delete from turnkeeper.api_conversations c where c.used_at is null
            and (c.id = p_conversation or p_conversation = '' and p_user <> '' and (c.user_name = p_user
                or c.user_name = '' and exists (select from jsonb_each_text(c.metadata) d
                    where p_user in (d.key, d.value))));
        delete from turnkeeper.pinned_levels where until <= clock_timestamp() and p_agent in ('', agent);
        return;
    end if;
    begin
        select p.turns, p.outputs into turns, outputs from turnkeeper.purge_messages(m_ids) p;
        messages := cardinality(m_ids);
        return;
    exception when others then
        if not turnkeeper.belongs_to_row(sqlstate) then
            raise;
        end if;
    end;
    foreach v_id in array m_ids loop
        begin
            select * into counts from turnkeeper.purge_messages(array[v_id]);
            messages := messages + 1;
            turns := turns + counts.turns;
            outputs := outputs + counts.outputs;
        exception when others then
            perform turnkeeper.put_aside_or_raise('purge', v_id::text, sqlstate, sqlerrm);
            failed := failed + 1;
        end;
    end loop;
end $$;

-- Delete closed messages, whose rows the caller has locked, with everything that belongs to them.
create function turnkeeper.purge_messages(m_ids bigint[], out turns bigint, out outputs bigint) language plpgsql as $$
declare
    t_ids bigint[];
    o_ids text[];
begin
    select coalesce(array_agg(t.id), '{}') into t_ids from turnkeeper.turns t where t.message_id = any(m_ids);
    select coalesce(array_agg(o.id), '{}') into o_ids from turnkeeper.outputs o where o.turn_id = any(t_ids);
    turns := cardinality(t_ids);
    outputs := cardinality(o_ids);
    delete from turnkeeper.detached_calls where turn_id = any(t_ids);
    delete from turnkeeper.awaited_calls where turn_id = any(t_ids);
    delete from turnkeeper.call_starts where turn_id = any(t_ids);
    delete from turnkeeper.webhook_deliveries where ask_id in (select a.id from turnkeeper.asks a
        where a.turn_id = any(t_ids));
    delete from turnkeeper.asks where turn_id = any(t_ids);
    delete from turnkeeper.call_gates where turn_id = any(t_ids);
    delete from turnkeeper.late_results where turn_id = any(t_ids);
    delete from turnkeeper.failed_attempts where turn_id = any(t_ids);
    delete from turnkeeper.output_chunks where output_id = any(o_ids);
    delete from turnkeeper.outputs where turn_id = any(t_ids);
    delete from turnkeeper.journal where turn_id = any(t_ids);
    delete from turnkeeper.webhook_deliveries where reply_id in (select r.id from turnkeeper.replies r
        where r.message_id = any(m_ids));
    delete from turnkeeper.replies where message_id = any(m_ids);
    delete from turnkeeper.extractions where turn_id = any(t_ids);
    delete from turnkeeper.spend where scope in (select 'turn:' || id from unnest(t_ids) id) and period = '';
    delete from turnkeeper.spend_reservations where turn_id = any(t_ids);
    delete from turnkeeper.ended_grants where turn_id = any(t_ids);
    delete from turnkeeper.requested_ends where turn_id = any(t_ids);
    delete from turnkeeper.river_job where kind in ('AgentTurn', 'DetachedCall') and finalized_at is not null
        and (args ->> 'turn_id')::bigint = any(t_ids);
    delete from turnkeeper.turns where id = any(t_ids);
    delete from turnkeeper.suspects where message_id = any(m_ids);
    delete from turnkeeper.retries where message_id = any(m_ids) or retried_as = any(m_ids);
    -- A summary is deleted with the turn that made it, unless a stored request uses it or an
    -- open turn may.
    delete from turnkeeper.summaries s
    where (s.agent, s.user_name, s.conversation) in (select m.agent, m.user_name, m.conversation
        from turnkeeper.messages m where m.id = any(m_ids))
      and not exists (select from turnkeeper.turns t where t.id = s.turn_id)
      and not exists (select from turnkeeper.turns t where t.agent = s.agent and t.user_name = s.user_name
          and t.conversation = s.conversation
            and t.ended_at is null)
      and not exists (select from turnkeeper.turns t join turnkeeper.journal_answers j on j.turn_id = t.id
            where t.agent = s.agent and t.user_name = s.user_name and t.conversation = s.conversation and t.id > s.up_to
              and (j.request -> 'start' ->> 'summary')::bigint = s.up_to);
    delete from turnkeeper.api_conversations c using turnkeeper.messages m
    where m.id = any(m_ids) and c.id = m.conversation and c.agent = m.agent and c.user_name = m.user_name
        and not exists (select from turnkeeper.messages o
        where o.agent = m.agent and o.user_name = m.user_name and o.conversation = m.conversation
            and o.id <> all(m_ids));
    delete from turnkeeper.messages where id = any(m_ids);
    if exists (select from turnkeeper.set_aside) then -- whose errors may quote them
        delete from turnkeeper.set_aside where kind in ('message', 'purge') and id = any(m_ids::text[])
            or kind = 'turn' and id = any(t_ids::text[]) or kind in ('call', 'sub_agent') and split_part(id, '/',
                1) = any(t_ids::text[]);
        perform turnkeeper.forget_aside();
    end if;
end $$;

----------------------------------------------------------------------------------------------------
-- Retention of a class: of the outputs, the events or the leases of closed turns, which go before their messages
----------------------------------------------------------------------------------------------------

-- The turns with the oldest outputs, events or leases that may go: their messages were closed at p_before or earlier.
-- It locks the messages, as purge does, and leaves out those that are locked, and those that are set aside.
create function turnkeeper.expirable(p_class text, p_before timestamptz,
    p_limit integer) returns bigint[] language plpgsql as $$
declare
    t_ids bigint[];
begin
    if p_class = 'outputs' then
        select array_agg(distinct b.id) into t_ids from (
            select t.id from turnkeeper.outputs o join turnkeeper.turns t on t.id = o.turn_id
                join turnkeeper.messages m on m.id = t.message_id
            where o.expired_at is null and o.created_at <= p_before and m.closed_at <= p_before
                and not turnkeeper.purge_is_aside(m.id)
            order by o.created_at limit p_limit for update of m skip locked) b;
    elsif p_class = 'events' then
        select array_agg(b.id) into t_ids from (
            select t.id from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id
            where t.ended_at is not null and t.events_expired_at is null and t.ended_at <= p_before
                and m.closed_at <= p_before
              and not turnkeeper.purge_is_aside(m.id)
            order by t.ended_at limit p_limit for update of m skip locked) b;
    elsif p_class = 'leases' then
        select array_agg(b.id) into t_ids from (
            select t.id from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id
            where t.ended_at is not null and t.leases_expired_at is null and t.ended_at <= p_before
                and m.closed_at <= p_before
              and not turnkeeper.purge_is_aside(m.id)
            order by t.ended_at limit p_limit for update of m skip locked) b;
    else
        raise exception 'unknown class %', quote_literal(p_class);
    end if;
    return coalesce(t_ids, '{}');
end $$;

-- Whether a message, or what belongs to it, could not be deleted a short time ago.
create function turnkeeper.purge_is_aside(p_message bigint) returns boolean stable language plpgsql as $$
begin
    return exists (select from turnkeeper.set_aside s where s.kind = 'purge' and s.id = p_message::text
        and s.next_try > clock_timestamp());
end $$;

-- Delete the content of the outputs of turns. The rows stay, so that a lookup by id reports that the output has
-- expired.
create function turnkeeper.expire_outputs(t_ids bigint[]) returns void language plpgsql as $$
begin
    delete from turnkeeper.output_chunks c where c.output_id in (
        select o.id from turnkeeper.outputs o where o.turn_id = any(t_ids) and o.expired_at is null);
    update turnkeeper.outputs o set expired_at = clock_timestamp(), chunked = false,
        content = case when o.content is not null then '' end, bytes = case when o.bytes is not null then ''::bytea end
    where o.turn_id = any(t_ids) and o.expired_at is null;
    delete from turnkeeper.extractions where turn_id = any(t_ids); -- parts of outputs
end $$;

-- Delete the events of turns but the last, which says how the turn ended. The one before it becomes events_expired,
-- which says which events were deleted: so whoever goes on after an older event learns of it, and of the end.
create function turnkeeper.expire_events(t_ids bigint[]) returns void language plpgsql as $$
begin
    update turnkeeper.journal j set types = '{}', rounds = '{}', blocks = '{}', data = '{}'
    from turnkeeper.turns t
    where t.id = any(t_ids) and j.turn_id = t.id and cardinality(j.types) > 0 and j.last_seq < t.last_seq;
    update turnkeeper.journal j set seq = t.last_seq - 1,
        types = array['events_expired', j.types[cardinality(j.types)]],
        rounds = array[0, j.rounds[cardinality(j.types)]],
        blocks = array[0, j.blocks[cardinality(j.types)]],
        data = array[format('{"first":1,"last":%s}', t.last_seq - 1), j.data[cardinality(j.types)]]
    from turnkeeper.turns t
    where t.id = any(t_ids) and j.turn_id = t.id and cardinality(j.types) > 0 and j.last_seq = t.last_seq
        and t.last_seq > 1;
    update turnkeeper.turns set events_expired_at = clock_timestamp() where id = any(t_ids);
end $$;

-- Delete the ended grants of turns, and the rows of their lanes if nothing runs or waits there.
create function turnkeeper.expire_leases(t_ids bigint[]) returns void language plpgsql as $$
declare
    lanes text[];
begin
    with gone as (delete from turnkeeper.ended_grants where turn_id = any(t_ids) returning lane)
    select array_agg(distinct lane) into lanes from gone;
    update turnkeeper.turns set leases_expired_at = clock_timestamp() where id = any(t_ids);
    perform turnkeeper.forget_unused(lanes);
end $$;

create function turnkeeper.expire_turns(p_class text, t_ids bigint[]) returns void language plpgsql as $$
begin
    if p_class = 'outputs' then
        perform turnkeeper.expire_outputs(t_ids);
    elsif p_class = 'events' then
        perform turnkeeper.expire_events(t_ids);
    else
        perform turnkeeper.expire_leases(t_ids);
    end if;
    delete from turnkeeper.set_aside s using turnkeeper.turns t where t.id = any(t_ids) and s.kind = 'purge'
        and s.id = t.message_id::text;
end $$;

-- Delete one class of what is stored of up to p_limit turns whose messages were closed at p_before or earlier: outputs,
-- events or leases. done is the number of turns; repeat until done and failed are 0. The message of a turn at which it
-- fails is set aside and counted in failed, and stops no other.
create function turnkeeper.expire(p_class text, p_before timestamptz, p_limit integer, out done bigint,
    out failed bigint) language plpgsql as $$
declare
    t_ids bigint[] := turnkeeper.expirable(p_class, p_before, p_limit);
    v_id  bigint;
begin
    done := 0;
    failed := 0;
    if t_ids = '{}' then
        return;
    end if;
    begin
        perform turnkeeper.expire_turns(p_class, t_ids);
        done := cardinality(t_ids);
        return;
    exception when others then
        if not turnkeeper.belongs_to_row(sqlstate) then
            raise;
        end if;
    end;
    foreach v_id in array t_ids loop
        begin
            perform turnkeeper.expire_turns(p_class, array[v_id]);
            done := done + 1;
        exception when others then
            perform turnkeeper.put_aside_or_raise('purge', (select t.message_id::text from turnkeeper.turns t
                where t.id = v_id), sqlstate, sqlerrm);
            failed := failed + 1;
        end;
    end loop;
end $$;

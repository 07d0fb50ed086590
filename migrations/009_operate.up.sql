-- Cancelling turns and messages, trying messages again, and purging old ones.
-- Oldest program: 2
-- Locks: summaries and turns, for a moment, to drop two keys; spend_reservations while an index is made. One function is replaced.

-- Turns that somebody asked to be cancelled. The row stays with the turn: it says who
-- may close it, for as long as it is open, and afterwards why it ended.
create table turnkeeper.cancellations (
    turn_id  bigint primary key,
    reason   text not null default '',
    asked_at timestamptz not null default clock_timestamp()
);

-- Messages that were put into the inbox again. A message is tried again once, and has
-- one reply; the new one has its own.
create table turnkeeper.retries (
    message_id bigint primary key,
    retried_as bigint not null unique,
    asked_at   timestamptz not null default clock_timestamp()
);

-- A purge takes turns away whose conversation goes on from a summary.
alter table turnkeeper.summaries drop constraint summaries_up_to_fkey, drop constraint summaries_turn_id_fkey;

-- Close a turn that nobody runs as cancelled. The caller has its row's lock. The texts
-- are those that a worker writes (agentturn: finish.go, elsewhere.go, lost.go).
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
    reply    text;
    accepted timestamptz;
begin
    update turnkeeper.calls c set state = a.state, preview = a.preview, duration_ms = a.duration_ms,
        ended_at = greatest(clock_timestamp(), c.started_at)
    from turnkeeper.awaited_calls a
    where c.turn_id = p_turn and (a.turn_id, a.round, a.ordinal) = (c.turn_id, c.round, c.ordinal)
      and a.arrived_at is not null and a.closed_at is null and c.state = 'running';
    update turnkeeper.calls set state = 'cancelled', ended_at = greatest(clock_timestamp(), started_at),
        preview = ended || case when effect = 'none' then '.' else maybe end
    where turn_id = p_turn and state = 'running' and elsewhere;
    update turnkeeper.calls set state = case when state = 'planned' then 'cancelled' else 'unknown' end,
        ended_at = greatest(clock_timestamp(), started_at), shown = case when state = 'planned' then not_run else unknown end,
        preview = left(case when state = 'planned' then not_run else unknown end, 220)
    where turn_id = p_turn and state in ('planned', 'started', 'running');

    select * into t from turnkeeper.turns where id = p_turn;
    -- What a lost worker had streamed of a round that never ended is void.
    select coalesce(max(round) filter (where type = 'round_start'), 0) as round,
        coalesce(max(seq) filter (where type = 'round_start'), 0) as began,
        coalesce(max(seq) filter (where type = 'round_rollback'), 0) as voided into r
    from turnkeeper.turn_events where turn_id = p_turn;
    if r.round > t.inference_rounds and r.began > r.voided then
        perform turnkeeper.tell(p_turn, 'round_rollback', r.round, json_build_object('reason', 'the turn was cancelled'));
    end if;
    reply := case when t.trigger = 'message' then 'This turn was cancelled.' else '' end;
    perform turnkeeper.tell(p_turn, 'turn_error', 0, json_strip_nulls(json_build_object('state', 'cancelled', 'stop_reason', 'cancelled',
        'rounds', t.inference_rounds, 'calls', (select count(*) from turnkeeper.calls where turn_id = p_turn), 'reply', nullif(reply, ''))));
    at := greatest(clock_timestamp(), t.created_at, t.granted_at);
    update turnkeeper.turns set state = 'cancelled', stop_reason = 'cancelled', ended_at = at, due_at = null,
        error_class = null, error = null,
        inner_dialogue = case when t.trigger <> 'message' then
            (select string_agg(text, E'\n\n' order by round) from turnkeeper.rounds where turn_id = p_turn and btrim(text, E' \t\r\n') <> '') end
    where id = p_turn;
    update turnkeeper.messages set state = 'cancelled', closed_at = greatest(at, accepted_at), last_error = null
    where id = t.message_id returning accepted_at into accepted;
    if reply <> '' then
        insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body, created_at)
        values (t.message_id, p_turn, t.agent, t.conversation, 'cancelled', reply, greatest(at, accepted));
    end if;
    perform pg_notify('turnkeeper_inbox', ''), pg_notify('turnkeeper_turns', '');
end $$;

-- Add an event to the stream of a turn whose row the caller has locked.
create function turnkeeper.tell(p_turn bigint, p_type text, p_round integer, p_data json) returns void language sql as $$
    with numbered as (
        update turnkeeper.turns set last_seq = last_seq + 1 where id = p_turn returning last_seq
    )
    insert into turnkeeper.turn_events (turn_id, seq, type, round, block, data, at)
    select p_turn, last_seq, p_type, p_round, 0, p_data,
        greatest(clock_timestamp(), (select p.at from turnkeeper.turn_events p where p.turn_id = p_turn order by p.seq desc limit 1))
    from numbered
$$;

-- Close a message that waits as cancelled, with a turn that was never granted: so it has
-- its reply, its stream and its place in every list, as others have. The caller has
-- locked it.
create function turnkeeper.cancel_waiting(p_message bigint, p_reason text) returns bigint language plpgsql as $$
declare
    new_turn bigint;
begin
    -- Closed from the first: its lane may have an open turn.
    insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, stop_reason, ended_at, token)
    select m.id, m.attempts + 1, m.agent, m.conversation, m.lane, m.trigger, a.definition_hash, 'cancelled', 'cancelled', clock_timestamp(),
        coalesce((select l.token from turnkeeper.leases l where l.lane = m.lane), 0)
    from turnkeeper.messages m join turnkeeper.agents a on a.name = m.agent
    where m.id = p_message
    returning turns.id into new_turn;
    update turnkeeper.messages m set attempts = attempts + 1, turn_id = new_turn where m.id = p_message;
    insert into turnkeeper.cancellations (turn_id, reason) values (new_turn, p_reason);
    perform turnkeeper.close_cancelled(new_turn);
    return new_turn;
end $$;

-- Ask for the cancellation of a turn, with no lock: its row may be locked for as long as
-- a transactional tool runs. Whoever ends a dispatch from here on sees it.
create function turnkeeper.ask_cancel(p_turn bigint, p_reason text) returns void language plpgsql as $$
begin
    insert into turnkeeper.cancellations (turn_id, reason)
    select id, p_reason from turnkeeper.turns where id = p_turn and ended_at is null
    on conflict do nothing;
    perform pg_notify('turnkeeper_cancels', '');
end $$;

-- Close a turn that was asked to be cancelled, if nobody runs it. Where it stands now;
-- null: there is none. again: it moved meanwhile, ask once more. The scheduler's lock keeps a tick from granting it.
create function turnkeeper.settle_cancel(p_turn bigint, out state text, out done boolean, out again boolean) language plpgsql as $$
declare
    free boolean;
begin
    done := false;
    again := false;
    select t.state in ('queued', 'waiting') into free from turnkeeper.turns t where t.id = p_turn;
    if free then
        perform pg_advisory_xact_lock(hashtext('turnkeeper.scheduler'));
    end if;
    select t.state into settle_cancel.state from turnkeeper.turns t where t.id = p_turn for update;
    if settle_cancel.state in ('queued', 'waiting') then
        if free then
            perform turnkeeper.close_cancelled(p_turn);
            settle_cancel.state := 'cancelled';
            done := true;
        else
            again := true;
        end if;
    end if;
end $$;

-- Cancel a message that waits in the inbox. turn is 0 where it does not wait.
create function turnkeeper.cancel_message(p_message bigint, p_reason text, out state text, out turn bigint) language plpgsql as $$
begin
    turn := 0;
    select m.state into cancel_message.state from turnkeeper.messages m where m.id = p_message;
    if cancel_message.state is distinct from 'waiting' then
        return;
    end if;
    perform pg_advisory_xact_lock(hashtext('turnkeeper.scheduler'));
    select m.state into cancel_message.state from turnkeeper.messages m where m.id = p_message for update;
    if cancel_message.state = 'waiting' then
        turn := turnkeeper.cancel_waiting(p_message, p_reason);
        cancel_message.state := 'cancelled';
    end if;
end $$;

-- Try a message again: one that is closed goes into the inbox as a new message, once;
-- one that waits for its time is due now. verdict: new, repeated, due_now, or why not:
-- waiting, running, answered, risky (a try may repeat effects: p_anyway), or null: there is none.
create function turnkeeper.retry_message(p_message bigint, p_anyway boolean, out verdict text, out message bigint) language plpgsql as $$
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

-- As before; and what was asked to be cancelled does not go back into the queue, nor
-- wait, nor be tried again: it is closed as the dispatch ends.
create or replace function turnkeeper.end_dispatch(
    p_turn bigint, p_grant uuid, p_state text, p_log text, p_stop text,
    p_reply text, p_inner text, p_error_class text, p_error text,
    p_message_state text, p_lost boolean, p_backoff interval, p_lane_backoff interval,
    p_job bigint -- of River, completed with the dispatch; 0: the caller closes it
) returns void language plpgsql as $$
declare
    t        record;
    accepted timestamptz;
    final    text := p_state;
    ended    boolean := p_state not in ('queued', 'waiting');
begin
    if p_state = 'waiting' then
        -- Nothing has arrived, and something will.
        select case when count(*) > 0 and count(arrived_at) = 0 then 'waiting' else 'queued' end into final
        from turnkeeper.awaited_calls where turn_id = p_turn and closed_at is null;
    end if;
    update turnkeeper.turns set
        state          = final,
        stop_reason    = case when ended then p_stop end,
        ended_at       = case when ended then greatest(clock_timestamp(), created_at, granted_at) end,
        due_at         = case when final = 'queued' and p_backoff > interval '0' then clock_timestamp() + p_backoff end,
        grant_id       = case when ended then grant_id end,
        losses         = losses + p_lost::integer,
        inner_dialogue = nullif(p_inner, ''),
        error_class    = nullif(p_error_class, ''),
        error          = nullif(p_error, '')
    where id = p_turn
    returning message_id, agent, conversation, lane, worker_id into t;

    if ended then
        update turnkeeper.messages set
            state      = p_message_state,
            closed_at  = case when p_message_state <> 'waiting' then greatest(clock_timestamp(), accepted_at) end,
            last_error = nullif(p_error, '')
        where id = t.message_id
        returning accepted_at into accepted;
        if p_reply <> '' then
            insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body, created_at)
            values (t.message_id, p_turn, t.agent, t.conversation, p_state, p_reply, greatest(clock_timestamp(), accepted));
        end if;
    end if;

    update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null,
        failures = case when p_state = 'failed' then failures + 1
                        when p_state in ('succeeded', 'degraded') then 0 else failures end,
        not_before = case when p_state = 'failed' then clock_timestamp() + p_lane_backoff
                          when p_state in ('succeeded', 'degraded') then null else not_before end
    where lane = t.lane and grant_id = p_grant;
    if not found then
        raise exception using errcode = 'TK001', message = 'the lease is no longer held';
    end if;
    update turnkeeper.lease_log set ended_at = greatest(clock_timestamp(), granted_at), outcome = p_log, worker_id = t.worker_id
    where grant_id = p_grant;
    if p_job <> 0 then
        update turnkeeper.river_job set state = 'completed', finalized_at = clock_timestamp()
        where id = p_job and state = 'running';
    end if;
    if (not ended or p_message_state = 'waiting') and exists (select from turnkeeper.cancellations where turn_id = p_turn) then
        if ended then
            perform turnkeeper.cancel_waiting(t.message_id, (select reason from turnkeeper.cancellations where turn_id = p_turn));
        else
            perform turnkeeper.close_cancelled(p_turn);
        end if;
    end if;
    perform pg_notify('turnkeeper_inbox', ''), pg_notify('turnkeeper_turns', '');
end $$;

create index spend_reservations_turn on turnkeeper.spend_reservations (turn_id);

-- Remove closed messages, at most p_limit after an id, with all that belongs to them in
-- every table, River's too; p_dry: only count. An empty text, or null, means any. What is
-- left of an agent: its definition, leases (a token never starts again), the spend of days,
-- notes and schedules; and parts of requests, which hold nothing of a conversation and are
-- shared with requests that are being written. last is the id to go on after; null: that was all.
create function turnkeeper.purge(
    p_agent text, p_conversation text, p_before timestamptz, p_after bigint, p_limit integer, p_dry boolean,
    out messages bigint, out turns bigint, out outputs bigint, out last bigint
) language plpgsql as $$
declare
    m_ids bigint[];
    t_ids bigint[];
    o_ids text[];
begin
    if p_dry then
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_conversation = '' or m.conversation = p_conversation) and (p_before is null or m.closed_at < p_before)
            order by m.id limit p_limit) b;
    else
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_conversation = '' or m.conversation = p_conversation) and (p_before is null or m.closed_at < p_before)
            order by m.id limit p_limit for update skip locked) b;
    end if;
    select coalesce(array_agg(t.id), '{}') into t_ids from turnkeeper.turns t where t.message_id = any(m_ids);
    select coalesce(array_agg(o.id), '{}') into o_ids from turnkeeper.outputs o where o.turn_id = any(t_ids);
    messages := coalesce(cardinality(m_ids), 0);
    turns := cardinality(t_ids);
    outputs := cardinality(o_ids);
    last := m_ids[cardinality(m_ids)];
    if p_dry or messages = 0 then
        return;
    end if;
    delete from turnkeeper.detached_calls where turn_id = any(t_ids);
    delete from turnkeeper.awaited_calls where turn_id = any(t_ids);
    delete from turnkeeper.call_starts where turn_id = any(t_ids);
    delete from turnkeeper.calls where turn_id = any(t_ids);
    delete from turnkeeper.rounds where turn_id = any(t_ids);
    delete from turnkeeper.output_chunks where output_id = any(o_ids);
    delete from turnkeeper.outputs where turn_id = any(t_ids);
    delete from turnkeeper.turn_events where turn_id = any(t_ids);
    delete from turnkeeper.replies where message_id = any(m_ids);
    delete from turnkeeper.extractions where turn_id = any(t_ids);
    delete from turnkeeper.spend where scope in (select 'turn:' || id from unnest(t_ids) id) and period = '';
    delete from turnkeeper.spend_reservations where turn_id = any(t_ids);
    delete from turnkeeper.lease_log where turn_id = any(t_ids);
    delete from turnkeeper.cancellations where turn_id = any(t_ids);
    delete from turnkeeper.river_job where kind in ('AgentTurn', 'DetachedCall') and finalized_at is not null
        and (args ->> 'turn_id')::bigint = any(t_ids);
    delete from turnkeeper.turns where id = any(t_ids);
    delete from turnkeeper.retries where message_id = any(m_ids) or retried_as = any(m_ids);
    -- A summary goes with the turn that made it; but not while a request that was made
    -- with it is kept, or one may be under way.
    delete from turnkeeper.summaries s
    where (s.agent, s.conversation) in (select m.agent, m.conversation from turnkeeper.messages m where m.id = any(m_ids))
      and not exists (select from turnkeeper.turns t where t.id = s.turn_id)
      and not exists (select from turnkeeper.turns t where t.agent = s.agent and t.conversation = s.conversation
            and t.state in ('queued', 'running', 'waiting'))
      and not exists (select from turnkeeper.turns t join turnkeeper.rounds r on r.turn_id = t.id
            where t.agent = s.agent and t.conversation = s.conversation and t.id > s.up_to
              and (r.request ->> 'summary')::bigint = s.up_to);
    delete from turnkeeper.messages where id = any(m_ids);
end $$;

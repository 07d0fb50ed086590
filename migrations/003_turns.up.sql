-- Writes of running turns: journal and tool calls, outputs, detached calls, sub-agents, budgets, and the end.

----------------------------------------------------------------------------------------------------
-- State changes
----------------------------------------------------------------------------------------------------

create function turnkeeper.check_turn_move() returns trigger language plpgsql as $$
begin
    if not (case old.state
        when 'queued'  then new.state in ('running', 'degraded', 'cancelled')
        when 'running' then new.state in ('queued', 'waiting', 'succeeded', 'degraded', 'failed', 'cancelled')
        when 'waiting' then new.state in ('queued', 'cancelled')
        else false
    end) then
        raise exception using errcode = 'TK007',
            message = format('turn cannot go from %s to %s', old.state, new.state);
    end if;
    return new;
end $$;
create trigger turn_moves before update of state on turnkeeper.turns
    for each row when (old.state is distinct from new.state)
    execute function turnkeeper.check_turn_move();

-- A running call may become started again: the call of a lost worker is restarted if its effect allows that, which
-- call_starts checks.
create function turnkeeper.check_call_move() returns trigger language plpgsql as $$
begin
    if not (case old.state
        when 'planned' then new.state in ('started', 'succeeded', 'failed', 'skipped', 'denied', 'cancelled')
        when 'started' then new.state in ('running', 'succeeded', 'failed', 'unknown', 'cancelled')
        when 'running' then new.state in ('started', 'succeeded', 'failed', 'unknown', 'cancelled')
        else false
    end) then
        raise exception using errcode = 'TK007',
            message = format('tool call cannot go from %s to %s', old.state, new.state);
    end if;
    return new;
end $$;
create trigger call_moves before update of state on turnkeeper.calls
    for each row when (old.state is distinct from new.state)
    execute function turnkeeper.check_call_move();

----------------------------------------------------------------------------------------------------
-- The journal
----------------------------------------------------------------------------------------------------

-- The fence of a write to a turn's journal, and the write's row. It locks the turn's row and fails unless the caller has the
-- newest grant and is the worker bound to it (see BindGrant). The conditions contain no time. p_expected is the number of
-- earlier writes; the statement that compares it sees all that were done under the lock. By p_write, a writer whose commit
-- was not answered finds out whether it was done: see ReadBack. p_answered are models that answered: see note_models.
create function turnkeeper.step(
    p_turn bigint, p_token bigint, p_grant uuid, p_worker text, p_expected bigint, p_write uuid,
    p_rounds integer, p_charged integer, p_calls integer,
    p_input bigint, p_output bigint, p_cached bigint, p_reasoning bigint, p_estimated boolean,
    p_types text[], p_event_rounds integer[], p_blocks integer[], p_data text[], p_answered text[]
) returns void language plpgsql as $$
declare
    held boolean;
begin
    -- The conditions are not in the where clause, so that Postgres can only look up the id.
    select token = p_token and grant_id = p_grant and state = 'running' and worker_id = p_worker into held
    from turnkeeper.turns where id = p_turn for no key update;
    if held is not true then
        raise exception using errcode = 'TK001', message = 'the lease is no longer held';
    end if;
    insert into turnkeeper.journal
    select p_turn, w.n + 1, p_write, w.last_seq + 1, w.last_seq + cardinality(p_types), greatest(clock_timestamp(), w.at),
        w.inference_rounds + p_rounds, w.charged_rounds + p_charged, w.executed_calls + p_calls,
        w.input_tokens + p_input, w.output_tokens + p_output, w.cached_tokens + p_cached, w.reasoning_tokens + p_reasoning,
        w.usage_estimated or p_estimated, p_types, p_event_rounds, p_blocks, p_data
    from turnkeeper.newest_write(p_turn) w where w.n = p_expected;
    if not found then
        raise exception using errcode = 'TK002', message = format('the journal has moved on: it has %s writes, not the expected %s',
            (select n from turnkeeper.newest_write(p_turn)), p_expected);
    end if;
    if exists (select from turnkeeper.model_health where model = any(p_answered) and down_since is not null) then
        perform turnkeeper.note_models(p_answered, '{}', '{}', '{}', '{}', '{}');
    end if;
end $$;

-- Record the starts of calls, before they run. A call whose effect allows it may be started again.
create function turnkeeper.start_calls(
    p_turn bigint, p_token bigint, p_worker text,
    p_rounds integer[], p_ordinals integer[], p_attempts integer[], p_nonces text[]
) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.calls c set state = 'started', nonce = s.nonce, starts = s.attempt,
        started_at = clock_timestamp()
    from unnest(p_rounds, p_ordinals, p_attempts, p_nonces) as s(round, ordinal, attempt, nonce)
    where c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal
      and c.starts = s.attempt - 1 and c.state in ('planned', 'started', 'running');
    get diagnostics n = row_count;
    if n <> cardinality(p_rounds) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a call was started before';
    end if;
    insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
    select p_turn, s.round, s.ordinal, s.attempt, c.effect, p_token, s.nonce, p_worker
    from unnest(p_rounds, p_ordinals, p_attempts, p_nonces) as s(round, ordinal, attempt, nonce)
    join turnkeeper.calls c on c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
end $$;

-- Record the results of calls. A started call accepts a result only from its newest start. A call that goes to the
-- background (state running) has not ended, and keeps the output id that the model has seen.
create function turnkeeper.answer_calls(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_states text[],
    p_shown text[], p_previews text[], p_outputs text[], p_durations bigint[]
) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.calls c set state = r.state, shown = r.shown, preview = r.preview,
        output_id = coalesce(nullif(r.output, ''), c.output_id),
        ended_at = case when r.state <> 'running' then greatest(clock_timestamp(), c.started_at) end,
        duration_ms = case when r.state <> 'running' then r.duration end
    from unnest(p_rounds, p_ordinals, p_nonces, p_states, p_shown, p_previews, p_outputs, p_durations)
        as r(round, ordinal, nonce, state, shown, preview, output, duration)
    where c.turn_id = p_turn and c.round = r.round and c.ordinal = r.ordinal
      and c.state in ('planned', 'started', 'running')
      and (c.nonce = r.nonce or r.state = 'unknown');
    get diagnostics n = row_count;
    if n <> cardinality(p_rounds) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a call was answered before';
    end if;
end $$;

-- Store a result that came after its writer lost the lease: as the call's result if it has none, else in late_result. The
-- result of a detached call comes by awaited_calls instead.
create function turnkeeper.late_result(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_shown text, p_preview text
) returns void language plpgsql as $$
begin
    -- What the model has seen of a background call is kept.
    update turnkeeper.calls set state = p_state, shown = case when state = 'running' then shown else p_shown end,
        preview = p_preview, ended_at = greatest(clock_timestamp(), started_at)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and (state = 'started' or state = 'running' and not awaited) and nonce = p_nonce
      and exists (select from turnkeeper.turns t where t.id = p_turn and t.ended_at is null);
    if not found then
        update turnkeeper.calls set late_result = p_shown
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal and late_result is null
          and exists (select from turnkeeper.call_starts s where s.turn_id = p_turn and s.round = p_round
                      and s.ordinal = p_ordinal and s.nonce = p_nonce);
    end if;
end $$;

-- The events of a turn after a number, in order. It reads only the rows that hold them, unlike the view turn_events.
create function turnkeeper.events_after(p_turn bigint, p_after bigint, p_limit bigint)
returns table (seq bigint, type text, round integer, block integer, data json, at timestamptz) stable language sql as $$
    select j.seq + e.i - 1, e.type, e.round, e.block, nullif(e.data, '')::json, j.at
    from turnkeeper.journal j, lateral unnest(j.types, j.rounds, j.blocks, j.data) with ordinality as e (type, round, block, data, i)
    where j.turn_id = p_turn and j.seq + e.i - 1 > p_after and j.n > coalesce((
        select p.n from turnkeeper.journal p where p.turn_id = p_turn and p.last_seq <= p_after order by p.n desc limit 1), 0)
    order by j.n, e.i limit p_limit
$$;

-- Roughly the id of the first turn that was created at or after a time, by binary search: ids are in the order of creation
-- except where the clock was set back. It is the lower bound of a list by time, because turns have no index on their times.
create function turnkeeper.first_turn(p_since timestamptz) returns bigint stable language sql as $$
    with recursive half (low, high) as (
        select coalesce(min(id), 1), coalesce(max(id), 0) + 1 from turnkeeper.turns
        union all
        select case when t.created_at < p_since then t.id + 1 else h.low end, case when t.created_at < p_since then h.high else h.middle end
        from (select low, high, (low + high) / 2 as middle from half where low < high) h
        left join lateral (select id, created_at from turnkeeper.turns where id >= h.middle and id < h.high order by id limit 1) t on true
    )
    select low from half where low >= high
$$;

-- Add events to the stream of a turn whose row the caller has locked.
create function turnkeeper.add_events(p_turn bigint, p_types text[], p_rounds integer[], p_blocks integer[], p_data text[])
returns void language sql as $$
    insert into turnkeeper.journal
    select p_turn, w.n + 1, null, w.last_seq + 1, w.last_seq + cardinality(p_types), greatest(clock_timestamp(), w.at),
        w.inference_rounds, w.charged_rounds, w.executed_calls, w.input_tokens, w.output_tokens, w.cached_tokens, w.reasoning_tokens,
        w.usage_estimated, p_types, p_rounds, p_blocks, p_data
    from turnkeeper.newest_write(p_turn) w
$$;

----------------------------------------------------------------------------------------------------
-- Drafts: outputs that are written while they arrive
----------------------------------------------------------------------------------------------------

-- Mark drafts as finished. Each must still exist, under the grant that created it.
create function turnkeeper.finish_drafts(p_grant uuid, p_outputs text[]) returns void language plpgsql as $$
declare
    n integer;
begin
    delete from turnkeeper.output_drafts where output_id = any(p_outputs) and grant_id = p_grant;
    get diagnostics n = row_count;
    if n <> cardinality(p_outputs) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: the draft of a result was deleted';
    end if;
end $$;

-- Delete the drafts of turns that no longer run under the grant that created them, and the draft p_output. The chunks are
-- deleted by a second statement, because whoever was adding some held the draft's row until they were visible.
create function turnkeeper.sweep_drafts(p_output text) returns void language plpgsql as $$
declare
    dead text[];
begin
    with gone as (
        delete from turnkeeper.output_drafts d
        where d.output_id = p_output or not exists (
            select from turnkeeper.turns t where t.id = d.turn_id and t.grant_id = d.grant_id and t.state = 'running')
        returning d.output_id
    )
    select array_agg(output_id) into dead from gone;
    delete from turnkeeper.output_chunks c where c.output_id = any(dead)
        and not exists (select from turnkeeper.outputs o where o.id = c.output_id);
end $$;

----------------------------------------------------------------------------------------------------
-- Detached calls. Every function here locks the turn's row first.
----------------------------------------------------------------------------------------------------

-- Insert the River job for a run of a detached call, and return its id. Each tool has a queue for the workers that have the
-- tool. scheduled_at is in the past: River fetches jobs whose scheduled_at is not after now(), and its default, the start
-- of the transaction, would delay the job if the clock is set back.
create function turnkeeper.ring_detached(p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_tool text)
returns bigint language plpgsql as $$
declare
    job   bigint;
    queue text := 'detached_' || left(encode(sha256(convert_to(p_tool, 'UTF8')), 'hex'), 32);
begin
    insert into turnkeeper.river_job (args, kind, max_attempts, priority, queue, scheduled_at, state, tags)
    values (jsonb_build_object('turn_id', p_turn, 'round', p_round, 'ordinal', p_ordinal, 'attempt', p_attempt),
        'DetachedCall', 1, 1, queue, '2000-01-01', 'available', '{}')
    returning id into job;
    perform pg_notify('turnkeeper.river_insert', jsonb_build_object('queue', queue)::text);
    return job;
end $$;

-- Detach calls that the same write has started.
create function turnkeeper.detach_calls(p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_limits interval[], p_wait interval)
returns void language plpgsql as $$
begin
    update turnkeeper.calls c set awaited = true from unnest(p_rounds, p_ordinals) as s(round, ordinal)
    where c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
    insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce)
    select p_turn, s.round, s.ordinal, s.nonce from unnest(p_rounds, p_ordinals, p_nonces) as s(round, ordinal, nonce);
    insert into turnkeeper.detached_calls (turn_id, round, ordinal, time_limit, deadline, look_at, job_id)
    select p_turn, s.round, s.ordinal, s.time_limit, clock_timestamp() + p_wait, clock_timestamp() + interval '1 minute',
        turnkeeper.ring_detached(p_turn, s.round, s.ordinal, 1, c.name)
    from unnest(p_rounds, p_ordinals, p_limits) as s(round, ordinal, time_limit)
    join turnkeeper.calls c on c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
end $$;

-- Record the result of an awaited call, and queue its turn if the turn waits. A running turn finds the result.
create function turnkeeper.arrive_call(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_preview text, p_duration bigint, p_output text
) returns void language plpgsql as $$
begin
    perform from turnkeeper.turns where id = p_turn for update;
    update turnkeeper.awaited_calls set arrived_at = greatest(clock_timestamp(), opened_at), state = p_state,
        preview = p_preview, duration_ms = p_duration, output_id = nullif(p_output, '')
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and nonce = p_nonce
      and arrived_at is null and closed_at is null;
    if not found then
        raise exception using errcode = 'TK001', message = 'the call is no longer awaited';
    end if;
    update turnkeeper.turns set state = 'queued', due_at = null where id = p_turn and state = 'waiting';
    if found then
        perform pg_notify('turnkeeper_inbox', '');
    end if;
end $$;

-- Record the result of a detached call, from the run that has the claim. With an empty p_claim, the scheduler ends the
-- attempt. A repeat does nothing and is not an error.
create function turnkeeper.end_detached(
    p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_claim text,
    p_state text, p_preview text, p_duration bigint, p_output text
) returns void language plpgsql as $$
declare
    d record;
begin
    perform from turnkeeper.turns where id = p_turn for update;
    select r.*, a.nonce into d from turnkeeper.detached_calls r join turnkeeper.awaited_calls a using (turn_id, round, ordinal)
    where r.turn_id = p_turn and r.round = p_round and r.ordinal = p_ordinal for update of r;
    if d.delivered and d.claim = p_claim then
        return;
    end if;
    if d.ended_at is not null or d.attempt <> p_attempt or p_claim <> '' and d.claim is distinct from p_claim then
        raise exception using errcode = 'TK001', message = 'the call is no longer this worker''s';
    end if;
    update turnkeeper.detached_calls set ended_at = clock_timestamp(), delivered = (p_claim <> '')
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    perform turnkeeper.arrive_call(p_turn, p_round, p_ordinal, d.nonce, p_state, p_preview, p_duration, p_output);
    update turnkeeper.river_job set state = (case when p_claim <> '' then 'completed' else 'cancelled' end)::turnkeeper.river_job_state,
        finalized_at = clock_timestamp()
    where id = d.job_id and state not in ('completed', 'cancelled', 'discarded');
    if p_claim = '' then -- stop a worker that still runs it
        perform pg_notify('turnkeeper_calls', '');
    end if;
end $$;

-- Run a detached call again: the next attempt of one that was claimed, a new job for one that was not.
create function turnkeeper.run_detached_again(
    p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_claim text, p_nonce text, p_lost boolean, p_wait interval
) returns void language plpgsql as $$
declare
    d      record;
    effect text;
begin
    perform from turnkeeper.turns where id = p_turn for update;
    select r.*, c.name as tool into d from turnkeeper.detached_calls r join turnkeeper.calls c using (turn_id, round, ordinal)
    where r.turn_id = p_turn and r.round = p_round and r.ordinal = p_ordinal for update of r;
    if d.ended_at is not null or d.attempt <> p_attempt or p_claim <> '' and d.claim is distinct from p_claim then
        raise exception using errcode = 'TK001', message = 'the call is no longer this worker''s';
    end if;
    update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
    where id = d.job_id and state not in ('completed', 'cancelled', 'discarded');
    if d.claim is null then
        update turnkeeper.detached_calls set job_id = turnkeeper.ring_detached(p_turn, p_round, p_ordinal, attempt, d.tool),
            look_at = clock_timestamp() + interval '1 minute'
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
        return;
    end if;
    update turnkeeper.calls c set starts = p_attempt + 1, nonce = p_nonce, started_at = clock_timestamp()
    where c.turn_id = p_turn and c.round = p_round and c.ordinal = p_ordinal and c.state = 'running' and c.starts = p_attempt
    returning c.effect into effect;
    if not found then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: the call has another start';
    end if;
    -- Token 0: without a grant.
    insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
    values (p_turn, p_round, p_ordinal, p_attempt + 1, effect, 0, p_nonce, d.worker_id);
    update turnkeeper.awaited_calls set nonce = p_nonce where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    update turnkeeper.detached_calls set attempt = p_attempt + 1, claim = null, worker_id = null, claimed_at = null, lost_at = null,
        losses = losses + p_lost::integer, deadline = clock_timestamp() + p_wait, look_at = clock_timestamp() + interval '1 minute',
        job_id = turnkeeper.ring_detached(p_turn, p_round, p_ordinal, p_attempt + 1, d.tool)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    perform pg_notify('turnkeeper_calls', '');
end $$;

-- Close the wait once the journal has the result. Cancel the job of a run, and notify a worker that still runs it.
create function turnkeeper.close_awaited() returns trigger language plpgsql as $$
declare
    job bigint;
begin
    update turnkeeper.awaited_calls set closed_at = greatest(clock_timestamp(), opened_at)
    where turn_id = new.turn_id and round = new.round and ordinal = new.ordinal and closed_at is null;
    update turnkeeper.detached_calls set ended_at = clock_timestamp()
    where turn_id = new.turn_id and round = new.round and ordinal = new.ordinal and ended_at is null
    returning job_id into job;
    if found then
        update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
        where id = job and state not in ('completed', 'cancelled', 'discarded');
        perform pg_notify('turnkeeper_calls', '');
    end if;
    return null;
end $$;
create trigger call_answered after update of state on turnkeeper.calls
    for each row when (old.awaited and old.state = 'running' and new.state <> 'running')
    execute function turnkeeper.close_awaited();

----------------------------------------------------------------------------------------------------
-- Sub-agents
----------------------------------------------------------------------------------------------------

-- Start sub-agents for calls that the same write has started: one message each, in its own conversation and lane. It gets
-- due_at and priority of its parent's message, so that a started tree goes before younger messages. A call that is not
-- allowed gets a result that says why.
create function turnkeeper.spawn_agents(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_messages bigint[], p_names text[], p_tasks text[],
    p_root bigint, p_agents text[], p_max_depth integer, p_max_agents integer, p_tokens bigint, p_calls bigint, p_within interval
) returns void language plpgsql as $$
declare
    parent    record;
    s         record;
    most      integer;
    max_bytes integer;
    conv      text;
    refused   text;
begin
    insert into turnkeeper.agent_trees (root, max_depth, max_agents, tokens, calls)
    values (p_root, p_max_depth, p_max_agents, p_tokens, p_calls) on conflict do nothing;
    -- The lock makes spawns in one tree serial.
    select t.max_agents into most from turnkeeper.agent_trees t where t.root = p_root for update;
    select m.priority, m.due_at, m.trace_parent into parent
    from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id where t.id = p_turn;
    select max_message_bytes into max_bytes from turnkeeper.settings;
    for s in
        select u.round, u.ordinal, u.nonce, u.message, u.name, u.task
        from unnest(p_rounds, p_ordinals, p_nonces, p_messages, p_names, p_tasks) as u(round, ordinal, nonce, message, name, task)
    loop
        refused := case
            when not exists (select from turnkeeper.agents a where a.name = s.name) then 'unknown_agent'
            when octet_length(s.task) > max_bytes then 'task_too_long'
            when (select count(*) from turnkeeper.spawned_calls c where c.root = p_root and c.message_id is not null) >= most
                then 'max_tree_sub_agents'
        end;
        update turnkeeper.calls set awaited = true where turn_id = p_turn and round = s.round and ordinal = s.ordinal;
        insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce) values (p_turn, s.round, s.ordinal, s.nonce);
        if refused is null then
            conv := format('turn-%s-round-%s-tool-%s', p_turn, s.round, s.ordinal);
            insert into turnkeeper.messages (id, agent, conversation, lane, body, priority, due_at, trace_parent)
            overriding system value
            values (s.message, s.name, conv, s.name || '/' || conv, s.task, parent.priority,
                least(parent.due_at, date_trunc('second', clock_timestamp())), parent.trace_parent);
        end if;
        insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline, trouble, ended_at)
        values (p_turn, s.round, s.ordinal, case when refused is null then s.message end, s.name, p_root, p_agents || s.name,
            clock_timestamp() + p_within, refused, case when refused is not null then clock_timestamp() end);
        if refused is not null then
            perform turnkeeper.tell_parent(p_turn, s.round, s.ordinal);
        end if;
    end loop;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- Record the outcome of a sub-agent as the result of its parent's call. The function waits for no lock: if the parent's row
-- is locked, the scheduler does it later. Returns whether nothing is left to record.
create function turnkeeper.tell_parent(p_turn bigint, p_round integer, p_ordinal integer) returns boolean language plpgsql as $$
declare
    s       record;
    v_nonce text;
begin
    perform from turnkeeper.turns where id = p_turn for update skip locked;
    if not found and exists (select from turnkeeper.turns where id = p_turn) then
        return false;
    end if;
    select * into s from turnkeeper.spawned_calls where turn_id = p_turn and round = p_round and ordinal = p_ordinal for update;
    if s.told_at is not null then
        return true;
    end if;
    select nonce into v_nonce from turnkeeper.awaited_calls
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and arrived_at is null and closed_at is null;
    if found then
        perform turnkeeper.arrive_call(p_turn, p_round, p_ordinal, v_nonce,
            case when s.outcome in ('succeeded', 'degraded') then 'succeeded' else 'failed' end,
            format('the agent %s: %s', s.agent, coalesce(s.outcome, s.trouble)),
            greatest(extract(epoch from clock_timestamp() - s.spawned_at) * 1000, 0)::bigint, null);
    end if;
    update turnkeeper.spawned_calls set told_at = clock_timestamp() where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    return true;
end $$;

-- End the call of a sub-agent in the transaction that inserts its reply, unless the parent's row is locked.
create function turnkeeper.note_spawned_reply() returns trigger language plpgsql as $$
declare
    s        record;
    v_parent bigint;
begin
    select turn_id into v_parent from turnkeeper.spawned_calls where message_id = new.message_id;
    if not found then
        return null;
    end if;
    update turnkeeper.replies set parent_turn_id = v_parent where id = new.id;
    update turnkeeper.spawned_calls set child = new.turn_id, outcome = new.outcome, ended_at = clock_timestamp(),
        stop = (select stop_reason from turnkeeper.turns where id = new.turn_id)
    where message_id = new.message_id and ended_at is null
    returning turn_id, round, ordinal into s;
    if found then
        if not turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal) then
            perform pg_notify('turnkeeper_inbox', '');
        end if;
        -- Keep nothing if the parent's records were purged.
        delete from turnkeeper.spawned_calls where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal
            and not exists (select from turnkeeper.turns where id = s.turn_id);
    end if;
    return null;
end $$;
create trigger spawned_reply after insert on turnkeeper.replies for each row execute function turnkeeper.note_spawned_reply();

create function turnkeeper.dropped_because(p_parent bigint) returns text immutable language sql
    return format('its parent, turn %s, no longer waits for it', p_parent);

-- Cancel a sub-agent whose call was answered without it. If it runs, its worker stops it; if not, the next tick closes it.
-- This function locks none of its rows, because its own end locks them in the opposite order.
create function turnkeeper.drop_spawned() returns trigger language plpgsql as $$
declare
    v_message bigint;
begin
    update turnkeeper.spawned_calls set dropped_at = clock_timestamp(), told_at = coalesce(told_at, clock_timestamp())
    where turn_id = new.turn_id and round = new.round and ordinal = new.ordinal and ended_at is null and dropped_at is null
    returning message_id into v_message;
    if found then
        insert into turnkeeper.cancellations (turn_id, reason)
        select t.id, turnkeeper.dropped_because(new.turn_id) from turnkeeper.turns t where t.message_id = v_message and t.ended_at is null
        on conflict do nothing;
        perform pg_notify('turnkeeper_cancels', ''), pg_notify('turnkeeper_inbox', '');
    end if;
    return null;
end $$;
create trigger call_dropped after update of state on turnkeeper.calls
    for each row when (old.awaited and old.state = 'running' and new.state <> 'running')
    execute function turnkeeper.drop_spawned();

-- A tick's work on sub-agents: deliver results to parents whose row was locked before, give up overdue sub-agents, and
-- cancel those that nobody waits for. Returns how many it changed. The caller has the scheduler's lock.
create function turnkeeper.settle_spawned(p_timely boolean, p_limit integer) returns integer language plpgsql as $$
declare
    s       record;
    n       integer := 0;
    v_state text;
    v_turn  bigint;
begin
    for s in select * from turnkeeper.spawned_calls where ended_at is not null and told_at is null
        order by ended_at limit p_limit for update skip locked
    loop
        n := n + turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal)::integer;
    end loop;
    for s in select c.* from turnkeeper.spawned_calls c join turnkeeper.turns t on t.id = c.turn_id
        where p_timely and c.ended_at is null and c.told_at is null and c.deadline <= statement_timestamp()
        order by c.deadline limit p_limit for update skip locked
    loop
        update turnkeeper.spawned_calls set trouble = 'timeout' where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal;
        n := n + turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal)::integer;
    end loop;
    for s in select * from turnkeeper.spawned_calls where dropped_at is not null and ended_at is null
        order by dropped_at limit p_limit for update skip locked
    loop
        select m.state, m.turn_id into v_state, v_turn from turnkeeper.messages m where m.id = s.message_id for update skip locked;
        if v_state = 'waiting' then
            perform turnkeeper.cancel_waiting(s.message_id, turnkeeper.dropped_because(s.turn_id));
            n := n + 1;
        elsif v_state = 'running' then
            insert into turnkeeper.cancellations (turn_id, reason) values (v_turn, turnkeeper.dropped_because(s.turn_id)) on conflict do nothing;
            if found then
                perform pg_notify('turnkeeper_cancels', '');
            end if;
            select t.state into v_state from turnkeeper.turns t where t.id = v_turn for update skip locked;
            if v_state in ('queued', 'waiting') then
                perform turnkeeper.close_cancelled(v_turn);
                n := n + 1;
            end if;
        elsif not exists (select from turnkeeper.messages m where m.id = s.message_id) then -- it was purged
            update turnkeeper.spawned_calls set ended_at = clock_timestamp() where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal;
        end if;
    end loop;
    return n;
end $$;

-- Delete the records of sub-agents with the turn that spawned them. Those of an open sub-agent are kept until it ends.
create function turnkeeper.forget_spawned() returns trigger language plpgsql as $$
declare
    roots bigint[];
begin
    with gone as (
        delete from turnkeeper.spawned_calls s where s.turn_id = old.id and s.ended_at is not null returning s.root
    )
    select coalesce(array_agg(root), '{}') || old.id into roots from gone;
    delete from turnkeeper.agent_trees t where t.root = any(roots)
        and not exists (select from turnkeeper.turns r where r.id = t.root)
        and not exists (select from turnkeeper.spawned_calls s where s.root = t.root);
    delete from turnkeeper.spend where scope = 'tree:' || old.id and period = '';
    return null;
end $$;
create trigger spawned_forgotten after delete on turnkeeper.turns for each row execute function turnkeeper.forget_spawned();

----------------------------------------------------------------------------------------------------
-- Budgets. The rows of spend are always locked in this order: agent, turn, tree.
----------------------------------------------------------------------------------------------------

-- Reserve an estimate in the budgets of a turn and of its agent's day. Returns the id of the reservation, or 0 and the
-- exhausted budget.
create function turnkeeper.reserve_spend(
    p_turn bigint, p_agent text, p_tokens bigint,
    p_turn_tokens bigint, p_turn_calls bigint, p_day_tokens bigint, p_day_calls bigint,
    out reservation bigint, out blocked text, out used_tokens bigint, out used_calls bigint
) language plpgsql as $$
declare
    day text := to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD');
begin
    reservation := 0; blocked := '';
    insert into turnkeeper.spend (scope, period) values ('turn:' || p_turn, ''), ('agent:' || p_agent, day)
        on conflict do nothing;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend
        where scope = 'agent:' || p_agent and period = day for update;
    if (p_day_tokens > 0 and used_tokens + p_tokens > p_day_tokens)
        or (p_day_calls > 0 and used_calls + 1 > p_day_calls) then
        blocked := 'day';
        return;
    end if;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend
        where scope = 'turn:' || p_turn and period = '' for update;
    if (p_turn_tokens > 0 and used_tokens + p_tokens > p_turn_tokens)
        or (p_turn_calls > 0 and used_calls + 1 > p_turn_calls) then
        blocked := 'turn';
        return;
    end if;
    update turnkeeper.spend set tokens = tokens + p_tokens, calls = calls + 1
        where (scope, period) in (('turn:' || p_turn, ''), ('agent:' || p_agent, day));
    insert into turnkeeper.spend_reservations (turn_id, agent, period, tokens)
        values (p_turn, p_agent, day, p_tokens) returning id into reservation;
end $$;

-- Replace the estimate of a reservation with the actual use.
create function turnkeeper.settle_spend(p_reservation bigint, p_used bigint) returns void language plpgsql as $$
declare
    r record;
begin
    update turnkeeper.spend_reservations set settled_at = clock_timestamp(), used = p_used
        where id = p_reservation and settled_at is null
        returning turn_id, agent, period, tokens into r;
    if found then
        update turnkeeper.spend set tokens = tokens + p_used - r.tokens
            where (scope, period) in (('turn:' || r.turn_id, ''), ('agent:' || r.agent, r.period));
    end if;
end $$;

-- Like reserve_spend, but also for the budget of a tree of agents.
create function turnkeeper.reserve_tree_spend(
    p_root bigint, p_tree_tokens bigint, p_tree_calls bigint, p_turn bigint, p_agent text, p_tokens bigint,
    p_turn_tokens bigint, p_turn_calls bigint, p_day_tokens bigint, p_day_calls bigint,
    out reservation bigint, out blocked text, out used_tokens bigint, out used_calls bigint
) language plpgsql as $$
begin
    select r.reservation, r.blocked, r.used_tokens, r.used_calls into reservation, blocked, used_tokens, used_calls
    from turnkeeper.reserve_spend(p_turn, p_agent, p_tokens, p_turn_tokens, p_turn_calls, p_day_tokens, p_day_calls) r;
    if blocked <> '' then
        return;
    end if;
    insert into turnkeeper.spend (scope, period) values ('tree:' || p_root, '') on conflict do nothing;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend where scope = 'tree:' || p_root and period = '' for update;
    if (p_tree_tokens > 0 and used_tokens + p_tokens > p_tree_tokens) or (p_tree_calls > 0 and used_calls + 1 > p_tree_calls) then
        update turnkeeper.spend s set tokens = s.tokens - p_tokens, calls = s.calls - 1
        from turnkeeper.spend_reservations r
        where r.id = reservation and (s.scope, s.period) in (('turn:' || p_turn, ''), ('agent:' || p_agent, r.period));
        delete from turnkeeper.spend_reservations where id = reservation;
        reservation := 0;
        blocked := 'tree';
        return;
    end if;
    update turnkeeper.spend set tokens = tokens + p_tokens, calls = calls + 1 where scope = 'tree:' || p_root and period = '';
    update turnkeeper.spend_reservations set root = p_root where id = reservation;
end $$;

create function turnkeeper.settle_tree_spend() returns trigger language plpgsql as $$
begin
    update turnkeeper.spend set tokens = tokens + new.used - new.tokens where scope = 'tree:' || new.root and period = '';
    return null;
end $$;
create constraint trigger tree_spend_settled after update on turnkeeper.spend_reservations
    deferrable initially deferred for each row
    when (new.root is not null and old.settled_at is null and new.settled_at is not null)
    execute function turnkeeper.settle_tree_spend();

----------------------------------------------------------------------------------------------------
-- The end of a dispatch
----------------------------------------------------------------------------------------------------

-- End a dispatch: everything that must be committed together with the reply. The caller has locked the turn's row by the
-- fence (the statement Step), as whoever delivers a result does, or it is the scheduler. No end is recorded before its
-- beginning, even if the clock was set back. A turn with a request to cancel is closed instead of queued, suspended or
-- retried.
create function turnkeeper.end_dispatch(
    p_turn bigint, p_grant uuid, p_state text, p_log text, p_stop text,
    p_reply text, p_inner text, p_error_class text, p_error text,
    p_message_state text, p_lost boolean, p_backoff interval, p_lane_backoff interval,
    p_job bigint -- River's job to delete; 0: the caller closes it
) returns void language plpgsql as $$
declare
    t        record;
    accepted timestamptz;
    final    text := p_state;
    ended    boolean := p_state not in ('queued', 'waiting');
begin
    if p_state = 'waiting' then
        -- The turn waits only if it awaits results and none has arrived.
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
        error          = nullif(p_error, ''),
        last_seq = w.last_seq, inference_rounds = w.inference_rounds, charged_rounds = w.charged_rounds, executed_calls = w.executed_calls,
        input_tokens = w.input_tokens, output_tokens = w.output_tokens, cached_tokens = w.cached_tokens,
        reasoning_tokens = w.reasoning_tokens, usage_estimated = w.usage_estimated
    from turnkeeper.newest_write(p_turn) w
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
    where lane = t.lane and grant_id is not distinct from p_grant; -- "=" would let Postgres look in the index of held leases
    if not found then
        raise exception using errcode = 'TK001', message = 'the lease is no longer held';
    end if;
    update turnkeeper.lease_log set ended_at = greatest(clock_timestamp(), granted_at), outcome = p_log, worker_id = t.worker_id
    where grant_id = p_grant;
    -- Deleting the job changes none of the table's seven indexes. River, which completes it later, ignores missing jobs.
    delete from turnkeeper.river_job where id = p_job;
    if (not ended or p_message_state = 'waiting') and exists (select from turnkeeper.cancellations where turn_id = p_turn) then
        if ended then
            perform turnkeeper.cancel_waiting(t.message_id, (select reason from turnkeeper.cancellations where turn_id = p_turn));
        else
            perform turnkeeper.close_cancelled(p_turn);
        end if;
    end if;
    -- The end of a turn only frees a slot and a lane: a scheduler without other work need not look.
    perform pg_notify('turnkeeper_inbox', case when ended and p_message_state <> 'waiting' then 'freed' else '' end),
        pg_notify('turnkeeper_turns', '');
end $$;

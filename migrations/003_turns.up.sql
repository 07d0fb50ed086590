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
    if old.state = 'waiting' then
        new.waits_for := null;
    end if;
    return new;
end $$;
create trigger turn_moves before update of state on turnkeeper.turns
    for each row when (old.state is distinct from new.state)
    execute function turnkeeper.check_turn_move();

----------------------------------------------------------------------------------------------------
-- The journal
----------------------------------------------------------------------------------------------------

-- The start of a call, as append_many takes it.
create type turnkeeper.call_start as (
    round     integer,
    ordinal   integer,
    attempt   integer,
    effect    text,
    nonce     text,
    agent     text,
    name      text,
    args_hash text,
    ask       bigint, -- the ask that it uses up; 0: none
    run_hash  text,   -- of the approved arguments; empty: no approval is needed, see check_approvals
    run_args  text    -- the arguments that will run; empty or null: as planned
);

-- A write to the journal of a turn, as append_many takes it.
create type turnkeeper.journal_write as (
    id                 uuid,      -- by which a writer whose commit was not answered finds out whether it was done: see
                                  -- ReadBack
    turn               bigint,
    token              bigint,    -- this and the next two: the grant that its writer has
    grant_id           uuid,
    worker_id          text,
    seen               bigint,    -- number of earlier writes that its writer has seen
    needed             boolean,   -- by other statements of the transaction
    inference_rounds   bigint,    -- this and the next eight: what it adds to the turn's totals
    charged_rounds     bigint,
    executed_calls     bigint,
    input_tokens       bigint,
    output_tokens      bigint,
    cached_tokens      bigint,
    cache_write_tokens bigint,
    reasoning_tokens   bigint,
    usage_estimated    boolean,
    types              text[],    -- this and the next three: its events, an element for each
    rounds             integer[],
    blocks             integer[],
    data               text[],
    round              integer,   -- 0: it has no answer
    answer             text,      -- this and the next seven: as the columns of the table journal; empty: null, but for
                                  -- the two texts of an answer
    calls              text,
    text               text,
    reasoning          text,
    raw                text,
    request            text,
    earlier            text,
    results            text,
    starts             text       -- of calls, as JSON, a call_start for each; empty: none
);

-- Append writes to the journals of turns: a row for each, and the starts of calls. It is the fence: it locks the turns'
-- rows in the order of their ids, and a write is refused unless its writer has the turn's newest grant and is the
-- worker bound to it (see BindGrant), and has seen all earlier writes. The conditions contain no time. The statement
-- that compares the number of earlier writes sees all that were done under the lock. Two writes may be of one turn,
-- which one of the writers has lost. p_answered are models that answered, and p_proofs what that proves: see
-- note_models.
--
-- If p_alone, the function waits for locks and raises an error for a refused write. Otherwise it skips rows that are
-- locked, lets no later statement of the transaction wait for a lock for longer than p_lock_wait, and returns the
-- numbers of the writes that were not done: with code TK001 or TK002, or with an empty code if the row was locked. It
-- raises an error if one of them is needed by other statements.
create function turnkeeper.append_many(
    p_writes turnkeeper.journal_write[], p_alone boolean, p_lock_wait text, p_answered text[], p_proofs bigint[]
) returns table (write integer, code text, message text) language plpgsql as $$
#variable_conflict use_column
declare
    r          record;
    v_unlocked uuid[]; -- the writes whose turns this transaction has locked; this and the next two: null: none
    v_held     uuid[]; -- those of them whose writers have the turn
    v_done     uuid[]; -- those of them that are in the journal now
    v_starts   boolean; -- whether any of the writes starts calls
begin
    -- Lateral, and with the fence's other conditions not in the where clause, so that Postgres can only look up the
    -- ids. A join that is planned while the table is small reads the whole table later.
    if p_alone then
        select array_agg(w.id), array_agg(w.id) filter (where t.token = w.token and t.grant_id = w.grant_id
            and t.state = 'running' and t.worker_id = w.worker_id), bool_or(w.starts <> '')
        into v_unlocked, v_held, v_starts from unnest(p_writes) w,
            lateral (select x.token, x.grant_id, x.state, x.worker_id from turnkeeper.turns x
                where x.id = w.turn for no key update) t;
    else
        perform set_config('lock_timeout', p_lock_wait, true);
        select array_agg(w.id), array_agg(w.id) filter (where t.token = w.token and t.grant_id = w.grant_id
            and t.state = 'running' and t.worker_id = w.worker_id), bool_or(w.starts <> '')
        into v_unlocked, v_held, v_starts from unnest(p_writes) w,
            lateral (select x.token, x.grant_id, x.state, x.worker_id from turnkeeper.turns x
                where x.id = w.turn for no key update skip locked) t;
    end if;
    with written as (
        insert into turnkeeper.journal as j (turn_id, n, write_id, seq, last_seq, at,
            inference_rounds, charged_rounds, executed_calls,
            input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, usage_estimated,
            types, rounds, blocks, data,
            round, answer, calls, text, reasoning, raw, request, earlier, results)
        select w.turn, b.n + 1, w.id, b.last_seq + 1, b.last_seq + cardinality(w.types),
            greatest(clock_timestamp(), b.at),
            b.inference_rounds + w.inference_rounds,
            b.charged_rounds + w.charged_rounds,
            b.executed_calls + w.executed_calls,
            b.input_tokens + w.input_tokens,
            b.output_tokens + w.output_tokens,
            b.cached_tokens + w.cached_tokens,
            b.cache_write_tokens + w.cache_write_tokens,
            b.reasoning_tokens + w.reasoning_tokens,
            b.usage_estimated or w.usage_estimated,
            w.types, w.rounds, w.blocks, w.data,
            nullif(w.round, 0),
            nullif(w.answer, '')::json,
            nullif(w.calls, '')::json,
            case when w.round > 0 then w.text end,
            case when w.round > 0 then w.reasoning end,
            nullif(w.raw, ''),
            nullif(w.request, '')::json,
            nullif(w.earlier, '')::json,
            nullif(w.results, '')::json
        from unnest(p_writes) w, lateral turnkeeper.newest_write(w.turn) b
        where w.id = any(v_held) and b.n = w.seen
        returning j.write_id
    )
    select array_agg(write_id) into v_done from written;
    if v_starts then
        perform turnkeeper.check_approvals(array_agg(w.turn), array_agg(s.round), array_agg(s.ordinal),
            array_agg(s.attempt), array_agg(s.ask), array_agg(s.run_hash))
        from unnest(p_writes) w, json_populate_recordset(null::turnkeeper.call_start, nullif(w.starts, '')::json) s
        where w.id = any(v_done);
        insert into turnkeeper.call_starts (turn_id, n, token, worker_id, started_at, round, ordinal, attempt, effect,
            nonce, agent, name, args_hash, ask_id, run_hash, run_args)
        select w.turn, j.n, w.token, w.worker_id, j.at, s.round, s.ordinal, s.attempt, s.effect,
            s.nonce, s.agent, s.name, s.args_hash, nullif(s.ask, 0), nullif(s.run_hash, ''), nullif(s.run_args, '')
        from unnest(p_writes) w, json_populate_recordset(null::turnkeeper.call_start, nullif(w.starts, '')::json) s,
            turnkeeper.journal j
        where j.turn_id = w.turn and j.n = w.seen + 1 and w.id = any(v_done);
    end if;
    perform turnkeeper.note_models(p_answered, p_proofs);
    if cardinality(v_done) = cardinality(p_writes) then
        return;
    end if;
    for r in select w.*, w.id = any(v_unlocked) as unlocked, w.id = any(v_held) as held
        from unnest(p_writes) with ordinality w where (w.id = any(v_done)) is not true
    loop
        write := r.ordinality;
        if r.held then
            code := 'TK002';
            message := format('the journal has moved on: it has %s writes, not the expected %s', (select n
                from turnkeeper.newest_write(r.turn)), r.seen);
        elsif p_alone or r.unlocked then
            code := 'TK001';
            message := 'the lease is no longer held';
        else
            code := '';
            message := 'the turn is locked';
        end if;
        if p_alone or r.needed then
            raise exception using errcode = coalesce(nullif(code, ''), '55P03'), message = message;
        end if;
        return next;
    end loop;
end $$;

-- Whether a conversation has a closed turn before another. Without statistics, Postgres would read all turns of the
-- agent and sort them; the order and the settings leave it only the index of the conversation's turns.
create function turnkeeper.has_past(p_agent text, p_user text, p_conversation text, p_before bigint) returns boolean
stable language plpgsql set enable_sort = off set enable_bitmapscan = off as $$
begin
    perform from turnkeeper.turns p
    where p.agent = p_agent and p.user_name = p_user and p.conversation >= p_conversation
        and p.conversation <= p_conversation and p.id < p_before
      and p.state in ('succeeded', 'degraded', 'failed', 'cancelled')
    order by p.conversation desc, p.id desc limit 1;
    return found;
end $$;

-- Add a write without a grant to the journal of a turn whose row the caller has locked: events, and results as in the
-- view call_results; null: none.
create function turnkeeper.add_write(p_turn bigint, p_types text[], p_rounds integer[], p_blocks integer[],
    p_data text[], p_results json)
returns void language plpgsql as $$
begin
    insert into turnkeeper.journal
    select p_turn, w.n + 1, null, w.last_seq + 1, w.last_seq + cardinality(p_types), greatest(clock_timestamp(), w.at),
        w.inference_rounds, w.charged_rounds, w.executed_calls, w.input_tokens, w.output_tokens, w.cached_tokens,
        w.cache_write_tokens, w.reasoning_tokens,
        w.usage_estimated, p_types, p_rounds, p_blocks, p_data, null, null, null, null, null, null, null, null,
        p_results
    from turnkeeper.newest_write(p_turn) w;
end $$;

create function turnkeeper.add_events(p_turn bigint, p_types text[], p_rounds integer[], p_blocks integer[],
    p_data text[])
returns void language plpgsql as $$
begin
    perform turnkeeper.add_write(p_turn, p_types, p_rounds, p_blocks, p_data, null);
end $$;

-- Store a result that came after its writer, which had the grant p_grant, lost the lease: as the call's result if the
-- call is open and no other worker has the turn, else as its late result, which changes nothing. The result of a
-- detached call comes by awaited_calls instead.
create function turnkeeper.late_result(
    p_turn bigint, p_grant uuid, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_shown text,
        p_preview text
) returns void language plpgsql as $$
declare
    c record;
begin
    if not exists (select from turnkeeper.call_starts s where s.turn_id = p_turn and s.round = p_round
        and s.ordinal = p_ordinal and s.nonce = p_nonce) then
        return;
    end if;
    perform from turnkeeper.turns t where t.id = p_turn for no key update;
    select x.*, t.state = 'queued' or t.state = 'running' and t.grant_id = p_grant as free into c
    from turnkeeper.calls x join turnkeeper.turns t on t.id = x.turn_id where x.turn_id = p_turn and x.round = p_round
        and x.ordinal = p_ordinal;
    if c.free and c.nonce = p_nonce and c.state in ('started', 'running') and not c.awaited then
        -- What the model has seen of a background call is kept.
        perform turnkeeper.add_write(p_turn, '{}', '{}', '{}', '{}', json_build_array(json_build_object('round',
            p_round, 'ordinal', p_ordinal,
            'state', p_state, 'shown', case when c.state = 'running' then c.shown else p_shown end, 'preview',
                p_preview, 'output_id', c.output_id)));
    else
        insert into turnkeeper.late_results (turn_id, round, ordinal, result)
            values (p_turn, p_round, p_ordinal, p_shown) on conflict do nothing;
    end if;
end $$;

-- Give every open call of a turn its final result, because the turn ends without a worker. The caller has locked the
-- turn's row. The texts are for a call whose outcome is unknown, a planned call without an effect (which runs without a
-- start on record), any other planned call, a call whose sub-agent has not replied, and a detached call without and
-- with an effect that has not ended; an empty text of those: the outcome is unknown. A call whose handle the model was
-- shown keeps it, because later requests repeat the ones that contain it.
create function turnkeeper.settle_calls(p_turn bigint, p_unknown text, p_perhaps text, p_not_run text, p_spawned text,
    p_detached text, p_detached_effect text)
returns void language plpgsql as $$
declare
    open_calls json;
begin
    select json_agg(json_build_object('round', c.round, 'ordinal', c.ordinal, 'output_id', coalesce(a.output_id,
        c.output_id), 'state',
        case when c.state = 'planned' then 'cancelled' when a.arrived_at is not null then a.state when o.cancelled <> ''
            then 'cancelled' else 'unknown' end,
        'shown', case when c.state = 'planned' then o.planned when c.state = 'running' and c.output_id is not null
            then c.shown when a.arrived_at is not null then a.preview
            else coalesce(nullif(o.cancelled, ''), p_unknown || o.edited) end,
        'preview', case when c.state = 'planned' then left(o.planned, 220) when a.arrived_at is not null then a.preview
            else left(coalesce(nullif(o.cancelled, ''), p_unknown || o.edited), 220) end,
        'duration_ms', a.duration_ms) order by c.round, c.ordinal) into open_calls
    from turnkeeper.calls c
    left join turnkeeper.awaited_calls a on (a.turn_id, a.round, a.ordinal) = (c.turn_id, c.round, c.ordinal)
        and a.closed_at is null and c.state = 'running'
    left join turnkeeper.spawned_calls s on (s.turn_id, s.round, s.ordinal) = (c.turn_id, c.round, c.ordinal)
        and c.state = 'running'
    cross join lateral (select case when c.effect = 'none' then p_perhaps else p_not_run end as planned,
        case when s.turn_id is not null and p_spawned <> '' then p_spawned when a.turn_id is null then ''
            when c.effect = 'none' then p_detached else p_detached_effect end as cancelled,
        case when c.planned_args is not null and exists (select from turnkeeper.asks k
            where (k.turn_id, k.round, k.ordinal) = (c.turn_id, c.round, c.ordinal) and k.kind = 'approve'
                and k.edited is not null)
            then E'\n\n[A person changed the arguments of this call before it ran. It ran with: ' || c.arguments || ']'
                else '' end as edited) o
    where c.turn_id = p_turn and c.state in ('planned', 'started', 'running');
    if open_calls is not null then
        perform turnkeeper.add_write(p_turn, '{}', '{}', '{}', '{}', open_calls);
        perform turnkeeper.stop_awaiting(p_turn, array_agg(a.round), array_agg(a.ordinal))
            from turnkeeper.awaited_calls a
        where a.turn_id = p_turn and a.closed_at is null;
    end if;
end $$;

-- The events of a turn after a number, in order. It reads only the rows that hold them, unlike the view turn_events.
create function turnkeeper.events_after(p_turn bigint, p_after bigint, p_limit bigint)
returns table (seq bigint, type text, round integer, block integer, data json, at timestamptz) stable language sql as $$
    select j.seq + e.i - 1, e.type, e.round, e.block, nullif(e.data, '')::json, j.at
    from turnkeeper.journal j, lateral unnest(j.types, j.rounds, j.blocks, j.data) with ordinality as e (type, round,
        block, data, i)
    where j.turn_id = p_turn and j.seq + e.i - 1 > p_after and j.n > coalesce((
        select p.n from turnkeeper.journal p where p.turn_id = p_turn and p.last_seq <= p_after
            order by p.n desc limit 1), 0)
    order by j.n, e.i limit p_limit
$$;

-- Roughly the id of the first turn that was created at or after a time, by binary search: ids are in the order of
-- creation except where the clock was set back. It is the lower bound of a list by time, because turns have no index on
-- their times.
create function turnkeeper.first_turn(p_since timestamptz) returns bigint stable language plpgsql as $$
begin
    return (
        with recursive half (low, high) as (
            select coalesce(min(id), 1), coalesce(max(id), 0) + 1 from turnkeeper.turns
            union all
            select case when t.created_at < p_since then t.id + 1 else h.low end, case when t.created_at < p_since
                then h.high else h.middle end
            from (select low, high, (low + high) / 2 as middle from half where low < high) h
            left join lateral (select id, created_at from turnkeeper.turns where id >= h.middle and id < h.high
                order by id limit 1) t on true
        )
        select low from half where low >= high);
end $$;

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
        raise exception using errcode = 'TK002',
            message = 'the journal has moved on: the draft of a result was deleted';
    end if;
end $$;

-- Delete the drafts of turns that no longer run under the grant that created them, and the draft p_output. The chunks
-- are deleted by a second statement, because whoever was adding some held the draft's row until they were visible.
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

-- Insert the River job for a run of a detached call, and return its id. Each tool has a queue for the workers that have
-- the tool. scheduled_at is in the past: River fetches jobs whose scheduled_at is not after now(), and its default, the
-- start of the transaction, would delay the job if the clock is set back.
create function turnkeeper.ring_detached(p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer,
    p_tool text)
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
create function turnkeeper.detach_calls(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_names text[], p_limits interval[],
        p_wait interval
) returns void language plpgsql as $$
begin
    insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce)
    select p_turn, s.round, s.ordinal, s.nonce from unnest(p_rounds, p_ordinals, p_nonces) as s(round, ordinal, nonce);
    insert into turnkeeper.detached_calls (turn_id, round, ordinal, time_limit, deadline, look_at, job_id)
    select p_turn, s.round, s.ordinal, s.time_limit, clock_timestamp() + p_wait,
        clock_timestamp() + interval '1 minute',
        turnkeeper.ring_detached(p_turn, s.round, s.ordinal, 1, s.name)
    from unnest(p_rounds, p_ordinals, p_names, p_limits) as s(round, ordinal, name, time_limit);
end $$;

-- Record the result of an awaited call, and queue its turn if the turn waits. A running turn finds the result.
create function turnkeeper.arrive_call(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_preview text, p_duration bigint,
        p_output text
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
    select r.*, a.nonce into d from turnkeeper.detached_calls r join turnkeeper.awaited_calls a
        using (turn_id, round, ordinal)
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
    update turnkeeper.river_job set state = (case when p_claim <> '' then 'completed'
        else 'cancelled' end)::turnkeeper.river_job_state,
        finalized_at = clock_timestamp()
    where id = d.job_id and state not in ('completed', 'cancelled', 'discarded');
    if p_claim = '' then -- stop a worker that still runs it
        perform pg_notify('turnkeeper_calls', '');
    end if;
end $$;

-- Run a detached call again: the next attempt of one that was claimed, a new job for one that was not.
create function turnkeeper.run_detached_again(
    p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_claim text, p_nonce text, p_lost boolean,
        p_wait interval
) returns void language plpgsql as $$
declare
    d record;
begin
    perform from turnkeeper.turns where id = p_turn for update;
    select r.*, s.name as tool, s.effect, s.agent, s.args_hash, s.run_hash, s.run_args into d
    from turnkeeper.detached_calls r join turnkeeper.call_starts s using (turn_id, round, ordinal, attempt)
    where r.turn_id = p_turn and r.round = p_round and r.ordinal = p_ordinal for update of r;
    if d.ended_at is not null or d.attempt <> p_attempt or p_claim <> '' and d.claim is distinct from p_claim then
        raise exception using errcode = 'TK001', message = 'the call is no longer this worker''s';
    end if;
    update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
    where id = d.job_id and state not in ('completed', 'cancelled', 'discarded');
    if d.claim is null then
        update turnkeeper.detached_calls set job_id = turnkeeper.ring_detached(p_turn, p_round, p_ordinal,
            attempt, d.tool),
            look_at = clock_timestamp() + interval '1 minute'
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
        return;
    end if;
    -- Write 0 and token 0: without a grant. The key refuses a second start.
    insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent,
        name, args_hash, run_hash, run_args)
    values (p_turn, p_round, p_ordinal, p_attempt + 1, d.effect, 0, 0, p_nonce, d.worker_id, d.agent, d.tool,
        d.args_hash, d.run_hash, d.run_args);
    update turnkeeper.awaited_calls set nonce = p_nonce where turn_id = p_turn and round = p_round
        and ordinal = p_ordinal;
    update turnkeeper.detached_calls set attempt = p_attempt + 1, claim = null, worker_id = null, claimed_at = null,
        lost_at = null,
        losses = losses + p_lost::integer, deadline = clock_timestamp() + p_wait,
        look_at = clock_timestamp() + interval '1 minute',
        job_id = turnkeeper.ring_detached(p_turn, p_round, p_ordinal, p_attempt + 1, d.tool)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    perform pg_notify('turnkeeper_calls', '');
end $$;

-- Close the waits of calls once the journal has their results. Cancel the jobs of runs, and notify workers that still
-- run them. Cancel sub-agents whose calls were answered without them: if one runs, its worker stops it; if not, the
-- next tick closes it. It locks none of a sub-agent's rows, because the sub-agent's own end locks them in the opposite
-- order.
create function turnkeeper.stop_awaiting(p_turn bigint, p_rounds integer[],
    p_ordinals integer[]) returns void language plpgsql as $$
declare
    jobs     bigint[];
    messages bigint[];
begin
    update turnkeeper.awaited_calls a set closed_at = greatest(clock_timestamp(), a.opened_at)
        from unnest(p_rounds, p_ordinals) as c(round, ordinal)
    where a.turn_id = p_turn and a.round = c.round and a.ordinal = c.ordinal and a.closed_at is null;
    with ended as (
        update turnkeeper.detached_calls d set ended_at = clock_timestamp()
            from unnest(p_rounds, p_ordinals) as c(round, ordinal)
        where d.turn_id = p_turn and d.round = c.round and d.ordinal = c.ordinal and d.ended_at is null
            returning d.job_id
    )
    select array_agg(job_id) into jobs from ended;
    if jobs is not null then
        update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
        where id = any(jobs) and state not in ('completed', 'cancelled', 'discarded');
        perform pg_notify('turnkeeper_calls', '');
    end if;
    with dropped as (
        update turnkeeper.spawned_calls s set dropped_at = clock_timestamp(), notified_at = coalesce(s.notified_at,
            clock_timestamp())
        from unnest(p_rounds, p_ordinals) as c(round, ordinal)
        where s.turn_id = p_turn and s.round = c.round and s.ordinal = c.ordinal and s.ended_at is null
            and s.dropped_at is null
        returning s.message_id
    )
    select array_agg(message_id) into messages from dropped;
    if messages is not null then
        perform turnkeeper.ask_end(t.id, 'cancel', turnkeeper.drop_reason(p_turn))
        from turnkeeper.turns t where t.message_id = any(messages) and t.ended_at is null;
        perform pg_notify('turnkeeper_cancels', ''), pg_notify('turnkeeper_inbox', '');
    end if;
end $$;

create function turnkeeper.drop_reason(p_parent bigint) returns text immutable language sql
    return 'its parent, turn ' || p_parent::text || ', no longer waits for it';

----------------------------------------------------------------------------------------------------
-- Sub-agents
----------------------------------------------------------------------------------------------------

-- Start sub-agents for calls that the same write has started: one message each, in its own conversation and lane. It
-- gets user, due_at and priority of its parent's message, so that a started tree goes before younger messages. A call
-- that is not allowed gets a result that says why.
create function turnkeeper.spawn_agents(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_messages bigint[], p_names text[],
    p_tasks text[],
    p_root bigint, p_agents text[], p_max_depth integer, p_max_agents integer, p_tokens bigint, p_calls bigint,
        p_within interval
) returns void language plpgsql as $$
declare
    parent    record;
    s         record;
    v_max     integer;
    max_bytes integer;
    conv      text;
    refused   text;
begin
    insert into turnkeeper.agent_trees (root, max_depth, max_agents, tokens, calls)
    values (p_root, p_max_depth, p_max_agents, p_tokens, p_calls) on conflict do nothing;
    -- The lock makes spawns in one tree serial.
    select t.max_agents into v_max from turnkeeper.agent_trees t where t.root = p_root for update;
    select m.user_name, m.priority, m.due_at, m.trace_parent into parent
    from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id where t.id = p_turn;
    select max_message_bytes into max_bytes from turnkeeper.settings;
    for s in
        select u.round, u.ordinal, u.nonce, u.message, u.name, u.task
        from unnest(p_rounds, p_ordinals, p_nonces, p_messages, p_names, p_tasks) as u(round, ordinal, nonce,
            message, name, task)
    loop
        refused := case
            when not exists (select from turnkeeper.agents a where a.name = s.name) then 'unknown_agent'
            when octet_length(s.task) > max_bytes then 'task_too_long'
            when (select count(*) from turnkeeper.spawned_calls c
                where c.root = p_root and c.message_id is not null) >= v_max
                then 'max_tree_sub_agents'
        end;
        insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce)
            values (p_turn, s.round, s.ordinal, s.nonce);
        if refused is null then
            conv := format('turn-%s-round-%s-tool-%s', p_turn, s.round, s.ordinal);
            insert into turnkeeper.messages (id, agent, user_name, conversation, lane, body, priority, due_at,
                trace_parent, sent_by)
            overriding system value
            values (s.message, s.name, parent.user_name, conv, turnkeeper.lane_of(s.name, parent.user_name, conv, true),
                s.task, parent.priority,
                least(parent.due_at, date_trunc('second', clock_timestamp())), parent.trace_parent, 'turn:' || p_turn);
        end if;
        insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline,
            failure, ended_at)
        values (p_turn, s.round, s.ordinal, case when refused is null then s.message end, s.name, p_root,
            p_agents || s.name,
            clock_timestamp() + p_within, refused, case when refused is not null then clock_timestamp() end);
        if refused is not null then
            perform turnkeeper.notify_parent(p_turn, s.round, s.ordinal);
        end if;
    end loop;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- Record the outcome of a sub-agent as the result of its parent's call. The function waits for no lock: if the parent's
-- row is locked, the scheduler does it later. Returns whether nothing is left to record.
create function turnkeeper.notify_parent(p_turn bigint, p_round integer,
    p_ordinal integer) returns boolean language plpgsql as $$
declare
    s       record;
    v_nonce text;
begin
    perform from turnkeeper.turns where id = p_turn for update skip locked;
    if not found and exists (select from turnkeeper.turns where id = p_turn) then
        return false;
    end if;
    select * into s from turnkeeper.spawned_calls where turn_id = p_turn and round = p_round
        and ordinal = p_ordinal for update;
    if s.notified_at is not null then
        return true;
    end if;
    select nonce into v_nonce from turnkeeper.awaited_calls
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and arrived_at is null and closed_at is null;
    if found then
        perform turnkeeper.arrive_call(p_turn, p_round, p_ordinal, v_nonce,
            case when s.outcome in ('succeeded', 'degraded') then 'succeeded' else 'failed' end,
            format('the agent %s: %s', s.agent, coalesce(s.outcome, s.failure)),
            greatest(extract(epoch from clock_timestamp() - s.spawned_at) * 1000, 0)::bigint, null);
    end if;
    update turnkeeper.spawned_calls set notified_at = clock_timestamp() where turn_id = p_turn and round = p_round
        and ordinal = p_ordinal;
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
        if not turnkeeper.notify_parent(s.turn_id, s.round, s.ordinal) then
            perform pg_notify('turnkeeper_inbox', '');
        end if;
        -- Keep nothing if the parent's records were purged.
        delete from turnkeeper.spawned_calls where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal
            and not exists (select from turnkeeper.turns where id = s.turn_id);
    end if;
    return null;
end $$;
create trigger spawned_reply after insert
    on turnkeeper.replies for each row execute function turnkeeper.note_spawned_reply();

-- A tick's work on sub-agents: deliver results to parents whose row was locked before, give up overdue sub-agents, and
-- cancel those that nobody waits for. It also closes messages that their senders have dropped. Returns how many it
-- changed. The caller has the scheduler's lock. What fails is set aside, and stops no other.
create function turnkeeper.settle_spawned(p_timely boolean, p_limit integer) returns integer language plpgsql as $$
declare
    s         record;
    n         integer := 0;
    v_message bigint;
begin
    for s in
        select * from (select c.turn_id, c.round, c.ordinal, 'ended' as work from turnkeeper.spawned_calls c
            where c.ended_at is not null and c.notified_at is null
              and not turnkeeper.is_aside('sub_agent', format('%s/%s/%s', c.turn_id, c.round, c.ordinal))
            order by c.ended_at limit p_limit for update skip locked) ended
        union all
        select * from (select c.turn_id, c.round, c.ordinal, 'overdue' from turnkeeper.spawned_calls c
            join turnkeeper.turns t on t.id = c.turn_id
            where p_timely and c.ended_at is null and c.notified_at is null and c.deadline <= statement_timestamp()
              and not turnkeeper.is_aside('sub_agent', format('%s/%s/%s', c.turn_id, c.round, c.ordinal))
            order by c.deadline limit p_limit for update skip locked) overdue
        union all
        select * from (select c.turn_id, c.round, c.ordinal, 'dropped' from turnkeeper.spawned_calls c
            where c.dropped_at is not null and c.ended_at is null
              and not turnkeeper.is_aside('sub_agent', format('%s/%s/%s', c.turn_id, c.round, c.ordinal))
            order by c.dropped_at limit p_limit for update skip locked) dropped
    loop
        begin
            n := n + turnkeeper.settle_spawned_call(s.turn_id, s.round, s.ordinal, s.work)::integer;
        exception when others then
            perform turnkeeper.put_aside_or_raise('sub_agent', format('%s/%s/%s', s.turn_id, s.round, s.ordinal),
                sqlstate, sqlerrm);
        end;
    end loop;
    for v_message in select m.id from turnkeeper.waiting m where m.dropped_at is not null
        and not turnkeeper.is_aside('message', m.id::text) order by m.id limit p_limit for update skip locked
    loop
        begin
            perform turnkeeper.cancel_waiting(v_message, 'dropped by its sender');
            n := n + 1;
        exception when others then
            perform turnkeeper.put_aside_or_raise('message', v_message::text, sqlstate, sqlerrm);
        end;
    end loop;
    return n;
end $$;

-- Settle one sub-agent, and return whether that changed anything. With a turn that is closed, its own sub-agents are
-- cancelled at once, so that the tick does not grant them.
create function turnkeeper.settle_spawned_call(p_turn bigint, p_round integer, p_ordinal integer,
    p_work text) returns boolean language plpgsql as $$
declare
    s       record;
    v_state text;
    v_turn  bigint;
begin
    select * into s from turnkeeper.spawned_calls where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    if p_work = 'overdue' then
        update turnkeeper.spawned_calls set failure = 'timeout' where turn_id = p_turn and round = p_round
            and ordinal = p_ordinal;
    end if;
    if p_work <> 'dropped' then
        return turnkeeper.notify_parent(p_turn, p_round, p_ordinal);
    end if;
    select m.state, m.turn_id into v_state, v_turn from turnkeeper.messages m where m.id = s.message_id
        for update skip locked;
    if v_state = 'waiting' then
        perform turnkeeper.cancel_waiting(s.message_id, turnkeeper.drop_reason(s.turn_id));
        return true;
    elsif v_state = 'running' then
        if not exists (select from turnkeeper.requested_ends where turn_id = v_turn and how = 'cancel') then
            perform turnkeeper.ask_end(v_turn, 'cancel', turnkeeper.drop_reason(s.turn_id));
        end if;
        select t.state into v_state from turnkeeper.turns t where t.id = v_turn for update skip locked;
        if v_state in ('queued', 'waiting') then
            perform turnkeeper.close_cancelled(v_turn);
            perform turnkeeper.settle_spawned_call(c.turn_id, c.round, c.ordinal, 'dropped')
            from turnkeeper.spawned_calls c
            where c.turn_id = v_turn and c.dropped_at is not null and c.ended_at is null;
            return true;
        end if;
    elsif not exists (select from turnkeeper.messages m where m.id = s.message_id) then -- it was purged
        update turnkeeper.spawned_calls set ended_at = clock_timestamp() where turn_id = p_turn and round = p_round
            and ordinal = p_ordinal;
    end if;
    return false;
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
create trigger spawned_forgotten after delete
    on turnkeeper.turns for each row execute function turnkeeper.forget_spawned();

----------------------------------------------------------------------------------------------------
-- Budgets. The rows of spend are always locked in this order: agent, turn, tree.
----------------------------------------------------------------------------------------------------

-- Reserve an estimate in the budgets of a turn and of its agent's day. Returns the id of the reservation, or 0 and the
-- exhausted budget. The caller has chosen its model for the survival level p_level, which is empty if that does not
-- matter: if the agent has another one, nothing is reserved, and blocked is 'level'.
create function turnkeeper.reserve_spend(
    p_turn bigint, p_agent text, p_tokens bigint,
    p_turn_tokens bigint, p_turn_calls bigint, p_day_tokens bigint, p_day_calls bigint, p_level text,
    out reservation bigint, out blocked text, out used_tokens bigint, out used_calls bigint, out level text
) language plpgsql as $$
declare
    day text := to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD');
begin
    reservation := 0; blocked := '';
    insert into turnkeeper.spend (scope, period) values ('turn:' || p_turn, ''), ('agent:' || p_agent, day)
        on conflict do nothing;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend
        where scope = 'agent:' || p_agent and period = day for update;
    perform turnkeeper.note_level(p_agent, day);
    level := turnkeeper.level_of(p_agent);
    if p_level <> '' and p_level <> level then
        blocked := 'level';
        return;
    end if;
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
        perform turnkeeper.note_level(r.agent, r.period);
    end if;
end $$;

-- Like reserve_spend, but also for the budget of a tree of agents.
create function turnkeeper.reserve_tree_spend(
    p_root bigint, p_tree_tokens bigint, p_tree_calls bigint, p_turn bigint, p_agent text, p_tokens bigint,
    p_turn_tokens bigint, p_turn_calls bigint, p_day_tokens bigint, p_day_calls bigint, p_level text,
    out reservation bigint, out blocked text, out used_tokens bigint, out used_calls bigint, out level text
) language plpgsql as $$
begin
    select r.reservation, r.blocked, r.used_tokens, r.used_calls, r.level into reservation, blocked, used_tokens,
        used_calls, level
    from turnkeeper.reserve_spend(p_turn, p_agent, p_tokens, p_turn_tokens, p_turn_calls, p_day_tokens,
        p_day_calls, p_level) r;
    if blocked <> '' then
        return;
    end if;
    insert into turnkeeper.spend (scope, period) values ('tree:' || p_root, '') on conflict do nothing;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend where scope = 'tree:' || p_root
        and period = '' for update;
    if (p_tree_tokens > 0 and used_tokens + p_tokens > p_tree_tokens) or (p_tree_calls > 0
        and used_calls + 1 > p_tree_calls) then
        update turnkeeper.spend s set tokens = s.tokens - p_tokens, calls = s.calls - 1
        from turnkeeper.spend_reservations r
        where r.id = reservation and (s.scope, s.period) in (('turn:' || p_turn, ''), ('agent:' || p_agent, r.period));
        delete from turnkeeper.spend_reservations where id = reservation;
        reservation := 0;
        blocked := 'tree';
        return;
    end if;
    update turnkeeper.spend set tokens = tokens + p_tokens, calls = calls + 1 where scope = 'tree:' || p_root
        and period = '';
    update turnkeeper.spend_reservations set root = p_root where id = reservation;
end $$;

create function turnkeeper.settle_tree_spend() returns trigger language plpgsql as $$
begin
    update turnkeeper.spend set tokens = tokens + new.used - new.tokens where scope = 'tree:' || new.root
        and period = '';
    return null;
end $$;
create constraint trigger tree_spend_settled after update on turnkeeper.spend_reservations
    deferrable initially deferred for each row
    when (new.root is not null and old.settled_at is null and new.settled_at is not null)
    execute function turnkeeper.settle_tree_spend();

----------------------------------------------------------------------------------------------------
-- The end of a dispatch
----------------------------------------------------------------------------------------------------

-- The end of a dispatch, as end_many takes it.
create type turnkeeper.dispatch_end as (
    turn           bigint,
    write_id       uuid,     -- its last write: without it nothing ends; null: any
    grant_id       uuid,
    state          text,     -- of the turn from now on
    log            text,     -- the outcome of the grant: see lease_log
    stop_reason    text,     -- of a turn that ends
    reply          text,     -- empty: none
    calls          text,     -- of the reply, as from reply_calls; empty: the function reads them
    inner_dialogue text,     -- this and the next two: empty: none
    error_class    text,
    error          text,
    message_state  text,     -- of the turn's message, if the turn ends
    lost           boolean,  -- the loss counts
    backoff        interval, -- of the turn
    lane_backoff   interval,
    job            bigint    -- River's job to delete; 0: the turn has none, or the caller closes it
);

-- Whether the row of a lane goes when a dispatch ends in a state: no failures in a row are left to remember.
create function turnkeeper.lease_goes(p_state text, p_failures integer) returns boolean immutable language sql
return p_state in ('succeeded', 'degraded') or p_state <> 'failed' and p_failures = 0;

-- End dispatches: everything that must be committed together with the replies. The turns' rows are locked: by the fence
-- (append_many), by the caller, or the caller is the scheduler. No two elements have the same turn. No end is recorded
-- before its beginning, even if the clock was set back. A turn with a request to cancel is closed instead of queued,
-- suspended or retried. One that is to finish does not wait for what its end stops. A turn that waits with a back-off
-- waits for models, which NoteFault names, at most that long. The conditions with any() only repeat the joins: with
-- them, Postgres looks up the keys even if it planned the statement when the table had few rows.
create function turnkeeper.end_many(p_ends turnkeeper.dispatch_end[]) returns void language plpgsql as $$
declare
    r         record;
    v_turns   bigint[];
    v_jobs    bigint[]; -- null: none
    v_goes_on boolean;  -- whether any of the turns is to go on later
    v_waits   boolean;  -- whether any of these waits
    v_retried boolean;  -- whether any of the messages is to have another turn
    ok        bigint[]; -- the turns whose dispatch ends
    ended     bigint[]; -- those of them that end
    messages  bigint[];
    v_freed   bigint;
    v_asks    boolean;  -- whether any of the turns has asks
    v_cancels boolean;  -- whether any of the turns has a request to cancel it
begin
    select array_agg(e.turn), array_agg(e.job) filter (where e.job <> 0), bool_or(e.state in ('waiting', 'queued')),
        bool_or(e.state = 'waiting'), bool_or(e.message_state = 'waiting')
        into v_turns, v_jobs, v_goes_on, v_waits, v_retried from unnest(p_ends) e;

    -- One statement, because starting one costs as much as what it does. It locks turns, then messages, then leases:
    -- each update reads what the one before it returns.
    with ending as (
        update turnkeeper.turns t set
            state = case when e.state = 'waiting' and e.backoff = interval '0'
                and not turnkeeper.may_wait(t.id) then 'queued' else e.state end,
            stop_reason    = case when f.final then e.stop_reason end,
            ended_at       = case when f.final then greatest(clock_timestamp(), t.created_at, t.granted_at) end,
            due_at         = case when not f.final and e.backoff > interval '0' then clock_timestamp() + e.backoff end,
            grant_id       = case when f.final then t.grant_id end,
            losses         = t.losses + e.lost::integer,
            inner_dialogue = nullif(e.inner_dialogue, ''),
            error_class    = nullif(e.error_class, ''),
            error          = nullif(e.error, ''),
            last_seq           = w.last_seq,
            inference_rounds   = w.inference_rounds,
            charged_rounds     = w.charged_rounds,
            executed_calls     = w.executed_calls,
            input_tokens       = w.input_tokens,
            output_tokens      = w.output_tokens,
            cached_tokens      = w.cached_tokens,
            cache_write_tokens = w.cache_write_tokens,
            reasoning_tokens   = w.reasoning_tokens,
            usage_estimated    = w.usage_estimated
        from unnest(p_ends) e, lateral turnkeeper.newest_write(e.turn) w,
            lateral (select e.state not in ('queued', 'waiting') as final) f
        where t.id = e.turn and t.id = any(v_turns) and (e.write_id is null or w.write_id = e.write_id)
        returning e.*, f.final, t.message_id, t.lane, t.token, t.job_id, t.worker_id, t.granted_at, t.lease_until
    ), closed as (
        update turnkeeper.messages m set
            state      = e.message_state,
            in_queue   = true, -- if it waits again
            closed_at  = case when e.message_state <> 'waiting' then greatest(clock_timestamp(), m.accepted_at) end,
            lane       = case when e.message_state = 'waiting' then turnkeeper.lane_now(m, m.lane) else m.lane end,
            queue_rank = case when e.message_state = 'waiting'
                then turnkeeper.rank_of(clock_timestamp() + e.lane_backoff, m.priority) end,
            last_error = nullif(e.error, '')
        from ending e
        where e.final and m.id = e.message_id and m.id = any(array(select message_id from ending))
        returning m.id, m.agent, m.user_name, m.conversation, m.accepted_at, m.sent_by,
            e.turn, e.state, e.stop_reason, e.error_class, e.reply, e.calls
    ), answered as (
        insert into turnkeeper.replies (message_id, turn_id, agent, user_name, conversation, outcome, stop_reason,
            error_class, body, calls, sent_by, created_at)
        select c.id, c.turn, c.agent, c.user_name, c.conversation, c.state, c.stop_reason, nullif(c.error_class, ''),
            c.reply, case when c.calls <> '' then c.calls::jsonb else turnkeeper.reply_calls(c.turn) end, c.sent_by,
            greatest(clock_timestamp(), c.accepted_at)
        from closed c where c.reply <> ''
    ), kept as (
        update turnkeeper.leases l set grant_id = null, turn_id = null, granted_at = null, lease_until = null,
            failures = l.failures + (e.state = 'failed')::integer,
            not_before = case when e.state = 'failed' then clock_timestamp() + e.lane_backoff else l.not_before end
        from ending e
        -- "=" would let Postgres look in the index of held leases
        where l.lane = e.lane and l.lane = any(array(select lane from ending))
          and l.grant_id is not distinct from e.grant_id
          and not turnkeeper.lease_goes(e.state, l.failures)
          and (select count(*) from closed) is not null -- the messages first
        returning e.turn
    ), gone as (
        delete from turnkeeper.leases l using ending e
        where l.lane = e.lane and l.lane = any(array(select lane from ending))
          and l.grant_id is not distinct from e.grant_id
          and turnkeeper.lease_goes(e.state, l.failures)
          and (select count(*) from closed) is not null
        returning e.turn
    ), freed as (
        select e.* from ending e where e.turn in (select turn from kept union all select turn from gone)
    ), logged as (
        insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until,
            ended_at, outcome)
        select f.lane, f.token, f.grant_id, f.turn, f.job_id, f.worker_id, f.granted_at, f.lease_until,
            greatest(clock_timestamp(), f.granted_at), f.log
        from freed f
    )
    select array_agg(e.turn), array_agg(e.turn) filter (where e.final), array_agg(e.message_id),
        (select count(*) from freed)
        into ok, ended, messages, v_freed from ending e;
    if v_freed <> cardinality(ok) then
        raise exception using errcode = 'TK001', message = 'the lease is no longer held';
    end if;

    if exists (select from turnkeeper.suspects where message_id = any(messages)) then
        delete from turnkeeper.suspects s using turnkeeper.messages m
        where s.message_id = any(messages) and m.id = s.message_id and m.closed_at is not null;
    end if;
    if v_goes_on then
        -- The wait for a service stands still while the turn waits for a person, a call or a budget: not for a model,
        -- whose turn is waiting with a time. Ticks need not read the message: they find its turn.
        update turnkeeper.messages m set in_queue = false,
            failed_for    = m.failed_for + case when s.still and m.failing_since < clock_timestamp()
                then clock_timestamp() - m.failing_since else interval '0' end,
            failing_since = case when not s.still then m.failing_since end,
            failing_after = case when s.still then clock_timestamp() + e.backoff else m.failing_after end
        from unnest(p_ends) e, lateral (select x.message_id from turnkeeper.turns x where x.id = e.turn offset 0) x,
            lateral (select (e.state, e.backoff > interval '0') in (('waiting', false), ('queued', true)) as still) s
        where e.turn = any(ok) and m.id = x.message_id and m.id = any(messages)
            and e.state in ('waiting', 'queued') and (m.in_queue or s.still);
    end if;

    if v_jobs is not null then
        -- Deleting a job changes none of the table's seven indexes. River, which completes it later, ignores missing
        -- jobs.
        delete from turnkeeper.river_job j using unnest(p_ends) e
        where e.turn = any(ok) and j.id = e.job and j.id = any(v_jobs);
    end if;

    -- After the last wait for a lock: who requests an end does not lock the turn, and leaves it to this function if the
    -- turn is locked for long.
    select exists (select from turnkeeper.asks where turn_id = any(v_turns)),
        exists (select from turnkeeper.requested_ends where turn_id = any(v_turns) and how = 'cancel')
        into v_asks, v_cancels;
    if v_asks then
        for r in select x.id, x.state, x.ended_at from unnest(ok) o(turn), lateral (select * from turnkeeper.turns y
            where y.id = o.turn offset 0) x loop
            if r.ended_at is not null then
                perform turnkeeper.withdraw_asks(r.id);
            elsif r.state = 'waiting' then
                perform turnkeeper.park_turn(r.id);
            end if;
        end loop;
    end if;
    if v_cancels then
        for r in select x.id, x.message_id, x.ended_at, c.reason
            from unnest(p_ends) e join turnkeeper.turns x on x.id = e.turn
                join turnkeeper.requested_ends c on c.turn_id = x.id and c.how = 'cancel'
            where e.turn = any(ok) and (x.ended_at is null or e.message_state = 'waiting')
        loop
            if r.ended_at is null then
                perform turnkeeper.close_cancelled(r.id);
            else
                perform turnkeeper.cancel_waiting(r.message_id, r.reason);
            end if;
        end loop;
    end if;
    if v_waits and exists (select from turnkeeper.requested_ends where how = 'finish') then
        perform turnkeeper.hurry_turn(x.id) from unnest(ok) o(turn) join turnkeeper.turns x on x.id = o.turn
        where x.state = 'waiting' and turnkeeper.waits_in_vain(x.id);
    end if;
    -- The end of a turn only frees a slot and a lane: a scheduler without other work need not look.
    perform pg_notify('turnkeeper_inbox', case when ended = ok and not v_retried then 'freed' else '' end),
        pg_notify('turnkeeper_turns', '');
end $$;

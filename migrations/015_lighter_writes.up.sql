-- Writes that cost the server less.
-- Oldest program: 2
-- Locks: messages, leases, turns and calls, for a moment: checks are exchanged, and no row is read.

-- The checks of the tables that a turn writes to, one a table: the server reads each check of a
-- table anew for every statement that writes there, which took longer than the writing. What
-- is there has passed the same checks one by one.
create function turnkeeper.message_holds(
    body text, conversation text, idempotency_key text, priority integer, trigger text, schedule text, slot timestamptz,
    state text, attempts integer, closed_at timestamptz
) returns boolean immutable language plpgsql as $$
begin
    return btrim(body, E' \t\r\n') <> ''
        and octet_length(conversation) between 1 and 200
        and (idempotency_key is null or octet_length(idempotency_key) between 1 and 200)
        and priority between -1000 and 1000
        and case trigger
            when 'message' then slot is null or schedule is null
            when 'schedule' then slot is not null and schedule is not null
            else false end
        and case when state in ('waiting', 'running') then closed_at is null
            when state in ('answered', 'failed', 'cancelled') then closed_at is not null
            else false end
        and attempts >= 0;
end $$;
alter table turnkeeper.messages
    drop constraint messages_body_check, drop constraint messages_conversation_check,
    drop constraint messages_idempotency_key_check, drop constraint messages_priority_check,
    drop constraint messages_trigger_check, drop constraint messages_state_check,
    drop constraint messages_attempts_check, drop constraint messages_check, drop constraint messages_check1;
alter table turnkeeper.messages add constraint messages_check check (turnkeeper.message_holds(
    body, conversation, idempotency_key, priority, trigger, schedule, slot, state, attempts, closed_at)) not valid;

create function turnkeeper.lease_holds(
    token bigint, grant_id uuid, turn_id bigint, granted_at timestamptz, lease_until timestamptz, failures integer
) returns boolean immutable language plpgsql as $$
begin
    return token >= 0 and failures >= 0
        and case when grant_id is null then turn_id is null and granted_at is null and lease_until is null
            else turn_id is not null and granted_at is not null and lease_until is not null and lease_until > granted_at end;
end $$;
alter table turnkeeper.leases
    drop constraint leases_token_check, drop constraint leases_failures_check, drop constraint leases_check,
    drop constraint leases_check1, drop constraint leases_check2, drop constraint leases_check3;
alter table turnkeeper.leases add constraint leases_check check (turnkeeper.lease_holds(
    token, grant_id, turn_id, granted_at, lease_until, failures)) not valid;

create function turnkeeper.turn_holds(
    attempt integer, state text, stop_reason text, ended_at timestamptz, grant_id uuid, lease_until timestamptz
) returns boolean immutable language plpgsql as $$
begin
    return attempt > 0
        and case when state = 'running' then ended_at is null and grant_id is not null and lease_until is not null
            when state in ('queued', 'waiting') then ended_at is null
            when state in ('succeeded', 'degraded', 'failed', 'cancelled') then ended_at is not null
            else false end
        and case when stop_reason is null then ended_at is null
            when stop_reason in ('none', 'max_rounds', 'max_duration', 'max_tool_calls', 'inference_error', 'budget',
                'cancelled', 'worker_lost') then ended_at is not null
            else false end;
end $$;
alter table turnkeeper.turns
    drop constraint turns_attempt_check, drop constraint turns_state_check, drop constraint turns_stop_reason_check,
    drop constraint turns_check, drop constraint turns_check1, drop constraint turns_check2;
alter table turnkeeper.turns add constraint turns_check check (turnkeeper.turn_holds(
    attempt, state, stop_reason, ended_at, grant_id, lease_until)) not valid;

create function turnkeeper.call_holds(
    ordinal integer, wire_id text, effect text, state text, nonce text, ended_at timestamptz, duration_ms bigint
) returns boolean immutable language plpgsql as $$
begin
    return ordinal > 0 and wire_id <> '' and effect in ('none', 'keyed', 'once')
        and case when state in ('planned', 'running') then ended_at is null
            when state = 'started' then ended_at is null and nonce <> ''
            when state in ('succeeded', 'failed', 'skipped', 'denied', 'unknown', 'cancelled') then ended_at is not null
            else false end
        and (duration_ms is null or duration_ms >= 0);
end $$;
alter table turnkeeper.calls
    drop constraint calls_ordinal_check, drop constraint calls_wire_id_check, drop constraint calls_effect_check,
    drop constraint calls_state_check, drop constraint calls_duration_ms_check, drop constraint calls_check,
    drop constraint calls_check1;
alter table turnkeeper.calls add constraint calls_check check (turnkeeper.call_holds(
    ordinal, wire_id, effect, state, nonce, ended_at, duration_ms)) not valid;

-- Whether a queue is the own queue of a worker that is gone. A turn that was granted to a worker by
-- name (see jobs.QueueOf) would wait there until its lease ends.
create function turnkeeper.owner_gone(queue text) returns boolean stable language plpgsql as $$
begin
    return left(queue, 6) = 'turns_' and not exists (
        select from turnkeeper.worker_heartbeat h
        where queue = 'turns_' || left(encode(sha256(convert_to(h.worker_id, 'UTF8')), 'hex'), 32)
          and not turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after));
end $$;

-- Whether grants look lost. A function, so that no more is prepared than is asked.
create function turnkeeper.grants_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.leases where grant_id is not null) then
        return false;
    end if;
    return exists (select from turnkeeper.leases l
        left join turnkeeper.turns t on t.id = l.turn_id
        left join turnkeeper.river_job j on j.id = t.job_id
        left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
        where l.grant_id is not null
          and (turnkeeper.lease_over(l.granted_at, l.lease_until) or turnkeeper.heart_silent(h.beat_at, h.takeover_after)
               or j.state = 'available' and turnkeeper.owner_gone(j.queue)));
end $$;

-- Whether detached calls look lost; a function for the same reason.
create function turnkeeper.calls_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.detached_calls where claim is null and ended_at is null)
        and not exists (select from turnkeeper.detached_calls where claim is not null and ended_at is null) then
        return false;
    end if;
    return exists (select from turnkeeper.detached_calls d left join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
             where d.claim is not null and d.ended_at is null
               and (d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after)
                    or turnkeeper.run_overdue(d.claimed_at, d.deadline, d.time_limit, h.beat_at)))
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null and look_at <= statement_timestamp())
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null and look_at > statement_timestamp() + interval '11 minutes')
        or exists (with j as materialized (
                select r.id, r.args, r.attempted_by, r.attempted_at from turnkeeper.river_job r
                where r.state = 'running' and left(r.queue, 9) = 'detached_')
            select from j
            join turnkeeper.detached_calls d on d.turn_id = (j.args ->> 'turn_id')::bigint and d.round = (j.args ->> 'round')::integer
                and d.ordinal = (j.args ->> 'ordinal')::integer and d.job_id = j.id and d.claim is null and d.ended_at is null
            left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
            where (turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after) or turnkeeper.fetch_overlooked(j.attempted_at)));
end $$;

-- As before, but for what it rings.
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
    -- What is over only makes room: a scheduler that knows of nothing else need not look.
    perform pg_notify('turnkeeper_inbox', case when ended and p_message_state <> 'waiting' then 'freed' else '' end),
        pg_notify('turnkeeper_turns', '');
end $$;

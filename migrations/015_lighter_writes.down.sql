-- Back to a check for each rule, and to one ring for all.
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

drop function turnkeeper.grants_lost();
drop function turnkeeper.owner_gone(text);
drop function turnkeeper.calls_lost();
alter table turnkeeper.messages drop constraint messages_check;
alter table turnkeeper.messages
    add constraint messages_body_check check (btrim(body, E' \t\r\n') <> ''),
    add constraint messages_conversation_check check (octet_length(conversation) between 1 and 200),
    add constraint messages_idempotency_key_check check (octet_length(idempotency_key) between 1 and 200),
    add constraint messages_priority_check check (priority between -1000 and 1000),
    add constraint messages_trigger_check check (trigger in ('message', 'schedule')),
    add constraint messages_state_check check (state in ('waiting', 'running', 'answered', 'failed', 'cancelled')),
    add constraint messages_attempts_check check (attempts >= 0),
    add constraint messages_check check ((trigger = 'schedule') = (slot is not null and schedule is not null)),
    add constraint messages_check1 check ((state in ('waiting', 'running')) = (closed_at is null));
alter table turnkeeper.leases drop constraint leases_check;
alter table turnkeeper.leases
    add constraint leases_token_check check (token >= 0),
    add constraint leases_failures_check check (failures >= 0),
    add constraint leases_check check ((grant_id is null) = (turn_id is null)),
    add constraint leases_check1 check ((grant_id is null) = (granted_at is null)),
    add constraint leases_check2 check ((grant_id is null) = (lease_until is null)),
    add constraint leases_check3 check (lease_until > granted_at);
alter table turnkeeper.turns drop constraint turns_check;
alter table turnkeeper.turns
    add constraint turns_attempt_check check (attempt > 0),
    add constraint turns_state_check check (state in
                      ('queued', 'running', 'waiting', 'succeeded', 'degraded', 'failed', 'cancelled')),
    add constraint turns_stop_reason_check check (stop_reason in ('none', 'max_rounds', 'max_duration', 'max_tool_calls',
                      'inference_error', 'budget', 'cancelled', 'worker_lost')),
    add constraint turns_check check ((state in ('succeeded', 'degraded', 'failed', 'cancelled')) = (ended_at is not null)),
    add constraint turns_check1 check ((ended_at is null) = (stop_reason is null)),
    add constraint turns_check2 check (state <> 'running' or (grant_id is not null and lease_until is not null));
alter table turnkeeper.calls drop constraint calls_check;
alter table turnkeeper.calls
    add constraint calls_ordinal_check check (ordinal > 0),
    add constraint calls_wire_id_check check (wire_id <> ''),
    add constraint calls_effect_check check (effect in ('none', 'keyed', 'once')),
    add constraint calls_state_check check (state in ('planned', 'started', 'running', 'succeeded', 'failed',
                'skipped', 'denied', 'unknown', 'cancelled')),
    add constraint calls_duration_ms_check check (duration_ms >= 0),
    add constraint calls_check check ((state in ('planned', 'started', 'running')) = (ended_at is null)),
    add constraint calls_check1 check (state <> 'started' or nonce <> '');
drop function turnkeeper.message_holds, turnkeeper.lease_holds, turnkeeper.turn_holds, turnkeeper.call_holds;

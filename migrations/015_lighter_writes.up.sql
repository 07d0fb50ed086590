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

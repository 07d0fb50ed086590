-- Back to a check for each rule.
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

drop function turnkeeper.purge;
drop index turnkeeper.spend_reservations_turn;
drop function turnkeeper.retry_message, turnkeeper.cancel_message, turnkeeper.settle_cancel, turnkeeper.ask_cancel,
    turnkeeper.cancel_waiting, turnkeeper.close_cancelled, turnkeeper.tell;
alter table turnkeeper.summaries
    add constraint summaries_up_to_fkey foreign key (up_to) references turnkeeper.turns not valid,
    add constraint summaries_turn_id_fkey foreign key (turn_id) references turnkeeper.turns not valid;

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
    perform pg_notify('turnkeeper_inbox', ''), pg_notify('turnkeeper_turns', '');
end $$;

drop table turnkeeper.retries, turnkeeper.cancellations;

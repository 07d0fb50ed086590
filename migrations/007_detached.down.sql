drop trigger call_answered on turnkeeper.calls;
drop function turnkeeper.close_awaited, turnkeeper.run_detached_again, turnkeeper.end_detached, turnkeeper.arrive_call,
    turnkeeper.detach_calls, turnkeeper.ring_detached, turnkeeper.worker_gone, turnkeeper.run_overdue, turnkeeper.fetch_overlooked;
drop table turnkeeper.detached_calls, turnkeeper.awaited_calls;
alter table turnkeeper.calls drop column elsewhere;
-- end_dispatch stays: without these tables it does what it did.

create or replace function turnkeeper.late_result(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_shown text, p_preview text
) returns void language plpgsql as $$
begin
    -- What the model was told of a call in the background stays.
    update turnkeeper.calls set state = p_state, shown = case when state = 'running' then shown else p_shown end,
        preview = p_preview, ended_at = greatest(clock_timestamp(), started_at)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and state in ('started', 'running') and nonce = p_nonce
      and exists (select from turnkeeper.turns t where t.id = p_turn and t.ended_at is null);
    if not found then
        update turnkeeper.calls set late_result = p_shown, late_at = greatest(clock_timestamp(), started_at)
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal and late_result is null
          and exists (select from turnkeeper.call_starts s where s.turn_id = p_turn and s.round = p_round
                      and s.ordinal = p_ordinal and s.nonce = p_nonce);
    end if;
end $$;

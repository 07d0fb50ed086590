drop function turnkeeper.settle_spend, turnkeeper.reserve_spend, turnkeeper.end_dispatch, turnkeeper.late_result,
    turnkeeper.answer_calls, turnkeeper.start_calls, turnkeeper.refuse_step, turnkeeper.check_granted, turnkeeper.enqueue;
drop trigger lease_stays on turnkeeper.leases;
drop trigger lease_token_grows on turnkeeper.leases;
drop trigger call_moves on turnkeeper.calls;
drop trigger turn_moves on turnkeeper.turns;
drop function turnkeeper.lease_over, turnkeeper.heart_silent, turnkeeper.lane_pauses,
    turnkeeper.oldest_waiting;
drop function turnkeeper.keep_lease, turnkeeper.check_token, turnkeeper.check_call_move, turnkeeper.check_turn_move;

drop function turnkeeper.ask_sender;
alter table turnkeeper.webhook_deliveries drop constraint webhook_deliveries_ask_id_fkey;
drop trigger push_ask on turnkeeper.asks;
drop function turnkeeper.drop_closed_asks, turnkeeper.push_ask;
drop trigger turn_unparks on turnkeeper.turns;
drop function turnkeeper.service_wait, turnkeeper.failing_from, turnkeeper.tree_path, turnkeeper.move_held,
    turnkeeper.held_lane, turnkeeper.parked_turn_blocks, turnkeeper.conversation_held, turnkeeper.unpark_turn,
    turnkeeper.park_turn,
    turnkeeper.withdraw_asks, turnkeeper.expire_asks, turnkeeper.held_locked, turnkeeper.answer_ask,
        turnkeeper.wake_turn, turnkeeper.may_wait,
     turnkeeper.check_approvals, turnkeeper.see_asks, turnkeeper.use_inputs, turnkeeper.open_asks,
    turnkeeper.gate_calls, turnkeeper.args_hash;
drop index turnkeeper.turns_parked, turnkeeper.turns_woken;
drop table turnkeeper.asks, turnkeeper.call_gates;
drop function turnkeeper.refuse_new_answer;

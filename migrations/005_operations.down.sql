drop function turnkeeper.expire, turnkeeper.expire_turns, turnkeeper.expire_leases, turnkeeper.expire_events,
    turnkeeper.expire_outputs,
    turnkeeper.expirable, turnkeeper.purge_is_aside, turnkeeper.purge, turnkeeper.first_message,
    turnkeeper.purge_messages, turnkeeper.run_schedule, turnkeeper.retry_message, turnkeeper.close_cancelled,
    turnkeeper.cancel_waiting, turnkeeper.cancel_message, turnkeeper.lock_scheduler_for, turnkeeper.cancelled_reply,
    turnkeeper.settle_end, turnkeeper.hurry_turn,
    turnkeeper.waits_in_vain, turnkeeper.requested_end, turnkeeper.ask_end;

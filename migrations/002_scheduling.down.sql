drop view turnkeeper.my_messages;
drop trigger pause_ends on turnkeeper.leases;
drop trigger pause_goes on turnkeeper.leases;
drop trigger message_is_late on turnkeeper.messages;
drop function turnkeeper.blockers, turnkeeper.standstill, turnkeeper.models_awaited, turnkeeper.waiting_turns,
    turnkeeper.turn_waits, turnkeeper.deferred_for, turnkeeper.turn_holder,
    turnkeeper.given_up, turnkeeper.other_worker, turnkeeper.live_workers;
drop function turnkeeper.move_levels, turnkeeper.level_lane, turnkeeper.waits_below, turnkeeper.least_priority,
    turnkeeper.all_models, turnkeeper.next_day, turnkeeper.models_now, turnkeeper.level_effect, turnkeeper.level_of,
    turnkeeper.pin_of, turnkeeper.note_level,
    turnkeeper.worse_level, turnkeeper.next_level;
drop type turnkeeper.blocker;
drop function turnkeeper.end_model_waits, turnkeeper.pair_window, turnkeeper.note_models,
    turnkeeper.answer_matters, turnkeeper.chain_down, turnkeeper.failure_pause, turnkeeper.calls_lost,
    turnkeeper.fetch_overlooked, turnkeeper.run_overdue,
    turnkeeper.owner_gone, turnkeeper.worker_present, turnkeeper.worker_gone, turnkeeper.silent_from,
    turnkeeper.heartbeat_overdue, turnkeeper.yet_to_come, turnkeeper.lease_over, turnkeeper.forget_lanes,
    turnkeeper.forget_unused, turnkeeper.check_granted, turnkeeper.being_changed, turnkeeper.lane_waits,
    turnkeeper.pause_ends, turnkeeper.rank_from_now, turnkeeper.backs_off, turnkeeper.lane_pauses,
    turnkeeper.longest_pause,
    turnkeeper.waits_behind, turnkeeper.oldest_due, turnkeeper.oldest_waiting, turnkeeper.is_due,
    turnkeeper.enqueue_response, turnkeeper.repeated_response, turnkeeper.create_conversation,
    turnkeeper.use_conversation, turnkeeper.drop_message, turnkeeper.edit_message, turnkeeper.lock_own_message,
    turnkeeper.enqueue_message, turnkeeper.enqueue, turnkeeper.enqueue_by, turnkeeper.check_body,
    turnkeeper.lane_rivals, turnkeeper.lane_now, turnkeeper.set_queue_rank, turnkeeper.try_scheduler_lock,
    turnkeeper.share_scheduler_lock, turnkeeper.lock_scheduler, turnkeeper.move_lanes, turnkeeper.park_old,
    turnkeeper.move_lanes_of,
    turnkeeper.forget_aside, turnkeeper.put_aside_or_raise, turnkeeper.put_aside, turnkeeper.belongs_to_row,
        turnkeeper.is_aside;

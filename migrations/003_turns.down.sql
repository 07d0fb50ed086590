drop trigger turn_moves on turnkeeper.turns;
drop trigger spawned_reply on turnkeeper.replies;
drop trigger spawned_forgotten on turnkeeper.turns;
drop trigger tree_spend_settled on turnkeeper.spend_reservations;
drop function turnkeeper.end_many, turnkeeper.settle_tree_spend, turnkeeper.reserve_tree_spend,
    turnkeeper.settle_spend, turnkeeper.reserve_spend, turnkeeper.forget_spawned, turnkeeper.settle_spawned,
    turnkeeper.settle_spawned_call,
    turnkeeper.drop_reason, turnkeeper.note_spawned_reply, turnkeeper.notify_parent,
    turnkeeper.spawn_agents, turnkeeper.stop_awaiting, turnkeeper.run_detached_again, turnkeeper.end_detached,
    turnkeeper.arrive_call, turnkeeper.detach_calls, turnkeeper.ring_detached, turnkeeper.sweep_drafts,
    turnkeeper.finish_drafts, turnkeeper.add_events, turnkeeper.first_turn, turnkeeper.events_after,
    turnkeeper.late_result, turnkeeper.settle_calls,
    turnkeeper.add_write, turnkeeper.has_past, turnkeeper.append_many, turnkeeper.lease_goes,
    turnkeeper.check_turn_move;
drop type turnkeeper.dispatch_end, turnkeeper.journal_write, turnkeeper.call_start;

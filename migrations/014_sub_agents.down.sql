drop trigger tree_spend_settled on turnkeeper.spend_reservations;
drop trigger spawned_forgotten on turnkeeper.turns;
drop trigger call_dropped on turnkeeper.calls;
drop trigger spawned_reply on turnkeeper.replies;
drop function turnkeeper.settle_tree_spend, turnkeeper.reserve_tree_spend, turnkeeper.forget_spawned, turnkeeper.settle_spawned,
    turnkeeper.dropped_because, turnkeeper.drop_spawned, turnkeeper.note_spawned_reply, turnkeeper.tell_parent, turnkeeper.spawn_agents;
alter table turnkeeper.spend_reservations drop column root;
drop table turnkeeper.spawned_calls, turnkeeper.agent_trees;

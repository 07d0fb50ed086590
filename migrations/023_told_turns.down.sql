drop view turnkeeper.told_turns;
drop index turnkeeper.turns_conversation;
create index turns_conversation on turnkeeper.turns (agent, conversation, id)
    where state in ('succeeded', 'degraded');

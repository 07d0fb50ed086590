-- What later turns of a conversation are told of: cancelled and failed turns too.
-- Oldest program: 2
-- Locks: turns, against writes, while an index over its closed rows is built and takes the place of a smaller one.

drop index turnkeeper.turns_conversation;
create index turns_conversation on turnkeeper.turns (agent, conversation, id)
    where state in ('succeeded', 'degraded', 'failed', 'cancelled');

-- The turns that later turns of their conversation are told of. A message that was cancelled before a turn of it was
-- granted is not among them. Of the failed attempts at a message the one that closed it is, and besides each in which
-- a tool with an effect has run. A row never changes its place here after the turn has ended: requests are made again from it.
create view turnkeeper.told_turns as
select t.id, t.message_id, t.agent, t.conversation, t.state, t.error_class, t.inner_dialogue
from turnkeeper.turns t
where t.state in ('succeeded', 'degraded', 'failed', 'cancelled')
  and case t.state
      when 'cancelled' then t.dispatches > 0
      when 'failed' then
          exists (select from turnkeeper.messages m where m.id = t.message_id and m.turn_id = t.id and m.state = 'failed')
          or exists (select from turnkeeper.calls c where c.turn_id = t.id and c.effect <> 'none'
              and c.state in ('started', 'running', 'succeeded', 'failed', 'unknown', 'cancelled'))
      else true end;

-- Show cancelled and failed turns to later turns of their conversation.
-- Oldest program: 2
-- Locks: turns, against writes, while an index over its closed rows is built and takes the place of a smaller one.

drop index turnkeeper.turns_conversation;
create index turns_conversation on turnkeeper.turns (agent, conversation, id)
    where state in ('succeeded', 'degraded', 'failed', 'cancelled');

-- The turns that later turns of their conversation see. A message that was cancelled before its first turn is not among
-- them. Of a message's failed attempts, the last one is, and each earlier one that ran a tool with an effect. Whether a
-- turn is among them never changes after it ended, because requests are rebuilt from this view.
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

-- Whose replies sub-agents wrote, and whether they are pushed to webhooks.
-- Oldest program: 2
-- Locks: replies and webhooks, for a moment, to add a column each; of replies, those of sub-agents are written once. Two
-- functions are replaced.

alter table turnkeeper.replies add column parent_turn_id bigint; -- the turn that a sub-agent's reply was for; null: nobody's
alter table turnkeeper.webhooks add column sub_agents boolean not null default false; -- their replies are pushed as well
update turnkeeper.replies r set parent_turn_id = s.turn_id from turnkeeper.spawned_calls s where s.message_id = r.message_id;

-- As before, and a reply of a sub-agent is pushed where the webhook wants it: nobody outside has asked for it.
create or replace function turnkeeper.push_reply() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.webhook_deliveries (reply_id, webhook)
    select new.id, w.name from turnkeeper.webhooks w
    where (w.agents is null or new.agent = any(w.agents))
      and (w.sub_agents or not exists (select from turnkeeper.spawned_calls s where s.message_id = new.message_id));
    return null;
end $$;

-- As before, and the reply says whose it is.
create or replace function turnkeeper.note_spawned_reply() returns trigger language plpgsql as $$
declare
    s        record;
    v_parent bigint;
begin
    select turn_id into v_parent from turnkeeper.spawned_calls where message_id = new.message_id;
    if not found then
        return null;
    end if;
    update turnkeeper.replies set parent_turn_id = v_parent where id = new.id;
    update turnkeeper.spawned_calls set child = new.turn_id, outcome = new.outcome, ended_at = clock_timestamp(),
        stop = (select stop_reason from turnkeeper.turns where id = new.turn_id)
    where message_id = new.message_id and ended_at is null
    returning turn_id, round, ordinal into s;
    if found then
        if not turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal) then
            perform pg_notify('turnkeeper_inbox', '');
        end if;
        -- Of a parent whose records are gone nothing is kept.
        delete from turnkeeper.spawned_calls where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal
            and not exists (select from turnkeeper.turns where id = s.turn_id);
    end if;
    return null;
end $$;

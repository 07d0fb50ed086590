create or replace function turnkeeper.push_reply() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.webhook_deliveries (reply_id, webhook)
    select new.id, w.name from turnkeeper.webhooks w where w.agents is null or new.agent = any(w.agents);
    return null;
end $$;
create or replace function turnkeeper.note_spawned_reply() returns trigger language plpgsql as $$
declare
    s record;
begin
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
alter table turnkeeper.webhooks drop column sub_agents;
alter table turnkeeper.replies drop column parent_turn_id;

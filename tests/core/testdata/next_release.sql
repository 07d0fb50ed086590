-- What a migration of the next release may do while this release's workers run:
-- add, and replace functions by ones that answer the old callers the same.
-- Locks: turns, rounds and messages for a moment.

alter table turnkeeper.turns add column mood text not null default 'calm';
alter table turnkeeper.rounds add column mood text;
alter table turnkeeper.messages add column mood text not null default 'calm';

create table turnkeeper.moods (turn_id bigint primary key, mood text not null);

create function turnkeeper.note_mood() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.moods (turn_id, mood) values (new.id, new.mood) on conflict do nothing;
    return null;
end $$;
create trigger turn_moods after update of ended_at on turnkeeper.turns
    for each row when (new.ended_at is not null) execute function turnkeeper.note_mood();

create or replace function turnkeeper.check_granted(granted bigint, picked integer) returns void language plpgsql as $$
begin
    if granted < picked then
        raise exception '% of % lanes were free', granted, picked;
    end if;
end $$;

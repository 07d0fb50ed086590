-- What a migration of the next release may do while this release's workers run:
-- add, and replace functions by ones that answer the old callers the same.
-- Locks: turns, journal and messages for a moment.

alter table turnkeeper.turns add column mood text not null default 'calm';
alter table turnkeeper.journal add column mood text;
create or replace function turnkeeper.newest_write(p_turn bigint) returns setof turnkeeper.journal stable language sql as $$
    (select * from turnkeeper.journal where turn_id = p_turn order by n desc limit 1)
    union all select p_turn, 0, null, 1, 0, '-infinity', 0, 0, 0, 0, 0, 0, 0, 0, false, '{}', '{}', '{}', '{}',
        null, null, null, null, null, null, null, null, null, null
    limit 1
$$;
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

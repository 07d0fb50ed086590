-- Large tool results lie in chunks, so that reading a part of one reads no more
-- than that, and so that one can be written while it comes.
-- Oldest program: 2
-- Locks: takes outputs for the moment of adding a column with a constant default; else creates new objects.

-- The content is in output_chunks, and the row's own is empty. Results written
-- before, and small ones, have theirs in the row.
alter table turnkeeper.outputs add column chunked boolean not null default false;

-- Parts of large contents, each at most 64 KB of whole characters. They are
-- compressed (storage EXTENDED, the default): a chunk is the least that is ever
-- read, so that keeping it plain (EXTERNAL) would gain nothing but disk to write.
create table turnkeeper.output_chunks (
    output_id  text not null,
    first_char bigint not null check (first_char >= 0), -- of binary content, its first byte
    first_byte bigint not null check (first_byte >= 0),
    content    text check (content <> ''),
    bytes      bytea check (octet_length(bytes) > 0),
    primary key (output_id, first_char),
    check ((content is null) <> (bytes is null))
);

-- LZ4 takes as long as not compressing at all, and the server's own way thrice as
-- long. A server may have been built without it.
do $$ begin
    alter table turnkeeper.output_chunks alter column content set compression lz4, alter column bytes set compression lz4;
exception when feature_not_supported then null;
end $$;

-- Results that are still coming: their chunks are written before the journal names
-- them. A chunk is added only while the row is there. The write that records the
-- result takes the row away; of a turn that is no longer run under the grant, row
-- and chunks are swept.
create table turnkeeper.output_drafts (
    output_id  text primary key,
    turn_id    bigint not null,
    grant_id   uuid not null,
    started_at timestamptz not null default clock_timestamp()
);

-- Record that drafts are finished: each must still be there, under the grant that
-- began it.
create function turnkeeper.finish_drafts(p_grant uuid, p_outputs text[]) returns void language plpgsql as $$
declare
    n integer;
begin
    delete from turnkeeper.output_drafts where output_id = any(p_outputs) and grant_id = p_grant;
    get diagnostics n = row_count;
    if n <> cardinality(p_outputs) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a result that was written while it came is gone';
    end if;
end $$;

-- Remove the drafts of turns that are no longer run under the grant that began
-- them, and one more, by its id. The chunks go in a second look: whoever was still
-- adding some held the draft's row until they were there.
create function turnkeeper.sweep_drafts(p_output text) returns void language plpgsql as $$
declare
    dead text[];
begin
    with gone as (
        delete from turnkeeper.output_drafts d
        where d.output_id = p_output or not exists (
            select from turnkeeper.turns t where t.id = d.turn_id and t.grant_id = d.grant_id and t.state = 'running')
        returning d.output_id
    )
    select array_agg(output_id) into dead from gone;
    delete from turnkeeper.output_chunks c where c.output_id = any(dead)
        and not exists (select from turnkeeper.outputs o where o.id = c.output_id);
end $$;

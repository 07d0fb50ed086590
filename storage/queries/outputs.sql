-- name: InsertChunks :exec
insert into turnkeeper.output_chunks (output_id, first_char, first_byte, content, bytes)
select c.output_id, c.first_char, c.first_byte, nullif(c.content, ''), nullif(c.bytes, '')
from (select unnest(@output_ids::text[]) as output_id, unnest(@first_chars::bigint[]) as first_char,
    unnest(@first_bytes::bigint[]) as first_byte, unnest(@contents::text[]) as content, unnest(@bytes::bytea[]) as bytes) c;

-- name: MarkChunked :exec
-- Rounds with results in chunks are for programs that read these.
update turnkeeper.rounds set version = @version::smallint
where turn_id = @turn_id and round = any(@rounds::integer[]) and version < @version::smallint;

-- name: ChunksOfOutput :many
select content, bytes from turnkeeper.output_chunks where output_id = @output_id order by first_char;

-- name: InsertChunks :exec
insert into turnkeeper.output_chunks (output_id, first_char, content, bytes)
select c.output_id, c.first_char, nullif(c.content, ''), nullif(c.bytes, '')
from (select unnest(@output_ids::text[]) as output_id, unnest(@first_chars::bigint[]) as first_char,
    unnest(@contents::text[]) as content, unnest(@bytes::bytea[]) as bytes) c;

-- name: ChunksOfOutput :many
select content, bytes from turnkeeper.output_chunks where output_id = @output_id order by first_char;

-- name: WaitForNoDisk :exec
-- Chunks of a draft count only from the write of its journal on, and that waits for
-- the disk to have all that was written before it.
select set_config('synchronous_commit', 'off', true);

-- name: BeginDraft :exec
insert into turnkeeper.output_drafts (output_id, turn_id, grant_id)
select @output_id, t.id, t.grant_id from turnkeeper.turns t
where t.id = @turn_id and t.grant_id = @grant_id::uuid and t.state = 'running'
  and not exists (select from turnkeeper.outputs o where o.id = @output_id)
on conflict (output_id) do nothing;

-- name: AddChunks :exec
-- Chunks of a result that is still coming. Once it is finished, or swept away,
-- nothing is added. A repeat changes nothing.
with draft as (
    select from turnkeeper.output_drafts where output_id = @output_id and grant_id = @grant_id::uuid for share
)
insert into turnkeeper.output_chunks (output_id, first_char, content, bytes)
select @output_id, c.first_char, nullif(c.content, ''), nullif(c.bytes, '')
from (select unnest(@first_chars::bigint[]) as first_char, unnest(@contents::text[]) as content, unnest(@bytes::bytea[]) as bytes) c, draft
on conflict (output_id, first_char) do nothing;

-- name: FinishDrafts :exec
select turnkeeper.finish_drafts(@grant_id::uuid, @outputs::text[]);

-- name: SweepDrafts :exec
select turnkeeper.sweep_drafts(@output_id::text);

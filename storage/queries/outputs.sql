-- name: InsertChunks :exec
insert into turnkeeper.output_chunks (output_id, first_char, content, bytes)
select c.output_id, c.first_char, nullif(c.content, ''), nullif(c.bytes, '')
from (select unnest(@output_ids::text[]) as output_id, unnest(@first_chars::bigint[]) as first_char,
    unnest(@contents::text[]) as content, unnest(@bytes::bytea[]) as bytes) c;

-- name: ChunksOfOutput :many
select content, bytes from turnkeeper.output_chunks where output_id = @output_id order by first_char;

-- name: WaitForNoDisk :exec
-- Commits without waiting for the disk. Chunks of a draft matter only after the journal's
-- write, whose commit waits until everything before it is on disk.
select set_config('synchronous_commit', 'off', true);

-- name: BeginDraft :exec
insert into turnkeeper.output_drafts (output_id, turn_id, grant_id)
select @output_id, t.id, t.grant_id from turnkeeper.turns t
where t.id = @turn_id and t.grant_id = @grant_id::uuid and t.state = 'running'
  and not exists (select from turnkeeper.outputs o where o.id = @output_id)
on conflict (output_id) do nothing;

-- name: AddChunks :exec
-- Adds chunks to a draft. Once the draft is finished or swept, nothing is added. A
-- repeat changes nothing.
with draft as (
    select from turnkeeper.output_drafts where output_id = @output_id and grant_id = @grant_id::uuid for share
)
insert into turnkeeper.output_chunks (output_id, first_char, content, bytes)
select @output_id, c.first_char, nullif(c.content, ''), nullif(c.bytes, '')
from (select unnest(@first_chars::bigint[]) as first_char, unnest(@contents::text[]) as content,
    unnest(@bytes::bytea[]) as bytes) c, draft
on conflict (output_id, first_char) do nothing;

-- name: FinishDrafts :exec
select turnkeeper.finish_drafts(@grant_id::uuid, @outputs::text[]);

-- name: SweepDrafts :exec
select turnkeeper.sweep_drafts(@output_id::text);

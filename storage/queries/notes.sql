-- name: WriteNote :exec
insert into turnkeeper.notes (agent, name, content) values (@agent, @name, @content)
on conflict (agent, name) do update set content = excluded.content, updated_at = clock_timestamp();

-- name: ReadNote :one
select content from turnkeeper.notes where agent = @agent and name = @name;

-- name: ListNotes :many
select name, length(content)::integer as chars, updated_at from turnkeeper.notes where agent = @agent order by name limit 500;

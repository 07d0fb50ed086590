-- name: CreateToken :one
insert into turnkeeper.api_tokens (name, sha256, scopes, agents, user_name, expires_at)
values (@name, @sha256, @scopes::text[], sqlc.narg(agents)::text[], @user_name, case
    when @lifetime::interval > interval '0' then clock_timestamp() + @lifetime end)
returning *;

-- name: ListTokens :many
select * from turnkeeper.api_tokens order by name;

-- name: RevokeToken :execrows
delete from turnkeeper.api_tokens where name = @name;

-- name: TokenByHash :one
select * from turnkeeper.api_tokens where sha256 = @sha256 and (expires_at is null or expires_at > clock_timestamp());

-- name: NoteTokenUse :exec
update turnkeeper.api_tokens set last_used_at = clock_timestamp() where id = @id;

-- name: AnyToken :one
select exists (select from turnkeeper.api_tokens where expires_at is null or expires_at > clock_timestamp());

-- name: CreateSession :execrows
-- Also deletes expired sessions.
with gone as (delete from turnkeeper.page_sessions where expires_at <= clock_timestamp())
insert into turnkeeper.page_sessions (sha256, token_id, expires_at)
select @sha256, t.id, least(clock_timestamp() + @lifetime::interval, t.expires_at)
from turnkeeper.api_tokens t where t.id = @token_id;

-- name: TokenOfSession :one
select t.* from turnkeeper.page_sessions s join turnkeeper.api_tokens t on t.id = s.token_id
where s.sha256 = @sha256 and s.expires_at > clock_timestamp() and (t.expires_at is null
    or t.expires_at > clock_timestamp());

-- name: EndSession :exec
delete from turnkeeper.page_sessions where sha256 = @sha256;

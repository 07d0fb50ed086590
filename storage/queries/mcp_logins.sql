-- name: MCPLogins :many
select * from turnkeeper.mcp_logins where @server = '' or server = @server order by server;

-- name: SaveMCPLogin :exec
-- Replaces the login. A worker that renews the old one loses its claim.
insert into turnkeeper.mcp_logins (server, sealed, scopes, expires_at, renewable)
values (@server, @sealed, @scopes, @expires_at, @renewable)
on conflict (server) do update set revision = nextval('turnkeeper.mcp_login_revisions'), sealed = excluded.sealed,
    scopes = excluded.scopes, wanted = '{}', expires_at = excluded.expires_at, renewable = excluded.renewable,
    logged_in_at = clock_timestamp(), renewed_at = null, lapsed = null, claim = null, claimed_until = null;

-- name: ClaimMCPLogin :execrows
update turnkeeper.mcp_logins set claim = @claim, claimed_until = clock_timestamp() + @hold::interval
where server = @server and revision = @revision and lapsed is null
    and (claim is null or claimed_until <= clock_timestamp());

-- name: RenewMCPLogin :execrows
update turnkeeper.mcp_logins set revision = nextval('turnkeeper.mcp_login_revisions'), sealed = @sealed,
    scopes = @scopes,
    expires_at = @expires_at, renewable = @renewable, renewed_at = clock_timestamp(), claim = null, claimed_until = null
where server = @server and claim = @claim;

-- name: ReleaseMCPLogin :exec
update turnkeeper.mcp_logins set claim = null, claimed_until = null, lapsed = @lapsed
where server = @server and claim = @claim;

-- name: WantMCPScopes :exec
update turnkeeper.mcp_logins set wanted = @scopes where server = @server;

-- name: ForgetMCPLogin :execrows
delete from turnkeeper.mcp_logins where server = @server;

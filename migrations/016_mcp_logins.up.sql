-- People's logins to MCP servers, which all workers share. The tokens are sealed: who
-- reads the table without the key has none.
-- Oldest program: 2
-- Locks: none; it creates a table.

create sequence turnkeeper.mcp_login_revisions;

create table turnkeeper.mcp_logins (
    server       text primary key,
    revision     bigint not null default nextval('turnkeeper.mcp_login_revisions'), -- another with every change of what is sealed
    sealed       bytea not null,       -- AES-256-GCM: a nonce, then the tokens
    scopes       text[] not null,      -- that were given, as far as that was told
    wanted       text[] not null default '{}', -- that the server has asked for since
    expires_at   timestamptz,          -- of the access token; null: it was not told
    renewable    boolean not null,
    logged_in_at timestamptz not null default clock_timestamp(),
    renewed_at   timestamptz,
    lapsed       text,                 -- why it does not hold any more; null: it does
    claim        text,                 -- of the worker that renews it; null: none does
    claimed_until timestamptz,
    check ((claim is null) = (claimed_until is null))
);
alter sequence turnkeeper.mcp_login_revisions owned by turnkeeper.mcp_logins.revision;

-- Browsers that are signed in to the page.
-- Oldest program: 2
-- Locks: api_tokens, for a moment, for the key that refers to it; the table is new.

-- A session is a token's, with its scopes and agents, and ends with it. Only the
-- hash of what the browser has is kept.
create table turnkeeper.page_sessions (
    sha256     text primary key check (sha256 ~ '^[0-9a-f]{64}$'),
    token_id   bigint not null references turnkeeper.api_tokens on delete cascade,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null
);
create index page_sessions_token on turnkeeper.page_sessions (token_id);
create index page_sessions_expires on turnkeeper.page_sessions (expires_at);

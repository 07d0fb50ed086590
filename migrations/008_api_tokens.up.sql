-- Tokens of the HTTP API.
-- Oldest program: 2
-- Locks: none; the table is new.

-- Only the hash of a token is kept: who has lost one makes another.
create table turnkeeper.api_tokens (
    id           bigint generated always as identity primary key,
    name         text not null unique check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    sha256       text not null unique check (sha256 ~ '^[0-9a-f]{64}$'),
    scopes       text[] not null check (cardinality(scopes) > 0 and scopes <@ array['send', 'read', 'operate']),
    agents       text[] check (cardinality(agents) > 0), -- null: all
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz, -- null: never
    last_used_at timestamptz  -- to the minute
);

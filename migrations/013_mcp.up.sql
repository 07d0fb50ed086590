-- What MCP servers say of their tools: the definition that is pinned, and the one
-- that was seen last.
-- Oldest program: 2
-- Locks: none; it creates a table.

create table turnkeeper.mcp_tools (
    server             text not null,
    tool               text not null, -- the server's own name
    pinned_description text not null,
    pinned_schema      text not null, -- JSON
    pinned_read_only   boolean not null,
    pinned_idempotent  boolean not null,
    pinned_hash        text not null,
    pinned_at          timestamptz not null default clock_timestamp(),
    description        text not null,
    schema             text not null, -- JSON
    read_only          boolean not null,
    idempotent         boolean not null,
    hash               text not null,
    seen_at            timestamptz not null default clock_timestamp(),
    gone               boolean not null default false, -- the server did not list it when it was asked last
    primary key (server, tool)
);

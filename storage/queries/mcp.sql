-- name: MCPTools :many
select * from turnkeeper.mcp_tools where @server = '' or server = @server order by server, tool;

-- name: SeeMCPTools :exec
-- Pins new tools as they are. All callers lock the rows in the same order.
insert into turnkeeper.mcp_tools (server, tool, pinned_description, pinned_schema, pinned_read_only, pinned_idempotent,
    pinned_hash, description, schema, read_only, idempotent, hash)
select @server, s.tool, s.description, s.schema, s.read_only, s.idempotent, s.hash, s.description, s.schema,
    s.read_only, s.idempotent, s.hash
from (select unnest(@tools::text[]) as tool, unnest(@descriptions::text[]) as description,
    unnest(@schemas::text[]) as schema,
    unnest(@read_onlys::boolean[]) as read_only, unnest(@idempotents::boolean[]) as idempotent,
        unnest(@hashes::text[]) as hash) s
order by s.tool
on conflict (server, tool) do update set description = excluded.description, schema = excluded.schema,
    read_only = excluded.read_only, idempotent = excluded.idempotent, hash = excluded.hash,
    seen_at = clock_timestamp(), gone = false;

-- name: MissMCPTools :exec
update turnkeeper.mcp_tools set gone = true where server = @server and not gone and tool <> all(@tools::text[]);

-- name: PinMCPTools :many
-- Pins what was last seen. If a hash is given, it must be that of the definition that
-- gets pinned.
update turnkeeper.mcp_tools set pinned_description = description, pinned_schema = schema, pinned_read_only = read_only,
    pinned_idempotent = idempotent, pinned_hash = hash, pinned_at = clock_timestamp()
where server = @server and (@tool = '' or tool = @tool) and (@hash = '' or hash = @hash) and pinned_hash <> hash
returning tool;

-- name: ForgetMCPTools :execrows
delete from turnkeeper.mcp_tools where server = @server;

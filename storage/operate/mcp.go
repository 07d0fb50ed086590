package operate

import (
	"context"

	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
	"turnkeeper/tools/mcp/mcpdef"
)

// MCPTools lists the stored tools of an MCP server, or of all servers if server is
// empty, by server and name.
func (s *MCPStore) MCPTools(ctx context.Context, server string) ([]mcpdef.Tool, error) {
	rows, err := s.db.Q.MCPTools(ctx, server)
	all := make([]mcpdef.Tool, len(rows))
	for i, r := range rows {
		all[i] = mcpdef.Tool{
			Server: r.Server, Name: r.Tool, PinnedAt: r.PinnedAt, SeenAt: r.SeenAt, Gone: r.Gone,
			Pinned: mcpdef.Definition{
				Description: r.PinnedDescription, Schema: r.PinnedSchema, ReadOnly: r.PinnedReadOnly,
				Idempotent: r.PinnedIdempotent, Hash: r.PinnedHash,
			},
			Seen: mcpdef.Definition{
				Description: r.Description, Schema: r.Schema, ReadOnly: r.ReadOnly,
				Idempotent: r.Idempotent, Hash: r.Hash,
			},
		}
	}
	return all, pg.Translate(err)
}

// SeeMCPTools records the tools that a server lists. A new tool is pinned as it is, and
// a stored tool that is not listed is marked as gone. It returns the stored tools.
func (s *MCPStore) SeeMCPTools(ctx context.Context, server string, seen []mcpdef.Tool) ([]mcpdef.Tool, error) {
	p := dbsqlc.SeeMCPToolsParams{Server: server, Tools: []string{}}
	for _, t := range seen {
		p.Tools = append(p.Tools, s.db.Clean(t.Name))
		p.Descriptions = append(p.Descriptions, s.db.Clean(t.Seen.Description))
		p.Schemas = append(p.Schemas, s.db.Clean(t.Seen.Schema))
		p.ReadOnlys = append(p.ReadOnlys, t.Seen.ReadOnly)
		p.Idempotents = append(p.Idempotents, t.Seen.Idempotent)
		p.Hashes = append(p.Hashes, t.Seen.Hash)
	}
	if err := s.db.Q.SeeMCPTools(ctx, p); err != nil {
		return nil, pg.Translate(err)
	}
	if err := s.db.Q.MissMCPTools(ctx, server, p.Tools); err != nil {
		return nil, pg.Translate(err)
	}
	return s.MCPTools(ctx, server)
}

// PinMCPTools pins the last seen definitions of a server's tools: of one tool, or of all
// if tool is empty. If hash is not empty, only a definition with this hash is pinned. It
// returns the tools whose pinned definition changed.
func (s *MCPStore) PinMCPTools(ctx context.Context, server, tool, hash string) ([]string, error) {
	names, err := s.db.Q.PinMCPTools(ctx, server, tool, hash)
	return names, pg.Translate(err)
}

// ForgetMCPTools deletes the stored tools of a server, so that what it lists next is
// pinned as new. It returns how many it deleted.
func (s *MCPStore) ForgetMCPTools(ctx context.Context, server string) (int64, error) {
	n, err := s.db.Q.ForgetMCPTools(ctx, server)
	return n, pg.Translate(err)
}

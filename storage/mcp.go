package storage

import (
	"context"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// MCPTools are the tools that are kept of an MCP server, or of all where server is
// empty, by server and name.
func (s *Store) MCPTools(ctx context.Context, server string) ([]turnkeeper.MCPTool, error) {
	rows, err := s.q.MCPTools(ctx, server)
	all := make([]turnkeeper.MCPTool, len(rows))
	for i, r := range rows {
		all[i] = turnkeeper.MCPTool{
			Server: r.Server, Name: r.Tool, PinnedAt: r.PinnedAt, SeenAt: r.SeenAt, Gone: r.Gone,
			Pinned: turnkeeper.MCPDefinition{
				Description: r.PinnedDescription, Schema: r.PinnedSchema, ReadOnly: r.PinnedReadOnly, Idempotent: r.PinnedIdempotent, Hash: r.PinnedHash,
			},
			Seen: turnkeeper.MCPDefinition{
				Description: r.Description, Schema: r.Schema, ReadOnly: r.ReadOnly, Idempotent: r.Idempotent, Hash: r.Hash,
			},
		}
	}
	return all, translate(err)
}

// SeeMCPTools notes what a server lists now: a tool that is new is pinned as it is,
// and one that is kept and not among them is gone. It returns what is kept then.
func (s *Store) SeeMCPTools(ctx context.Context, server string, seen []turnkeeper.MCPTool) ([]turnkeeper.MCPTool, error) {
	p := dbsqlc.SeeMCPToolsParams{Server: server, Tools: []string{}}
	for _, t := range seen {
		p.Tools = append(p.Tools, s.clean(t.Name))
		p.Descriptions = append(p.Descriptions, s.clean(t.Seen.Description))
		p.Schemas = append(p.Schemas, s.clean(t.Seen.Schema))
		p.ReadOnlys = append(p.ReadOnlys, t.Seen.ReadOnly)
		p.Idempotents = append(p.Idempotents, t.Seen.Idempotent)
		p.Hashes = append(p.Hashes, t.Seen.Hash)
	}
	if err := s.q.SeeMCPTools(ctx, p); err != nil {
		return nil, translate(err)
	}
	if err := s.q.MissMCPTools(ctx, server, p.Tools); err != nil {
		return nil, translate(err)
	}
	return s.MCPTools(ctx, server)
}

// PinMCPTools accepts the definitions of a server's tools that were seen last: of
// one tool, or of all where tool is empty. Where hash is not empty, only what has
// it is accepted. It returns the tools whose pinned definition is another now.
func (s *Store) PinMCPTools(ctx context.Context, server, tool, hash string) ([]string, error) {
	names, err := s.q.PinMCPTools(ctx, server, tool, hash)
	return names, translate(err)
}

// ForgetMCPTools removes what is kept of a server's tools: what it lists then is
// pinned anew. It returns how many there were.
func (s *Store) ForgetMCPTools(ctx context.Context, server string) (int64, error) {
	n, err := s.q.ForgetMCPTools(ctx, server)
	return n, translate(err)
}

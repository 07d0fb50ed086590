package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// A catalog has the definitions of a server's tools: the stored ones, and those
// that its sessions list.
type catalog struct {
	server Server
	store  Store // nil: nothing is stored
	log    *zap.Logger
	// rereadEvery is the minimum time between two reads of the store by calls of a
	// refused tool, which check whether an operator has accepted it.
	rereadEvery time.Duration

	mu       sync.Mutex
	tools    map[string]entry
	listed   bool              // a session has listed the tools
	reread   time.Time         // when the store was last read
	reported map[string]string // hashes of changed definitions that were logged, by tool
	leftOut  map[string]string // hashes of unusable definitions that were logged, by tool
}

type entry struct {
	mcpdef.Tool
	schema *tools.Schema // of the definition in use
	fault  string        // why the definition cannot be used; empty: it can be used
}

func newCatalog(s Server, store Store, log *zap.Logger, rereadEvery time.Duration) *catalog {
	return &catalog{server: s, store: store, log: log, rereadEvery: rereadEvery, tools: map[string]entry{},
		reported: map[string]string{}, leftOut: map[string]string{}}
}

// inUse returns the definition to use: the pinned one if changes are refused.
func (c *catalog) inUse(t mcpdef.Tool) mcpdef.Definition {
	if c.server.RefuseChange && t.Changed() {
		return t.Pinned
	}
	return t.Seen
}

// read reads the stored definitions. Without a store there are none.
func (c *catalog) read(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	kept, err := c.store.MCPTools(ctx, c.server.Name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reread = time.Now()
	c.take(kept)
	return nil
}

// see updates the catalog and the store from a session's list. If storing
// fails, it logs that and updates only the catalog.
func (c *catalog) see(ctx context.Context, seen []mcpdef.Tool) {
	c.mu.Lock()
	merged := Merge(c.kept(), seen, time.Now())
	c.mu.Unlock()
	if c.store != nil {
		stored, err := c.store.SeeMCPTools(ctx, c.server.Name, seen)
		if err != nil {
			c.log.Warn("what an MCP server says of its tools could not be kept", zap.Error(err))
		} else {
			merged = stored
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed, c.reread = true, time.Now()
	c.take(merged)
}

func (c *catalog) kept() []mcpdef.Tool {
	var kept []mcpdef.Tool
	for _, e := range c.tools {
		kept = append(kept, e.Tool)
	}
	return kept
}

// take replaces the definitions and compiles changed ones. It logs each invalid
// or changed definition once.
func (c *catalog) take(kept []mcpdef.Tool) {
	known := c.tools
	c.tools = map[string]entry{}
	for _, t := range kept {
		d := c.inUse(t)
		e, same := known[t.Name]
		if !same || c.inUse(e.Tool).Hash != d.Hash {
			e = entry{}
			e.schema, e.fault = compile(d)
		}
		e.Tool = t
		c.tools[t.Name] = e
		if e.fault != "" && c.leftOut[t.Name] != d.Hash {
			c.leftOut[t.Name] = d.Hash
			c.log.Warn("an MCP server's tool is left out", zap.String("tool", t.Name), zap.String("why", e.fault))
		}
		if t.Changed() && c.reported[t.Name] != t.Seen.Hash {
			c.reported[t.Name] = t.Seen.Hash
			c.log.Warn("the definition of an MCP server's tool is not the pinned one", zap.String("tool", t.Name),
				zap.String("pinned", t.Pinned.Hash), zap.String("seen", t.Seen.Hash),
				zap.Bool("refused", c.server.RefuseChange))
		}
	}
}

// Fault returns why the tool of a definition is omitted, or "" if the
// definition can be used.
func Fault(d mcpdef.Definition) string {
	_, fault := compile(d)
	return fault
}

func compile(d mcpdef.Definition) (*tools.Schema, string) {
	if size := len(d.Description); size > maxDescription {
		return nil, fmt.Sprintf("its description has %d bytes; at most %d are taken", size, maxDescription)
	}
	if size := len(d.Schema); size > maxSchema {
		return nil, fmt.Sprintf("its schema has %d bytes; at most %d are taken", size, maxSchema)
	}
	schema, err := tools.CompileSchema([]byte(d.Schema))
	if err != nil {
		return nil, err.Error()
	}
	if n := schema.Rounded(); n != "" { // the SDK decodes schemas with floats
		return nil,
			fmt.Sprintf(
				"its schema lists the number %s, which has more digits than are read exactly from a server; it must list such numbers as strings", n)
	}
	return schema, ""
}

// Merge returns the definitions to store after a server has listed its tools:
// new tools are pinned, missing ones are marked as gone.
func Merge(kept, seen []mcpdef.Tool, now time.Time) []mcpdef.Tool {
	before := map[string]mcpdef.Tool{}
	for _, t := range kept {
		before[t.Name] = t
	}
	var merged []mcpdef.Tool
	for _, s := range seen {
		t, known := before[s.Name]
		if !known {
			t = mcpdef.Tool{Server: s.Server, Name: s.Name, Pinned: s.Seen, PinnedAt: now}
		}
		t.Seen, t.SeenAt, t.Gone = s.Seen, now, false
		merged = append(merged, t)
		delete(before, s.Name)
	}
	for _, t := range before {
		t.Gone = true
		merged = append(merged, t)
	}
	return merged
}

// get returns the definition of a tool, and whether a session has listed the tools yet.
func (c *catalog) get(name string) (e entry, known, listed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known = c.tools[name]
	return e, known, c.listed
}

// refusal returns why calls of the tool are refused, or "" if they are allowed.
func (c *catalog) refusal(ctx context.Context, name string) string {
	e, known, listed := c.get(name)
	if known && c.server.RefuseChange && e.Changed() && c.due() {
		if err := c.read(ctx); err != nil {
			c.log.Warn("the pinned definitions could not be read again", zap.Error(err))
		}
		e, known, listed = c.get(name)
	}
	switch {
	case listed && (!known || e.Gone):
		return fmt.Sprintf("the MCP server %q has no tool %q", c.server.Name, name)
	case known && c.server.RefuseChange && e.Changed():
		return fmt.Sprintf(
			"the MCP server %q has changed its tool %q since an operator accepted it, and it is refused until it is accepted again (turnctl mcp pin)", c.server.Name, name)
	case known && e.fault != "":
		return fmt.Sprintf("what the MCP server %q says of its tool %q cannot be used: %s", c.server.Name,
			name, e.fault)
	}
	return ""
}

func (c *catalog) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.reread) > c.rereadEvery
}

package memory

import (
	"context"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// FindExtraction returns the value stored under a key.
func (c *Conn) FindExtraction(ctx context.Context, key turnlog.ExtractionKey) (value []byte, found bool, err error) {
	err = c.ask(ctx, "extraction", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		kept, ok := c.store.state.extractions[key]
		value, found = slices.Clone(kept), ok
		return nil
	})
	return value, found, err
}

// KeepExtraction stores a value under a key, replacing the previous one.
func (c *Conn) KeepExtraction(ctx context.Context, _ turnkeeper.TurnID, key turnlog.ExtractionKey, value []byte) error {
	return c.ask(ctx, "extraction", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		c.store.state.extractions[key] = slices.Clone(value)
		return nil
	})
}

package memory

import (
	"context"
	"slices"

	"turnkeeper"
)

// DescribeOutput returns an output of the turn without its content.
func (c *Conn) DescribeOutput(ctx context.Context, turn turnkeeper.TurnID,
	id turnkeeper.OutputID) (o turnkeeper.Output, err error) {
	err = c.output(ctx, turn, id, func(stored *turnkeeper.Output) { o = *stored })
	o.Text, o.Bytes = "", nil
	return o, err
}

// ReadOutput returns the characters of an output of the turn from one position up to
// another. For binary content, it reads the description instead.
func (c *Conn) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (text string, err error) {
	expired := false
	err = c.output(ctx, turn, id, func(stored *turnkeeper.Output) {
		expired = !stored.ExpiredAt.IsZero()
		chars := []rune(stored.Text + stored.Description) // it has one of them
		end := min(max(to, 0), int64(len(chars)))
		text = string(chars[min(max(from, 0), end):end])
	})
	if err == nil && expired {
		return "", turnkeeper.ErrNotFound
	}
	return text, err
}

// NoteRetrieved adds one to the count of retrievals of an output.
func (c *Conn) NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error {
	return c.output(ctx, turn, id, func(stored *turnkeeper.Output) { stored.Retrieved++ })
}

func (c *Conn) output(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID,
	do func(*turnkeeper.Output)) error {
	return c.ask(ctx, "output", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		row := c.store.state.turn(turn)
		if row == nil {
			return turnkeeper.ErrNotFound
		}
		i := slices.IndexFunc(row.outputs, func(o turnkeeper.Output) bool { return o.ID == id })
		if i < 0 {
			return turnkeeper.ErrNotFound
		}
		do(&row.outputs[i])
		return nil
	})
}

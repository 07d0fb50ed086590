package journal

import (
	"context"
	"slices"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/storage/internal/dbsqlc"
)

// chunks collects parts of outputs for one statement.
type chunks struct {
	outputs  []string
	first    []int64 // position of the first character, or byte of binary content
	contents []string
	binary   [][]byte
}

// text adds a text as chunks of whole characters and returns the position after it.
// at is the position of its first character in the output.
func (c *chunks) text(id turnkeeper.OutputID, at int64, text string) int64 {
	for text != "" {
		piece := text[:wholeChars(text, outputs.ChunkBytes)]
		c.add(id, at, piece, nil)
		at += int64(utf8.RuneCountInString(piece))
		text = text[len(piece):]
	}
	return at
}

// bytes adds binary content. at is the position of its first byte in the output.
func (c *chunks) bytes(id turnkeeper.OutputID, at int64, content []byte) {
	for piece := range slices.Chunk(content, outputs.ChunkBytes) {
		c.add(id, at, "", piece)
		at += int64(len(piece))
	}
}

func (c *chunks) add(id turnkeeper.OutputID, at int64, text string, bytes []byte) {
	c.outputs = append(c.outputs, string(id))
	c.first = append(c.first, at)
	c.contents = append(c.contents, text)
	c.binary = append(c.binary, bytes)
}

// wholeChars returns the largest length, at most n, at which text can be cut without
// splitting a character. The text is valid UTF-8.
func wholeChars(text string, n int) int {
	if len(text) <= n {
		return len(text)
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// queueChunks queues the insert of chunks, if there are any.
func queueChunks(ctx context.Context, q *dbsqlc.Queries, c chunks) error {
	if len(c.outputs) == 0 {
		return nil
	}
	return q.InsertChunks(ctx, c.outputs, c.first, c.contents, c.binary)
}

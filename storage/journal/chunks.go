package journal

import (
	"context"
	"slices"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// chunks collects parts of outputs for one statement.
type chunks struct{ dbsqlc.InsertChunksParams }

// A place is where a chunk begins in its output.
type place struct{ char, byte int64 }

// text adds a text as chunks of whole characters, from a place on, and says
// where the next one begins.
func (c *chunks) text(id turnkeeper.OutputID, at place, text string) place {
	for text != "" {
		piece := text[:wholeChars(text, turnkeeper.OutputChunkBytes)]
		c.add(id, at, piece, nil)
		at.char += int64(utf8.RuneCountInString(piece))
		at.byte += int64(len(piece))
		text = text[len(piece):]
	}
	return at
}

// bytes adds binary content: the characters of a place are bytes there.
func (c *chunks) bytes(id turnkeeper.OutputID, at place, content []byte) {
	for piece := range slices.Chunk(content, turnkeeper.OutputChunkBytes) {
		c.add(id, at, "", piece)
		at.char += int64(len(piece))
		at.byte += int64(len(piece))
	}
}

func (c *chunks) add(id turnkeeper.OutputID, at place, text string, bytes []byte) {
	c.OutputIds = append(c.OutputIds, string(id))
	c.FirstChars = append(c.FirstChars, at.char)
	c.FirstBytes = append(c.FirstBytes, at.byte)
	c.Contents = append(c.Contents, text)
	c.Bytes = append(c.Bytes, bytes)
}

// wholeChars is how many of the text's first n bytes make whole characters. The
// text is valid UTF-8.
func wholeChars(text string, n int) int {
	if len(text) <= n {
		return len(text)
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// queueChunks puts what is too large for a row of outputs into chunks.
func queueChunks(ctx context.Context, q *dbsqlc.Queries, c chunks) error {
	if len(c.OutputIds) == 0 {
		return nil
	}
	return q.InsertChunks(ctx, c.InsertChunksParams)
}

package outputs

import (
	"context"
	"iter"
)

// A Chunk is a part of a text that a model searches in one call.
type Chunk struct {
	Index     int // from 0
	Total     int // number of chunks
	Text      string
	StartChar int64
	StartByte int64
}

// The last part in overlapShare of a chunk is repeated in the next one, so that a passage
// across the border is whole in one of them.
const overlapShare = 20

// Chunks reads a text in chunks of half a model's window, given in tokens. textTokens, the
// estimated tokens of the text, determines the characters per token.
func Chunks(ctx context.Context, src Source, textTokens, windowTokens int64) iter.Seq2[Chunk, error] {
	size := chunkChars(src.Chars(), textTokens, windowTokens)
	step := max(size-size/overlapShare, 1)
	total := 1
	if rest := src.Chars() - size; rest > 0 {
		total += int((rest + step - 1) / step)
	}
	return func(yield func(Chunk, error) bool) {
		bytes := int64(0)
		for i := range total {
			start := int64(i) * step
			text, err := src.Read(ctx, start, start+size)
			if !yield(Chunk{Index: i, Total: total, Text: text, StartChar: start, StartByte: bytes},
				err) || err != nil {
				return
			}
			bytes += int64(len(firstChars(text, int(step))))
		}
	}
}

// chunkChars returns the number of characters that fill half a window.
func chunkChars(chars, tokens, window int64) int64 {
	half := max(window/2, 1)
	if tokens <= 0 || chars <= 0 {
		return max(half*2, 1) // nearly every script has at least two characters per token
	}
	return max(half*chars/tokens, 1)
}

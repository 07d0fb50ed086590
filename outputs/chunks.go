package outputs

import (
	"context"
	"iter"
)

// A Chunk is a part of a text that a model looks through at a time.
type Chunk struct {
	Index     int // from 0
	Total     int // chunks of the text
	Text      string
	StartChar int64
	StartByte int64
}

// overlapShare is the part of a chunk that the next one begins with, so that
// what lies across the border is seen whole: one in twenty.
const overlapShare = 20

// Chunks reads a text in chunks of half a model's window, given in tokens. A
// text of so many tokens as it is said to have takes its share of characters a
// token.
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
			if !yield(Chunk{Index: i, Total: total, Text: text, StartChar: start, StartByte: bytes}, err) || err != nil {
				return
			}
			bytes += int64(len(firstChars(text, int(step))))
		}
	}
}

// chunkChars is how many characters fill half a window.
func chunkChars(chars, tokens, window int64) int64 {
	half := max(window/2, 1)
	if tokens <= 0 || chars <= 0 {
		return max(half*2, 1) // at least two characters a token, in any script but the densest
	}
	return max(half*chars/tokens, 1)
}

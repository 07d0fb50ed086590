package outputs

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Snippet is a part of a text that answers a query, with where it stands. The
// program has found it there: what a model says of positions is not asked.
type Snippet struct {
	Text       string `json:"text"` // verbatim
	StartChar  int64  `json:"start_char"`
	EndChar    int64  `json:"end_char"` // the first after it
	StartByte  int64  `json:"start_byte"`
	EndByte    int64  `json:"end_byte"`
	ChunkIndex int    `json:"chunk_index"` // where it begins
	SHA256     string `json:"sha256"`      // of Text
}

// Locate finds in a chunk what a model says stands there, word by word. What
// does not is dropped. The same words named twice are the first two places.
func Locate(chunk Chunk, claims []string) (found []Snippet) {
	next := map[string]int{} // where to look on for words that were named before
	for _, claim := range claims {
		claim = strings.TrimSpace(claim)
		if claim == "" {
			continue
		}
		from := next[claim]
		i := strings.Index(chunk.Text[from:], claim)
		if i < 0 {
			continue
		}
		i += from
		next[claim] = i + len(claim)
		start := chunk.StartChar + int64(utf8.RuneCountInString(chunk.Text[:i]))
		found = append(found, snippet(claim, start, chunk.StartByte+int64(i), chunk.Index))
	}
	return found
}

func snippet(text string, char, start int64, chunk int) Snippet {
	return Snippet{
		Text: text, StartChar: char, EndChar: char + int64(utf8.RuneCountInString(text)),
		StartByte: start, EndByte: start + int64(len(text)), ChunkIndex: chunk, SHA256: hash([]byte(text)),
	}
}

// Merge puts snippets into the order of the text, and makes one of those that
// overlap or touch.
func Merge(snippets []Snippet) []Snippet {
	sorted := slices.Clone(snippets)
	slices.SortStableFunc(sorted, func(a, b Snippet) int {
		return cmp.Or(cmp.Compare(a.StartByte, b.StartByte), cmp.Compare(b.EndByte, a.EndByte))
	})
	merged := sorted[:0]
	for _, s := range sorted {
		if len(merged) == 0 || s.StartByte > merged[len(merged)-1].EndByte {
			merged = append(merged, s)
			continue
		}
		last := &merged[len(merged)-1]
		if s.EndByte > last.EndByte {
			text := last.Text + s.Text[last.EndByte-s.StartByte:]
			*last = snippet(text, last.StartChar, last.StartByte, last.ChunkIndex)
		}
	}
	return merged
}

// An Extraction is what get_tool_output in mode extract gives back.
type Extraction struct {
	Snippets        []Snippet `json:"snippets"`
	SourceHash      string    `json:"source_hash"` // SHA-256
	SourceSizeBytes int64     `json:"source_size_bytes"`
	ChunksSearched  int       `json:"chunks_searched"`
	ChunksTotal     int       `json:"chunks_total"`
	Confidence      float64   `json:"confidence"` // 0 to 1, as the model has it
	NoMatchReason   string    `json:"no_match_reason,omitempty"`
}

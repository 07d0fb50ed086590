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

	// Bridge says that no model named it: it spans two snippets with white space between.
	Bridge bool `json:"-"`
}

// Locate finds in a chunk what a model says stands there, word by word. What
// does not is dropped. The same words named twice are the first two places.
// The snippets come as they were named; after them come those that span two of
// them with only white space between, which Merge makes one of both.
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
		found = append(found, chunk.snippet(i, i+len(claim)))
	}
	return append(found, bridges(chunk, found)...)
}

// snippet is the part of a chunk from one of its bytes up to another.
func (c Chunk) snippet(from, to int) Snippet {
	return snippet(c.Text[from:to], c.StartChar+int64(utf8.RuneCountInString(c.Text[:from])), c.StartByte+int64(from), c.Index)
}

// bridges are what neighbours in a chunk span together, so that Merge makes one
// of those that only white space parts.
func bridges(chunk Chunk, found []Snippet) (spans []Snippet) {
	last := Snippet{StartByte: -1} // of those so far, the one that reaches furthest
	for _, next := range inTextOrder(found) {
		if last.StartByte >= 0 && next.StartByte > last.EndByte { // else Merge sees that they touch
			gap := chunk.Text[last.EndByte-chunk.StartByte : next.StartByte-chunk.StartByte]
			if strings.TrimSpace(gap) == "" {
				span := chunk.snippet(int(last.StartByte-chunk.StartByte), int(next.EndByte-chunk.StartByte))
				span.Bridge = true
				spans = append(spans, span)
			}
		}
		if next.EndByte > last.EndByte {
			last = next
		}
	}
	return spans
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
	sorted := inTextOrder(snippets)
	merged := sorted[:0]
	for _, s := range sorted {
		if len(merged) == 0 || s.StartByte > merged[len(merged)-1].EndByte {
			s.Bridge = false
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

func inTextOrder(snippets []Snippet) []Snippet {
	sorted := slices.Clone(snippets)
	slices.SortStableFunc(sorted, func(a, b Snippet) int {
		return cmp.Or(cmp.Compare(a.StartByte, b.StartByte), cmp.Compare(b.EndByte, a.EndByte))
	})
	return sorted
}

// Ranked puts snippets, as Merge gives them, into the order in which the first part of each
// was named. One that would take more than half of the room in maxChars characters, or 2500 of
// them, is taken apart again, so that it neither hides the part that was named first nor pushes
// out what was named after that.
func Ranked(merged, named []Snippet, maxChars int) []Snippet {
	const (
		frame   = 400 // characters of an extraction beside the text of a snippet
		longest = 2500
	)
	most := min((maxChars-frame)/2, longest)
	ranked := make([]Snippet, 0, len(merged))
	taken := make([]bool, len(merged))
	small := make([]bool, len(merged))
	for i, m := range merged {
		small[i] = len(m.Text) <= utf8.UTFMax*most && utf8.RuneCountInString(quoted(m.Text)) <= most
	}
	for _, part := range named {
		i, found := slices.BinarySearchFunc(merged, part.StartByte, func(m Snippet, start int64) int { return cmp.Compare(m.StartByte, start) })
		if !found {
			i-- // the one that begins before it
		}
		switch {
		case i < 0 || part.EndByte > merged[i].EndByte || taken[i]:
		case small[i]:
			taken[i] = true
			ranked = append(ranked, merged[i])
		case !part.Bridge && !slices.ContainsFunc(ranked, part.within):
			ranked = append(ranked, part)
		}
	}
	return ranked
}

func (s Snippet) within(other Snippet) bool {
	return s.StartByte >= other.StartByte && s.EndByte <= other.EndByte
}

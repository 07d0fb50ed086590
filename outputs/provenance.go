package outputs

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Snippet is a part of a text that answers a query, with its position. The program has
// found the position itself; a model's claims about it are not used.
type Snippet struct {
	Text       string `json:"text"` // verbatim
	StartChar  int64  `json:"start_char"`
	EndChar    int64  `json:"end_char"` // exclusive
	StartByte  int64  `json:"start_byte"`
	EndByte    int64  `json:"end_byte"`    // exclusive
	ChunkIndex int    `json:"chunk_index"` // chunk in which it begins
	SHA256     string `json:"sha256"`      // of Text

	// Bridge is set if the model did not name this snippet: it spans two snippets with
	// white space between them.
	Bridge bool `json:"-"`
}

// Locate finds the claimed passages in a chunk. It drops those that are not in it verbatim. A
// repeated claim matches the next occurrence. The snippets are in the order of the claims.
// After them come bridges, which make Merge join snippets that only white space separates.
func Locate(chunk Chunk, claims []string) (found []Snippet) {
	next := map[string]int{} // position after the last match of a claim
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

// snippet returns the bytes [from, to) of a chunk.
func (c Chunk) snippet(from, to int) Snippet {
	return snippet(c.Text[from:to], c.StartChar+int64(utf8.RuneCountInString(c.Text[:from])),
		c.StartByte+int64(from), c.Index)
}

// bridges returns a snippet for each two neighbours in a chunk that only white space
// separates. It spans both, so that Merge joins them.
func bridges(chunk Chunk, found []Snippet) (spans []Snippet) {
	last := Snippet{StartByte: -1} // the snippet with the largest end so far
	for _, next := range inTextOrder(found) {
		if last.StartByte >= 0 && next.StartByte > last.EndByte { // else they touch, and Merge joins them
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

// Merge sorts snippets by position, and joins those that overlap or touch.
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

// Ranked sorts the snippets of Merge in the order in which the first part of each was named.
// A snippet that would take more than half of maxChars characters, or more than 2500, is
// replaced by its named parts: it would hide the best part and displace later ones.
func Ranked(merged, named []Snippet, maxChars int) []Snippet {
	const (
		frame   = 400 // characters of an extraction without the text of a snippet
		longest = 2500
	)
	limit := min((maxChars-frame)/2, longest)
	ranked := make([]Snippet, 0, len(merged))
	taken := make([]bool, len(merged))
	small := make([]bool, len(merged))
	for i, m := range merged {
		small[i] = len(m.Text) <= utf8.UTFMax*limit && utf8.RuneCountInString(quoted(m.Text)) <= limit
	}
	for _, part := range named {
		i, found := slices.BinarySearchFunc(merged, part.StartByte, func(m Snippet, start int64) int {
			return cmp.Compare(m.StartByte, start)
		})
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

package outputs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"unicode/utf8"
)

// NoMatch is the reason of an Extraction that found nothing.
const NoMatch = "No content matching query found in tool output."

// An Extraction is the result of get_tool_output in mode extract.
type Extraction struct {
	Snippets        []Snippet `json:"snippets"` // the best first
	SourceHash      string    `json:"source_hash"`
	SourceSizeBytes int64     `json:"source_size_bytes"`
	ChunksSearched  int       `json:"chunks_searched"` // less than ChunksTotal if some failed
	ChunksTotal     int       `json:"chunks_total"`
	Confidence      float64   `json:"confidence"` // 0 to 1, reported by the model
	NoMatchReason   string    `json:"no_match_reason,omitempty"`

	// What Render left out: snippets of the lowest rank, and the end of the only
	// remaining one.
	SnippetsDropped int  `json:"snippets_dropped,omitempty"`
	SnippetCut      bool `json:"snippet_cut,omitempty"`
}

// Render returns the extraction as JSON of at most maxChars characters. It drops the last
// snippets and, if one is left, shortens it to a verbatim part. If maxChars is below about
// 400, the JSON may be longer.
func (x Extraction) Render(maxChars int) string {
	if x.Snippets == nil {
		x.Snippets = []Snippet{}
	}
	all := len(x.Snippets)
	first := func(n int) Extraction {
		part := x
		part.Snippets, part.SnippetsDropped = x.Snippets[:n], all-n
		return part
	}
	over := sort.Search(all+1, func(n int) bool { return n > 1 && !fits(encoded(first(n)), maxChars) })
	part := first(over - 1)
	if whole := encoded(part); fits(whole, maxChars) || len(part.Snippets) == 0 {
		return whole
	}
	return part.shortened(maxChars)
}

func fits(text string, maxChars int) bool { return utf8.RuneCountInString(text) <= maxChars }

// shortened returns the JSON with the longest beginning of the only snippet that fits. It
// searches for the length, because JSON escapes make texts longer.
func (x Extraction) shortened(maxChars int) string {
	only := x.Snippets[0]
	x.SnippetCut = true
	with := func(chars int) string {
		x.Snippets = []Snippet{snippet(firstChars(only.Text, chars), only.StartChar, only.StartByte, only.ChunkIndex)}
		return encoded(x)
	}
	over := sort.Search(utf8.RuneCountInString(only.Text), func(chars int) bool { return !fits(with(chars), maxChars) })
	if over <= 1 {
		x.Snippets, x.SnippetCut, x.SnippetsDropped = []Snippet{}, false, x.SnippetsDropped+1
		return encoded(x)
	}
	return with(over - 1)
}

func encoded(x Extraction) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(x); err != nil { // its types can always be encoded
		panic(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// Verify reports whether src has the hash of the extraction's source and contains every
// snippet at its position.
func (x Extraction) Verify(ctx context.Context, src Source, hashOfSource string) (bool, error) {
	if x.SourceHash != hashOfSource {
		return false, nil
	}
	for _, s := range x.Snippets {
		if s.Text == "" || s.StartChar < 0 || s.EndChar-s.StartChar != int64(utf8.RuneCountInString(s.Text)) {
			return false, nil
		}
		text, err := src.Read(ctx, s.StartChar, s.EndChar)
		if err != nil {
			return false, err
		}
		if text != s.Text || s.EndByte-s.StartByte != int64(len(text)) || s.SHA256 != hash([]byte(text)) {
			return false, nil
		}
	}
	return true, nil
}

// Fallback returns the result of an extraction that failed: a warning with the reason, and
// the beginning and the end of the text with the size of the gap, in at most maxChars
// characters. The warning is never shortened. id is that of the output.
func Fallback(ctx context.Context, src Source, id, reason string, maxChars int) (string, error) {
	total := src.Chars()
	whole := fmt.Sprintf("[extraction failed: %s. The whole text follows]\n\n", reason)
	if total+int64(utf8.RuneCountInString(whole)) <= int64(maxChars) {
		text, err := src.Read(ctx, 0, total)
		return whole + text, err
	}
	frame := func(head, tail int64) (warning, marker string) {
		return fmt.Sprintf("[extraction failed: %s. The first %d and the last %d of %d chars follow; "+
				"use get_tool_output(%q, mode) with mode \"slice\" to read more]\n\n", reason, head, tail, total, id),
			fmt.Sprintf("\n\n[... %d chars omitted ...]\n\n", total-head-tail)
	}
	// Measured with the longest possible numbers.
	warning, _ := frame(total, total)
	_, marker := frame(0, 0)
	room := max(int64(maxChars-utf8.RuneCountInString(warning)-utf8.RuneCountInString(marker)), 0)
	head, tail := room-room/2, room/2
	warning, marker = frame(head, tail)
	first, err := src.Read(ctx, 0, head)
	if err != nil {
		return "", err
	}
	last, err := src.Read(ctx, total-tail, total)
	return warning + first + marker + last, err
}

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

// An Extraction is what get_tool_output gives back in mode extract.
type Extraction struct {
	Snippets        []Snippet `json:"snippets"` // the best first
	SourceHash      string    `json:"source_hash"`
	SourceSizeBytes int64     `json:"source_size_bytes"`
	ChunksSearched  int       `json:"chunks_searched"` // less than ChunksTotal: some could not be
	ChunksTotal     int       `json:"chunks_total"`
	Confidence      float64   `json:"confidence"` // 0 to 1, as the model has it
	NoMatchReason   string    `json:"no_match_reason,omitempty"`

	// What had to be left out of a result that is too long: snippets of the
	// lowest rank, and the end of the only one that is left.
	SnippetsDropped int  `json:"snippets_dropped,omitempty"`
	SnippetCut      bool `json:"snippet_cut,omitempty"`
}

// Render is the extraction as JSON of at most so many characters: what is over
// is taken from its end, snippet by snippet, and the last one that is left is
// shortened, to a part that is verbatim as well. Below some 400 characters
// nothing helps, and the JSON is longer.
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

// shortened is the extraction with as much of its one snippet as there is room
// for; escapes make a text longer than it is, so the room is searched for.
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
	if err := encoder.Encode(x); err != nil { // its types always encode
		panic(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// Verify reads the snippets again where they are said to stand, and says whether
// every one of them does, in a source with this hash.
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

// Fallback stands for an extraction that failed, for the reason given: a
// warning, and the first and last of the text with what is missing between them,
// in at most maxChars characters (a warning that alone is longer is whole all
// the same). id is what the output is known by.
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
	// With the longest numbers there can be: shorter ones leave a little room.
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

package outputs

import (
	"context"
	"unicode/utf8"
)

// A Source is a stored text that can be read in parts. Positions are Unicode characters,
// from 0.
type Source interface {
	// Chars returns the number of characters.
	Chars() int64
	// Read returns the characters [from, to), or fewer if the text is shorter.
	Read(ctx context.Context, from, to int64) (string, error)
}

// Text returns a Source of a text in memory.
func Text(text string) Source { return wholeText{text, int64(utf8.RuneCountInString(text))} }

type wholeText struct {
	text  string
	chars int64
}

func (t wholeText) Chars() int64 { return t.chars }

func (t wholeText) Read(_ context.Context, from, to int64) (string, error) {
	from, to = max(from, 0), min(to, t.chars)
	if from >= to {
		return "", nil
	}
	if int64(len(t.text)) == t.chars { // one byte per character
		return t.text[from:to], nil
	}
	return firstChars(dropChars(t.text, int(from)), int(to-from)), nil
}

// dropChars returns the text without its first n characters.
func dropChars(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[i:]
		}
		n--
	}
	return ""
}

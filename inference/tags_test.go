package inference

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTagsBetweenQuotationMarks compares the search for a tag with a look at each position of random texts.
func TestTagsBetweenQuotationMarks(t *testing.T) {
	const tag = "<a>"
	look := func(text string, from int, before byte) int {
		for at := from; at+len(tag) <= len(text); at++ {
			if at > 0 {
				before = text[at-1]
			}
			after := byte(0)
			if at+len(tag) < len(text) {
				after = text[at+len(tag)]
			}
			isQuoted := strings.IndexByte("\"'`", before) >= 0 && before == after
			if strings.EqualFold(text[at:at+len(tag)], tag) && !isQuoted {
				return at
			}
		}
		return -1
	}
	parts := []string{"<a>", "<A>", "`", "\"", "'", "x", "é", "<", "`<a>`", "\"<a>\""}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range 1 + random.IntN(6) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		text, before := b.String(), "`\"x"[random.IntN(3)]
		from := random.IntN(len(text) + 1)
		want := look(text, from, before)
		at, end := findTag(text, from, before, tag, true)
		if at != want || at >= 0 && end != at+len(tag) {
			t.Fatalf("in %q after %q from %d it is at %d to %d, want %d", text, before, from, at, end, want)
		}
		// As long as the text may go on, a tag at its end may yet be quoted.
		if at, _ := findTag(text, from, before, tag, false); at != want &&
			(at >= 0 || !strings.HasSuffix(strings.ToLower(text), tag)) {
			t.Fatalf("in %q after %q from %d, which goes on, it is at %d, want %d", text, before, from, at, want)
		}
	}
}

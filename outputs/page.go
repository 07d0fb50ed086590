package outputs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// A Page is a part of a stored text, as get_continuation returns it.
type Page struct {
	Text       string
	Start, End int64 // characters; End is where the next page begins
	Total      int64
}

// PageAt reads the page that begins at offset and has at most maxChars characters. If the
// offset is outside the text, the error is a Refusal.
func PageAt(ctx context.Context, src Source, offset int64, maxChars int) (Page, error) {
	total := src.Chars()
	switch {
	case offset < 0:
		return Page{}, refusal("offset must not be negative, and is %d", offset)
	case offset > total, offset == total && total > 0:
		return Page{}, refusal("offset %d is past the end: there are %d characters", offset, total)
	}
	end := min(offset+int64(Limits{MaxChars: maxChars}.orDefaults().MaxChars), total)
	text, err := src.Read(ctx, offset, end)
	return Page{Text: text, Start: offset, End: end, Total: total}, err
}

// More reports whether the text continues after the page.
func (p Page) More() bool { return p.End < p.Total }

// PageMarkerChars is an upper bound for the length of a page's marker, without the id.
const PageMarkerChars = 1000

// Render returns the page for the model: its text and, if there is more, a marker that says
// how to read on. id is that of the tool call.
func (p Page) Render(id string) string {
	if !p.More() {
		return p.Text
	}
	return fmt.Sprintf("%s\n\n[truncated — showing %d-%d/%d chars. %d chars remaining. "+
		`Call get_continuation with tool_call_id="%s" offset=%d to read more]`,
		p.Text, p.Start, p.End, p.Total, p.Total-p.End, id, p.End)
}

// FirstPageChars returns the number of characters of a result that the first page shows, or
// 0 if shown is not a first page.
func FirstPageChars(shown string) int64 {
	at, digits := -1, ""
	for _, marker := range []string{firstMarker, plainMarker} { // the last one is not the tool's
		if i := strings.LastIndex(shown, marker); i > at {
			at, digits = i, shown[i+len(marker):]
		}
	}
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

const (
	firstMarker = "\n\n[truncated — showing "
	plainMarker = "\n\n[... truncated: showing first "
)

// firstPage returns the beginning of a text that is too long, with a marker that says how to
// read on.
func firstPage(text string, chars, maxChars int, id string) string {
	return fmt.Sprintf("%s"+firstMarker+"%d/%d chars. Call get_continuation with tool_call_id=\"%s\" to read more]",
		firstChars(text, maxChars), maxChars, chars, id)
}

// A Refusal is an error whose text is shown to the model.
type Refusal struct{ text string }

func (r *Refusal) Error() string { return r.text }

// NewRefusal returns a Refusal with the given text.
func NewRefusal(text string) error { return &Refusal{text} }

func refusal(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

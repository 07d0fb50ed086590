package outputs

import (
	"fmt"
	"strings"
	"unicode"
)

// show returns what the model is shown of a text of so many characters and tokens: the whole
// text, its first MaxChars characters with a marker, or the placeholder.
func show(text string, chars int, tokens int64, limits Limits) string {
	maxChars := limits.MaxChars
	switch {
	case limits.Placeholder.ID != "" && tokens > limits.PlaceholderAbove:
		return limits.Placeholder.Large(tokens)
	case chars <= maxChars:
		return text
	case limits.CallID != "":
		return firstPage(text, chars, maxChars, limits.CallID)
	}
	return fmt.Sprintf("%s"+plainMarker+"%d of %d chars]", firstChars(text, maxChars), maxChars, chars)
}

// cutNote returns a note that the stored text is incomplete, and an empty text if it is
// complete.
func cutNote(incomplete bool, size int64, sizeKnown bool) string {
	switch {
	case !incomplete:
		return ""
	case !sizeKnown:
		return "\n\n[cut: the result was larger than this; the rest was not kept]"
	default:
		return fmt.Sprintf("\n\n[cut: the result had %d bytes; what is missing at its end was not kept]", size)
	}
}

// firstChars returns the first n characters of a text.
func firstChars(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// MaxPreviewChars is the maximum length of a preview, including the ellipsis.
const MaxPreviewChars = 220

// Preview returns the beginning of a text on one line, for lists and summaries: at most
// MaxPreviewChars characters. Each run of white space and control characters becomes one
// blank. A cut text ends with an ellipsis.
func Preview(text string) string {
	preview := make([]rune, 0, MaxPreviewChars+1)
	blank := false
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			blank = len(preview) > 0
			continue
		}
		if blank {
			preview, blank = append(preview, ' '), false
		}
		if preview = append(preview, r); len(preview) > MaxPreviewChars {
			return strings.TrimRight(string(preview[:MaxPreviewChars-1]), " ") + "…"
		}
	}
	return string(preview)
}

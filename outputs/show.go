package outputs

import (
	"fmt"
	"strings"
	"unicode"
)

// show is what the model is shown of a text of so many characters and tokens: all
// of it, its first MaxChars characters, a blank line and a marker, or what stands
// for it.
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

// cutNote tells that a text is not whole in the store either, and so not to be
// had by reading on. Empty for one that is.
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

// firstChars is the text's first n characters, or all of it.
func firstChars(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// MaxPreviewChars bounds a preview, its ellipsis included.
const MaxPreviewChars = 220

// Preview is the beginning of a text on one line, for lists and summaries: at
// most MaxPreviewChars characters, every run of white space and control
// characters folded into one blank, and an ellipsis where it was cut.
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

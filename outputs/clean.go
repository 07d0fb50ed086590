package outputs

import (
	"strings"
	"unicode/utf8"
)

// Clean returns text that every store accepts: it replaces each run of invalid UTF-8 by one
// U+FFFD, and removes NUL characters.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

// cutText returns the first n bytes of the text, or fewer so that no character is split.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for start := n; start >= 0 && start > n-utf8.UTFMax; start-- {
		if !utf8.RuneStart(text[start]) {
			continue
		}
		if _, size := utf8.DecodeRuneInString(text[start:]); start+size > n {
			return text[:start]
		}
		break
	}
	return text[:n]
}

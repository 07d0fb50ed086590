package outputs

import (
	"strings"
	"unicode/utf8"
)

// Clean makes text that every store takes: each run of bytes that is not valid
// UTF-8 becomes one U+FFFD, and NUL characters are dropped. Clean text is
// returned as it is.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

// cutText is at most the first n bytes of the text, less where the cut would
// split a character.
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

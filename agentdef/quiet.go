package agentdef

import (
	"strings"
	"unicode"
)

const maxQuietReply = 200 // characters

// Quiet says that the answer of a scheduled turn is the agent's word for having
// nothing to tell. Models set it in bold, quote it, or end it with a full stop:
// letter case, and what stands around its letters and digits, do not count.
func (d *Definition) Quiet(answer string) bool {
	word := quietCore(d.QuietReply)
	return word != "" && strings.EqualFold(quietCore(answer), word)
}

// quietCore is a text from its first letter or digit to its last.
func quietCore(text string) string {
	return strings.TrimFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

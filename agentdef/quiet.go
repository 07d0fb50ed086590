package agentdef

import (
	"strings"
	"unicode"
)

const maxQuietReply = 200 // characters

// Quiet reports whether the answer of a scheduled turn is the agent's QuietReply. It ignores
// letter case, and everything before the first and after the last letter or digit, because
// models set the phrase in bold, quote it, or end it with a full stop.
func (d *Definition) Quiet(answer string) bool {
	phrase := quietCore(d.QuietReply)
	return phrase != "" && strings.EqualFold(quietCore(answer), phrase)
}

// quietCore returns a text from its first letter or digit to its last.
func quietCore(text string) string {
	return strings.TrimFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

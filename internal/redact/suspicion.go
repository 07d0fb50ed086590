package redact

import "strings"

// triggers lists words by their last byte. Any text that looks like a secret contains one of them, ignoring case.
var triggers = byLastByte(append([]string{urlMark, authorization, bearerWord}, keyPrefixes...))

func byLastByte(words []string) *[256][]string {
	var table [256][]string
	for _, word := range words {
		last := word[len(word)-1]
		table[lower(last)] = append(table[lower(last)], word)
	}
	for b := byte('A'); b <= 'Z'; b++ {
		table[b] = table[lower(b)]
	}
	return &table
}

// suspicious reports whether s may contain a known secret or text that looks like one. It is fast, and most text
// contains neither.
func (a *automaton) suspicious(s string) bool {
	state := int32(0)
	for i := range len(s) {
		if state = a.step(state, s[i]); a.nodes[state].longest > 0 {
			return true
		}
		for _, word := range triggers[s[i]] {
			if from := i + 1 - len(word); from >= 0 && strings.EqualFold(s[from:i+1], word) {
				return true
			}
		}
	}
	return false
}

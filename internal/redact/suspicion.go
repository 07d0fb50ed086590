package redact

import "strings"

// triggers are texts, by their last byte, of which every text that looks like a secret contains one,
// ignoring case.
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

// suspicious is a fast check whether s may contain text that looks like a secret. Most text does not.
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

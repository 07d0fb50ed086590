package askform

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Visible formats JSON like Pretty, and escapes what a person cannot see in its strings: invisible characters, those
// that change the direction of text, and each space that follows another. It is the same value, so a person may change
// it and send it back.
func Visible(text string) string { return Escaped(Pretty(text)) }

// Escaped escapes like Visible, and leaves the format as it is.
func Escaped(text string) string {
	var b strings.Builder
	in, escape, before := false, false, '\n' // within a string; after a backslash; the character before
	for _, r := range text {
		if hidden(r) || in && r == ' ' && before == ' ' {
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, "\\u%04x", unit)
			}
		} else {
			b.WriteRune(r)
		}
		if r == '"' && !escape {
			in = !in
		}
		escape, before = r == '\\' && !escape, r
	}
	return b.String()
}

// hidden reports whether a character shows nothing, or changes how others are shown.
func hidden(r rune) bool {
	return !unicode.IsPrint(r) && r != '\n' || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector) ||
		r == '\u2800' || r == '\U0001d159' // a Braille cell without dots, a note without a head
}

// Doubts returns a warning for each word that contains lookalike letters of another script, such as a Cyrillic а in a
// Latin word. The warnings are for people.
func Doubts(text string) (doubts []string) {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return hidden(r) || !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
	})
	for _, word := range words {
		doubt := ""
		switch found := scripts(word); {
		case len(found) > 1:
			doubt = fmt.Sprintf("%q mixes %s", shortened(word), strings.Join(found, " and "))
		case len(found) == 1 && (found[0] == wide || found[0] == mathematical):
			doubt = fmt.Sprintf("%q has %s", shortened(word), found[0])
		}
		if doubt != "" && !slices.Contains(doubts, doubt) {
			doubts = append(doubts, doubt)
		}
	}
	return doubts[:min(len(doubts), maxDoubts)]
}

const (
	maxDoubts = 20
	maxWord   = 60 // characters of a word that are shown
)

func shortened(word string) string {
	runes := []rune(word)
	if len(runes) <= maxWord {
		return word
	}
	return string(runes[:maxWord]) + "…"
}

// likes are scripts whose letters look like those of others.
var likes = []struct {
	name  string
	table *unicode.RangeTable
}{
	{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}, {"Armenian", unicode.Armenian},
	{"Cherokee", unicode.Cherokee},
	{"Coptic", unicode.Coptic}, {"Georgian", unicode.Georgian}, {"Lisu", unicode.Lisu}, {"Hebrew", unicode.Hebrew},
	{"Deseret", unicode.Deseret},
}

// scripts returns the scripts of a word's letters, in the order of likes.
func scripts(word string) (found []string) {
	has := map[string]bool{}
	for _, r := range word {
		if name := scriptOf(r); name != "" {
			has[name] = true
		}
	}
	for _, s := range likes {
		if has[s.name] {
			found = append(found, s.name)
		}
	}
	for _, name := range []string{wide, mathematical} {
		if has[name] {
			found = append(found, name)
		}
	}
	return found
}

const (
	wide         = "full-width letters"
	mathematical = "mathematical letters"
)

// scriptOf returns the name of a letter's script; empty: it has none, or none of likes.
func scriptOf(r rune) string {
	switch {
	case r >= '\uff01' && r <= '\uff5e':
		return wide
	case r >= '\U0001d400' && r <= '\U0001d7ff':
		return mathematical
	case !unicode.IsLetter(r):
		return ""
	}
	for _, s := range likes {
		if unicode.Is(s.table, r) {
			return s.name
		}
	}
	return ""
}

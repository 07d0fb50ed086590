package pg

import "strings"

// Clean makes text Storable and masks known secrets, as the last check before text is
// stored.
func (s *DB) Clean(text string) string {
	return s.Masked(Storable(text))
}

// Masked returns text with the secrets that this process knows masked.
func (s *DB) Masked(text string) string {
	if s.Mask == nil {
		return text
	}
	return s.Mask(text)
}

// Storable replaces what Postgres refuses in text: NUL and invalid UTF-8.
func Storable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return text
}

// CleanAll cleans each of the texts.
func (s *DB) CleanAll(texts []string) []string {
	clean := make([]string, len(texts))
	for i, text := range texts {
		clean[i] = s.Clean(text)
	}
	return clean
}

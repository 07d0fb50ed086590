package pg

import "strings"

// Clean makes text Storable: Postgres refuses NUL and broken UTF-8. Known
// secrets are masked here once more, as the last line before the disk.
func (s *DB) Clean(text string) string {
	return s.Masked(Storable(text))
}

// Masked returns text without the secrets that this process knows.
func (s *DB) Masked(text string) string {
	if s.Mask == nil {
		return text
	}
	return s.Mask(text)
}

// Storable returns text as Postgres takes it.
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

package storage

import "strings"

// clean makes text storable: Postgres refuses NUL and broken UTF-8. Known
// secrets are masked here once more, as the last line before the disk.
func (s *Store) clean(text string) string {
	return s.masked(storable(text))
}

func (s *Store) masked(text string) string {
	if s.mask == nil {
		return text
	}
	return s.mask(text)
}

func storable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return text
}
